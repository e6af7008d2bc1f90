"""Plans, answers, budgets and records as plain values. Every ε and δ in replies is decimal text."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from lapwing.ledger.request_log import LoggedRequest
from lapwing.server.data.answers import AnswerSummary, StoredAnswer
from lapwing.server.data.budget_view import BlockLeft, BudgetView
from lapwing.server.data.plans import StoredPlan
from lapwing.server.data.records import CheckedText
from lapwing.server.data.served_data import left_text, price_text
from lapwing.sql.answering.answers import Answer
from lapwing.sql.pricing.cost import BudgetLeft, Cost
from lapwing.sql.pricing.plan import describe_spread
from lapwing.sql.releasing import SessionPlan

ARROW = "application/vnd.apache.arrow.stream"
CSV = "text/csv"
JSON = "application/json"
FORMS = {"json": JSON, "csv": CSV, "arrow": ARROW}


def json_bytes(value: Any) -> bytes:
    """Return a value as the bytes of a reply."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def cost_json(cost: Cost) -> dict[str, str]:
    """Return a price, rounded up."""
    return {"epsilon": price_text(cost.epsilon), "delta": price_text(cost.delta)}


def left_json(left: BudgetLeft) -> dict[str, Any]:
    """Return what is left, rounded down."""
    quota = None if left.quota is None else left_json(left.quota)
    return {
        "epsilon": left_text(left.epsilon),
        "of": price_text(left.of),
        "delta": left_text(left.delta),
        "quota": quota,
    }


def plan_json(stored: StoredPlan) -> dict[str, Any]:
    """Return a plan: its price, the expected error of each column, its mechanisms and its bounds."""
    own = {"fresh": stored.form.fresh, "made": stored.made}
    return {"id": stored.id, "data": stored.data, **plan_values(stored.plan), **own}


def plan_values(plan: SessionPlan) -> dict[str, Any]:
    """Return a plan that is not kept under an id of its own."""
    values = plan.to_json()
    for name, spread in plan.spread.items():
        values["columns"][name]["words"] = describe_spread(spread)
    return {**values, "cost": cost_json(plan.cost), "headline": plan.headline}


def answer_json(answer: Answer, *, tells_left: bool = True) -> dict[str, Any]:
    """Return the columns of an answer with their intervals, its price, and the sentences about it.

    `tells_left`: whether the reply says what is left of the budget now.
    """
    values, charge = answer.to_json(), answer.charge
    return {
        "columns": values["columns"],
        "rows": len(answer),
        "confidence": answer.confidence,
        "cost": None if charge is None else cost_json(charge.cost),
        "left": None if charge is None or not tells_left else left_json(charge.left),
        "is_replay": answer.is_replay,
        "is_fake": answer.is_fake,
        "combines": answer.of,
        "truncation": values["truncation"],
        "notes": values["notes"],
        "footer": answer.footer(tells_left=tells_left),
        "earlier": [answer_json(stored, tells_left=tells_left) for stored in answer.earlier],
        "receipt": values["receipt"],
    }


def stored_answer_json(stored: StoredAnswer, *, tells_left: bool = True) -> dict[str, Any]:
    """Return a stored answer with its id and its question. `tells_left` is that of `answer_json`."""
    values = answer_json(stored.answer, tells_left=tells_left)
    return {"id": stored.id, "data": stored.data, "sql": stored.sql, **values}


def answer_bytes(stored: StoredAnswer, form: str) -> bytes:
    """Return a stored answer as JSON, CSV or an Arrow stream: the same bytes at any time."""
    if form == "json":
        return json_bytes(stored_answer_json(stored, tells_left=False))
    table = stored.answer.to_arrow()
    if form == "csv":
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(map(_cell, table.column_names))
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
            writer.writerow(map(_cell, row))
        return text.getvalue().encode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _cell(value: Any) -> Any:
    """Return a cell of CSV that no spreadsheet takes for a formula."""
    return (
        f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    )


def summary_json(summary: AnswerSummary) -> dict[str, Any]:
    """Return a stored answer in a list."""
    return asdict(summary)


def history_json(request: LoggedRequest) -> dict[str, Any]:
    """Return one request of a history."""
    line = request.line
    return {
        "receipt": line.number,
        "time": line.time,
        "person": line.principal,
        "state": request.state,
        "question": request.question,
        "what": line.what,
        "price": request.price.words,
        "accounts": list(line.accounts),
    }


def budget_json(view: BudgetView) -> dict[str, Any]:
    """Return a budget."""
    forecast = view.forecast
    return {
        "data": view.data,
        "account": view.account,
        "epsilon": price_text(view.epsilon),
        "delta": price_text(view.delta),
        "unit": view.unit,
        "blocks": [_block_json(block) for block in view.blocks],
        "people": [_block_json(quota) for quota in view.people],
        "forecast": None if forecast is None else {**asdict(forecast), "words": forecast.words},
        "odds": list(view.odds),
    }


def _block_json(block: BlockLeft) -> dict[str, Any]:
    return {
        "name": block.name,
        "epsilon": left_text(block.epsilon),
        "of": price_text(block.of),
        "delta": left_text(block.delta),
        "is_open": block.is_open,
    }


def checked_json(checked: CheckedText) -> dict[str, Any]:
    """Return what a check of a receipt, proof or statement found."""
    return {
        "kind": checked.kind,
        "good": checked.is_good,
        "findings": list(checked.findings),
        "data": checked.data,
        "position": checked.position,
        "told": checked.told,
    }
