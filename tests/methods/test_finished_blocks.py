"""Finished blocks survive a kill at any byte, and come back as they were to the last bit."""

from pathlib import Path

import numpy as np
import pytest

from hauberk.certify import Certificates
from hauberk.errors import RequestError
from hauberk.methods.finished_blocks import Block, FinishedBlocks, joined


def block(first: int, length: int = 3) -> Block:
    generator = np.random.default_rng(first)
    whole = {name: generator.integers(-1, 1000, length) for name in ("labels", "votes", "draws", "predicted")}
    return Block(first=first, radii=generator.random(length) / 3, **whole)


def same(one: Block, other: Block) -> bool:
    return one.to_json() == other.to_json() and one.radii.tobytes() == other.radii.tobytes()


def test_blocks_come_back_to_the_last_bit(tmp_path: Path) -> None:
    kept = FinishedBlocks(tmp_path, "d" * 64)
    kept.add([block(0), block(3)])
    kept.add([block(6)])
    again = FinishedBlocks(tmp_path, "d" * 64)
    assert sorted(again.blocks) == [0, 3, 6]
    assert all(same(again.blocks[first], block(first)) for first in (0, 3, 6))
    assert (len(again), 3 in again, 9 in again) == (9, True, False)
    again.remove()
    assert list(tmp_path.iterdir()) == []
    again.remove()


def test_another_digest_finds_nothing(tmp_path: Path) -> None:
    FinishedBlocks(tmp_path, "d" * 64).add([block(0)])
    assert len(FinishedBlocks(tmp_path, "e" * 64)) == 0


def test_a_kill_at_any_byte_costs_the_line_that_was_being_written(tmp_path: Path) -> None:
    kept = FinishedBlocks(tmp_path, "d" * 64)
    kept.add([block(0)])
    assert kept.path is not None
    first = kept.path.stat().st_size
    kept.add([block(3)])
    content = kept.path.read_bytes()
    for cut in range(first, len(content), 7):
        kept.path.write_bytes(content[:cut])
        again = FinishedBlocks(tmp_path, "d" * 64)
        assert list(again.blocks) == [0]
        again.add([block(3)])
        assert kept.path.read_bytes() == content


def test_a_changed_line_is_dropped(tmp_path: Path) -> None:
    kept = FinishedBlocks(tmp_path, "d" * 64)
    kept.add([block(0), block(3)])
    assert kept.path is not None
    kept.path.write_bytes(kept.path.read_bytes().replace(b'"first": 0', b'"first": 9', 1))
    assert list(FinishedBlocks(tmp_path, "d" * 64).blocks) == [3]


def test_blocks_travel_between_processes_to_the_last_bit() -> None:
    words = block(6).to_words(5)
    assert (words.shape, words.dtype) == ((5, 5), np.int64)
    assert same(Block.from_words(6, words[:3]), block(6))


def test_joined_blocks_are_in_order() -> None:
    like = Certificates(
        labels=np.empty(0, np.int64), radii=np.empty(0), votes=np.empty(0, np.int64), samples=7, alpha=0.1
    )
    whole = joined({3: block(3), 0: block(0)}, like)
    assert whole.radii.tolist() == [*block(0).radii, *block(3).radii]
    assert whole.draws.tolist() == [*block(0).draws, *block(3).draws]
    assert (whole.samples, whole.alpha) == (7, 0.1)


def test_a_folder_that_cannot_be_written_costs_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot write"):
        FinishedBlocks(tmp_path / "nowhere", "d" * 64).add([block(0)])


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = FinishedBlocks()
    kept.add([block(0)])
    assert len(kept) == 3
    kept.remove()
    assert list(tmp_path.iterdir()) == []
