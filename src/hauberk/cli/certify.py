"""``hauberk certify``: verified inference on a run's test data or on inputs of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer
from rich.table import Table

from hauberk.accounting import Card
from hauberk.accounting.json_form import to_json
from hauberk.certify import CERTIFICATES, Metrics
from hauberk.certify.metrics import CertifiedAt, Mean, Share
from hauberk.certify.smoothed import Precision
from hauberk.cli.examine import RunArgument, find_run
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.errors import RequestError
from hauberk.files import write_text
from hauberk.methods.run_certification import Certification, prepare_certification
from hauberk.methods.verification import read_manifest, update_manifest
from hauberk.methods.verified_inference import CertificationLost, Verdicts
from hauberk.report import write_report
from hauberk.report.rounding import count, length, percent, percent_at_most, plain
from hauberk.training.distribution import ProcessLost, Ranks

T = TypeVar("T")

_MOST_ROWS = 50  # inputs of a file that are shown; all are in --json and --csv
_MOST_RADII = 11


def certify_run(
    run: RunArgument,
    norm: Annotated[
        str | None, typer.Option(metavar="l2|linf|l1", help="Norm of the radius (default: the card's).")
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="Is each answer robust at this radius? Draws until that is decided.")
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(help="The radius to within this fraction of what --samples draws would give."),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(help="Draws per input (default: as before; at most 100000 with --radius or --within)."),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Error probability per input (default: as before).")
    ] = None,
    certificate: Annotated[
        str | None, typer.Option(help=f"One of: {', '.join(CERTIFICATES)} (default: the tight one).")
    ] = None,
    variant: Annotated[
        str, typer.Option(metavar="sound|paper", help="paper: the published radius beside the proven one.")
    ] = "sound",
    bound: Annotated[
        str,
        typer.Option(
            metavar="votes|votes-and-rivals|hoeffding|bernstein", help="From draws to probabilities."
        ),
    ] = "votes",
    inputs: Annotated[
        Path | None,
        typer.Option("--input", help="Instead of test data: an .npz file with x, or a .png or .jpg picture."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="So many inputs, spread evenly (default: as before; of a file all).")
    ] = None,
    precision: Annotated[
        str,
        typer.Option(metavar="float32|bfloat16", help="Arithmetic of the classifier that is certified."),
    ] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    seed: Annotated[int | None, typer.Option(help="Of the draws (default: the run's own).")] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write one row per input to this file, too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Label, robust or not, and certified radius of every input, of test data or of a file.

    Test data: writes certificates.csv and certificates.json into the run.
    Card and report follow if the question is theirs (norm and certificate of
    the card, fixed draws),
    without the attack's result until `hauberk attack` runs again.

    The same command goes on where it was interrupted, and
    `torchrun --nproc-per-node N -m hauberk certify RUN` takes N processes.
    """
    options = {
        "norm": norm,
        "radius": radius,
        "within": within,
        "samples": samples,
        "alpha": alpha,
        "certificate": certificate,
        "variant": variant,
        "bound": bound,
        "seed": seed,
    }

    with _processes() as ranks:

        def prepare() -> Certification:
            _check_csv(csv)
            path = find_run(run)
            read_manifest(path)
            return prepare_certification(
                path,
                options=options,
                inputs=inputs,
                limit=limit,
                precision=cast(Precision, precision),
                device=device,
                ranks=ranks,
            )

        request = _agreed(ranks, prepare)
        if not ranks.leader:
            request.answer(ranks=ranks)
            return
        _announce(request)
        kept = request.kept()
        if len(kept):
            _say(f"Going on: {count(len(kept))} of {count(len(request.x))} inputs are finished already.")
        with progress_bars() as progress:
            verdicts = request.answer(kept=kept, ranks=ranks, progress=progress)
    assert verdicts is not None  # the leader gets them
    card = request.write(verdicts)
    if card is not None:
        write_report(card, request.folder.report)
    update_manifest(
        request.folder.path, "certificates.csv", "certificates.json", "card.json", "strip.npz", "report.html"
    )
    if csv is not None:
        write_text(csv, verdicts.to_csv())
    kept.remove()
    if as_json:
        print_json(_as_json(request, verdicts, card))
        return
    _show(request, verdicts)
    _show_files(request, card, csv)


@contextmanager
def _processes() -> Iterator[Ranks]:
    """Those that torchrun started; of a lost one the leader tells."""
    with Ranks.from_environment() as ranks:
        try:
            yield ranks
        except (CertificationLost, ProcessLost) as lost:
            if not ranks.leader:
                raise typer.Exit(2) from lost
            raise CertificationLost from lost


def _agreed(ranks: Ranks, prepare: Callable[[], T]) -> T:
    """What ``prepare`` returns. A request that is wrong for the leader ends all; the leader alone says so."""
    prepared: T | None = None
    trouble: RequestError | None = None
    try:
        prepared = prepare()
    except RequestError as error:
        trouble = error
    told = ranks.text_from_leader("" if trouble is None else str(trouble))
    if trouble is not None and (ranks.leader or not told):
        raise trouble
    if told or prepared is None:
        raise typer.Exit(2)
    return prepared


def _check_csv(path: Path | None) -> None:
    """Before the draws, not after them."""
    if path is not None and (os.path.isdir(path) or not os.path.isdir(path.parent)):
        raise RequestError(f"--csv takes a file in a folder that exists, not {path}")


def _say(sentence: str, style: str | None = None) -> None:
    messages.print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)


def _announce(request: Certification) -> None:
    inference = request.inference
    for notice in inference.notices:
        _say(f"hauberk: {notice}", style="yellow")
    if inference.question.radius is None:
        most = length(inference.largest_radius)
        _say(f"Unanimous votes would certify radius {most}, the most these draws allow.")


def _as_json(request: Certification, verdicts: Verdicts, card: Card | None) -> dict[str, Any]:
    return {
        "run": str(request.folder.path),
        **verdicts.summary(),
        "inputs": verdicts.inputs(),
        "card_updated": card is not None,
        "robustness": None if card is None else to_json(card.robustness),
    }


def _show(request: Certification, verdicts: Verdicts) -> None:
    certificates = verdicts.certificates
    asked = count(len(verdicts.rows))
    where = f"{asked} from the file" if request.test is None else f"{asked} of {count(len(request.test))}"
    output.print(
        f"Inputs: {where}; {certificates.question}; {certificates.norm}, certificate "
        f"{certificates.certificate}, alpha {plain(certificates.alpha)}, {certificates.arithmetic}",
        highlight=False,
        soft_wrap=True,
    )
    if verdicts.published is not None:
        factor = verdicts.published.radius_too_large_by(verdicts.gain)
        output.print(
            f"Claimed radii are by the published gain ({verdicts.published.source}; covers "
            f"{verdicts.published.covers}): {factor:.3g} times the proven ones.",
            highlight=False,
            soft_wrap=True,
        )
    metrics = verdicts.metrics
    if metrics is None:
        output.print(_input_table(verdicts))
    else:
        output.print(_metrics_table(verdicts, metrics), end="\n\n")
        output.print(_class_table(verdicts, metrics))


def _input_table(verdicts: Verdicts) -> Table:
    rows = verdicts.inputs()
    names = ["row", "label", "robust", "radius", "claimed_robust", "claimed_radius", "draws"]
    names = [name for name in names if name in rows[0]]
    table = Table(*(name.replace("_", " ") for name in names), box=None, padding=(0, 2))
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(_cell(row[name]) for name in names))
    if len(rows) > _MOST_ROWS:
        table.add_row("…", f"{count(len(rows) - _MOST_ROWS)} more: --csv or --json")
    return table


def _cell(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return length(value) if isinstance(value, float) else count(value)


def _metrics_table(verdicts: Verdicts, metrics: Metrics) -> Table:
    claimed = verdicts.claimed_metrics
    table = Table("", "proven", "95 % interval", *(["claimed"] if claimed else []), box=None, padding=(0, 2))
    table.add_row("accuracy, certified or not", *_share(metrics.accuracy))
    asked = verdicts.question.radius
    radii = verdicts.question.fixed or asked is None
    if asked is not None:
        table.add_row(f"robust at {plain(asked)}", *_share(Share.of(verdicts.robust)))
    if radii:
        table.add_row("abstained", *_share(metrics.abstained))
    at_claimed = {} if claimed is None else {each.radius: each.accuracy for each in claimed.certified}
    for point in _listed(metrics.certified, asked):
        name = f"correct and certified at {plain(point.radius)}"
        other = at_claimed.get(point.radius)
        table.add_row(name, *_share(point.accuracy), "" if other is None else _share(other)[0])
    if radii:
        average = metrics.average_certified_radius
        other_average = "" if claimed is None else length(claimed.average_certified_radius.value)
        table.add_row("average certified radius", length(average.value), _interval(average), other_average)
    table.add_row("draws", count(metrics.draws), f"{metrics.draws_per_input:,.0f} per input")
    return table


def _listed(points: tuple[CertifiedAt, ...], asked: float | None) -> list[CertifiedAt]:
    """Of a long curve, points spread evenly from the first to the last, and the one that was asked for."""
    last = len(points) - 1
    places = {round(i * last / (_MOST_RADII - 1)) for i in range(_MOST_RADII)} if last else {0}
    return [point for place, point in enumerate(points) if place in places or point.radius == asked]


def _class_table(verdicts: Verdicts, metrics: Metrics) -> Table:
    radii = verdicts.question.fixed or verdicts.question.radius is None  # else a yes is all that is known
    average = ["average radius"] if radii else []
    table = Table("class", "inputs", "accuracy", "certified", *average, box=None, padding=(0, 2))
    for each in metrics.per_class:
        shares = (_share(each.accuracy)[0], _share(each.certified)[0])
        counted = each.accuracy.counted
        cells = [length(each.average_certified_radius.value) if counted else "–"] if radii else []
        table.add_row(str(each.label), count(counted), *shares, *cells)
    return table


def _share(share: Share) -> tuple[str, str]:
    if share.value is None:
        return "–", ""
    return percent(share.value), f"{percent(share.low)} – {percent_at_most(share.high)}"


def _interval(mean: Mean) -> str:
    if mean.counted < 2:
        return ""
    return f"{mean.low:.3f} – {mean.high:.3f}, standard error {mean.standard_error:.3f}"


def _show_files(request: Certification, card: Card | None, csv: Path | None) -> None:
    def line(text: str) -> None:
        output.print(text, highlight=False, soft_wrap=True, markup=False)

    if request.test is not None:
        line(f"Certificates: {request.folder.path / 'certificates.csv'}, certificates.json beside it")
    if csv is not None:
        line(f"Certificates: {csv}")
    if card is not None:
        line(f"Report: {request.folder.report} (no attack on these certificates yet: hauberk attack)")
    elif request.test is not None:
        norm, certificate = request.run.card_radius
        line(
            f"The card is as it was: it holds sound {norm} radii, {certificate}, from a fixed number of "
            "votes, own seed."
        )
