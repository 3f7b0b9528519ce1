"""``hauberk synth train --synthesizer igamt`` in its forms, as a user meets them."""

import json
from collections.abc import Callable
from pathlib import Path

Hauberk = Callable[..., object]


def test_the_published_form_is_trained_and_proves_nothing(hauberk: Hauberk, workplace: Path) -> None:
    done = hauberk(
        "synth", "train", "--synthesizer", "igamt", "--variant", "paper", "--ablation", "w/o_imi",
        "--size", "tiny", "--name", "published", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    card = json.loads(done.out)
    assert (card["method"], card["variant"]) == ("igamt", "paper")
    assert card["privacy"]["proven"] is None
    assert "without noise" in card["privacy"]["reason"]
    settings = json.loads((workplace / "runs" / "published" / "config.json").read_text())["settings"]
    assert (settings["variant"], settings["imitator"], settings["mask_critic"]) == ("paper", False, False)


def test_wrong_choices_are_refused_before_anything_is_read(hauberk: Hauberk, workplace: Path) -> None:
    for words, complaint in (
        (("--synthesizer", "vae", "--variant", "paper"), "published form"),
        (("--synthesizer", "vae", "--protect", "joint"), "vae has no protect"),
        (("--synthesizer", "igamt", "--protect", "nobody"), "joint, critics"),
        (("--synthesizer", "igamt", "--ablation", "all"), "w/o_imi_var"),
        (("--synthesizer", "igamt", "--variant", "paper", "--no-privacy"), "claims an epsilon"),
    ):
        refused = hauberk("synth", "train", *words)
        assert refused.code == 2, words
        assert complaint in refused.err
    assert not (workplace / "runs").exists()
