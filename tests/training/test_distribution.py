"""Training by two processes: the same sums, the same noise once, the same plan as by one.

The processes are started once for most tests: this file run as a script is one of them (see `_WORK`).
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from hauberk.accounting import PrivacyPlan
from hauberk.errors import RequestError
from hauberk.files import read_tensors, write_tensors
from hauberk.gradients import AdaptiveClip, ClippedSum, trainable
from hauberk.randomness import SeededRandomness, SystemRandomness
from hauberk.training import NoisyViews, Optimisation, PrivateTrainer
from hauberk.training.distribution import ProcessLost, Ranks
from hauberk.training.shaping import AdaClipShaping

ALONE = Ranks.alone()
SEEDS = range(5)


def plan(**changes: float) -> PrivacyPlan:
    constants = {"records": 96, "batch": 24, "epochs": 4, "noise_multiplier": 1.0, "delta": 1e-3}
    return PrivacyPlan(**{**constants, **changes})


def data(rows: int = 96, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (rows,), generator=generator)
    return torch.rand(rows, 9, generator=generator) + 0.5 * torch.eye(3)[y].repeat(1, 3), y


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 3))


def trainer(
    ranks: Ranks = ALONE, *, own: tuple[Tensor, Tensor] | None = None, **changes: object
) -> PrivateTrainer:
    """With the shard of ``ranks``, or with the records given."""
    x, y = own or tuple(each[ranks.shard] for each in data())
    settings = {
        "plan": plan(),
        "views": NoisyViews(sigma=0.25, views=2),
        "clipping": 0.5,
        "optimisation": Optimisation(lr=1.0),
        "randomness": SeededRandomness(7),
        **changes,
    }
    network = settings.pop("model", None) or model()
    if settings.pop("shaped", False):
        settings["shaping"] = AdaClipShaping(trainable(network))
    return PrivateTrainer(network, x, y, **settings, ranks=ranks)


def weights(trained: PrivateTrainer) -> Tensor:
    return torch.cat([weight.flatten() for weight in trainable(trained.model).values()])


def trained(each: PrivateTrainer) -> Tensor:
    each.run(lambda done: None)
    return weights(each)


def sums(clipped: ClippedSum) -> Tensor:
    return torch.cat([part.flatten() for part in clipped.gradients.values()])


def facts(clipped: ClippedSum) -> Tensor:
    return torch.tensor([clipped.records, clipped.clipped, clipped.loss], dtype=torch.float64)


KINDS = {
    "flat": dict,
    "adam": lambda: {"optimisation": Optimisation(lr=0.05, optimizer="adam")},
    "adaptive": lambda: {"clipping": AdaptiveClip(bound=2.0, count_deviation=5.0)},
    "shaped": lambda: {"shaped": True},
    "adaptive, no noise": lambda: {
        "clipping": AdaptiveClip(bound=2.0, count_deviation=5.0),
        "plan": plan(noise_multiplier=0.0),
    },
}

# rank 0 and rank 1 of an unequal cut hold these rows of the common data set
CUTS = {
    "unequal": (slice(0, 10), slice(10, 96)),
    "empty": (slice(0, 96), slice(0, 0)),
    "empty leader": (slice(0, 0), slice(0, 96)),
}


def cut(name: str, rank: int) -> tuple[Tensor, Tensor]:
    x, y = data()
    return x[CUTS[name][rank]], y[CUTS[name][rank]]


def accuracy(each: PrivateTrainer) -> float:
    each.run(lambda done: None)
    x, y = data(1000, seed=1)
    return float((each.averaged_model(model())(x).argmax(1) == y).double().mean())


def tiny(ranks: Ranks, seed: int, noise_seed: int) -> PrivateTrainer:
    own = tuple(part[ranks.shard] for part in data(96, seed=10 + seed))
    return trainer(ranks, own=own, randomness=SeededRandomness(noise_seed), model=model(seed))


# ---- what each of the two processes does ----------------------------------------------------------


def _sentence(act: object) -> bytes:
    try:
        act()
    except RequestError as error:
        return str(error).encode()
    return b"no error"


def _text(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def everything(ranks: Ranks, folder: Path) -> None:
    """Many short trainings; each process saves what it saw, and the tests compare."""
    seen: dict[str, Tensor] = {}
    each = trainer(ranks)
    for step in range(3):
        whole = ranks.sum_at_leader(each._clipped_sum())
        seen |= {f"sum/{step}": sums(whole), f"facts/{step}": facts(whole)}
        each.step += 1
    for name, kind in KINDS.items():
        each = trainer(ranks, **kind())
        seen[f"weights/{name}"] = trained(each)
        seen[f"events/{name}"] = torch.tensor(each.ledger.steps)
        seen[f"bound/{name}"] = torch.tensor(each.clipping.sensitivity, dtype=torch.float64)
        assert each.ledger.events == (each.plan.event(),)
    for name in CUTS:
        each = trainer(ranks, own=cut(name, ranks.rank), plan=plan(batch=96))  # everybody in every sample
        whole = ranks.sum_at_leader(each._clipped_sum())
        seen[f"cut sum/{name}"], seen[f"cut facts/{name}"] = sums(whole), facts(whole)
        seen[f"cut weights/{name}"] = trained(each)
    # other weights, frozen ones included, and another view key: the leader's count
    network = model(seed=ranks.rank)
    network[0].requires_grad_(False)
    each = trainer(ranks, model=network, randomness=SystemRandomness())
    seen["system/weights"], seen["system/frozen"] = trained(each), network[0].weight.detach()
    seen["system/key"] = torch.tensor(each._gather())
    sizes: list[int] = []
    each = trainer(ranks, randomness=SystemRandomness(), plan=plan(epochs=25))
    each.run(lambda done: sizes.append(done.private.records))
    seen["system/sizes"] = torch.tensor(sizes)
    # nothing but noise
    plain = Optimisation(lr=1.0, momentum=0.0, schedule="constant", averaging=0.0)
    nobody = tuple(part[:0] for part in data())
    each = trainer(ranks, own=nobody, randomness=SystemRandomness(), plan=plan(epochs=50), optimisation=plain)
    steps = [weights(each).clone()]
    each.run(lambda done: steps.append(weights(each).clone()))
    seen["noise"] = torch.stack(steps).diff(dim=0)
    # going on with another number of processes: from one to two, and from two to one
    each = trainer(ranks, clipping=AdaptiveClip(bound=2.0, count_deviation=5.0))
    if ranks.leader:
        each.restore(read_tensors(folder / "by_one.safetensors"))
    seen["resumed"] = trained(each)
    each = trainer(ranks, clipping=AdaptiveClip(bound=2.0, count_deviation=5.0))
    while each.step < 6:
        each.advance()
    write_tensors(folder / f"by_two_{ranks.rank}.safetensors", each.state())
    # sentences
    other = plan(noise_multiplier=1.0 + ranks.rank)
    seen["sentence/plan"] = _text(_sentence(trainer(ranks, plan=other).advance))
    seen["sentence/clip"] = _text(_sentence(trainer(ranks, clipping=1.0 + ranks.rank).advance))
    each = trainer(ranks)
    each.advance()
    weights_of_one = each.model[0].weight.data
    weights_of_one += 1e-6 * ranks.rank
    seen["sentence/weights"] = _text(_sentence(lambda: each.run(lambda done: None)))
    each = trainer(ranks)

    def end_at_three(done: object) -> None:
        if each.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    seen["sentence/terminated"] = _text(_sentence(lambda: each.run(end_at_three)))
    for seed in SEEDS:
        seen[f"accuracy/{seed}"] = torch.tensor(accuracy(tiny(ranks, seed, noise_seed=100 + seed)))
    write_tensors(folder / f"seen_{ranks.rank}.safetensors", seen)


def killed(ranks: Ranks, folder: Path) -> None:
    """The second process is killed in step 11; the leader has saved its state after every fourth."""
    each = trainer(ranks)

    def observe(done: object) -> None:
        if each.step == 10 and not ranks.leader:
            os.kill(os.getpid(), signal.SIGKILL)
        if each.step % 4 == 0 and ranks.leader:
            write_tensors(folder / "checkpoint.safetensors", each.state())

    each.run(observe)


_WORK = {"everything": everything, "killed": killed}


def _process(work: str, folder: str) -> None:
    try:
        with Ranks.from_environment(timeout=60) as ranks:
            _WORK[work](ranks, Path(folder))
    except RequestError as error:
        print(f"hauberk: {error}", file=sys.stderr)
        sys.exit(2)


# ---- the tests ------------------------------------------------------------------------------------


def start_two(command: list[str], **options: object) -> list[subprocess.Popen[str]]:
    """What torchrun does, with a hand on each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **meeting, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        for rank in range(2)
    ]


def finish(processes: list[subprocess.Popen[str]]) -> list[subprocess.CompletedProcess[str]]:
    finished = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=150)
            finished.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
    return finished


def two_processes(work: str, folder: Path) -> list[subprocess.CompletedProcess[str]]:
    return finish(start_two([__file__, work, str(folder)]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("two")
    each = trainer(clipping=AdaptiveClip(bound=2.0, count_deviation=5.0))
    while each.step < 6:
        each.advance()
    write_tensors(path / "by_one.safetensors", each.state())
    for done in two_processes("everything", path):
        assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def seen(folder: Path) -> list[dict[str, Tensor]]:
    """What the leader and the other process saw."""
    return [read_tensors(folder / f"seen_{rank}.safetensors") for rank in range(2)]


def test_the_sum_over_two_processes_is_that_of_one_for_the_same_sample(seen: list[dict[str, Tensor]]) -> None:
    alone = trainer()
    for step in range(3):
        whole = alone._clipped_sum()
        torch.testing.assert_close(seen[0][f"sum/{step}"], sums(whole), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(seen[0][f"facts/{step}"], facts(whole))
        assert 0 < seen[1][f"facts/{step}"][0] < whole.records  # the other process keeps its own
        alone.step += 1


@pytest.mark.parametrize("kind", KINDS)
def test_seeded_training_by_two_gives_the_weights_of_one(seen: list[dict[str, Tensor]], kind: str) -> None:
    alone = trainer(**KINDS[kind]())
    expected = trained(alone)
    torch.testing.assert_close(seen[0][f"weights/{kind}"], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(seen[0][f"weights/{kind}"], seen[1][f"weights/{kind}"])
    for each in seen:
        assert float(each[f"bound/{kind}"]) == pytest.approx(alone.clipping.sensitivity, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_two_processes_is_one_event_of_the_same_plan(
    seen: list[dict[str, Tensor]], kind: str
) -> None:
    """The workers check that their ledger holds the plan's event and nothing else: the same epsilon."""
    assert int(seen[0][f"events/{kind}"]) == int(seen[1][f"events/{kind}"]) == plan().steps


@pytest.mark.parametrize("name", CUTS)
def test_shards_may_be_unequal_or_empty(seen: list[dict[str, Tensor]], name: str) -> None:
    """Identities differ from those of one process, so the sum is rebuilt from both shards by hand."""
    parts = []
    for rank in range(2):
        each = trainer(Ranks(rank=rank, count=2), own=cut(name, rank), plan=plan(batch=96))
        each._view_key = SeededRandomness(7).view_key()  # nobody to ask
        parts.append(each._clipped_sum())
    expected = sums(parts[0]) + sums(parts[1])
    torch.testing.assert_close(seen[0][f"cut sum/{name}"], expected, rtol=1e-5, atol=1e-6)
    assert int(seen[0][f"cut facts/{name}"][0]) == 96
    assert torch.equal(seen[0][f"cut weights/{name}"], seen[1][f"cut weights/{name}"])


def test_the_leader_brings_weights_frozen_layers_and_view_key(seen: list[dict[str, Tensor]]) -> None:
    for name in ("system/weights", "system/frozen", "system/key"):
        assert torch.equal(seen[0][name], seen[1][name])
    assert torch.equal(seen[0]["system/frozen"], model(seed=0)[0].weight)


def test_two_processes_with_their_own_coins_draw_one_poisson_sample(seen: list[dict[str, Tensor]]) -> None:
    sizes, rate = seen[0]["system/sizes"].double(), plan().sampling_rate
    deviation = (96 * rate * (1 - rate)) ** 0.5
    assert abs(float(sizes.mean()) - 96 * rate) < 6 * deviation / len(sizes) ** 0.5
    assert abs(float(sizes.var()) / deviation**2 - 1) < 6 * (2 / len(sizes)) ** 0.5


def test_noise_is_added_once(seen: list[dict[str, Tensor]]) -> None:
    drawn = seen[0]["noise"].double() * plan().batch / (plan().noise_multiplier * 0.5)
    assert abs(float(drawn.mean())) < 6 / drawn.numel() ** 0.5
    assert abs(float(drawn.var()) - 1) < 6 * (2 / drawn.numel()) ** 0.5
    assert torch.equal(seen[0]["noise"], seen[1]["noise"])


def test_one_goes_on_from_two_and_two_from_one(folder: Path, seen: list[dict[str, Tensor]]) -> None:
    expected = trained(trainer(clipping=AdaptiveClip(bound=2.0, count_deviation=5.0)))
    torch.testing.assert_close(seen[0]["resumed"], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(seen[0]["resumed"], seen[1]["resumed"])
    for rank in range(2):  # nothing in a state belongs to one process
        alone = trainer(clipping=AdaptiveClip(bound=2.0, count_deviation=5.0))
        alone.restore(read_tensors(folder / f"by_two_{rank}.safetensors"))
        assert alone.step == 6
        torch.testing.assert_close(trained(alone), expected, rtol=1e-4, atol=1e-5)


SENTENCES = {
    "plan": "the processes of this training have different settings or models: start all of them with",
    "clip": "the processes of this training have different settings or models: start all of them with",
    "weights": "the weights of this training's processes differ at step 4: give all of them",
    "terminated": "this process was told to end at step 3: go on with hauberk train --resume RUN",
}


@pytest.mark.parametrize("name", SENTENCES)
def test_processes_that_do_not_fit_together_end_with_the_same_sentence(
    seen: list[dict[str, Tensor]], name: str
) -> None:
    for each in seen:
        assert each[f"sentence/{name}"].numpy().tobytes().decode().startswith(SENTENCES[name])


def test_two_processes_are_as_accurate_as_one_over_five_seeds(seen: list[dict[str, Tensor]]) -> None:
    two = torch.stack([seen[0][f"accuracy/{seed}"] for seed in SEEDS]).double()
    one = torch.tensor([accuracy(tiny(ALONE, seed, noise_seed=200 + seed)) for seed in SEEDS]).double()
    error = float(((two.var() + one.var()) / len(SEEDS)).sqrt())
    assert abs(float(two.mean() - one.mean())) < 4 * error
    assert float(one.mean()) > 0.5  # of three classes: there is something to compare
    assert error < 0.1


def test_a_killed_process_ends_the_other_with_a_sentence_and_a_state_to_go_on_from(tmp_path: Path) -> None:
    leader, other = two_processes("killed", tmp_path)
    assert other.returncode == -signal.SIGKILL
    assert leader.returncode == 2
    sentence = "hauberk: a process of this training was lost at step 10: go on with hauberk train --resume"
    assert sentence in leader.stderr
    assert "Traceback" not in leader.stderr
    alone = trainer()
    alone.restore(read_tensors(tmp_path / "checkpoint.safetensors"))
    assert alone.step == 8
    torch.testing.assert_close(trained(alone), trained(trainer()), rtol=1e-4, atol=1e-5)


def test_shards_are_disjoint_and_name_their_records_by_the_common_row() -> None:
    rows = torch.arange(10)
    held = [rows[Ranks(rank=rank, count=3).shard] for rank in range(3)]
    assert torch.cat(held).sort().values.equal(rows)
    for rank, own in enumerate(held):
        assert Ranks(rank=rank, count=3).records(torch.arange(len(own))).equal(own)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_seeded_coins_belong_to_the_record_and_not_to_the_process(count: int) -> None:
    randomness = SeededRandomness(3)
    whole = randomness.coins(step=5, count=100, probability=0.3)
    for rank in range(count):
        own = randomness.coins(
            step=5, count=len(whole[rank::count]), probability=0.3, first=rank, every=count
        )
        assert torch.equal(own, whole[rank::count])


def test_a_noise_that_looks_at_records_is_refused_by_several_processes() -> None:
    each = trainer(Ranks(rank=0, count=2))
    each.noise = SimpleNamespace(looks_at_records=True)
    with pytest.raises(RequestError, match="trains in one process"):
        each.advance()


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    ranks = Ranks.from_environment()
    assert (ranks.rank, ranks.count, ranks.leader) == (0, 1, True)
    assert torch.arange(5)[ranks.shard].equal(torch.arange(5))
    assert ranks.text_from_leader("itself") == "itself"
    assert ranks.device(torch.device("cuda", 1)) == torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"RANK": "first", "WORLD_SIZE": "2"}, "RANK is 'first' and not a number"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "process 2 of 2 does not exist"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, "did not come together"),
    ],
)
def test_a_wrong_environment_costs_one_sentence(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], sentence: str
) -> None:
    monkeypatch.delenv("MASTER_PORT", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RequestError, match=sentence) as caught:
        Ranks.from_environment(timeout=1)
    assert "\n" not in str(caught.value)


def test_every_process_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    asked = torch.device("cuda")
    assert Ranks(rank=3, count=4, local_rank=1).device(asked) == torch.device("cuda", 1) == taken[0]
    assert Ranks(rank=1, count=2, local_rank=1).device(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(RequestError, match="this machine has 2 GPUs"):
        Ranks(rank=2, count=4, local_rank=2).device(asked)
    with pytest.raises(RequestError, match="without a number"):
        Ranks(rank=1, count=2, local_rank=1).device(torch.device("cuda", 0))


def test_a_lost_process_is_told_with_the_run_that_can_go_on() -> None:
    lost = ProcessLost("a process of this training was lost").at(step=7).at(run=Path("runs/my run"))
    assert str(lost) == (
        "a process of this training was lost at step 7: go on with hauberk train --resume 'runs/my run'"
    )


# ---- the whole command ----------------------------------------------------------------------------

TRAIN = ["hauberk", "train", "--size", "tiny", "--device", "cpu", "--noise-seed", "3", "--json"]


def weights_in(run: Path) -> Tensor:
    weights = read_tensors(run / "model.safetensors")
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


def alone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_torchrun_trains_the_run_that_one_process_trains(tmp_path: Path) -> None:
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    two = alone(tmp_path, *torchrun, *TRAIN, "--name", "two")
    one = alone(tmp_path, *TRAIN, "--name", "one")
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    runs = tmp_path / "runs"
    torch.testing.assert_close(weights_in(runs / "two"), weights_in(runs / "one"), rtol=1e-3, atol=1e-4)
    assert (runs / "two" / "events.json").read_bytes() == (runs / "one" / "events.json").read_bytes()
    cards = [json.loads(each.stdout) for each in (one, two)]  # the leader alone speaks
    assert cards[0]["privacy"] == cards[1]["privacy"]
    refused = alone(tmp_path, *torchrun, *TRAIN, "--name", "two")
    assert refused.stderr.count("exists already: choose another --name") == 1


@pytest.mark.slow
def test_a_run_that_lost_a_process_is_resumed_by_any_number(tmp_path: Path) -> None:
    longer = ["-m", *TRAIN, "--epochs", "30", "--lr", "0.05"]
    whole = finish(start_two([*longer, "--name", "whole"], cwd=tmp_path))
    assert [process.returncode for process in whole] == [0, 0], whole[0].stderr
    processes = start_two([*longer, "--name", "lost"], cwd=tmp_path)
    lost = tmp_path / "runs" / "lost"
    while not (lost / "metrics.jsonl").exists():
        assert processes[0].poll() is None
        time.sleep(0.02)
    processes[1].kill()
    leader, _ = finish(processes)
    assert leader.returncode == 2
    assert re.fullmatch(
        r"hauberk: a process of this training was lost at step \d+: "
        r"go on with hauberk train --resume runs/lost\n",
        leader.stderr,
    )
    by_one = shutil.copytree(lost, tmp_path / "by_one")
    by_two = finish(start_two(["-m", "hauberk", "train", "--resume", "runs/lost"], cwd=tmp_path))
    assert [process.returncode for process in by_two] == [0, 0], by_two[0].stderr
    assert by_two[1].stdout == by_two[1].stderr == ""
    assert alone(tmp_path, "hauberk", "train", "--resume", "by_one").returncode == 0
    expected = weights_in(tmp_path / "runs" / "whole")
    assert torch.equal(weights_in(lost), expected)
    # another order of summation, and 240 steps that amplify it
    torch.testing.assert_close(weights_in(by_one), expected, rtol=1e-3, atol=2e-3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    _process(*sys.argv[1:])
