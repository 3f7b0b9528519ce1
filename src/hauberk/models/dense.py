"""Networks that see a record as one vector, whatever its shape."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

from hauberk.models.shapes import Shape

_HIDDEN_UNITS = 256


def logistic(shape: Shape, classes: int) -> nn.Sequential:
    """Logistic regression: one linear layer."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            output=nn.Linear(math.prod(shape), classes),
        )
    )


def mlp(shape: Shape, classes: int) -> nn.Sequential:
    """Two hidden layers of 256 ReLU units."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            hidden1=nn.Linear(math.prod(shape), _HIDDEN_UNITS),
            relu1=nn.ReLU(),
            hidden2=nn.Linear(_HIDDEN_UNITS, _HIDDEN_UNITS),
            relu2=nn.ReLU(),
            output=nn.Linear(_HIDDEN_UNITS, classes),
        )
    )
