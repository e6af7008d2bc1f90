"""The command line. Exit codes: 0 done, 2 bad input (a missing file, too), 3 over budget, 1 anything else.

The library is imported when a command runs: `lapwing --help` must not wait for it.

With `--json`, a command that fails prints an object on standard output:
`{"error": {"code": …, "message": …, "exit_code": …}}`, and the fields that the error has, such as `asked`
and `left` of `over-budget`. The codes are those of `docs/reference/errors.md`, and two more: `usage` for a
command line that cannot be understood, and `stopped` for a command that a person ended.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Exit, Option
from typer.core import TyperGroup

from lapwing.cli import (
    audit,
    budget,
    learning,
    ledger,
    party,
    people,
    publish,
    query,
    report,
    starting,
    survey,
)
from lapwing.cli.attack import attack
from lapwing.cli.console import Commands, os_errors_told, print_findings, print_json, tell
from lapwing.cli.explain import explain
from lapwing.cli.schema import schema
from lapwing.cli.serve import PORT, serve
from lapwing.cli.show import OWN_NUMBERS, show
from lapwing.cli.survey_answer import answer
from lapwing.errors import BadFile, BadParameter, BadValue, LapwingError, OverBudget, Tampered, fields_of

USAGE, STOPPED = "usage", "stopped"
DONE, FAILED, BAD_INPUT, OVER_BUDGET = 0, 1, 2, 3
DEMO_FOLDER = "lapwing-demo"
PROGRAM = "lapwing"  # also if it is run as a module: completion needs one name
NOT_WHAT_IT_WAS = "this is not what it was:"
WHAT_NOW = 'See docs/guides/ledger.md, section "The anchor does not match: what now".'


class CommandsByUser(TyperGroup):
    """The commands in the order of the table `COMMANDS`. Typer would list groups of commands last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order in which help and completion show them."""
        known = super().list_commands(ctx)
        wanted = [_name_of(command) for commands in COMMANDS.values() for command in commands]
        return sorted(known, key=lambda name: wanted.index(name) if name in wanted else len(wanted))


def _name_of(command: Callable[..., Any] | tuple[str, typer.Typer]) -> str:
    return command[0] if isinstance(command, tuple) else command.__name__.replace("_", "-")


app = Commands(
    name=PROGRAM,
    cls=CommandsByUser,
    help="Differential privacy for every trust model, on one lifetime ledger.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},  # all commands inherit it
)


def _version(wanted: bool) -> None:
    if wanted:
        from lapwing import __version__

        print(f"lapwing {__version__}")
        raise Exit


@app.callback()
def lapwing(
    _: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Differential privacy for every trust model, on one lifetime ledger."""


def demo(
    folder: Annotated[
        Path | None,
        Argument(metavar="[DIR]", help=f"With --serve: the folder that is filled; else {DEMO_FOLDER}."),
    ] = None,
    *,
    serve: Annotated[
        bool, Option("--serve", help="Fill a folder with examples, and open the web console on it.")
    ] = False,
    port: Annotated[int, Option(min=0, max=65535, help="With --serve: the port; 0 for a free one.")] = PORT,
) -> None:
    """Show private SQL, a survey, a joint count, models, releases and mechanisms, with lifetime budgets."""
    if serve:
        from lapwing.cli.demo_serve import serve_demo

        with os_errors_told():
            serve_demo(folder or Path(DEMO_FOLDER), port=port)
        return
    if folder is not None:
        raise BadParameter("folder", "is for --serve: without it, the demo keeps nothing")
    from lapwing.cli.demo import show_demo

    show_demo()


def _old_name(command: Callable[..., None], *, now: str) -> Callable[..., None]:
    """Return a command under its old name, which tells the new one."""

    @wraps(command)
    def renamed(*arguments: Any, **options: Any) -> None:
        tell(f"this command is called {now} now")
        command(*arguments, **options)

    return renamed


# For each kind of user, the commands in the order of the help. A pair is a name and its own commands.
COMMANDS: dict[str, tuple[Callable[..., Any] | tuple[str, typer.Typer], ...]] = {
    "Curators and analysts": (
        starting.example,
        starting.init,
        schema,
        query.prepare,
        query.check,
        query.bounds,
        query.plan,
        query.ask,
        query.truncated,
        query.clear_hold,
    ),
    "Servers": (serve, ("people", people.app)),
    "Survey owners and respondents": (("survey", survey.app),),
    "Parties": (("party", party.app),),
    "Publishers": (("publish", publish.app),),
    "Model builders": (("stream", learning.app), learning.train),
    "Privacy officers and auditors": (
        budget.budget,
        budget.history,
        ("ledger", ledger.app),
        report.report,
        report.verify,
        ("audit", audit.app),
    ),
    "Learn what it means": (explain, show, demo, attack),
}
for panel, commands in COMMANDS.items():
    for command in commands:
        if isinstance(command, tuple):
            app.add_typer(command[1], name=command[0], rich_help_panel=panel)
        else:
            own = OWN_NUMBERS if command is show else None
            app.command(rich_help_panel=panel, context_settings=own)(command)
app.command("dropped", hidden=True)(_old_name(query.truncated, now="truncated"))
app.command("looked", hidden=True)(_old_name(query.clear_hold, now="clear-hold"))
survey.app.command()(answer)


def _exit_code(error: LapwingError) -> int:
    match error:
        case OverBudget():
            return OVER_BUDGET
        case BadParameter() | BadValue():
            return BAD_INPUT
        case _:
            return FAILED


def run(arguments: list[str] | None = None) -> None:
    """Run one command and exit. Errors are told in one line, without a traceback.

    With `--json`, standard output gets the error as an object, besides.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without Greek letters shows ? for them
            stream.reconfigure(errors="replace")
    try:
        code = app(arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else DONE)
    except LapwingError as error:
        code, kind, message, fields = _exit_code(error), error.code, str(error), fields_of(error)
        _explain(error)
    except typer.TyperException as error:
        code, kind, message, fields = error.exit_code, USAGE, error.format_message(), {}
        _complain(message)
    except typer.Abort:
        code, kind, message, fields = FAILED, STOPPED, "stopped", {}
        _complain(message)
    if message and wants_json(sys.argv[1:] if arguments is None else arguments):
        print_error(kind, message, code, fields)
    sys.exit(code)


def _explain(error: LapwingError) -> None:
    """Print an error on stderr, with all that it found."""
    match error:
        case Tampered():
            print_findings(NOT_WHAT_IT_WAS, error.found, WHAT_NOW)
        case BadFile():
            _complain("the file has mistakes:")
            for mistake in error.mistakes:
                print(f"  {mistake}", file=sys.stderr)
        case _:
            _complain(str(error))


def _complain(text: str) -> None:
    if text:  # `lapwing` alone has shown its help already
        print(f"lapwing: {' '.join(text.split())}", file=sys.stderr)


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON. Words after `--` are no options."""
    words = list(arguments)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def print_error(code: str, message: str, exit_code: int, fields: dict[str, Any] | None = None) -> None:
    """Print an error as one JSON object."""
    always = {"code": code, "message": message, "exit_code": exit_code}
    more = {name: value for name, value in (fields or {}).items() if name not in always}
    print_json({"error": {**always, **more}})
