"""Folders of pictures: every kind of picture, persons by folder or table, and wrong folders refused."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hauberk.data import load
from hauberk.data.image_folder import pictures_below, read_picture
from hauberk.data.input_form import DescribedSplit
from hauberk.data.persons import PersonDataset

Refusal = Callable[[Callable[[], object]], str]
OPTIONS = {"records": 8, "image_size": 8}


def save(path: Path, *, value: int = 128, mode: str = "L", size: tuple[int, int] = (12, 10)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if mode == "I;16":
        Image.fromarray(np.full(size[::-1], value * 257, dtype=np.uint16)).save(path)
    else:
        colour = value if mode in ("L", "P", "1") else (value, 0, 255)[:3]
        Image.new(mode, size, colour).save(path, **({"lossless": True} if path.suffix == ".webp" else {}))
    return path


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    root = tmp_path / "scans"
    for number in range(20):
        kind = "ill" if number % 2 else "healthy"
        for place in range(2):
            save(root / kind / f"anna{number}" / f"{place}.png", value=10 * number + place)
    return root


@pytest.mark.parametrize(
    ("name", "mode", "grey"),
    [
        ("a.png", "L", 0.5019),
        ("a.png", "I;16", 0.5019),
        ("a.png", "RGB", (0.299 * 128 + 0.114 * 255) / 255),
        ("a.jpg", "L", 0.5019),
        ("a.JPEG", "RGB", (0.299 * 128 + 0.114 * 255) / 255),
        ("a.webp", "RGB", (0.299 * 128 + 0.114 * 255) / 255),
    ],
)
def test_every_kind_of_picture(tmp_path: Path, name: str, mode: str, grey: float) -> None:
    path = save(tmp_path / name, mode=mode)
    alone = read_picture(path, image_size=6, grey=True)
    assert alone.shape == (1, 6, 6)
    assert alone.dtype == torch.float32
    torch.testing.assert_close(alone, torch.full_like(alone, grey), atol=0.02, rtol=0)
    coloured = read_picture(path, image_size=6, grey=False)
    wanted = (
        torch.tensor([128 / 255, 0, 1] if mode == "RGB" else [128 / 255] * 3).view(3, 1, 1).expand(3, 6, 6)
    )
    torch.testing.assert_close(coloured, wanted, atol=0.02, rtol=0)


def test_sixteen_bits_keep_what_eight_would_lose(tmp_path: Path) -> None:
    for name, value in (("a.png", 30_000), ("b.png", 30_050)):
        Image.fromarray(np.full((8, 8), value, dtype=np.uint16)).save(tmp_path / name)
    a, b = (read_picture(tmp_path / name, image_size=8, grey=True) for name in ("a.png", "b.png"))
    torch.testing.assert_close(b - a, torch.full((1, 8, 8), 50 / 65535), atol=1e-6, rtol=0)


def test_the_centre_is_kept(tmp_path: Path) -> None:
    pixels = np.zeros((10, 30), dtype=np.uint8)
    pixels[:, 10:20] = 255
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert torch.equal(read_picture(tmp_path / "wide.png", image_size=10, grey=True), torch.ones(1, 10, 10))


def test_a_picture_of_the_right_size_is_taken_bit_for_bit(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    read = read_picture(tmp_path / "a.png", image_size=8, grey=True)
    assert torch.equal(read[0], torch.from_numpy(pixels).float() / 255)


def test_without_persons_a_picture_is_a_record(tmp_path: Path) -> None:
    for number in range(40):
        save(tmp_path / "p" / ("a", "b")[number % 2] / f"{number}.png", size=(5 + number, 9))
    split = load(str(tmp_path / "p"), records=36, image_size=8, grey=True)
    assert isinstance(split, DescribedSplit)
    assert split.train.shape == (1, 8, 8)
    assert len(split.train) + len(split.test) == 40
    assert split.form.classes == ("a", "b")
    assert split.form.unit == "one record"
    assert not isinstance(split.train, PersonDataset)


def test_a_folder_names_the_person(scans: Path) -> None:
    split = load(str(scans), **OPTIONS, unit="folder", max_per_unit=3, holdout=0.3)
    assert isinstance(split, DescribedSplit)
    assert isinstance(split.train, PersonDataset)
    assert split.train.x.shape[1:] == (3, 3, 8, 8)
    assert bool((split.train.y[:, 2] == -1).all())  # two pictures each, and a place that stays empty
    assert bool((split.train.y[:, 0] == split.train.y[:, 1]).all())
    assert len(split.test) == 2 * (20 - len(split.train))
    assert split.form.unit == "one person"
    assert "first 3 at most" in str(split.public_note)


def test_a_table_names_the_person_also_across_classes(scans: Path) -> None:
    files = [path.relative_to(scans).as_posix() for path in pictures_below(scans)]
    for path in list(files):
        kind, person, name = path.split("/")
        (scans / path).rename(scans / kind / f"{person}-{name}")
    for folder in scans.glob("*/*"):
        if folder.is_dir():
            folder.rmdir()
    files = [path.relative_to(scans).as_posix() for path in pictures_below(scans)]
    lines = [f"{path},{'one' if path.endswith(('anna0-0.png', 'anna1-0.png')) else path}" for path in files]
    groups = scans / "groups.csv"
    groups.write_text("file,person\n" + "\n".join(lines) + "\n")
    split = load(str(scans), **OPTIONS, unit=str(groups), max_per_unit=2, holdout=0.1)
    both = split.train.y[(split.train.y != -1).all(1)]
    assert both.tolist() == [[0, 1]]  # one person, a picture of each class
    groups.write_text("file,person\n" + "\n".join(lines[:-1]) + "\n")
    with pytest.raises(ValueError, match="names nobody for"):
        load(str(scans), **OPTIONS, unit=str(groups))


def test_test_pictures_of_their_own(scans: Path, tmp_path: Path, refusal: Refusal) -> None:
    save(tmp_path / "test" / "ill" / "bea" / "1.png")
    (tmp_path / "test" / "healthy").mkdir()
    split = load(str(scans), **OPTIONS, unit="folder", test=tmp_path / "test")
    assert (len(split.train), len(split.test)) == (20, 1)
    save(tmp_path / "test" / "ill" / "anna3" / "9.png")
    message = refusal(lambda: load(str(scans), **OPTIONS, unit="folder", test=tmp_path / "test"))
    assert "the person 'anna3' is in the training data and in the test data" in message
    save(tmp_path / "test" / "dead" / "x" / "9.png")
    assert "a class that the training data do not have" in refusal(
        lambda: load(str(scans), **OPTIONS, unit="folder", test=tmp_path / "test")
    )


def test_a_person_that_goes_moves_nobody_else(scans: Path) -> None:
    def persons() -> tuple[PersonDataset, torch.Tensor]:
        split = load(str(scans), **OPTIONS, grey=True, unit="folder", holdout=0.3)
        assert isinstance(split.train, PersonDataset)
        return split.train, split.test.x

    before, test = persons()
    gone = next(each for each in sorted(scans.glob("*/anna*")) if _trained(each, before))
    for path in gone.iterdir():
        path.unlink()
    gone.rmdir()
    after, same_test = persons()
    assert torch.equal(test, same_test)
    assert len(after) == len(before) - 1
    kept = [row for row in range(len(before)) if any(torch.equal(before.x[row], each) for each in after.x)]
    assert len(kept) == len(after)


def _trained(folder: Path, data: PersonDataset) -> bool:
    first = read_picture(folder / "0.png", image_size=8, grey=True)
    return any(torch.equal(first, each[0]) for each in data.x)


def spoil(root: Path, what: str) -> None:
    one = root / "ill" / "anna1" / "0.png"
    if what == "text":
        one.write_text("no picture")
    elif what == "cut":
        one.write_bytes(one.read_bytes()[:40])
    elif what == "empty":
        one.write_bytes(b"")
    elif what == "gif":
        Image.new("L", (9, 9)).save(one, format="GIF")
    elif what == "transparent":
        Image.new("RGBA", (9, 9), (1, 2, 3, 50)).save(one)
    elif what == "moving":
        frames = [Image.new("RGB", (9, 9), (each, 0, 0)) for each in (0, 255)]
        one.unlink()
        frames[0].save(one.with_suffix(".webp"), save_all=True, append_images=frames[1:], lossless=True)
    elif what == "other file":
        (one.parent / "notes.txt").write_text("x")
    elif what == "beside":
        save(root / "a.png")
    elif what == "in the class":
        save(root / "ill" / "a.png")
    else:
        save(one.parent / "deeper" / "a.png")


@pytest.mark.parametrize(
    ("what", "part"),
    [
        ("text", "cannot read"),
        ("cut", "cannot read"),
        ("empty", "cannot read"),
        ("gif", "cannot read"),
        ("transparent", "partly transparent"),
        ("moving", "holds several pictures"),
        ("other file", "notes.txt is no picture"),
        ("beside", "lies beside the class folders"),
        ("in the class", "lies in no person's folder"),
        ("deeper", "is a folder inside a person's"),
    ],
)
def test_a_wrong_file(scans: Path, what: str, part: str, refusal: Refusal) -> None:
    spoil(scans, what)
    message = refusal(lambda: load(str(scans), **OPTIONS, unit="folder"))
    assert part in message
    assert str(scans) in message


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"image_size": 8, "unit": "folder"}, "pass --records"),
        ({"records": 8, "unit": "folder"}, "--image-size"),
        ({"records": 8, "image_size": 0, "unit": "folder"}, "--image-size must be"),
        ({"records": 8, "image_size": 10**6, "unit": "folder"}, "--image-size is at most"),
        ({**OPTIONS}, "say --unit folder"),
        ({**OPTIONS, "unit": "nobody.csv"}, "nobody.csv"),
        ({**OPTIONS, "unit": "folder", "schema": "a.toml"}, "--schema does not go with a folder"),
        ({**OPTIONS, "unit": "folder", "test": "nowhere"}, "nowhere"),
        ({**OPTIONS, "unit": "folder", "max_per_unit": 0}, "--max-per-unit must be"),
    ],
)
def test_a_wrong_request(scans: Path, options: dict[str, object], part: str, refusal: Refusal) -> None:
    assert part in refusal(lambda: load(str(scans), **options))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("file,who\na,b\n", "has no column 'person'"),
        ("file,person\na,\n", "line 2 of"),
        ("file,person\na,b\na,c\n", "line 3 of"),
        ("", "is empty"),
    ],
)
def test_a_wrong_table_of_persons(scans: Path, text: str, part: str, refusal: Refusal) -> None:
    (scans / "groups.csv").write_text(text)
    assert part in refusal(lambda: load(str(scans), **OPTIONS, unit=str(scans / "groups.csv")))


def test_one_class_and_no_pictures(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "p" / "a").mkdir(parents=True)
    assert "1 class folders" in refusal(lambda: load(str(tmp_path / "p"), **OPTIONS))
    (tmp_path / "p" / "b").mkdir()
    assert "holds no pictures" in refusal(lambda: load(str(tmp_path / "p"), **OPTIONS))


def test_names_of_any_bytes(tmp_path: Path, refusal: Refusal) -> None:
    for number in range(30):
        save(tmp_path / "p" / ("a", "b")[number % 2] / f"{number}.png")
    odd = os.fsencode(tmp_path / "p" / "a" / "x") + b"\xff.png"
    os.rename(tmp_path / "p" / "a" / "0.png", odd)
    assert len(load(str(tmp_path / "p"), records=20, image_size=8, holdout=0.3).train) > 0
    os.mkdir(os.fsencode(tmp_path / "p") + b"/\xff")
    assert "unprintable name" in refusal(lambda: load(str(tmp_path / "p"), **OPTIONS))


def test_nobody_may_look(scans: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("hauberk.data.image_folder.os.listdir", denied)
    assert "Permission denied" in refusal(lambda: load(str(scans), **OPTIONS, unit="folder"))
