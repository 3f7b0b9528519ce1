"""Adversarial copies by an imitation network: of their own record alone, and the card is honest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hauberk import models
from hauberk.accounting import PrivacyPlan
from hauberk.attacks.imitation import Architecture, Imitation, ImitationNetwork, Origin, save_imitation
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods.catalogue import find_method
from hauberk.methods.imitation_views import NOT_PUBLIC, ImitationTraining, ImitationViews
from hauberk.methods.settings import TrainSettings

PLAN = PrivacyPlan.calibrate(epsilon=3.0, delta=1e-3, records=64, batch=16, epochs=1)


def imitation(public: str | None = "first:10 of digits", noise: float = 0.5) -> Imitation:
    torch.manual_seed(0)
    network = ImitationNetwork((1, 6, 6), 3, Architecture(widths=(2, 2, 3, 4), noise=noise))
    origin = Origin(public=public)
    return Imitation(kind="ain", network=network, target=None, bound=0.1, origin=origin)


def records(count: int = 64) -> Dataset:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(count, 1, 6, 6, generator=generator), torch.randint(3, (count,), generator=generator)
    return Dataset(name="noise", x=x, y=y, classes=3)


def network() -> torch.nn.Module:
    torch.manual_seed(2)
    return models.build("mlp", shape=(1, 6, 6), classes=3)


def test_a_view_depends_on_its_own_record_step_and_key_alone() -> None:
    views = ImitationViews(network=network(), imitation=imitation(), size=0.2)
    x, names = records(6).x, torch.tensor([4, 9, 1, 0, 7, 3])
    whole = views(x, records=names, step=5, key=(1, 2))
    assert whole.shape == (6, 2, 1, 6, 6)
    assert torch.equal(whole[:, 0], x)
    assert ((whole[:, 1].double() - x.double()).abs() <= 0.2).all()
    assert ((whole >= 0) & (whole <= 1)).all()
    alone = views(x[2:3], records=names[2:3], step=5, key=(1, 2))
    assert torch.allclose(alone[0], whole[2], atol=1e-6)
    others = x.clone()
    others[3:] = 1 - others[3:]
    assert torch.allclose(views(others, records=names, step=5, key=(1, 2))[:3], whole[:3], atol=1e-6)
    for step, key in ((6, (1, 2)), (5, (1, 3))):
        assert not torch.equal(views(x, records=names, step=step, key=key)[:, 1], whole[:, 1])


def test_without_noise_a_record_has_one_copy() -> None:
    views = ImitationViews(network=network(), imitation=imitation(noise=0.0), size=0.2)
    x, names = records(4).x, torch.arange(4)
    one, other = (views(x, records=names, step=step, key=(0, 0)) for step in (1, 2))
    assert torch.equal(one, other)


@pytest.mark.parametrize("public", ["first:10 of digits", None])
def test_the_card_proves_only_with_a_public_network(public: str | None) -> None:
    data = records()
    run = ImitationTraining(network(), plan=PLAN, imitation=imitation(public), size=0.2).fit(data)
    card = run.audit(data)
    if public is None:
        assert card.privacy.proven is None
        assert NOT_PUBLIC in (card.privacy.reason or "")
    else:
        assert card.privacy.proven is not None
        assert card.privacy.proven.epsilon <= 3.0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RequestError, match="down to a bound"):
        ImitationTraining(network(), plan=PLAN, imitation=imitation(), size=0.05)
    with pytest.raises(RequestError, match="without a target"):
        ImitationTraining(network(), plan=PLAN, imitation=replace(imitation(), target=1), size=0.2)
    wide = models.build("mlp", shape=(1, 8, 8), classes=3)
    data = Dataset(name="wide", x=torch.rand(8, 1, 8, 8), y=torch.zeros(8, dtype=torch.int64), classes=3)
    with pytest.raises(RequestError, match="was made for inputs of shape"):
        ImitationTraining(wide, plan=PLAN, imitation=imitation(), size=0.2).fit(data)


@pytest.mark.parametrize(
    ("origin", "data", "public", "proves"),
    [
        (Origin(data="digits", public="first:50 of digits"), "digits", "first:50", True),
        (Origin(data="digits", public="first:50 of digits"), "digits", "first:40", False),
        (Origin(data="digits", public="first:50 of digits"), "digits", None, False),
        (Origin(data="digits", public="first:50 of digits"), "mnist", "first:50", False),
        (Origin(data="fashion_mnist", public="first:50 of fashion_mnist"), "digits", None, True),
        (Origin(data="fashion_mnist"), "digits", None, False),
    ],
)
def test_records_that_were_public_once_must_be_public_here_too(
    tmp_path: Path, origin: Origin, data: str, public: str | None, proves: bool
) -> None:
    """A network that has seen records of the private set may hold them, whatever it was told."""
    save_imitation(tmp_path / "ain.safetensors", replace(imitation(), origin=origin))
    settings = TrainSettings(
        method="dp-sgd",
        data=data,
        public_data=public,
        imitation=str(tmp_path / "ain.safetensors"),
        epsilon=3.0,
    )
    method = find_method("dp-sgd", "sound").build(network(), settings, PLAN)
    assert isinstance(method, ImitationTraining)
    assert (method.unprovable is None) == proves
    assert method.size == 0.1  # the network's own bound, where none is given
