"""The ward: reproducible patients with everything that makes health records hard."""

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.synthesis import Patients, decode, encode
from hauberk.synthesis.ward import WARD, simulate_ward

Refusal = Callable[[Callable[[], object]], str]
TENSORS = ("static", "static_observed", "increments", "values", "observed", "lengths")


def same(one: Patients, other: Patients) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in TENSORS)


@given(patients=st.integers(1, 60), seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=25)
def test_any_number_of_patients_from_any_seed(patients: int, seed: int) -> None:
    ward = simulate_ward(patients, seed=seed)
    assert len(ward) == patients
    assert same(ward, simulate_ward(patients, seed=seed))
    assert same(encode(decode(ward), WARD, repair=False).patients, ward)


def test_another_seed_gives_other_patients() -> None:
    assert not same(simulate_ward(50, seed=0), simulate_ward(50, seed=1))


def test_times_are_irregular_and_values_missing() -> None:
    ward = simulate_ward(2000, seed=0)
    gaps = ward.increments[:, 1:][ward.real_steps[:, 1:]] * WARD.time.horizon
    assert gaps.std() > 1.5  # hours
    assert gaps.unique().numel() > 100
    assert ward.lengths.min() == 1
    assert ward.lengths.max() > 15
    shares = ward.observed[ward.real_steps].float().mean(0)
    assert 0.3 < float(shares.min()) < 0.4
    assert 0.9 < float(shares.max()) < 1
    assert 0.7 < float(ward.static_observed[:, WARD.static_place("weight")].float().mean()) < 0.8


def test_values_keep_away_from_the_bounds() -> None:
    """Clipped values would be a heap that every synthesizer has to learn."""
    ward = simulate_ward(2000, seed=0)
    for place, feature in enumerate(WARD.temporal[:4]):
        values = ward.values[..., place][ward.observed[..., place]]
        assert ((values == 0) | (values == 1)).float().mean() < 0.01, feature.name


def test_the_outcome_depends_on_what_is_observed() -> None:
    ward = simulate_ward(4000, seed=0)
    event = ward.outcome == 1
    assert 0.15 < float(event.float().mean()) < 0.3

    def auroc(score: torch.Tensor) -> float:
        ranks = score.argsort().argsort().double() + 1
        positives = int(event.sum())
        area = (ranks[event].sum() - positives * (positives + 1) / 2) / (positives * int((~event).sum()))
        return float(area)

    pulse = WARD.temporal_place("heart_rate")
    mean_pulse = ward.values[..., pulse].sum(1) / ward.observed[..., pulse].sum(1)
    age = ward.static[:, WARD.static_place("age")]
    assert 0.62 < auroc(mean_pulse) < 0.85
    assert 0.6 < auroc(age) < 0.8
    assert auroc(age + 2 * mean_pulse) > max(auroc(age), auroc(mean_pulse))
    assert 0.45 < auroc(torch.rand(4000, generator=torch.Generator().manual_seed(0))) < 0.55


def test_no_patients_are_refused(refusal: Refusal) -> None:
    assert "at least 1" in refusal(lambda: simulate_ward(0, seed=0))
