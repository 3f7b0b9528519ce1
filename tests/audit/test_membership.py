"""Membership inference: it finds members of an overfitted model, and finds nobody where there is nothing."""

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from hauberk.accounting import PrivacyPlan
from hauberk.audit.bounds import Values
from hauberk.audit.membership import (
    FIXED_SETS,
    Mask,
    loss_scores_of,
    measure_membership,
    nearness,
    nearness_against_reference,
    scaled_confidences,
)
from hauberk.audit.released_membership import (
    audit_classifier_membership,
    audit_synthesizer_membership,
    joined,
)
from hauberk.audit.shadow_models import ShadowScores, audit_by_coins, audit_released, train_shadows
from hauberk.data import Dataset
from hauberk.errors import RequestError
from hauberk.methods.dp_sgd import DPSGD
from hauberk.synthesis import Task, find_synthesizer, simulate_ward
from hauberk.training import Optimisation

RECORDS, FEATURES, SHADOWS = 600, 20, 8


def labelled() -> tuple[torch.Tensor, torch.Tensor]:
    """A line between two classes, with one label in ten wrong: those can only be learnt by heart."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(RECORDS, FEATURES, generator=generator)
    y = (x @ torch.randn(FEATURES, generator=generator) > 0).long()
    wrong = torch.rand(RECORDS, generator=generator) < 0.1
    return x, torch.where(wrong, 1 - y, y)


def overfitted(inside: Mask, number: int) -> nn.Module:
    x, y = labelled()
    rows = torch.from_numpy(np.flatnonzero(inside))
    with torch.random.fork_rng():
        torch.manual_seed(number)
        model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(70):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model


def fit(inside: Mask, number: int) -> Values:
    return scaled_confidences(overfitted(inside, number), *labelled())


@pytest.fixture(scope="module")
def shadows() -> ShadowScores:
    return train_shadows(fit, records=RECORDS, shadows=SHADOWS, seed=0)


def test_the_likelihood_ratio_finds_members_of_an_overfitted_classifier(shadows: ShadowScores) -> None:
    members = np.arange(RECORDS) < RECORDS // 2
    found = audit_released(fit(members, 99), members, shadows, alpha=0.05, plain="loss")
    threshold, online, offline = found
    assert [each.attack for each in found] == [
        "loss threshold",
        "LiRA, 8 shadow models, online",
        "LiRA, 8 shadow models, offline",
    ]
    assert online.at(0.01).true_positive_low > 0.03
    assert online.at(0.01).true_positive > 3 * threshold.at(0.01).true_positive
    assert online.auroc > threshold.auroc + 0.05
    assert offline.auroc > 0.55
    assert online.advantage.low > 0
    for each in found:
        assert each.epsilon_lower is None
        assert each.reason == FIXED_SETS
        assert each.observation() is None


def test_fair_coins_give_a_bound_on_epsilon(shadows: ShadowScores) -> None:
    found = audit_by_coins(shadows, delta=1e-5, alpha=0.05)
    assert found.epsilon_lower is not None
    assert found.epsilon_lower > 0.7
    assert found.members + found.nonmembers == RECORDS
    observed = found.observation()
    assert observed is not None
    assert (observed.canaries, observed.confidence) == (RECORDS, 0.95)
    assert observed.attack == "black-box, one run, LiRA, 7 shadow models, online"


def test_scores_that_know_nothing_keep_to_their_level() -> None:
    """Over many repetitions: the operating point's own false-positive rate, and the bound on epsilon."""
    rng = np.random.default_rng(0)
    repetitions, excesses, bounds, covered = 100, 0, 0, 0
    for _ in range(repetitions):
        scores, members = rng.normal(size=400), rng.random(400) < 0.5
        found = measure_membership("noise", scores, members, alpha=0.1, fair_coins=True, delta=1e-5)
        point = found.at(0.01)
        # the truth is known: a score above the threshold has the chance of a normal number, in or out
        truth = 1 - float(_normal(point.threshold))
        excesses += truth > point.false_positive_high
        covered += point.true_positive_low <= truth <= point.true_positive_high
        assert found.epsilon_lower is not None
        bounds += found.epsilon_lower > 0
    allowed = binom.isf(1e-4, repetitions, 0.1)
    assert excesses <= allowed
    assert repetitions - covered <= allowed
    assert bounds <= allowed


def _normal(value: float) -> float:
    return float(torch.special.ndtr(torch.tensor(value, dtype=torch.float64)))


def test_a_perfect_score_is_seen_as_one() -> None:
    members = np.arange(2000) % 2 == 0
    found = measure_membership("truth", members * 1.0 + np.linspace(0, 0.1, 2000), members)
    for level in (1e-3, 1e-2):
        assert found.at(level).true_positive == 1
        assert found.at(level).false_positives == int(level * 1000)
    assert found.auroc == 1
    assert found.advantage.value == 1
    assert found.roc[0] == (0.0, 0.0)
    assert found.roc[-1] == (1.0, 1.0)
    shown = found.to_json()
    assert shown["points"][0]["level"] == 1e-3
    assert shown["epsilon_lower"] is None


def test_jax_privacy_gives_the_same_rates() -> None:
    auditing = pytest.importorskip("jax_privacy.auditing")
    rng = np.random.default_rng(7)
    scores, members = np.concatenate([rng.normal(1, 1, 1000), rng.normal(0, 1, 1000)]), np.arange(2000) < 1000
    found = measure_membership("any", scores, members)
    theirs = auditing.CanaryScoreAuditor(scores[members], scores[~members])
    # theirs may mix any two thresholds after looking at the scores, which is never worse
    pairs = [(found.auroc, theirs.attack_auroc())]
    pairs += [(point.true_positive, theirs.tpr_at_given_fpr(point.level)) for point in found.points]
    for ours, mixed in pairs:
        assert ours <= mixed + 1e-9
        assert ours == pytest.approx(float(mixed), abs=0.02)


def test_the_scaled_confidence_is_the_logit_of_the_label() -> None:
    model = nn.Linear(3, 4)
    x, y = torch.rand(700, 3), torch.randint(0, 4, (700,))
    chance = model(x).softmax(1).gather(1, y.view(-1, 1)).squeeze(1).detach().double()
    np.testing.assert_allclose(scaled_confidences(model, x, y), torch.logit(chance).numpy(), atol=1e-5)
    np.testing.assert_allclose(loss_scores_of(model, x, y), chance.log().numpy(), atol=1e-5)


def test_a_record_that_no_shadow_has_seen_gets_the_mean_gap() -> None:
    inside = np.array([[True, False, False], [False, True, False]])
    found = ShadowScores(scores=np.array([[2.0, 1.0, 5.0], [0.0, 3.0, 5.0]]), inside=inside)
    with_mean, without_mean, *_ = found._fits()
    np.testing.assert_allclose(with_mean, [2.0, 3.0, 7.0])
    np.testing.assert_allclose(without_mean, [0.0, 1.0, 5.0])


WIDE = 300  # more columns than records: random labels can be learnt by heart


def tables(count: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, WIDE, generator=generator)
    return Dataset(name="toy", x=x, y=torch.randint(0, 2, (count,), generator=generator), classes=2)


def plainly() -> DPSGD:
    torch.manual_seed(0)
    return DPSGD(
        nn.Linear(WIDE, 2),
        plan=PrivacyPlan(records=64, batch=64, epochs=25, noise_multiplier=0.0, delta=1e-5),
        optimisation=Optimisation(optimizer="adam", lr=0.05),
        clipping=1e6,
        noise_seed=0,
    )


def test_a_released_classifier_with_shadows_trained_by_its_method() -> None:
    train, others, method = tables(64, 0), tables(64, 1), plainly()
    stages: list[tuple[str, int, int]] = []
    found = audit_classifier_membership(
        method.fit(train).model,
        method,
        train,
        others,
        shadows=3,
        most=60,
        progress=lambda *where: stages.append(where),
    )
    assert stages[-1] == ("shadows", 3, 3)
    assert found.strongest.at(0.01).true_positive_low > 0.03
    assert found.strongest.auroc > 0.8
    assert found.by_coins is not None
    assert found.by_coins.epsilon_lower is not None
    assert found.by_coins.epsilon_lower > 0.3
    without = audit_classifier_membership(method.model, method, train, others, shadows=0, most=60, seed=1)
    assert [each.attack for each in without.released] == ["loss threshold"]
    assert without.by_coins is None
    assert without.to_json()["by_coins"] is None


def test_synthetic_patients_that_are_copies_give_their_members_away() -> None:
    train, others = simulate_ward(60, seed=0), simulate_ward(60, seed=1)
    members, pool = np.arange(120) < 60, joined(train, others)
    copied = measure_membership("distance", nearness(pool, train), members)
    assert copied.at(0.01).true_positive == 1
    reference, fresh = simulate_ward(60, seed=2), simulate_ward(60, seed=3)
    honest = measure_membership("reference", nearness_against_reference(pool, fresh, reference), members)
    assert 0.35 < honest.auroc < 0.65
    assert honest.at(0.01).true_positive_low < 0.05


def test_a_synthesizer_is_audited_by_shadows_and_by_reference_patients() -> None:
    pytest.importorskip("sklearn")
    train, others = simulate_ward(50, seed=0), simulate_ward(50, seed=1)
    task = Task(schema=train.schema, records=50, budget=None, noise_seed=0)
    model = find_synthesizer("marginals").build(task).fit(train)
    found = audit_synthesizer_membership(model, train, others, shadows=3, most=30)
    assert [each.attack.split(",")[0] for each in found.released] == ["distance threshold", "LiRA", "LiRA"]
    assert found.released[0].members == 30
    assert found.by_coins is not None
    assert found.by_coins.members + found.by_coins.nonmembers == 60
    by_reference = audit_synthesizer_membership(model, train, others, shadows=0, most=30)
    assert by_reference.released[1].attack == "distance against reference patients"
    assert by_reference.released[1].members == 25
    assert by_reference.by_coins is None


def test_wrong_requests_are_refused(shadows: ShadowScores) -> None:
    rng = np.random.default_rng(0)
    scores, members = rng.normal(size=60), np.arange(60) < 30
    for wrong, message in (
        ({"scores": scores[:59]}, "one for each"),
        ({"scores": np.full(60, np.nan)}, "NaN"),
        ({"members": np.ones(60, dtype=bool)}, "at least 10 members"),
        ({"levels": (0.0,)}, "strictly between"),
        ({"fair_coins": True}, "at a delta"),
        ({"alpha": 0.9}, "alpha"),
    ):
        with pytest.raises(RequestError, match=message):
            measure_membership("any", **{"scores": scores, "members": members, **wrong})  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="levels"):
        measure_membership("any", scores, members).at(0.5)
    with pytest.raises(RequestError, match="at least two"):
        train_shadows(fit, records=10, shadows=1, seed=0)
    two = ShadowScores(scores=shadows.scores[:2], inside=shadows.inside[:2])
    with pytest.raises(RequestError, match="3 or more"):
        audit_by_coins(two, delta=1e-5, alpha=0.05)
    with pytest.raises(RequestError, match="finite score"):
        ShadowScores(scores=np.full((2, 3), np.inf), inside=np.ones((2, 3), dtype=bool))
    with pytest.raises(RequestError, match="at least 20"):
        audit_classifier_membership(
            nn.Linear(3, 2), plainly(), tables(64, 0), tables(10, 1), shadows=0, most=50
        )
