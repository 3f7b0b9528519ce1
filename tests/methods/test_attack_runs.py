"""Attacks on runs against what a linear classifier must answer by hand, and what is kept of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hauberk.accounting import Ledger, PrivacyPlan
from hauberk.attacks import PGD, Attack
from hauberk.attacks.base import Found
from hauberk.attacks.requests import Batch
from hauberk.certify import NoiseLayers
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.files import write_json, write_tensors
from hauberk.methods.attack_records import NO_ATTACK, WORST_CASE, AttackRecord, read_attacks
from hauberk.methods.attack_runs import RunAttacks, attack_run
from hauberk.methods.run import Run

SHAPE, SIGMA = (1, 4, 4), 0.3
RADII = (0.02, 0.05, 0.1)


def linear(classes: int = 2) -> nn.Module:
    """Class 1 where ``w (x - 0.5) > 0``; further classes never win."""
    layer = nn.Linear(16, classes)
    weight = torch.randn(16, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(-100.0)
        layer.weight[1], layer.bias[0], layer.bias[1] = weight, 0.0, -0.5 * float(weight.sum())
    return nn.Sequential(nn.Flatten(), layer)


def made_run(*, sigma: float | None, classes: int = 2) -> Run:
    return Run(
        method="dp-sgd" if sigma is None else "private-smoothing",
        variant="sound",
        claim_source="",
        data="made up",
        plan=PrivacyPlan(records=10, batch=10, epochs=1, noise_multiplier=0.0, delta=1e-5),
        ledger=Ledger(),
        model=linear(classes),
        classes=classes,
        noise=None if sigma is None else NoiseLayers(at_input=sigma),
        curve=(),
        seed=7,
        command="",
    )


def inputs(count: int = 40, classes: int = 2) -> Dataset:
    """In the middle of [0, 1], where no bound is in an attack's way; one label in eight is wrong."""
    x = 0.2 + 0.6 * torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        y = linear()(x).argmax(1)
    y[::8] = 1 - y[::8]
    return Dataset(name="made up", x=x, y=y, classes=classes)


def margins(data: Dataset, radius: float) -> np.ndarray:
    """Of the label at the worst point within the l_inf radius: ``|w| radius`` below that of the input."""
    weight = linear()[1].weight[1].detach()
    towards_one = ((data.x.flatten(1) - 0.5) @ weight).numpy()
    return towards_one * np.where(data.y.numpy() == 1, 1, -1) - radius * float(weight.abs().sum())


NETWORK, SMOOTHED, DATA = made_run(sigma=None), made_run(sigma=SIGMA), inputs()


def of(found: RunAttacks, name: str) -> list[float]:
    return [row.accuracy for row in found.table.rows if row.attack == name]


def test_a_run_without_noise_is_attacked_as_its_network() -> None:
    found = attack_run(NETWORK, DATA, attacks="fgsm, ifgsm,mim,pgd", radii=RADII, steps=5)
    truth = [float((margins(DATA, radius) > 0).mean()) for radius in RADII]
    assert truth[0] > truth[-1] > 0
    for name in ("fgsm", "ifgsm", "mim", "pgd", WORST_CASE):
        assert of(found, name) == truth
    assert of(found, NO_ATTACK) == [float((margins(DATA, 0.0) > 0).mean())] == [35 / 40]
    rows = found.table.rows
    assert [(row.attack, row.radius) for row in rows] == [
        (NO_ATTACK, 0.0),
        *((name, radius) for name in ("fgsm", "ifgsm", "mim", "pgd", WORST_CASE) for radius in RADII),
    ]
    for row in rows:
        assert (row.norm, row.tested, row.draws) == ("linf", 40, None)
        assert row.accuracy_low < row.accuracy < row.accuracy_high
        assert row.success == pytest.approx(1 - row.accuracy / (35 / 40))
    assert {row.attack: row.steps for row in rows} == {
        NO_ATTACK: 0,
        "fgsm": 1,
        "ifgsm": 5,
        "mim": 5,
        "pgd": 5,
        WORST_CASE: None,
    }
    assert found.table.samples is None
    assert found.table.seed == NETWORK.seed


def test_a_smoothed_run_is_attacked_through_its_noise_and_a_lucky_draw_breaks_nothing() -> None:
    """Noise does not move the border of a linear classifier: what is truly broken is known exactly."""
    found = attack_run(SMOOTHED, DATA, attacks="mim,pgd", radii=RADII, steps=5, draws=4, samples=400)
    decided = 0
    for name, outcomes in found.outcomes.items():
        for radius, outcome in zip(RADII, outcomes, strict=True):
            truth = margins(DATA, radius) <= 0
            assert not (outcome.broken & ~truth).any(), name
            held = ~outcome.broken & ~outcome.undecided
            decided += int(held.sum() + outcome.broken.sum())
            clear = np.abs(margins(DATA, radius)) > 0.6 * SIGMA * float(linear()[1].weight[1].detach().norm())
            assert (outcome.broken[clear] == truth[clear]).all()
    assert decided > 0.7 * 6 * len(DATA)
    for row in found.table.rows:
        true_accuracy = float((margins(DATA, row.radius) > 0).mean())
        assert row.accuracy_low <= true_accuracy <= row.accuracy_high
        assert row.draws == (None if row.attack in (NO_ATTACK, WORST_CASE) else 4)
    assert found.table.samples == 400
    assert found.table.classifier == "smoothed with input noise 0.3"


@dataclass(frozen=True, kw_only=True)
class OnSome(Attack):
    """Goes straight against the label, on every input whose place is ``rest`` modulo 2."""

    title = "on some"
    rest: int

    @property
    def name(self) -> str:
        return f"on some {self.rest}"

    def run(self, batch: Batch) -> Found:
        weight = linear()[1].weight[1].detach().sign().view(1, *SHAPE)
        away = torch.where(batch.goal.classes == 1, -1.0, 1.0).view(-1, 1, 1, 1) * weight
        chosen = (batch.rows % 2 == self.rest).view(-1, 1, 1, 1)
        return Found(points=batch.x + chosen * batch.radii.view(-1, 1, 1, 1).float() * away)


def test_the_worst_case_is_over_attacks_for_each_input() -> None:
    found = attack_run(NETWORK, DATA, attacks=[OnSome(rest=0), OnSome(rest=1)], radii=RADII)
    even, odd = of(found, "on some 0"), of(found, "on some 1")
    worst = [float((margins(DATA, radius) > 0).mean()) for radius in RADII]
    assert of(found, WORST_CASE) == worst
    assert worst[-1] < min(even[-1], odd[-1])
    assert found.table.attacks == {"on some 0": "on some 0", "on some 1": "on some 1"}
    assert [row.steps for row in found.table.rows if row.attack == "on some 0"] == [None] * 3


def test_an_attack_of_ones_own_beside_named_ones() -> None:
    own = PGD(steps=3, restarts=2)
    found = attack_run(NETWORK, DATA, attacks=["mim", own, "mim"], radii=[0.1], steps=7)
    assert list(found.outcomes) == ["mim", own.name]
    assert [row.steps for row in found.table.rows] == [0, 7, 3, None]


def test_radius_zero_changes_nothing_and_radii_come_in_order() -> None:
    found = attack_run(SMOOTHED, DATA, attacks="fgsm,pgd", radii=[0.05, 0.0, 0.05], draws=2, samples=100)
    assert found.radii == (0.0, 0.05)
    for outcomes in found.outcomes.values():
        assert torch.equal(outcomes[0].adversarial, DATA.x)
    clean, *rows = (row for row in found.table.rows if row.radius == 0)
    assert len(rows) == 3
    for row in rows:
        assert (row.accuracy, row.accuracy_low, row.success) == (clean.accuracy, clean.accuracy_low, 0.0)


def test_a_target_breaks_an_input_by_that_answer_only() -> None:
    data = inputs(classes=3)
    run = made_run(sigma=None, classes=3)
    never = attack_run(run, data, attacks="pgd", radii=[0.1], target=2)
    assert never.table.rows[1].success == 0.0
    towards_one = attack_run(run, data, attacks="pgd", radii=[0.1], target=1)
    zeros = (data.y.numpy() == 0) & (margins(data, 0.0) > 0)
    expected = float((margins(data, 0.1)[zeros] <= 0).mean())
    assert towards_one.table.rows[1].success == pytest.approx(expected)
    assert towards_one.table.target == 1


def test_inputs_are_spread_evenly_and_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    found = attack_run(
        NETWORK, DATA, attacks="fgsm,mim", radii=[0.1], limit=10, progress=lambda *words: told.append(words)
    )
    assert torch.equal(found.tested.x[[0, -1]], DATA.x[[0, -1]])
    assert told == [("fgsm", 0, 10), ("fgsm", 10, 10), ("mim", 0, 10), ("mim", 10, 10)]
    assert len(attack_run(NETWORK, DATA, radii=[0.1], limit=10**6).tested) == len(DATA)


def test_the_seed_decides_and_model_and_chance_are_left_alone() -> None:
    before = torch.random.get_rng_state()
    short = PGD(steps=1, reach=0.2, draws=2)  # which does not get far from its random start
    first, again, other = (
        attack_run(SMOOTHED, DATA, attacks=[short], radii=[0.05], samples=100, seed=seed)
        for seed in (1, 1, 2)
    )
    assert first.table == again.table
    points = [found.worst[0].adversarial for found in (first, again, other)]
    assert torch.equal(points[0], points[1])
    assert not torch.equal(points[0], points[2])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(weight.grad is None and weight.requires_grad for weight in SMOOTHED.model.parameters())


def test_nothing_answered_rightly_is_no_division_by_zero() -> None:
    data = replace(DATA, y=1 - linear()(DATA.x).argmax(1))
    found = attack_run(NETWORK, data, radii=[0.1])
    assert [row.success for row in found.table.rows] == [None] * 3
    json.dumps([vars(row) for row in found.table.rows], allow_nan=False)


WRONG: list[tuple[str, Callable[[], object], str]] = [
    ("attack", lambda: attack_run(NETWORK, DATA, attacks="pgd,magic", radii=[0.1]), "no attack 'magic'"),
    ("no attack", lambda: attack_run(NETWORK, DATA, attacks=[], radii=[0.1]), "name at least one"),
    ("norm", lambda: attack_run(NETWORK, DATA, norm="l7", radii=[0.1]), "no norm 'l7'; choose one of l1, l2"),
    ("its norm", lambda: attack_run(NETWORK, DATA, attacks="ddn", radii=[0.1]), "DDN works in l2"),
    ("other norm", lambda: attack_run(NETWORK, DATA, attacks=[PGD(norm="l2")], radii=[0.1]), "in one norm"),
    ("no radius", lambda: attack_run(NETWORK, DATA, radii=[]), "no radius"),
    ("radius", lambda: attack_run(NETWORK, DATA, radii=[0.1, -0.1]), "not negative and not infinite"),
    ("endless", lambda: attack_run(NETWORK, DATA, radii=[float("inf")]), "not negative and not infinite"),
    ("no number", lambda: attack_run(NETWORK, DATA, radii=[float("nan")]), "not negative and not infinite"),
    ("steps", lambda: attack_run(NETWORK, DATA, radii=[0.1], steps=0), "at least one step"),
    ("fgsm", lambda: attack_run(NETWORK, DATA, attacks="fgsm", radii=[0.1], steps=9), "fgsm cannot be told"),
    ("draws", lambda: attack_run(SMOOTHED, DATA, radii=[0.1], draws=0), "one draw"),
    ("no noise", lambda: attack_run(NETWORK, DATA, radii=[0.1], draws=4), "leave out draws"),
    ("samples", lambda: attack_run(SMOOTHED, DATA, radii=[0.1], samples=0), "at least one draw"),
    ("limit", lambda: attack_run(NETWORK, DATA, radii=[0.1], limit=0), "at least 1"),
    ("seed", lambda: attack_run(NETWORK, DATA, radii=[0.1], seed=-1), "seeds are whole numbers"),
    (
        "target",
        lambda: attack_run(NETWORK, DATA, radii=[0.1], target=2),
        "no class 2: there are the classes 0",
    ),
]


@pytest.mark.parametrize(("name", "request_", "part"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_request_is_one_sentence(name: str, request_: Callable[[], object], part: str) -> None:
    with pytest.raises(RequestError, match=part):
        request_()


@pytest.mark.parametrize(
    ("attacks", "target", "part"),
    [("pgd,apgd-t", None, "compares four classes"), ("pgd,autoattack", 1, "cannot aim at a target class")],
)
def test_what_cannot_work_is_refused_before_anything_is_attacked(
    attacks: str, target: int | None, part: str
) -> None:
    pytest.importorskip("torchattacks")
    told: list[object] = []
    with pytest.raises(RequestError, match=part):
        attack_run(
            NETWORK,
            DATA,
            attacks=attacks,
            radii=[0.1],
            target=target,
            progress=lambda *words: told.append(words),
        )
    assert told == []


def folder_with_weights(path: Path) -> Path:
    write_tensors(path / "model.safetensors", {"weight": torch.ones(2)})
    return path


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    folder_with_weights(tmp_path)
    assert read_attacks(tmp_path) is None
    found = attack_run(NETWORK, DATA, attacks="fgsm,pgd", radii=RADII)
    written = found.record().write(tmp_path)
    record = read_attacks(tmp_path)
    assert record is not None
    assert record.table == written
    assert record.table.rows == found.table.rows
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "attacks.json", "attacks.npz"}
    made, kept = found.pictures(), record.pictures
    assert made is not None
    assert kept is not None
    for name, column in vars(made).items():
        assert np.array_equal(getattr(kept, name), column), name
    first = (tmp_path / "attacks.npz").read_bytes(), (tmp_path / "attacks.json").read_bytes()
    found.record().write(tmp_path)
    assert first == ((tmp_path / "attacks.npz").read_bytes(), (tmp_path / "attacks.json").read_bytes())


def test_pictures_are_right_answers_at_the_smallest_radius_that_breaks_them() -> None:
    found = attack_run(NETWORK, DATA, attacks="fgsm,pgd", radii=RADII)
    pictures = found.pictures()
    assert pictures is not None
    assert len(pictures.images) == 9
    right = np.flatnonzero(margins(DATA, 0.0) > 0)[:9]
    assert np.array_equal(pictures.images, DATA.x.numpy()[right])
    for place, row in enumerate(right):
        smallest = [radius for radius in RADII if margins(DATA, radius)[row] <= 0]
        assert pictures.broken[place] == bool(smallest)
        assert pictures.radii[place] == (smallest or RADII)[0 if smallest else -1]
        moved = np.abs(pictures.attempts[place] - pictures.images[place]).max()
        assert moved == pytest.approx(pictures.sizes[place])
        assert moved <= pictures.radii[place]
    assert set(pictures.attacks) <= {"fgsm", "pgd"}


def test_tables_of_numbers_leave_no_pictures(tmp_path: Path) -> None:
    folder_with_weights(tmp_path)
    attack_run(NETWORK, DATA, radii=[0.1]).record().write(tmp_path)
    assert (tmp_path / "attacks.npz").exists()
    flat = replace(DATA, x=DATA.x.flatten(1))
    attack_run(NETWORK, flat, radii=[0.1]).record().write(tmp_path)
    record = read_attacks(tmp_path)
    assert record is not None
    assert record.pictures is None
    assert record.table.pictures_sha256 is None
    assert not (tmp_path / "attacks.npz").exists()


def test_results_about_other_weights_are_refused(tmp_path: Path) -> None:
    attack_run(NETWORK, DATA, radii=[0.1]).record().write(folder_with_weights(tmp_path))
    write_tensors(tmp_path / "model.safetensors", {"weight": torch.zeros(2)})
    with pytest.raises(RequestError, match="about other weights"):
        read_attacks(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nonsense", None])
def test_pictures_that_are_not_the_tables_own_are_not_shown(tmp_path: Path, content: bytes | None) -> None:
    attack_run(NETWORK, DATA, radii=[0.1]).record().write(folder_with_weights(tmp_path))
    if content is None:
        (tmp_path / "attacks.npz").unlink()
    else:
        (tmp_path / "attacks.npz").write_bytes(content)
    record = read_attacks(tmp_path)
    assert record is not None
    assert record.pictures is None
    assert record.table.pictures_sha256 is not None


def record_of(folder: Path) -> AttackRecord:
    record = attack_run(NETWORK, DATA, radii=[0.1]).record()
    record.write(folder_with_weights(folder))
    return record


def _short(images: np.ndarray) -> np.ndarray:
    return images[:1]


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1)


def _no_numbers(images: np.ndarray) -> np.ndarray:
    return np.full_like(images, np.nan)


@pytest.mark.parametrize("change", [_short, _flat, _no_numbers])
def test_incomplete_pictures_are_refused(tmp_path: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    pictures = record_of(tmp_path).pictures
    assert pictures is not None
    with pytest.raises(RequestError, match="incomplete or no pictures"):
        replace(pictures, attempts=change(pictures.attempts))


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    record_of(tmp_path)
    content = json.loads((tmp_path / "attacks.json").read_text())
    content["rows"][0]["accuracy"] = "all of it"
    write_json(tmp_path / "attacks.json", content)
    with pytest.raises(RequestError, match=r"attacks\.json\.rows\[0\]\.accuracy should be a float"):
        read_attacks(tmp_path)


def test_a_pair_of_tensors_will_do() -> None:
    pair: tuple[Tensor, Tensor] = (DATA.x, DATA.y)
    assert (
        attack_run(NETWORK, pair, radii=[0.1]).table.rows == attack_run(NETWORK, DATA, radii=[0.1]).table.rows
    )
