"""The report: one HTML file that needs nothing else, for somebody who was not there.

Strings of the card and of the attacks are escaped, and the page forbids itself scripts and every network
request by its own content security policy. The same card and attacks give the same bytes.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from hauberk.accounting.card import Card, ClassAccuracy
from hauberk.errors import RequestError
from hauberk.files import write_text
from hauberk.methods.attack_records import AttackRecord, read_attacks
from hauberk.report import attack_wording, charts, rounding, sentences, wording
from hauberk.report.pictures import (
    AttackSpecimen,
    attack_specimens,
    specimens,
    why_no_attack_strip,
    why_no_strip,
)
from hauberk.report.printable import printable

if TYPE_CHECKING:
    from jinja2 import Template

_MOST_CLASSES = 20


@dataclass(frozen=True, kw_only=True)
class ClassBar:
    name: str
    tested: int
    accuracy: float | None


@dataclass(frozen=True, kw_only=True)
class AttackSection:
    """``trouble`` says why results that lie beside the report are not shown; all else is empty then."""

    trouble: str | None = None
    norm: str = ""
    result: str = ""
    conditions: tuple[str, ...] = ()
    radii: tuple[float, ...] = ()
    clean: attack_wording.AttackCell | None = None
    lines: tuple[attack_wording.AttackLine, ...] = ()
    specimens: tuple[AttackSpecimen, ...] = ()
    why_no_strip: str | None = None


def write_report(card: Card, path: Path) -> None:
    """Write the report whole or not at all, with the attacks that `hauberk attack` left beside it, if any."""
    attacks: AttackRecord | str | None
    try:
        attacks = read_attacks(path.parent)
    except RequestError as error:
        attacks = str(error).replace(f"{path.parent}/", "")  # where it lay is nobody's business
    write_text(path, render(card, attacks))


def render(card: Card, attacks: AttackRecord | str | None = None) -> str:
    """The card, its curves and its pictures as one self-contained page; what is missing is said.

    ``attacks``: those at given radii, or a sentence on why they cannot be shown.
    """
    card = printable(card)
    return _template().render(
        card=card,
        title=wording.title(card),
        key_figures=wording.key_figures(card),
        summary={
            "Privacy": sentences.privacy_sentences(card),
            "Robustness": sentences.robustness_sentences(card),
            "Accuracy": sentences.utility_sentences(card),
        },
        rows=wording.rows(card),
        certified_chart=_certified_chart(card),
        certified_rows=wording.listed_accuracies(card),
        epsilon_chart=_epsilon_chart(card),
        accuracy_chart=_accuracy_chart(card),
        class_bars=_class_bars(card),
        classes=0 if card.utility is None else len(card.utility.per_class),
        specimens=specimens(card),
        why_no_strip=why_no_strip(card),
        attacks=_attack_section(card, attacks),
    )


@functools.cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        percent=rounding.percent, plain=rounding.plain, thousands=rounding.count, unbroken=_unbroken
    )
    return environment.get_template("report.html.j2")


def _unbroken(text: str) -> Markup:
    """Escaped text in which no line ends inside a number such as 1e-5."""
    return Markup(re.sub(r"\d+e-\d+", r'<span class="number">\g<0></span>', str(escape(text))))


def _certified_chart(card: Card) -> Markup | None:
    proof = card.robustness.proven
    if proof is None or not proof.certified_accuracy:
        return None
    points = sorted(proof.certified_accuracy, key=lambda point: point.radius)
    return charts.certified_accuracy_chart(
        [point.radius for point in points], [point.accuracy for point in points]
    )


def _epsilon_chart(card: Card) -> Markup | None:
    points = [
        (point.step, point.epsilon)
        for point in card.exhibits.curve
        if point.epsilon is not None and math.isfinite(point.epsilon)
    ]
    if not points:
        return None
    proof = card.privacy.proven
    proven = proof.epsilon if proof is not None and math.isfinite(proof.epsilon) else None
    steps, epsilons = zip(*points, strict=True)
    return charts.epsilon_chart(steps, epsilons, proven)


def _accuracy_chart(card: Card) -> Markup | None:
    points = [
        (point.epoch, point.test_accuracy)
        for point in card.exhibits.curve
        if point.test_accuracy is not None and math.isfinite(point.test_accuracy)
    ]
    if not points:
        return None
    epochs, accuracies = zip(*points, strict=True)
    return charts.accuracy_chart(epochs, accuracies)


def _attack_section(card: Card, attacks: AttackRecord | str | None) -> AttackSection | None:
    if attacks is None:
        return None
    if isinstance(attacks, str):
        return AttackSection(trouble=f"The attacks are not shown: {printable(attacks)}.")
    table = printable(attacks.table)
    target = None if table.target is None else wording.class_name(card, table.target)
    return AttackSection(
        norm=table.norm,
        result=attack_wording.attack_result(table),
        conditions=attack_wording.attack_conditions(table, target),
        radii=attack_wording.attack_radii(table),
        clean=attack_wording.clean_cell(table),
        lines=attack_wording.attack_lines(table),
        specimens=attack_specimens(card, attacks.pictures),
        why_no_strip=why_no_attack_strip(attacks),
    )


def _class_bars(card: Card) -> tuple[ClassBar, ...]:
    """All classes in their order, or the weakest ones first where there are too many to read."""
    if card.utility is None:
        return ()
    shown: Sequence[ClassAccuracy] = card.utility.per_class
    if len(shown) > _MOST_CLASSES:
        measured = (each for each in shown if each.accuracy is not None)
        shown = sorted(measured, key=lambda each: (each.accuracy, each.label))[:_MOST_CLASSES]
    return tuple(
        ClassBar(name=wording.class_name(card, each.label), tested=each.tested, accuracy=each.accuracy)
        for each in shown
    )
