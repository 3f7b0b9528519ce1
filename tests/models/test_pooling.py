"""The overlapping pool of the small network is torch's, only faster."""

import torch
from torch import nn

from hauberk.models.convolutional import NeighbourMax


def test_it_equals_torchs_overlapping_pool_with_and_without_gradients() -> None:
    x = torch.randn(3, 4, 9, 7)
    x[0, 0, :3, :3] = 1.0  # ties, as saturated tanh makes them
    expected = nn.MaxPool2d(2, stride=1)(x)
    assert torch.equal(NeighbourMax()(x), expected)
    with torch.no_grad():
        assert torch.equal(NeighbourMax()(x), expected)
