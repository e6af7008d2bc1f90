"""The subject of a privacy report, and its content: sections of facts and tables, each with its source.

All forms of a report (HTML, Markdown, JSON) are made of this one content. The order of the sections is that
of NIST SP 800-226: the guarantee, the algorithms, the deployment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.config.values import is_postgres
from lapwing.core.exact import short_up

# Sources of facts. Each number in a report comes from one of the first four.
LEDGER, FILE, AUDIT, OFFICER, SOFTWARE = "ledger", "file", "audit", "officer", "Lapwing"
SOURCES = {
    LEDGER: "the signed ledger; `lapwing verify` computes its numbers again",
    FILE: "the file that the report is about",
    AUDIT: "an audit run, with its date and code version",
    OFFICER: "written by the privacy officer; nobody computed it",
    SOFTWARE: "how this version of Lapwing works",
}
CENTRAL, LOCAL, FEDERATED = "Central", "Local", "Federated"
ADD_OR_REMOVE, REPLACE = "add or remove one unit", "replace one unit"
NO_LEDGER = "there is no ledger where the file names one: it was not used yet, or its ledger was lost"


@dataclass(frozen=True, slots=True)
class ReportFact:
    """One sentence of a report, and its source.

    `values` are the numbers in the sentence. Of a fact from the ledger, each key is a path into the numbers
    of the ledger, so that they can be compared.
    """

    text: str
    source: str
    values: Mapping[str, Any] = field(default_factory=dict)


def said(text: str, **values: Any) -> ReportFact:
    """Return a fact that a file states."""
    return ReportFact(text, FILE, values)


def spent(text: str, epsilon: Fraction, delta: Fraction) -> ReportFact:
    """Return a fact about ε and δ. They stand where the text has {}."""
    pair = f"ε {short_up(epsilon)}, δ {short_up(delta)}"
    return said(text.format(pair), epsilon=float(epsilon), delta=float(delta))


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of a report, its source, and the numbers in it (as `ReportFact` has them)."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    source: str
    values: Mapping[str, Any] = field(default_factory=dict)


Facts = Mapping[str, Sequence[ReportFact | str]]  # by section


@dataclass(frozen=True, slots=True)
class LedgerAddress:
    """The place of a ledger, its keys, its anchor and its registry; empty texts for the usual ones."""

    where: str
    keys: str = ""
    anchor: str = ""
    registry: str = ""

    @property
    def is_there(self) -> bool:
        """True if the ledger exists."""
        return is_postgres(self.where) or Path(self.where).is_file()


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """The declarations of what a report is about.

    `account` and `data` are the names in the ledger under which it spends. `arguments` are pairs of what is
    done and the page that argues for it. A text among the facts is a fact without numbers.
    """

    kind: str
    name: str
    epsilon: Fraction
    delta: Fraction
    unit: str
    neighbours: str
    model: str
    product: str
    is_interactive: bool
    arguments: Sequence[tuple[str, str]]
    facts: Facts = field(default_factory=dict)
    tables: Mapping[str, Sequence[ReportTable]] = field(default_factory=dict)
    ledger: LedgerAddress | None = None
    account: str = ""
    data: str = ""
    why_no_ledger: str = ""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section of a report. `topic` is what SP 800-226 calls it; empty if it has no word for it."""

    key: str
    title: str
    topic: str
    facts: Sequence[ReportFact]
    tables: Sequence[ReportTable] = ()


@dataclass(frozen=True, slots=True)
class PrivacyReport:
    """A privacy report.

    Args:
        kind: What it is about: "policy", "survey", "consortium", "pipeline", "release" or "bundle".
        name: The name of that.
        date: The day of the report.
        version: The version of Lapwing that wrote it.
        sections: The sections, in order.
        ledger: The numbers of the ledger (see `ledger_numbers`); None if there is no ledger.
    """

    kind: str
    name: str
    date: str
    version: str
    sections: Sequence[ReportSection]
    ledger: Mapping[str, Any] | None = None

    @property
    def title(self) -> str:
        """The heading."""
        return f"Privacy report of the {self.kind} {self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable names, in a stable order."""
        return asdict(self)


def value_at(numbers: Any, path: str) -> Any:
    """Return the value at a path such as `accounts.0.epsilon`. Raises LookupError if there is none."""
    for part in path.split("."):
        numbers = numbers[int(part) if isinstance(numbers, list) else part]
    return numbers


def total_of(accounts: Sequence[Mapping[str, Any]]) -> tuple[Fraction, Fraction]:
    """Return the sums of ε and δ of accounts, as somebody who is in all of them may lose."""
    epsilons, deltas = (
        [Fraction(repr(account[name])) for account in accounts] for name in ("epsilon", "delta")
    )
    return sum(epsilons, Fraction(0)), sum(deltas, Fraction(0))
