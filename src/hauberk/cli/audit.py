"""``hauberk audit``: attack a run's own promises, and put what was found on its card."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hauberk.accounting import Card
from hauberk.accounting.json_form import to_json
from hauberk.audit.membership import MembershipAudit
from hauberk.audit.released_membership import ReleasedMembership, audit_synthesizer_membership
from hauberk.audit.run_audit import (
    READS_RECORDS,
    RunAudit,
    RunAuditSettings,
    audit_run,
    membership_note,
    refuted_privacy,
    with_observation,
)
from hauberk.cli.examine import RunArgument, find_run
from hauberk.cli.screen import messages, output, print_json, progress_bars
from hauberk.cli.synth_evaluate import EVALUATION
from hauberk.cli.synth_train import Source, cut_to_size
from hauberk.cli.train import show_card
from hauberk.data.folder import home_expanded
from hauberk.errors import RequestError
from hauberk.files import read_json
from hauberk.methods.verification import read_manifest, update_manifest
from hauberk.report import write_report
from hauberk.report.rounding import at_least, count, percent, percent_at_most
from hauberk.report.synthesis_report import write_synthesis_report
from hauberk.synthesis.base import KIND, Synthesizer
from hauberk.synthesis.catalogue import load_synthesizer
from hauberk.synthesis.evaluation import Evaluation
from hauberk.synthesis.patients import Patients
from hauberk.synthesis.presets import find_preset, load_patients
from hauberk.synthesis.reading import read_patients
from hauberk.training import RunFolder


class CanaryKind(StrEnum):
    gradient = "gradient"
    record = "record"


def audit(
    run: RunArgument,
    privacy: Annotated[
        bool, typer.Option("--privacy", help="Bound epsilon from below with canaries.")
    ] = False,
    robustness: Annotated[
        bool, typer.Option("--robustness", help="Attack certificates inside their radii.")
    ] = False,
    membership: Annotated[
        bool, typer.Option("--membership", help="Tell members from others, with shadow models.")
    ] = False,
    canaries: Annotated[
        int | None, typer.Option(help="Canaries in one training (default 1000; --quick 200).")
    ] = None,
    kind: Annotated[
        CanaryKind | None,
        typer.Option(help="Of the canaries (default: gradient where the method clips, else record)."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Instead: one canary, in so many trainings and out of as many.")
    ] = None,
    certificates: Annotated[
        int | None, typer.Option(help="Certificates to attack (default 100; --quick 30).")
    ] = None,
    shadows: Annotated[
        int | None, typer.Option(help="Shadow models for --membership (default 6; --quick 3; 0: none).")
    ] = None,
    members: Annotated[
        int | None,
        typer.Option(help="Most members, and others, for --membership (default 500; --quick 150)."),
    ] = None,
    held_out: Annotated[
        str | None,
        typer.Option(help="Synthesizers: patients not used in training, a file or a preset's part."),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="How often a promise that holds may be accused, all audits together.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(help="Of coins, canaries, attacks and draws.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer canaries, certificates and shadows; one attack.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Attack a run's promises; claimed, proven and observed, on its card and in its report.

    Without --privacy, --robustness or --membership: the first two, as far as the run promises them. Each
    audit has its equal share of --alpha. Privacy and membership train again, with the run's own settings.
    Of a synthesizer's run, membership is audited. Exit code 1: a promise that should hold is refuted.
    """
    path = find_run(run)
    folder = RunFolder.open(path)
    options: dict[str, Any] = {
        "canaries": canaries,
        "kind": None if kind is None else kind.value,
        "runs": runs,
        "certificates": certificates,
        "shadows": shadows,
        "members": members,
        "alpha": alpha,
        "seed": seed,
        "quick": quick,
    }
    if folder.read_config().get("kind") == KIND:
        if privacy or robustness:
            raise RequestError(f"{path} holds a synthesizer: audit it with --membership")
        settings = RunAuditSettings(privacy=False, robustness=False, membership=True, **options)
        _audit_synthesizer(folder, settings, held_out, as_json=as_json)
        return
    if held_out is not None:
        raise RequestError("--held-out is for synthesizers: a run has test records of its own")
    before = folder.read_card()
    if not (privacy or robustness or membership):
        privacy, robustness = before.privacy.claimed is not None, before.robustness.claimed is not None
        if not (privacy or robustness):
            raise RequestError(f"{path} promises nothing that could be refuted: name an audit all the same")
    _refuse_unread(privacy=privacy, robustness=robustness, membership=membership, options=options)
    settings = RunAuditSettings(privacy=privacy, robustness=robustness, membership=membership, **options)
    read_manifest(path)  # a damaged one is told before anything is done
    with progress_bars() as progress:
        found = audit_run(path, settings, device=device, progress=progress)
    card = found.card(folder.read_card())
    folder.write_card(card)
    write_report(card, folder.report)
    update_manifest(path, "card.json", "strip.npz", "report.html")
    refuted = found.refuted(card)
    if as_json:
        print_json({"run": str(path), **found.to_json(card)})
    else:
        show_card(card, folder.report, as_json=False)
        _show(found)
    _leave(refuted)


def _refuse_unread(*, privacy: bool, robustness: bool, membership: bool, options: dict[str, Any]) -> None:
    """An option of an audit that is not run is a misunderstanding."""
    readers = {
        "--privacy": (privacy, ("canaries", "kind", "runs")),
        "--robustness": (robustness, ("certificates",)),
        "--membership": (membership, ("shadows", "members")),
    }
    for audit_name, (wanted, names) in readers.items():
        for name in names:
            if options[name] is not None and not wanted:
                raise RequestError(f"--{name} is for {audit_name}: add that, or leave --{name} out")


def _leave(refuted: tuple[str, ...]) -> None:
    for sentence in refuted:
        messages.print(f"Refuted: {sentence}.", style="bold red", highlight=False, soft_wrap=True)
    if refuted:
        raise typer.Exit(1)


def _show(found: RunAudit) -> None:
    share = found.settings.share
    _line(f"Error level {found.settings.alpha:g} in all, {share:g} for each audit.")
    if found.privacy is not None:
        seen = found.privacy
        how = f"{seen.attack}, {count(seen.canaries)} canaries"
        right = f"{count(seen.correct)} of {count(seen.guesses)} guesses right"
        estimate = "none" if seen.estimate is None else f"{seen.estimate.epsilon:.4g}"
        _line(
            f"Privacy: epsilon at least {at_least(seen.epsilon_lower)} at delta {seen.delta:g} ({how}, "
            f"{right}); Gaussian estimate {estimate}, which is no bound."
        )
    for words, attacked in (("certified", found.robustness), ("claimed", found.published)):
        if attacked is not None:
            broken = f"{count(attacked.broken_count)} of {count(attacked.tested)} {words} radii broken"
            _line(f"Robustness: {broken}, {count(int(attacked.undecided.sum()))} undecided.")
    if found.membership is not None:
        _show_membership(found.membership)


def _show_membership(found: ReleasedMembership) -> None:
    for attack in found.released:
        _line(f"Membership: {_rates(attack)}")
    if found.by_coins is None:
        _line(f"No bound on epsilon: {found.released[0].reason}; 3 shadow models or more give one.")
    elif found.by_coins.epsilon_lower is not None:
        bound = f"{at_least(found.by_coins.epsilon_lower)} at delta {found.by_coins.delta:g}"
        _line(
            f"Membership, trained again with fair coins: epsilon at least {bound}; {_rates(found.by_coins)}"
        )


def _rates(found: MembershipAudit) -> str:
    named = ", ".join(
        f"{percent(point.true_positive)} of members ({percent(point.true_positive_low)} – "
        f"{percent_at_most(point.true_positive_high)}) named along with {count(point.false_positives)} of "
        f"{count(point.nonmembers)} others (aim {point.level:g})"
        for point in found.points
    )
    return f"{found.attack}: {named}; area {found.auroc:.3f}."


def _line(text: str) -> None:
    output.print(text, highlight=False, markup=False, soft_wrap=True)


def _audit_synthesizer(
    folder: RunFolder, settings: RunAuditSettings, held_out: str | None, *, as_json: bool
) -> None:
    for name in ("canaries", "kind", "runs", "certificates"):
        if getattr(settings, name) is not None:
            raise RequestError(f"--{name} is not for synthesizers: leave it out")
    model, config = load_synthesizer(folder.path), folder.read_config()
    before = folder.read_card()
    with progress_bars() as progress:
        progress("reading", 0, 1)
        train, others = _patients(model, config.get("source"), held_out, folder.path)
        progress("reading", 1, 1)
        found = audit_synthesizer_membership(
            model,
            train,
            others,
            shadows=settings.number("shadows"),
            most=settings.number("members"),
            alpha=settings.share,
            seed=settings.seed,
            progress=progress,
        )
    seen = None if found.by_coins is None else found.by_coins.observation()
    card = before if seen is None else with_observation(before, seen)
    notes = (membership_note(found, seed=settings.seed), READS_RECORDS)
    card = replace(card, notes=(*card.notes, *(note for note in notes if note not in card.notes)))
    folder.write_card(card)
    _write_report(card, folder)
    update_manifest(folder.path, "card.json", "report.html")
    refuted = refuted_privacy(card)
    if as_json:
        columns = to_json(card.privacy)
        shown = {name: columns[name] for name in ("claimed", "proven", "observed")}
        facts = {"run": str(folder.path), "alpha": settings.alpha, **shown}
        print_json({**facts, "membership": found.to_json(), "refuted": list(refuted), "card": card.to_json()})
    else:
        show_card(card, folder.report, as_json=False)
        _show_membership(found)
    _leave(refuted)


def _patients(
    model: Synthesizer, kept: object, held_out: str | None, path: Path
) -> tuple[Patients, Patients]:
    """Whom the synthesizer learned from, and patients whom it has never seen."""
    if not isinstance(kept, dict) or not isinstance(kept.get("data"), str):
        raise RequestError(f"{path} does not say where its patients came from; train again.")
    source = Source(
        data=kept["data"],
        data_dir=kept.get("data_dir"),
        schema=model.task.schema,
        records=model.task.records,
        unit=model.task.unit,
    )
    size = str(kept.get("size"))
    train = cut_to_size(source.read(model.task.schema).patients, size)
    if held_out is not None and os.path.isfile(held_out):
        return train, read_patients(home_expanded(Path(held_out)), model.task.schema).patients
    named = held_out if held_out is not None else None if source.preset is None else source.preset[0]
    if named is None:
        raise RequestError("name patients who were not used in training with --held-out FILE")
    name, _, part = named.partition(":")
    chosen = part or find_preset(name).held_out
    if chosen is None or (name, chosen) == source.preset:
        raise RequestError(f"{name} has no patients beside those of the run: name some with --held-out FILE")
    data_dir = None if source.data_dir is None else Path(source.data_dir)
    return train, load_patients(name, data_dir=data_dir, part=chosen).patients


def _write_report(card: Card, folder: RunFolder) -> None:
    """The page that is there: that of an evaluation where there is one, else that of the card."""
    evaluation = folder.path / EVALUATION
    if evaluation.is_file():
        found = Evaluation.from_json(read_json(evaluation), where=str(evaluation))
        write_synthesis_report(found, folder.report, card=card)
    else:
        write_report(card, folder.report)
