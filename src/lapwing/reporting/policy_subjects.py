"""Subjects of reports that spend from the account of a policy: the policy, pipelines, release files.

Only declarations are read here, never data and never the ledger.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lapwing.core.exact import short, short_up
from lapwing.reporting.privacy_report import (
    ADD_OR_REMOVE,
    CENTRAL,
    FILE,
    NO_LEDGER,
    Facts,
    LedgerAddress,
    ReportFact,
    ReportSubject,
    ReportTable,
    said,
    spent,
)

if TYPE_CHECKING:
    from lapwing.sql.policy.policy import CheckedPolicy


def policy_subject(path: Path) -> ReportSubject:
    """Return what a policy declares."""
    from lapwing.sql.policy.policy import account_label, block_rule_text  # noqa: PLC0415 (slow)
    from lapwing.sql.policy.policy_file import load_policy  # noqa: PLC0415
    from lapwing.sql.policy_ledger import unit_of  # noqa: PLC0415

    policy = load_policy(path)
    columns = [
        (table.name, column.name, kind_words(column.kind))
        for table in policy.tables.values()
        for column in table.columns.values()
        if not table.is_public
    ]
    heads = ("table", "column", "public by declaration")
    return ReportSubject(
        kind="policy",
        name=policy.name,
        epsilon=policy.epsilon,
        delta=policy.delta,
        unit=unit_of(policy).value,
        neighbours=ADD_OR_REMOVE,
        model=CENTRAL,
        product="SQL queries",
        is_interactive=True,
        arguments=(("questions in SQL", "query"), ("which rows of a person count", "ranks")),
        facts=_policy_facts(policy, block_rule_text(policy)),
        tables={"not_protected": [ReportTable(heads, columns, FILE)]},
        ledger=LedgerAddress(
            policy.ledger, policy.ledger_keys, policy.ledger_anchor, policy.ledger_registry
        ),
        account=account_label(policy),
        data=policy.name,
        why_no_ledger=NO_LEDGER,
    )


def _policy_facts(policy: CheckedPolicy, blocks: str) -> Facts:
    unit: list[ReportFact | str] = []
    exposed: list[ReportFact | str] = []
    for table in policy.tables.values():
        if table.is_public:
            exposed.append(f"The public table {table.name} is used as it is: its rows are not protected.")
            continue
        used, rows = table.rows_per_unit, table.rows
        text = f"Rows of each unit that are used in table {table.name}: at most {used:,}."
        unit.append(said(text, rows_per_unit=used))
        if rows is not None:
            text = f"The size of table {table.name} is declared public: {rows:,} rows."
            exposed.append(said(text, rows=rows))
    divided = f"The units are divided into blocks: {blocks}. Each block has the whole budget."
    ids = "Ids are compared exactly. If one person has two ids, each is protected by itself."
    if policy.folds_ids:
        ids = "Ids that differ only in outer spaces and ASCII case are one person."
    people = "No population is declared. Data about the same people in a ledger of another registry have "
    people += "another budget, and losses add up."
    if policy.population:
        people = f'All data of the population "{policy.population}" in this ledger spend from one account.'
    quotas = f"Quotas that limit what analysts may newly spend: {len(policy.quotas):,}."
    if not policy.quotas:
        quotas = "No analyst has a quota: the budget of the data is the only limit."
    stored = "A stored answer is given to the analyst who paid for it."
    if policy.shares_answers:
        stored = "An answer that one analyst paid for is given to all."
    failed = f"After {policy.failures} failed questions an analyst gets no answers until the curator "
    failed += "has looked."
    declared = "The policy declares {} for life. Raises are in the ledger."
    return {
        "parameters": [spent(declared, policy.epsilon, policy.delta)],
        "unit": [*unit, divided if blocks else "All units are in one block.", ids],
        "not_protected": [*exposed, people],
        "access": [said(quotas, quotas=len(policy.quotas)), stored, said(failed, failures=policy.failures)],
    }


def kind_words(kind: Any) -> str:
    """Return what is public about a column, in words. Declared values are counted, not listed."""
    from lapwing.sql.policy.kinds import Choice, Moment, Numeric, Truth  # noqa: PLC0415

    match kind:
        case Numeric(step, int(first), int(last)):
            steps = f"in steps of {short(float(step))}; others are clamped"
            return f"{kind.value(first)} to {kind.value(last)} {steps}"
        case Moment(_, first, last, _):
            return f"{kind.value(first)} to {kind.value(last)}; others are clamped"
        case Choice(values):
            return f"{len(values):,} declared values; other values are NULL"
        case Truth():
            return "true or false"
        case _:
            return "nothing: keys are selected privately"


def _of_policy(policy: Path, more: Facts, **changes: Any) -> ReportSubject:
    """Return the policy's subject with further facts and other fields."""
    subject = policy_subject(policy)
    facts = {key: (*subject.facts.get(key, ()), *more.get(key, ())) for key in (*subject.facts, *more)}
    return replace(subject, facts=facts, **changes)


def pipeline_subject(path: Path) -> ReportSubject:
    """Return what a pipeline file declares, and the policy of its stream."""
    from lapwing.learn import load_pipeline  # noqa: PLC0415

    pipeline = load_pipeline(path)
    schedule = pipeline.schedule
    return _of_policy(
        pipeline.stream,
        {
            "mechanisms": [
                f"Trainer: {pipeline.trainer.kind}. Validator: {pipeline.validator.measure}.",
                f"An attempt spends ε {short_up(schedule.least)} to {short_up(schedule.most)} of each "
                f"block that it reads, with δ {short_up(pipeline.delta)}.",
            ],
            "unit": [
                f"The pipeline spends from the account of the stream's policy, {pipeline.stream.name}."
            ],
        },
        kind="pipeline",
        name=pipeline.name,
        product="Machine learning model",
        is_interactive=False,
        arguments=(
            ("training", "trainers"),
            ("accepting a model", "validators"),
            ("attempts", "attempts"),
            ("growing data", "growing"),
        ),
    )


def release_subject(path: Path) -> ReportSubject:
    """Return what a release file declares, and its policy."""
    from lapwing.publish import load_release  # noqa: PLC0415

    file = load_release(path)
    return _of_policy(
        file.policy,
        {
            "mechanisms": [f"Method: {file.method}."],
            "not_protected": [f"Public fact: {line}." for line in file.facts],
        },
        kind="release",
        name=file.name,
        is_interactive=False,
        **published(file.method),
    )


def published(method: str) -> dict[str, Any]:
    """Return the fields that depend on the method of a release."""
    is_census = method == "census"
    return {
        "product": "Summary statistics" if is_census else "Synthetic data",
        "arguments": (("census tables", "census") if is_census else ("synthetic tables", "publish"),),
    }
