"""``docs/attacks.md``: its table is the catalogue's, three lines are three (its code: test_guide)."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hauberk.attacks import ATTACKS

PAGE = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text()


def test_a_model_of_ones_own_is_attacked_in_three_lines(blocks: Callable[[str], list[Any]]) -> None:
    assert len(blocks("attacks.md")[0].text.splitlines()) == 3


def test_the_table_is_the_catalogues() -> None:
    rows = re.findall(r"^\| `(\S+)` \|[^|]*\| ([^|]*) \| (yes|no) \|", PAGE, re.MULTILINE)
    assert [name for name, *_ in rows] == list(ATTACKS)
    for name, norms, aims in rows:
        assert sorted(norms.split(", ")) == sorted(ATTACKS[name].norms), name
        assert (aims == "yes") == ATTACKS[name].can_aim, name
