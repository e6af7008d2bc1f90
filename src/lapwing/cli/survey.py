"""`lapwing survey`: from a questionnaire to estimates, without anybody's true answers.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lapwing.cli.example import is_there
from lapwing.cli.opened import AsJson, plainly, print_json
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lapwing.survey.estimating import Estimates
    from lapwing.survey.planning import Design

app = typer.Typer(
    name="survey",
    help="Surveys whose answers are randomized on each respondent's own device.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXAMPLE = "wellbeing.toml"
MOST_RESPONDENTS = 100_000_000
SurveyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The survey file, such as wellbeing.toml.")
]
Respondents = Annotated[int, typer.Option("--n", help="How many respondents.", min=1, max=MOST_RESPONDENTS)]
Confidence = Annotated[str, typer.Option(help="How sure each interval is.")]
Reports = Annotated[
    Path | None, typer.Option(help="Read reports from this file instead of the survey's own store.")
]


def designed(file: Path) -> Design:
    """The design of a survey file."""
    from lapwing.survey.planning import design  # noqa: PLC0415
    from lapwing.survey.questionnaire import load  # noqa: PLC0415

    return design(load(file))


@app.command()
def example(
    folder: Annotated[Path, typer.Argument(help="Where to write; this folder unless you say.")] = Path("."),
) -> None:
    """Write a survey with a question of every kind, to begin from."""
    target = folder / EXAMPLE
    text = files("lapwing.cli").joinpath("data", EXAMPLE).read_text(encoding="utf-8")
    with plainly():
        if is_there({target: text}):
            print(f"There already, and left as it was: {target}. Next:")
        else:
            folder.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8") as file:
                file.write(text)
            print(f"Wrote {target}. Next:")
    print(f"  lapwing survey plan {target} --n 5000")


@app.command()
def check(file: SurveyFile, *, as_json: AsJson = False) -> None:
    """Check a survey file. Every mistake is told with its line and what to write instead."""
    from lapwing.survey.invitations import require_answerable  # noqa: PLC0415
    from lapwing.survey.planning.design import epsilon_text  # noqa: PLC0415

    found = designed(file)
    require_answerable(found)
    shown = fingerprint_of(found)
    if as_json:
        told = {"digest": found.digest, "fingerprint": shown, "warning": found.warning}
        print_json({**told, "survey": found.public()})
        return
    count = len(found.parts)
    asked = "all are asked" if found.asks_all else "each respondent is asked one at random"
    print(f"{file} is in order: {f'{count} questions, {asked}' if count > 1 else 'one question'}.")
    print(f"A respondent loses at most ε {epsilon_text(found.epsilon)}. It ends {found.survey.stops}.")
    if found.warning:
        print(f"Warning: {found.warning}")
    print(f"Digest {found.digest}")
    if shown is not None:
        print(f"The fingerprint of this survey and its key: {shown}")


def fingerprint_of(made: Design) -> str | None:
    """What respondents can compare, of the survey and its key; None before its key was made."""
    from lapwing.survey.collecting import known_key  # noqa: PLC0415
    from lapwing.survey.respondent.offered import fingerprint  # noqa: PLC0415

    survey = made.survey
    key = known_key(survey.ledger, survey.ledger_keys, name=survey.name, digest=made.digest)
    return None if key is None else fingerprint(made.digest, key.public)


@app.command()
def plan(
    file: SurveyFile,
    *,
    n: Respondents,
    margin: Annotated[
        str | None, typer.Option(help="A wished-for error, such as 0.03 for 3 percentage points.")
    ] = None,
    confidence: Confidence = "0.95",
    as_json: AsJson = False,
) -> None:
    """Show each question's protocol, ε and expected error, and how many respondents a margin needs."""
    from lapwing.cli.show_survey import show_plan  # noqa: PLC0415
    from lapwing.survey.planning import plan as planned  # noqa: PLC0415

    made = planned(designed(file), n, margin=margin, confidence=confidence)
    if as_json:
        print_json(made.to_json())
    else:
        show_plan(made)


@app.command()
def simulate(
    file: SurveyFile,
    *,
    n: Respondents,
    out: Annotated[
        Path | None, typer.Option(help="Write the reports into this new file; else FILE.simulated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Invent respondents, randomize their answers for real, and say what the invented truth is."""
    from lapwing.cli.show_survey import show_invented  # noqa: PLC0415
    from lapwing.survey.planning.invented import invent  # noqa: PLC0415
    from lapwing.survey.planning.report_file import write_reports  # noqa: PLC0415

    made = designed(file)
    target = file.with_suffix(".simulated") if out is None else out
    people = invent(made.survey, n)
    write_reports(target, made, made.simulate({name: one.answers for name, one in people.items()}))
    if as_json:
        questions = {name: {"law": one.law, "truth": dict(one.truth())} for name, one in people.items()}
        print_json({"n": n, "reports": str(target), "questions": questions})
    else:
        show_invented(people.values(), n, str(target))
        print(f"\nNext:\n  lapwing survey estimate {file} --reports {target}")


def stored_reports(made: Design) -> tuple[NDArray[np.uint8], bool]:
    """All reports in the survey's store, and whether each came with a credential."""
    from lapwing.ledger.places import is_postgres  # noqa: PLC0415
    from lapwing.survey.collecting import open_store, read  # noqa: PLC0415

    where = made.survey.reports
    if not is_postgres(where) and not Path(where).is_file():
        raise BadParameter(
            "reports", f"there are none yet at {where}: serve the survey, or use --reports FILE"
        )
    with plainly():
        kept = open_store(where, digest=made.digest, report_size=made.report_size)
        try:
            return read(kept), not kept.state().without_credential
        finally:
            kept.close()


@app.command()
def estimate(
    file: SurveyFile,
    *,
    reports: Reports = None,
    by: Annotated[
        str | None, typer.Option(metavar="QUESTION", help="Estimate within each answer to this question.")
    ] = None,
    cross: Annotated[
        list[str] | None,
        typer.Option(metavar="ONE,OTHER", help="A table of two questions; may be repeated."),
    ] = None,
    liars: Annotated[
        str, typer.Option(help="Say what this fraction of lying respondents could do, such as 0.01.")
    ] = "0",
    confidence: Confidence = "0.95",
    picture: Annotated[
        Path | None, typer.Option(help="Draw the estimates into this .svg, .png or .pdf file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate every question from the reports, with intervals."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.cli.show_survey import privacy_of, show_estimates  # noqa: PLC0415
    from lapwing.survey.estimating import estimate as estimated  # noqa: PLC0415
    from lapwing.survey.planning.report_file import read_reports  # noqa: PLC0415

    pairs = [_pair(text) for text in cross or ()]
    if picture is not None:
        from lapwing.plots.style import checked_path  # noqa: PLC0415

        checked_path(picture)
    made = designed(file)
    if reports is None:
        found, with_credentials = stored_reports(made)
    else:
        found, with_credentials = read_reports(reports, made), False
    with working("estimating") as progress:
        result = estimated(
            made, found, confidence=confidence, by=by, cross=pairs, liars=liars, progress=progress
        )
    privacy = privacy_of(made, len(found), with_credentials=with_credentials)
    if as_json:
        print_json({**result.to_json(), "privacy": privacy.to_json()})
    else:
        show_estimates(made, result, privacy)
    if picture is not None:
        _draw(made, result, picture)
        if not as_json:
            print(f"\nThe picture is in {picture}")


def _pair(text: str) -> tuple[str, str]:
    one, comma, other = text.partition(",")
    if not comma or "," in other:
        raise BadParameter("cross", "must be two questions with a comma, such as place,content")
    return one.strip(), other.strip()


def _draw(made: Design, result: Estimates, path: Path) -> None:
    from lapwing.cli.show_survey import panels_of  # noqa: PLC0415
    from lapwing.plots.estimates import estimates  # noqa: PLC0415
    from lapwing.plots.style import save  # noqa: PLC0415

    title = f"{made.survey.title} ({result.reports:,} reports)"
    figure = estimates(panels_of(result), title=title, confidence=float(result.confidence))
    try:
        save(figure, path)
    except OSError as error:
        raise BadParameter("picture", f"{path} cannot be written ({error.strerror})") from None
