"""A file is the old one or the new one, never half of either; damage costs one sentence."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hauberk import files
from hauberk.errors import RequestError

Write = Callable[[Path], None]
# one row per way of writing; every row gets every test below
WRITERS: list[tuple[str, Write]] = [
    ("bytes", lambda path: files.write_bytes(path, b"new")),
    ("text", lambda path: files.write_text(path, "new, ε")),
    ("json", lambda path: files.write_json(path, {"new": [1, 2.5, None]})),
    ("tensors", lambda path: files.write_tensors(path, {"new": torch.arange(6.0).view(2, 3).T})),
]
every_writer = pytest.mark.parametrize(("name", "write"), WRITERS, ids=[row[0] for row in WRITERS])


def says_one_sentence(error: pytest.ExceptionInfo[RequestError], path: Path) -> bool:
    return str(path) in str(error.value) and "\n" not in str(error.value)


@every_writer
def test_a_written_file_stands_alone(name: str, write: Write, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    write(path)  # over itself
    assert os.listdir(tmp_path) == ["file"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@every_writer
@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_failing_write_leaves_the_old_file_and_nothing_else(
    name: str, write: Write, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(RequestError, match="No space left") as error:
        write(path)
    monkeypatch.undo()
    assert says_one_sentence(error, path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_file_before_is_kept_if_it_is_asked_for(tmp_path: Path) -> None:
    path, previous = tmp_path / "file", tmp_path / "before"
    files.write_bytes(path, b"1", previous=previous)
    assert os.listdir(tmp_path) == ["file"]
    for number in (b"2", b"3"):
        before = path.read_bytes()
        files.write_bytes(path, number, previous=previous)
        assert (path.read_bytes(), previous.read_bytes()) == (number, before)


@pytest.mark.parametrize("failing", [1, 2])
def test_of_two_generations_one_is_always_there(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, previous = tmp_path / "file", tmp_path / "before"
    for content in (b"1", b"2"):
        files.write_bytes(path, content, previous=previous)
    replace, calls = os.replace, []

    def sometimes(*names: Path) -> None:
        calls.append(names)
        if len(calls) == failing:
            raise OSError(5, "Input/output error")
        replace(*names)

    monkeypatch.setattr(os, "replace", sometimes)
    with pytest.raises(RequestError, match="Input/output error"):
        files.write_bytes(path, b"3", previous=previous)
    left = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert left == ({"file": b"2", "before": b"1"} if failing == 1 else {"before": b"2"})


def test_a_renaming_is_made_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First the content, then the name, then the folder that holds the name."""
    happened: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        happened.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content")
        fsync(descriptor)

    def noted_replace(*names: Path) -> None:
        happened.append("name")
        replace(*names)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    files.write_bytes(tmp_path / "file", b"new")
    assert happened == ["content", "name", "folder"]


@pytest.mark.parametrize(("code", "fatal"), [(22, False), (5, True)])
def test_a_file_system_that_cannot_sync_folders_will_do(
    code: int, fatal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    if fatal:
        with pytest.raises(RequestError, match="cannot write"):
            files.write_bytes(tmp_path / "file", b"new")
    else:
        files.write_bytes(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_only_unfinished_files_are_cleared_away(tmp_path: Path) -> None:
    for name in (".events.json.x1.partial", "partial", "mine.partial", ".partial.mine"):
        (tmp_path / name).write_text("")
    files.remove_partial(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".partial.mine", "mine.partial", "partial"]


@every_writer
def test_a_folder_that_cannot_be_written_to(name: str, write: Write, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    for path in (tmp_path / "missing" / "file", tmp_path / "a file" / "file"):
        with pytest.raises(RequestError, match="cannot write") as error:
            write(path)
        assert says_one_sentence(error, path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
@every_writer
def test_a_folder_without_permission(name: str, write: Write, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    with pytest.raises(RequestError, match="Permission denied"):
        write(folder / "file")


@every_writer
def test_a_folder_in_the_place_of_the_file(name: str, write: Write, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.mkdir()
    with pytest.raises(RequestError, match="cannot write"):
        write(path)
    assert os.listdir(tmp_path) == ["file"]


def test_private_files_are_for_their_owner_only(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    path = tmp_path / "private" / "diagnostics.jsonl"
    files.write_text(path, "secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@given(content=json_values)
@settings(same_folder, max_examples=30)
def test_json_comes_back_as_it_went(content: object, tmp_path: Path) -> None:
    files.write_json(tmp_path / "file", content)
    assert files.read_json(tmp_path / "file") == content


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_not_written(value: float, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ValueError, match="Out of range"):
        files.write_json(path, {"epsilon": value})
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


# (what is wrong, the file's bytes)
DAMAGED_JSON: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("cut off", b'{"epsilon": 1.'),
    ("binary", b"\x80\x81\xff\x00"),
    ("two values", b"{} {}"),
    ("NaN", b'{"epsilon": NaN}'),
    ("infinity", b'{"epsilon": Infinity}'),
    ("minus infinity", b'{"epsilon": -Infinity}'),
    ("overflow", b'{"epsilon": 1e999}'),
    ("bottomless", b"[" * 200_000),
]


@pytest.mark.parametrize(("wrong", "content"), DAMAGED_JSON, ids=[row[0] for row in DAMAGED_JSON])
def test_damaged_json_is_refused(wrong: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(RequestError, match="not valid JSON") as error:
        files.read_json(path)
    assert says_one_sentence(error, path)


@pytest.mark.parametrize("read", [files.read_json, files.read_tensors])
def test_a_missing_file_is_named(read: Callable[[Path], object], tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(RequestError, match="cannot read") as error:
            read(path)
        assert says_one_sentence(error, path)


def test_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    shared = torch.randn(4, 3)
    tensors = {
        "view": shared.T,
        "same memory": shared,
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "whole": torch.arange(5),
        "learned": torch.nn.Parameter(torch.tensor([float("nan"), -0.0, float("inf")])),
    }
    files.write_tensors(tmp_path / "file", tensors, {"step": "3"})
    back, facts = files.read_tensors_and_metadata(tmp_path / "file")
    assert facts == {"step": "3"}
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name].nan_to_num(7), tensor.detach().nan_to_num(7)), name


@given(data=st.data())
@settings(same_folder, max_examples=100)
def test_damaged_tensors_are_refused_or_read_but_never_crash(data: st.DataObject, tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_tensors(path, {"weights": torch.ones(3), "bias": torch.zeros(1)})
    content = bytearray(path.read_bytes())
    header = int.from_bytes(content[:8], "little") + 8
    cut = data.draw(st.integers(0, len(content) - 1) | st.none(), label="cut at")
    if cut is not None:
        del content[cut:]
    else:
        content[data.draw(st.integers(0, header - 1), label="place")] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        read = files.read_tensors(path)
    except RequestError:  # any other exception would be a crash
        return
    assert cut is None
    assert all(isinstance(tensor, torch.Tensor) for tensor in read.values())


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    torch.save({"weights": torch.ones(3)}, tmp_path / "file")
    with pytest.raises(RequestError, match="damaged or no safetensors file"):
        files.read_tensors(tmp_path / "file")


def test_json_is_plain(tmp_path: Path) -> None:
    files.write_json(tmp_path / "file", {"b": 1, "a": None})
    text = (tmp_path / "file").read_text()
    assert text.endswith("}\n")
    assert list(json.loads(text)) == ["b", "a"]  # in the order written
