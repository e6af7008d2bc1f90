"""`lapwing audit`: try to break a privacy claim. Nothing is charged, and no private row is read.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from rich.text import Text
from typer import Argument, Exit, Option

from lapwing.cli import console
from lapwing.cli.sql_text import Sql, SqlFile, read_sql
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.audit.audit_run import AuditReport
    from lapwing.audit.case import AuditCase
    from lapwing.ledger.keys import SigningKey

app = console.Commands(help="Try to break a privacy claim. Nothing is charged, and no private row is read.")
NOT_PASSED = 1
AuditedFile = Annotated[Path, Argument(metavar="FILE", help="The file to audit.")]


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The options of every audit."""

    seconds: Annotated[float, Option(help="Time for drawing samples, of the whole audit.")] = 60.0
    exact_only: Annotated[
        bool, Option("--exact-only", help="Only replay and exact probabilities: no chance in the result.")
    ] = False
    quick: Annotated[bool, Option("--quick", help="Try a few settings of each claim instead of all.")] = (
        False
    )
    html: Annotated[
        Path | None, Option("--html", help="Write a report without scripts into this new file.")
    ] = None
    as_json: console.AsJson = False
    sign: Annotated[
        str | None,
        Option(
            metavar="LEDGER",
            help="With --json: sign the run with the key of this ledger, or of the ledger of this policy, "
            "survey, pipeline or release file. Its reports show signed runs only.",
        ),
    ] = None

    def check(self) -> None:
        """Raise BadParameter before the audit if its time is none, or its report could not be written."""
        if not 0 < self.seconds < float("inf"):
            raise BadParameter(
                "seconds", f"{self.seconds:g} is no time: give a number above 0, such as --seconds 60"
            )
        if self.sign is not None and not self.as_json:
            raise BadParameter("--sign", "signs the JSON of a run. Add --json")
        path = self.html
        if path is not None and (path.exists() or not path.parent.is_dir()):
            why = "exists: nothing is written over" if path.exists() else "is in a folder that is not there"
            raise BadParameter("--html", f"{path} {why}. Give another name")


WHOLE_AUDIT = AuditOptions(seconds=300.0)


def _run(
    cases: Sequence[AuditCase], command: str | None, options: AuditOptions, uncovered: Sequence[str] = ()
) -> None:
    from lapwing.audit.audit_run import ALL_STAGES, EXACT_STAGES, run_audit
    from lapwing.audit.case import StageBudget

    options.check()
    key = None if options.sign is None else _signing_key(options.sign)
    budget = StageBudget(seconds=options.seconds, is_thorough=not options.quick)
    if command:
        command = f"{command} --seconds {options.seconds:g}{' --quick' * options.quick}"
    with console.working("Auditing") as progress:
        report = run_audit(
            cases,
            budget,
            stages=EXACT_STAGES if options.exact_only else ALL_STAGES,
            commands={case.name: command for case in cases} if command else {},
            uncovered=uncovered,
            progress=lambda done, of, _: progress(done, of),
        )
    if key is None:
        console.print_result(report, show_report, as_json=options.as_json)
    else:
        from lapwing.audit.signed_audit import signed_run

        console.print_json(signed_run(report.to_json(), key))
    if options.html is not None:
        from lapwing.audit.report import html_report

        with console.new_file(options.html, option="--html") as file:
            file.write(html_report(report))
    if not report.passed:
        raise Exit(NOT_PASSED)


def _signing_key(where: str) -> SigningKey:
    """Return the key of a ledger, before the audit begins."""
    from lapwing.ledger.keys import LedgerKeys
    from lapwing.ledger.ledger_place import LedgerPlace

    named = console.LedgerFiles().of(where)
    named.require()
    place = LedgerPlace.of(named.where, keys=named.keys, anchor=named.anchor)
    with console.os_errors_told():
        return LedgerKeys.load(place.keys).signing


def show_report(report: AuditReport) -> None:
    """Show what was audited, what was found, and what each stage could have shown."""
    from lapwing.audit.report import outcome_of, shown_epsilon, witness_rows

    rows = [
        (
            case_result.case.name if not place else "",
            result.stage.value,
            Text(outcome_of(result), style="" if result.holds else "bold"),
            shown_epsilon(result.claimed),
            shown_epsilon(result.measured),
            shown_epsilon(result.could_show),
        )
        for case_result in report.cases
        for place, result in enumerate(case_result.stages)
    ]
    with console.page() as out:
        heads = ("claim", "stage", "result", "claimed ε", "found ε", "would have shown")
        out.table(*heads, right=(3, 4, 5), rows=rows)
        for case_result in report.violations:
            out.heading(f"Violation: {case_result.case.name}")
            out.pairs(*witness_rows(case_result))
        if len(report.cases) == 1:
            if report.cases[0].case.reason:
                out.print(Text(f"  Note: {report.cases[0].case.reason}.", style="dim"))
            for result in report.cases[0].stages:
                for line in result.notes:
                    out.print(Text(f"  {result.stage.value}: {line}", style="dim"))
        caught = len(report.self_check) - len(report.missed)
        out.print(f"Self-check: {caught} of {len(report.self_check)} planted bugs caught.")
        if report.passed:
            out.print(report.verdict)
        else:
            out.warning(report.verdict)


def _is_function(name: str) -> bool:
    """Return whether a name is module:function or file.py:function, and no claim of Lapwing."""
    _, colon, function = name.rpartition(":")
    if not colon or not function.isidentifier():
        return False
    from lapwing.audit.registry import cases

    return all(case.name.casefold() != name.casefold() for case in cases())


def _named(name: str) -> list[AuditCase]:
    """Return the registry's cases of this name, or of this mechanism."""
    from lapwing.audit.registry import cases

    known = cases()
    wanted = name.casefold()
    by_name = [case for case in known if case.name.casefold() == wanted]
    if by_name:
        return by_name
    titles = {
        case.name: {getattr(mechanism, "__name__", str(mechanism)).casefold() for mechanism in case.covers}
        for case in known
    }
    covering = [case for case in known if wanted in titles[case.name]]
    if covering:
        return covering
    names = [case.name for case in known] + sorted(
        {title for several in titles.values() for title in several}
    )
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise BadParameter(
        "name", f"there is no claim called {name!r}: {hint}`lapwing audit list` names all claims of Lapwing"
    )


@app.command()
def example(folder: console.ExampleFolder = Path(".")) -> None:
    """Write a file with three private counts to audit. Each claims ε = 1, and one of them is right."""
    from lapwing.examples.own_functions import OWN_FUNCTIONS, write_own_functions

    with console.os_errors_told():
        names, is_new = write_own_functions(folder)
    console.print_written(names, is_new=is_new)
    for function in ("right", "narrow_noise", "float_noise"):
        print(f"  lapwing audit mechanism {folder / OWN_FUNCTIONS}:{function} --epsilon 1 --seconds 5")


@app.command("list")
def list_claims(*, as_json: console.AsJson = False) -> None:
    """List all claims in the registry, with the stages that try to break them."""
    from lapwing.audit.registry import cases

    rows = [
        (case.family.value, case.name, ", ".join(stage.value for stage in case.stages)) for case in cases()
    ]
    if as_json:
        console.print_json([{"family": f, "name": n, "stages": s.split(", ")} for f, n, s in rows])
        return
    with console.page() as out:
        out.table("family", "claim", "stages", rows=rows)


@app.command()
def mechanism(
    name: Annotated[
        str,
        Argument(metavar="NAME", help="A claim or mechanism of Lapwing, or module:function of your own."),
    ],
    *,
    epsilon: Annotated[str | None, Option(help="The ε that your own function claims.")] = None,
    delta: Annotated[str, Option(help="The δ that your own function claims.")] = "0",
    data: Annotated[
        Path | None, Option(help="A JSON file with pairs of neighbouring inputs for your function.")
    ] = None,
    memory: Annotated[int, Option(help="Memory limit of your function, in MB.", min=64)] = 2048,
    options: AuditOptions,
) -> None:
    """Audit a mechanism of Lapwing, or a function of your own: (data, size) -> outputs."""
    options.check()
    if _is_function(name):
        from lapwing.audit.function_audit import case_of_function

        if epsilon is None:
            raise BadParameter("epsilon", "give the ε that the function claims: --epsilon 1")
        with console.os_errors_told():
            chosen = [case_of_function(name, epsilon, delta, pairs=data, memory=memory << 20)]
        command = f"lapwing audit mechanism {quote(name)} --epsilon {epsilon} --delta {delta}"
        if data is not None:
            command += f" --data {quote(str(data))}"
    else:
        if epsilon is not None or data is not None or delta != "0":
            raise BadParameter(
                "epsilon",
                "and --delta and --data are for functions of your own: claims of Lapwing have theirs",
            )
        chosen, command = _named(name), None
    _run(chosen, command, options)


@app.command("all")
def audit_all(*, options: AuditOptions = WHOLE_AUDIT) -> None:
    """Audit every claim of Lapwing. The audit does not pass if a claim has no case."""
    from lapwing.audit.registry import cases
    from lapwing.audit.registry.coverage import uncovered

    known = cases()
    _run(known, None, options, uncovered(known))


@app.command()
def query(
    policy: console.PolicyFile,
    sql: Sql = None,
    *,
    file: SqlFile = None,
    epsilon: Annotated[str, Option(help="The ε that the question would spend.")] = "1",
    options: AuditOptions,
) -> None:
    """Audit a question: replay it on generated neighbours of the policy's tables."""
    from lapwing.audit.query_audit import case_of_query

    sql = read_sql(sql, file)
    with console.os_errors_told():
        case = case_of_query(policy, sql, epsilon=epsilon)
    command = f"lapwing audit query {quote(str(policy))} {quote(sql)} --epsilon {epsilon}"
    _run([case], command, options)


def _audit_of_file(name: str, module: str, builder: str, text: str) -> None:
    """Add a command that audits one file, through the function `builder` of `lapwing.audit.<module>`."""

    @app.command(name, help=text)
    def audit_file(path: AuditedFile, *, options: AuditOptions) -> None:
        with console.os_errors_told():
            built = getattr(import_module(f"lapwing.audit.{module}"), builder)(path)
        command = f"lapwing audit {name} {quote(str(path))}"
        _run(built if isinstance(built, list) else [built], command, options)


_audit_of_file(
    "survey",
    "survey_audit",
    "cases_of_survey",
    "Audit a survey: all messages of every question, and the code that devices run.",
)
_audit_of_file(
    "party",
    "party_audit",
    "case_of_consortium",
    "Audit a consortium: all that a coalition of its members sees, exactly.",
)
_audit_of_file(
    "train",
    "training_audit",
    "case_of_pipeline",
    "Audit a pipeline: replay its training and validation on generated rows, and guess canaries.",
)
_audit_of_file(
    "publish",
    "publishing_audit",
    "case_of_release",
    "Audit a release: replay its measurements on generated rows.",
)
