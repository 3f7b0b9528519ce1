"""The journal takes little of the time: epsilons of the curve are computed where there is time for them."""

import pytest
import torch

import hauberk as hb
from hauberk.data import Dataset
from hauberk.methods import DPSGD, Run
from hauberk.training import journal

PLAN = hb.PrivacyPlan(records=96, batch=24, epochs=5, noise_multiplier=1.0, delta=1e-3)  # 4 steps an epoch


def trained() -> Run:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(96, 4, generator=generator), torch.randint(0, 3, (96,), generator=generator)
    model = torch.nn.Linear(4, 3)
    return DPSGD(model, plan=PLAN).fit(Dataset(name="toy", x=x, y=y, classes=3))


class Clock:
    """Stands for ``time.monotonic``: stands still but for the accounting, which takes its time."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "epochs_apart", "known"),
    [
        (0.0, 1.0, [True, True, True, True, True]),
        (0.1, 60.0, [True, True, True, True, True]),  # a sixth of a percent
        (0.1, 2.0, [True, False, False, True, True]),  # 5 seconds apart at least: two percent
        (9.0, 1.0, [True, False, False, False, True]),
    ],
)
def test_accounting_takes_a_small_share_of_the_time(
    seconds: float, epochs_apart: float, known: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, compute = Clock(), journal.proven_epsilon

    def slow(*events: object, **settings: float) -> float:
        clock.now += seconds
        return compute(*events, **settings)

    monkeypatch.setattr(journal, "proven_epsilon", slow)
    monkeypatch.setattr(journal.time, "monotonic", clock)
    note = journal.Journal._note_diagnostics

    def next_epoch(self: journal.Journal, step: int) -> None:
        clock.now += epochs_apart
        note(self, step)

    monkeypatch.setattr(journal.Journal, "_note_diagnostics", next_epoch)
    run = trained()
    assert [point.epsilon is not None for point in run.curve] == known
    assert run.curve[-1].epsilon == pytest.approx(PLAN.epsilon(), rel=1e-2)
