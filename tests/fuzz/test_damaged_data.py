"""Data files that are cut, flipped, of another kind, of another encoding, or traps: each is refused."""

import gzip
import io
import lzma
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import hauberk.files

Words = tuple[object, ...]


def typed(text: str) -> Words:
    """A command as it is typed."""
    return tuple(text.split())


Replaced = Callable[[Path, bytes | None], Any]
Damages = Callable[..., dict[str, bytes]]

# Every way to hand over a file of each kind. A wrong file of that kind must be refused by each.
ARCHIVE: list[Words] = [
    typed("train --data pixels.npz --size tiny --name new"),
    typed("predict pixels pixels.npz"),
    typed("certify pixels --input pixels.npz --device cpu"),
    typed("imitate train --data pixels.npz --name new"),
    typed(
        "train --data pictures --image-size 8 --grey --records 20 --name new --size tiny "
        "--method secure-sgd --variant paper --public-data pixels.npz"
    ),
]
PEOPLE: list[Words] = [
    typed("train --data people.csv --schema people.toml --records 36 --size tiny --name new"),
    typed("predict people people.csv"),
    typed("data inspect people.csv --out new.toml"),
]
SCHEMA: list[Words] = [PEOPLE[0]]
PATIENTS_SCHEMA: list[Words] = [
    typed("synth train --data patients.csv --schema ward.toml --records 24 --name new"),
    typed("synth evaluate patients.csv made.csv --schema ward.toml --out new"),
]


def patients(name: str) -> list[Words]:
    return [
        ("synth", "train", "--data", name, "--schema", "ward.toml", "--records", 24, "--name", "new"),
        ("synth", "evaluate", name, "made.csv", "--schema", "ward.toml", "--out", "new"),
        (
            "synth",
            "evaluate",
            "made.csv",
            "made.csv",
            "--train",
            name,
            "--schema",
            "ward.toml",
            "--out",
            "new",
        ),
        ("synth", "inspect", name, "--out", "new.toml"),
    ]


def pictures(name: str) -> list[Words]:
    return [
        typed("train --data pictures --image-size 8 --records 20 --size tiny --name new"),
        ("predict", "pictures", name),
        typed("predict pictures pictures"),
    ]


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def members(**contents: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def npy(array: Any, *, pickled: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


def announced(shape: tuple[int, ...]) -> bytes:
    """A header of an array that is not there."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def wrong_archives() -> Iterator[tuple[str, bytes]]:
    chance = np.random.default_rng(1)
    x, y = chance.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 3
    public = {"records": 36, "classes": 3}
    floats = (x / 255).astype(np.float32)
    for kind in ("int64", "int8", "uint16", "complex64", "bool", "U4", "S4", "datetime64[s]"):
        yield f"x as {kind}", npz(x=x.astype(kind), y=y, **public)
    for value in (np.nan, np.inf, -np.inf, 1.0001, -0.0001, 255.0, 1e300):
        spoilt = floats.astype(np.float64)
        spoilt[7, 3, 2] = value
        yield f"x with {value}", npz(x=spoilt, y=y, **public)
    for shape in ((40,), (40, 0, 8), (0, 8, 8), (40, 8, 8, 2, 1), (), (40, 7, 3, 4)):
        yield f"x of shape {shape}", npz(x=np.zeros(shape, np.uint8), y=y, **public)
    yield "objects", members(x=npy(np.array([{}] * 40), pickled=True), y=npy(y))
    yield "object labels for x", npz(x=np.array([["a", 1]] * 40, dtype=object), y=y, **public)
    yield "no x", npz(z=x, y=y, **public)
    yield "nothing", npz()
    yield "one array", npy(x)
    yield "a text member", members(x=b"no array", y=npy(y))
    yield "an announced giant", members(x=announced((10**9, 10**9)), y=npy(y))
    yield "an announced large array", members(x=announced((10**7, 64)), y=npy(y))
    yield "a negative shape", members(x=announced((-1, 8, 8)), y=npy(y))
    yield "a cut member", members(x=npy(x)[:200], y=npy(y))
    yield "a wrong checksum", _flipped_member(npz(x=x, y=y, **public))


def wrong_labels() -> Iterator[tuple[str, bytes]]:
    """Wrong for those who read labels."""
    x, y = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 3
    public = {"records": 36, "classes": 3}
    for name, labels in (
        ("out of range", y + 1),
        ("negative", y - 1),
        ("fractions", y + 0.5),
        ("nan", np.where(y, y, np.nan)),
        ("texts", y.astype("U2")),
        ("one hot", np.eye(3)[y]),
        ("too few", y[:39]),
        ("too many", np.append(y, 0)),
        ("none", y[:0]),
        ("scalar", np.array(1)),
        ("complex", y.astype(complex)),
        ("huge", np.full(40, 2**63 - 1, np.uint64)),
        ("objects", np.array([None] * 40, dtype=object)),
    ):
        yield f"labels {name}", npz(x=x, y=labels, **public)
    yield "no labels", npz(x=x, **public)
    for name, value in (
        ("records 0", {"records": 0, "classes": 3}),
        ("records -5", {"records": -5, "classes": 3}),
        ("records 1.5", {"records": 1.5, "classes": 3}),
        ("records nan", {"records": np.nan, "classes": 3}),
        ("records text", {"records": "many", "classes": 3}),
        ("records list", {"records": np.arange(3), "classes": 3}),
        ("no records", {"classes": 3}),
        ("no classes", {"records": 36}),
        ("classes 1", {"records": 36, "classes": 1}),
        ("classes 2", {"records": 36, "classes": 2}),
        ("x_test alone", {**public, "x_test": x}),
        ("y_test alone", {**public, "y_test": y}),
        ("another shape to test", {**public, "x_test": np.zeros((4, 9, 9), np.uint8), "y_test": y[:4]}),
        ("one record", {"records": 1, "classes": 3, "x": x[:1], "y": y[:1]}),
    ):
        yield name, npz(**({"x": x, "y": y} | value))


def _flipped_member(content: bytes) -> bytes:
    """A bit of the pixels: the archive's own checksum no longer fits."""
    changed = bytearray(content)
    changed[content.index(b"NUMPY") + 600] ^= 1
    return bytes(changed)


def wrong_tables(text: str) -> Iterator[tuple[str, bytes]]:
    """Of any CSV that is read by head line and rows."""
    head, *rows = text.splitlines()
    yield "empty", b""
    yield "line breaks", b"\n\n\r\n"
    yield "head line only", f"{head}\n".encode()
    yield "utf-16", text.encode("utf-16")
    yield "utf-32", text.encode("utf-32")
    yield "latin-1", text.replace(rows[5], rows[5] + "é", 1).encode("latin-1")
    yield "NUL", text.replace(",", "\0,", 3).encode()
    yield "NUL line", (text + "\0" * 40).encode()
    yield "a row too short", "\n".join([head, *rows[:4], rows[4].rsplit(",", 1)[0], *rows[5:]]).encode()
    yield "a row too long", "\n".join([head, *rows[:4], rows[4] + ",7", *rows[5:]]).encode()
    yield (
        "a column twice",
        "\n".join([f"{head},{head.split(',')[0]}", *(f"{row},1" for row in rows)]).encode(),
    )
    yield "a column without a name", "\n".join([f"{head},", *(f"{row},1" for row in rows)]).encode()
    yield "an open quotation", text.replace(",", ',"', 1).encode()
    yield "semicolons", text.replace(",", ";").encode()
    yield "a huge entry", "\n".join([head, rows[0] + "9" * 200_000, *rows[1:]]).encode()
    yield "binary", np.random.default_rng(2).bytes(2000)
    yield "gzip with another ending", gzip.compress(text.encode())[:-9]


def wrong_people(text: str) -> Iterator[tuple[str, bytes]]:
    """By the schema of people."""
    head, first, *rows = text.splitlines()
    age, smoker, comment, ill = first.split(",")
    lines = "\n".join(rows)
    for name, row in {
        "an age in words": f"old,{smoker},{comment},{ill}",
        "an age of nan": f"nan,{smoker},{comment},{ill}",
        "an infinite age": f"1e400,{smoker},{comment},{ill}",
        "no age": f",{smoker},{comment},{ill}",
        "an age out of bounds": f"101,{smoker},{comment},{ill}",
        "a negative age": f"-1,{smoker},{comment},{ill}",
        "an unknown level": f"{age},perhaps,{comment},{ill}",
        "a level in capitals": f"{age},NO,{comment},{ill}",
    }.items():
        yield name, f"{head}\n{row}\n{lines}\n".encode()
    yield "a column more", "\n".join([f"{head},x", f"{first},1", *(f"{row},1" for row in rows)]).encode()
    yield "a column less", "\n".join(row.split(",", 1)[1] for row in [head, first, *rows]).encode()
    yield "other names", text.replace("age", "Age", 1).encode()


WRONG_SCHEMAS = {
    "no label": 'missing = "refuse"\n',
    "an unknown label": 'label = "x"\n[[column]]\nname = "age"\nlow = 0\nhigh = 1\n',
    "a numeric label": 'label = "age"\n[[column]]\nname = "age"\nlow = 0\nhigh = 1\n',
    "low above high": 'label = "ill"\n[[column]]\nname = "age"\nlow = 5\nhigh = 1\n',
    "nan": 'label = "ill"\n[[column]]\nname = "age"\nlow = nan\nhigh = 1\n',
    "inf": 'label = "ill"\n[[column]]\nname = "age"\nlow = 0\nhigh = inf\n',
    "true": 'label = "ill"\n[[column]]\nname = "age"\nlow = true\nhigh = 1\n',
    "text": 'label = "ill"\n[[column]]\nname = "age"\nlow = "0"\nhigh = 1\n',
    "huge": f'label = "ill"\n[[column]]\nname = "age"\nlow = 0\nhigh = 1{"0" * 400}\n',
    "endless": f'label = "ill"\n[[column]]\nname = "age"\nlow = 0\nhigh = 1{"0" * 5000}\n',
    "unknown line": 'label = "ill"\nlabels = 3\n',
    "column no table": 'label = "ill"\ncolumn = 3\n',
    "column of columns": 'label = "ill"\ncolumn = [[1]]\n',
    "levels no list": 'label = "ill"\n[[column]]\nname = "ill"\nlevels = "yes"\n',
    "levels of numbers": 'label = "ill"\n[[column]]\nname = "ill"\nlevels = [0, 1]\n',
    "levels twice": 'label = "ill"\n[[column]]\nname = "ill"\nlevels = ["a", "a"]\n',
    "one level": 'label = "ill"\n[[column]]\nname = "ill"\nlevels = ["a"]\n',
    "no levels": 'label = "ill"\n[[column]]\nname = "ill"\nlevels = []\n',
    "deep": "x = " + "[" * 3000 + "]" * 3000,
    "JSON": '{"label": "ill"}',
    "a date": "label = 1979-05-27\n",
    "ignored no list": 'label = "ill"\nignored = "x"\n',
    "label no text": "label = [1]\n",
    "missing no text": 'label = "ill"\nmissing = 3\n',
    "unit no text": 'label = "ill"\nunit = 3\n',
    "twice": 'label = "a"\nlabel = "b"\n',
}


ENDLESS = ("endless", "deep")
WRONG_SETTINGS = {
    "an unknown one": "sigmas = 1",
    "a table": "[sigma]\nx = 1",
    "a list": "sigma = [1]",
    "a text": 'sigma = "1"',
    "a truth": "epochs = true",
    "a fraction": "batch = 1.5",
    "nan": "sigma = nan",
    "inf": "epochs = inf",
    "a date": "seed = 1979-05-27",
    "no method": 'method = ""',
    "alpha": "alpha = 1.0",
    "samples": "samples = 0",
    "tested": "tested = -1",
    "attack-steps": "attack-steps = 0",
    "momentum": "momentum = 1.5",
    "averaging": "averaging = -1.0",
    "both": "epsilon = 1.0\nnoise-multiplier = 1.0",
}


def wrong_pictures(kind: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    chance = np.random.default_rng(3)

    def saved(picture: Image.Image, form: str, **options: Any) -> bytes:
        buffer = io.BytesIO()
        picture.save(buffer, form, **options)
        return buffer.getvalue()

    clear = Image.fromarray(chance.integers(0, 200, (9, 9, 4), dtype=np.uint8), "RGBA")
    grey = Image.fromarray(chance.integers(0, 200, (9, 9), dtype=np.uint8))
    yield "a GIF", saved(grey, "GIF")
    yield "a BMP", saved(grey, "BMP")
    yield "a TIFF", saved(grey, "TIFF")
    yield "a PPM", saved(grey, "PPM")
    yield "an EPS", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n"
    yield "an SVG", b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
    if kind in ("png", "webp"):
        yield "partly transparent", saved(clear, kind)
        yield "several pictures", saved(grey, kind, save_all=True, append_images=[grey.rotate(90)])
    if kind == "png":
        yield "a giant", _announced_png(60_000, 60_000)
        yield "without width", _announced_png(0, 9)
        for place in range(20, len(content) - 16, max(1, (len(content) - 36) // 12)):
            changed = bytearray(content)
            changed[place] ^= 0x10  # every part carries a checksum, which is of no use at the end
            yield f"a flipped bit in byte {place}", bytes(changed)


def _announced_png(width: int, height: int) -> bytes:
    import struct
    import zlib

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )


@pytest.fixture
def wrong(
    tries: Any, house: Path, replaced: Replaced
) -> Callable[[str, dict[str, bytes], list[Words]], None]:
    """Put each content into the file's place and make each request; of many requests two in turn."""

    def try_all(name: str, contents: dict[str, bytes], requests: list[Words]) -> None:
        for turn, (note, content) in enumerate(contents.items()):
            with replaced(house / name, content):
                asked = (
                    requests
                    if len(requests) < 4
                    else (requests[turn % len(requests)], requests[-1 - turn % 2])
                )
                for words in asked:
                    tries.refused(*words, note=f"{name}: {note}")

    return try_all


def test_archives(tries: Any, wrong: Any, house: Path, wrong_files: Damages) -> None:
    wrong("pixels.npz", wrong_files((house / "pixels.npz").read_bytes(), 0), ARCHIVE)
    wrong("pixels.npz", dict(wrong_archives()), ARCHIVE)
    wrong("pixels.npz", dict(wrong_labels()), [ARCHIVE[0], ARCHIVE[3]])
    tries.check()
    assert tries.made > 140


def test_tables(tries: Any, wrong: Any, house: Path, wrong_files: Damages) -> None:
    text = (house / "people.csv").read_text()
    wrong("people.csv", dict(wrong_tables(text)), PEOPLE)
    wrong("people.csv", dict(wrong_people(text)), PEOPLE[:2])
    packed = [tuple("people.csv.gz" if word == "people.csv" else word for word in words) for words in PEOPLE]
    inside = {name: gzip.compress(each, mtime=0) for name, each in wrong_tables(text)}
    cut = {
        name: each for name, each in wrong_files((house / "people.csv.gz").read_bytes(), 1).items() if each
    }
    wrong("people.csv.gz", {f"packed {name}": each for name, each in inside.items()}, packed)
    wrong("people.csv.gz", {name: each for name, each in cut.items() if name != "blanks"}, packed)
    tries.check()
    assert tries.made > 120


def test_schemas(tries: Any, wrong: Any, house: Path, wrong_files: Damages) -> None:
    contents = {name: each.encode() for name, each in WRONG_SCHEMAS.items()}
    contents |= {
        "utf-16": (house / "people.toml").read_text().encode("utf-16"),
        "not UTF-8": b'label = "\xff"\n',
    }
    wrong("people.toml", contents, SCHEMA)
    wrong("people.toml", wrong_files((house / "people.toml").read_bytes(), 2), SCHEMA)
    wrong("ward.toml", contents, PATIENTS_SCHEMA)
    wrong("ward.toml", wrong_files((house / "ward.toml").read_bytes(), 3), PATIENTS_SCHEMA)
    tries.check()
    assert tries.made > 100


def test_settings(tries: Any, wrong: Any, house: Path, wrong_files: Damages) -> None:
    contents = {name: each.encode() for name, each in WRONG_SCHEMAS.items() if name not in ENDLESS}
    contents |= {
        "utf-16": (house / "small.toml").read_text().encode("utf-16"),
        "not UTF-8": b'model = "\xff"\n',
    }
    contents |= {note: f"{line}\n".encode() for note, line in WRONG_SETTINGS.items()}
    wrong("small.toml", contents, [(*ARCHIVE[0], "--config", "small.toml")])
    tries.check()


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_settings(tries: Any, wrong: Any, name: str) -> None:
    wrong("small.toml", {name: WRONG_SCHEMAS[name].encode()}, [(*ARCHIVE[0], "--config", "small.toml")])
    tries.check()


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "csv.xz", "parquet"])
def test_patients(tries: Any, wrong: Any, house: Path, wrong_files: Damages, ending: str) -> None:
    pack = {"csv": bytes, "csv.gz": gzip.compress, "csv.xz": lzma.compress, "parquet": None}[ending]
    name = f"patients.{ending}"
    whole = (house / name).read_bytes()
    if pack is not None:
        tables = dict(wrong_tables((house / "patients.csv").read_text()))
        wrong(name, {note: pack(each) for note, each in tables.items()}, patients(name))
    if ending != "csv":  # a cut CSV may end with a whole row
        wrong(name, wrong_files(whole, 4), patients(name))
    tries.check()
    assert tries.made > 25


@pytest.mark.parametrize("kind", ["png", "jpg", "webp"])
def test_pictures(tries: Any, wrong: Any, house: Path, wrong_files: Damages, kind: str) -> None:
    path = next((house / "pictures" / "dark").glob(f"*.{kind}"))
    name, content = str(path.relative_to(house)), path.read_bytes()
    contents = wrong_files(content, 5)
    if kind == "webp":  # its length stands at its beginning: a cut one is padded by some decoders
        contents = {note: each for note, each in contents.items() if not note.startswith("cut")}
    wrong(name, contents, pictures(name))
    wrong(name, dict(wrong_pictures(kind, content)), pictures(name))
    tries.check()
    assert tries.made > 40


PUBLISHED = {
    "mnist": [f"mnist/{name}" for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")]
    + [f"mnist/{name}" for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")],
    "fashion_mnist": ["fashion_mnist/fashion_mnist.npz"],
    "cifar10": ["cifar10/cifar-10-binary.tar.gz"],
    "tiny_imagenet": ["tiny_imagenet/tiny_imagenet_10x.zip"],
    "adult": ["adult/adult.data", "adult/adult.test"],
}


def _idx(axes: int, shape: tuple[int, ...], values: int) -> bytes:
    return bytes((0, 0, 8, axes)) + b"".join(length.to_bytes(4, "big") for length in shape) + bytes(values)


def wrong_published() -> Iterator[tuple[str, bytes]]:
    chance = np.random.default_rng(6)
    yield "empty", b""
    yield "noise", chance.bytes(500)
    yield "IDX of pictures", _idx(3, (2, 28, 28), 2 * 784)
    yield "IDX of labels", _idx(1, (2,), 2)
    yield "IDX cut", _idx(3, (2, 28, 28), 700)
    yield "IDX giant", _idx(3, (2**32 - 1,) * 3, 10)
    yield "IDX of floats", b"\0\0\x0d\x03" + bytes(50)
    yield "gzip of an IDX", gzip.compress(_idx(3, (2, 28, 28), 2 * 784))
    yield "cut gzip", gzip.compress(_idx(3, (2, 28, 28), 2 * 784))[:-6]
    yield "archive", npz(x_train=np.zeros((2, 28, 28), np.uint8), y_train=np.zeros(2, np.uint8))
    four = {"x_train": np.zeros((2, 28, 28), np.uint8), "y_train": np.zeros(2, np.uint8)}
    four |= {"x_test": four["x_train"], "y_test": four["y_train"]}
    yield "other pictures", npz(**four)
    yield "other kinds", npz(**{name: each.astype(float) for name, each in four.items()})
    yield "a zip of nothing", members()
    yield "text", b"39, State-gov, 77516, Bachelors\n"


@pytest.mark.parametrize("data", PUBLISHED)
def test_published_sets(tries: Any, house: Path, data: str) -> None:
    """No damaged, and no other, file passes for the published one."""
    root = house / "published"
    try:
        for note, content in wrong_published():
            for name in PUBLISHED[data]:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(content)
            words = ("train", "--data", data, "--data-dir", "published", "--size", "tiny", "--name", "new")
            tries.refused(*words, note=note)
    finally:
        for path in sorted(root.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        root.rmdir()
    tries.check()


@pytest.mark.parametrize("option", ["--r", "--covariance"])
def test_numbers_from_files(tries: Any, house: Path, replaced: Replaced, option: str) -> None:
    mechanism = {"--r": "heterogeneous", "--covariance": "multivariate"}[option]
    words = ("calibrate", "--mechanism", mechanism, "--epsilon", 1, "--delta", 1e-5, option)
    arrays = {
        "empty": b"",
        "cut": npy(np.ones(5))[:-3],
        "objects": npy(np.array([None, 1]), pickled=True),
        "texts": npy(np.array(["a"])),
        "complex": npy(np.array([1j, 2])),
        "bool": npy(np.array([True])),
        "nan": npy(np.array([1, np.nan])),
        "three axes": npy(np.ones((2, 2, 2))),
        "no numbers": npy(np.ones(0)),
        "announced": announced((10**6, 10**6)),
        "noise": np.random.default_rng(0).bytes(100),
        "an archive": npz(x=np.ones(3)),
    }
    for note, content in arrays.items():
        with replaced(house / "numbers.npy", content):
            tries.refused(*words, "numbers.npy", note=note)
    for note, content in {
        "empty": b"",
        "words": b"a,b\n",
        "ragged": b"1,2\n3\n",
        "noise": np.random.default_rng(0).bytes(100),
        "utf-16": "1,2\n".encode("utf-16"),
        "nan": b"1,nan\n",
        "NUL": b"1\0,2\n",
    }.items():
        with replaced(house / "numbers.csv", content):
            tries.refused(*words, "numbers.csv", note=note)
    tries.check()


def test_traps_for_memory(tries: Any, wrong: Any, house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files that unpack to very much; the limit is lowered so that the test need not unpack 256 MB."""
    monkeypatch.setattr(hauberk.files, "ALWAYS_UNPACKED", 2**20)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, x=np.zeros((10**5, 8, 8), np.uint8), y=np.zeros(10**5, np.int64), records=9, classes=3
    )
    wrong("pixels.npz", {"zeros": buffer.getvalue()}, ARCHIVE)
    zeros = b"age,smoker,comment,ill\n" + b"0" * 6_000_000
    packed = [tuple("people.csv.gz" if word == "people.csv" else word for word in words) for words in PEOPLE]
    wrong("people.csv.gz", {"zeros": gzip.compress(zeros)}, packed)
    wrong("patients.csv.gz", {"zeros": gzip.compress(zeros)}, patients("patients.csv.gz"))
    wrong("patients.csv.xz", {"zeros": lzma.compress(zeros)}, patients("patients.csv.xz"))
    pandas = pytest.importorskip("pandas")
    buffer = io.BytesIO()
    pandas.DataFrame({"a": np.zeros(10**6), "b": np.zeros(10**6)}).to_parquet(buffer)
    wrong("patients.parquet", {"zeros": buffer.getvalue()}, patients("patients.parquet"))
    tries.check()


@contextmanager
def _instead(path: Path, make: Callable[[Path], None]) -> Iterator[None]:
    """Something else in the place of a file or folder."""
    aside = path.with_name(f"{path.name}.aside")
    path.rename(aside)
    try:
        make(path)
        yield
    finally:
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        aside.rename(path)


PLACES: list[tuple[str, list[Words]]] = [
    ("pixels.npz", ARCHIVE),
    ("people.csv", PEOPLE),
    ("people.toml", SCHEMA),
    ("ward.toml", PATIENTS_SCHEMA),
    ("patients.csv", patients("patients.csv")),
    ("patients.parquet", patients("patients.parquet")),
    ("small.toml", [(*ARCHIVE[0], "--config", "small.toml")]),
    ("pictures/dark/00.png", pictures("pictures/dark/00.png")),
    ("pictures/dark", pictures("pictures/dark")[:1]),
    ("pictures", pictures("pictures")),
    ("runs", [("verify", "pixels"), *ARCHIVE[:3], *PATIENTS_SCHEMA[:1]]),
]


@pytest.mark.parametrize(("name", "requests"), PLACES, ids=[name for name, _ in PLACES])
def test_something_else_in_the_place(tries: Any, house: Path, name: str, requests: list[Words]) -> None:
    """A folder for a file, a file for a folder, a link to itself, a link to nothing."""
    path = house / name
    makers: dict[str, Callable[[Path], None]] = {
        "a loop": lambda place: place.symlink_to(place.name),
        "a link to nothing": lambda place: place.symlink_to("nothing"),
    }
    if path.is_file():
        makers["a folder"] = Path.mkdir
    else:
        makers["a file"] = lambda place: place.write_bytes(b"x") and None
    for note, make in makers.items():
        with _instead(path, make):
            for words in requests:
                tries.refused(*words, note=f"{name}: {note}")
    tries.check()


@pytest.mark.parametrize(("name", "requests"), PLACES[:8], ids=[name for name, _ in PLACES[:8]])
def test_permission_denied(
    tries: Any, house: Path, name: str, requests: list[Words], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is there, and opening it is refused: told to the readers, because root may open everything."""
    closed = os.path.abspath(house / name)

    def denied(path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.path.abspath(path) == closed

    for module in ("builtins", "io"):
        opened = io.open

        def refusing(file: Any, *rest: Any, _opened: Any = opened, **more: Any) -> Any:
            if denied(file):
                raise PermissionError(13, "Permission denied", str(file))
            return _opened(file, *rest, **more)

        monkeypatch.setattr(f"{module}.open", refusing)
    for words in requests:
        tries.refused(*words, note=f"{name}: permission denied")
    monkeypatch.undo()
    tries.check()
