"""What an evaluation of synthetic records says, in words and in rounded numbers."""

from __future__ import annotations

from dataclasses import dataclass

from hauberk.accounting.card import Card
from hauberk.report.rounding import at_least, at_most, count, plain
from hauberk.synthesis.evaluation import Evaluation
from hauberk.synthesis.evaluation_distances import Fidelity
from hauberk.synthesis.evaluation_prediction import Estimate


@dataclass(frozen=True, kw_only=True)
class Figure:
    name: str
    value: str
    detail: str
    doubt: bool = False
    empty: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of the table of measures; ``reference`` is the same for training records."""

    name: str
    meaning: str
    synthetic: str
    reference: str


def key_figures(evaluation: Evaluation, card: Card | None) -> tuple[Figure, ...]:
    """Four numbers for the top of the page."""
    near, reference = evaluation.fidelity, evaluation.reference
    beside = "" if reference is None else f"; training records {three(reference.marginal_distance)}"
    return (
        _useful(evaluation),
        _told_apart(evaluation),
        Figure(
            name="Marginal distance",
            value=three(near.marginal_distance),
            detail=f"mean over {len(near.features)} features{beside}",
        ),
        _leak(evaluation, card),
    )


def _useful(evaluation: Evaluation) -> Figure:
    used, name = evaluation.prediction, "Trained on synthetic"
    if used is None:
        return _not_measured(name)
    beside = f"AUROC on real patients; trained on real ones {three(used.auroc_real.value)}"
    return Figure(name=name, value=three(used.auroc_synthetic.value), detail=beside)


def _told_apart(evaluation: Evaluation) -> Figure:
    seen, name = evaluation.detection, "Discriminative score"
    if seen is None:
        return _not_measured(name)
    return Figure(
        name=name, value=three(seen.score.value), detail="0 cannot be told from real, 0.5 always can"
    )


def _leak(evaluation: Evaluation, card: Card | None) -> Figure:
    name = "Membership test"
    if evaluation.membership is None:
        return _not_measured(name)
    guesses = evaluation.membership.guesses
    return Figure(
        name=name,
        value=f"ε ≥ {at_least(guesses.epsilon_lower)}" if guesses.epsilon_lower > 0 else "no leak found",
        detail=f"level {plain(guesses.alpha)}; advantage {three(guesses.rates.advantage.value)}",
        doubt=contradicted(evaluation, card),
        empty=guesses.epsilon_lower == 0,
    )


def _not_measured(name: str) -> Figure:
    return Figure(name=name, value="none", detail="not measured, see the notes", empty=True)


def summary(evaluation: Evaluation, card: Card | None) -> dict[str, str]:
    """What the numbers say, in three short paragraphs."""
    return {
        "Nearness": _nearness(evaluation),
        "Usefulness": _usefulness(evaluation),
        "Privacy": _privacy(evaluation, card),
    }


def _nearness(evaluation: Evaluation) -> str:
    near, seen, reference = evaluation.fidelity, evaluation.detection, evaluation.reference
    worst = max(near.features, key=lambda each: each.marginal)
    said = (
        f"Over {len(near.features)} features the distributions of synthetic and real values are "
        f"{three(near.marginal_distance)} apart on average (0 is equal, 1 is disjoint)"
    )
    if reference is not None:
        said += f", where the training records are {three(reference.marginal_distance)} apart"
    said += f". The farthest is {worst.name} with {three(worst.marginal)}."
    if seen is None:
        return said
    told = f" A classifier tells real from synthetic for {100 * (0.5 + seen.score.value):.1f} % of "
    chance = "beyond chance" if seen.score.low > 0 else "no more than chance explains"
    return f"{said}{told}{count(seen.tested)} unseen patients, where 50 % is chance: {chance}."


def _usefulness(evaluation: Evaluation) -> str:
    used = evaluation.prediction
    if used is None:
        return "It was not measured whether the synthetic patients can train a predictor."
    lost = used.auroc_lost
    said = (
        f"A predictor of “{used.outcome}” trained on {count(used.trained_synthetic)} synthetic patients "
        f"reaches AUROC {within(used.auroc_synthetic)} on {count(used.tested)} real ones, "
        f"{count(used.events)} of them with the event; trained on {count(used.trained_real)} real patients "
        f"it reaches {within(used.auroc_real)}. "
    )
    if used.auroc_synthetic.low <= 0.5:
        return said + "The former is not distinguishable from guessing."
    if lost.low <= 0 <= lost.high:
        return said + "The test patients show no difference between the two."
    return said + f"What is lost is {within(lost)}."


def _privacy(evaluation: Evaluation, card: Card | None) -> str:
    if evaluation.membership is None:
        return "It was not tested whether the synthetic patients tell who was in the training set."
    guesses, neighbours = evaluation.membership.guesses, evaluation.membership.neighbours
    advantage = guesses.rates.advantage
    said = (
        "Guessing members by their distance to the synthetic patients has an advantage of "
        f"{within(advantage)} over chance (0 is none, 1 is certainty). "
    )
    if guesses.epsilon_lower > 0:
        said += (
            f"It refutes every epsilon below {at_least(guesses.epsilon_lower)} at delta "
            f"{plain(guesses.delta)} and level {plain(guesses.alpha)}. "
        )
    else:
        said += f"It refutes no epsilon at level {plain(guesses.alpha)}, which proves no privacy. "
    if neighbours.copies:
        said += f"{count(neighbours.copies)} synthetic patients equal a training record in every value. "
    if card is not None and card.privacy.proven is not None:
        proof = card.privacy.proven
        said += (
            f"Proven for the run: epsilon at most {at_most(proof.epsilon)} at delta {plain(proof.delta)}. "
        )
        if contradicted(evaluation, card):
            said += "The test contradicts the proof: one of them is wrong."
    elif card is not None:
        said += "Nothing is proven for the run that made them."
    return said.strip()


def contradicted(evaluation: Evaluation, card: Card | None) -> bool:
    """A test at the proof's delta, or at a larger one, found more than was proven."""
    if card is None or card.privacy.proven is None or evaluation.membership is None:
        return False
    guesses, proof = evaluation.membership.guesses, card.privacy.proven
    return guesses.delta >= proof.delta and guesses.epsilon_lower > proof.epsilon


def lines(evaluation: Evaluation) -> tuple[Line, ...]:
    def line(name: str, meaning: str, read: str, inner: str | None = None) -> Line:
        return Line(
            name=name,
            meaning=meaning,
            synthetic=_cell(evaluation.fidelity, read, inner),
            reference=_cell(evaluation.reference, read, inner),
        )

    pairs = count(evaluation.fidelity.correlation_pairs)
    return (
        line("Marginals", "mean Kolmogorov or total variation distance of a feature", "marginal_distance"),
        line("Correlations", f"mean absolute difference over {pairs} pairs", "correlation_distance"),
        line(
            "Measured together",
            "mean difference of the share of steps that measure both",
            "cooccurrence_distance",
        ),
        line("Missing rates", "mean absolute difference over features", "missing_rate_error"),
        line("Time gaps", "Kolmogorov distance of times between steps", "time_gap_distance"),
        line("Number of steps", "Kolmogorov distance", "length_distance"),
        line("Mean courses", "mean absolute difference on the schema’s scale", "trajectory_distance"),
        line(
            "Cluster centres", "Minkowski sum over matched centres of whole records", "records", "minkowski"
        ),
        line("Cluster centres, angle", "mean cosine of the same pairs; 1 is equal", "records", "cosine"),
    )


def _cell(measured: Fidelity | None, name: str, inner: str | None) -> str:
    if measured is None:
        return "–"
    value = getattr(measured, name)
    if inner is not None:
        value = getattr(value, inner)
    return "none" if value is None else three(value)


def three(value: float) -> str:
    """Three decimals; a minus only where they are not all zero."""
    text = f"{value:.3f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def within(estimate: Estimate) -> str:
    return f"{three(estimate.value)} ({three(estimate.low)} to {three(estimate.high)})"


def share(share: float) -> str:
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"
