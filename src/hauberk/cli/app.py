"""The commands, gathered."""

from __future__ import annotations

import re
import sys
import warnings
from typing import NoReturn, TextIO

import typer

from hauberk.cli.attack import attack
from hauberk.cli.audit import audit
from hauberk.cli.audit_mechanism import audit_mechanism_command
from hauberk.cli.calibrate import calibrate
from hauberk.cli.certify import certify_run
from hauberk.cli.compare import compare
from hauberk.cli.examine import report_run
from hauberk.cli.facts import account, data_list, methods_list
from hauberk.cli.groups import groups
from hauberk.cli.imitate import imitate_app
from hauberk.cli.inspect_data import data_inspect
from hauberk.cli.predict import predict
from hauberk.cli.reproduce import reproduce
from hauberk.cli.screen import messages
from hauberk.cli.sweep import CELL_COMMAND, CONTEXT, sweep, sweep_cell
from hauberk.cli.synth import synth_app
from hauberk.cli.train import demo, train
from hauberk.cli.truth_table import truth_table_command
from hauberk.cli.verify import verify
from hauberk.errors import RequestError
from hauberk.gradients import GeneralPathNotice
from hauberk.report.printable import printable
from hauberk.training.checkpoints import CheckpointNotice
from hauberk.version import __version__

app = typer.Typer(
    name="hauberk",
    help="Deep learning that is differentially private and certifiably robust, and says what is proven.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="The data sets that hauberk knows by name.", no_args_is_help=True)


def _version(show: bool) -> None:
    if show:
        print(f"hauberk {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    pass


app.command("demo", epilog="Example: hauberk demo --force")(demo)
app.command("train", epilog="Example: hauberk train --data digits --epsilon 3 --quick --name first")(train)
app.command("certify", epilog="Example: hauberk certify runs/demo --radius 0.25 --limit 200")(certify_run)
app.command(
    "attack",
    epilog="Example: hauberk attack runs/demo --attacks fgsm,mim,pgd --norm linf --radius 0.05,8/255",
)(attack)
app.command("predict", epilog="Example: hauberk predict runs/demo picture.png")(predict)
app.command("verify", epilog="Example: hauberk verify runs/demo")(verify)
app.command("report", epilog="Example: hauberk report runs/demo")(report_run)
app.command("groups", epilog="Example: hauberk groups runs/income --by sex,race,age:25:45:65")(groups)
app.command("compare", epilog="Example: hauberk compare runs/demo runs/other --out side-by-side")(compare)
app.command(
    "sweep",
    epilog="Example: hauberk sweep --data digits --epsilon 1,2,4 --sigma 0.25,0.5 --seeds 3 --quick",
    context_settings=CONTEXT,
)(sweep)
app.command(CELL_COMMAND, hidden=True, context_settings=CONTEXT)(sweep_cell)
app.command(
    "account",
    epilog="Example: hauberk account --records 60000 --batch 512 --epochs 40 --noise-multiplier 1.23",
)(account)
app.command(
    "calibrate",
    epilog="Example: hauberk calibrate --mechanism extended --epsilon 4 --delta 1e-5 --sensitivity 1",
)(calibrate)
app.command("audit", epilog="Example: hauberk audit runs/demo --privacy --canaries 500")(audit)
app.command(
    "audit-mechanism",
    epilog="Example: hauberk audit-mechanism analytic --epsilon 1 --delta 1e-3 --draws 1000000",
)(audit_mechanism_command)
app.command("truth-table", epilog="Example: hauberk truth-table --quick")(truth_table_command)
app.command("reproduce", epilog="Example: hauberk reproduce hgm-figure-1 --size quick")(reproduce)
app.command("methods", epilog="Example: hauberk methods --json")(methods_list)
data_app.command("list", epilog="Example: hauberk data list --data-dir ~/data")(data_list)
data_app.command("inspect", epilog="Example: hauberk data inspect people.csv --out people.toml")(data_inspect)
app.add_typer(data_app, name="data")
app.add_typer(imitate_app, name="imitate")
app.add_typer(synth_app, name="synth")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own notices as one sentence; everybody else's as Python shows them."""
    if issubclass(category, (GeneralPathNotice, CheckpointNotice)):
        messages.print(f"hauberk: {message}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    else:
        _show_others(message, category, filename, lineno, file, line)


_show_others = warnings.showwarning


# typer names the error of a wrong value only; the one above it is that of every wrong use of a command
_WrongUse: type[Exception] = typer.BadParameter.__mro__[1]


def _refuse(sentence: str) -> NoReturn:
    """Names and entries of files may stand in a sentence: none acts on a terminal, none has no end."""
    short = re.sub(r"\S{400,}", lambda long: f"{long[0][:200]}…{long[0][-20:]}", printable(sentence))
    messages.print(f"hauberk: {short}", style="bold red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)


def main() -> None:
    """Run a command; a wrong request costs one sentence and exit code 2, never a traceback."""
    warnings.showwarning = _show_warning
    try:
        sys.exit(app(prog_name="hauberk", standalone_mode=False))
    except RequestError as error:
        _refuse(str(error))
    except _WrongUse as error:
        said = " ".join(str(error.format_message()).split()).rstrip(".")  # type: ignore[attr-defined]
        if not said:  # no command was named, and its help has been printed
            sys.exit(2)
        context = error.ctx  # type: ignore[attr-defined]
        _refuse(f"{said}; see {'hauberk' if context is None else context.command_path} --help")
