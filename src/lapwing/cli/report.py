"""`lapwing report` and `lapwing verify`: the officer's report, and one check of everything that is signed.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from lapwing.cli import console, ledger, publish
from lapwing.errors import BadParameter, Tampered

if TYPE_CHECKING:
    from lapwing.reporting.signed_report import VerifiedReport
    from lapwing.reporting.writing import MadeReport


def report(
    what: Annotated[
        Path,
        Argument(
            metavar="WHAT",
            help="A policy, survey, consortium, pipeline or release file, or a bundle's folder.",
        ),
    ],
    *,
    html: Annotated[Path | None, Option(help="Write a page without scripts into this new file.")] = None,
    markdown: Annotated[Path | None, Option(help="Write Markdown into this new file.")] = None,
    json_file: Annotated[
        Path | None, Option("--json", help="Write JSON into this new file; - prints it.")
    ] = None,
    registry: Annotated[
        Path | None, Option(help="Write a record for the public registry of deployments, as YAML.")
    ] = None,
    audit: Annotated[
        list[Path] | None,
        Option(help="What `lapwing audit … --json --sign WHAT` printed; can be given again."),
    ] = None,
    since: Annotated[int | None, Option(min=1, help="Tell what changed since this receipt.")] = None,
    analysts: Annotated[bool, Option("--analysts", help="Name the analysts.")] = False,
    date: Annotated[str | None, Option(help="The day of the report, as 2026-01-31; else today.")] = None,
    template: Annotated[
        bool, Option("--template", help="Write the file with the officer's questions, and no report.")
    ] = False,
) -> None:
    """Write a privacy report for the officer, signed with the ledger's key. Nothing is charged."""
    from lapwing.reporting.officer_file import checked_day

    day = datetime.now(UTC).date().isoformat() if date is None else checked_day(date, "date")
    if template:
        _write_template(what)
        return
    wanted = {"html": html, "markdown": markdown, "json": json_file}
    is_printed = json_file == Path("-")
    files = {form: path for form, path in wanted.items() if path is not None and path != Path("-")}
    _require_new({**files, **({} if registry is None else {"registry": registry})})
    from lapwing.reporting.writing import make_report

    with console.os_errors_told(), console.working("making the report"):
        made = make_report(
            what, date=day, audits=audit or [], since=since, analysts=analysts, draw=html is not None
        )
    if is_printed:
        print(made.bytes_of("json").decode(), end="")
    for form, path in files.items():
        with console.new_file(path, option=form) as file:
            file.write(made.bytes_of(form))
        if made.evidence is not None and not made.evidence.is_enclosed:  # too long to be in the report
            with console.new_file(path.with_name(f"{path.name}.statement"), option="statement") as file:
                file.write(made.evidence.statement)
    if registry is not None:
        from lapwing.reporting.registry_record import registry_record, yaml_text

        console.write_new(
            registry, yaml_text(registry_record(made.report, made.subject, made.answers)), option="registry"
        )
    if is_printed:
        return
    if files or registry is not None:
        _tell_written(made, files, registry)
        return
    print(made.unsigned_markdown, end="")
    print("\nPrinted without a signature: --html, --markdown and --json FILE write signed files.")


def _require_new(files: dict[str, Path]) -> None:
    """Raise BadParameter before anything is computed if a file could not be written."""
    for option, path in files.items():
        if path.exists():
            raise BadParameter(option, f"{path} exists: nothing is written over. Give another name")
        if not path.absolute().parent.is_dir():
            raise BadParameter(option, f"the folder of {path} does not exist")
    if len({path.absolute() for path in files.values()}) < len(files):
        raise BadParameter("html", "and the others need different files. Give other names")


def _write_template(what: Path) -> None:
    from lapwing.reporting.officer_file import officer_path, template
    from lapwing.reporting.subjects import subject_of

    with console.os_errors_told():
        subject_of(what)
    target = officer_path(what)
    console.write_new(target, template(), option="template")
    print(
        f"{target}: questions for the officer. Answer them there; lapwing report {what} merges the answers."
    )


def _tell_written(made: MadeReport, files: dict[str, Path], registry: Path | None) -> None:
    for path in files.values():
        if made.evidence is None:
            print(f"{path}: UNSIGNED, because {made.subject.why_no_ledger}.")
            continue
        more = "" if made.evidence.is_enclosed else f" --statement {path}.statement"
        print(f"{path}: signed with the ledger's key. To check it:")
        print(f"  lapwing verify {path} --key {made.evidence.signing.public.hex()}{more}")
    if registry is not None:
        print(f"{registry}: a draft for the registry. Read it before you send it.")


def verify(
    what: Annotated[
        str,
        Argument(
            metavar="WHAT",
            help="A ledger, a policy (then its ledger), a statement, proof, report, or a bundle's folder.",
        ),
    ],
    *,
    key: console.KnownKey = None,
    statement: Annotated[
        Path | None, Option(help="The statement of a report, if it lies beside the report.")
    ] = None,
    as_json: console.AsJson = False,
    files: console.LedgerFiles,
) -> None:
    """Check whatever Lapwing signs, without the data. Exit code 1 if it is not what it was."""
    from lapwing.ledger.verification import VerifiedFile
    from lapwing.publish.bundle.verified_bundle import BundleReport
    from lapwing.reporting.verifying import verify_anything

    with console.os_errors_told():
        place = files.of(what)
        if place.file:
            place.require()
        verified = verify_anything(
            place.where,
            key=key,
            keys=place.keys,
            anchor=place.anchor,
            statement=statement,
            working=console.working,
        )
    if as_json:
        told = verified.to_json()
        console.print_json(told if "kind" in told else {"kind": "bundle", **told})
        if verified.findings:
            raise Exit(1)
        if isinstance(verified, BundleReport) and not verified.key_was_given:
            raise Exit(publish.NO_KEY_GIVEN)
        return
    if isinstance(verified, VerifiedFile):
        if verified.findings:
            raise Tampered(verified.findings)
        ledger.show_verified_file(verified)
    elif verified.findings:
        advice = "Do not rely on it. Ask its writer for the original."
        console.print_findings(f"{what} is not what was signed:", verified.findings, advice)
        raise Exit(1)
    elif isinstance(verified, BundleReport):
        publish.show_verified_bundle(verified)
        if not verified.key_was_given:
            raise Exit(publish.NO_KEY_GIVEN)
    else:
        _show_report(verified)


def _show_report(verified: VerifiedReport) -> None:
    with console.page() as out:
        out.title(f"{verified.where}: nothing differs")
        about = (
            f"of the {verified.title}, {verified.date}, by Lapwing {verified.version}, as {verified.form}"
        )
        rows = [
            ("report", console.printable(about)),
            ("ledger", console.printable(verified.ledger)),
            ("public key", verified.key),
            (
                "entries",
                f"{verified.entries:,}, replayed by a second accountant; all numbers computed again",
            ),
        ]
        if verified.head is not None:
            rows.append(("seal", f"number {verified.head.number}, over {verified.head.size:,} entries"))
            rows.append(("root", verified.head.root.hex()))
        out.pairs(*rows)
        if not verified.key_was_given:
            out.warning(console.NO_KEY)
