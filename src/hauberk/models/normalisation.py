"""Normalisation within a record.

BatchNorm divides a record's activations by statistics of the whole batch. Then one record moves the gradients
of all others, clipping record by record bounds nothing, and a prediction depends on who else is asked: both
guarantees of this package fail. GroupNorm takes its statistics from the record alone. So wherever a paper's
network has BatchNorm, ours has GroupNorm, and the guarantee card says so.
"""

from __future__ import annotations

from torch import nn

GROUPS = 16
"""Groups of channels; the usual number in private training since De et al. 2022."""


def normalise_channels(channels: int) -> nn.GroupNorm:
    """GroupNorm for feature maps."""
    return nn.GroupNorm(GROUPS, channels)


def normalise_units(units: int) -> nn.GroupNorm:
    """GroupNorm for the units of a dense layer.

    One group: with 16 groups each would hold a few single numbers, and normalising those leaves little but
    their signs.
    """
    return nn.GroupNorm(1, units)
