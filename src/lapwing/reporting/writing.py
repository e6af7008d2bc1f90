"""Making a report: open the ledger read-only, export a statement, compute, sign, draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from lapwing.errors import BadParameter
from lapwing.ledger import Ledger
from lapwing.ledger.budget_history import adding_accounts
from lapwing.ledger.data_sets import find_data_set
from lapwing.ledger.publishing import export_statement, principal_names
from lapwing.reporting.audit_records import AuditRecord
from lapwing.reporting.ledger_numbers import ledger_numbers
from lapwing.reporting.officer_file import officer_path, read_officer
from lapwing.reporting.privacy_report import LOCAL, PrivacyReport, ReportSubject
from lapwing.reporting.rendering import html, markdown, spending_pictures
from lapwing.reporting.sections import ReportInputs, build_report
from lapwing.reporting.signed_report import HTML, JSON, MARKDOWN, LedgerEvidence, signed_bytes
from lapwing.reporting.subjects import subject_of


@dataclass(frozen=True, slots=True, eq=False)
class MadeReport:
    """A report, what it is proven with, and its pictures."""

    report: PrivacyReport
    subject: ReportSubject
    answers: Mapping[str, str]
    evidence: LedgerEvidence | None
    pictures: Mapping[str, Sequence[bytes]]

    @property
    def unsigned_markdown(self) -> str:
        """The report as Markdown, without a signature."""
        return markdown(self.report, is_signed=False)

    def bytes_of(self, form: str) -> bytes:
        """Return the file of the report in this form, signed if there is a ledger."""
        is_signed = self.evidence is not None
        page = b""
        if form == HTML:
            page = html(self.report, self.pictures, is_signed=is_signed)
        elif form == MARKDOWN:
            page = markdown(self.report, is_signed=is_signed).encode()
        return signed_bytes(self.report, self.evidence, form=form, page=page)


FORMS = (HTML, MARKDOWN, JSON)


def make_report(
    path: str | Path,
    *,
    date: str,
    audits: Sequence[Path] = (),
    since: int | None = None,
    analysts: bool = False,
    draw: bool = False,
) -> MadeReport:
    """Make the report of a policy, survey, consortium, pipeline, release file or bundle, for nothing.

    Args:
        path: The file, or the folder of a bundle.
        date: The day that the report bears.
        audits: Files that `lapwing audit … --json --sign` printed, signed by the ledger's key.
        since: A receipt; the report tells what changed since.
        analysts: Whether to name analysts.
        draw: Whether to draw pictures. Without the extra `plots` there are none.

    Returns:
        The report, with its proof.

    Raises:
        BadParameter: Something that was asked for is not there.
        BadFile: A file has mistakes.
        Tampered: The ledger is not what it was.
    """
    subject = subject_of(Path(path))
    answers = read_officer(officer_path(Path(path)))
    inputs = ReportInputs(subject, date, version("lapwing"), answers)
    address = subject.ledger
    if address is None or not address.is_there:
        if since is not None:
            raise BadParameter("since", f"there is no receipt {since}: {subject.why_no_ledger}")
        runs = [AuditRecord.read(audit, None) for audit in audits]
        return MadeReport(build_report(replace(inputs, audits=runs)), subject, answers, None, {})
    keys = Path(address.keys) if address.keys else None
    with Ledger.open(
        address.where, keys=keys, anchor=address.anchor or None, registry=address.registry
    ) as ledger:
        runs = [AuditRecord.read(audit, ledger.keys.signing.public) for audit in audits]
        labels = _accounts(ledger, subject)
        roots = [ledger.account(label) for label in labels]
        statement = _statement(ledger)
        numbers = ledger_numbers(
            statement, [root.number for root in roots], since=since, by_analyst=analysts
        )
        people = principal_names(ledger, {analyst["analyst"] for analyst in numbers["analysts"] or ()})
        others = [label for label in adding_accounts(ledger) if label not in labels]
        inputs = replace(
            inputs,
            audits=runs,
            numbers=numbers,
            ledger_id=ledger.id,
            key=ledger.keys.signing.public.hex(),
            labels=labels,
            others=others,
            analysts={person.id: person.label for person in people},
        )
        names = [root.name for root in roots] + people
        evidence = LedgerEvidence(ledger.id, ledger.keys.signing, statement, names)
        is_of_people = subject.model == LOCAL
        drawn = {"spending": spending_pictures(ledger, labels, is_of_people=is_of_people)} if draw else {}
        return MadeReport(build_report(inputs), subject, answers, evidence, drawn)


def _accounts(ledger: Ledger, subject: ReportSubject) -> list[str]:
    """Return the names of the accounts that it spends from: of its data set, else of its own name."""
    first = {account.number: account.label for account in ledger.accounts() if account.raises is None}
    if subject.data:
        with suppress(BadParameter):  # not registered yet
            return [first[number] for number in find_data_set(ledger, subject.data).accounts]
    return [subject.account] if subject.account in first.values() else []


def _statement(ledger: Ledger) -> bytes:
    with TemporaryDirectory(prefix="lapwing-report-") as folder:
        path = Path(folder) / "statement"
        export_statement(ledger, path)
        return path.read_bytes()
