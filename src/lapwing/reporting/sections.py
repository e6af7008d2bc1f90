"""The sections of a report, in the order of the pyramid of NIST SP 800-226.

First the guarantee (parameters, unit, definition), then the algorithms (mechanisms, correctness, utility
and bias), then the deployment (trust model, side channels, access, data collection). The history of
spending stands with the definition, because it says how losses add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from lapwing.core.chances import percent_down, percent_up
from lapwing.core.exact import short_down, short_up
from lapwing.core.explanation import explain
from lapwing.ledger.budget_history import float_up
from lapwing.reporting.audit_records import AuditRecord
from lapwing.reporting.officer_file import answers_in
from lapwing.reporting.privacy_report import (
    AUDIT,
    LEDGER,
    OFFICER,
    SOFTWARE,
    PrivacyReport,
    ReportFact,
    ReportSection,
    ReportTable,
    value_at,
)
from lapwing.reporting.subjects import CENTRAL, FEDERATED, LOCAL, ReportSubject

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
_NOISE_PAGES = {"laplace": "laplace", "gaussian": "gaussian"}


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
        made: list[ReportFact | ReportTable] = list(_MAKERS[key](found))
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


def _known(found: ReportInputs, text: str, *paths: str) -> ReportFact:
    """Return a fact from the ledger, with the values at these paths."""
    return ReportFact(text, LEDGER, {path: value_at(found.numbers, path) for path in paths})


def _table(
    found: ReportInputs, heads: Sequence[str], rows: Sequence[Sequence[str]], path: str
) -> ReportTable:
    """Return a table from the ledger, with the values at this path."""
    return ReportTable(heads, rows, LEDGER, {path: value_at(found.numbers, path)})


def _lapwing(*texts: str) -> list[ReportFact]:
    return [ReportFact(text, SOFTWARE) for text in texts]


def _accounts(found: ReportInputs) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return path, name and numbers of each account; nothing without a ledger."""
    numbers = found.numbers
    if numbers is None:
        return []
    return [
        (f"accounts.{place}", label, numbers["accounts"][place]) for place, label in enumerate(found.labels)
    ]


def _pair(epsilon: float, delta: float) -> str:
    return f"ε {short_up(Fraction(repr(epsilon)))}, δ {short_up(Fraction(repr(delta)))}"


def _total(found: ReportInputs) -> tuple[Fraction, Fraction]:
    """Return the lifetime (ε, δ) to be explained: the ledger's, else the file's."""
    accounts = _accounts(found)
    if not accounts:
        return found.subject.epsilon, found.subject.delta
    both = [(Fraction(repr(one["epsilon"])), Fraction(repr(one["delta"]))) for _, _, one in accounts]
    return sum((e for e, _ in both), Fraction(0)), sum((d for _, d in both), Fraction(0))


def _summary(found: ReportInputs) -> Made:
    subject, made = found.subject, []
    for path, label, one in _accounts(found):
        made.append(
            _known(
                found,
                f'The account "{label}" protects one {one["unit"]} with '
                f'{_pair(one["epsilon"], one["delta"])}, for '
                f"life. Requests that were charged so far: {one['charges']:,}.",
                f"{path}.unit", f"{path}.epsilon", f"{path}.delta", f"{path}.charges",
            )
        )  # fmt: skip
    if found.numbers is None:
        made.append(ReportFact(f"Nothing is known of what was spent: {subject.why_no_ledger}.", SOFTWARE))
    elif not found.labels:
        made.append(ReportFact("The ledger has no account of it yet: nothing was spent.", SOFTWARE))
    else:
        numbers = found.numbers
        made.append(
            _known(
                found,
                f"The numbers are those of the ledger up to entry {numbers['last_entry']:,}, of "
                f"{_minute(numbers['last_time'])}.",
                "last_entry", "last_time",
            )
        )  # fmt: skip
    told = sum(
        bool(found.answers.get(one.name)) for key, _, _ in SECTIONS for one, _ in answers_in(key, {})
    )
    every = sum(len(answers_in(key, {})) for key, _, _ in SECTIONS)
    made.append(ReportFact(f"The officer has answered {told} of {every} questions.", OFFICER))
    return made


def _since(found: ReportInputs) -> Made:
    numbers = found.numbers
    if numbers is None or numbers["since"] is None:
        return []
    since, made = numbers["since"], []
    for place, label in enumerate(found.labels):
        one, path = since["accounts"][place], f"since.accounts.{place}"
        made.append(
            _known(
                found,
                f'Requests that were charged to "{label}" since receipt {since["receipt"]:,}: '
                f"{one['charges']:,}. Their prices add up to {_prices(one['sum_of_prices'])}.",
                "since.receipt", f"{path}.charges", f"{path}.sum_of_prices",
            )
        )  # fmt: skip
    raises = [one for one in since["exceptions"] if one["kind"] == "account"]
    others = len(since["exceptions"]) - len(raises)
    made.append(
        _known(
            found,
            f"Since then the budget was raised {_times(len(raises))}, and there were {others:,} other "
            "exceptions.",
            "since.exceptions",
        )
    )
    return made


def _parameters(found: ReportInputs) -> Made:
    epsilon, delta = _total(found)
    made: list[ReportFact | ReportTable] = []
    for path, label, one in _accounts(found):
        paths = (f"{path}.epsilon", f"{path}.delta")
        made.append(_known(found, f'"{label}": {_pair(one["epsilon"], one["delta"])} for life.', *paths))
        opened = one["parts"][0]
        if found.subject.model == CENTRAL and opened["epsilon"] != float_up(found.subject.epsilon):
            made.append(
                _known(
                    found,
                    f"The file declares another ε than that with which the account was opened, which is "
                    f"{short_up(Fraction(repr(opened['epsilon'])))}. The account counts.",
                    f"{path}.parts",
                )
            )
    if len(found.labels) > 1:
        made += _lapwing(
            "Whoever is in several of these accounts may lose the sum. The odds below are for the sum."
        )
    told = explain(epsilon, delta, 1)
    made += _lapwing(
        f"In odds, if all of it is spent: {told.odds}.",
        "ε is no probability that somebody is identified, no share of noise, and no allowance for a day. "
        "It "
        "bounds the factor, e^ε, by which all answers together, for ever, can change the odds of anything "
        "that others believe about one unit.",
        "δ 0: the promise holds for every outcome." if not delta else _delta_words(delta),
        told.advice,
    )
    rows = [
        (percent_up(guess.before), percent_down(guess.at_least), percent_up(guess.at_most))
        for guess in told.guesses
    ]
    made.append(
        ReportTable(("belief about one unit before", "after: at least", "after: at most"), rows, SOFTWARE)
    )
    return made


def _delta_words(delta: Fraction) -> str:
    return (
        f"δ {short_up(delta)}: the release is no worse than one that in at most 1 in {int(1 / delta):,} "
        "cases tells anything at all, and keeps the promise in all others. δ should be far below 1 "
        "divided by the number of people."
    )


def _unit(found: ReportInputs) -> Made:
    subject, made = found.subject, []
    for path, label, one in _accounts(found):
        text = f'"{label}" protects one {one["unit"]}; neighbours {one["relation"]}.'
        made.append(_known(found, text, f"{path}.unit", f"{path}.relation"))
    if not made:
        made = [ReportFact(f"Protected: one {subject.unit}; neighbours {subject.neighbours}.", "file")]
    if subject.neighbours == "replace one unit":
        return [*made, *_lapwing("How many units there are is public; what they say is protected.")]
    return [
        *made,
        *_lapwing("How many units there are is protected, too, unless a public fact below tells it."),
    ]


def _definition(found: ReportInputs) -> Made:
    _, delta = _total(found)
    made = _lapwing(
        "Pure ε-differential privacy." if not delta else "(ε, δ)-differential privacy (approximate DP).",
        "Refresh policy: never. No date, restart, rename or refund gives any budget back.",
    )
    if found.subject.model == LOCAL:
        return [
            *made,
            *_lapwing(
                "Each invitation is charged its worst case when it is issued, answered or not. Losses of "
                "one "
                "person add up. The account on the respondent's own device is the binding limit."
            ),
        ]
    if found.subject.ledger is None:
        return made
    return [
        *made,
        *_lapwing(
            "Every request is charged before data is read. Several filters (sums of ε and δ, and Rényi "
            "bounds "
            "at fixed orders) add up losses. A request is refused if none of them would hold. Analysts may "
            "choose each question after seeing earlier answers. Argument: docs/arguments/portfolio.md.",
        ),
    ]


def _not_protected(found: ReportInputs) -> Made:
    made = _lapwing(
        "Facts about everybody: what is true of a whole group is learned with or without one person.",
        "Groups: several people together, such as a family, lose several times as much as one.",
        "Everything that is declared public: names of tables and columns, bounds, values, periods, "
        "public totals.",
    )
    if found.others:
        made.append(
            ReportFact(
                f"Other accounts of the same ledger: {', '.join(found.others)}. Whoever is in several "
                "accounts loses up to the sum.",
                LEDGER,
                {"other_accounts": value_at(found.numbers, "other_accounts")},
            )
        )
    tables: list[ReportFact | ReportTable] = []
    for path, label, one in _accounts(found):
        if not one["in_periods"]:
            continue
        made += _lapwing(
            f'"{label}" protects a person in one period. A person in several periods loses more.'
        )
        rows = [(str(each["periods"]), _pair(each["epsilon"], each["delta"])) for each in one["in_periods"]]
        tables.append(_table(found, ("periods of one person", "worst case"), rows, f"{path}.in_periods"))
    return [*made, *tables]


def _spending(found: ReportInputs) -> Made:
    made: list[ReportFact | ReportTable] = []
    for path, label, one in _accounts(found):
        at = [f"{path}.{name}" for name in ("charges", "answered", "failed", "analysts")]
        made.append(
            _known(
                found,
                f'"{label}": requests charged {one["charges"]:,}, answered {one["answered"]:,}, '
                f"failed {one['failed']:,}, analysts {one['analysts']:,}.",
                *at,
            )
        )
        if one["charges"]:
            made.append(
                _known(
                    found,
                    f"The prices add up to {_prices(one['sum_of_prices'])}. The first request was charged "
                    f"at {_minute(one['first_charge'])}, the last at {_minute(one['last_charge'])}.",
                    f"{path}.sum_of_prices", f"{path}.first_charge", f"{path}.last_charge",
                )
            )  # fmt: skip
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
        text = "No budget was ever raised, and the curator signed no exception."
        return [_known(found, text, "exceptions")]
    rows = [(str(one["entry"]), _minute(one["time"]), one["what"]) for one in exceptions]
    count = len(exceptions)
    return [
        _known(
            found,
            f"{count:,} exception{'' if count == 1 else 's'}. After a raise, losses add: every report "
            "shows the sum.",
            "exceptions",
        ),
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
    sensitivity = (
        "Each answer is randomized on the respondent's device, with the odds that the survey states."
        if found.subject.model == LOCAL
        else "Sensitivities follow from declared bounds, which Lapwing enforces. Argument: "
        "docs/arguments/sensitivities.md."
    )
    return [
        *_lapwing(
            "Noise is drawn exactly: the sampled law is the law in the claim. Argument: "
            "docs/arguments/noise.md.",
            sensitivity,
        ),
        ReportTable(("mechanism", "requests", "code version", "arguments"), rows, LEDGER, values),
        ReportTable(("what is done", "argument"), declared, SOFTWARE),
    ]


def _pages(mechanism: str, noise: str) -> str:
    pages = [*_PAGES.get(mechanism, ("ledger",)), *([_NOISE_PAGES[noise]] if noise in _NOISE_PAGES else ())]
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
        made.append(ReportFact(text, AUDIT, values))
        heads = ("claim", "stage", "claimed ε", "found ε", "result")
        made.append(ReportTable(heads, run.rows, AUDIT))
        if codes and run.version not in codes:
            made += _lapwing(
                f"That run was of another version than the charges: {', '.join(sorted(codes))}."
            )
    return [
        *made,
        *_lapwing("Claims that are not in the table were never audited, as far as this report knows."),
    ]


def _bias(found: ReportInputs) -> Made:
    subject = found.subject
    if subject.model == LOCAL:
        return _lapwing(
            "Every estimate has an interval. One untrue report changes an estimate by more than one true "
            "answer would.",
            "Small groups are estimated less accurately than large ones, by the same absolute error.",
        )
    made = _lapwing(
        "Noise is the same for a small group and a large one, so small groups have larger relative errors.",
        "Additive noise has no bias. Truncation to a few rows of each unit and clamping to declared bounds "
        "have: intervals do not include it. `lapwing truncated` estimates how much is left out.",
    )
    if subject.kind == "policy":
        words = (
            "Counts may be negative, and parts need not add up to totals: nothing is rounded to look right."
        )
    elif subject.kind in ("release", "bundle"):
        words = "Published tables are adjusted to keep public facts. That biases small counts."
    else:
        return made
    return [*made, *_lapwing(words)]


def _trust(found: ReportInputs) -> Made:
    if found.subject.model == LOCAL:
        return _lapwing(
            "Local model: answers are randomized before they leave the device. Who collects them need "
            "not be trusted, but who serves the page must serve the published script.",
        )
    if found.subject.ledger is None and found.subject.kind == "consortium":
        return _lapwing("Each member trusts itself, and that no coalition is larger than the planned one.")
    return _lapwing(
        "Central model: the curator holds the raw data and is trusted with them.",
        "Whoever can run code with the ledger's keys can release without charging. Whoever has keys, "
        "database and all anchors can rewrite history; only an anchor, a statement or a report that is "
        "kept elsewhere shows it.",
        "The holder of the curator's key can raise budgets. Every report shows each raise.",
    )


def _side_channels(found: ReportInputs) -> Made:
    time = {
        LOCAL: "Who watches the network may guess from time and address which report is whose.",
        FEDERATED: "How long a run takes, and how much is sent, is not protected.",
        CENTRAL: "How long an answer takes is not protected: it depends on how many rows there are. "
        "Replies to untrusted callers must be padded.",
    }
    return _lapwing(
        "What analysts see of errors, prices, plans and refusals does not depend on private values. A "
        "failure "
        "after the charge gives one constant reply.",
        time[found.subject.model],
        "Memory, swap files, logs of databases and processor caches are not protected. All limits: "
        "docs/limits.md.",
    )


def _access(found: ReportInputs) -> Made:
    if found.subject.ledger is None:
        return []
    if found.subject.model == LOCAL:
        return _lapwing(
            "The ledger knows invited people by a keyed hash of their ids. Reports are stored without "
            "time and "
            "address."
        )
    return _lapwing(
        "The ledger's keys and the prepared copy of the data are files that only their owner can read.",
        "The ledger stores the words of every question and who asked. Statements hold neither; this report "
        "holds names only if they were asked for.",
    )


def _collection(_: ReportInputs) -> Made:
    return _lapwing(
        "Differential privacy protects what is released. It does not protect raw data while they are "
        "collected, stored or stolen."
    )


def _signature(found: ReportInputs) -> Made:
    if found.numbers is None:
        return _lapwing(
            f"This report is UNSIGNED: {found.subject.why_no_ledger}. Nobody can check its origin."
        )
    return [
        ReportFact(f"Signed with the key {found.key} of the ledger {found.ledger_id}.", LEDGER),
        *_lapwing(
            "`lapwing verify FILE --key KEY` checks it without ledger and data: the signature over every "
            "byte, the enclosed statement, and every number from the ledger. Take KEY from elsewhere. "
            "What a signature proves, and what not: docs/arguments/report.md.",
        ),
    ]


def _prices(sums: Mapping[str, Any]) -> str:
    words = _pair(sums["epsilon"], sums["delta"])
    words += f", ρ {short_up(Fraction(repr(sums['rho'])))}" if sums["rho"] else ""
    return words + (f", and {sums['others']:,} prices of another form" if sums["others"] else "")


def _minute(time: str) -> str:
    return f"{time[:16].replace('T', ' ')} UTC"


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count:,} times")


_MAKERS = {
    "summary": _summary,
    "since": _since,
    "parameters": _parameters,
    "unit": _unit,
    "definition": _definition,
    "not_protected": _not_protected,
    "spending": _spending,
    "exceptions": _exceptions,
    "mechanisms": _mechanisms,
    "audits": _audits,
    "bias": _bias,
    "trust": _trust,
    "side_channels": _side_channels,
    "access": _access,
    "collection": _collection,
    "signature": _signature,
}
