"""The experiments on IGAMT at tiny size; that they run and repeat themselves is tested with all others."""

import pytest

from hauberk.experiments import EXPERIMENTS, Result
from hauberk.experiments.igamt_runs import BASELINES, PAPER, SCENES, SOUND, WITHOUT, contenders
from hauberk.experiments.igamt_table import THESIS
from hauberk.progress import silent
from hauberk.synthesis import find_preset


def rows(result: Result) -> list[dict[str, object]]:
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def test_the_table_says_what_is_claimed_and_what_is_proven() -> None:
    found = {row["form"]: row for row in rows(EXPERIMENTS["igamt-table"].run("tiny", 0, silent))}
    assert (found[WITHOUT]["claimed_epsilon"], found[WITHOUT]["proven_epsilon"]) == (None, None)
    assert found[PAPER]["claimed_epsilon"] == pytest.approx(3.0, rel=0.01)
    assert found[PAPER]["proven_epsilon"] is None
    assert found[SOUND]["proven_epsilon"] == found[SOUND]["claimed_epsilon"] == pytest.approx(3.0, rel=0.05)
    assert found[PAPER]["thesis_minkowski"] == 3.974107
    assert all(float(row["minkowski"]) > 0 for row in found.values())  # type: ignore[arg-type]


def test_everybody_of_the_thesis_takes_part() -> None:
    named = {each.model for each in contenders(SOUND)}
    assert named == set(THESIS) | {"marginals"}
    assert set(BASELINES) < set(THESIS)
    forms = {(each.model, each.form, each.protect) for each in contenders(WITHOUT, PAPER, SOUND)}
    assert len(forms) == len(contenders(WITHOUT, PAPER, SOUND))
    assert ("vae", PAPER, None) not in forms


def test_every_contender_has_settings_and_every_scene_its_features() -> None:
    for contender in contenders(WITHOUT, PAPER, SOUND):
        assert contender.settings("full") is not None
    for scene in SCENES.values():
        schema = find_preset(scene.data).schema
        assert {*scene.features} <= {each.name for each in schema.temporal}


def test_histograms_are_shares() -> None:
    found = rows(EXPERIMENTS["igamt-histograms"].run("tiny", 0, silent))
    for measure in {row["measure"] for row in found}:
        for side in ("real_share", "synthetic_share"):
            total = sum(float(row[side]) for row in found if row["measure"] == measure)  # type: ignore[arg-type]
            assert total == pytest.approx(1.0, abs=1e-3)
