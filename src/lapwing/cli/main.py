"""The command line. Exit codes: 0 done, 2 bad input (a missing file, too), 3 over budget, 1 anything else.

The library is imported when a command runs: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from lapwing.cli import audit, learning, ledger, party, publish, query, survey
from lapwing.cli.attack import attack
from lapwing.cli.budget import budget, history
from lapwing.cli.console import tell
from lapwing.cli.explain import explain
from lapwing.cli.learning import train
from lapwing.cli.report import report, verify
from lapwing.cli.starting import example, init
from lapwing.cli.survey_answer import answer
from lapwing.errors import BadFile, BadParameter, BadValue, LapwingError, OverBudget, Tampered

DONE, FAILED, BAD_INPUT, OVER_BUDGET = 0, 1, 2, 3
NOT_WHAT_IT_WAS = "this is not what it was:"
WHAT_NOW = 'See docs/guides/ledger.md, section "The anchor does not match: what now".'

app = typer.Typer(
    name="lapwing",
    help="Differential privacy for every trust model, on one lifetime ledger.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from lapwing import __version__

        print(f"lapwing {__version__}")
        raise typer.Exit


@app.callback()
def lapwing(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Differential privacy for every trust model, on one lifetime ledger."""


def demo() -> None:
    """Show private SQL, a survey, a joint count, models, releases and mechanisms, with lifetime budgets."""
    from lapwing.cli.demo import show_demo

    show_demo()


def _old_name(command: Callable[..., None], *, now: str) -> Callable[..., None]:
    """Return a command under its old name, which tells the new one."""

    @wraps(command)
    def renamed(*arguments: Any, **options: Any) -> None:
        tell(f"this command is called {now} now")
        command(*arguments, **options)

    return renamed


for command in (
    explain,
    demo,
    example,
    init,
    query.prepare,
    query.plan,
    query.ask,
    query.bounds,
    query.truncated,
    query.check,
    query.clear_hold,
    budget,
    history,
    train,
    attack,
    report,
    verify,
):
    app.command()(command)
app.command("dropped", hidden=True)(_old_name(query.truncated, now="truncated"))
app.command("looked", hidden=True)(_old_name(query.clear_hold, now="clear-hold"))
survey.app.command()(answer)
for name, commands in (
    ("ledger", ledger),
    ("stream", learning),
    ("survey", survey),
    ("party", party),
    ("publish", publish),
    ("audit", audit),
):
    app.add_typer(commands.app, name=name)


def _exit_code(error: LapwingError) -> int:
    match error:
        case OverBudget():
            return OVER_BUDGET
        case BadParameter() | BadValue():
            return BAD_INPUT
        case _:
            return FAILED


def run(arguments: list[str] | None = None) -> None:
    """Run one command and exit. Errors are told in one line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        _replace_unknown_letters(stream)
    try:
        code = app(arguments, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else DONE)
    except Tampered as error:
        _complain(NOT_WHAT_IT_WAS)
        for found in error.found:
            print(f"  - {' '.join(found.split())}", file=sys.stderr)
        print(f"  {WHAT_NOW}", file=sys.stderr)
        sys.exit(FAILED)
    except BadFile as error:
        _complain("the file has mistakes:")
        for mistake in error.mistakes:
            print(f"  {mistake}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except LapwingError as error:
        _complain(str(error))
        sys.exit(_exit_code(error))
    except typer.TyperException as error:
        _complain(error.format_message())
        sys.exit(error.exit_code)
    except typer.Abort:
        _complain("stopped")
        sys.exit(FAILED)


def _complain(text: str) -> None:
    if text:  # `lapwing` alone has shown its help already
        print(f"lapwing: {' '.join(text.split())}", file=sys.stderr)


def _replace_unknown_letters(stream: Any) -> None:
    """Let a terminal without Greek letters show ? for them, instead of failing."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


if __name__ == "__main__":
    run()
