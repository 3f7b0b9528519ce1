"""Strips of test pictures: each as it is, and as an attack left it."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hauberk.accounting.card import Card
from hauberk.accounting.exhibits import Strip
from hauberk.methods.attack_records import AttackPictures, AttackRecord
from hauberk.report.printable import printable
from hauberk.report.rounding import length, plain
from hauberk.report.wording import class_name

_SHOWN_WIDTH = 96  # pixels on the page, reached by a whole factor so that every pixel stays square
_ABSTAINED = -1


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """One test picture with its certificate and the attempt against it."""

    picture: str  # data URI
    attempt: str  # data URI
    width: int
    height: int
    true: str
    predicted: str
    radius: str
    size: str
    outcome: str
    doubt: bool


def why_no_strip(card: Card) -> str | None:
    """A sentence if there is nothing that could be shown as pictures, else ``None``."""
    strip = card.exhibits.strip
    if strip is None:
        return "No test pictures are shown: none were kept with this card."
    if strip.images.ndim != 4 or strip.images.shape[1] not in (1, 3):
        return "No test pictures are shown: the inputs of this run are not pictures."
    lengths = {len(column) for column in vars(strip).values()}
    if lengths != {len(strip.images)} or strip.images.shape != strip.attempts.shape:
        return "No test pictures are shown: those kept with this card are incomplete."
    if strip.images.size == 0:
        return "No test pictures are shown: none were kept with this card."
    if not (np.isfinite(strip.images).all() and np.isfinite(strip.attempts).all()):
        return "No test pictures are shown: those kept with this card have values that are not numbers."
    return None


def specimens(card: Card) -> tuple[Specimen, ...]:
    strip = card.exhibits.strip
    if strip is None or why_no_strip(card) is not None:
        return ()
    return tuple(_specimen(card, strip, index) for index in range(len(strip.images)))


def _specimen(card: Card, strip: Strip, index: int) -> Specimen:
    label, predicted = int(strip.labels[index]), int(strip.predicted[index])
    height, width = strip.images.shape[2:]
    factor = max(1, _SHOWN_WIDTH // width)
    outcome, doubt = _outcome(card, strip, index)
    return Specimen(
        picture=data_uri(strip.images[index]),
        attempt=data_uri(strip.attempts[index]),
        width=factor * width,
        height=factor * height,
        true=class_name(card, label),
        predicted=_answer(card, predicted, label),
        radius="none" if predicted == _ABSTAINED else length(float(strip.radii[index])),
        size=length(float(strip.attempt_sizes[index])),
        outcome=outcome,
        doubt=doubt,
    )


def _answer(card: Card, predicted: int, label: int) -> str:
    if predicted == _ABSTAINED:
        return "abstained"
    return class_name(card, predicted) + ("" if predicted == label else " (wrong)")


def _outcome(card: Card, strip: Strip, index: int) -> tuple[str, bool]:
    """Whether the answer changed, and whether that contradicts the certificate."""
    before, after = int(strip.predicted[index]), int(strip.attempt_predicted[index])
    if before == _ABSTAINED:
        return "no answer to change", False
    if after == before:
        return "answer kept", False
    if after == _ABSTAINED:
        return "abstains after the attack", False
    changed = f"answer changed to {class_name(card, after)}"
    if strip.attempt_sizes[index] < strip.radii[index]:
        return f"{changed}, inside the radius", True
    return f"{changed}, outside the radius", False


@dataclass(frozen=True, kw_only=True)
class AttackSpecimen:
    """One test picture, the picture that an attack made of it, and their difference."""

    picture: str  # data URI
    attempt: str  # data URI
    difference: str  # data URI
    width: int
    height: int
    true: str
    before: str
    attack: str
    radius: str
    size: str
    outcome: str
    broken: bool


def why_no_attack_strip(record: AttackRecord) -> str | None:
    """A sentence if there is nothing that could be shown as pictures, else ``None``."""
    if record.pictures is not None and len(record.pictures.images):
        return None
    if record.table.pictures_sha256 is None:
        return "No attacked pictures are shown: the inputs of this run are not pictures."
    return "No attacked pictures are shown: attacks.npz is missing, or not what this attack wrote."


def attack_specimens(card: Card, pictures: AttackPictures | None) -> tuple[AttackSpecimen, ...]:
    if pictures is None:
        return ()
    return tuple(_attack_specimen(card, pictures, index) for index in range(len(pictures.images)))


def _attack_specimen(card: Card, pictures: AttackPictures, index: int) -> AttackSpecimen:
    label, before = int(pictures.labels[index]), int(pictures.clean_answers[index])
    image, attempt = pictures.images[index], pictures.attempts[index]
    height, width = image.shape[1:]
    factor = max(1, _SHOWN_WIDTH // width)
    return AttackSpecimen(
        picture=data_uri(image),
        attempt=data_uri(attempt),
        difference=data_uri(_visible(attempt - image)),
        width=factor * width,
        height=factor * height,
        true=class_name(card, label),
        before=_answer(card, before, label),
        attack=printable(str(pictures.attacks[index])),
        radius=plain(float(pictures.radii[index])),
        size=length(float(pictures.sizes[index])),
        outcome=_attack_outcome(card, pictures, index),
        broken=bool(pictures.broken[index]) and before == label,
    )


def _attack_outcome(card: Card, pictures: AttackPictures, index: int) -> str:
    before, after = int(pictures.clean_answers[index]), int(pictures.answers[index])
    if pictures.undecided[index]:
        return "no majority is confirmed"
    if before != int(pictures.labels[index]):
        return "wrong before the attack"
    return "answer kept" if after == before else f"answers {class_name(card, after)}"


def _visible(difference: NDArray[np.float32]) -> NDArray[np.float32]:
    """Middle grey where nothing changed, black or white at the largest change."""
    largest = float(np.abs(difference).max())
    scaled: NDArray[np.float32] = 0.5 + difference / (2 * largest or 1)
    return scaled


def data_uri(picture: NDArray[np.float32]) -> str:
    """A (channels, height, width) picture in [0, 1] as a PNG inside the page."""
    from PIL import Image

    bytes_ = np.rint(255 * np.clip(picture, 0, 1)).astype(np.uint8)
    image = Image.fromarray(bytes_[0] if len(bytes_) == 1 else bytes_.transpose(1, 2, 0))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
