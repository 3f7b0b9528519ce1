"""Run folders with one file damaged: commands that read it refuse, and leave the folder as it is."""

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hauberk.methods.verification import write_manifest

Words = tuple[object, ...]


def typed(text: str) -> Words:
    """A command as it is typed."""
    return tuple(text.split())


Replaced = Callable[[Path, bytes | None], Any]
Damages = Callable[..., dict[str, bytes]]

CERTIFY: Words = typed("certify pixels --limit 2 --samples 50 --device cpu")
ATTACK: Words = typed("attack pixels --radius 0.1 --limit 2 --steps 1 --draws 1")
INSIDE: Words = typed("attack pixels --limit 2 --steps 1 --draws 1")
PREDICT: Words = typed("predict pixels pixels.npz --samples 50")
REPORT: Words = ("report", "pixels")
ACCOUNT: Words = typed("account --run pixels")
RESUME: Words = typed("train --resume runs/stopped")
SAMPLE: Words = typed("synth sample ward --patients 3 --out new.csv")
EVALUATE: Words = ("imitate", "evaluate", "network", "--device", "cpu", "--beside", "")
CRAFT: Words = typed("imitate attack network --limit 2 --device cpu")
READERS: list[Words] = [CERTIFY, ATTACK, INSIDE, PREDICT]
TRAIN_WITH: Words = typed(
    "train --data pixels.npz --size tiny --name new --method dp-sgd "
    "--imitation runs/network/ain.safetensors --training-attack-size 0.3"
)
WEIGHTS: Words = typed(
    "train --data pixels.npz --size tiny --name new --model logistic "
    "--weights runs/network/classifier.safetensors"
)
START: Words = typed("imitate train --data pixels.npz --name new --start runs/network/ain.safetensors")

# Files of a run, and who must not do without them.
NEEDED: dict[str, list[Words]] = {
    "runs/pixels/config.json": READERS,
    "runs/pixels/model.safetensors": READERS,
    "runs/pixels/events.json": [*READERS, ACCOUNT],
    "runs/pixels/card.json": [*READERS, REPORT],
    "runs/pixels/metrics.jsonl": [*READERS, REPORT],
    "runs/pixels/manifest.json": [CERTIFY, ATTACK, INSIDE, REPORT],
    "runs/pictures/strip.npz": [
        ("report", "pictures"),
        typed("predict pictures pictures"),
        ("attack", "pictures"),
    ],
    "runs/stopped/config.json": [RESUME],
    "runs/stopped/events.json": [RESUME],
    "runs/stopped/private/checkpoint.safetensors": [RESUME],
    "runs/people/config.json": [typed("predict people people.csv")],
    "runs/people/model.safetensors": [typed("predict people people.csv")],
    "runs/ward/config.json": [SAMPLE, typed("synth train --resume runs/ward")],
    "runs/ward/model.safetensors": [SAMPLE],
    "runs/network/imitation.json": [EVALUATE, CRAFT],
    "runs/network/ain.safetensors": [
        EVALUATE,
        CRAFT,
        (*ATTACK, "--attacks", "runs/network/ain.safetensors"),
        START,
        TRAIN_WITH,
    ],
    "runs/network/classifier.safetensors": [EVALUATE, CRAFT, WEIGHTS],
}
MAY_BE_EMPTY = ("runs/pixels/metrics.jsonl",)  # a run without points has an empty curve
# Nothing of these can be spared; a run whose curve, pictures or manifest are away is a run without them.
NOT_TO_BE_MISSED = (
    "config.json",
    "model.safetensors",
    "events.json",
    "card.json",
    "ain.safetensors",
    "imitation.json",
)


@pytest.mark.parametrize("name", NEEDED)
def test_a_damaged_file(tries: Any, house: Path, replaced: Replaced, wrong_files: Damages, name: str) -> None:
    path = house / name
    contents: dict[str, bytes | None] = dict(wrong_files(path.read_bytes(), len(name), cuts=4))
    if name in MAY_BE_EMPTY:
        contents = {note: each for note, each in contents.items() if each and each.strip(b" \n\t")}
    if path.suffix in (".json", ".jsonl"):
        whole = path.read_text()
        contents["utf-16"] = whole.encode("utf-16")
        contents["not UTF-8"] = whole.replace('"', '"\udcff', 1).encode(errors="surrogateescape")
        contents["a list"] = b"[1, 2]\n"
        contents["a number"] = b"7\n"
        contents["null"] = b"null\n"
        contents["NaN"] = b'{"epsilon": NaN}\n'
        contents["1e999"] = b'{"epsilon": 1e999}\n'
        contents["deep"] = b"[" * 100_000
        contents["digits"] = b"9" * 5000
    if path.name in NOT_TO_BE_MISSED:
        contents["away"] = None
    for note, content in contents.items():
        with replaced(path, content):
            for words in NEEDED[name]:
                tries.refused(*words, note=f"{name}: {note}")
    tries.check()


def leaves(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in items:
        yield from leaves(value, (*path, key))


def with_another(content: Any, path: tuple[Any, ...], value: Any) -> bytes:
    changed = copy.deepcopy(content)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return json.dumps(changed).encode()


def of_another_kind(value: Any) -> Any:
    """A value that no reader can take for this one."""
    if isinstance(value, str):
        return ["x"]
    if isinstance(value, bool | int | float):
        return "x"
    return {"unknown": [1]} if value is None else "x"


KINDS: dict[str, list[Words]] = {
    "runs/pixels/config.json": [PREDICT],
    "runs/pixels/card.json": [REPORT],
    "runs/pixels/events.json": [ACCOUNT],
    "runs/stopped/config.json": [RESUME],
    "runs/ward/config.json": [SAMPLE],
}
# Nobody needs these to answer.
UNREAD = {
    "runs/pixels/events.json": {("delta",)},
    "runs/ward/config.json": {
        ("source",),
        ("source", "data"),
        ("source", "data_dir"),
        ("source", "size"),
        ("command",),
    },
    "runs/pixels/config.json": {("command",)},
    "runs/stopped/config.json": {("command",)},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_value_of_another_kind(tries: Any, house: Path, replaced: Replaced, name: str) -> None:
    path = house / name
    content = json.loads(path.read_text())
    for place in leaves(content):
        if place in UNREAD.get(name, ()):
            continue
        value = content
        for key in place:
            value = value[key]
        with replaced(path, with_another(content, place, of_another_kind(value))):
            for words in KINDS[name]:
                tries.refused(*words, note=f"{name}: {'.'.join(map(str, place))}")
    tries.check()


NUMBERS: list[tuple[str, tuple[Any, ...], list[Any], list[Words]]] = [
    ("runs/pixels/config.json", ("classes",), [0, -1, 4, 2.5, True], [PREDICT, CERTIFY]),
    (
        "runs/pixels/config.json",
        ("shape",),
        [[8], [1, 8, 9], [-1, 8, 8], [10**30], [1, 8, 8, 8], ["1"]],
        [PREDICT],
    ),
    ("runs/pixels/config.json", ("plan", "records"), [0, -1, 10**400], [PREDICT]),
    ("runs/pixels/config.json", ("plan", "batch"), [0, -1, 10**30], [PREDICT]),
    ("runs/pixels/config.json", ("plan", "noise_multiplier"), [-1, -1e300], [PREDICT]),
    ("runs/pixels/config.json", ("plan", "delta"), [0, 1, -1, 2.0], [PREDICT]),
    ("runs/pixels/config.json", ("settings", "model"), ["", "no-model", "lenet"], [PREDICT]),
    ("runs/pixels/config.json", ("settings", "method"), ["", "no-method"], [PREDICT]),
    ("runs/pixels/config.json", ("settings", "variant"), ["", "none"], [PREDICT]),
    ("runs/pixels/config.json", ("settings", "size"), ["", "huge"], [PREDICT, CERTIFY]),
    ("runs/pixels/config.json", ("settings", "sigma"), [-1, 0], [PREDICT]),
    ("runs/pixels/config.json", ("settings", "seed"), [-1, 2**63], [PREDICT]),
    ("runs/pixels/config.json", ("settings", "data"), ["", "nowhere", "people.csv", "\0"], [CERTIFY, INSIDE]),
    ("runs/pixels/config.json", ("inputs",), ["x", {}, {"classes": [1]}], [PREDICT]),
    (
        "runs/people/config.json",
        ("inputs", "schema"),
        ["", "x", "label = 1", 3],
        [typed("predict people people.csv")],
    ),
    ("runs/people/config.json", ("inputs", "classes"), ["x", [1], {}], [typed("predict people people.csv")]),
    (
        "runs/pictures/config.json",
        ("inputs", "image_size"),
        ["x", -1, 0],
        [typed("predict pictures pictures")],
    ),
    ("runs/pixels/events.json", ("events", 0, "count"), [-1, 1.5, 2**63, 10**400], [ACCOUNT]),
    ("runs/pixels/events.json", ("events", 0, "sampling_rate"), [0, 2, -1, 1e308], [ACCOUNT]),
    ("runs/pixels/events.json", ("events", 0, "noise_multiplier"), [0, -1, 10**400], [ACCOUNT]),
    ("runs/pixels/events.json", ("events", 0, "kind"), ["", "gaussian"], [ACCOUNT]),
    ("runs/pixels/events.json", ("noise",), ["", "a good one"], [ACCOUNT]),
    ("runs/pixels/events.json", ("neighbours",), ["", "replace one record"], [ACCOUNT]),
    ("runs/network/imitation.json", ("source",), ["", "nowhere", "people.csv", 3, None, "\0"], [CRAFT]),
    ("runs/network/imitation.json", ("network",), ["", "no-network", 3, None, "lenet"], [CRAFT]),
    ("runs/network/imitation.json", ("run",), ["nowhere", 3, ["x"], "pixels\0"], [CRAFT]),
    ("runs/network/imitation.json", ("seed",), ["x", None, [1]], [CRAFT]),
    ("runs/network/imitation.json", ("data_dir",), [3, [1]], [CRAFT]),
    ("runs/ward/config.json", ("schema",), ["", "x = 1", 3, None], [SAMPLE]),
    ("runs/ward/config.json", ("synthesizer",), ["", "vae", "no-such", 3, None], [SAMPLE]),
    ("runs/ward/config.json", ("kind",), ["", "x", 3, None], [SAMPLE]),
    ("runs/ward/config.json", ("settings", "windows"), [0, -1, 5, 2.5], [SAMPLE]),
    ("runs/ward/config.json", ("settings", "value_bins"), [0, -1, 7], [SAMPLE]),
]


@pytest.mark.parametrize(
    ("name", "place", "values", "requests"),
    NUMBERS,
    ids=[f"{row[0]} {'.'.join(map(str, row[1]))}" for row in NUMBERS],
)
def test_a_value_out_of_range(
    tries: Any,
    house: Path,
    replaced: Replaced,
    name: str,
    place: tuple[Any, ...],
    values: list[Any],
    requests: list[Words],
) -> None:
    content = json.loads((house / name).read_text())
    for value in values:
        with replaced(house / name, with_another(content, place, value)):
            for words in requests:
                tries.refused(*words, note=f"{name} {place}: {value!r}"[:100])
    tries.check()


def test_flipped_bytes_never_break_a_command(tries: Any, house: Path, replaced: Replaced) -> None:
    """A flipped bit may leave a file valid: there is an answer or a refusal, never a traceback."""
    chance = np.random.default_rng(7)
    files: dict[str, list[Words]] = {
        "runs/pixels/card.json": [PREDICT],
        "runs/pixels/metrics.jsonl": [PREDICT],
        "runs/pixels/config.json": [PREDICT],
        "runs/pixels/model.safetensors": [PREDICT],
        "runs/pixels/events.json": [ACCOUNT],
        "runs/pictures/strip.npz": [typed("predict pictures pictures/dark/00.png --samples 50")],
        "runs/ward/config.json": [typed("synth sample ward --patients 2 --out tmp/made.csv --force")],
        "runs/network/ain.safetensors": [typed("imitate attack network --limit 1 --out tmp/made.npz")],
        "runs/pixels/private/manifest.json": [("verify", "pixels")],
        "people.csv": [typed("data inspect people.csv"), typed("predict people people.csv")],
        "patients.csv": [typed("synth inspect patients.csv")],
        "patients.parquet": [typed("synth inspect patients.parquet")],
        "pixels.npz": [PREDICT],
        "pictures/dark/04.webp": [typed("predict pictures pictures/dark/04.webp")],
    }
    for name, requests in files.items():
        content = (house / name).read_bytes()
        for place in chance.integers(0, min(len(content), 5000), 8):
            changed = bytearray(content)
            changed[place] ^= 1 << int(chance.integers(0, 8))
            with replaced(house / name, bytes(changed)):
                for words in requests:
                    tries.answered(*words, note=f"{name} byte {place}")
    for made in (house / "tmp").glob("made.*"):
        made.unlink()
    tries.check()


def test_a_report_says_what_it_cannot_show(tries: Any, house: Path, replaced: Replaced) -> None:
    """Attacks beside the card are no part of it: damaged ones are named on the page."""
    for name, content in (("attacks.json", b"[1]"), ("attacks.json", b"{"), ("attacks.npz", b"x" * 99)):
        with replaced(house / "runs/pixels" / name, content):
            tries.answered(*REPORT, note=name)
    tries.check()


OPEN: list[tuple[str, tuple[Any, ...], Any, Words, str]] = [
    (
        "runs/pixels/config.json",
        ("classes",),
        10**30,
        PREDICT,
        "a number of classes that no network can have",
    ),
    ("runs/pixels/config.json", ("shape",), [], PREDICT, "inputs without any axis"),
    ("runs/pixels/config.json", ("inputs",), {"classes": ["a"]}, PREDICT, "fewer names than classes"),
    (
        "runs/pictures/config.json",
        ("inputs", "image_size"),
        9,
        typed("predict pictures pictures"),
        "another size",
    ),
]


@pytest.mark.parametrize(("name", "place", "value", "words", "why"), OPEN, ids=[row[4] for row in OPEN])
def test_a_value_that_does_not_fit(
    tries: Any,
    house: Path,
    replaced: Replaced,
    name: str,
    place: tuple[Any, ...],
    value: Any,
    words: Words,
    why: str,
) -> None:
    content = json.loads((house / name).read_text())
    with replaced(house / name, with_another(content, place, value)):
        tries.refused(*words, note=why)
    tries.check()


@pytest.fixture
def copied(house: Path) -> Iterator[Path]:
    """A run that may be spoilt."""
    path = house / "runs" / "copy"
    shutil.copytree(house / "runs" / "pixels", path)
    yield path
    shutil.rmtree(path)


def test_verify_finds_a_changed_byte_anywhere(tries: Any, copied: Path, replaced: Replaced) -> None:
    write_manifest(copied)
    assert tries.code("verify", "copy") == 0
    chance = np.random.default_rng(8)
    files = sorted(path for path in copied.rglob("*") if path.is_file())
    assert len(files) >= 13, files
    for path in files:
        content = path.read_bytes()
        for place in {0, len(content) - 1, int(chance.integers(0, len(content)))}:
            changed = bytearray(content)
            changed[place] ^= 1 << int(chance.integers(0, 8))
            with replaced(path, bytes(changed)):
                assert tries.code("verify", "copy") == 1, f"byte {place} of {path}"
        with replaced(path, content + b"\n"):
            assert tries.code("verify", "copy") == 1, f"a byte more of {path}"
    for path in files:
        if path.name not in ("config.json", "manifest.json"):
            with replaced(path, None):
                assert tries.code("verify", "copy") == 1, path
    assert tries.code("verify", "copy") == 0


@pytest.mark.parametrize("column", ["claimed", "proven"])
@pytest.mark.parametrize("factor", [0.0, 0.1, 0.5, 0.99, 1 - 1e-6])
@pytest.mark.parametrize("blessed", [False, True])
def test_verify_finds_a_lowered_epsilon(
    tries: Any, copied: Path, column: str, factor: float, blessed: bool
) -> None:
    """On the card alone, and with new hashes of all files."""
    card = json.loads((copied / "card.json").read_text())
    card["privacy"][column]["epsilon"] *= factor
    (copied / "card.json").write_text(json.dumps(card, indent=2))
    if blessed:
        write_manifest(copied)
    assert tries.code("verify", "copy") == 1


CHECKED = ("config.json", "card.json", "events.json", "model.safetensors")


@pytest.mark.parametrize("name", CHECKED)
def test_verify_answers_whatever_a_folder_holds(
    tries: Any, copied: Path, replaced: Replaced, wrong_files: Damages, name: str
) -> None:
    """With new hashes, so that the other checks meet the damage: a finding, never a traceback."""
    contents = wrong_files((copied / name).read_bytes(), 9, cuts=2)
    for note, content in contents.items():
        with replaced(copied / name, content):
            write_manifest(copied)
            assert tries.code("verify", "copy") == 1, f"{name}: {note}"
    write_manifest(copied)
    assert tries.code("verify", "copy") == 0
