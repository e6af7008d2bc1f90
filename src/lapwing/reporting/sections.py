"""The sections of a report, in the order of the pyramid of NIST SP 800-226.

First the guarantee (parameters, unit, definition), then the algorithms (mechanisms, correctness, utility
and bias), then the deployment (trust model, side channels, access, data collection). The history of
spending stands with the definition, because it says how losses add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from lapwing.core.chances import percent_down, percent_up
from lapwing.core.exact import short_down, short_up
from lapwing.core.explanation import explain
from lapwing.ledger.budget_history import float_up
from lapwing.reporting.audit_records import AuditRecord
from lapwing.reporting.fixed_texts import fixed_texts
from lapwing.reporting.officer_file import QUESTIONS, answers_in
from lapwing.reporting.privacy_report import (
    AUDIT,
    FILE,
    LEDGER,
    OFFICER,
    SOFTWARE,
    PrivacyReport,
    ReportFact,
    ReportSection,
    ReportTable,
    total_of,
    value_at,
)
from lapwing.reporting.subjects import CENTRAL, REPLACE, ReportSubject

# Key, title, and the topic of SP 800-226.
SECTIONS = (
    ("summary", "In short", ""),
    ("since", "Changes since the receipt", ""),
    ("parameters", "What ε and δ promise", "Privacy parameters"),
    ("unit", "Who is protected: unit and neighbours", "Unit of privacy"),
    ("definition", "Which definition, and how losses add up", "Variants and composition"),
    ("not_protected", "What is not protected", "Other data releases"),
    ("spending", "History of spending", "Composition"),
    ("exceptions", "Raises and signed exceptions", "Composition"),
    ("mechanisms", "Mechanisms and their arguments", "Algorithms and correctness"),
    ("audits", "Audits", "Auditing"),
    ("bias", "Usefulness, bias and known errors", "Utility and bias"),
    ("trust", "Trust model: who could break the promise", "Trust model"),
    ("side_channels", "Side channels", "Side channels"),
    ("access", "Access and security", "Access control"),
    ("collection", "How the data were collected", "Data collection exposure"),
    ("signature", "How to check this report", ""),
)
_PAGES = {
    "private SQL": ("query",),
    "survey invitation": ("survey", "randomized_response"),
    "synthetic table": ("publish",),
    "census tables": ("census",),
    "pipeline attempt": ("attempts", "trainers", "validators"),
    "network by DP-SGD": ("dp_sgd",),
    "dp-sgd": ("dp_sgd",),
    "private selection": ("selection",),
}
MOST_ROWS = 12


@dataclass(frozen=True, slots=True)
class ReportInputs:
    """Everything that a report is made of.

    `numbers` are those of the ledger; None if there is no ledger. `labels` are the names of the reported
    accounts, `others` those of the ledger's other accounts. `analysts` are names by their ids, if wanted.
    """

    subject: ReportSubject
    date: str
    version: str
    answers: Mapping[str, str]
    audits: Sequence[AuditRecord] = ()
    numbers: Mapping[str, Any] | None = None
    ledger_id: str = ""
    key: str = ""
    labels: Sequence[str] = ()
    others: Sequence[str] = ()
    analysts: Mapping[str, str] = field(default_factory=dict)


def build_report(found: ReportInputs) -> PrivacyReport:
    """Return the report."""
    subject = found.subject
    sections = []
    for key, title, topic in SECTIONS:
        made = _MAKERS[key](found) if key in _MAKERS else _lapwing(*fixed_texts(key, subject))
        facts = [one for one in made if isinstance(one, ReportFact)] + list(subject.facts.get(key, ()))
        tables = [one for one in made if isinstance(one, ReportTable)] + list(subject.tables.get(key, ()))
        facts += [
            ReportFact(f"{question.words} {answer}{'' if answer[-1] in '.!?' else '.'}", OFFICER)
            for question, answer in answers_in(key, found.answers)
        ]
        if facts or tables:
            sections.append(ReportSection(key, title, topic, facts, [one for one in tables if one.rows]))
    return PrivacyReport(
        subject.kind, subject.name, found.date, found.version, tuple(sections), found.numbers
    )


Made = Sequence[ReportFact | ReportTable]


def _known(found: ReportInputs, text: str, under: str, *names: str) -> ReportFact:
    """Return a fact from the ledger, with the values of these names under a path."""
    paths = [f"{under}.{name}" if under else name for name in names]
    return ReportFact(text, LEDGER, {path: value_at(found.numbers, path) for path in paths})


def _table(
    found: ReportInputs, heads: Sequence[str], rows: Sequence[Sequence[str]], path: str
) -> ReportTable:
    """Return a table from the ledger, with the values at this path."""
    return ReportTable(heads, rows, LEDGER, {path: value_at(found.numbers, path)})


def _lapwing(*texts: str) -> list[ReportFact | ReportTable]:
    return [ReportFact(text, SOFTWARE) for text in texts]


def _accounts(found: ReportInputs) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return path, name and numbers of each account; nothing without a ledger."""
    accounts = [] if found.numbers is None else found.numbers["accounts"]
    return [(f"accounts.{k}", *both) for k, both in enumerate(zip(found.labels, accounts, strict=True))]


def _up(number: float) -> str:
    return short_up(Fraction(repr(number)))


def _pair(values: Mapping[str, Any]) -> str:
    return f"ε {_up(values['epsilon'])}, δ {_up(values['delta'])}"


def _total(found: ReportInputs) -> tuple[Fraction, Fraction]:
    """Return the lifetime (ε, δ) to be explained: the ledger's, else the file's."""
    accounts = [one for _, _, one in _accounts(found)]
    return total_of(accounts) if accounts else (found.subject.epsilon, found.subject.delta)


def _summary(found: ReportInputs) -> Made:
    made: list[ReportFact | ReportTable] = [
        _known(
            found,
            f'The account "{label}" protects one {one["unit"]} with {_pair(one)}, for life. '
            f"Requests that were charged so far: {one['charges']:,}.",
            path, "unit", "epsilon", "delta", "charges",
        )
        for path, label, one in _accounts(found)
    ]  # fmt: skip
    numbers = found.numbers
    if numbers is None:
        made += _lapwing(f"Nothing is known of what was spent: {found.subject.why_no_ledger}.")
    elif not made:
        made += _lapwing("The ledger has no account of it yet: nothing was spent.")
    else:
        last = f"entry {numbers['last_entry']:,}, of {_minute(numbers['last_time'])}"
        text = f"The numbers are those of the ledger up to {last}."
        made.append(_known(found, text, "", "last_entry", "last_time"))
    told = f"{len(found.answers):,} of {len(QUESTIONS):,}"
    return [*made, ReportFact(f"The officer has answered {told} questions.", OFFICER)]


def _since(found: ReportInputs) -> Made:
    if found.numbers is None or found.numbers["since"] is None:
        return []
    since, made = found.numbers["since"], []
    for place, (label, one) in enumerate(zip(found.labels, since["accounts"], strict=True)):
        text = (
            f'Requests that were charged to "{label}" since receipt {since["receipt"]:,}: '
            f"{one['charges']:,}. Their prices add up to {_prices(one['sum_of_prices'])}."
        )
        made.append(_known(found, text, f"since.accounts.{place}", "charges", "sum_of_prices"))
    raises = [one for one in since["exceptions"] if one["kind"] == "account"]
    others = len(since["exceptions"]) - len(raises)
    text = f"Raises of the budget since then: {len(raises):,}. Other exceptions: {others:,}."
    return [*made, _known(found, text, "since", "receipt", "exceptions")]


def _parameters(found: ReportInputs) -> Made:
    subject, (epsilon, delta) = found.subject, _total(found)
    made: list[ReportFact | ReportTable] = []
    for path, label, one in _accounts(found):
        made.append(_known(found, f'"{label}": {_pair(one)} for life.', path, "epsilon", "delta"))
        opened = one["parts"][0]
        declared = float_up(subject.epsilon), float_up(subject.delta)
        if subject.model == CENTRAL and (opened["epsilon"], opened["delta"]) != declared:
            text = (
                f"The file declares another ε or δ than those with which the account was opened, which are "
                f"{_pair(opened)}. The account counts."
            )
            made.append(_known(found, text, path, "parts"))
    if len(found.labels) > 1:
        made += _lapwing(
            "Whoever is in several of these accounts may lose the sum. The odds below are for the sum."
        )
    told, is_replaced = explain(epsilon, delta, 1), subject.neighbours == REPLACE
    belief = "which of two values a unit has" if is_replaced else "whether a unit is in the data"
    made += _lapwing(
        "ε is no probability that somebody is identified, no share of noise, and no allowance for a day. "
        f"It is for all answers together: they change the odds of a belief about {belief} by at most e^ε.",
        f"In odds, if all of it is spent: {told.odds}.",
        *(() if is_replaced else ("Two values of one unit are two steps apart: the factor is e^2ε.",)),
        "These odds are for a reader who knows the data of all others. A reader who knows less can learn "
        "from the others' data, too. ε does not limit that.",
        "δ 0: the promise holds for every outcome." if not delta else _delta_words(delta),
        told.advice,
    )
    rows = [
        (percent_up(guess.before), percent_down(guess.at_least), percent_up(guess.at_most))
        for guess in told.guesses
    ]
    return [
        *made,
        ReportTable((f"belief about {belief}", "after: at least", "after: at most"), rows, SOFTWARE),
    ]


def _delta_words(delta: Fraction) -> str:
    cases = f"1 of {math.ceil(1 / delta):,} cases"
    return (
        f"δ {short_up(delta)}: a release that shows all data of a unit in {cases} would keep the promise. "
        "The odds and the table are for δ 0. δ should be far below 1 divided by the number of people."
    )


def _unit(found: ReportInputs) -> Made:
    subject = found.subject
    made: list[ReportFact | ReportTable] = [
        _known(
            found,
            f'"{label}" protects one {one["unit"]}. Neighbouring data sets: {one["relation"]}.',
            path, "unit", "relation",
        )
        for path, label, one in _accounts(found)
    ]  # fmt: skip
    if not made:
        text = f"Protected: one {subject.unit}. Neighbouring data sets: {subject.neighbours}."
        made = [ReportFact(text, FILE)]
    if subject.neighbours == REPLACE:
        return [*made, *_lapwing("How many units there are is public; what they say is protected.")]
    text = "How many units there are is protected, too, unless a public fact below tells it."
    return [*made, *_lapwing(text)]


def _definition(found: ReportInputs) -> Made:
    _, delta = _total(found)
    made = _lapwing(
        "Pure ε-differential privacy." if not delta else "(ε, δ)-differential privacy (approximate DP).",
        "Refresh policy: never. No date, restart, rename or refund gives any budget back.",
    )
    return [*made, *_lapwing(*fixed_texts("definition", found.subject))]


def _not_protected(found: ReportInputs) -> Made:
    made = _lapwing(*fixed_texts("not_protected", found.subject))
    if found.others:
        text = (
            f"Other accounts of the same ledger: {', '.join(found.others)}. Whoever is in several accounts "
            "loses up to the sum."
        )
        made.append(_known(found, text, "", "other_accounts"))
    for path, label, one in _accounts(found):
        if one["in_periods"]:
            made += _lapwing(
                f'"{label}" protects a person in one period. A person in several periods loses more.'
            )
            rows = [(str(each["periods"]), _pair(each)) for each in one["in_periods"]]
            made.append(_table(found, ("periods of one person", "worst case"), rows, f"{path}.in_periods"))
    return made


def _spending(found: ReportInputs) -> Made:
    made: list[ReportFact | ReportTable] = []
    for path, label, one in _accounts(found):
        text = (
            f'"{label}": requests charged {one["charges"]:,}, answered {one["answered"]:,}, '
            f"failed {one['failed']:,}, analysts {one['analysts']:,}."
        )
        made.append(_known(found, text, path, "charges", "answered", "failed", "analysts"))
        if one["charges"]:
            text = (
                f"The prices add up to {_prices(one['sum_of_prices'])}. The first request was charged at "
                f"{_minute(one['first_charge'])}, the last at {_minute(one['last_charge'])}."
            )
            made.append(_known(found, text, path, "sum_of_prices", "first_charge", "last_charge"))
        rows = [
            (f"{each['blocks']:,}", f"ε {short_down(Fraction(repr(each['epsilon'])))}")
            for each in one["left"][:MOST_ROWS]
        ]
        if len(one["left"]) > MOST_ROWS:
            rows.append((f"{sum(each['blocks'] for each in one['left'][MOST_ROWS:]):,}", "more than that"))
        made.append(_table(found, ("blocks", "left of each for a next request"), rows, f"{path}.left"))
    if made:
        made += _lapwing(
            "What is left is no difference of prices: many small answers can cost less than their sum.",
            "If units are divided into blocks, one more block stands for all units that are in none.",
        )
    if found.numbers is not None and found.numbers["analysts"] is not None:
        people = sorted(
            (
                found.analysts[one["analyst"]],
                *(f"{one[name]:,}" for name in ("charges", "answered", "failed")),
                _prices(one["sum_of_prices"]),
            )
            for one in found.numbers["analysts"]
        )
        heads = ("analyst", "requests", "answered", "failed", "sum of prices")
        made.append(_table(found, heads, people, "analysts"))
    return made


def _exceptions(found: ReportInputs) -> Made:
    if found.numbers is None:
        return []
    exceptions = found.numbers["exceptions"]
    if not exceptions:
        text = "No budget of these accounts was ever raised, and the curator signed no exception."
        return [_known(found, text, "", "exceptions")]
    rows = [(str(one["entry"]), _minute(one["time"]), one["what"]) for one in exceptions]
    text = f"Exceptions: {len(exceptions):,}. After a raise, losses add: every report shows the sum."
    return [
        _known(found, text, "", "exceptions"),
        _table(found, ("entry", "time", "what"), rows, "exceptions"),
    ]


def _mechanisms(found: ReportInputs) -> Made:
    accounts = _accounts(found)
    rows = [
        (
            each["mechanism"] + (f", {each['noise']} noise" if each["noise"] else ""),
            f"{each['charges']:,}",
            ", ".join(each["code"]),
            _pages(each["mechanism"], each["noise"]),
        )
        for _, _, one in accounts
        for each in one["mechanisms"]
    ]
    values = {f"{path}.mechanisms": one["mechanisms"] for path, _, one in accounts}
    declared = [(what, f"docs/arguments/{page}.md") for what, page in found.subject.arguments]
    return [
        *_lapwing(*fixed_texts("mechanisms", found.subject)),
        ReportTable(("mechanism", "requests", "code version", "arguments"), rows, LEDGER, values),
        ReportTable(("what is done", "argument"), declared, SOFTWARE),
    ]


def _pages(mechanism: str, noise: str) -> str:
    pages = [*_PAGES.get(mechanism, ("ledger",)), *([noise] if noise in ("laplace", "gaussian") else ())]
    return ", ".join(f"docs/arguments/{page}.md" for page in pages)


def _audits(found: ReportInputs) -> Made:
    if not found.audits:
        return _lapwing(
            "No audit run was given to this report: nothing in it was audited, as far as it knows."
        )
    made: list[ReportFact | ReportTable] = []
    codes = {code for _, _, one in _accounts(found) for each in one["mechanisms"] for code in each["code"]}
    for run in found.audits:
        values = {"started": run.started, "version": run.version, "passed": run.passed}
        text = f"{run.file}: begun {_minute(run.started)}, Lapwing {run.version}. {run.verdict}"
        heads = ("claim", "stage", "claimed ε", "found ε", "result")
        made += [ReportFact(text, AUDIT, values), ReportTable(heads, run.rows, AUDIT)]
        if codes and run.version not in codes:
            versions = ", ".join(sorted(codes))
            made += _lapwing(f"That run was of another version than the charges: {versions}.")
    text = "Claims that are not in the table were never audited, as far as this report knows."
    return [*made, *_lapwing(text)]


def _signature(found: ReportInputs) -> Made:
    if found.numbers is None:
        return _lapwing(
            f"This report is UNSIGNED: {found.subject.why_no_ledger}. Nobody can check its origin."
        )
    return [
        ReportFact(f"The public key of the ledger {found.ledger_id} is {found.key}.", LEDGER),
        *_lapwing(
            "`lapwing verify FILE --key KEY` checks a signed file without ledger and data: the signature "
            "over every byte, the enclosed statement, and every number from the ledger. Take KEY from "
            "elsewhere. What a signature proves, and what not: docs/arguments/report.md."
        ),
    ]


def _prices(sums: Mapping[str, Any]) -> str:
    words = _pair(sums) + (f", ρ {_up(sums['rho'])}" if sums["rho"] else "")
    return words + (f", and {sums['others']:,} prices of another form" if sums["others"] else "")


def _minute(time: str) -> str:
    return f"{time[:16].replace('T', ' ')} UTC"


_MAKERS = {
    "summary": _summary, "since": _since, "parameters": _parameters, "unit": _unit,
    "definition": _definition, "not_protected": _not_protected, "spending": _spending,
    "exceptions": _exceptions, "mechanisms": _mechanisms, "audits": _audits, "signature": _signature,
}  # fmt: skip
