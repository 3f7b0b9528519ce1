"""The outcome is drawn from the finished row: its law, what it may see, and what it brings under noise."""

import numpy as np
import pytest
import torch

from hauberk.mechanisms import EpsilonDelta
from hauberk.randomness import choose_randomness
from hauberk.synthesis import WARD, simulate_ward
from hauberk.synthesis.base import Task
from hauberk.synthesis.catalogue import find_synthesizer
from hauberk.synthesis.evaluation_features import draw
from hauberk.synthesis.evaluation_prediction import Prediction, predict
from hauberk.synthesis.networks import persistent
from hauberk.synthesis.neural import NeuralSynthesizer
from hauberk.synthesis.outcome_head import OutcomeHead
from hauberk.synthesis.packing import Packing
from hauberk.synthesis.scales import Scales

PATIENTS = simulate_ward(300, seed=0)
SCALES = Scales.release(PATIENTS, noise_multiplier=0.0, randomness=choose_randomness(0), step=0)
PACKING = Packing(SCALES)
ROWS = PACKING.pack(PATIENTS)
SHAPE = PACKING.shape
LEARNED = 0.7


def head() -> OutcomeHead:
    torch.manual_seed(0)
    made = OutcomeHead(SHAPE)
    torch.nn.init.normal_(made.logit.weight, std=0.3)
    return made


def with_other_outcome(rows: torch.Tensor) -> torch.Tensor:
    assert SHAPE.outcome is not None
    changed = rows.clone()
    levels = changed[:, SHAPE.outcome.start : SHAPE.outcome.stop]
    changed[:, SHAPE.outcome.start : SHAPE.outcome.stop] = levels.flip(1)
    return changed


def test_the_summary_never_holds_the_outcome() -> None:
    model = head()
    assert not torch.equal(with_other_outcome(ROWS), ROWS)
    assert torch.equal(model.summary(with_other_outcome(ROWS)), model.summary(ROWS))


def test_the_summary_is_what_a_clinician_counts() -> None:
    place = 1
    feature = SHAPE.temporal[place]
    _, steps = SHAPE.parts(ROWS)
    for patient in range(20):
        observed = PATIENTS.observed[patient, :, place]
        values = steps[patient, :, feature.start][observed]
        summary = head().summary(ROWS[patient])
        expected = float(values.mean()) if len(values) else 0.0
        assert float(summary[feature.start - 1]) == pytest.approx(expected, abs=1e-5)
        share = float(observed.sum()) / int(PATIENTS.lengths[patient])
        assert float(summary[SHAPE.value_width + place]) == pytest.approx(share, abs=1e-6)


def test_cost_is_the_negative_log_likelihood_of_known_outcomes() -> None:
    model = head()
    probability = torch.sigmoid(model.logit(model.summary(ROWS)))[:, 0].double()
    outcome = PATIENTS.outcome
    right = torch.where(outcome == 1, probability, 1 - probability).log()
    expected = torch.where(outcome >= 0, -right, 0.0).float()
    torch.testing.assert_close(model.cost(ROWS), expected)


def test_outcomes_are_drawn_with_the_models_probability() -> None:
    model = head()
    row = ROWS[PATIENTS.outcome >= 0][:1].expand(40_000, -1)
    assert SHAPE.outcome is not None
    made = model.complete(row, torch.randn(row.shape, generator=torch.Generator().manual_seed(0)))
    happened = made[:, SHAPE.outcome.start + 1]
    assert set(happened.unique().tolist()) <= {0.0, 1.0}
    wanted = float(torch.sigmoid(model.logit(model.summary(row[0]))).detach())
    assert float(happened.mean()) == pytest.approx(wanted, abs=4 * (wanted * (1 - wanted) / 40_000) ** 0.5)
    others = [c for c in range(SHAPE.width) if not SHAPE.outcome.start <= c < SHAPE.outcome.stop]
    assert torch.equal(made[:, others], row[:, others])


def test_critics_have_no_say_in_the_outcomes_weights() -> None:
    model = head()
    rows = ROWS[:8].clone().requires_grad_(True)
    model.complete(rows, torch.randn(rows.shape)).square().sum().backward()
    assert rows.grad is not None
    assert float(rows.grad.abs().sum()) > 0
    assert model.logit.weight.grad is None


@pytest.mark.parametrize("share", [0.0, 0.6, 0.9])
def test_persistent_noise_keeps_its_law_and_correlates_values_alone(share: float) -> None:
    noise = torch.randn(20_000, SHAPE.width, generator=torch.Generator().manual_seed(1))
    head_part, steps = SHAPE.parts(persistent(noise, SHAPE, share))
    assert torch.equal(head_part, SHAPE.parts(noise)[0])
    assert steps.std(0).sub(1).abs().max() < 0.03

    def correlation(column: int) -> float:
        return float(np.corrcoef(steps[:, 2, column], steps[:, 5, column])[0, 1])

    assert correlation(1) == pytest.approx(share**2, abs=0.03)
    for column in (0, 1 + SHAPE.value_width, SHAPE.step_width - 1):
        assert correlation(column) == pytest.approx(0.0, abs=0.03)


def test_a_private_network_learns_the_outcome() -> None:
    """The reason for all this; seeds are fixed, and without the head this is a coin's 0.5."""
    train, test = simulate_ward(2000, seed=1), simulate_ward(1000, seed=2)
    task = Task(schema=WARD, records=2000, budget=EpsilonDelta(epsilon=3.0, delta=1e-5), seed=0, noise_seed=0)
    row = find_synthesizer("vae")
    model = row.build(task, size="quick")
    assert isinstance(model, NeuralSynthesizer)
    made = model.fit(train).sample(2000, seed=0)
    samples = [draw(each, 2000, seed=0) for each in (test, made, train)]
    found = predict(*samples, alpha=0.05, seed=0)
    assert isinstance(found, Prediction)
    assert found.auroc_synthetic.value > LEARNED
