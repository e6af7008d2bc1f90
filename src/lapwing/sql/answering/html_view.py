"""Data sets, plans and answers as HTML for notebooks: tables and sentences, without scripts.

Claim    the HTML has no private value and no markup from texts: only what printing shows, escaped.
Because  it is made of the policy, of plans and of released answers, by `lapwing.html_views`, which escapes
         every text.
Test     tests/sql/answering/test_html_view.py
"""

from __future__ import annotations

from lapwing.answer_text import answer_html, number_text
from lapwing.core.exact import short
from lapwing.html_views import fragment, grid, html_view, note, notes, strong
from lapwing.sql.answering.answers import Answer
from lapwing.sql.policy.kinds import SECONDS, Choice, Kind, Moment, Numeric, Truth
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable
from lapwing.sql.pricing.plan import Plan, describe_spread

VALUES_SHOWN = 8


def dataset_html(policy: CheckedPolicy, analyst: str, left: str) -> str:
    """Return the tables, columns and budget of a data set, and in words what is left of the budget."""
    rows = [row for table in policy.tables.values() for row in _table_rows(table)]
    return fragment(
        strong(f"Data set {policy.name}, asked by {analyst}"),
        grid(["table", "column", "values"], rows, wrapped=2),
        notes(
            [
                *[_about_table(table, policy) for table in policy.tables.values()],
                f"Budget for life: ε {float(policy.epsilon):g}, δ {short(float(policy.delta))}. {left}",
            ]
        ),
    )


@html_view.register
def plan_html(plan: Plan) -> str:
    """Return the price of a plan, the errors, the mechanisms and the contribution bounds."""
    errors = [
        [name, describe_spread(spread)] for name, spread in plan.spread.items() if describe_spread(spread)
    ]
    steps = [[step.what, step.mechanism, step.share, step.error] for step in plan.steps]
    blocks = [] if plan.blocks is None else [f"Charged blocks: {plan.block_names}"]
    reason = [plan.shares.reason] if plan.shares.reason else []
    heading = f"error, with {float(plan.confidence):.4g} confidence each"
    return fragment(
        strong(plan.headline),
        note(plan.request.sql),
        *([grid(["column", heading], errors)] if errors else []),
        grid(["what", "mechanism", "share", "detail"], steps, wrapped=0),
        notes([*reason, *plan.bounds, *blocks]),
    )


html_view.register(Answer, answer_html)


def _table_rows(table: CheckedTable) -> list[list[str]]:
    names = [(name, values_in_words(column.kind)) for name, column in table.columns.items()]
    if table.unit is not None and table.unit.column:
        names = [(table.unit.column, "says whom a row is about: can be counted, never shown"), *names]
    if not names:
        names = [("", "all columns of its source" if table.is_public else "no column is declared")]
    return [[table.name if place == 0 else "", *row] for place, row in enumerate(names)]


def values_in_words(kind: Kind) -> str:
    """Return the declared values of a column in words."""
    match kind:
        case Choice(values):
            shown = ", ".join(map(str, values[:VALUES_SHOWN]))
            more = len(values) - VALUES_SHOWN
            return f"{shown} and {more:,} more" if more > 0 else shown
        case Numeric(step, int(first), int(last)):
            ends = f"{number_text(kind.value(first))} to {number_text(kind.value(last))}"
            return f"{ends} in steps of {short(float(step))}"
        case Moment(seconds, first, last):
            units = {count: word for word, count in SECONDS.items()}
            by = "" if seconds == SECONDS["day"] else f", by the {units.get(seconds, f'{seconds} s')}"
            return f"{kind.value(first)} to {kind.value(last)}{by}"
        case Truth():
            return "true or false"
        case _:
            return "text, shown only where many people have it"


def _about_table(table: CheckedTable, policy: CheckedPolicy) -> str:
    if table.is_public:
        return f"{table.name} is public."
    unit = "row" if policy.protects == "row" else "person"
    rows = "1 row" if table.rows_per_unit == 1 else f"{table.rows_per_unit:,} rows"
    return f"{table.name}: answers use at most {rows} of each {unit}."
