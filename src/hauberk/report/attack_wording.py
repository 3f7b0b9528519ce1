"""Attacks at given radii in words: what was attacked and how, for paper and terminal alike, and the table.

Accuracies and lower ends are rounded down, upper ends and shares of broken inputs up.
"""

from __future__ import annotations

from dataclasses import dataclass

from hauberk.methods.attack_records import NO_ATTACK, WORST_CASE, AttackRow, AttackTable
from hauberk.report.rounding import count, percent, percent_at_most, plain, plain_percent


@dataclass(frozen=True, kw_only=True)
class AttackCell:
    accuracy: str
    interval: str
    broken: str


@dataclass(frozen=True, kw_only=True)
class AttackLine:
    """One attack; ``cells`` has one entry for each radius, None where the table has no such row."""

    name: str
    described: str
    cells: tuple[AttackCell | None, ...]
    worst: bool


def attack_cell(row: AttackRow) -> AttackCell:
    return AttackCell(
        accuracy=percent(row.accuracy),
        interval=f"{percent(row.accuracy_low)} – {percent_at_most(row.accuracy_high)}",
        broken="–" if row.success is None else percent_at_most(row.success),
    )


def shown_rows(table: AttackTable) -> tuple[AttackRow, ...]:
    """All rows; the worst of a single attack would only say the same again."""
    several = len(table.attacks) > 1
    return tuple(row for row in table.rows if several or row.attack != WORST_CASE)


def clean_cell(table: AttackTable) -> AttackCell | None:
    """The classifier before any attack."""
    return next((attack_cell(row) for row in table.rows if row.attack == NO_ATTACK), None)


def attack_radii(table: AttackTable) -> tuple[float, ...]:
    return tuple(sorted({row.radius for row in table.rows if row.attack != NO_ATTACK}))


def attack_lines(table: AttackTable) -> tuple[AttackLine, ...]:
    """The attacks in their order, then the worst case over them."""
    rows = {(row.attack, row.radius): attack_cell(row) for row in shown_rows(table)}
    radii = attack_radii(table)
    names = dict.fromkeys(name for name, _ in rows if name != NO_ATTACK)
    return tuple(
        AttackLine(
            name=name,
            described="each input by its best attack" if name == WORST_CASE else table.attacks.get(name, ""),
            cells=tuple(rows.get((name, radius)) for radius in radii),
            worst=name == WORST_CASE,
        )
        for name in names
    )


def title_of(row: AttackRow) -> str:
    return "no attack" if row.attack == NO_ATTACK else row.attack


def what_was_attacked(table: AttackTable) -> str:
    """In one line."""
    parts = [f"{table.norm} radii", table.classifier]
    drawn = {row.draws for row in table.rows if row.draws is not None}
    if drawn:
        parts.append(f"{', '.join(map(count, sorted(drawn)))} draws per step")
    if table.samples is not None:
        parts.append(f"verdicts by {count(table.samples)} fresh draws")
    if table.target is not None:
        parts.append(f"aimed at class {table.target}")
    return "; ".join([*parts, f"seed {table.seed}"])


def attack_result(table: AttackTable) -> str:
    """What the attacks together leave at the largest radius, and what that does not mean."""
    left = _what_is_left(table)
    return f"{left} What these attacks did not break is not thereby proven to hold.".strip()


def attack_conditions(table: AttackTable, target_name: str | None) -> tuple[str, ...]:
    """What was attacked, and what counts as broken."""
    tested = max((row.tested for row in table.rows), default=0)
    inputs = "1 test input was" if tested == 1 else f"{count(tested)} test inputs were"
    said = [
        f"{inputs} attacked by {table.norm} perturbations up to each radius, with pixels in [0, 1].",
        f"The target is the deployed classifier, {table.classifier}.",
    ]
    if table.samples is not None:
        said.append(
            f"Attacks average over its noise, and an input counts as broken only where "
            f"{count(table.samples)} fresh draws confirm another majority (exact test, level 0.001)."
        )
    if target_name is not None:
        said.append(f"The attacks aim at class {target_name}: no other wrong answer counts as broken.")
    return tuple(said)


def _what_is_left(table: AttackTable) -> str:
    worst = [row for row in table.rows if row.attack == WORST_CASE]
    if not worst:
        return ""
    last = max(worst, key=lambda row: row.radius)
    cell = attack_cell(last)
    which = "the best attack against each input" if len(table.attacks) > 1 else "the attack"
    said = (
        f"At {table.norm} radius {plain(last.radius)} {which} leaves {cell.accuracy} answered rightly "
        f"({plain_percent(table.confidence)} interval {cell.interval})"
    )
    if last.success is None:
        return f"{said}; no input was there to be broken."
    return f"{said} and breaks {cell.broken} of the inputs that were answered rightly before."
