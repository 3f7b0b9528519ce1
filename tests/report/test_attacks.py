"""The report's section on attacks at given radii: there when they were made, honest, safe with any text."""

import base64
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hauberk.accounting.card import Card
from hauberk.files import write_json
from hauberk.methods.attack_records import AttackRecord, AttackTable
from hauberk.report import render, write_report
from hauberk.report.attack_wording import attack_lines, what_was_attacked

NOT_A_TAG = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}\x1b[2J"


def section(page: str) -> str:
    """What stands between this section's head and the next."""
    found = re.search(r'<section aria-labelledby="attacks">(.*?)</section>', page, re.DOTALL)
    return "" if found is None else found.group(1)


def words(page: str) -> str:
    text = re.sub(r"<[^>]+>", " ", section(page)).replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(r"\s+([.,:;])", r"\1", " ".join(text.split()))


def table(**changes: object) -> Callable[[AttackRecord], AttackRecord]:
    return lambda record: replace(record, table=replace(record.table, **changes))


def one_attack(record: AttackRecord) -> AttackRecord:
    rows = tuple(row for row in record.table.rows if row.attack != "fgsm")
    return table(rows=rows, attacks={"pgd": "linf PGD, 10 steps"})(record)


def nothing_right(record: AttackRecord) -> AttackRecord:
    return table(rows=tuple(replace(row, success=None, accuracy=0.0) for row in record.table.rows))(record)


def still(record: AttackRecord) -> AttackRecord:
    assert record.pictures is not None
    return replace(record, pictures=replace(record.pictures, attempts=record.pictures.images))


ROWS: list[tuple[str, Callable[[AttackRecord], AttackRecord], tuple[str, ...]]] = [
    (
        "everything",
        lambda record: record,
        (
            "At linf radius 0.1 the best attack against each input leaves 43.2 % answered rightly "
            "(95 % interval 37.2 % – 49.3 %) and breaks 54.6 % of the inputs",
            "What these attacks did not break is not thereby proven to hold.",
            "200 test inputs were attacked by linf perturbations",
            "the deployed classifier, smoothed with input noise 0.25.",
            "only where 1,000 fresh draws confirm another majority (exact test, level 0.001)",
            "no attack 95.0 % 91.0 % – 97.6 %",
            "fgsm linf FGSM, 1 step 90.0 %",
            "linf radius 0.05 linf radius 0.1",
            "worst case each input by its best attack 84.5 %",
            "Attacked pictures",
            "answer before 9 (wrong)",
            "pgd, radius 0.05 linf size 0.049 answers 3",
            "answer kept",
            "no majority is confirmed",
            "wrong before the attack",
        ),
    ),
    ("a network", table(samples=None, classifier="the network"), ("the deployed classifier, the network.",)),
    ("a target", table(target=3), ("The attacks aim at class 3: no other wrong answer counts as broken.",)),
    ("one attack", one_attack, ("At linf radius 0.1 the attack leaves 43.2 %",)),
    ("nothing right", nothing_right, ("no input was there to be broken", "broken –")),
    ("no rows", table(rows=()), ("0 test inputs were attacked",)),
    (
        "tables",
        lambda record: replace(table(pictures_sha256=None)(record), pictures=None),
        ("No attacked pictures are shown: the inputs of this run are not pictures.",),
    ),
    (
        "lost pictures",
        lambda record: replace(record, pictures=None),
        ("No attacked pictures are shown: attacks.npz is missing, or not what this attack wrote.",),
    ),
    ("nothing moved", still, ("Attacked pictures",)),
]


@pytest.mark.parametrize(("name", "change", "said"), ROWS, ids=[row[0] for row in ROWS])
def test_what_is_said(
    card: Card,
    attacks: AttackRecord,
    name: str,
    change: Callable[[AttackRecord], AttackRecord],
    said: tuple[str, ...],
) -> None:
    record = change(attacks)
    page = render(card, record)
    for phrase in said:
        assert phrase in words(page)
    assert section(page).count("<img ") == (0 if record.pictures is None else 18)
    assert section(page).count(" alt=") == section(page).count("<img ")


def test_a_network_has_no_draws_to_speak_of(card: Card, attacks: AttackRecord) -> None:
    assert "fresh draws" not in words(render(card, table(samples=None)(attacks)))


def test_the_worst_of_one_attack_is_not_said_twice(attacks: AttackRecord) -> None:
    assert [line.name for line in attack_lines(attacks.table)] == ["fgsm", "pgd", "worst case"]
    assert [line.name for line in attack_lines(one_attack(attacks).table)] == ["pgd"]


def test_a_missing_row_is_shown_as_missing(card: Card, attacks: AttackRecord) -> None:
    rows = tuple(row for row in attacks.table.rows if (row.attack, row.radius) != ("fgsm", 0.1))
    assert "not tried" in words(render(card, table(rows=rows)(attacks)))
    assert "not tried" not in words(render(card, attacks))


def test_only_breaks_of_right_answers_are_marked(card: Card, attacks: AttackRecord) -> None:
    marked = re.findall(r'<p class="outcome doubt">(.*?)</p>', section(render(card, attacks)))
    assert marked == ["answers 3"]


def test_no_attack_no_section(card: Card) -> None:
    assert section(render(card)) == ""
    assert 'id="attacks"' not in render(card)


def test_differences_are_grey_where_nothing_changed(card: Card, attacks: AttackRecord) -> None:
    assert attacks.pictures is not None
    images = np.full_like(attacks.pictures.images, 0.5)
    attempts = images.copy()
    attempts[:, 0, 0, 0] += 0.1
    attempts[:, 0, 0, 1] -= 0.05
    moved = replace(attacks, pictures=replace(attacks.pictures, images=images, attempts=attempts))
    source = re.findall(r'src="data:image/png;base64,([^"]+)"', section(render(card, moved)))[2]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(source))))
    assert pixels[0, 0] == 255
    assert 60 < pixels[0, 1] < 68
    assert set(pixels[1:].ravel().tolist()) == {128}


def test_hostile_text_is_only_text(card: Card, attacks: AttackRecord) -> None:
    assert attacks.pictures is not None
    bad = NOT_A_TAG
    rows = tuple(replace(row, attack=bad, norm=bad) for row in attacks.table.rows)
    hostile = AttackRecord(
        table=replace(attacks.table, classifier=bad, norm=bad, attacks={bad: bad}, rows=rows),
        pictures=replace(attacks.pictures, attacks=np.array([bad] * 6)),
    )
    for page in (render(card, hostile), render(card, bad)):
        assert "<script" not in page
        assert "onerror=alert(2)>" not in section(page).replace("&gt;", "")
        assert "\x1b" not in page
        assert "{{ 7 * 7 }}" in words(page)


def left_beside(folder: Path, attacks: AttackRecord) -> AttackTable:
    """As `hauberk attack` leaves it."""
    (folder / "model.safetensors").write_bytes(b"weights")
    return attacks.write(folder)


def test_the_report_takes_what_lies_beside_it(card: Card, attacks: AttackRecord, tmp_path: Path) -> None:
    written = left_beside(tmp_path, attacks)
    write_report(card, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page == render(card, replace(attacks, table=written))
    assert section(page)


def _other_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"other weights")


def _cut(folder: Path) -> None:
    (folder / "attacks.json").write_text("{")


def _unknown_key(folder: Path) -> None:
    content = json.loads((folder / "attacks.json").read_text())
    write_json(folder / "attacks.json", {**content, "more": 1})


@pytest.mark.parametrize(
    ("damage", "told"),
    [(_other_weights, "about other weights"), (_cut, "not valid JSON"), (_unknown_key, "unknown key")],
)
def test_results_that_cannot_be_shown_do_not_cost_the_report(
    card: Card, attacks: AttackRecord, tmp_path: Path, damage: Callable[[Path], None], told: str
) -> None:
    left_beside(tmp_path, attacks)
    damage(tmp_path)
    write_report(card, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert words(page).startswith("Attacks The attacks are not shown:")
    assert told in words(page)
    assert str(tmp_path) not in page  # a report is for others
    assert "<img" not in section(page)


def test_one_line_for_the_terminal(attacks: AttackRecord) -> None:
    assert what_was_attacked(attacks.table) == (
        "linf radii; smoothed with input noise 0.25; 16 draws per step; verdicts by 1,000 fresh draws; seed 0"
    )
    plain = replace(attacks.table, classifier="the network", samples=None, target=4, rows=())
    assert what_was_attacked(plain) == "linf radii; the network; aimed at class 4; seed 0"
