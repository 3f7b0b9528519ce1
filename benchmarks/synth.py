"""What does a training step of a synthesizer cost with privacy, and how fast does it make patients?

    python benchmarks/synth.py [--synthesizers igamt,vae,gan] [--repeat N] [--quick] [--output FOLDER]

Patients are made up, of the shape of the physionet2012 schema (36 features, up to 49 steps): times do not
depend on what the numbers say. Two questions:

- ``step``: one training step at the private settings of the catalogue, for everybody the same networks and
  batch. Contenders: ``private`` (clip and noise for each patient), ``without privacy`` (the same loop without
  them) and ``plain`` (an ordinary step by autograd on the mean loss, the least that training can cost).
- ``generation``: making 10,000 patients with a model without privacy at its full size.

Contenders of a step take turns in one run, so that a busy moment of the machine hits all of them; seconds are
medians, ``ratio`` is to ``without privacy`` in the same run and ``ratio_to_plain`` to ``plain``. Writes
``benchmarks/results/synth-cpu.json`` after every synthesizer; rows of synthesizers that were not asked for
stay. ``--quick`` only shows that everything runs: it writes nothing without ``--output``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hauberk.files import read_json, write_json
from hauberk.gradients import trainable
from hauberk.mechanisms import EpsilonDelta
from hauberk.randomness import SeededRandomness
from hauberk.synthesis import WARD, Patients, Schema, find_preset
from hauberk.synthesis.base import Task
from hauberk.synthesis.catalogue import find_synthesizer
from hauberk.synthesis.game import Game, NoiseBesideRows
from hauberk.synthesis.neural import NeuralSynthesizer
from hauberk.synthesis.packing import Packing
from hauberk.synthesis.scales import Scales

RESULTS = Path(__file__).parent / "results"
SYNTHESIZERS = ("igamt", "vae", "gan")
PRIVATE, WITHOUT, PLAIN = "private", "without privacy", "plain"
BUDGET = EpsilonDelta(epsilon=3.0, delta=1e-5)


def made_up(schema: Schema, count: int) -> Patients:
    """Patients of this shape: a fifth of all cells observed, lengths of most of the horizon."""
    chance = torch.Generator().manual_seed(0)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=chance)

    steps, features = schema.time.steps, len(schema.temporal)
    return Patients.from_vectors(
        schema,
        static=uniform(count, schema.static_width),
        static_observed=uniform(count, len(schema.static)) < 0.9,
        increments=uniform(count, steps) / steps,
        values=uniform(count, steps, schema.temporal_width),
        observed=uniform(count, steps, features) < 0.2,
        lengths=torch.randint((steps + 1) // 2, steps + 1, (count,), generator=chance),
    )


class PlainStep:
    """The mean loss of a batch, its gradient, Adam, and what the game does after a step."""

    def __init__(self, game: Game, rows: Tensor, *, batch: int, lr: float) -> None:
        self._game, self._rows, self._batch, self._step = game, rows, batch, 0
        self._weights = [weight for weight in game.parameters() if weight.requires_grad]
        self._optimizer = torch.optim.Adam(self._weights, lr=lr)
        self._views = NoiseBesideRows(game.noise_width)

    def __call__(self) -> None:
        chosen = torch.randint(len(self._rows), (self._batch,))
        rows, noise = self._views(self._rows[chosen], records=chosen, step=self._step, key=(1, 2))
        loss = self._game(rows[:, 0], noise[:, 0]).mean()
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._game.after_step(step=self._step, steps=10_000, key=(1, 2))
        self._step += 1


def steps_of(name: str, schema: Schema, *, quick: bool) -> dict[str, Callable[[], object]]:
    """A training step of each contender, ready to be taken again and again."""
    patients = made_up(schema, 64 if quick else 1000)
    row = find_synthesizer(name)
    settings = replace(row.settings("tiny" if quick else "full", private=True), epochs=1000.0)
    randomness = SeededRandomness(0)
    found: dict[str, Callable[[], object]] = {}
    for contender, budget in ((PRIVATE, BUDGET), (WITHOUT, None), (PLAIN, None)):
        task = Task(schema=schema, records=len(patients), budget=budget, noise_seed=0)
        model = row.kind(task, settings)
        assert isinstance(model, NeuralSynthesizer)
        scales = Scales.release(
            patients, noise_multiplier=model.scales_noise, randomness=randomness, step=2**40
        )
        trainer, game = model.trainer(patients, scales, randomness=randomness)
        assert trainable(game)
        found[contender] = trainer.advance
        if contender == PLAIN:
            found[contender] = PlainStep(
                game, Packing(scales).pack(patients), batch=trainer.plan.batch, lr=settings.lr
            )
    return found


def step_rows(name: str, schema: Schema, *, repeat: int, quick: bool) -> list[dict[str, Any]]:
    steps = steps_of(name, schema, quick=quick)
    times: dict[str, list[float]] = {contender: [] for contender in steps}
    for turn in range(repeat + 1):
        for contender, step in steps.items():
            seconds = _timed(step)
            if turn > 0:  # the first one of everybody warms up
                times[contender].append(seconds)
    medians = {contender: statistics.median(each) for contender, each in times.items()}
    return [
        {
            "device": "cpu",
            "synthesizer": name,
            "question": "step",
            "contender": contender,
            "seconds": seconds,
            "ratio": seconds / medians[WITHOUT],
            "ratio_to_plain": seconds / medians[PLAIN],
            "repetitions": repeat,
        }
        for contender, seconds in medians.items()
    ]


def generation_row(name: str, schema: Schema, *, patients: int, quick: bool) -> dict[str, Any]:
    learned = made_up(schema, 64)
    row = find_synthesizer(name)
    settings = replace(row.settings("tiny" if quick else "full", private=False), batch=32, epochs=1.0)
    model = row.kind(Task(schema=schema, records=64, budget=None), settings).fit(learned)
    seconds = _timed(lambda: model.sample(patients, seed=0))
    return {
        "device": "cpu",
        "synthesizer": name,
        "question": "generation",
        "contender": WITHOUT,
        "patients": patients,
        "seconds": seconds,
        "threads": torch.get_num_threads(),
    }


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _write(rows: list[dict[str, Any]], names: Sequence[str], path: Path) -> None:
    kept = read_json(path) if path.exists() else []
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, [row for row in kept if row["synthesizer"] not in names] + rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--synthesizers", default=",".join(SYNTHESIZERS))
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path, default=None)
    asked = parser.parse_args()
    quick = asked.quick
    schema = WARD if quick else find_preset("physionet2012").schema
    folder = asked.output if asked.output is not None else (None if quick else RESULTS)
    done: list[dict[str, Any]] = []
    names: list[str] = []
    for name in asked.synthesizers.split(","):
        rows = step_rows(name, schema, repeat=2 if quick else asked.repeat, quick=quick)
        rows.append(generation_row(name, schema, patients=100 if quick else 10_000, quick=quick))
        for row in rows:
            more = f", {row['ratio']:.2f} of without privacy" if "ratio" in row else ""
            print(
                f"{name:8} {row['question']:10} {row['contender']:16} {row['seconds']:.3f} s{more}",
                flush=True,
            )
        done += rows
        names.append(name)
        if folder is not None:
            _write(done, names, folder / "synth-cpu.json")


if __name__ == "__main__":
    main()
