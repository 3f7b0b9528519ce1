"""One patient moves the released sums by at most one unit, and the histograms say what they should."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hauberk.accounting import prove
from hauberk.mechanisms import EpsilonDelta
from hauberk.randomness import SeededRandomness
from hauberk.synthesis import Patients, Schema, simulate_ward
from hauberk.synthesis.base import Task
from hauberk.synthesis.bounded_release import Block, Layout, noise_multiplier_for, release
from hauberk.synthesis.class_marginals import (
    ClassMarginals,
    MarginalsSettings,
    class_contributions,
    class_layout,
)
from hauberk.synthesis.marginals import Marginals
from hauberk.synthesis.packing import Packing
from hauberk.synthesis.scales import Scales, pooled_contributions, scales_layout

QUIET = SeededRandomness(0)
SETTINGS = MarginalsSettings(windows=2, value_bins=4)


def plain_scales(patients: Patients) -> Scales:
    return Scales.release(patients, noise_multiplier=0.0, randomness=QUIET, step=0)


def without(patients: Patients, place: int) -> Patients:
    return patients.select([other for other in range(len(patients)) if other != place])


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_adding_or_removing_a_patient_moves_both_sums_by_at_most_one(
    data: st.DataObject,
    schemas: st.SearchStrategy[Schema],
    patients_of: Callable[[Schema], st.SearchStrategy[Patients]],
) -> None:
    schema = data.draw(schemas)
    patients = data.draw(patients_of(schema).filter(lambda found: len(found) > 1))
    place = data.draw(st.integers(0, len(patients) - 1))
    scales = plain_scales(patients)
    for layout, contribute in (
        (scales_layout(schema), pooled_contributions),
        (
            class_layout(scales, SETTINGS),
            lambda some: class_contributions(some, scales, SETTINGS),
        ),
    ):
        sums = [
            layout.contributions(each, contribute).sum(0) for each in (patients, without(patients, place))
        ]
        assert float((sums[0] - sums[1]).norm()) <= 1.0 + 1e-12
        # and by construction, before anything is shortened: no block exceeds its part
        for name, rows in contribute(patients).items():
            assert float(rows.double().norm(dim=1).max()) <= 1.0 + 1e-9, name


def test_a_patient_that_claims_more_is_shortened() -> None:
    layout = Layout([Block(name="a", width=2), Block(name="b", width=1)])
    patients = simulate_ward(3, seed=0)
    rows = layout.contributions(patients, lambda _: {"a": torch.full((3, 2), 9.0), "b": torch.ones(3, 1)})
    assert rows.norm(dim=1).tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_noise_has_the_declared_size_and_counts_are_scaled_back() -> None:
    layout = Layout([Block(name="a", width=4000), Block(name="b", width=4000, importance=2.0)])
    counts = release(
        simulate_ward(1, seed=0),
        layout,
        lambda _: {"a": torch.zeros(1, 4000), "b": torch.zeros(1, 4000)},
        noise_multiplier=1.5,
        randomness=QUIET,
        step=0,
    )
    for name, importance in (("a", 1.0), ("b", 2.0)):
        assert float(counts[name].std()) == pytest.approx(1.5 * 5**0.5 / importance, rel=0.05)


def test_both_releases_together_keep_the_budget() -> None:
    budget = EpsilonDelta(epsilon=3.0, delta=1e-5)
    model = Marginals(Task(schema=simulate_ward(1, seed=0).schema, records=100, budget=budget))
    assert 2.98 < prove(model.planned_events(), 1e-5).epsilon <= 3.0
    whole = noise_multiplier_for(3.0, 1e-5)
    assert sum(noise**-2 for noise in model.noise_multipliers) == pytest.approx(whole**-2, rel=1e-3)


def test_scales_find_the_quantiles_and_the_way_back() -> None:
    patients = simulate_ward(800, seed=1)
    scales = plain_scales(patients)
    feature = patients.schema.temporal[0]
    values = patients.values[..., 0][patients.observed[..., 0]]
    quantile = scales.quantile_of(values, f"values/{feature.name}", feature.cells)
    assert float(quantile.mean()) == pytest.approx(0.5, abs=0.05)  # patients count alike, not measurements
    back = scales.value_at(quantile, f"values/{feature.name}", feature.cells)
    assert float((back - values).abs().max()) < 1 / feature.cells


def test_packed_patients_come_back() -> None:
    patients = simulate_ward(200, seed=1)
    packing = Packing(plain_scales(patients))
    again = packing.unpack(packing.pack(patients))
    for name in ("static_observed", "observed", "lengths"):
        assert torch.equal(getattr(again, name), getattr(patients, name)), name
    assert torch.equal(again.outcome, patients.outcome)
    # scores are cut at 2.5: only tails move
    moved = ((again.values - patients.values).abs() > 0.01)[patients.observed]
    late = (again.increments != patients.increments)[patients.real_steps]
    assert float(moved.double().mean()) < 0.03
    assert float(late.double().mean()) < 0.03


def test_classes_differ_where_patients_do_and_noise_alone_makes_no_difference() -> None:
    patients = simulate_ward(1500, seed=1)
    scales = plain_scales(patients)
    settings = MarginalsSettings()
    clear = ClassMarginals.release(
        patients, scales, settings=settings, noise_multiplier=0.0, randomness=QUIET, step=1
    )
    shares = clear.shares("values/heart_rate/0")
    middle = shares @ torch.arange(settings.value_bins).double()
    assert float(middle[1] - middle[0]) > 0.2  # who deteriorates has the faster pulse
    drowned = ClassMarginals.release(
        patients, scales, settings=settings, noise_multiplier=500.0, randomness=QUIET, step=1
    )
    lost = drowned.shares("values/temperature/1")
    assert float((lost[0] - lost[1]).abs().max()) < 0.8
    assert lost.sum(1).tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_synthetic_patients_resemble_real_ones() -> None:
    patients = simulate_ward(1500, seed=1)
    model = Marginals(Task(schema=patients.schema, records=1500, budget=None)).fit(patients)
    made = model.sample(1500, seed=0)
    assert float((made.outcome == 1).double().mean()) == pytest.approx(
        float((patients.outcome == 1).double().mean()), abs=0.03
    )
    assert float(made.lengths.double().mean()) == pytest.approx(
        float(patients.lengths.double().mean()), rel=0.15
    )
    for place in range(len(patients.schema.temporal)):
        real, synthetic = (each.observed[..., place].double().mean() for each in (patients, made))
        assert float(synthetic) == pytest.approx(float(real), rel=0.25)


def test_values_that_drown_in_noise_are_not_made_up() -> None:
    patients = simulate_ward(300, seed=1)
    scales = Scales.release(patients, noise_multiplier=500.0, randomness=QUIET, step=0)
    assert not any(scales.visible(feature.name) for feature in patients.schema.temporal)
    assert all(plain_scales(patients).visible(feature.name) for feature in patients.schema.temporal)
    drowned = ClassMarginals.release(
        patients, scales, settings=SETTINGS, noise_multiplier=0.0, randomness=QUIET, step=1
    )
    made = drowned.sample(20, torch.Generator().manual_seed(0))
    assert bool((made.observed.flatten(1).sum(1) == 1).all())  # each keeps the one that makes it a patient
