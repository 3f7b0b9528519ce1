"""What the tests of this room share: an independent reference, and a few ways to look at gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping

import pytest
import torch
from torch import Tensor, nn

from hauberk.errors import RequestError
from hauberk.gradients import GeneralPathNotice, ScoreLoss, mean_cross_entropy


@pytest.fixture(autouse=True)
def _quick_and_repeatable() -> Iterator[None]:
    """One thread is faster for models this small; batching rules that torch lacks are no concern here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def flat() -> Callable[[Mapping[str, Tensor]], Tensor]:
    """All gradients as one vector in float64."""

    def joined(gradients: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([gradient.double().flatten() for gradient in gradients.values()])

    return joined


@pytest.fixture(scope="session")
def one_at_a_time() -> Callable[..., dict[str, Tensor]]:
    """The oracle: ordinary backward of one record, ``views`` being ``(K, ...)`` or a tuple of such."""

    def backward(
        model: nn.Module,
        views: Tensor | tuple[Tensor, ...],
        label: Tensor,
        loss: ScoreLoss = mean_cross_entropy,
    ) -> dict[str, Tensor]:
        weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        every = views if isinstance(views, tuple) else (views,)
        value = loss.of_scores(model(*every).unsqueeze(0), label.unsqueeze(0))[0]
        found = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
        return {
            name: torch.zeros_like(weight) if gradient is None else gradient
            for (name, weight), gradient in zip(weights.items(), found, strict=True)
        }

    return backward


@pytest.fixture(scope="session")
def refusal() -> Callable[[Callable[[], object]], str]:
    """Runs an action that must be refused and returns what the user is told, on one line."""

    def told(action: Callable[[], object]) -> str:
        with pytest.raises(RequestError) as caught:
            action()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return told


@pytest.fixture(scope="session")
def notices() -> Callable[[Callable[[], object]], list[str]]:
    """Runs an action and returns the notices about the general path that it gave."""

    def told(action: Callable[[], object]) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            action()
        return [str(each.message) for each in caught if issubclass(each.category, GeneralPathNotice)]

    return told
