"""The terms of a smoothing loss against their formulas, record by record, in double precision."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch import nn

from hauberk.errors import RequestError
from hauberk.gradients import ClippedGradients, FlatClip, mean_cross_entropy
from hauberk.methods.smoothing_losses import ENTROPY, MARGIN, SHARPENED, SmoothingLoss


def scores(
    seed: int, *, records: int = 4, views: int = 3, classes: int = 5, scale: float = 2.0
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(records, views, classes, generator=generator)


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    parts = [math.exp(value - top) for value in values]
    return [part / sum(parts) for part in parts]


def by_hand(record: torch.Tensor, label: int, loss: SmoothingLoss) -> float:
    each = [softmax(view) for view in record.double().tolist()]
    classes = range(len(each[0]))
    total = -sum(math.log(p[label]) for p in each) / len(each)
    mean = [sum(p[c] for p in each) / len(each) for c in classes]
    divergence = sum(sum(mean[c] * math.log(mean[c] / p[c]) for c in classes) for p in each) / len(each)
    total += loss.consistency * (divergence - ENTROPY * sum(m * math.log(m) for m in mean))
    sharp = [softmax([SHARPENED * value for value in view]) for view in record.double().tolist()]
    q = [min(max(sum(p[c] for p in sharp) / len(sharp), 1e-6), 1 - 1e-6) for c in classes]
    rival = max(q[c] for c in classes if c != label)
    if q[label] > rival:
        radius = loss.sigma / 2 * (norm.ppf(q[label]) - norm.ppf(rival))
        total += loss.macer * max(0.0, MARGIN * loss.sigma / 2 - radius)
    return float(total)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    consistency=st.sampled_from([0.0, 1.0, 10.0]),
    macer=st.sampled_from([0.0, 1.0, 6.0]),
    scale=st.sampled_from([0.05, 0.3, 1.0]),
)
def test_terms_are_their_formulas(seed: int, consistency: float, macer: float, scale: float) -> None:
    loss = SmoothingLoss(sigma=0.5, consistency=consistency, macer=macer)
    given_scores, labels = scores(seed, scale=scale).double(), torch.tensor([0, 1, 2, 4])
    found = loss.of_scores(given_scores, labels)
    for record, label, value in zip(given_scores, labels.tolist(), found.tolist(), strict=True):
        assert value == pytest.approx(by_hand(record, label, loss), rel=1e-6, abs=1e-8)


def test_copies_that_agree_and_are_sure_cost_nothing_more() -> None:
    sure = torch.full((2, 3, 4), -60.0)
    sure[:, :, 1] = 60.0
    labels = torch.tensor([1, 1])
    extra = SmoothingLoss(sigma=0.5, consistency=7.0).of_scores(sure, labels)
    assert torch.allclose(extra, mean_cross_entropy.of_scores(sure, labels), atol=1e-5)


def test_a_wrong_answer_is_no_business_of_the_radius() -> None:
    wrong = torch.zeros(1, 2, 3)
    wrong[..., 2] = 3.0
    labels = torch.tensor([0])
    with_radius = SmoothingLoss(sigma=1.0, macer=5.0).of_scores(wrong, labels)
    assert torch.equal(with_radius, mean_cross_entropy.of_scores(wrong, labels))


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3, 1e6])
def test_gradients_are_finite_however_sure_the_network_is(scale: float) -> None:
    loss = SmoothingLoss(sigma=0.25, consistency=5.0, macer=5.0)
    free = (scale * scores(3, scale=1.0)).requires_grad_()
    loss.of_scores(free, torch.tensor([0, 1, 2, 3])).sum().backward()
    assert free.grad is not None
    assert torch.isfinite(free.grad).all()


def test_no_record_has_a_say_in_another_ones_loss() -> None:
    loss = SmoothingLoss(sigma=0.25, consistency=2.0, macer=3.0)
    free, labels = scores(5).requires_grad_(), torch.tensor([0, 1, 2, 3])
    (gradient,) = torch.autograd.grad(loss.of_scores(free, labels)[1], free)
    assert not gradient[[0, 2, 3]].any()
    assert gradient[1].any()


def test_the_fast_path_clips_these_losses_as_the_general_one_does() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 5))
    views, labels = torch.rand(6, 3, 1, 3, 4), torch.tensor([0, 1, 2, 3, 4, 0])
    loss = SmoothingLoss(sigma=0.5, consistency=3.0, macer=2.0).record_loss()
    paths = [
        ClippedGradients(model, loss, clipping=FlatClip(0.3), path=path).clipped_sum(views, labels).gradients
        for path in ("fast", "general")
    ]
    for name, fast in paths[0].items():
        assert torch.allclose(fast, paths[1][name], atol=1e-6)


def test_weights_are_not_negative() -> None:
    for wrong in ({"consistency": -1.0}, {"macer": float("nan")}):
        with pytest.raises(RequestError, match="must not be negative"):
            SmoothingLoss(sigma=0.5, **wrong)
