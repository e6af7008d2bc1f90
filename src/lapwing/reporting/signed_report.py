"""Signed reports: a page or a JSON file that carries its own proof, checked without ledger and data.

Claim    a report that passes is, to the byte, one that the ledger's key signed. The enclosed numbers of the
         ledger follow from the enclosed statement, which the same key signed at a seal.
Because  the signature covers the canonical text of all fields, among them the digest of the page. A file
         whose bytes are not that canonical text is refused. The statement is checked, and the numbers are
         computed again.
Test     tests/reporting/test_signed_report.py
"""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from lapwing.core.exact import set_fields
from lapwing.errors import BadParameter
from lapwing.ledger.accountant.forms import is_hex
from lapwing.ledger.anchors import Head
from lapwing.ledger.entry import CommittedName, commitment
from lapwing.ledger.keys import SigningKey, good_signature, public_key
from lapwing.ledger.statement import check_statement, seal_fields
from lapwing.reporting.ledger_numbers import ledger_numbers
from lapwing.reporting.privacy_report import LEDGER, PrivacyReport, value_at

REPORT_VERSION = 1
JSON, HTML, MARKDOWN = "json", "html", "markdown"
LARGEST_ENCLOSED = 1 << 22  # compressed bytes of a statement; a longer one is written beside the report
LARGEST_REPORT = LARGEST_STATEMENT = 1 << 28
WRAPPED = 100
_SIGNED = b"lapwing report\x00"
_BEGIN, _END = "<!-- lapwing report\n", "-->\n"
_MALFORMED = (
    BadParameter, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
    zlib.error,
)  # fmt: skip
_FIELDS = (
    "lapwing", "version", "form", "document", "report", "ledger", "key", "names", "statement_digest",
    "statement", "signature",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class LedgerEvidence:
    """The evidence of a report: a statement of the ledger, and the names of ids that the report shows."""

    ledger: str
    signing: SigningKey
    statement: bytes
    names: Sequence[CommittedName]
    packed: bytes = field(init=False)

    def __post_init__(self) -> None:
        is_short = len(self.statement) <= LARGEST_STATEMENT
        set_fields(self, packed=zlib.compress(self.statement) if is_short else b"")

    @property
    def is_enclosed(self) -> bool:
        """True if the statement is short enough to be in the report."""
        return 0 < len(self.packed) <= LARGEST_ENCLOSED

    def fields(self) -> dict[str, Any]:
        """Return the fields of the evidence, without the signature."""
        text = base64.b64encode(self.packed).decode() if self.is_enclosed else ""
        return {
            "ledger": self.ledger,
            "key": self.signing.public.hex(),
            "names": [
                {"id": named.id, "salt": named.salt.hex(), "label": named.label} for named in self.names
            ],
            "statement_digest": sha256(self.statement).hexdigest(),
            "statement": [text[k : k + WRAPPED] for k in range(0, len(text), WRAPPED)],
        }


_NO_EVIDENCE: dict[str, Any] = {
    "ledger": None, "key": None, "names": [], "statement_digest": None, "statement": [],
}  # fmt: skip


def signed_bytes(
    report: PrivacyReport, evidence: LedgerEvidence | None, *, form: str, page: bytes = b""
) -> bytes:
    """Return the whole file: the page with the signed fields in a comment at its end, or JSON."""
    fields: dict[str, Any] = {
        "lapwing": "report",
        "version": REPORT_VERSION,
        "form": form,
        "document": None if form == JSON else sha256(page).hexdigest(),
        "report": report.to_json(),
        **(_NO_EVIDENCE if evidence is None else evidence.fields()),
    }
    signature = None if evidence is None else evidence.signing.sign(_message(fields)).hex()
    fields["signature"] = signature
    return _text(fields).encode() if form == JSON else page + _comment(fields)


def _text(fields: Mapping[str, Any]) -> str:
    """Return the one canonical text of a report's fields."""
    return json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _message(fields: Mapping[str, Any]) -> bytes:
    said = {name: value for name, value in fields.items() if name != "signature"}
    return _SIGNED + sha256(_text(said).encode("utf-8", "surrogatepass")).digest()


def _comment(fields: Mapping[str, Any]) -> bytes:
    """Return the fields as an HTML comment. Two hyphens would end it; in JSON they are only in texts."""
    hidden = _text(fields).replace("--", "-\\u002d")
    return f"{_BEGIN}{hidden}{_END}".encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class VerifiedReport:
    """The result of a check of a report. `findings` is empty if nothing is wrong."""

    where: str
    form: str
    title: str
    date: str
    version: str
    ledger: str
    key: str
    key_was_given: bool
    entries: int
    findings: tuple[str, ...]
    head: Head | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable names."""
        names = ("form", "title", "date", "version", "ledger", "key", "key_was_given", "entries")
        return {
            "kind": "report",
            "good": not self.findings,
            "findings": list(self.findings),
            **{name: getattr(self, name) for name in names},
            "seal": self.head and seal_fields(self.head)[:4],
        }


def is_report(content: bytes) -> bool:
    """Return whether a file says that it is a report."""
    return _BEGIN.encode() in content or content.startswith(b'{\n  "lapwing": "report"')


def verify_report(
    path: str | Path, *, key: str | None = None, statement: Path | None = None
) -> VerifiedReport:
    """Check a report. It needs the file and the ledger's public key, and nothing else.

    Args:
        path: The report: HTML, Markdown or JSON.
        key: The ledger's public key in hexadecimal digits, known from elsewhere; None if it is not known.
        statement: The statement, if it is too long to be in the report.

    Returns:
        What was checked, and what was found.

    Raises:
        BadParameter: The file is no report, or the key is not of the right form.
    """
    wanted = None if key is None else public_key(key)
    content = _read(Path(path), LARGEST_REPORT)
    if not is_report(content):
        raise BadParameter("file", f"{path} is no report, or was changed")
    page, fields = _parsed(content)
    if fields is None:
        return VerifiedReport(
            str(path), "", "", "", "", "", "", key is not None, 0,
            ("the report is not what was written: its bytes are not those of a report",),
        )  # fmt: skip
    beside = None if statement is None else _read(statement, LARGEST_STATEMENT)
    check = _ReportCheck(fields, page, wanted, beside)
    findings, report = tuple(check.run()), fields["report"]
    return VerifiedReport(
        str(path), fields["form"], f"{report['kind']} {report['name']}", report["date"], report["version"],
        fields["ledger"] or "", fields["key"] or "", key is not None, check.entries, findings, check.head,
    )  # fmt: skip


def _read(path: Path, largest: int) -> bytes:
    if not path.is_file():
        raise BadParameter("file", f"there is none at {path}")
    if path.stat().st_size > largest:
        raise BadParameter("file", f"{path} is too large")
    return path.read_bytes()


def _parsed(content: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """Return the page and the fields; None if they are not written as a report writes them."""
    begin = content.rfind(_BEGIN.encode())
    page, rest = (b"", content) if begin < 0 else (content[:begin], content[begin:])
    try:
        text = rest.decode()
        fields = json.loads(text if begin < 0 else text.removeprefix(_BEGIN).removesuffix(_END))
        again = _text(fields).encode() if begin < 0 else _comment(fields)
        if again != rest or tuple(fields) != _FIELDS or not _has_form(fields):
            return page, None
        if (begin < 0) != (fields["form"] == JSON):  # the signature of a JSON report covers no page
            return page, None
    except _MALFORMED:
        return page, None
    return page, fields


def _has_form(fields: Mapping[str, Any]) -> bool:
    report = fields["report"]
    texts = (report["kind"], report["name"], report["date"], report["version"], fields["form"])
    evidence = [fields[name] for name in ("ledger", "key", "statement_digest", "signature")]
    return (
        fields["lapwing"] == "report"
        and fields["version"] == REPORT_VERSION
        and all(isinstance(text, str) for text in texts)
        and (all(isinstance(part, str) for part in evidence) or evidence == [None] * len(evidence))
        and isinstance(fields["statement"], list)
        and isinstance(fields["names"], list)
    )


class _ReportCheck:
    """One check of a report's fields against its page, its key and its statement."""

    def __init__(
        self, fields: Mapping[str, Any], page: bytes, wanted: bytes | None, beside: bytes | None
    ) -> None:
        self._fields, self._page, self._wanted, self._beside = fields, page, wanted, beside
        self.entries = 0
        self.head: Head | None = None

    def run(self) -> Iterator[str]:
        """Yield what is wrong."""
        fields = self._fields
        if (fields["form"] == JSON) != (fields["document"] is None):
            yield "the report has another form than it says"
        if fields["document"] is not None and sha256(self._page).hexdigest() != fields["document"]:
            yield "the page is not what was written: some byte of it was changed"
        if fields["signature"] is None:
            yield "the report is unsigned: nobody can tell who wrote it"
            return
        if not is_hex(fields["key"], 64) or not is_hex(fields["signature"], 128):
            yield "the report has a malformed key or signature"
            return
        key, signature = bytes.fromhex(fields["key"]), bytes.fromhex(fields["signature"])
        if self._wanted is not None and key != self._wanted:
            yield "the report is signed with another key than the one that was given"
        if not good_signature(key, _message(fields), signature):
            yield "the report has a wrong signature"
            return
        try:
            yield from self._statement(key)
        except _MALFORMED as error:
            yield f"the enclosed evidence is not of its form ({type(error).__name__})"

    def _statement(self, key: bytes) -> Iterator[str]:
        fields = self._fields
        statement = self._beside
        if fields["statement"]:
            unpacking = zlib.decompressobj()
            statement = unpacking.decompress(
                base64.b64decode("".join(fields["statement"])), LARGEST_STATEMENT
            )
        if statement is None:
            yield (
                "the numbers cannot be computed again: give the statement that was written beside the "
                "report"
            )
            return
        if sha256(statement).hexdigest() != fields["statement_digest"]:
            yield "the statement is not the one that the report was made from"
            return
        checked = check_statement(io.BytesIO(statement), key=key)
        self.entries, self.head = checked.entries, checked.head
        if checked.ledger != fields["ledger"]:
            yield "the statement is of another ledger"
        for finding in checked.findings:
            yield f"the statement: {finding}"
        if not checked.findings:
            yield from self._numbers(statement)

    def _numbers(self, statement: bytes) -> Iterator[str]:
        report = self._fields["report"]
        said = report["ledger"]
        since = said["since"]
        numbers = ledger_numbers(
            statement,
            [account["account"] for account in said["accounts"]],
            since=None if since is None else since["receipt"],
            by_analyst=said["analysts"] is not None,
        )
        if json.loads(json.dumps(numbers)) != said:
            yield "the numbers of the ledger do not follow from the statement"
        for section in report["sections"]:
            for part in (*section["facts"], *section["tables"]):
                for path, value in part["values"].items() if part["source"] == LEDGER else ():
                    if value_at(numbers, path) != value:
                        yield f"section {section['key']}: {path} is not what the ledger says"
        ids = {account["name"] for account in said["accounts"]}
        ids |= {analyst["analyst"] for analyst in said["analysts"] or ()}
        for name in self._fields["names"]:
            if (
                name["id"] not in ids
                or commitment(name["label"], bytes.fromhex(name["salt"])) != name["id"]
            ):
                yield "a name in the report does not stand for the id in the ledger"
