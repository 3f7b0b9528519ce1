"""A checkpoint holds all that the next step depends on; a damaged one is found out and passed over."""

from __future__ import annotations

import errno
import json
import os
import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hauberk import files
from hauberk.accounting import PrivacyPlan
from hauberk.errors import RequestError
from hauberk.gradients import AdaptiveClip, trainable
from hauberk.randomness import SeededRandomness
from hauberk.training import NoisyViews, Optimisation, PrivateTrainer
from hauberk.training.checkpoints import (
    CheckpointNotice,
    read_checkpoint_facts,
    restore_checkpoint,
    save_checkpoint,
)
from hauberk.training.run_folder import previous_checkpoint
from hauberk.training.shaping import AdaClipShaping, DirectionalShaping, Moments

PLAN = PrivacyPlan(records=48, batch=12, epochs=3, noise_multiplier=1.0, delta=1e-3)  # 12 steps
VIEW_KEY = (3, 5)


class Wandering(torch.optim.Optimizer):
    """Remembers plain numbers: a whole one, one with all its digits, nothing; and one for all weights."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        super().__init__(weights, {"lr": 0.1, "pace": 1 / 3})

    def step(self, closure: object = None) -> None:
        for group in self.param_groups:
            group["pace"] = group["pace"] * 1.0000001 + 1e-9
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state |= {
                        "count": 0,
                        "size": 0.1,
                        "buffer": None,
                        "wide": torch.zeros(()),
                    }
                    state["wide"] = state["wide"].double()
                assert state["buffer"] is None
                assert type(state["count"]) is int
                state["count"] += 1
                state["size"] = state["size"] * 1.1 + 1e-12
                state["wide"] += group["pace"] ** state["count"]
                with torch.no_grad():
                    weight -= (
                        group["lr"] * state["size"] * (group["pace"] + float(state["wide"])) * weight.grad
                    )


def made(name: str, **settings: float) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    return lambda weights: getattr(torch.optim, name)(weights, **{"lr": 0.02, **settings})


OPTIMIZERS = {
    "sgd": "sgd",
    "adam": "adam",
    "plain sgd": made("SGD"),
    "amsgrad": made("Adam", amsgrad=True),
    "plain numbers": Wandering,
    **{
        name: made(name)
        for name in (
            "Adadelta",
            "Adafactor",
            "Adagrad",
            "Adamax",
            "AdamW",
            "ASGD",
            "NAdam",
            "RAdam",
            "RMSprop",
        )
    },
    "Rprop": made("Rprop"),
}
EXTRAS: dict[str, Callable[[dict[str, Tensor]], dict[str, object]]] = {
    "adaptive clipping": lambda weights: {"clipping": AdaptiveClip(bound=0.3)},
    "AdaClip": lambda weights: {"shaping": AdaClipShaping(weights)},
    "directional": lambda weights: {"shaping": DirectionalShaping(weights, Moments(decay=0.8))},
    "all at once": lambda weights: {
        "shaping": DirectionalShaping(weights),
        "clipping": AdaptiveClip(bound=0.3),
        "optimisation": Optimisation(lr=0.05, optimizer="adam", schedule="cosine"),
    },
}


def trainer(
    extra: Callable[[dict[str, Tensor]], dict[str, object]] | None = None,
    *,
    width: int = 4,
    **changes: object,
) -> PrivateTrainer:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, width), nn.Tanh(), nn.Dropout(0.2), nn.Linear(width, 3))
    x, y = torch.rand(48, 1, 3, 3), torch.randint(0, 3, (48,))
    settings: dict[str, object] = {
        "plan": PLAN,
        "views": NoisyViews(sigma=0.25, views=2),
        "clipping": 0.5,
        "optimisation": Optimisation(lr=0.5),
        "randomness": SeededRandomness(7),
        **(extra(trainable(model)) if extra else {}),
        **changes,
    }
    return PrivateTrainer(model, x, y, **settings)


def advance(each: PrivateTrainer, upto: int) -> PrivateTrainer:
    while each.step < upto:
        each.advance()
    return each


def end(each: PrivateTrainer) -> dict[str, Tensor]:
    """Everything a run ends with."""
    state = advance(each, PLAN.steps).state()
    return {name: value.clone() for name, value in state.items()}


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def save(each: PrivateTrainer, path: Path) -> None:
    save_checkpoint(each, path, view_key=VIEW_KEY)


CASES = [
    *(
        (name, {"optimisation": Optimisation(lr=0.1, optimizer=kind)}, None)
        for name, kind in OPTIMIZERS.items()
    ),
    *((name, {}, extra) for name, extra in EXTRAS.items()),
]


@pytest.mark.parametrize(("name", "changes", "extra"), CASES, ids=[row[0] for row in CASES])
def test_training_goes_on_bit_for_bit_from_either_generation(
    name: str, changes: dict[str, object], extra: object, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    each = trainer(extra, **changes)
    for stop in (0, 5, 7):
        save(advance(each, stop), path)
    whole = end(each)
    assert read_checkpoint_facts(path) == (7, VIEW_KEY)
    resumed = trainer(extra, **changes)
    restore_checkpoint(resumed, path)
    assert resumed.step == 7
    assert_same(end(resumed), whole)
    path.write_bytes(path.read_bytes()[:-1])
    older = trainer(extra, **changes)
    with pytest.warns(CheckpointNotice, match="step 5"):
        restore_checkpoint(older, path)
    assert older.step == 5
    assert_same(end(older), whole)


def test_a_checkpoint_of_the_beginning_is_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    whole = end(trainer())
    save(trainer(), path)
    resumed = trainer()
    with torch.no_grad():
        for weight in resumed.model.parameters():
            weight.zero_()  # it is the saved weights that count
    restore_checkpoint(resumed, path)
    assert_same(end(resumed), whole)


def two_generations(path: Path) -> None:
    each = trainer()
    for stop in (2, 4):
        save(advance(each, stop), path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("written") / "checkpoint.safetensors"
    two_generations(path)
    return path.read_bytes()


def what_it_says(path: Path) -> tuple[dict[str, Tensor], tuple[int, tuple[int, int]]]:
    return files.read_tensors(path), read_checkpoint_facts(path)


def test_no_truncated_checkpoint_is_taken_for_whole(written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    for length in (*range(0, len(written), 37), len(written) - 1):
        path.write_bytes(written[:length])
        with pytest.raises(RequestError, match="damaged") as error:
            read_checkpoint_facts(path)
        assert "\n" not in str(error.value)


def test_no_flipped_bit_changes_what_is_restored(written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(written)
    tensors, facts = what_it_says(path)
    header = 8 + struct.unpack("<Q", written[:8])[0]
    found = 0
    for place in (*range(header), *range(header, len(written), 11)):
        damaged = bytearray(written)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        try:
            again = what_it_says(path)
        except RequestError:
            found += 1
            continue
        assert again[1] == facts  # a space in the header, say
        assert_same(again[0], tensors)
    assert found > 0.9 * (header + (len(written) - header) / 11)


def test_a_number_changed_by_hand_is_found_out(written: bytes, tmp_path: Path) -> None:
    """A well-formed file that says something else."""
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(written)
    tensors, facts = files.read_tensors_and_metadata(path)
    for changed in (
        {**tensors, "step": tensors["step"] - 1},
        {**tensors, "weights/1.bias": tensors["weights/1.bias"] + 1e-7},
        {name: value for name, value in tensors.items() if name != "average/1.bias"},
    ):
        files.write_tensors(path, changed, facts)
        with pytest.raises(RequestError, match="checksum"):
            read_checkpoint_facts(path)
    files.write_tensors(path, tensors, {**facts, "view_key": json.dumps([1, 2])})
    with pytest.raises(RequestError, match="checksum"):
        read_checkpoint_facts(path)
    files.write_tensors(path, tensors, facts)
    assert read_checkpoint_facts(path) == (4, VIEW_KEY)


def test_a_damaged_checkpoint_does_not_push_out_a_whole_one(tmp_path: Path) -> None:
    """After falling back, whatever moment the next kill picks, something whole is left."""
    path = tmp_path / "checkpoint.safetensors"
    two_generations(path)
    path.write_bytes(b"nonsense")
    each = trainer()
    with pytest.warns(CheckpointNotice, match="damaged"):
        restore_checkpoint(each, path)
    assert read_checkpoint_facts(path)[0] == 2
    assert not previous_checkpoint(path).exists()
    save(advance(each, 3), path)
    assert read_checkpoint_facts(path)[0] == 3
    assert read_checkpoint_facts(previous_checkpoint(path))[0] == 2


def test_a_kill_between_the_two_renamings_costs_no_notice(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    two_generations(path)
    path.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        each = trainer()
        restore_checkpoint(each, path)
    assert each.step == 2


def test_where_nothing_whole_is_left_one_sentence_says_so(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(RequestError, match=r"no checkpoint.*--force"):
        read_checkpoint_facts(path)
    two_generations(path)
    for each in (path, previous_checkpoint(path)):
        each.write_bytes(each.read_bytes()[:-3])
    for use in (read_checkpoint_facts, lambda path: restore_checkpoint(trainer(), path)):
        with pytest.raises(RequestError, match=r"both checkpoints in .* are damaged.*--force") as error:
            use(path)
        assert "\n" not in str(error.value)
    previous_checkpoint(path).unlink()
    with pytest.raises(RequestError, match="there is no other"):
        read_checkpoint_facts(path)


OTHERS = [
    ("another width", {"width": 5}, None, "another model"),
    ("another optimizer", {"optimisation": Optimisation(lr=0.1, optimizer="adam")}, None, "optimizer SGD"),
    ("a shaping", {}, EXTRAS["AdaClip"], "other settings"),
    ("an adaptive bound", {}, EXTRAS["adaptive clipping"], "other settings"),
]


@pytest.mark.parametrize(("name", "changes", "extra", "part"), OTHERS, ids=[row[0] for row in OTHERS])
def test_a_checkpoint_of_another_run_is_refused(
    name: str, changes: dict[str, object], extra: object, part: str, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save(advance(trainer(), 2), path)
    with pytest.raises(RequestError, match=part) as error:
        restore_checkpoint(trainer(extra, **changes), path)
    assert "\n" not in str(error.value)


def test_a_checkpoint_that_may_not_be_read_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    two_generations(path)

    def refuse(self: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(RequestError, match="Permission denied"):
        read_checkpoint_facts(path)


def test_a_failed_checkpoint_leaves_the_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint.safetensors"
    two_generations(path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RequestError, match="No space left"):
        save(advance(trainer(), 5), path)
    monkeypatch.undo()
    assert read_checkpoint_facts(path)[0] == 4
    assert read_checkpoint_facts(previous_checkpoint(path))[0] == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_memory_that_cannot_be_written_down_is_named(tmp_path: Path) -> None:
    class Odd(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            super().step()
            for group in self.param_groups:
                for weight in group["params"]:
                    self.state[weight]["history"] = [1, 2, 3]

    odd = Optimisation(lr=0.1, optimizer=lambda weights: Odd(weights, lr=0.1))
    with pytest.raises(RequestError, match="'history' of Odd"):
        save(advance(trainer(optimisation=odd), 1), tmp_path / "checkpoint.safetensors")
