"""The report of an evaluation of synthetic health records: one HTML file for somebody who was not there.

Like the report of a run it needs nothing else, escapes every string, and forbids itself scripts and the
network; the same evaluation and card give the same bytes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from hauberk.accounting.card import Card
from hauberk.files import write_text
from hauberk.report import synthesis_charts as charts
from hauberk.report.printable import printable
from hauberk.report.rounding import count, plain
from hauberk.report.synthesis_wording import key_figures, lines, share, summary, three, within
from hauberk.synthesis.evaluation import Evaluation
from hauberk.synthesis.evaluation_courses import Trajectory
from hauberk.synthesis.evaluation_distances import FeatureDistance

if TYPE_CHECKING:
    from jinja2 import Template

_MOST_CHARTS = 12


@dataclass(frozen=True, kw_only=True)
class NamedChart:
    name: str
    detail: str
    chart: Markup


def write_synthesis_report(evaluation: Evaluation, path: Path, *, card: Card | str | None = None) -> None:
    """Write the report whole or not at all.

    ``card``: that of the run which made the synthetic set, or a sentence on why it cannot be shown.
    """
    write_text(path, render_synthesis(evaluation, card))


def render_synthesis(evaluation: Evaluation, card: Card | str | None = None) -> str:
    """The evaluation, its measures and its pictures as one self-contained page."""
    evaluation = printable(evaluation)
    shown = None if card is None or isinstance(card, str) else printable(card)
    trouble = printable(card) if isinstance(card, str) else None
    return _template().render(
        evaluation=evaluation,
        card=shown,
        trouble=trouble,
        title=f"synthetic patients, {evaluation.schema}",
        figures=key_figures(evaluation, shown),
        summary=summary(evaluation, shown),
        lines=lines(evaluation),
        features=sorted(evaluation.fidelity.features, key=lambda each: (-each.marginal, each.name)),
        plane=charts.plane_chart(evaluation.pictures.plane),
        roc=_roc(evaluation),
        histograms=_histograms(evaluation),
        distances=_distances(evaluation),
        courses=_courses(evaluation),
        marginals=_marginals(evaluation),
        temporal=len(evaluation.pictures.trajectories),
        most=_MOST_CHARTS,
    )


@functools.cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(plain=plain, thousands=count, three=three, share=share, within=within)
    return environment.get_template("synthesis.html.j2")


def _roc(evaluation: Evaluation) -> Markup | None:
    used = evaluation.prediction
    if used is None:
        return None
    described = (
        f"Two ROC curves: area {three(used.auroc_synthetic.value)} trained on synthetic and "
        f"{three(used.auroc_real.value)} trained on real patients."
    )
    return charts.roc_chart(used.curve_real, used.curve_synthetic, described)


def _histograms(evaluation: Evaluation) -> tuple[NamedChart, ...]:
    pictures, near = evaluation.pictures, evaluation.fidelity
    rows = (
        ("Missing values", pictures.missing, "share of a patient’s cells that are empty"),
        ("Time gaps", pictures.gaps, f"{evaluation.time_unit} between neighbouring steps"),
        ("Number of steps", pictures.lengths, "steps of a patient"),
    )
    details = (
        f"mean error of the missing rates {three(near.missing_rate_error)}",
        f"Kolmogorov distance {three(near.time_gap_distance)}",
        f"Kolmogorov distance {three(near.length_distance)}",
    )
    return tuple(
        NamedChart(
            name=name,
            detail=detail,
            chart=charts.histogram_chart(
                f"histogram-{place}", each, f"Histogram of both sets: {name.lower()}.", axis=axis
            ),
        )
        for place, ((name, each, axis), detail) in enumerate(zip(rows, details, strict=True))
    )


def _distances(evaluation: Evaluation) -> Markup | None:
    if evaluation.membership is None:
        return None
    return charts.histogram_chart(
        "nearest",
        evaluation.membership.neighbours.distances,
        "Histogram of the distances from synthetic patients to the nearest training and held-out record.",
        axis="distance between summaries",
        small=False,
    )


def _courses(evaluation: Evaluation) -> tuple[NamedChart, ...]:
    """Of the features that are measured most often."""
    rates = {each.name: each.missing_real for each in evaluation.fidelity.features}
    shown = sorted(evaluation.pictures.trajectories, key=lambda each: rates[each.name])[:_MOST_CHARTS]
    return tuple(
        NamedChart(
            name=each.name,
            detail=f"missing in {share(rates[each.name])} of steps",
            chart=_course(f"course-{place}", each, evaluation.time_unit),
        )
        for place, each in enumerate(shown)
    )


def _course(place: str, course: Trajectory, unit: str) -> Markup:
    return charts.trajectory_chart(place, course, f"Mean course of {course.name} in both sets.", unit=unit)


def _marginals(evaluation: Evaluation) -> tuple[NamedChart, ...]:
    """Of the features that are farthest apart."""
    by_name: dict[str, FeatureDistance] = {each.name: each for each in evaluation.fidelity.features}
    shown = sorted(evaluation.pictures.marginals, key=lambda each: -by_name[each.name].marginal)
    return tuple(
        NamedChart(
            name=each.name,
            detail=f"{by_name[each.name].measure} distance {three(by_name[each.name].marginal)}",
            chart=charts.histogram_chart(
                f"marginal-{place}", each, f"Distribution of {each.name} in both sets."
            ),
        )
        for place, each in enumerate(shown[:_MOST_CHARTS])
    )
