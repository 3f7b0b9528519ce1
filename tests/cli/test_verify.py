"""`hauberk verify`: a changed byte anywhere and a lowered epsilon are found."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hauberk.accounting import Ledger, prove
from hauberk.methods import PrivateSmoothing
from hauberk.methods.training import prepare, train
from hauberk.methods.verification import write_manifest

Run = Callable[..., object]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verify")
    numbers = np.random.default_rng(0)
    np.savez(root / "own.npz", x=numbers.random((60, 5)).astype(np.float32), y=np.arange(60) % 2)
    settings = {"data": str(root / "own.npz"), "records": 54, "classes": 2, "size": "tiny", "attacked": 0}
    prepared = prepare(root=root, name="first", force=False, config=settings, options={})
    train(prepared, command="hauberk train")
    write_manifest(root / "first")
    return root / "first"


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "runs" / "first")
    return tmp_path / "runs" / "first"


def lowered(run: Path, column: str) -> None:
    card = json.loads((run / "card.json").read_text())
    card["privacy"][column]["epsilon"] = 1.0
    (run / "card.json").write_text(json.dumps(card, indent=2) + "\n")


def test_a_run_as_it_was_left_passes(hauberk: Run, run: Path) -> None:
    done = hauberk("verify", "first", "--json")
    assert done.code == 0, done.out
    said = json.loads(done.out)
    assert said["passed"]
    assert [check["name"] for check in said["checks"]] == ["files", "private files", "settings", "events"]
    card = json.loads((run / "card.json").read_text())
    assert said["epsilon"] == pytest.approx(card["privacy"]["proven"]["epsilon"], rel=1e-9)
    assert hauberk("verify", "first").code == 0


def test_a_changed_byte_in_any_file_is_found(hauberk: Run, run: Path) -> None:
    files = sorted(path for path in run.rglob("*") if path.is_file())
    names = {path.name for path in files}
    assert {"card.json", "events.json", "config.json", "model.safetensors", "manifest.json"} <= names
    for path in files:
        content = path.read_bytes()
        for place in (0, len(content) // 3, len(content) // 2, len(content) - 1):
            changed = bytearray(content)
            changed[place] ^= 0x01
            path.write_bytes(bytes(changed))
            done = hauberk("verify", "first", "--json")
            assert done.code == 1, f"byte {place} of {path}"
            assert not json.loads(done.out)["passed"]
        path.write_bytes(content)
    assert hauberk("verify", "first").code == 0


def test_a_manifest_written_in_another_way_is_found(hauberk: Run, run: Path) -> None:
    """The same hashes with other blanks: a changed byte is a change."""
    for path in (run / "manifest.json", run / "private" / "manifest.json"):
        content = path.read_text()
        for other in (content.replace("\n", "\r\n", 1), content.replace(": ", ":  ", 1), content + "\n"):
            path.write_text(other, newline="")
            assert hauberk("verify", "first").code == 1, other
        path.write_text(json.dumps(json.loads(content)))
        assert hauberk("verify", "first").code == 1
        path.write_text(content)
    assert hauberk("verify", "first").code == 0


def test_settings_that_cannot_be_read_are_a_finding(hauberk: Run, run: Path) -> None:
    for content in ("", "{", "[]", '{"kind": 3}'):
        (run / "config.json").write_text(content)
        done = hauberk("verify", "first", "--json")
        assert done.code == 1, content
        failed = [each["name"] for each in json.loads(done.out)["checks"] if not each["passed"]]
        assert failed == ["files", "settings", "events"]


@pytest.mark.parametrize("content", ["", "[]", '{"sha256": []}', '{"sha256": {"card.json": 3}}'])
def test_a_damaged_manifest_is_found_before_anything_is_written(
    hauberk: Run, run: Path, content: str
) -> None:
    (run / "manifest.json").write_text(content)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for words in (("report", "first"), ("certify", "first"), ("attack", "first", "--radius", "0.1")):
        done = hauberk(*words)
        assert done.code == 2, words
        assert "manifest.json" in done.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert hauberk("verify", "first").code == 1


def test_a_file_more_and_a_file_less_are_found(hauberk: Run, run: Path) -> None:
    (run / "extra.txt").write_text("x")
    said = "".join(hauberk("verify", run).out.split())  # a long path goes over several lines
    assert "extra.txtwasnottherewhentherunended" in said
    (run / "extra.txt").unlink()
    (run / "metrics.jsonl").unlink()
    done = hauberk("verify", run)
    assert done.code == 1
    assert "metrics.jsonl is missing" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("column", "check", "part"),
    [("proven", "events", "but the events prove"), ("claimed", "settings", "but the plan says")],
)
def test_an_epsilon_lowered_by_hand_is_found_even_with_new_hashes(
    hauberk: Run, run: Path, column: str, check: str, part: str
) -> None:
    lowered(run, column)
    write_manifest(run)
    done = hauberk("verify", run, "--json")
    assert done.code == 1
    (failed,) = (each for each in json.loads(done.out)["checks"] if not each["passed"])
    assert failed["name"] == check
    assert part in failed["found"]


def test_events_that_do_not_cover_the_plan_are_found(hauberk: Run, run: Path) -> None:
    events = json.loads((run / "events.json").read_text())
    (event,) = events["events"]
    counts = [key for key, value in event.items() if isinstance(value, int)]
    assert counts, event
    for key in counts:
        event[key] = max(1, event[key] - 1)
    (run / "events.json").write_text(json.dumps(events, indent=2) + "\n")
    write_manifest(run)
    done = hauberk("verify", run, "--json")
    assert done.code == 1
    assert "events" in [each["name"] for each in json.loads(done.out)["checks"] if not each["passed"]]


def test_another_number_of_records_or_a_lost_note_is_found(hauberk: Run, run: Path) -> None:
    content = json.loads((run / "card.json").read_text())
    for change in ({"records": 1}, {"notes": []}, {"method": "dp-sgd"}):
        (run / "card.json").write_text(json.dumps({**content, **change}))
        write_manifest(run)
        assert hauberk("verify", run).code == 1, change


def test_a_run_without_its_private_folder_passes_and_one_without_manifest_does_not(
    hauberk: Run, run: Path
) -> None:
    shutil.rmtree(run / "private")
    assert hauberk("verify", run).code == 0
    (run / "manifest.json").unlink()
    assert hauberk("verify", run).code == 1


def test_no_run_is_a_wrong_request(hauberk: Run, workplace: Path) -> None:
    done = hauberk("verify", "nowhere")
    assert done.code == 2
    assert "there is no run" in done.err


def test_the_public_manifest_tells_nothing_about_private_files(run: Path) -> None:
    assert "diagnostics" not in (run / "manifest.json").read_text()
    assert "diagnostics.jsonl" in (run / "private" / "manifest.json").read_text()


def test_every_command_leaves_a_run_that_passes_and_blesses_no_more(hauberk: Run, workplace: Path) -> None:
    """What a command writes is taken anew; what somebody else changed before stays a difference."""
    (workplace / "small.toml").write_text(
        "tested = 4\nsamples = 50\nattacked = 1\nattack-steps = 1\nepochs = 0.25\n"
    )
    assert hauberk("train", "--size", "tiny", "--name", "first", "--config", "small.toml").code == 0
    run = workplace / "runs" / "first"
    commands = (
        ("certify", "first", "--limit", "4", "--samples", "50"),
        ("attack", "first", "--radius", "0.1", "--steps", "1", "--limit", "2"),
        ("attack", "first", "--limit", "2", "--steps", "1"),
        ("report", "first"),
    )
    assert hauberk("verify", "first").code == 0
    for words in commands:
        assert hauberk(*words).code == 0
        assert hauberk("verify", "first").code == 0, words
    config = run / "config.json"
    config.write_text(config.read_text() + "\n")
    for words in (commands[0], commands[-1]):
        assert hauberk(*words).code == 0
        assert "config.json" in hauberk("verify", "first").out, words


def blessed(run: Path) -> None:
    """Whoever can write the folder can write the manifest too."""
    write_manifest(run)


def test_more_noise_in_the_events_than_in_the_plan_is_found(hauberk: Run, run: Path) -> None:
    """Card, events and manifest all changed together: the plan still says what was done."""
    events = json.loads((run / "events.json").read_text())
    text = json.dumps(events)
    (noise,) = {str(each) for each in _values(events, "noise_multiplier")}
    changed = json.loads(text.replace(noise, str(20 * float(noise))))
    (run / "events.json").write_text(json.dumps(changed))
    blessed(run)
    said = json.loads(hauberk("verify", "first", "--json").out)
    card = json.loads((run / "card.json").read_text())
    smaller = prove(Ledger.from_json(changed).events, card["privacy"]["proven"]["delta"])
    assert smaller.epsilon < card["privacy"]["proven"]["epsilon"] / 2
    card["privacy"]["proven"]["epsilon"] = smaller.epsilon
    (run / "card.json").write_text(json.dumps(card))
    blessed(run)
    done = hauberk("verify", "first")
    assert done.code == 1
    assert "not those of this plan" in " ".join(done.out.split())
    assert not said["passed"]


def test_a_smaller_unit_than_the_runs_own_is_found(hauberk: Run, run: Path) -> None:
    for key, value in (("unit", "one hospital"), ("neighbours", "replace all records of one hospital")):
        card = json.loads((run / "card.json").read_text())
        kept = dict(card["privacy"])
        card["privacy"][key] = value
        (run / "card.json").write_text(json.dumps(card))
        blessed(run)
        assert hauberk("verify", "first").code == 1, key
        card["privacy"] = kept
        (run / "card.json").write_text(json.dumps(card))


def test_another_plan_than_was_asked_for_is_found(hauberk: Run, run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["plan"]["noise_multiplier"] *= 20
    (run / "config.json").write_text(json.dumps(config))
    blessed(run)
    done = hauberk("verify", "first")
    assert done.code == 1
    assert "was asked for, but the plan says" in " ".join(done.out.split())


def test_a_proof_for_a_method_that_can_have_none_is_found(
    hauberk: Run, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The method says so, whatever card and events say."""
    monkeypatch.setattr(PrivateSmoothing, "unprovable", "it has seen everything")
    done = hauberk("verify", "first")
    assert done.code == 1
    assert "it has seen everything" in " ".join(done.out.split())


def _values(content: object, key: str) -> list[float]:
    if isinstance(content, dict):
        own = [float(content[key])] if key in content else []
        return own + [each for value in content.values() for each in _values(value, key)]
    return [each for item in content for each in _values(item, key)] if isinstance(content, list) else []
