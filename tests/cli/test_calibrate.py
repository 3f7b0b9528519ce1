"""``hauberk calibrate``: agreed figures, every mechanism, and wrong requests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hauberk.cli.calibrate import OPTIONS
from hauberk.mechanisms import MECHANISMS

Run = Callable[..., Any]

EXTRA: dict[str, tuple[object, ...]] = {
    "gaussian": (),
    "analytic": (),
    "extended": (),
    "heterogeneous": ("--r", "0.2,0.3,0.5"),
    "multivariate": ("--covariance", "1,0.5;0.5,2"),
    "mixed": ("--transformed", "0.03,0.03", "--steps", 1000),
    "optimized-additive": ("--weights", "1,0.1,0.001", "--steps", 100, "--sampling-rate", 0.05),
    "laplace": (),
}
BROKEN = {"mixed", "optimized-additive"}


def request(name: str, *words: object, epsilon: float = 1.0) -> tuple[object, ...]:
    plain = ("calibrate", "--mechanism", name, "--epsilon", epsilon, "--delta", 1e-5, "--sensitivity", 1)
    return (*plain, *words)


def test_every_mechanism_with_a_sensitivity_has_a_row() -> None:
    assert set(EXTRA) == set(OPTIONS) == set(MECHANISMS) - {"functional"}


@pytest.mark.parametrize(
    ("name", "epsilon", "sigma"),
    [
        ("analytic", 1, 3.7306),
        ("analytic", 8, 0.6002),
        ("extended", 1, 4.8542),
        ("extended", 4, 1.2851),
        ("extended", 8, 0.6851),
        ("gaussian", 1, 4.8448),
    ],
)
def test_the_agreed_sigmas(hauberk: Run, name: str, epsilon: float, sigma: float) -> None:
    answer = json.loads(hauberk(*request(name, "--json", epsilon=epsilon)).out)
    assert list(answer) == ["mechanism", "sigma", "claimed", "proven"]
    assert answer["mechanism"] == name
    assert answer["sigma"] == pytest.approx(sigma, abs=5e-4)
    assert answer["claimed"] == {"epsilon": epsilon, "delta": 1e-5}
    assert list(answer["proven"]) == ["epsilon", "delta"]
    assert answer["proven"]["epsilon"] <= epsilon


@pytest.mark.parametrize("name", EXTRA)
def test_claimed_and_proven_of_every_mechanism(hauberk: Run, workplace: Path, name: str) -> None:
    done = hauberk(*request(name, *EXTRA[name], "--json"))
    assert done.code == 0
    answer = json.loads(done.out)
    assert answer["proven"]["delta"] == answer["claimed"]["delta"]
    assert (answer["proven"]["epsilon"] > answer["claimed"]["epsilon"] + 1e-9) == (name in BROKEN)
    assert not (workplace / "runs").exists()


@pytest.mark.parametrize("name", ["extended", "optimized-additive", "laplace"])
def test_without_json_there_is_a_table_and_a_plot(hauberk: Run, workplace: Path, name: str) -> None:
    done = hauberk(*request(name, *EXTRA[name]))
    assert done.code == 0
    assert "claimed" in done.out
    assert "proven" in done.out
    assert ("does not hold" in done.out) == (name in BROKEN)
    assert f"runs/calibrate/{name}.png" in done.out
    assert (workplace / "runs" / "calibrate" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_plot_goes_where_it_is_sent(hauberk: Run, workplace: Path) -> None:
    assert hauberk(*request("analytic", "--plot", "here/profile.svg", "--json")).code == 0
    assert b"<svg" in (workplace / "here" / "profile.svg").read_bytes()


def test_a_plain_sensitivity_counts_in_the_weakest_coordinate(hauberk: Run) -> None:
    uneven = json.loads(hauberk(*request("heterogeneous", "--r", "0.2,0.3,0.5", "--json")).out)
    analytic = json.loads(hauberk(*request("analytic", "--json")).out)
    assert min(uneven["sigma"]) == pytest.approx(analytic["sigma"])
    paper = hauberk(*request("heterogeneous", "--r", "0.2,0.3,0.5", "--calibration", "extended", "--json"))
    assert min(json.loads(paper.out)["sigma"]) == pytest.approx(4.8542, abs=5e-4)


def test_numbers_come_from_files_too(hauberk: Run, workplace: Path) -> None:
    np.save(workplace / "m.npy", np.array([[1.0, 0.5], [0.5, 2.0]]))
    (workplace / "r.csv").write_text("0.2,0.3,0.5\n")
    by_words = hauberk(*request("multivariate", *EXTRA["multivariate"], "--json"))
    assert hauberk(*request("multivariate", "--covariance", "m.npy", "--json")).out == by_words.out
    by_words = hauberk(*request("heterogeneous", *EXTRA["heterogeneous"], "--json"))
    assert hauberk(*request("heterogeneous", "--r", "r.csv", "--json")).out == by_words.out


def test_laplace_needs_no_delta(hauberk: Run) -> None:
    done = hauberk("calibrate", "--mechanism", "laplace", "--epsilon", 0.5, "--json")
    answer = json.loads(done.out)
    assert answer["sigma"] == pytest.approx(2 * 2**0.5)
    assert answer["claimed"] == {"epsilon": 0.5, "delta": 0.0}
    assert answer["proven"]["epsilon"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (request("gaussian", epsilon=2), "up to 1"),
        (request("heterogeneous", "--r", "0.5,0.5,0"), "positive"),
        (request("heterogeneous", "--r", "0.5,0.6"), "sum to 1"),
        (request("heterogeneous", "--r", "half,half"), "takes numbers"),
        (request("heterogeneous", "--r", "nowhere.csv"), "cannot read"),
        (request("heterogeneous"), "needs --r"),
        (request("multivariate", "--covariance", "1,2;2,1"), "eigenvalues"),
        (request("multivariate", "--covariance", "1,1;1,1"), "positive definite"),
        (request("multivariate", "--covariance", "1,2;3"), "different lengths"),
        (request("extended", "--steps", 3), "takes no --steps"),
        (request("extended", "--delta", 0), "between 0 and 1"),
        (request("extended", "--delta", 1.5), "between 0 and 1"),
        (request("laplace", "--delta", 1), "between 0 and 1"),
        (request("extended", epsilon=-1), "positive"),
        (request("extended", "--sensitivity", 0), "positive"),
        (request("extended", "--plot", "picture.gif"), ".png, .svg or .pdf"),
        (request("mixed", "--transformed", "1,1"), "needs --steps"),
        (request("multivariate", "--covariance", "1,1", "--sensitivity", 1e200), "too large"),
        (request("magic"), "no mechanism"),
        (("calibrate", "--mechanism", "extended", "--epsilon", 1), "needs --delta"),
    ],
)
def test_a_wrong_request_costs_one_sentence(hauberk: Run, words: tuple[object, ...], told: str) -> None:
    done = hauberk(*words)
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert done.out == ""


def test_a_pickled_array_is_not_opened(hauberk: Run, workplace: Path) -> None:
    np.save(workplace / "r.npy", np.array([{"any": "object"}]), allow_pickle=True)
    done = hauberk(*request("heterogeneous", "--r", "r.npy"))
    assert done.code == 2
    assert "plain numbers" in done.err


def test_help_has_an_example(hauberk: Run) -> None:
    assert "Example: hauberk calibrate" in hauberk("calibrate", "--help").out
