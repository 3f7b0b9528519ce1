"""The robustness audit: it breaks radii that are too large, and leaves those alone that hold."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hauberk.accounting import Ledger, PrivacyPlan
from hauberk.accounting.card import RobustnessObservation
from hauberk.attacks import PGD
from hauberk.audit import RobustnessAudit, audit_robustness, published_certificates, strongest_first
from hauberk.certify import Certificates, NoiseLayers, Smoothed
from hauberk.errors import RequestError
from hauberk.methods.claims import PublishedRadius
from hauberk.methods.run import Run

SIGMA, MAPS = 0.1, 16
QUICK = (PGD(norm="l2", steps=10, draws=16, stop_when_broken=False),)


def half_space() -> Smoothed:
    """Two classes on either side of ``sum x = 8``: the tight radius is the distance, nothing more holds."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.stack([torch.ones(16), -torch.ones(16)]))
        model[1].bias.copy_(torch.tensor([-8.0, 8.0]))
    return Smoothed(model, sigma=SIGMA, classes=2)


class ManyMaps(nn.Module):
    """The same picture in all feature maps, of which the sum decides: noise averages out, a step does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, MAPS, 1, bias=False)
        self.last = nn.Linear(MAPS * 16, 2)
        with torch.no_grad():
            self.first.weight.fill_(1.0)
            self.last.weight.copy_(torch.stack([torch.ones(MAPS * 16), -torch.ones(MAPS * 16)]))
            self.last.bias.copy_(torch.tensor([-8.0 * MAPS, 8.0 * MAPS]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(self.first(x).flatten(1)))


def pictures(count: int, *, distance: float) -> Tensor:
    """Around one half, ``distance`` (l2) from the border between the classes, on either side of it."""
    x = 0.5 + 0.05 * torch.randn(count, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    sides = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0)
    sums = 8 + sides * distance * 4
    return (x + ((sums - x.sum((1, 2, 3))) / 16).view(-1, 1, 1, 1)).clamp(0, 1)


def enlarged(certificates: Certificates, factor: float) -> Certificates:
    return replace(certificates, radii=factor * certificates.radii)


@pytest.fixture(scope="module")
def certified() -> tuple[Smoothed, Tensor, Certificates]:
    target, x = half_space(), pictures(60, distance=0.15)
    return target, x, target.certify(x, samples=1000, alpha=1e-3)


def test_honest_certificates_are_never_broken(certified: tuple[Smoothed, Tensor, Certificates]) -> None:
    target, x, certificates = certified
    for seed in range(3):
        found = audit_robustness(target, x, certificates, attacks=QUICK, alpha=0.05, fraction=1.0, seed=seed)
        assert (found.tested, found.broken_count, found.false_count) == (60, 0, 0)
        assert not found.refuted
        assert (found.sizes <= found.radii).all()


def test_a_radius_that_is_half_as_large_again_is_broken(
    certified: tuple[Smoothed, Tensor, Certificates],
) -> None:
    target, x, certificates = certified
    found = audit_robustness(target, x, enlarged(certificates, 1.5), attacks=QUICK, alpha=1e-6)
    assert found.broken_count >= 57
    assert found.refuted
    assert found.p_value < 1e-100
    # at every point that is called broken the true answer is another one: here the truth is known
    side = found.points.sum((1, 2, 3)).numpy() > 8
    assert (side[found.broken] == (found.labels[found.broken] == 1)).all()
    assert (found.rivals[found.broken] == 1 - found.labels[found.broken]).all()
    assert (found.sizes <= 0.99 * found.radii + 1e-6).all()


def test_the_published_radius_of_one_feature_map_is_broken() -> None:
    noise, x = NoiseLayers(after_first_map=1.6), pictures(24, distance=0.6)
    run = Run(
        method="half-space",
        variant="paper",
        claim_source="",
        data="toy",
        plan=PrivacyPlan(records=10, batch=5, epochs=1, noise_multiplier=1.0, delta=1e-3),
        ledger=Ledger(),
        model=ManyMaps(),
        classes=2,
        noise=noise,
        published_radius=PublishedRadius(certificate="tight", one_map=True, source="one feature map"),
        curve=(),
        seed=0,
        command="",
    )
    certificates = run.classifier.certify(x, samples=1000, alpha=1e-3)
    published = published_certificates(run, certificates, (1, 4, 4))
    assert published is not None
    certain = certificates.radii > 0
    assert certain.all()
    np.testing.assert_allclose(published.radii, np.sqrt(MAPS) * certificates.radii, rtol=1e-6)
    boast = audit_robustness(run, x, published, attacks=QUICK)
    assert boast.certificate == "published: one feature map"
    assert boast.broken_count == boast.tested == 24
    honest = audit_robustness(run, x, certificates, attacks=QUICK)
    assert honest.false_count == 0
    assert published_certificates(replace(run, published_radius=None), certificates, (1, 4, 4)) is None


def test_a_certificate_of_the_wrong_class_is_mistaken_and_not_broken(
    certified: tuple[Smoothed, Tensor, Certificates],
) -> None:
    target, x, certificates = certified
    found = audit_robustness(
        target, x, replace(certificates, labels=1 - certificates.labels), limit=20, attacks=QUICK
    )
    assert (found.tested, found.broken_count, int(found.mistaken.sum())) == (20, 0, 20)
    assert found.refuted


def test_a_close_call_is_no_break() -> None:
    """On the border itself both classes are equally likely: whatever the draws say, nothing is shown."""
    target, x = half_space(), pictures(40, distance=0.0)
    votes = np.full(40, 900)
    boast = Certificates(
        labels=np.zeros(40, dtype=np.int64), radii=np.full(40, 1e-9), votes=votes, samples=1000, alpha=1e-3
    )
    calls = [
        audit_robustness(target, x, boast, attacks=QUICK, alpha=0.2, most_draws=1000, seed=seed)
        for seed in range(5)
    ]
    # each run accuses one of its 40 with probability 0.1 at most, however often it looks
    assert sum(call.false_count for call in calls) <= 2
    assert sum(int(call.undecided.sum()) for call in calls) > 100


def test_one_break_is_what_certificates_may_have(certified: tuple[Smoothed, Tensor, Certificates]) -> None:
    """Certificates may err with their own alpha: one of a hundred is compatible with 1 %, ten are not."""

    def with_broken(count: int) -> RobustnessAudit:
        target, x, certificates = certified
        found = audit_robustness(target, x, certificates, limit=50, attacks=QUICK)
        broken: NDArray[np.bool_] = np.arange(50) < count
        return replace(found, broken=broken, certificate_alpha=0.01, alpha=0.05)

    assert not with_broken(0).refuted
    assert not with_broken(1).refuted
    assert with_broken(10).refuted
    assert with_broken(1).p_value == pytest.approx(1 - 0.99**50)


def test_what_is_reported(certified: tuple[Smoothed, Tensor, Certificates]) -> None:
    target, x, certificates = certified
    stages: list[tuple[str, int, int]] = []
    found = audit_robustness(
        target,
        x,
        certificates,
        limit=10,
        attacks=strongest_first("l2", quick=True),
        progress=lambda *where: stages.append(where),
    )
    assert stages == [("attack 1", 10, 10)]
    assert found.observation() == RobustnessObservation(
        attack="l2 PGD, 20 steps, expectation over 16 draws", fraction_of_certified=0.99, tested=10, broken=0
    )
    shown = found.to_json()
    assert (shown["tested"], shown["broken"], shown["refuted"]) == (10, 0, False)
    assert len(strongest_first("l2")) > 1
    again = audit_robustness(target, x, certificates, limit=10, attacks=strongest_first("l2", quick=True))
    assert torch.equal(again.points, found.points)


def test_wrong_requests_are_refused(certified: tuple[Smoothed, Tensor, Certificates]) -> None:
    target, x, certificates = certified
    for kind, message in (
        ({"attacks": ()}, "at least one"),
        ({"attacks": strongest_first("linf")}, "certificates are in l2"),
        ({"fraction": 1.5}, "fraction"),
        ({"most_draws": 10}, "at least 100 draws"),
        ({"limit": 0}, "at least 1"),
        ({"alpha": 0.7}, "alpha"),
    ):
        with pytest.raises(RequestError, match=message):
            audit_robustness(target, x, certificates, **kind)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="59 inputs"):
        audit_robustness(target, x[:59], certificates)
    with pytest.raises(RequestError, match="abstention"):
        audit_robustness(target, x, replace(certificates, labels=np.full(60, -1)))
    scores = target.certify(x[:3], samples=100, bound="hoeffding")
    with pytest.raises(RequestError, match="mean scores"):
        audit_robustness(target, x[:3], scores)
