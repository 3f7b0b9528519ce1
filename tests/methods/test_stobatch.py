"""Sound StoBatch: two noises, one certificate, the plan's own epsilon, by one process or by two.

This file run as a script is one of two processes (see `_process`).
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan, prove
from hauberk.certify import NoiseLayers
from hauberk.certify.first_map import find_first_map
from hauberk.certify.gains import gain
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.files import read_tensors, write_tensors
from hauberk.gradients import GeneralPathNotice
from hauberk.methods.adversarial_views import AdversarialViews
from hauberk.methods.base import Method
from hauberk.methods.published_stobatch import PublishedStoBatch
from hauberk.methods.run import AuditSettings, Run
from hauberk.methods.settings import TrainSettings
from hauberk.methods.shared_noise import SharedNoise
from hauberk.methods.stobatch import ATTACK_SIZE, LAYER_SHARE, StoBatch
from hauberk.training import LayerNoiseViews, NoiseAfter, Optimisation
from hauberk.training.distribution import Ranks
from hauberk.training.layer_noise import map_norm

SHAPE, RECORDS = (1, 8, 8), 96
AUDIT = AuditSettings(tested=16, samples=200, attacked=4, attack_steps=3, attack_draws=4)
ADAM = Optimisation(lr=1e-2, optimizer="adam", averaging=0.0, schedule="constant")


def images(rows: int = RECORDS) -> Dataset:
    """A bright bar on the left or on the right: two classes that a few steps can tell apart."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, *SHAPE, generator=generator) / 2
    y = torch.arange(rows) % 2
    x[y == 0, :, :, :3] += 0.5
    x[y == 1, :, :, 5:] += 0.5
    return Dataset(name="made up", x=x, y=y, classes=2)


def convolutional() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(48, 2)
        )


def plan(**changes: float) -> PrivacyPlan:
    usual = {"records": RECORDS, "batch": 32, "epochs": 2.0, "noise_multiplier": 1.0, "delta": 1e-3}
    return PrivacyPlan(**{**usual, **changes})


def stobatch(**changes: object) -> StoBatch:
    model = changes.pop("model", None) or convolutional()
    usual = {"plan": plan(), "sigma": 0.25, "attack_steps": 2, "clipping": 1.0}
    return StoBatch(model, **{**usual, **changes})  # type: ignore[arg-type]


def published(**changes: object) -> PublishedStoBatch:
    usual = {"plan": plan(), "claimed_epsilon": 50.0, "attack_steps": 2, "optimisation": ADAM}
    return PublishedStoBatch(SharedNoise(convolutional(), shape=SHAPE), **{**usual, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run() -> Run:
    return stobatch(plan=plan(epochs=8.0, noise_multiplier=0.4), optimisation=ADAM).fit(images())


# --- noise and certificate ----------------------------------------------------------------------------------


def test_there_is_noise_at_the_input_and_after_the_first_map(run: Run) -> None:
    noise = run.noise
    assert isinstance(noise, NoiseLayers)
    norm = float(map_norm(convolutional()[0]))  # before training
    assert (noise.kind, noise.at_input) == ("gaussian", 0.25)
    assert noise.after_first_map == pytest.approx(LAYER_SHARE * 0.25 * norm, rel=1e-6)
    other = stobatch(layer_sigma=0.5).fit(images())
    assert other.noise is not None
    assert other.noise.after_first_map == pytest.approx(0.5 * norm, rel=1e-6)


def test_the_noises_compose_in_parallel(run: Run) -> None:
    """``1 / sqrt(sigma_x^2 + 1 / s^2)`` with s the norm of the whitened map, here by hand from its matrix."""
    assert run.noise is not None
    first_map = find_first_map(run.model, SHAPE)
    units = torch.eye(64, dtype=torch.float64).view(64, *SHAPE)
    layer = run.model[0]
    matrix = nn.functional.conv2d(units, layer.weight.detach().double(), stride=2, padding=1).flatten(1)
    whitened = float(torch.linalg.matrix_norm(matrix, 2)) / float(run.noise.after_first_map)
    expected = 1 / math.sqrt(0.25**2 + 1 / whitened**2)
    found = gain(run.noise, "l2", shape=SHAPE, first_map=first_map)
    assert found.exact
    assert found.value == pytest.approx(expected, rel=1e-6)
    assert found.value < min(1 / 0.25, whitened)
    assert run.classifier.gain_of("l2", SHAPE).value == found.value


def test_both_noises_give_larger_radii_than_the_input_noise_alone(run: Run) -> None:
    assert run.noise is not None
    alone = gain(NoiseLayers(at_input=0.25), "l2", shape=SHAPE).value
    assert run.classifier.gain_of("l2", SHAPE).value < alone == pytest.approx(4.0)


def test_training_sees_the_noise_that_is_certified() -> None:
    method = stobatch()
    constants = {"scales": torch.full((3, 4, 4), 0.125)}
    made = method.record_views(method.model, SHAPE, constants)
    assert isinstance(made, AdversarialViews)
    assert isinstance(made.noise, LayerNoiseViews)
    assert (made.noise.at_input, made.noise.views, made.size) == (0.25, 2, ATTACK_SIZE)
    assert made.noise.shape == (3, 4, 4)
    assert isinstance(made.network, NoiseAfter)
    assert made.network.network is method.model  # the weights of the moment, not a copy
    layers = method.noise_layers(constants)
    assert (layers.at_input, layers.after_first_map) == (0.25, 0.125)


def test_the_first_maps_norm_is_held_where_it_was() -> None:
    trained = stobatch(optimisation=Optimisation(lr=3.0, averaging=0.0)).fit(images()).model
    before, after = map_norm(convolutional()[0]), map_norm(trained[0])
    assert float(after) <= float(before) * (1 + 1e-5)
    assert not torch.equal(trained[0].weight, convolutional()[0].weight)


# --- privacy ------------------------------------------------------------------------------------------------


def test_a_card_proves_what_it_claims_and_no_more_than_was_asked_for() -> None:
    asked = PrivacyPlan.calibrate(epsilon=2.0, delta=1e-3, records=RECORDS, batch=32, epochs=4)
    run = stobatch(plan=asked).fit(images())
    assert run.ledger.events == (asked.event(),)  # two views of a record cost what one costs
    card = run.audit(images(), settings=AUDIT)
    assert (card.method, card.variant) == ("stobatch", "sound")
    assert card.privacy.claimed is not None
    assert card.privacy.proven is not None
    assert 1.9 < card.privacy.proven.epsilon == card.privacy.claimed.epsilon <= 2.0
    assert card.privacy.proven.epsilon == prove(run.ledger.events, 1e-3).epsilon
    assert card.robustness.norm == "l2"
    assert card.robustness.claimed is not None
    assert card.robustness.proven is not None
    assert card.robustness.claimed.average_radius == card.robustness.proven.average_certified_radius
    assert card.robustness.observed is not None


def test_it_learns_and_certifies(run: Run) -> None:
    card = run.audit(images(), settings=AUDIT)
    assert card.utility is not None
    assert card.utility.accuracy > 0.9
    assert card.robustness.proven is not None
    assert card.robustness.proven.average_certified_radius > 0.2
    assert card.robustness.observed is not None
    assert card.robustness.observed.broken == 0


def test_it_takes_the_fast_path() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", GeneralPathNotice)
        trained = stobatch().fit(images())
    assert trained.ledger.steps == trained.plan.steps


# --- settings -----------------------------------------------------------------------------------------------


def test_the_settings_of_a_run_reach_the_method() -> None:
    chosen = TrainSettings(method="stobatch", epsilon=2.0, sigma=0.5, training_attack_steps=7)
    method = StoBatch.from_settings(convolutional(), chosen, plan())
    assert (method.input_sigma, method.sigma, method.attack_size) == (0.5, 0.05, ATTACK_SIZE)
    assert {each.steps for each in method.attacks} == {7}
    smaller = TrainSettings(method="stobatch", epsilon=2.0, training_attack_size=0.1)
    assert StoBatch.from_settings(convolutional(), smaller, plan()).attack_size == 0.1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"sigma": math.nan}, "sigma must be positive"),
        ({"attack_size": 0.0}, "attack_size"),
        ({"attack_size": 1.5}, "attack_size"),
        ({"attack_steps": 0}, "at least one step"),
        ({"layer_sigma": 0.0}, "without noise there is no certificate"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        stobatch(**settings)


def test_a_network_without_a_first_map_is_refused_before_training() -> None:
    with pytest.raises(RequestError, match="more than reshape"):
        stobatch(model=nn.Sequential(nn.Tanh(), nn.Flatten(), nn.Linear(64, 2))).fit(images())


# --- two processes ------------------------------------------------------------------------------------------

VARIANTS = {"sound": stobatch, "paper": published}


def weights(trained: Run) -> Tensor:
    return torch.cat([each.flatten() for _, each in sorted(trained.model.state_dict().items())])


def seeded(variant: str) -> Method:
    return VARIANTS[variant](noise_seed=3, optimisation=ADAM)


def _process(folder: str) -> None:
    """One of two: trains both variants with the other and writes down what came out."""
    seen: dict[str, Tensor] = {}
    with Ranks.from_environment(timeout=60) as ranks:
        for variant in VARIANTS:
            trained = seeded(variant).fit(images(), ranks=ranks)
            seen[f"weights/{variant}"] = weights(trained)
            events = json.dumps(trained.ledger.to_json()).encode()
            seen[f"events/{variant}"] = torch.frombuffer(bytearray(events), dtype=torch.uint8)
        write_tensors(Path(folder) / f"seen_{ranks.rank}.safetensors", seen)


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder)],
            env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    return [read_tensors(folder / f"seen_{rank}.safetensors") for rank in range(2)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_processes_train_what_one_trains(by_two: list[dict[str, Tensor]], variant: str) -> None:
    alone = seeded(variant).fit(images())
    leader, other = (each[f"weights/{variant}"] for each in by_two)
    assert torch.equal(leader, other)
    torch.testing.assert_close(leader, weights(alone), rtol=1e-3, atol=1e-4)
    events = json.loads(bytes(by_two[0][f"events/{variant}"].tolist()))
    assert events == alone.ledger.to_json()


if __name__ == "__main__":
    torch.set_num_threads(1)
    _process(sys.argv[1])
