"""`lapwing survey`: from a questionnaire to estimates, without anybody's true answers.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from lapwing.cli import console
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.survey.designing import Design


app = console.Commands(help="Surveys whose answers are randomized on each respondent's own device.")

EXAMPLE = "wellbeing.toml"
MOST_RESPONDENTS = 100_000_000
PORT = 8000
SurveyFile = Annotated[Path, Argument(metavar="FILE", help="The survey file, such as wellbeing.toml.")]
Respondents = Annotated[int, Option("--n", help="How many respondents.", min=1, max=MOST_RESPONDENTS)]


def designed(file: Path) -> Design:
    """Return the design of a survey file."""
    from lapwing.survey import design, load

    return design(load(file))


@app.command()
def example(folder: console.ExampleFolder = Path(".")) -> None:
    """Write a survey with a question of every kind, to begin from."""
    from lapwing.examples.visits import already_written

    target = folder / EXAMPLE
    text = files("lapwing.examples").joinpath("data", EXAMPLE).read_text(encoding="utf-8")
    with console.os_errors_told():
        is_new = not already_written({target: text})
        if is_new:
            folder.mkdir(parents=True, exist_ok=True)
            console.write_new(target, text, option="folder")
    console.print_written([str(target)], is_new=is_new)
    print(f"  lapwing survey plan {target} --n 5000")


@app.command()
def check(file: SurveyFile, *, as_json: console.AsJson = False) -> None:
    """Check a survey file. Every mistake is told with its line and what to write instead."""
    from lapwing.survey.collection import existing_fingerprint
    from lapwing.survey.designing import epsilon_text
    from lapwing.survey.invitations import require_answerable

    made = designed(file)
    require_answerable(made)
    shown = existing_fingerprint(made)
    if as_json:
        told = {"digest": made.digest, "fingerprint": shown, "warning": made.warning}
        epsilon = float(epsilon_text(made.epsilon))  # in the document that devices get, it is a text
        console.print_json({**told, "epsilon": epsilon, "survey": made.public()})
        return
    count = len(made.parts)
    asked = "all are asked" if made.asks_all else "each respondent is asked one at random"
    print(f"{file} is in order: {f'{count} questions, {asked}' if count > 1 else 'one question'}.")
    print(f"A respondent loses at most ε {epsilon_text(made.epsilon)}. It ends {made.survey.stops}.")
    if made.warning:
        print(f"Warning: {made.warning}")
    print(f"Digest {made.digest}")
    if shown is not None:
        print(f"The fingerprint of this survey and its key: {shown}")


@app.command()
def plan(
    file: SurveyFile,
    *,
    n: Respondents,
    margin: Annotated[
        str | None, Option(help="A wished-for error, such as 0.03 for 3 percentage points.")
    ] = None,
    confidence: console.Confidence = "0.95",
    as_json: console.AsJson = False,
) -> None:
    """Show each question's protocol, ε and expected error, and how many respondents a margin needs."""
    from lapwing.cli.show_survey import show_plan
    from lapwing.survey import plan as planned

    made = planned(designed(file), n, margin=margin, confidence=confidence)
    console.print_result(made, show_plan, as_json=as_json)


@app.command()
def simulate(
    file: SurveyFile,
    *,
    n: Respondents,
    out: Annotated[
        Path | None,
        Option(help="Write the reports into this new file; else FILE.simulated, which is replaced."),
    ] = None,
    as_json: console.AsJson = False,
) -> None:
    """Invent respondents, randomize their answers for real, and say what the invented truth is."""
    from lapwing.cli.show_survey import show_invented
    from lapwing.survey.planning import simulate_answers
    from lapwing.survey.report_file import forget_reports, write_reports

    made = designed(file)
    target = file.with_suffix(".simulated") if out is None else out
    if out is None:
        forget_reports(target)  # invented ones of an earlier call
    people = simulate_answers(made.survey, n)
    write_reports(
        target, made, made.simulate({name: simulated.answers for name, simulated in people.items()})
    )
    if as_json:
        questions = {
            name: {"law": simulated.law, "truth": dict(simulated.truth())}
            for name, simulated in people.items()
        }
        console.print_json({"n": n, "reports": str(target), "questions": questions})
    else:
        show_invented(people.values(), n, str(target))
        print(f"\nNext:\n  lapwing survey estimate {file} --reports {target}")


@app.command()
def estimate(
    file: SurveyFile,
    *,
    reports: Annotated[
        Path | None, Option(help="Read reports from this file instead of the survey's own store.")
    ] = None,
    by: Annotated[
        str | None, Option(metavar="QUESTION", help="Estimate within each answer to this question.")
    ] = None,
    cross: Annotated[
        list[str] | None, Option(metavar="ONE,OTHER", help="A table of two questions; may be repeated.")
    ] = None,
    liars: Annotated[
        str, Option(help="Say what this fraction of lying respondents could do, such as 0.01.")
    ] = "0",
    confidence: console.Confidence = "0.95",
    plot: console.PlotPath = None,
    picture: Annotated[Path | None, Option(hidden=True)] = None,
    as_json: console.AsJson = False,
) -> None:
    """Estimate every question from the reports, with intervals."""
    from lapwing.cli.show_survey import draw_estimates, respondent_loss, show_estimates
    from lapwing.survey import estimate as estimated
    from lapwing.survey.collection import stored_reports
    from lapwing.survey.report_file import read_reports

    pairs = [_pair(text) for text in cross or ()]
    if picture is not None:
        console.tell("the option --picture is called --plot now")
        plot = plot or picture
    console.check_plot(plot)
    made = designed(file)
    if reports is None:
        with console.os_errors_told():
            stored, with_credentials = stored_reports(made)
    else:
        stored, with_credentials = read_reports(reports, made), False
    with console.working("estimating") as progress:
        result = estimated(
            made, stored, confidence=confidence, by=by, cross=pairs, liars=liars, progress=progress
        )
    privacy = respondent_loss(made, len(stored), with_credentials=with_credentials)
    if as_json:
        console.print_json({**result.to_json(), "privacy": privacy.to_json()})
    else:
        show_estimates(made, result, privacy)
    if plot is not None:
        console.write_plot(plot, draw_estimates(made, result), quiet=as_json)


def _pair(text: str) -> tuple[str, str]:
    first, comma, second = text.partition(",")
    if not comma or "," in second:
        raise BadParameter("cross", "must be two questions with a comma, such as place,content")
    return first.strip(), second.strip()


@app.command()
def invite(
    file: SurveyFile,
    *,
    count: Annotated[int | None, Option(help="How many, for people whom nobody names.")] = None,
    to: Annotated[Path | None, Option(help="A file with one id or address of a person a line.")] = None,
    base: Annotated[
        str, Option(help="The address at which respondents reach the survey.")
    ] = f"http://127.0.0.1:{PORT}",
    out: Annotated[Path | None, Option(help="Write the links into this new file; else print them.")] = None,
    again: Annotated[bool, Option("--again", help="Also those who were invited to it before.")] = False,
) -> None:
    """Issue invitations: each is charged its worst case now, answered or not. Prints one link each."""
    from lapwing.survey import invitations
    from lapwing.survey.collection import opened_reports, read_people, require_base_address, shown_ledger

    require_base_address(base)
    design = designed(file)
    invitations.require_answerable(design)  # before a ledger is made
    people = None if to is None else read_people(to)
    if design.warning:
        console.tell(f"Warning: {design.warning}")
    issued = 0
    with (
        console.os_errors_told(),
        opened_reports(design) as reports,
        invitations.open_ledger(design.survey, console.tell) as ledger,
        console.working("inviting") as progress,
    ):
        batches = invitations.invite(
            design, ledger, reports, people=people, count=count, again=again, progress=progress
        )
        with _output(out) as write:  # the file is made before anything is charged
            for batch in batches:
                lines = [
                    f"{invitation.person}\t{invitation.link(base)}"
                    if invitation.person
                    else invitation.link(base)
                    for invitation in batch
                ]
                write("\n".join([*lines, ""]))
                issued += len(batch)
    price = f"ε {float(design.epsilon):.4g}"
    told = f"Issued {issued:,} invitations, each charged {price} in {shown_ledger(design)}."
    print(told, file=sys.stderr if out is None else sys.stdout)


@app.command()
def serve(
    file: SurveyFile,
    *,
    host: Annotated[str, Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, Option(help="The port to listen at; 0 for any.", min=0, max=65535)] = PORT,
    tls_cert: Annotated[Path | None, Option(help="A certificate (PEM), for https.")] = None,
    tls_key: Annotated[Path | None, Option(help="The certificate's key (PEM).")] = None,
    behind_tls_proxy: Annotated[
        bool, Option("--behind-tls-proxy", help="A proxy with TLS stands in front, and logs no addresses.")
    ] = False,
) -> None:
    """Serve the page and take reports, until you stop it. No address and no time is logged or stored."""
    from lapwing.survey.collection import existing_fingerprint
    from lapwing.survey.web_app import open_survey
    from lapwing.web.serving import require_encrypted
    from lapwing.web.serving import serve as run

    has_tls = tls_cert is not None
    require_encrypted(host, has_tls=has_tls, behind_tls_proxy=behind_tls_proxy)
    with console.os_errors_told():
        opened = open_survey(file)

    stops = opened.design.survey.stops

    def ready(address: str) -> None:
        state = opened.service.reports.state()
        print(f"{opened.design.survey.title}: {address}")
        print(f"The fingerprint of this survey and its key: {existing_fingerprint(opened.design)}")
        end = "The survey is closed: it takes no more" if state.is_closed else f"It ends {stops}"
        print(f"{state.reports:,} reports so far. {end}.", flush=True)

    with closing(opened.service), suppress(KeyboardInterrupt):
        run(
            opened.app(has_tls=has_tls),
            host=host,
            port=port,
            certificate=tls_cert,
            key=tls_key,
            behind_tls_proxy=behind_tls_proxy,
            ready=ready,
        )


@app.command()
def collect(
    file: SurveyFile,
    reports: Annotated[Path, Argument(metavar="REPORTS", help="A file of reports made offline.")],
    *,
    again: Annotated[
        bool, Option("--again", help="Count a file whose content was collected before once more.")
    ] = False,
    as_json: console.AsJson = False,
) -> None:
    """Take reports from a file. Each is charged as an invitation; they have no credential, on your word."""
    from lapwing.survey.collection import collect_file

    design = designed(file)
    with console.os_errors_told(), console.working("collecting") as progress:
        done = collect_file(design, reports, again=again, tell=console.tell, progress=progress)
    if as_json:
        console.print_json({"file": done.in_file, "taken": done.taken, "reports": done.stored})
        return
    print(f"Took {done.taken:,} of {done.in_file:,} reports. There are {done.stored:,} now.")
    if done.taken < done.in_file:
        print("The others were collected before (the same content: see --again), or the survey is closed.")


@app.command()
def close(file: SurveyFile, *, as_json: console.AsJson = False) -> None:
    """Close the survey for ever, and remove every trace of the order in which reports came."""
    from lapwing.survey.collection import opened_reports

    with console.os_errors_told(), opened_reports(designed(file)) as kept:
        kept.close_survey()
        state, (admitted, used) = kept.state(), kept.invitations()
    if as_json:
        told = {"reports": state.reports, "invitations": admitted, "signed": used, "closed": True}
        console.print_json(told)
        return
    reports = "1 report" if state.reports == 1 else f"{state.reports:,} reports"
    print(f"Closed, with {reports}. Invitations used: {used:,} of {admitted:,}.")


@contextmanager
def _output(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes at once: to standard output, or to a new file for its owner only.

    A link lets anybody take part, and its charge is paid: none may be lost or shown to others.
    """
    if path is None:
        yield lambda text: print(text, end="", flush=True)
        return
    with console.new_file(path, option="out", mode=0o600) as file:

        def write(text: str) -> None:
            file.write(text.encode())
            file.flush()

        yield write
