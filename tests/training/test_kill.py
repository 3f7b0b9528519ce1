"""SIGKILL at any moment: no event is lost, and the resumed run ends in the same weights, bit for bit.

The tests start this file as a program that imports hauberk once and then forks: a child begins or goes on
with a run, and is killed by the clock or at a chosen call of the operating system. The child notes every step
in a file *before* it releases its noise; the event list on disk must always count at least those.
"""

from __future__ import annotations

import builtins
import errno
import io
import itertools
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
SEED = 20261116  # of the kill points


Drive = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def program() -> Iterator[subprocess.Popen[str]]:
    # a forked child must not wait for threads of its parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, __file__]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.communicate()


@pytest.fixture
def drive(program: subprocess.Popen[str], tmp_path: Path) -> Drive:
    """Run a scenario in the program; what it asserts fails the test."""

    def run(scenario: str, *numbers: int) -> dict[str, Any]:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps([str(tmp_path), scenario, *numbers]) + "\n")
        program.stdin.flush()
        answer: dict[str, Any] = json.loads(program.stdout.readline())
        assert "problem" not in answer, answer["problem"]
        return answer

    return run


def test_twenty_random_kills_lose_no_event_and_change_no_weight(drive: Drive) -> None:
    answer = drive("clock", 20, SEED)
    assert answer["kills"] == 20
    assert answer["runs killed more than once"] > 0


@pytest.mark.slow
def test_two_hundred_random_kills(drive: Drive) -> None:
    answer = drive("clock", 200, SEED + 1)
    assert answer["kills"] == 200
    assert answer["kills while steps ran"] >= 50
    assert answer["resumed from a damaged checkpoint"] > 0


def test_a_kill_before_every_single_change_of_a_file(drive: Drive) -> None:
    answer = drive("calls", 1)
    assert answer["kills"] >= 60
    assert answer["from the start"] > 0


@pytest.mark.slow
def test_a_second_kill_at_changes_that_a_resumed_run_makes(drive: Drive) -> None:
    assert drive("calls", 2)["kills"] >= 200


@pytest.mark.parametrize("scenario", ["full", "unwritable"])
def test_a_disk_that_fails_at_some_moment_ends_the_run_in_a_sentence(scenario: str, drive: Drive) -> None:
    assert drive(scenario, 5)["failures"] >= 12


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["full", "unwritable"])
def test_a_disk_that_fails_at_any_moment_ends_the_run_in_a_sentence(scenario: str, drive: Drive) -> None:
    assert drive(scenario, 1)["failures"] >= 60


def test_a_real_limit_on_the_size_of_files(drive: Drive) -> None:
    answer = drive("limit")
    assert answer["failures"] == 2


def test_a_real_full_disk(drive: Drive, tmp_path: Path) -> None:
    """A file system of 64 kB, where this machine lets one be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this process may not mount file systems")
    try:
        assert drive("disk")["failures"] == 1
    finally:
        subprocess.run(["umount", str(disk)], capture_output=True, check=True)


def test_two_processes_do_not_go_on_with_the_same_run(drive: Drive) -> None:
    assert drive("twice")["sentence"].startswith("another process is at work on ")


# --- from here on: the program ---

Act = Callable[[], None]
FILE_CALLS = ("mkdir", "chmod", "fsync", "replace", "unlink")


class Writing:
    """A file whose writing can be interrupted in the middle."""

    def __init__(self, handle: Any, halfway: Callable[[str], None]) -> None:
        self._handle, self._halfway = handle, halfway

    def __enter__(self) -> Writing:
        self._handle.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._handle.__exit__(*problem)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def write(self, content: bytes) -> None:
        self._handle.write(content[: len(content) // 2])
        self._handle.flush()
        self._halfway("write")
        self._handle.write(content[len(content) // 2 :])


def intercept(before: Callable[[str], None]) -> None:
    """Have ``before`` called with its name before every call that changes a file; in a child only."""

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*arguments: Any, **options: Any) -> Any:
            before(name)
            return call(*arguments, **options)

        return instead

    for name in FILE_CALLS:
        setattr(os, name, watched(name, getattr(os, name)))
    tempfile.mkstemp = watched("mkstemp", tempfile.mkstemp)
    plain_open = io.open  # os.fdopen goes through it as well

    def watched_open(path: Any, mode: str = "r", *words: Any, **options: Any) -> Any:
        handle = plain_open(path, mode, *words, **options)
        return handle if mode.strip("bt") == "r" else Writing(handle, before)

    io.open = builtins.open = watched_open


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(number: int, act: Callable[[str], None]) -> Act:
    """Watch for the call with this number and ``act`` on it, and on all that follow."""

    def prepare() -> None:
        numbers = itertools.count()

        def before(name: str) -> None:
            if next(numbers) >= number:
                act(name)

        intercept(before)

    return prepare


def failing(code: int, calls: tuple[str, ...]) -> Callable[[str], None]:
    def act(name: str) -> None:
        if name in calls:
            raise OSError(code, os.strerror(code))

    return act


class Course:
    """One small training, and the ways in which it can end."""

    def __init__(
        self, root: Path, *, epochs: int, pause: float = 0.0, checkpoint_seconds: float = math.inf
    ) -> None:
        import torch

        import hauberk as hb
        from hauberk.data import Dataset
        from hauberk.gradients import AdaptiveClip
        from hauberk.training import Optimisation

        torch.set_num_threads(1)
        torch.manual_seed(0)
        y = torch.randint(0, 3, (32,))
        self.data = Dataset(name="toy", x=torch.rand(32, 9) * 0.3 + 0.3 * y.view(-1, 1), y=y, classes=3)
        plan = hb.PrivacyPlan(records=32, batch=8, epochs=epochs, noise_multiplier=1.0, delta=1e-3)
        self.method = hb.methods.PrivateSmoothing(
            torch.nn.Linear(9, 3),
            plan=plan,
            sigma=0.2,
            clipping=AdaptiveClip(bound=0.3),
            optimisation=Optimisation(lr=0.1, optimizer="adam"),
            noise_seed=5,
        )
        self.root, self.pause, self.checkpoint_seconds = root, pause, checkpoint_seconds
        self._names = itertools.count()
        self.epoch = 4
        self.method.fit(self.data)  # what is imported late is imported here, once
        begin = time.monotonic()
        reference = self.fresh()
        assert self.ended(self.fork(reference)) == 0
        self.seconds = time.monotonic() - begin
        self.weights = (reference / "model.safetensors").read_bytes()
        assert self.counted(reference) == self.released(reference) == plan.steps == epochs * self.epoch

    def fresh(self) -> Path:
        return self.root / f"run-{next(self._names)}"

    def log(self, run: Path) -> Path:
        return run.with_name(f"{run.name}.log")

    def released(self, run: Path) -> int:
        """Steps whose noise was released, or was just about to be."""
        return self.log(run).stat().st_size if self.log(run).exists() else 0

    def counted(self, run: Path) -> int:
        from hauberk.training import RunFolder

        return sum(event.count for event in RunFolder(run).read_events().events) if begun(run) else 0

    def fork(self, run: Path, prepare: Act = lambda: None) -> int:
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            status = self.train(run, prepare)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def train(self, run: Path, prepare: Act) -> int:
        """Begin the run in this folder, or go on with it, as `hauberk train` does; 2 for a sentence."""
        from hauberk.errors import RequestError
        from hauberk.training import RunFolder, journal
        from hauberk.training.noise import SumNoise

        journal.CHECKPOINT_SECONDS, journal.CHECKPOINT_SHARE = self.checkpoint_seconds, math.inf
        release = SumNoise.release
        descriptor = os.open(self.log(run), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def noted(noise: SumNoise, *arguments: Any) -> Any:
            os.write(descriptor, b".")
            return release(noise, *arguments)

        SumNoise.release = noted
        prepare()
        try:
            folder = RunFolder.check_free(run, force=True)
            if not (run / "config.json").exists():
                folder.create()
                folder.write_config({})
            if folder.trained:
                folder.remove_checkpoint()
                return 0
            self.method.fit(
                self.data,
                folder=folder,
                resume=folder.begun,
                progress=lambda *_: time.sleep(self.pause),
            )
        except RequestError as error:
            os.write(
                os.open(self.log(run).with_suffix(".sentence"), os.O_WRONLY | os.O_CREAT), str(error).encode()
            )
            return 2
        return 0

    def ended(self, child: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def sentence(self, run: Path) -> str:
        return self.log(run).with_suffix(".sentence").read_text()

    def check_counts(self, run: Path, interruptions: int) -> None:
        counted, released = self.counted(run), self.released(run)
        assert counted >= released, f"{run}: {released} steps released, {counted} counted"
        assert counted <= released + (interruptions + 1) * self.epoch, f"{run}: {counted} for {released}"

    def finish(self, run: Path, interruptions: int) -> None:
        """Go on to the end: the same weights, every step counted, nothing secret left behind."""
        assert self.ended(self.fork(run)) == 0, run
        assert (run / "model.safetensors").read_bytes() == self.weights, f"{run}: other weights"
        self.check_counts(run, interruptions)
        left = {path.name for path in (run / "private").iterdir()}
        assert left <= {"diagnostics.jsonl"}, left
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert steps == [self.epoch * (i + 1) for i in range(self.method.plan.steps // self.epoch)], steps


def begun(run: Path) -> bool:
    return (run / "events.json").exists()


def killed_by_the_clock(root: Path, wanted: int, seed: int) -> dict[str, int]:
    course = Course(root, epochs=6, pause=0.002, checkpoint_seconds=0.005)
    chance = random.Random(seed)
    kills = repeated = damaged = while_running = 0
    while kills < wanted:
        run, interruptions = course.fresh(), 0
        while kills < wanted and (interruptions == 0 or chance.random() < 0.4):
            child = course.fork(run)
            time.sleep(chance.uniform(0, course.seconds))
            os.kill(child, signal.SIGKILL)
            if course.ended(child) != -signal.SIGKILL:
                break  # it was faster
            interruptions += 1
            kills += 1
            course.check_counts(run, interruptions)
            while_running += course.released(run) > 0 and not (run / "model.safetensors").exists()
            if chance.random() < 0.3:
                damaged += damage_newest(run)
        repeated += interruptions > 1
        course.finish(run, interruptions)
    return {
        "kills": kills,
        "kills while steps ran": while_running,
        "runs killed more than once": repeated,
        "resumed from a damaged checkpoint": damaged,
    }


def damage_newest(run: Path) -> bool:
    newest, previous = (
        run / "private" / name for name in ("checkpoint.safetensors", "checkpoint-previous.safetensors")
    )
    if not (newest.exists() and previous.exists()):
        return False
    newest.write_bytes(newest.read_bytes()[:-9] + b"otherwise")
    return True


def killed_at_calls(root: Path, depth: int) -> dict[str, int]:
    """Of a run of two epochs; with depth 2 also at some calls of every run that goes on after such a kill."""
    course = Course(root, epochs=2)
    kills = from_start = 0
    for number in itertools.count():
        run = course.fresh()
        status = course.ended(course.fork(run, at_call(number, lambda name: die())))
        if status == 0:
            return {"kills": kills, "from the start": from_start}
        assert status == -signal.SIGKILL
        kills += 1
        from_start += not begun(run)
        course.check_counts(run, 1)
        for again in itertools.count(number % 13, 13) if depth == 2 else ():
            copy = course.fresh()
            if run.exists():
                shutil.copytree(run, copy)
            shutil.copy(course.log(run), course.log(copy))
            status = course.ended(course.fork(copy, at_call(again, lambda name: die())))
            if status == 0:
                break
            kills += 1
            course.check_counts(copy, 2)
            course.finish(copy, 2)
            shutil.rmtree(copy)
        course.finish(run, 1)
    raise AssertionError


def failing_disk(root: Path, code: int, calls: tuple[str, ...], stride: int) -> dict[str, int]:
    course = Course(root, epochs=2)
    for number in itertools.count(0, stride):
        run = course.fresh()
        status = course.ended(course.fork(run, at_call(number, failing(code, calls))))
        if status == 0:
            return {"failures": number // stride}
        assert status == 2, f"call {number} ended the run with {status} instead of a sentence"
        sentence = course.sentence(run)
        assert os.strerror(code) in sentence, sentence
        assert sentence.startswith(("cannot write ", "cannot create ", "cannot remove ")), sentence
        assert "\n" not in sentence
        course.check_counts(run, 1)
        course.finish(run, 1)
    raise AssertionError


def limited_files(root: Path) -> dict[str, int]:
    """First a limit that no checkpoint fits into, then one that comes while steps run."""
    course = Course(root, epochs=2)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))

    def limit_later() -> None:
        from hauberk.training.noise import SumNoise

        release = SumNoise.release

        def limiting(noise: SumNoise, clipped: Any, step: int) -> Any:
            if step == 5:
                limit()
            return release(noise, clipped, step)

        SumNoise.release = limiting

    for prepare in (limit, limit_later):
        run = course.fresh()
        assert course.ended(course.fork(run, prepare)) == 2
        assert os.strerror(errno.EFBIG) in course.sentence(run)
        assert "resumed" in course.sentence(run)
        course.check_counts(run, 1)
        course.finish(run, 1)
    return {"failures": 2}


def full_disk(root: Path) -> dict[str, int]:
    course = Course(root, epochs=2)
    disk = root / "disk"
    run = disk / "run"

    def fill() -> None:
        from hauberk.training.noise import SumNoise

        release = SumNoise.release

        def filling(noise: SumNoise, clipped: Any, step: int) -> Any:
            if step == 5:
                with (disk / "ballast").open("wb", buffering=0) as ballast:
                    try:
                        while ballast.write(b"\0" * 512):
                            pass
                    except OSError:
                        pass
            return release(noise, clipped, step)

        SumNoise.release = filling

    course.log = lambda each: root / f"{each.name}.log"
    assert course.ended(course.fork(run, fill)) == 2
    assert os.strerror(errno.ENOSPC) in course.sentence(run)
    course.check_counts(run, 1)
    (disk / "ballast").unlink()
    course.finish(run, 1)
    return {"failures": 1}


def run_twice(root: Path) -> dict[str, str]:
    """A second process that resumes a run whose first is still alive would forget its events."""
    course = Course(root, epochs=2)
    course.pause = 0.2
    run = course.fresh()
    first = course.fork(run)
    while not begun(run):
        time.sleep(0.01)
    assert course.ended(course.fork(run)) == 2
    assert course.ended(first) == 0
    course.finish(run, 0)
    return {"sentence": course.sentence(run)}


def answer(folder: str, scenario: str, *numbers: int) -> dict[str, Any]:
    root = Path(folder)
    creating = ("mkdir", "mkstemp", "write", "fsync")
    scenarios: dict[str, Callable[..., dict[str, Any]]] = {
        "clock": lambda wanted, seed: killed_by_the_clock(root, wanted, seed),
        "calls": lambda depth: killed_at_calls(root, depth),
        "full": lambda stride: failing_disk(root, errno.ENOSPC, creating, stride),
        "unwritable": lambda stride: failing_disk(root, errno.EACCES, (*FILE_CALLS, "mkstemp"), stride),
        "limit": lambda: limited_files(root),
        "disk": lambda: full_disk(root),
        "twice": lambda: run_twice(root),
    }
    return scenarios[scenario](*numbers)


def main() -> None:
    from hauberk.training.checkpoints import CheckpointNotice

    warnings.simplefilter("ignore", CheckpointNotice)
    for line in sys.stdin:
        try:
            said = answer(*json.loads(line))
        except Exception:
            said = {"problem": traceback.format_exc()}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
