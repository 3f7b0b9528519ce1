"""Finished parts of an experiment survive an interruption, and only exactly those are used again."""

from pathlib import Path

import pytest

from hauberk.experiments.parts import kept_in, remembered


class Counted:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> list[float]:
        self.calls += 1
        return [0.1, self.calls]


def test_without_a_folder_everything_is_computed() -> None:
    compute = Counted()
    assert remembered({"seed": 0}, compute) == [0.1, 1]
    assert remembered({"seed": 0}, compute) == [0.1, 2]


def _interrupted_after(compute: Counted) -> None:
    assert remembered({"seed": 0}, compute) == [0.1, 1]
    raise KeyboardInterrupt


def test_what_was_finished_before_an_interruption_is_not_computed_again(tmp_path: Path) -> None:
    compute, folder = Counted(), tmp_path / "new" / "parts"
    with pytest.raises(KeyboardInterrupt), kept_in(folder):
        _interrupted_after(compute)
    with kept_in(folder):
        assert remembered({"seed": 0}, compute) == [0.1, 1]
        assert remembered({"seed": 1}, compute) == [0.1, 2]
    assert compute.calls == 2
    assert not folder.exists()  # the experiment went through


def test_a_part_that_failed_is_computed_again(tmp_path: Path) -> None:
    def fails() -> object:
        raise ValueError("no number")

    with pytest.raises(ValueError, match="no number"), kept_in(tmp_path / "parts"):
        remembered({"seed": 0}, fails)
    with kept_in(tmp_path / "parts"):
        assert remembered({"seed": 0}, Counted()) == [0.1, 1]


def test_outside_of_the_folder_nothing_is_remembered(tmp_path: Path) -> None:
    compute = Counted()
    with kept_in(tmp_path / "parts", remove=False):
        remembered({"seed": 0}, compute)
    assert remembered({"seed": 0}, compute) == [0.1, 2]
    assert len(list((tmp_path / "parts").iterdir())) == 1
