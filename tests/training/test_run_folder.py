"""Run folders: nothing is overwritten by accident, nothing private lies outside, kills lose nothing."""

import errno
import json
import os
import shutil
import stat
from pathlib import Path

import pytest
import torch

import hauberk as hb
from hauberk.accounting import Ledger
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods import PrivateSmoothing
from hauberk.training import RunFolder, journal
from hauberk.training.checkpoints import CheckpointNotice, read_checkpoint_facts


def data(rows: int = 96) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (rows,), generator=generator)
    x = torch.rand(rows, 1, 6, 6, generator=generator) * 0.3 + 0.3 * y.view(-1, 1, 1, 1)
    return Dataset(name="toy", x=x.clamp(0, 1), y=y, classes=3)


def method(noise_seed: int | None = 5) -> PrivateSmoothing:
    torch.manual_seed(0)
    model = hb.models.build("mlp", shape=(1, 6, 6), classes=3)
    plan = hb.PrivacyPlan(records=96, batch=24, epochs=4, noise_multiplier=1.0, delta=1e-3)
    return PrivateSmoothing(model, plan=plan, sigma=0.2, views=2, noise_seed=noise_seed)


def folder(path: Path) -> RunFolder:
    each = RunFolder.check_free(path, force=False)
    each.create()
    each.write_config({"settings": {}})
    return each


class Killed(Exception):
    """Stands for a kill at an arbitrary moment."""


def interrupted(path: Path, after: int, noise_seed: int | None = 5) -> RunFolder:
    def kill(stage: str, done: int, total: int) -> None:
        if stage == "training" and done == after:
            raise Killed

    each = folder(path)
    with pytest.raises(Killed):
        method(noise_seed).fit(data(), folder=each, progress=kill)
    return each


def steps(ledger: Ledger) -> int:
    return sum(event.count for event in ledger.events)


@pytest.mark.parametrize("after", [1, 3, 5, 8, 11, 15, 16])
def test_an_interrupted_run_resumes_to_the_same_weights_and_never_under_counts(
    tmp_path: Path, after: int
) -> None:
    whole = method().fit(data())
    each = interrupted(tmp_path / "run", after)
    counted = steps(each.read_events())
    assert counted >= after
    run = method().fit(data(), folder=each, resume=True)
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, run.model.state_dict()[name])
    repeated = steps(each.read_events())
    assert repeated >= whole.plan.steps
    assert steps(run.ledger) == repeated
    assert not each.checkpoint.exists()


def test_an_uninterrupted_run_counts_exactly_its_steps(tmp_path: Path) -> None:
    each = folder(tmp_path / "run")
    run = method().fit(data(), folder=each)
    assert steps(each.read_events()) == steps(run.ledger) == run.plan.steps


def test_events_are_on_disk_before_the_steps_they_count(tmp_path: Path) -> None:
    each = folder(tmp_path / "run")

    def look(stage: str, done: int, total: int) -> None:
        assert steps(each.read_events()) >= done

    method().fit(data(), folder=each, progress=look)
    assert steps(each.read_events()) == 16


def test_nothing_outside_private_depends_on_the_training_loss(tmp_path: Path) -> None:
    """Two data sets with other labels: the public files differ in weights only."""
    first, second = folder(tmp_path / "first"), folder(tmp_path / "second")
    one = data()
    other = Dataset(name="toy", x=one.x, y=(one.y + 1) % 3, classes=3)
    method().fit(one, folder=first)
    method().fit(other, folder=second)
    for name in ("config.json", "events.json", "metrics.jsonl"):
        assert (first.path / name).read_text() == (second.path / name).read_text()
    assert (first.path / "model.safetensors").read_bytes() != (second.path / "model.safetensors").read_bytes()
    private = (first.private / "diagnostics.jsonl").read_text()
    assert set(json.loads(private.splitlines()[0])) == {"step", "mean_batch", "clipped_share", "loss"}
    public = {path.name for path in first.path.iterdir()}
    assert public == {"config.json", "events.json", "metrics.jsonl", "model.safetensors", "private"}


def test_the_private_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    each = interrupted(tmp_path / "run", 6)
    assert stat.S_IMODE(each.private.stat().st_mode) == 0o700
    for path in each.private.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {path.name for path in each.private.iterdir()} == {
        "checkpoint.safetensors",
        "checkpoint-previous.safetensors",
        "diagnostics.jsonl",
        "lock",
    }


def test_an_existing_run_is_not_overwritten_without_force(tmp_path: Path) -> None:
    folder(tmp_path / "run")
    with pytest.raises(RequestError, match="--force"):
        RunFolder.check_free(tmp_path / "run", force=False)
    RunFolder.check_free(tmp_path / "run", force=True)


def test_force_does_not_touch_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(RequestError, match="no run"):
        RunFolder.check_free(tmp_path / "thesis", force=True)


def test_force_keeps_what_is_not_a_runs_file(tmp_path: Path) -> None:
    each = folder(tmp_path / "run")
    (each.path / "notes.txt").write_text("mine")
    each.create()
    assert (each.path / "notes.txt").read_text() == "mine"


def test_a_damaged_checkpoint_is_passed_over_and_two_cost_one_sentence(tmp_path: Path) -> None:
    whole = method().fit(data())
    each = interrupted(tmp_path / "run", 9)
    each.checkpoint.write_bytes(each.checkpoint.read_bytes()[:-50])
    with pytest.warns(CheckpointNotice, match=r"damaged; training goes on .* after step 4"):
        run = method().fit(data(), folder=each, resume=True)
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, run.model.state_dict()[name])
    assert [point.step for point in run.curve] == [4, 8, 12, 16]
    assert steps(run.ledger) == 12 + 12  # reserved up to 12, then 4 ... 16 once more
    both = interrupted(tmp_path / "other", 9)
    for path in both.private.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(RequestError, match="both checkpoints"):
        method().fit(data(), folder=both, resume=True)
    assert steps(both.read_events()) == 12


def test_no_step_runs_that_could_not_be_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = folder(tmp_path / "run")
    ran: list[int] = []

    def fill(stage: str, done: int, total: int) -> None:
        ran.append(done)
        if done == 4:  # from now on nothing more fits
            monkeypatch.setattr(os, "fsync", full)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(
        RequestError, match="No space left on device; every step that ran is counted"
    ) as error:
        method().fit(data(), folder=each, progress=fill)
    monkeypatch.undo()
    assert "\n" not in str(error.value)
    assert ran == [1, 2, 3, 4]
    assert steps(each.read_events()) == 4


def test_within_a_long_epoch_there_are_checkpoints_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(journal, "CHECKPOINT_SHARE", float("inf"))
    each = interrupted(tmp_path / "run", 7)
    assert read_checkpoint_facts(each.checkpoint)[0] == 6
    run = method().fit(data(), folder=each, resume=True)
    assert steps(run.ledger) == 8 + 2 + 8  # reserved up to 8; from 6 to 8 once more; the rest
    whole = method().fit(data())
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, run.model.state_dict()[name])


def test_within_a_long_epoch_steps_are_reserved_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "RESERVED_STEPS", 3)
    each = folder(tmp_path / "run")
    counts: list[int] = []
    method().fit(data(), folder=each, progress=lambda *_: counts.append(steps(each.read_events())))
    assert counts == [3, 3, 3, 4, 7, 7, 7, 8, 11, 11, 11, 12, 15, 15, 15, 16]


def test_a_run_with_some_repeatable_noise_proves_nothing(tmp_path: Path) -> None:
    each = interrupted(tmp_path / "run", 6, noise_seed=5)
    run = method(None).fit(data(), folder=each, resume=True)
    assert run.ledger.reproducible
    assert run.curve[-1].epsilon is None
    other = interrupted(tmp_path / "other", 6, noise_seed=None)
    run = method(5).fit(data(), folder=other, resume=True)
    assert run.ledger.reproducible
    assert other.read_events().reproducible


def test_a_new_run_does_not_forget_the_events_of_an_interrupted_one(tmp_path: Path) -> None:
    each = interrupted(tmp_path / "run", 6)
    with pytest.raises(RequestError, match="earlier run"):
        method().fit(data(), folder=each)
    assert steps(each.read_events()) == 8
    each.create()
    assert steps(method().fit(data(), folder=each).ledger) == 16


def test_diagnostics_survive_an_interruption(tmp_path: Path) -> None:
    each = interrupted(tmp_path / "run", 10)
    method().fit(data(), folder=each, resume=True)
    assert [row["step"] for row in each.read_diagnostics()] == [4, 8, 12, 16]
    (each.private / "diagnostics.jsonl").write_text("nonsense")
    assert each.read_diagnostics() == []


def test_what_a_killed_run_left_unfinished_is_cleared_away(tmp_path: Path) -> None:
    each = interrupted(tmp_path / "run", 6)
    halves = [each.path / ".events.json.abc.partial", each.private / ".checkpoint.safetensors.abc.partial"]
    for half in halves:
        half.write_bytes(b"half")
    (each.path / ".mine").write_text("no file of the run")
    method().fit(data(), folder=each, resume=True)
    assert not any(half.exists() for half in halves)
    assert (each.path / ".mine").exists()


def test_a_folder_that_was_just_being_made_is_free(tmp_path: Path) -> None:
    path = tmp_path / "run"
    RunFolder(path).create()  # and killed before its config.json
    (path / ".config.json.abc.partial").write_text("{")
    each = RunFolder.check_free(path, force=False)
    each.create()
    assert [found.name for found in path.iterdir()] == ["private"]
    (path / "private" / "treasure").write_text("not ours")
    with pytest.raises(RequestError, match="exists already"):
        RunFolder.check_free(path, force=False)


def test_an_earlier_run_that_is_only_half_removed_still_counts_its_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = folder(tmp_path / "finished")
    method().fit(data(), folder=finished)
    unlink, calls = os.unlink, 0

    def dying(*words: object, **options: object) -> None:
        nonlocal calls
        calls -= 1
        if calls < 0:
            raise Killed
        unlink(*words, **options)

    monkeypatch.setattr(os, "unlink", dying)
    for number in range(5):
        each = RunFolder(shutil.copytree(finished.path, tmp_path / f"copy-{number}"))
        calls = number
        with pytest.raises(Killed):
            each.create()
        assert (each.path / "config.json").exists()  # so --force knows it
        assert each.begun or not each.trained


def test_with_system_noise_a_resumed_run_keeps_its_proof_and_counts_the_lost_steps(tmp_path: Path) -> None:
    each = interrupted(tmp_path / "run", 6, noise_seed=None)
    run = method(None).fit(data(), folder=each, resume=True)
    card = run.audit(data(), settings=hb.methods.AuditSettings(tested=8, samples=50, attacked=0))
    assert card.privacy.claimed is not None
    assert card.privacy.proven is not None
    assert steps(run.ledger) == 20  # 8 reserved, checkpoint at 4, then 4 ... 16 once more
    assert card.privacy.proven.epsilon > card.privacy.claimed.epsilon


def test_one_record_cannot_stop_a_run(tmp_path: Path) -> None:
    """A record whose loss is infinite must not be visible as a crash."""

    class Logarithm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(torch.log(x))

    torch.manual_seed(0)
    plan = hb.PrivacyPlan(records=64, batch=64, epochs=2, noise_multiplier=2.0, delta=1e-3)
    x, y = torch.rand(64, 4) * 0.2 + 0.4, torch.randint(0, 2, (64,))
    x[5] = 0.0
    each = folder(tmp_path / "run")
    run = PrivateSmoothing(Logarithm(), plan=plan, sigma=1e-6).fit((x, y), classes=2, folder=each)
    assert steps(run.ledger) == plan.steps
    assert all(torch.isfinite(weight).all() for weight in run.model.state_dict().values())


def test_the_curve_counts_repeated_steps(tmp_path: Path) -> None:
    each = interrupted(tmp_path / "run", 6, noise_seed=None)
    run = method(None).fit(data(), folder=each, resume=True)
    card = run.audit(data(), settings=hb.methods.AuditSettings(tested=4, samples=20, attacked=0))
    assert card.privacy.proven is not None
    assert run.curve[-1].epsilon == pytest.approx(card.privacy.proven.epsilon, rel=1e-2)


def test_tied_weights_are_averaged_too() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(36, 36), torch.nn.Linear(36, 36)
            self.second.weight = self.first.weight
            self.head = torch.nn.Linear(36, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.tanh(self.second(torch.tanh(self.first(x.flatten(1))))))

    torch.manual_seed(0)
    plan = hb.PrivacyPlan(records=96, batch=24, epochs=2, noise_multiplier=1.0, delta=1e-3)
    from hauberk.randomness import SeededRandomness
    from hauberk.training import NoisyViews, Optimisation, PrivateTrainer

    trainer = PrivateTrainer(
        Tied(),
        data().x,
        data().y,
        plan=plan,
        views=NoisyViews(sigma=0.1, views=1),
        clipping=1.0,
        optimisation=Optimisation(lr=1.0),
        randomness=SeededRandomness(1),
    )
    trainer.run(lambda done: None)
    into = trainer.averaged_model(Tied())
    assert torch.equal(into.first.weight, trainer.average.values["first.weight"])
    assert into.second.weight is into.first.weight


UNFIT = [
    ("too few scores", lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 2)), "2"),
    ("wrong width", lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(35, 3)), "shape"),
    ("no parameters", lambda: torch.nn.Flatten(), "class scores"),
    ("frozen", lambda: hb.models.build("mlp", shape=(1, 6, 6), classes=3).requires_grad_(False), "trained"),
]


@pytest.mark.parametrize(("name", "build", "part"), UNFIT, ids=[row[0] for row in UNFIT])
def test_a_model_that_cannot_work_costs_one_sentence(name: str, build, part: str) -> None:
    plan = hb.PrivacyPlan(records=96, batch=24, epochs=1, noise_multiplier=1.0, delta=1e-3)
    with pytest.raises(RequestError) as caught:
        PrivateSmoothing(build(), plan=plan, sigma=0.2).fit(data())
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
