"""Write all routes of a server into docs/reference/http.md, from the routes themselves.

Run it with `make pictures` after a change of routes. tests/shape/test_documented.py fails if the page
is stale.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lapwing.server.app import DESCRIPTION, ROUTES
from lapwing.server.console.console import ROUTERS
from lapwing.server.metrics import healthz, metrics, readyz
from lapwing.server.people.person import Role
from lapwing.server.web import router

PAGE = Path(__file__).parent / "reference" / "http.md"
BEGIN, END = "<!-- {}: written by docs/http_routes.py -->", "<!-- end of {} -->"
ROLE_ORDER = (Role.STEWARD, Role.ANALYST, Role.OFFICER, Role.SURVEY_OWNER)
Row = tuple[str, str, str]


def questions() -> Iterator[Row]:
    """Yield method, address and words of each route of data, plans, batches and jobs, with its roles."""
    for route in ROUTES:
        everybody = route.roles == frozenset(Role)
        who = "every role" if everybody else ", ".join(role for role in ROLE_ORDER if role in route.roles)
        grid = ". On the grid of time" if route.on_grid else ""
        yield route.method, re.sub(r":\w+}", "}", route.path), f"{route.summary.rstrip('.')}{grid} ({who})."


def people() -> Iterator[Row]:
    """Yield the routes for signing in, people and tokens."""
    yield from _rows(router.routes)


def pages() -> Iterator[Row]:
    """Yield the pages, and the forms on them."""
    for part in ROUTERS:
        yield from _rows(part.routes)


def operations() -> Iterator[Row]:
    """Yield the routes for whoever runs the server."""
    yield "GET", DESCRIPTION, "The description of all this, in the form of OpenAPI 3.1."
    for path, function in (("/healthz", healthz), ("/readyz", readyz), ("/metrics", metrics)):
        yield "GET", path, summary(function)


def _rows(routes: Iterable[Any]) -> Iterator[Row]:
    for route in routes:
        for method in sorted(route.methods - {"HEAD"}):
            yield method, re.sub(r":\w+}", "}", route.path), summary(route.endpoint)


def summary(function: Any) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


PARTS = {"questions": questions, "people": people, "pages": pages, "operations": operations}


def table(rows: Iterable[Row]) -> str:
    """Return rows as a table, in the order of their addresses."""
    lines = [
        f"| {method} | `{path}` | {words.replace('|', chr(92) + '|')} |" for method, path, words in rows
    ]
    return "\n".join(["| method | address | what |", "|---|---|---|", *lines])


def written() -> str:
    """Return what the page should hold."""
    text = PAGE.read_text(encoding="utf-8")
    for name, rows in PARTS.items():
        begin, end = BEGIN.format(name), END.format(name)
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        ordered = sorted(rows(), key=lambda row: (row[1], row[0]))
        text = f"{head}{begin}\n{table(ordered)}\n{end}{tail}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
