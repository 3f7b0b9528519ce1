"""SmoothAdv's copies: around one point inside the ball, found by looking at one record alone."""

import pytest
import torch
from torch import nn

from hauberk.errors import RequestError
from hauberk.methods.smooth_adversarial_views import SmoothAdversarialViews
from hauberk.training import Moves, NoisyViews

KEY = (5, 6)
X = torch.rand(7, 1, 4, 4, generator=torch.Generator().manual_seed(0))
RECORDS = torch.arange(7)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3))


def attacked(size: float, **changes: object) -> SmoothAdversarialViews:
    noise = NoisyViews(sigma=0.25, views=5)
    return SmoothAdversarialViews(
        **{"network": network(), "noise": noise, "size": size, "steps": 4, **changes}  # type: ignore[arg-type]
    )


def points(views: SmoothAdversarialViews, x: torch.Tensor, records: torch.Tensor) -> torch.Tensor:
    """Where the copies stand, without their noise: one point for all of a record's copies."""
    at = {"records": records, "step": 3, "key": KEY}
    around = views(x, **at) - views.noise.noise(x, **at)
    assert torch.allclose(around, around[:, :1].expand_as(around), atol=1e-5)
    return around[:, 0]


def test_the_point_stays_in_the_ball_and_in_the_image() -> None:
    found = points(attacked(0.5), X, RECORDS)
    distances = (found - X).flatten(1).norm(dim=1)
    assert (distances <= 0.5 + 1e-5).all()
    assert (distances > 0.05).any()
    assert found.min() >= -1e-5
    assert found.max() <= 1 + 1e-5


def test_the_point_is_worse_for_the_mean_than_the_record() -> None:
    views = attacked(0.8, steps=10)
    noise = views.noise.noise(X, records=RECORDS, step=3, key=KEY)

    def mean(x: torch.Tensor) -> torch.Tensor:
        copies = x.unsqueeze(1) + noise
        return views.network(copies.flatten(0, 1)).view(7, 5, 3).softmax(-1).mean(1)

    with torch.no_grad():
        own = mean(X).argmax(1, keepdim=True)
        assert (mean(points(views, X, RECORDS)).gather(1, own) < mean(X).gather(1, own)).all()


def test_a_point_depends_on_its_own_record_alone() -> None:
    views = attacked(0.5)
    together = points(views, X, RECORDS)
    rows = torch.tensor([5, 2])
    assert torch.allclose(points(views, X[rows], RECORDS[rows]), together[rows], atol=1e-6)
    other = X.clone()
    other[0] = 1 - other[0]
    assert torch.allclose(points(views, other, RECORDS)[1:], together[1:], atol=1e-6)


def test_weights_keep_their_gradients_and_their_mode() -> None:
    views = attacked(0.5)
    views.network.train()
    views(X, records=RECORDS, step=0, key=KEY)
    assert views.network.training
    assert all(weight.requires_grad and weight.grad is None for weight in views.network.parameters())


def test_moved_copies_have_no_common_point() -> None:
    with pytest.raises(RequestError, match="leave out one of them"):
        attacked(0.5, noise=NoisyViews(sigma=0.25, views=2, moves=Moves(shift=1)))
