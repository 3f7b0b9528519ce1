"""The loop: who leaves the batch, what restarts add, and which requests are refused."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hauberk.attacks import FGSM, IFGSM, MIM, PGD, iterative
from hauberk.attacks.iterative import IterativeAttack
from hauberk.certify import Smoothed
from hauberk.errors import RequestError

KINDS = [FGSM, IFGSM, MIM, PGD]


def crooked(seed: int = 0) -> nn.Sequential:
    """A network in double precision, where rounding does not depend on the size of the batch."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 4)).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return model


def inputs(count: int = 40, seed: int = 0) -> Tensor:
    return torch.rand(count, 16, generator=torch.Generator().manual_seed(seed)).double()


def labels_of(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        labels = model(x).argmax(1)
    labels[0] = (labels[0] + 1) % 4  # one is wrong from the start
    return labels


@pytest.mark.parametrize("kind", KINDS)
@given(
    norm=st.sampled_from(["linf", "l2", "l1"]),
    radius=st.sampled_from([0.01, 0.05, 0.2, 0.8]),
    targeted=st.booleans(),
    loss=st.sampled_from(["cross-entropy", "margin"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=10, deadline=None)
def test_stopping_early_breaks_exactly_the_same_inputs(
    kind: type[IterativeAttack], norm: str, radius: float, targeted: bool, loss: str, seed: int
) -> None:
    model, x = crooked(seed), inputs(seed=seed)
    labels = labels_of(model, x)
    targets = (labels + 1) % 4 if targeted else None
    early, late = (
        kind(norm=norm, loss=loss, stop_when_broken=stop).attack(
            model, x, labels, radius=radius, targets=targets, seed=seed
        )
        for stop in (True, False)
    )
    assert early.broken.tolist() == late.broken.tolist()
    assert early.clean_answers.tolist() == late.clean_answers.tolist()
    if not targeted:
        assert early.broken[0]
        assert early.sizes[0] == 0.0  # it needed no attack


def test_inputs_leave_the_batch_when_they_are_broken() -> None:
    class Counting(nn.Module):
        rows = 0

        def __init__(self) -> None:
            super().__init__()
            self.model = crooked()

        def forward(self, x: Tensor) -> Tensor:
            self.rows += len(x)
            scores: Tensor = self.model(x)
            return scores

    counts = {}
    x = inputs()
    for stop in (True, False):
        model = Counting()
        found = IFGSM(steps=20, stop_when_broken=stop).attack(model, x, labels_of(model.model, x), radius=0.3)
        counts[stop] = model.rows
    assert found.broken.mean() > 0.7
    assert counts[False] == 1 + 40 * 21  # one to learn the number of classes, every step, and the last point
    assert counts[True] < 0.7 * counts[False]


@pytest.mark.parametrize("kind", [IFGSM, MIM, PGD])
def test_leaving_now_and_then_in_round_numbers_changes_nothing(
    kind: type[IterativeAttack], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a device: the batch is looked through every few steps, and its size is an eighth or several."""
    model, x = crooked(3), inputs(50)
    labels = labels_of(model, x)
    usual = kind(steps=12).attack(model, x, labels, radius=0.2)
    seen = []

    def eighths(climbers: iterative._Climbers, started: int) -> int:
        seen.append(len(climbers.points))
        return -(-int((~climbers.broken).sum()) // 7) * 7

    monkeypatch.setattr(iterative, "_steps_between_checks", lambda target, start: 4)
    monkeypatch.setattr(iterative, "_next_batch_size", eighths)
    rounded = kind(steps=12).attack(model, x, labels, radius=0.2)
    assert 10 < usual.broken.sum() < 50
    assert rounded.broken.tolist() == usual.broken.tolist()
    assert rounded.answers.tolist() == usual.answers.tolist()
    assert seen[0] > seen[-1]


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_restarts_never_do_worse(norm: str) -> None:
    model, x = crooked(2), inputs(60)
    labels, radius = labels_of(model, x), {"linf": 0.03, "l2": 0.1, "l1": 0.2}[norm]
    for stop in (True, False):
        broken = [
            PGD(norm=norm, steps=2, restarts=restarts, stop_when_broken=stop)
            .attack(model, x, labels, radius=radius)
            .broken
            for restarts in (1, 2, 6)
        ]
        assert (broken[0] <= broken[1]).all()
        assert (broken[1] <= broken[2]).all()
        assert 0 < broken[0].sum() < len(x)


def test_a_restart_that_breaks_nothing_keeps_the_nearest_miss() -> None:
    model, x = crooked(1), inputs(20)
    with torch.no_grad():
        labels = model(x).argmax(1)
    losses = []
    for restarts in (1, 5):
        points = PGD(steps=1, restarts=restarts).perturb(model, x, labels, radius=1e-3)
        with torch.no_grad():
            losses.append(nn.functional.cross_entropy(model(points), labels, reduction="none"))
    assert (losses[1] >= losses[0]).all()
    assert (losses[1] > losses[0]).any()


def test_random_starts_belong_to_the_input_and_the_seed() -> None:
    model, x = crooked(), inputs(6)
    attack, labels = PGD(steps=1, reach=1e-9), torch.zeros(6, dtype=torch.int64)
    all_of_them = attack.perturb(model, x, labels, radius=0.1)
    first = attack.perturb(model, x[:3], labels[:3], radius=0.1)
    assert torch.equal(all_of_them[:3], first)
    assert not torch.equal(attack.perturb(model, x, labels, radius=0.1, seed=1), all_of_them)
    steps = (all_of_them - x).abs()
    assert steps.max() > 0.05


def test_every_input_has_its_own_radius() -> None:
    x, radii = inputs(5), torch.tensor([0.0, 0.01, 0.1, 0.2, 0.01])
    found = PGD(norm="l2", stop_when_broken=False).attack(crooked(), x, torch.zeros(5).long(), radius=radii)
    assert (torch.from_numpy(found.sizes) <= radii.double()).all()
    assert (torch.from_numpy(found.sizes) >= 0.3 * radii.double()).all()


def test_two_thousand_steps() -> None:
    x = inputs(2)
    found = PGD(steps=2000).attack(crooked(), x, torch.zeros(2).long(), radius=0.01)
    assert found.attack == "linf PGD, 2000 steps"
    assert (found.sizes <= 0.01).all()


def test_one_step_of_fgsm_is_the_sign_of_the_gradient() -> None:
    model, x = crooked(), inputs(8)
    labels = labels_of(model, x)
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(leaf), labels), leaf)
    expected = (x + 0.05 * gradient.sign()).clamp(0, 1)
    found = FGSM(stop_when_broken=False).perturb(model, x, labels, radius=0.05)
    assert torch.allclose(found, expected, atol=1e-9)


def test_an_input_broken_on_the_way_stays_broken() -> None:
    """The loss is misleading here: the last point is right again, a point before it was not."""

    class Bump(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            wrong = ((x > 0.55) & (x < 0.65)).to(x) * 1000  # no slope, but another answer
            return torch.cat([2.0 - x, wrong], dim=1)

    x, labels = torch.tensor([[0.5]]), torch.tensor([0])
    for stop in (True, False):
        found = IFGSM(steps=10, stop_when_broken=stop).attack(Bump(), x, labels, radius=0.4)
        assert found.broken.all()
        assert 0.05 < found.sizes[0] < 0.15


def test_gradients_that_are_no_numbers_do_not_leave_the_ball() -> None:
    """The square root's slope is infinite at zero; what comes back is still an input of the classifier."""

    class Steep(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            root = (x - x.detach()).abs().sqrt().sum(1)  # zero, with the gradient 0 * infinity
            return torch.stack([root, x.sum(1)], dim=1)

    x = inputs(4)
    for momentum in (0.0, 1.0):
        for norm in ("linf", "l2", "l1"):
            attack = PGD(norm=norm, steps=3, momentum=momentum)
            found = attack.attack(Steep(), x, torch.ones(4).long(), radius=0.1)
            assert found.adversarial.isfinite().all()
            assert (found.sizes <= 0.1).all()


def test_a_model_without_gradients_is_refused() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.detach()[:, :2]

    with pytest.raises(RequestError, match="no gradient"):
        PGD().attack(Flat(), inputs(2), inputs(2)[:, :2].argmax(1), radius=0.1)


def test_stopping_early_under_noise_leaves_what_is_confirmed() -> None:
    """A smoothed classifier is asked for many draws before an input may leave; the rest takes all steps."""

    class Counting(nn.Module):
        rows = 0

        def forward(self, x: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                self.rows += len(x)
            return torch.cat([x[:, :1] - 0.5, 0.5 - x[:, :1]], dim=1) * 20

    x = torch.full((20, 3), 0.5)
    x[:10, 0], x[10:, 0] = 0.51, 0.9
    counts, broken = {}, {}
    for stop in (True, False):
        model = Counting()
        target = Smoothed(model, sigma=0.1, classes=2)
        attack = PGD(norm="l2", steps=40, draws=4, stop_when_broken=stop)
        found = attack.attack(target, x, torch.zeros(20).long(), radius=0.3)
        counts[stop], broken[stop] = model.rows, found.broken.tolist()
    assert broken[True] == broken[False] == [True] * 10 + [False] * 10
    assert counts[False] == 20 * 4 * 40
    assert counts[True] < 0.8 * counts[False]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"steps": 0}, "at least one step"),
        ({"restarts": 0}, "at least one step, one draw and one start"),
        ({"draws": 0}, "one draw"),
        ({"reach": 0.0}, "reach must be a positive"),
        ({"reach": math.inf}, "reach must be a positive"),
        ({"reach": math.nan}, "reach must be a positive"),
        ({"momentum": -1.0}, "momentum"),
        ({"momentum": math.nan}, "momentum"),
        ({"loss": "hinge"}, "choose one of cross-entropy, margin"),
        ({"restarts": 2, "random_start": False}, "random_start"),
        ({"norm": "l3"}, "works in l1 or l2 or linf"),
        ({"bounds": (1.0, 0.0)}, "a lower and a larger upper"),
        ({"bounds": (0.0, math.nan)}, "a lower and a larger upper"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        PGD(**settings)


def test_fgsm_is_one_step() -> None:
    with pytest.raises(RequestError, match="use I-FGSM"):
        FGSM(steps=10)


@pytest.mark.slow
def test_a_compiled_model_breaks_the_same_inputs() -> None:
    model, x = crooked().float(), inputs(24).float()
    labels = labels_of(model, x)
    plain, compiled = (
        PGD(steps=6, compiled=compiled).attack(model, x, labels, radius=0.1) for compiled in (False, True)
    )
    assert (plain.broken != compiled.broken).sum() <= 1  # other kernels round otherwise
    assert (compiled.sizes <= 0.1).all()


def test_a_smoothed_classifier_is_not_compiled_here() -> None:
    target = Smoothed(crooked().float(), sigma=0.1, classes=4)
    with pytest.raises(RequestError, match="compiled when it is made"):
        PGD(compiled=True).perturb(target, inputs(2).float(), torch.zeros(2).long(), radius=0.1)
