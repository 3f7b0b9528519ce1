"""What counts as a noise layer, and whether its draws have the distribution that the certificates assume."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy.stats import kstest, laplace, norm

from hauberk.certify.noise import NoiseLayers
from hauberk.errors import RequestError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "give noise"),
    ({"at_input": 0, "after_first_map": 0.0}, "give noise"),
    ({"at_input": -0.1}, "at the input"),
    ({"at_input": float("nan")}, "at the input"),
    ({"at_input": float("inf")}, "at the input"),
    ({"at_input": 1e-101}, "at the input"),
    ({"at_input": 1e101}, "at the input"),
    ({"at_input": True}, "at the input"),
    ({"at_input": torch.ones(3)}, "at the input"),
    ({"after_first_map": -1.0}, "after the first map"),
    ({"after_first_map": float("nan")}, "after the first map"),
    ({"after_first_map": torch.tensor([1.0, 0.0])}, "between 1e-100 and 1e100"),
    ({"after_first_map": torch.tensor([1.0, -1.0])}, "between 1e-100 and 1e100"),
    ({"after_first_map": torch.tensor([1.0, float("nan")])}, "between 1e-100 and 1e100"),
    ({"after_first_map": torch.tensor([1.0, float("inf")])}, "between 1e-100 and 1e100"),
    ({"after_first_map": torch.tensor([1.0, 1e-101], dtype=torch.float64)}, "between 1e-100 and 1e100"),
    ({"after_first_map": torch.tensor([1, 2])}, "floating-point"),
    ({"after_first_map": torch.empty(0)}, "at least one"),
    ({"kind": "uniform", "at_input": 1.0}, "'gaussian' or 'laplace'"),
    ({"at_input": 1.0, "first_map": "conv1"}, "no noise after it"),
]


@pytest.mark.parametrize(("fields", "sentence"), REFUSED)
def test_wrong_noise_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        NoiseLayers(**fields)


@pytest.mark.parametrize(
    ("fields", "after_map"),
    [
        ({"at_input": 0.25}, False),
        ({"after_first_map": 0.5}, True),
        ({"at_input": 1, "after_first_map": torch.ones(3), "first_map": "conv1"}, True),
    ],
)
def test_right_noise_is_taken(fields: dict[str, Any], after_map: bool) -> None:
    assert NoiseLayers(**fields).after_map is after_map


def test_scales_that_change_later_change_nothing() -> None:
    scales = torch.ones(3)
    noise = NoiseLayers(after_first_map=scales)
    scales.zero_()
    assert isinstance(noise.after_first_map, torch.Tensor)
    assert noise.after_first_map.tolist() == [1, 1, 1]


@pytest.mark.parametrize(("kind", "truth"), [("gaussian", norm), ("laplace", laplace)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_have_the_declared_distribution(kind: Any, truth: Any, dtype: torch.dtype) -> None:
    """Kolmogorov–Smirnov at level 1e-6; a standard deviation taken for a scale would fail by far."""
    scale = 0.7
    noise = NoiseLayers(kind=kind, at_input=scale)
    like = torch.zeros(200, 500, dtype=dtype)
    drawn = noise.draw(like, scale, torch.Generator().manual_seed(0))
    assert drawn.shape == like.shape
    assert drawn.dtype == dtype
    assert kstest(drawn.flatten().numpy(), truth(scale=scale).cdf).pvalue > 1e-6
    neighbours = torch.corrcoef(torch.stack((drawn[:, :-1].flatten(), drawn[:, 1:].flatten())))
    assert abs(float(neighbours[0, 1])) < 0.02


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_scales_apply_entry_by_entry_and_draws_repeat_with_the_seed(kind: Any) -> None:
    scales = torch.tensor([[0.1], [10.0]], dtype=torch.float64)
    noise = NoiseLayers(kind=kind, after_first_map=scales)
    like = torch.zeros(4000, 2, 3)
    once, again = (noise.draw(like, scales, torch.Generator().manual_seed(7)) for _ in range(2))
    unit = noise.draw(like, 1.0, torch.Generator().manual_seed(7))
    assert torch.equal(once, again)
    torch.testing.assert_close(once, unit * scales.float())


def test_low_precision_inputs_get_noise_of_their_own_type() -> None:
    noise = NoiseLayers(kind="laplace", at_input=1.0)
    drawn = noise.draw(torch.zeros(1000, dtype=torch.bfloat16), 1.0, torch.Generator().manual_seed(0))
    assert drawn.dtype == torch.bfloat16
    assert drawn.float().std() == pytest.approx(2**0.5, rel=0.2)
