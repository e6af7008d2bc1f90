"""Routes about data sets: what may be asked, what is left, what was charged, and its proofs."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import pyarrow as pa
from starlette.responses import Response

from lapwing.errors import BadParameter
from lapwing.server.api.replies import (
    JSON,
    budget_json,
    checked_json,
    history_json,
    left_json,
    summary_json,
)
from lapwing.server.api.route import (
    ANALYST,
    EVERY_ROLE,
    READERS,
    SEES_ALL,
    STEWARD,
    ApiRoute,
    Call,
    json_reply,
)
from lapwing.server.data.records import LONGEST_RECEIPT, MOST_LINES
from lapwing.server.people.person import NotFound

PARQUET = "application/vnd.apache.parquet"
EXAMPLE_ROWS, MOST_EXAMPLE_ROWS = 100, 100_000
LISTED = 50  # lines of a list, unless more are asked for
LAST = {"last": f"How many of the newest, up to {MOST_LINES:,}; else {LISTED}."}
REPORTS = {"html": "text/html; charset=utf-8", "markdown": "text/markdown; charset=utf-8", "json": JSON}


def _last(call: Call) -> int:
    return call.count("last", LISTED, MOST_LINES)


def list_data(call: Call) -> Response:
    """Return the data sets that the person sees, with the roles for each."""
    seen = call.services.sets.visible_to(call.person)
    return json_reply(
        {
            "data": [
                {"name": data.name, "title": data.title, "roles": sorted(call.person.roles_for(data.name))}
                for data in seen
            ]
        }
    )


def schema(call: Call) -> Response:
    """Return tables, columns, bounds and units of a data set."""
    return json_reply(call.data.schema())


def example(call: Call) -> Response:
    """Return generated rows of a table as Parquet: to write code before anything is spent."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (slow to load, and seldom needed)

    served = call.data
    table = call.option("table", served.curator.policy.private_tables[0].name)
    rows = served.example_rows(table, call.count("rows", EXAMPLE_ROWS, MOST_EXAMPLE_ROWS))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return Response(sink.getvalue().to_pybytes(), media_type=PARQUET)


def left(call: Call) -> Response:
    """Return what is left of the budget, and of the person's quota."""
    return json_reply(left_json(call.data.left(call.person)))


def budget(call: Call) -> Response:
    """Return the budget by block and by person, and a forecast."""
    return json_reply(budget_json(call.services.records.budget(call.person, call.part("name"))))


def answers(call: Call) -> Response:
    """Return the person's newest stored answers."""
    listed = call.services.answers.all_of(call.person, call.part("name"), _last(call))
    return json_reply({"answers": [summary_json(summary) for summary in listed]})


def history(call: Call) -> Response:
    """Return the newest requests that the person may see."""
    lines = call.services.records.history(call.person, call.part("name"), _last(call))
    return json_reply({"history": [history_json(request) for request in lines]})


def entries(call: Call) -> Response:
    """Return the newest entries of the ledger."""
    lines = call.services.records.entries(call.person, call.part("name"), _last(call))
    return json_reply({"entries": [asdict(line) for line in lines]})


def receipt(call: Call) -> Response:
    """Return a receipt."""
    return json_reply(call.services.records.receipt(call.person, call.part("name"), call.receipt_number()))


def proof(call: Call) -> Response:
    """Return a proof that a receipt is in the ledger."""
    return json_reply(call.services.records.proof(call.person, call.part("name"), call.receipt_number()))


def statement(call: Call) -> Response:
    """Return the whole history of the ledger as a signed statement."""
    content = call.services.records.statement(call.person, call.part("name"))
    return Response(content, media_type="application/x-ndjson")


def report(call: Call) -> Response:
    """Return the officer's report, signed with the ledger's key."""
    from lapwing.reporting.writing import make_report  # noqa: PLC0415 (slow to load, and seldom needed)

    form = call.option("format", "html")
    if form not in REPORTS:
        raise BadParameter("format", f"must be one of {', '.join(REPORTS)}")
    made = make_report(
        call.data.curator.policy.path, date=datetime.now(UTC).date().isoformat(), draw=form == "html"
    )
    return Response(made.bytes_of(form), media_type=REPORTS[form])


def clear_hold(call: Call) -> Response:
    """Let a question be asked again that was charged and failed. Its charge stays."""
    served, position = call.data, call.receipt_number()
    if not served.curator.has_ledger:
        raise NotFound(served.name)
    served.curator.clear_hold(position)
    return json_reply({"receipt": position, "cleared": True})


def verify(call: Call) -> Response:
    """Check a receipt, a proof or a statement that somebody has brought."""
    if len(call.body) > LONGEST_RECEIPT:
        raise BadParameter("file", "is too long to be checked here: use `lapwing ledger verify FILE`")
    return json_reply(checked_json(call.services.records.verify(call.person, call.body)))


_LEFT = {"epsilon": "2.5", "of": "3", "delta": "6e-8", "quota": None}
ROUTES = (
    ApiRoute("GET", "/v1/data", EVERY_ROLE, list_data, "List the data sets that you have a role for.",
             example={"data": [{"name": "visits", "title": "visits", "roles": ["analyst"]}]}),
    ApiRoute("GET", "/v1/data/{name}/schema", EVERY_ROLE, schema, "Tables, columns, bounds and units."),
    ApiRoute("GET", "/v1/data/{name}/example.parquet", EVERY_ROLE, example,
             "Generated rows of a table, from the policy alone.", kind=PARQUET,
             options={"table": "The table; else the first.",
                      "rows": f"How many, up to {MOST_EXAMPLE_ROWS:,}; else {EXAMPLE_ROWS}."}),
    ApiRoute("GET", "/v1/data/{name}/left", EVERY_ROLE, left, "What is left, for you.", example=_LEFT),
    ApiRoute("GET", "/v1/data/{name}/budget", EVERY_ROLE, budget,
             "The budget by block and person, a forecast, and what it means in odds."),
    ApiRoute("GET", "/v1/data/{name}/answers", ANALYST, answers, "Your newest answers.", options=LAST),
    ApiRoute("GET", "/v1/data/{name}/history", READERS, history,
             "The newest requests: yours; stewards and officers see all.", options=LAST),
    ApiRoute("GET", "/v1/data/{name}/entries", SEES_ALL, entries,
             "The ledger's newest entries.", options=LAST),
    ApiRoute("GET", "/v1/data/{name}/receipts/{receipt:int}", READERS, receipt, "A receipt."),
    ApiRoute("GET", "/v1/data/{name}/proofs/{receipt:int}", READERS, proof,
             "A proof that a receipt is in the ledger. `lapwing verify FILE` checks it anywhere."),
    ApiRoute("GET", "/v1/data/{name}/statement", SEES_ALL, statement,
             "The whole history, as anybody can check it.", kind="application/x-ndjson"),
    ApiRoute("GET", "/v1/data/{name}/report", SEES_ALL, report, "The privacy report, signed.",
             options={"format": "html, markdown or json."}, kind="text/html"),
    ApiRoute("POST", "/v1/data/{name}/holds/{receipt:int}/clear", STEWARD, clear_hold,
             "Let a question be asked again that was charged and failed. Its charge stays."),
    ApiRoute("POST", "/v1/verify", EVERY_ROLE, verify,
             "Check a receipt, a proof or a statement against the ledgers here."),
)  # fmt: skip
