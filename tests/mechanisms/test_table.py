"""Every mechanism obeys every law: add a row, inherit the tests."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hauberk.errors import RequestError
from hauberk.mechanisms import MECHANISMS, EpsilonDelta, GaussianProfile, Mechanism

COVARIANCE = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mechanism as the laws see it."""

    name: str  # of the registry
    variant: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    noise: tuple[str, ...] = ("sigma",)  # fields that scale with the noise
    variances: tuple[str, ...] = ()  # fields that scale with its square
    sound: bool = True  # does the paper's promise hold?
    coordinates: int = 4
    covariance: Callable[[Any], Any] | None = None  # of the coordinates, if they are dependent

    def calibrate(self, *, epsilon: float, delta: float, sensitivity: float) -> Mechanism:
        return MECHANISMS[self.name].calibrate(
            epsilon=epsilon, delta=delta, sensitivity=sensitivity, **self.options
        )

    def louder(self, mechanism: Any, factor: float) -> Mechanism:
        """The same mechanism with ``factor`` times the noise."""
        changes = {field: getattr(mechanism, field) * factor for field in self.noise}
        changes |= {field: getattr(mechanism, field) * factor**2 for field in self.variances}
        return dataclasses.replace(mechanism, **changes)


ROWS = [
    Row(name="gaussian"),
    Row(name="analytic"),
    Row(name="extended"),
    Row(name="heterogeneous", variant="analytic", options={"redistribution": [0.1, 0.2, 0.3, 0.4]}),
    Row(
        name="heterogeneous",
        variant="extended",
        options={"redistribution": [0.1, 0.2, 0.3, 0.4], "calibration": "extended"},
    ),
    Row(
        name="multivariate",
        variant="full",
        options={"covariance": COVARIANCE},
        noise=(),
        variances=("covariance",),
        coordinates=3,
        covariance=lambda mechanism: mechanism.covariance,
    ),
    Row(
        name="multivariate",
        variant="diagonal",
        options={"covariance": [1.0, 2.0, 0.5, 4.0]},
        noise=(),
        variances=("covariance",),
    ),
    Row(
        name="mixed",
        variant="T=1",
        options={"transformed": 30 * COVARIANCE, "steps": 1},
        noise=("isotropic",),
        variances=("transformed",),
        coordinates=3,
        covariance=lambda mechanism: mechanism.covariance,
    ),
    Row(
        name="mixed",
        variant="T=50",
        options={"transformed": 30 * COVARIANCE, "steps": 50},
        noise=("isotropic",),
        variances=("transformed",),
        sound=False,
        coordinates=3,
        covariance=lambda mechanism: mechanism.covariance,
    ),
    Row(
        name="optimized-additive",
        variant="w=1",
        options={"weights": np.ones(4), "steps": 10, "sampling_rate": 1.0},
    ),
    Row(
        name="optimized-additive",
        variant="ours",
        options={"weights": [1.0, 0.5, -0.1, 1e-3], "steps": 10, "sampling_rate": 1.0},
        sound=False,
    ),
    Row(name="laplace", noise=("diversity",)),
    Row(name="functional", variant="replace", options={"neighbours": "replace-one"}, noise=("diversity",)),
]

REQUEST = {"epsilon": 0.8, "delta": 1e-5, "sensitivity": 1.5}


def rows(wanted: Callable[[Row], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "row", [row for row in ROWS if wanted(row)], ids=lambda row: f"{row.name} {row.variant}".strip()
    )


each_row = rows(lambda row: True)


def test_every_registered_mechanism_has_a_row() -> None:
    assert {row.name for row in ROWS} == set(MECHANISMS)


@each_row
def test_the_claim_is_what_was_asked_for(row: Row) -> None:
    delta = 0.0 if row.name in ("laplace", "functional") else REQUEST["delta"]
    assert row.calibrate(**REQUEST).claimed == EpsilonDelta(epsilon=REQUEST["epsilon"], delta=delta)


@rows(lambda row: row.sound)
@given(epsilon=st.floats(1e-4, 1.0), log_delta=st.floats(-30, -1), log_sensitivity=st.floats(-3, 3))
@settings(max_examples=25, deadline=None)
def test_a_sound_promise_is_kept(row: Row, epsilon: float, log_delta: float, log_sensitivity: float) -> None:
    delta = 10**log_delta
    mechanism = row.calibrate(epsilon=epsilon, delta=delta, sensitivity=10**log_sensitivity)
    assert mechanism.delta(epsilon) <= delta
    assert mechanism.epsilon(delta) <= epsilon


@rows(lambda row: not row.sound)
def test_a_broken_promise_is_seen(row: Row) -> None:
    mechanism = row.calibrate(**REQUEST)
    assert mechanism.delta(REQUEST["epsilon"]) > REQUEST["delta"]
    assert mechanism.epsilon(REQUEST["delta"]) > REQUEST["epsilon"]


@each_row
@given(log_delta=st.floats(-30, -0.01))
@settings(max_examples=25, deadline=None)
def test_epsilon_and_delta_are_inverse(row: Row, log_delta: float) -> None:
    mechanism, delta = row.calibrate(**REQUEST), 10**log_delta
    epsilon = mechanism.epsilon(delta)
    assert mechanism.delta(epsilon) <= delta
    if epsilon > 0 and delta > 1e-15:  # a pure mechanism has no epsilon between mu and the next double
        assert mechanism.delta(epsilon * (1 - 1e-7)) > delta * (1 - 1e-9)


@each_row
def test_delta_falls_from_epsilon_to_epsilon(row: Row) -> None:
    mechanism = row.calibrate(**REQUEST)
    deltas = [mechanism.delta(epsilon) for epsilon in np.linspace(0, 3 * mechanism.epsilon(1e-9), 50)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(deltas))
    assert all(0 <= delta <= 1 for delta in deltas)


@each_row
def test_more_noise_is_more_private(row: Row) -> None:
    mechanism = row.calibrate(**REQUEST)
    louder = row.louder(mechanism, 1.5)
    assert np.allclose(louder.scale, 1.5 * np.asarray(mechanism.scale))
    for epsilon in (0.0, 0.1, 0.5):
        assert louder.delta(epsilon) < mechanism.delta(epsilon)
    assert louder.epsilon(1e-5) < mechanism.epsilon(1e-5)


@rows(lambda row: row.name != "mixed")  # whose transformed noise is given, not calibrated
def test_noise_scales_with_sensitivity(row: Row) -> None:
    once, twice = (row.calibrate(epsilon=0.8, delta=1e-5, sensitivity=s) for s in (1.0, 2.0))
    assert np.allclose(2 * np.asarray(once.scale), twice.scale)
    assert once.epsilon(1e-6) == pytest.approx(twice.epsilon(1e-6), rel=1e-6)


@each_row
def test_the_accountant_agrees_from_above(row: Row) -> None:
    mechanism = row.calibrate(**REQUEST)
    accountant = PLDAccountant(value_discretization_interval=1e-3).compose(mechanism.event())
    for delta in (1e-2, 1e-5, 1e-8):
        exact = mechanism.epsilon(delta)
        assert exact - 1e-9 <= accountant.get_epsilon(delta) <= exact + 5e-3


@each_row
def test_samples_have_the_promised_distribution(row: Row) -> None:
    mechanism = row.calibrate(**REQUEST)
    draws = mechanism.sample((40_000, row.coordinates), torch.Generator().manual_seed(7))
    assert draws.shape == (40_000, row.coordinates)
    assert draws.dtype == torch.get_default_dtype()
    noise = draws.double().numpy() / mechanism.scale
    shape = stats.laplace(scale=math.sqrt(0.5)) if row.name in ("laplace", "functional") else stats.norm()
    for coordinate in noise.T:
        assert stats.kstest(coordinate, shape.cdf).pvalue > 1e-4
    expected = np.eye(row.coordinates)
    if row.covariance is not None:
        covariance = row.covariance(mechanism)
        deviations = np.sqrt(np.diag(covariance))
        expected = covariance / np.outer(deviations, deviations)
        assert not np.allclose(expected, np.eye(row.coordinates), atol=0.01)
    assert np.allclose(noise.T @ noise / len(noise), expected, atol=0.04)
    # Independent coordinates are independent beyond their correlation.
    if row.covariance is None:
        sizes = np.corrcoef(np.abs(noise).T) - np.eye(row.coordinates)
        assert np.abs(sizes).max() < 0.025


@each_row
def test_samples_follow_the_generator(row: Row) -> None:
    mechanism = row.calibrate(**REQUEST)
    generator = torch.Generator().manual_seed(3)
    first, second = (mechanism.sample((2, row.coordinates), generator) for _ in range(2))
    again = mechanism.sample((2, row.coordinates), torch.Generator().manual_seed(3))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@each_row
def test_a_shape_that_does_not_fit_is_refused(row: Row) -> None:
    mechanism = row.calibrate(**REQUEST)
    if isinstance(mechanism.scale, float):
        assert mechanism.sample((), torch.Generator()).shape == ()
        return
    for shape in ((row.coordinates + 1,), (row.coordinates, 5), ()):
        with pytest.raises(RequestError, match="shape"):
            mechanism.sample(shape, torch.Generator())


@each_row
def test_mechanisms_cannot_be_changed(row: Row) -> None:
    mechanism = row.calibrate(**REQUEST)
    for field in dataclasses.fields(mechanism):  # type: ignore[arg-type]
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(mechanism, field.name, 1.0)
        value = getattr(mechanism, field.name)
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[0] = 1.0


@each_row
@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"delta": 1.0},
        {"delta": -1e-5},
        {"delta": math.nan},
        {"sensitivity": 0.0},
        {"sensitivity": -2.0},
        {"sensitivity": math.inf},
    ],
    ids=str,
)
def test_a_wrong_request_is_refused_in_one_sentence(row: Row, wrong: dict[str, float]) -> None:
    with pytest.raises(RequestError) as refusal:
        row.calibrate(**(REQUEST | wrong))
    sentence = str(refusal.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence


@rows(lambda row: row.name not in ("laplace", "functional"))
def test_gaussian_releases_are_as_private_as_their_whitened_sensitivity(row: Row) -> None:
    mechanism: Any = row.calibrate(**REQUEST)
    assert mechanism.profile == GaussianProfile(mu=mechanism.mu)
