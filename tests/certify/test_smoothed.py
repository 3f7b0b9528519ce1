"""A smoothed classifier whose truth is known, and the ways in which a certificate could be spoilt.

The network is a half-space, ``class 0 where w x > b``. Under noise ``N(0, sigma^2 I)`` its class 0 has
probability ``Phi(d / sigma)``, ``d`` the signed distance to the plane, and the smoothed classifier's answer
changes exactly at distance ``|d|``: every certificate can be checked against the truth.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, chi2, norm
from torch import Tensor, nn

from hauberk.certify import ABSTAINED, Certificates, Smoothed, evaluation_mode, largest_radius, smoothed
from hauberk.errors import RequestError

SIGMA = 0.25
DIMENSION = 6


def half_space(dimension: int = DIMENSION, *, classes: int = 2) -> nn.Sequential:
    """Class 0 beyond a plane through 0.5 (1, ..., 1), class 1 before it; further classes never win."""
    weights = torch.linspace(-1, 2, dimension)
    weights /= weights.norm()
    layer = nn.Linear(dimension, classes)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(-1e6)
        layer.weight[0], layer.weight[1] = 5 * weights, -5 * weights
        layer.bias[0], layer.bias[1] = -2.5 * weights.sum(), 2.5 * weights.sum()
    return nn.Sequential(nn.Flatten(), layer)


def at_distance(model: nn.Sequential, distances: Tensor) -> Tensor:
    """Points at these signed distances from the plane."""
    layer = model[1]
    assert isinstance(layer, nn.Linear)
    direction = layer.weight[0].detach() / layer.weight[0].norm().detach()
    return 0.5 + distances[:, None] * direction


def violations(certificates: Certificates, distances: Tensor) -> int:
    """Certified inputs with the wrong label, or with a radius that reaches beyond the plane."""
    truth, far = np.where(distances.numpy() > 0, 0, 1), distances.abs().double().numpy()
    wrong = ~certificates.abstained & ((certificates.labels != truth) | (certificates.radii > far + 1e-6))
    return int(wrong.sum())


@pytest.mark.parametrize("largest", [0.0, 0.05, 0.5], ids=["on the plane", "near it", "anywhere"])
def test_certificates_err_no_more_often_than_alpha(largest: float) -> None:
    """One-sided at level 1e-6. On the plane itself any answer is wrong, and a class chosen on the draws that
    also estimate it would err twice as often."""
    alpha, repetitions = 0.05, 4000
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    distances = torch.linspace(-largest, largest, repetitions)
    inputs = at_distance(half_space(), distances)
    certificates = target.certify(inputs, samples=101, alpha=alpha, selection_samples=11, seed=1)
    if largest == 0:
        distances = torch.zeros(repetitions)
        wrong = int((~certificates.abstained).sum())
    else:
        wrong = violations(certificates, distances)
    assert wrong <= binom.isf(1e-6, repetitions, alpha)
    assert wrong >= 0.1 * alpha * repetitions  # close to nominal: this test can see errors


def test_certificates_at_the_usual_alpha_and_their_tightness() -> None:
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    distances = torch.linspace(-1.2, 1.2, 1000)
    certificates = target.certify(at_distance(half_space(), distances), samples=1000, alpha=0.001, seed=2)
    assert violations(certificates, distances) <= binom.isf(1e-6, 1000, 0.001)
    far = distances.abs().numpy()
    cap = largest_radius(gain=1 / SIGMA, samples=1000, alpha=0.001)
    middle = (far > 0.2) & (far < 0.4)
    assert (certificates.radii[middle] / far[middle]).mean() > 0.8  # not wastefully small
    assert certificates.radii.max() == pytest.approx(cap)  # far inputs are unanimous
    assert certificates.samples == 1000
    assert certificates.alpha == 0.001


@pytest.mark.parametrize("rows_at_once", [1, 7, 300, 100_000])
def test_votes_do_not_depend_on_chunking(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every input's votes fit its own exact probability, however the work is cut."""
    monkeypatch.setattr(smoothed, "comfortable_rows", lambda *_: rows_at_once)
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    distances = torch.linspace(-0.4, 0.4, 23)
    votes = target.count_votes(
        at_distance(half_space(), distances), 150, torch.Generator().manual_seed(rows_at_once)
    )
    assert (votes.sum(1) == 150).all()
    truth = norm.cdf(distances.numpy() / SIGMA)
    scores = (votes[:, 0] - 150 * truth) ** 2 / (150 * truth * (1 - truth))
    assert scores.sum() < chi2.isf(1e-6, len(scores))


def test_labels_and_radii_of_clear_cases_do_not_depend_on_chunking() -> None:
    target = Smoothed(half_space(), sigma=0.01, classes=2)
    inputs = at_distance(half_space(), torch.tensor([0.5, -0.5]).repeat(75))
    together = target.certify(inputs, samples=50, alpha=0.001)
    for part in (slice(0, 1), slice(70, 130)):
        alone = target.certify(inputs[part], samples=50, alpha=0.001)
        assert (alone.labels == together.labels[part]).all()
        assert (alone.radii == together.radii[part]).all()
    assert together.labels.tolist() == [0, 1] * 75


class ScriptedBlock:
    def __init__(self, target: Scripted, inputs: int) -> None:
        self.target, self.inputs = target, inputs

    def __len__(self) -> int:
        return self.inputs

    def take(self, rows: Tensor) -> ScriptedBlock:
        return ScriptedBlock(self.target, len(rows))

    def votes(self, draws: int, generator: torch.Generator) -> np.ndarray:
        self.target.asked_for.append(draws)
        return np.array(self.target.answers.pop(0))


class Scripted(Smoothed):
    """Returns prepared votes, and notes how many draws each call asked for."""

    def __init__(self, *answers: list[list[int]]) -> None:
        super().__init__(nn.Linear(1, 3), sigma=SIGMA, classes=3)
        self.answers, self.asked_for = list(answers), []  # type: ignore[var-annotated]

    def start(self, x: Tensor) -> ScriptedBlock:  # type: ignore[override]
        return ScriptedBlock(self, len(x))


def test_the_class_is_chosen_on_other_draws_than_its_probability() -> None:
    target = Scripted([[0, 1, 9], [0, 9, 1]], [[1000, 0, 0], [0, 1000, 0]])
    certificates = target.certify(torch.zeros(2, 1), samples=1000, selection_samples=10)
    assert target.asked_for == [10, 1000]
    assert certificates.votes.tolist() == [0, 1000]  # for the selected class, among the estimation draws
    assert certificates.labels.tolist() == [ABSTAINED, 1]
    assert certificates.radii[0] == 0 < certificates.radii[1]


def test_abstention_begins_where_the_bound_reaches_one_half() -> None:
    votes = [k for k in range(101) if binom.sf(k - 1, 100, 0.5) < 0.05]
    least = min(votes)  # the fewest votes that prove a majority
    target = Scripted([[9, 0, 0]] * 2, [[least - 1, 101 - least, 0], [least, 100 - least, 0]])
    certificates = target.certify(torch.zeros(2, 1), samples=100, alpha=0.05)
    assert certificates.abstained.tolist() == [True, False]
    assert certificates.labels.tolist() == [ABSTAINED, 0]
    assert certificates.radii[0] == 0 < certificates.radii[1]


def test_the_seed_repeats_and_the_noise_has_the_declared_size() -> None:
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    inputs = at_distance(half_space(), torch.linspace(-0.2, 0.2, 20))
    one, same, other = (target.certify(inputs, samples=100, seed=seed) for seed in (5, 5, 6))
    assert (one.votes == same.votes).all()
    assert (one.votes != other.votes).any()
    noise = target.noisy(torch.zeros(50_000), torch.Generator().manual_seed(0))
    assert float(noise.std()) == pytest.approx(SIGMA, rel=0.02)
    assert target.gain == pytest.approx(1 / SIGMA)


def test_no_inputs_no_certificates() -> None:
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    empty = target.certify(torch.empty(0, DIMENSION))
    assert empty.labels.shape == empty.radii.shape == empty.votes.shape == empty.abstained.shape == (0,)
    assert target.count_votes(torch.empty(0, DIMENSION), 10, torch.Generator()).shape == (0, 2)


def test_progress_counts_every_input_once() -> None:
    told: list[int] = []
    target = Smoothed(half_space(), sigma=SIGMA, classes=2)
    target.certify(torch.rand(600, DIMENSION), samples=2, selection_samples=1, progress=told.append)
    assert sum(told) == 600
    assert len(told) > 1


class Probe(nn.Module):
    """Notes the modes of all layers of a model during each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []
        self.fail = False

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(self.training)
        if self.fail:
            raise RuntimeError("broken on purpose")
        return x


def test_certification_runs_in_eval_mode_and_restores_every_layer() -> None:
    probe, bn = Probe(), nn.BatchNorm1d(DIMENSION)
    model = nn.Sequential(nn.Linear(DIMENSION, DIMENSION), nn.Dropout(0.5), bn, probe, half_space())
    model.train()
    bn.eval()  # frozen by its owner, in the middle of a model in training mode
    modes = [layer.training for layer in model.modules()]
    mean = None if bn.running_mean is None else bn.running_mean.clone()
    target = Smoothed(model, sigma=SIGMA, classes=2)
    target.certify(torch.rand(3, DIMENSION), samples=5, selection_samples=2)
    assert probe.seen
    assert not any(probe.seen)
    assert [layer.training for layer in model.modules()] == modes
    assert bn.running_mean is not None
    assert mean is not None
    assert torch.equal(bn.running_mean, mean)
    assert all(weight.grad is None for weight in model.parameters())
    probe.fail = True
    with pytest.raises(RuntimeError, match="on purpose"):
        target.certify(torch.rand(3, DIMENSION), samples=5)
    assert [layer.training for layer in model.modules()] == modes


def test_evaluation_mode_can_be_nested() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    with evaluation_mode(model):
        with evaluation_mode(model):
            assert not any(layer.training for layer in model.modules())
        assert not any(layer.training for layer in model.modules())
    assert [layer.training for layer in model] == [True, False]


def test_dropout_is_off() -> None:
    """With dropout most passes would see zeros, which lie on the other side of the plane."""
    layer = nn.Linear(1, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        layer.bias.copy_(torch.tensor([-0.5, 0.5]))
    model = nn.Sequential(nn.Dropout(0.9), layer).train()
    certificates = Smoothed(model, sigma=0.01, classes=2).certify(torch.ones(4, 1), samples=200)
    assert certificates.labels.tolist() == [0] * 4
    assert certificates.votes.tolist() == [200] * 4


def test_batch_statistics_are_refused_by_name() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(nn.BatchNorm2d(2, track_running_stats=False)))
    with pytest.raises(RequestError, match=r"BatchNorm2d at '1\.0' uses the statistics of the batch"):
        Smoothed(model, sigma=SIGMA, classes=2)
    Smoothed(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), sigma=SIGMA, classes=2)  # frozen ones pass


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, math.nan])
def test_a_sigma_without_certificate_is_refused(sigma: float) -> None:
    with pytest.raises(RequestError, match="sigma must be positive"):
        Smoothed(half_space(), sigma=sigma, classes=2)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"samples": 0}, "at least one draw"),
        ({"selection_samples": 0}, "at least one draw"),
        ({"alpha": 0.0}, "alpha must lie"),
        ({"alpha": 1.0}, "alpha must lie"),
        ({"alpha": math.nan}, "alpha must lie"),
    ],
)
def test_a_wrong_request_is_refused(wrong: dict[str, float], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        Smoothed(half_space(), sigma=SIGMA, classes=2).certify(torch.rand(2, DIMENSION), **wrong)  # type: ignore[arg-type]


def test_images_and_classes_that_nobody_votes_for() -> None:
    target = Smoothed(half_space(16, classes=5), sigma=SIGMA, classes=5)
    images = at_distance(half_space(16), torch.tensor([0.6, -0.6])).view(2, 1, 4, 4)
    certificates = target.certify(images, samples=500)
    assert certificates.labels.tolist() == [0, 1]
    assert (certificates.radii > 0.3).all()


def test_a_network_of_buffers_only_can_be_certified() -> None:
    """Frozen public weights need not be parameters."""

    class Plane(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weights", torch.tensor([[1.0, -1.0]]))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.weights

    for model in (Plane(), nn.Identity()):
        width = 1 if isinstance(model, Plane) else 2
        certificates = Smoothed(model, sigma=0.1, classes=2).certify(torch.ones(2, width), samples=20)
        assert len(certificates.labels) == 2


def test_a_network_with_other_classes_is_refused_in_one_sentence() -> None:
    for model in (nn.Linear(4, 3), nn.Linear(4, 12), nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))):
        with pytest.raises(RequestError, match="one score for each of the 10 classes"):
            Smoothed(model, sigma=SIGMA, classes=10).certify(torch.rand(2, 4))


def test_logits_that_are_no_numbers_are_no_votes() -> None:
    """A network that has diverged must not be certified for whatever class argmax happens to name."""
    model = half_space()
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    certificates = Smoothed(model, sigma=SIGMA, classes=2).certify(torch.rand(3, DIMENSION), samples=100)
    assert certificates.abstained.all()
    assert (certificates.radii == 0).all()
