"""Verified inference: the same answers in one piece, in blocks and after an interruption; honest caps."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hauberk.certify import FixedDraws, NoiseLayers, Smoothed
from hauberk.certify.rules import Asked, needed_samples
from hauberk.certify.smoothed import Bound
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods.robustness_question import Question
from hauberk.methods.run import spread, spread_rows
from hauberk.methods.verified_inference import Verdicts, VerifiedInference, verify

SIGMA = 0.5


class Maps(nn.Module):
    """Three equal feature maps and a vote on their sum: the joint gain is sqrt(3) that of one map."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 2, bias=False)
        nn.init.constant_(self.first.weight, 0.5)
        self.last = nn.Linear(12, 2)
        with torch.no_grad():
            self.last.weight.copy_(torch.tensor([[1.0], [-1.0]]).expand(2, 12))
            self.last.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).flatten(1))


def half_space(**changes: object) -> Smoothed:
    """Class 0 where the first coordinate is above 1/2, of three: the radius is the distance from there."""
    network = nn.Linear(2, 3)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]]))
        network.bias.copy_(torch.tensor([-0.5, 0.5, -9.0]))
    return Smoothed(network, **{"classes": 3, "sigma": SIGMA, **changes})


def points(count: int = 21) -> Tensor:
    return torch.stack([torch.linspace(-0.5, 1.5, count), torch.zeros(count)], 1)


def truth(x: Tensor) -> np.ndarray:
    return (x[:, 0] <= 0.5).long().numpy()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hauberk.certify.voting.BLOCK", 8)


def equal(one: Verdicts, other: Verdicts) -> bool:
    return one.to_csv() == other.to_csv() and one.summary() == other.summary()


QUESTIONS = {
    "radius": Question(samples=300),
    "at least": Question(radius=0.3, samples=3000),
    "within": Question(within=0.2, samples=2000),
    "rivals": Question(samples=300, bound="votes-and-rivals"),
    "scores": Question(samples=300, bound="bernstein", alpha=0.01),
    "another certificate": Question(samples=300, certificate="pixeldp", norm="linf"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_radius_is_beyond_the_true_one_and_labels_are_right(name: str) -> None:
    x, question = points(), QUESTIONS[name]
    verdicts = verify(half_space(), x, question, truth=truth(x))
    to_the_border = (x[:, 0] - 0.5).abs().double().numpy()
    assert (verdicts.certificates.radii <= to_the_border + 1e-6).all()
    robust = verdicts.robust
    assert (verdicts.labels[robust] == truth(x)[robust]).all()
    assert robust.any()
    assert not robust.all()
    assert (verdicts.certificates.radii[robust] >= (question.radius or 1e-9)).all()
    assert verdicts.metrics is not None
    assert verdicts.metrics.tested == len(x)


def test_an_abstention_still_has_a_label() -> None:
    verdicts = verify(half_space(), points(40), Question(samples=100))
    unsure = verdicts.certificates.abstained
    assert unsure.any()
    assert set(verdicts.labels[unsure]) <= {0, 1}
    assert not verdicts.robust[unsure].any()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", QUESTIONS)
def test_blocks_give_what_the_whole_gives(name: str) -> None:
    question, x = QUESTIONS[name], points()
    whole = half_space().certify(
        x,
        rule=question.rule(),
        alpha=question.alpha,
        norm=question.norm,
        certificate=question.certificate or "tight",
        bound=question.bound,
    )
    seen: list[tuple[str, int, int]] = []
    verdicts = verify(half_space(), x, question, progress=lambda *each: seen.append(each))
    for column in ("labels", "radii", "votes", "draws", "predicted"):
        assert getattr(verdicts.certificates, column).tolist() == getattr(whole, column).tolist()
    assert verdicts.certificates.question == whole.question
    done = [each[1] for each in seen]
    assert done == sorted(done)
    assert seen[-1] == ("certifying", 21, 21)


class Killed(Exception):
    pass


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["radius", "at least", "scores"])
def test_an_interrupted_question_goes_on_to_the_same_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    x, question = points(), QUESTIONS[name]
    expected = verify(half_space(), x, question)
    certify, blocks = Smoothed.certify, []

    def dying(self: Smoothed, part: Tensor, **settings: object) -> object:
        if settings["first"] == 16:
            raise Killed
        blocks.append(settings["first"])
        return certify(self, part, **settings)

    inference = VerifiedInference(half_space(), question, shape=(2,))
    monkeypatch.setattr(Smoothed, "certify", dying)
    with pytest.raises(Killed):
        inference.answer(x, kept=inference.kept(tmp_path, x))
    assert blocks == [0, 8]
    certified = []
    monkeypatch.setattr(
        Smoothed,
        "certify",
        lambda self, part, **settings: certified.append(len(part)) or certify(self, part, **settings),
    )
    again = VerifiedInference(half_space(), question, shape=(2,))
    kept = again.kept(tmp_path, x)
    assert len(kept) == 16
    answered = again.answer(x, kept=kept)
    assert answered is not None
    assert certified == [5, 0]  # the last block, and nobody for the head line
    assert equal(answered, expected)


def test_a_single_block_leaves_no_file(tmp_path: Path) -> None:
    inference = VerifiedInference(half_space(), Question(samples=50), shape=(2,))
    inference.answer(points(), kept=inference.kept(tmp_path, points()))
    assert list(tmp_path.iterdir()) == []


def test_the_digest_is_of_all_that_matters() -> None:
    base = Question(samples=300)

    def digest(question: Question = base, x: Tensor | None = None, **changes: object) -> str:
        inference = VerifiedInference(half_space(**changes), question, shape=(2,))
        return inference.digest(points() if x is None else x)

    other_weights = VerifiedInference(half_space(), base, shape=(2,))
    with torch.no_grad():
        other_weights.classifier.model.bias[2] -= 1e-3
    assert digest() == digest()
    others = [
        digest(x=points() + 1e-6),
        digest(x=points()[:-1]),
        digest(sigma=0.51),
        digest(precision="bfloat16"),
        other_weights.digest(points()),
        *(
            digest(replace(base, **change))
            for change in (
                {"samples": 301},
                {"alpha": 0.002},
                {"norm": "l1"},
                {"certificate": "pixeldp"},
                {"bound": "votes-and-rivals"},
                {"seed": 1},
                {"radius": 0.1},
                {"within": 0.1},
            )
        ),
    ]
    assert len({digest(), *others}) == 1 + len(others)


def test_the_same_votes_give_the_published_radius_beside_the_sound_one() -> None:
    torch.manual_seed(0)
    classifier = Smoothed(Maps(), classes=2, noise=NoiseLayers(after_first_map=1.0))
    x = torch.rand(30, 1, 3, 3) - 0.4
    sound = verify(classifier, x, Question(samples=300))
    both = verify(classifier, x, Question(samples=300, variant="paper"))
    assert sound.claimed_radii is None
    assert both.certificates.radii.tolist() == sound.certificates.radii.tolist()
    np.testing.assert_allclose(both.claimed_radii, np.sqrt(3) * sound.certificates.radii, rtol=1e-6)
    middle = float(np.median(sound.certificates.radii[sound.robust]))
    at = verify(classifier, x, Question(samples=300, variant="paper", radius=1.2 * middle))
    rows = at.inputs()
    assert any(row["claimed_robust"] and not row["robust"] for row in rows)
    assert all(row["robust"] == (row["radius"] >= 1.2 * middle) for row in rows)
    assert all(row["draws"] == 300 for row in rows)


def test_noise_at_the_input_has_no_feature_map() -> None:
    with pytest.warns(UserWarning, match="no feature map"):
        verdicts = verify(half_space(), points(), Question(samples=100, variant="paper"))
    assert verdicts.claimed_radii is not None
    assert verdicts.claimed_radii.tolist() == verdicts.certificates.radii.tolist()


BOUNDS: list[Bound] = ["votes", "votes-and-rivals", "hoeffding", "bernstein"]


def asked(alpha: float = 0.001) -> Asked:
    return half_space().asked("tight", "l2", alpha, (2,))


@pytest.mark.parametrize("radius", [1e-9, 0.3, 1.2])
@pytest.mark.parametrize("question", [*(Question(bound=bound) for bound in BOUNDS), "at least"])
def test_the_number_of_draws_that_is_named_suffices_and_one_less_does_not(
    question: Question | str, radius: float
) -> None:
    question = Question(radius=radius) if isinstance(question, str) else question
    fewest = question.fewest_draws(asked(), classes=3, radius=radius)
    assert fewest is not None
    assert question.largest_radius(asked(), classes=3, samples=fewest) >= radius
    assert fewest == 2 or question.largest_radius(asked(), classes=3, samples=fewest - 1) < radius
    lowest = needed_samples(asked(), radius)
    assert fewest == lowest if question == Question() else fewest >= (lowest or 0)


@pytest.mark.parametrize("radius", [0.3, 0.8])
def test_a_yes_is_really_said_with_the_named_number_of_draws(radius: float) -> None:
    """Far from the border all draws agree, and the sequential rule gets its yes."""
    fewest = Question(radius=radius).fewest_draws(asked(), classes=3, radius=radius)
    question = Question(radius=radius, samples=fewest)
    assert verify(half_space(), torch.tensor([[9.0, 0.0]]), question).robust.all()
    with pytest.raises(RequestError, match=f"take --samples {fewest} or more"):
        verify(half_space(), points(), replace(question, samples=(fewest or 0) - 1))


def test_draws_that_are_too_few_are_told() -> None:
    with pytest.raises(RequestError, match="cannot certify anything, even if all agree: take --samples 10 "):
        verify(half_space(), points(), Question(samples=9))
    verify(half_space(), points(), Question(samples=10))
    with pytest.raises(RequestError, match="no number of draws can"):
        verify(half_space(), points(), Question(radius=50.0))
    with pytest.warns(
        UserWarning, match=r"300 draws at alpha 0.001 cannot certify radius 1, .* draws or more"
    ):
        verify(half_space(), points(), Question(radius=1.0, samples=300, bound="hoeffding"))


WRONG = [
    ({"radius": 0.1, "within": 0.1}, "not for both"),
    ({"norm": "l7"}, "no norm 'l7'"),
    ({"variant": "loud"}, "no variant 'loud'"),
    ({"bound": "median"}, "no bound 'median'"),
    ({"radius": 0.0}, "positive radius"),
    ({"radius": -1.0, "bound": "hoeffding"}, "positive radius"),
    ({"within": 1.0}, "between 0 and 1"),
    ({"within": 0.1, "bound": "hoeffding"}, "needs a fixed number of draws"),
    ({"samples": 0}, "at least one draw"),
    ({"seed": -1}, "seeds"),
]


@pytest.mark.parametrize(("changes", "part"), WRONG)
def test_a_question_that_cannot_be_meant_is_refused(changes: dict[str, object], part: str) -> None:
    with pytest.raises(RequestError, match=part):
        Question(**changes)


def test_laplace_noise_has_a_certificate_of_its_own() -> None:
    laplace = half_space(sigma=None, noise=NoiseLayers(kind="laplace", at_input=0.3))
    verdicts = verify(laplace, points(), Question(samples=200, norm="l1"))
    assert verdicts.certificates.certificate == "laplace"
    assert verdicts.robust.any()
    assert isinstance(verdicts.question.rule(), FixedDraws)


def test_the_rows_are_those_of_an_audit() -> None:
    x = torch.arange(1000).float()[:, None] / 1000
    test = Dataset(name="rows", x=x, y=torch.zeros(1000, dtype=torch.int64), classes=2)
    for count in (1, 7, 500, 999, 1000, 5000):
        assert torch.equal(spread(test, count).x, x[torch.from_numpy(spread_rows(1000, count))])
