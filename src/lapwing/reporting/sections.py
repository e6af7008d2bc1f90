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

from lapwing.core.beliefs import Belief, BeliefBounds, belief_bounds, beliefs_under
from lapwing.core.chances import percent_down, percent_up
from lapwing.core.exact import float_down, float_up, short_down, short_up
from lapwing.core.explanation import PRIORS, advice, even_odds
from lapwing.core.losses import Relation
from lapwing.reporting.audit_records import AuditRecord
from lapwing.reporting.officer_file import QUESTIONS, answers_in
from lapwing.reporting.privacy_report import (
    AUDIT,
    CENTRAL,
    FEDERATED,
    FILE,
    LEDGER,
    LOCAL,
    OFFICER,
    REPLACE,
    SOFTWARE,
    PrivacyReport,
    ReportFact,
    ReportSection,
    ReportSubject,
    ReportTable,
    total_of,
    value_at,
)

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
_BELIEFS = {
    Belief.TOOK_PART: "that a unit is in the data",
    Belief.FACT: "that something is true of a unit",
}
_STEP_FACTORS = {1: "e^ε", 2: "e^2ε"}
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


def build_report(inputs: ReportInputs) -> PrivacyReport:
    """Return the report."""
    subject = inputs.subject
    sections = []
    for key, title, topic in SECTIONS:
        made = _MAKERS[key](inputs) if key in _MAKERS else fixed_texts(key, subject)
        tables = [part for part in made if isinstance(part, ReportTable)] + list(
            subject.tables.get(key, ())
        )
        facts = [_fact(part, SOFTWARE) for part in made if not isinstance(part, ReportTable)]
        facts += [_fact(fact, FILE) for fact in subject.facts.get(key, ())]
        facts += [
            ReportFact(f"{question.words} {answer}{'' if answer[-1] in '.!?' else '.'}", OFFICER)
            for question, answer in answers_in(key, inputs.answers)
        ]
        if facts or tables:
            sections.append(
                ReportSection(key, title, topic, facts, [table for table in tables if table.rows])
            )
    return PrivacyReport(
        subject.kind, subject.name, inputs.date, inputs.version, tuple(sections), inputs.numbers
    )


Made = Sequence[ReportFact | ReportTable | str]  # a text says how this version of Lapwing works


def _fact(fact: ReportFact | str, source: str) -> ReportFact:
    return ReportFact(fact, source) if isinstance(fact, str) else fact


def _known(inputs: ReportInputs, text: str, under: str, *names: str) -> ReportFact:
    """Return a fact from the ledger, with the values of these names under a path."""
    paths = [f"{under}.{name}" if under else name for name in names]
    return ReportFact(text, LEDGER, {path: value_at(inputs.numbers, path) for path in paths})


def _table(
    inputs: ReportInputs, heads: Sequence[str], rows: Sequence[Sequence[str]], path: str
) -> ReportTable:
    """Return a table from the ledger, with the values at this path."""
    return ReportTable(heads, rows, LEDGER, {path: value_at(inputs.numbers, path)})


def _accounts(inputs: ReportInputs) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return path, name and numbers of each account; nothing without a ledger."""
    accounts = [] if inputs.numbers is None else inputs.numbers["accounts"]
    return [(f"accounts.{k}", *both) for k, both in enumerate(zip(inputs.labels, accounts, strict=True))]


def _up(number: float) -> str:
    return short_up(Fraction(repr(number)))


def _pair(values: Mapping[str, Any]) -> str:
    return f"ε {_up(values['epsilon'])}, δ {_up(values['delta'])}"


def _total(inputs: ReportInputs) -> tuple[Fraction, Fraction]:
    """Return the lifetime (ε, δ) to be explained: the ledger's, else the file's."""
    accounts = [account for _, _, account in _accounts(inputs)]
    return total_of(accounts) if accounts else (inputs.subject.epsilon, inputs.subject.delta)


def _summary(inputs: ReportInputs) -> Made:
    failed: list[ReportFact | ReportTable | str] = [
        ReportFact(f"AN AUDIT DID NOT PASS ({run.file}): {run.failure}", AUDIT, {"passed": False})
        for run in inputs.audits
        if run.failure
    ]
    made: list[ReportFact | ReportTable | str] = [
        _known(
            inputs,
            f'The account "{label}" protects one {account["unit"]} with {_pair(account)}, for life. '
            f"Requests that were charged so far: {account['charges']:,}.",
            path, "unit", "epsilon", "delta", "charges",
        )
        for path, label, account in _accounts(inputs)
    ]  # fmt: skip
    numbers = inputs.numbers
    if numbers is None:
        made.append(f"Nothing is known of what was spent: {inputs.subject.why_no_ledger}.")
    elif not made:
        made.append("The ledger has no account of it yet: nothing was spent.")
    else:
        last = f"entry {numbers['last_entry']:,}, of {_minute(numbers['last_time'])}"
        text = f"The numbers are those of the ledger up to {last}."
        made.append(_known(inputs, text, "", "last_entry", "last_time"))
    told = f"{len(inputs.answers):,} of {len(QUESTIONS):,}"
    return [*failed, *made, ReportFact(f"The officer has answered {told} questions.", OFFICER)]


def _since(inputs: ReportInputs) -> Made:
    if inputs.numbers is None or inputs.numbers["since"] is None:
        return []
    since, made = inputs.numbers["since"], []
    for place, (label, account) in enumerate(zip(inputs.labels, since["accounts"], strict=True)):
        text = (
            f'Requests that were charged to "{label}" since receipt {since["receipt"]:,}: '
            f"{account['charges']:,}. Their prices add up to {_prices(account['sum_of_prices'])}."
        )
        made.append(_known(inputs, text, f"since.accounts.{place}", "charges", "sum_of_prices"))
    raises = [exception for exception in since["exceptions"] if exception["kind"] == "account"]
    others = len(since["exceptions"]) - len(raises)
    text = f"Raises of the budget since then: {len(raises):,}. Other exceptions: {others:,}."
    return [*made, _known(inputs, text, "since", "receipt", "exceptions")]


def _parameters(inputs: ReportInputs) -> Made:
    subject, (epsilon, delta) = inputs.subject, _total(inputs)
    made: list[ReportFact | ReportTable | str] = []
    for path, label, account in _accounts(inputs):
        made.append(_known(inputs, f'"{label}": {_pair(account)} for life.', path, "epsilon", "delta"))
        opened = account["parts"][0]
        declared = float_up(subject.epsilon), float_up(subject.delta)
        if subject.model == CENTRAL and (opened["epsilon"], opened["delta"]) != declared:
            text = (
                f"The file declares another ε or δ than those with which the account was opened, which are "
                f"{_pair(opened)}. The account counts."
            )
            made.append(_known(inputs, text, path, "parts"))
    if len(inputs.labels) > 1:
        made.append(
            "Whoever is in several of these accounts may lose the sum. The odds below are for the sum."
        )
    relation = Relation(subject.neighbours)
    moved = {
        words: belief_bounds(epsilon, delta, belief=belief, relation=relation)
        for belief, words in _BELIEFS.items()
        if belief in beliefs_under(relation)
    }
    factors = [f"{words} by at most {_STEP_FACTORS[belief.steps]}" for words, belief in moved.items()]
    rows = [
        (words, *map(percent_down, (float(prior), low)), percent_up(high))
        for words, belief in moved.items()
        for prior in PRIORS
        for low, high in [(float_down(belief.after(prior)[0]), min(float_up(belief.after(prior)[1]), 1.0))]
    ]
    return [
        *made,
        "ε is no probability that somebody is identified, no share of noise, and no allowance for a day. "
        f"It is for all answers together: they change the odds of a belief {', and '.join(factors)}.",
        *(
            f"In odds, if all of it is spent: {even_odds(words, belief)}."
            for words, belief in moved.items()
        ),
        "These odds are for a reader who knows the data of all others. A reader who knows less can learn "
        "from the others' data, too. ε does not limit that.",
        *(_delta_words(delta, moved) if delta else ["δ 0: the promise holds for every outcome."]),
        advice(epsilon),
        ReportTable(("belief", "before", "after: at least", "after: at most"), rows, SOFTWARE),
    ]


def _delta_words(delta: Fraction, moved: Mapping[str, BeliefBounds]) -> list[str]:
    cases = f"1 of {math.ceil(1 / delta):,} cases"
    made = [
        f"δ {short_up(delta)}: a release that shows all data of a unit in {cases} would keep the promise. "
        "The odds and the table are for δ 0. δ should be far below 1 divided by the number of people."
    ]
    if any(belief.steps == 2 for belief in moved.values()):
        doubled = max(belief.delta for belief in moved.values())
        made.append(f"Two steps together have (1 + e^ε) δ, here δ {short_up(doubled)}.")
    return made


def _unit(inputs: ReportInputs) -> Made:
    subject = inputs.subject
    made: list[ReportFact | ReportTable | str] = [
        _known(
            inputs,
            f'"{label}" protects one {account["unit"]}. Neighbouring data sets: {account["relation"]}.',
            path, "unit", "relation",
        )
        for path, label, account in _accounts(inputs)
    ]  # fmt: skip
    if not made:
        text = f"Protected: one {subject.unit}. Neighbouring data sets: {subject.neighbours}."
        made = [ReportFact(text, FILE)]
    if subject.neighbours == REPLACE:
        return [*made, "How many units there are is public; what they say is protected."]
    return [*made, "How many units there are is protected, too, unless a public fact below tells it."]


def _definition(inputs: ReportInputs) -> Made:
    _, delta = _total(inputs)
    return [
        "Pure ε-differential privacy." if not delta else "(ε, δ)-differential privacy (approximate DP).",
        "Refresh policy: never. No date, restart, rename or refund gives any budget back.",
        *fixed_texts("definition", inputs.subject),
    ]


def _not_protected(inputs: ReportInputs) -> Made:
    made: list[ReportFact | ReportTable | str] = [*fixed_texts("not_protected", inputs.subject)]
    if inputs.others:
        text = (
            f"Other accounts of the same ledger: {', '.join(inputs.others)}. Whoever is in several "
            "accounts loses up to the sum."
        )
        made.append(_known(inputs, text, "", "other_accounts"))
    for path, label, account in _accounts(inputs):
        if account["in_periods"]:
            made.append(
                f'"{label}" protects a person in one period. A person in several periods loses more.'
            )
            rows = [(str(each["periods"]), _pair(each)) for each in account["in_periods"]]
            made.append(_table(inputs, ("periods of one person", "worst case"), rows, f"{path}.in_periods"))
    return made


def _spending(inputs: ReportInputs) -> Made:
    made: list[ReportFact | ReportTable | str] = []
    for path, label, account in _accounts(inputs):
        text = (
            f'"{label}": requests charged {account["charges"]:,}, answered {account["answered"]:,}, '
            f"failed {account['failed']:,}, analysts {account['analysts']:,}."
        )
        made.append(_known(inputs, text, path, "charges", "answered", "failed", "analysts"))
        if account["charges"]:
            text = (
                f"The prices add up to {_prices(account['sum_of_prices'])}. The first request was charged "
                f"at {_minute(account['first_charge'])}, the last at {_minute(account['last_charge'])}."
            )
            made.append(_known(inputs, text, path, "sum_of_prices", "first_charge", "last_charge"))
        rows = [
            (f"{each['blocks']:,}", f"ε {short_down(Fraction(repr(each['epsilon'])))}")
            for each in account["left"][:MOST_ROWS]
        ]
        if len(account["left"]) > MOST_ROWS:
            rows.append(
                (f"{sum(each['blocks'] for each in account['left'][MOST_ROWS:]):,}", "more than that")
            )
        made.append(_table(inputs, ("blocks", "left of each for a next request"), rows, f"{path}.left"))
    if made:
        made += [
            "What is left is no difference of prices: many small answers can cost less than their sum.",
            "If units are divided into blocks, one more block stands for all units that are in none.",
        ]
    if inputs.numbers is not None and inputs.numbers["analysts"] is not None:
        people = sorted(
            (
                inputs.analysts[analyst["analyst"]],
                *(f"{analyst[name]:,}" for name in ("charges", "answered", "failed")),
                _prices(analyst["sum_of_prices"]),
            )
            for analyst in inputs.numbers["analysts"]
        )
        heads = ("analyst", "requests", "answered", "failed", "sum of prices")
        made.append(_table(inputs, heads, people, "analysts"))
    return made


def _exceptions(inputs: ReportInputs) -> Made:
    if inputs.numbers is None:
        return []
    exceptions = inputs.numbers["exceptions"]
    if not exceptions:
        text = "No budget of these accounts was ever raised, and the curator signed no exception."
        return [_known(inputs, text, "", "exceptions")]
    rows = [
        (str(exception["entry"]), _minute(exception["time"]), exception["what"]) for exception in exceptions
    ]
    text = f"Exceptions: {len(exceptions):,}. After a raise, losses add: every report shows the sum."
    return [
        _known(inputs, text, "", "exceptions"),
        _table(inputs, ("entry", "time", "what"), rows, "exceptions"),
    ]


def _mechanisms(inputs: ReportInputs) -> Made:
    accounts = _accounts(inputs)
    rows = [
        (
            each["mechanism"] + (f", {each['noise']} noise" if each["noise"] else ""),
            f"{each['charges']:,}",
            ", ".join(each["code"]),
            _pages(each["mechanism"], each["noise"]),
        )
        for _, _, account in accounts
        for each in account["mechanisms"]
    ]
    values = {f"{path}.mechanisms": account["mechanisms"] for path, _, account in accounts}
    declared = [(what, f"docs/arguments/{page}.md") for what, page in inputs.subject.arguments]
    return [
        *fixed_texts("mechanisms", inputs.subject),
        ReportTable(("mechanism", "requests", "code version", "arguments"), rows, LEDGER, values),
        ReportTable(("what is done", "argument"), declared, SOFTWARE),
    ]


def _pages(mechanism: str, noise: str) -> str:
    pages = [*_PAGES.get(mechanism, ("ledger",)), *([noise] if noise in ("laplace", "gaussian") else ())]
    return ", ".join(f"docs/arguments/{page}.md" for page in pages)


def _audits(inputs: ReportInputs) -> Made:
    if not inputs.audits:
        return ["No audit run was given to this report: nothing in it was audited, as far as it knows."]
    made: list[ReportFact | ReportTable | str] = []
    codes = {
        code
        for _, _, account in _accounts(inputs)
        for each in account["mechanisms"]
        for code in each["code"]
    }
    for run in inputs.audits:
        values = {
            "started": run.started, "version": run.version, "passed": not run.failure, "sha256": run.digest,
        }  # fmt: skip
        origin = "Signed by the ledger's key." if run.is_signed else "NOT SIGNED: it may be edited."
        text = f"{run.file}: begun {_minute(run.started)}, Lapwing {run.version}. {origin} {run.verdict}"
        heads = ("claim", "stage", "claimed ε", "found ε", "result")
        made += [ReportFact(text, AUDIT, values), ReportTable(heads, run.rows, AUDIT)]
        if codes and run.version not in codes:
            versions = ", ".join(sorted(codes))
            made.append(f"That run was of another version than the charges: {versions}.")
    return [*made, "Claims that are not in the table were never audited, as far as this report knows."]


def _signature(inputs: ReportInputs) -> Made:
    if inputs.numbers is None:
        return [f"This report is UNSIGNED: {inputs.subject.why_no_ledger}. Nobody can check its origin."]
    return [
        ReportFact(f"The public key of the ledger {inputs.ledger_id} is {inputs.key}.", LEDGER),
        "`lapwing verify FILE --key KEY` checks a signed file without ledger and data: the signature over "
        "every byte, the enclosed statement, and every number from the ledger. Take KEY from elsewhere. "
        "What a signature proves, and what not: docs/arguments/report.md.",
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


# Sentences that do not depend on numbers: how this version of Lapwing works

# By section, and there by the trust model or the kind of subject. Those under "" are in every report.
_TEXTS = {
    "definition": {
        "survey": "Each invitation is charged its worst case when it is issued, answered or not. Losses of "
        "one person add up. The account on the respondent's own device is the binding limit.",
        "ledger": "Every request is charged before data is read. Several filters (sums of ε and δ, and "
        "Rényi bounds at fixed orders) add up losses. A request is refused if none of them would hold. "
        "Analysts may choose each question after seeing earlier answers. Argument: "
        "docs/arguments/portfolio.md.",
    },
    "not_protected": {
        "": "Facts about everybody: what is true of a whole group is learned with or without one person.\n"
        "Groups: k people together, such as a family, may lose k times as much as one.\n"
        "Everything that is declared public: names of tables and columns, bounds, values, periods, totals."
    },
    "mechanisms": {
        "": "Noise is drawn exactly: the sampled law is the law in the claim. Argument: "
        "docs/arguments/noise.md.",
        "survey": "Each answer is randomized on the respondent's device, with the survey's odds.",
        "trusted": "Sensitivities follow from declared bounds, which Lapwing enforces. Argument: "
        "docs/arguments/sensitivities.md.",
    },
    "bias": {
        "survey": "Every estimate has an interval. One untrue report changes an estimate by more than one "
        "true answer would.\n"
        "Small groups are estimated less accurately than large ones, by the same absolute error.",
        "trusted": "Noise is the same for a small group and a large one, so small groups have larger "
        "relative errors.\n"
        "Additive noise has no bias. Truncation to a few rows of each unit and clamping to declared bounds "
        "have: intervals do not include it. `lapwing truncated` estimates how much is left out.",
        "policy": "Counts may be negative, and parts need not add up to totals: nothing is rounded to look "
        "right. A group whose value is not declared is shown if its noisy count is large enough: small "
        "groups are missing.",
        "release": "Published tables are adjusted to keep public facts. That biases small counts.",
        "bundle": "Published tables are adjusted to keep public facts. That biases small counts.",
    },
    "trust": {
        "survey": "Local model: answers are randomized before they leave the device. Who collects them "
        "need not be trusted, but who serves the page must serve the published script.",
        FEDERATED: "Each member trusts itself, and that no coalition is larger than the planned one.",
        CENTRAL: "Central model: the curator holds the raw data and is trusted with them.\n"
        "Whoever can run code with the ledger's keys can release without charging. Whoever has keys, "
        "database and all anchors can rewrite history; only an anchor, a statement or a report that is "
        "kept elsewhere shows it.\n"
        "The holder of the curator's key can raise budgets. Every report shows each raise.",
    },
    "side_channels": {
        "": "What analysts see of errors, prices, plans and refusals does not depend on private values. A "
        "failure after the charge gives one constant reply.\n"
        "Memory, swap files, logs of databases and processor caches are not protected. All limits: "
        "docs/limits.md.",
        "survey": "Who watches the network may guess from time and address which report is whose.",
        "consortium": "How long a run takes, and how much is sent, is not protected.",
        CENTRAL: "How long an answer takes is not protected: it depends on how many rows there are. "
        "Replies to untrusted callers must be padded.",
    },
    "access": {
        "survey": "The ledger knows invited people by a keyed hash of their ids. Reports are stored "
        "without time and address.",
        "ledger": "The ledger's keys and the prepared copy of the data are files that only their owner can "
        "read.\n"
        "The ledger stores the words of every question and who asked. Statements hold neither; this report "
        "holds names only if they were asked for.",
    },
    "collection": {
        "": "Differential privacy protects what is released. It does not protect raw data while they are "
        "collected, stored or stolen."
    },
}


def fixed_texts(section: str, subject: ReportSubject) -> list[str]:
    """Return the fixed sentences of a section for this subject."""
    is_local = subject.model == LOCAL
    keys = ["", subject.model, subject.kind, *([] if is_local else ["trusted"])]
    keys += ["ledger"] if subject.ledger is not None and not is_local else []
    return [line for key, text in _TEXTS[section].items() if key in keys for line in text.split("\n")]
