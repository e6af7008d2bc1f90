"""The command line. Exit codes: 0 done, 2 bad input, 3 over budget, 1 anything else.

What a command needs is imported when it is called: nobody waits for what they did not ask for.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from lapwing.cli import joining, party, survey, survey_answer
from lapwing.cli import learning as stream_commands
from lapwing.cli import ledger as ledger_commands
from lapwing.cli import party as party_commands
from lapwing.cli import query as query_commands
from lapwing.cli import survey as survey_commands
from lapwing.cli.budget import budget, history
from lapwing.cli.learning import train
from lapwing.cli.query import check
from lapwing.cli.starting import init
from lapwing.errors import BadFile, BadParameter, BadValue, LapwingError, MissingExtra, OverBudget, Tampered
from lapwing.examples.visits import write_visits

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
        print(f"lapwing {version('lapwing')}")
        raise typer.Exit


@app.callback()
def lapwing(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Differential privacy for every trust model, on one lifetime ledger."""


@app.command()
def explain(
    epsilon: Annotated[str, typer.Option(help="The ε of one answer, such as 0.5.")],
    n: Annotated[str, typer.Option("--n", help="How many people the data is about.")],
    delta: Annotated[str, typer.Option(help="The δ of one answer, such as 1e-6; 0 for none.")] = "0",
    plot: Annotated[
        Path | None, typer.Option(help="Draw the privacy loss into this .svg, .png or .pdf file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say in plain words what ε and δ promise, and what they cost in accuracy."""
    from lapwing.cli.console import show_explanation  # noqa: PLC0415
    from lapwing.cli.explanation import explain as explained  # noqa: PLC0415

    explanation = explained(epsilon, delta, _whole(n))
    if plot is not None:
        _draw(plot, epsilon, delta)
    if as_json:
        print(json.dumps(asdict(explanation), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        show_explanation(explanation)
        if plot is not None:
            print(f"\nThe picture is in {plot}")


@app.command()
def demo() -> None:
    """Show private SQL, a survey, a joint count, models and mechanisms, with lifetime budgets."""
    from lapwing.cli.console import show_demo  # noqa: PLC0415
    from lapwing.cli.demo import tell_party, tell_query, tell_survey
    from lapwing.examples import clinic as demo_story  # noqa: PLC0415

    tell_query()
    print()
    tell_survey()
    tell_party()
    try:
        from lapwing.cli.demo import tell_train  # noqa: PLC0415

        tell_train()
    except MissingExtra as missing:
        print(f"\n{missing}")
    print()
    show_demo(demo_story.run_demo())


for command in (
    write_visits,
    init,
    query_commands.prepare,
    query_commands.plan,
    query_commands.ask,
    query_commands.bounds,
    query_commands.truncated,
    check,
    query_commands.clear_hold,
    budget,
    history,
    train,
):
    app.command()(command)
app.add_typer(ledger_commands.app, name="ledger")
app.add_typer(stream_commands.app, name="stream")
for of_survey in (
    survey.invite,
    survey.serve,
    survey_answer.answer,
    survey.collect,
    survey.close,
):
    survey_commands.app.command()(of_survey)
app.add_typer(survey_commands.app, name="survey")
for of_parties in (
    joining.run,
    joining.relay,
    party.simulate,
    party.compare,
    party.example,
):
    party_commands.app.command()(of_parties)
app.add_typer(party_commands.app, name="party")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadParameter("n", "must be a whole number, such as 10000") from None


def _draw(path: Path, epsilon: str, delta: str) -> None:
    # matplotlib takes a second to load: only who wants a picture waits for it.
    from lapwing.plots.loss import privacy_loss  # noqa: PLC0415
    from lapwing.plots.style import checked_path, save

    target = checked_path(path)
    figure = privacy_loss(epsilon, delta)
    try:
        save(figure, target)
    except OSError as error:
        raise BadParameter("plot", f"{path} cannot be written ({error.strerror})") from None


def _exit_code(error: LapwingError) -> int:
    match error:
        case OverBudget():
            return OVER_BUDGET
        case BadParameter() | BadValue():
            return BAD_INPUT
        case _:
            return FAILED


def run(arguments: list[str] | None = None) -> None:
    """Run one command and exit. What was asked wrongly is answered in one line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        _never_fail_on_letters(stream)
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


def _never_fail_on_letters(stream: Any) -> None:
    """A terminal without Greek letters shows ? for them, rather than an error."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")


if __name__ == "__main__":
    run()
