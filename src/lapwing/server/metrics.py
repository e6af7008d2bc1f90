"""Health and metrics: whether the server lives, whether it can charge, and counts of requests.

Claim    metrics say nothing that the log does not: counts by route and status, and no time of a request.
Because  nothing else is counted.
Test     tests/server/test_metrics.py
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter

from starlette.requests import Request
from starlette.responses import Response

from lapwing.errors import LapwingError
from lapwing.ledger.readiness import require_ready
from lapwing.server.api.replies import json_bytes
from lapwing.server.api.route import ROUTE
from lapwing.server.data.served_data import ServedData, ServedDataSets
from lapwing.server.people.person import NotAllowed, Role
from lapwing.server.web import person_of

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})
KEPT_SECONDS = 2.0  # so that nobody keeps the ledgers busy with questions about them
_JSON = "application/json"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def known_method(method: str) -> str:
    """Return the method of a request, or "OTHER": a client may send any word as a method."""
    return method if method in METHODS else "OTHER"


class Counts:
    """Counts of requests of one process, by method, route and status. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._releases = 0

    def add(self, method: str, route: str, status: int, *, has_receipt: bool) -> None:
        """Count one request."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._releases += has_receipt

    def text(self) -> str:
        """Return the counts in the text form of Prometheus."""
        with self._lock:
            requests, releases = sorted(self._requests.items()), self._releases
        lines = ["# TYPE lapwing_requests_total counter"]
        lines += [
            f'lapwing_requests_total{{process="{os.getpid()}",method="{method}",route="{route}",'
            f'status="{status}"}} {count}'
            for (method, route, status), count in requests
        ]
        lines.append("# TYPE lapwing_answers_total counter")
        lines.append(f'lapwing_answers_total{{process="{os.getpid()}"}} {releases}')
        return "\n".join(lines) + "\n"


class Readiness:
    """Whether every ledger can be written, and every anchor reached. It is looked up every few seconds."""

    def __init__(self, sets: ServedDataSets) -> None:
        self._sets, self._lock = sets, threading.Lock()
        self._seen, self._problems = -KEPT_SECONDS, dict[str, str]()

    def problems(self) -> dict[str, str]:
        """Return the code of an error for each data set that cannot be charged now."""
        if time.monotonic() - self._seen < KEPT_SECONDS or not self._lock.acquire(blocking=self._seen < 0):
            return self._problems  # nobody waits for whoever looks: an anchor may answer slowly
        try:
            codes = {data.name: _problem(data) for data in self._sets}
            self._problems = {name: code for name, code in codes.items() if code}
            self._seen = time.monotonic()
            return self._problems
        finally:
            self._lock.release()


def _problem(data: ServedData) -> str:
    """Return the code of what keeps a data set from being charged; "" if nothing does."""
    curator = data.curator
    if not curator.has_ledger:  # the first charge makes it
        return "" if os.access(curator.policy.path.parent, os.W_OK) else "unavailable"
    try:
        require_ready(curator.ledger)
    except LapwingError as error:
        return error.code
    except OSError:
        return "unavailable"
    return ""


async def healthz(request: Request) -> Response:
    """Reply that the process lives."""
    request.scope[ROUTE] = "/healthz"
    return Response(b'{"healthy":true}', media_type=_JSON)


def readyz(request: Request) -> Response:
    """Reply whether all data sets can be charged, with the code of each problem."""
    request.scope[ROUTE] = "/readyz"
    problems = request.app.state.readiness.problems()
    headers = {"Retry-After": "5"} if problems else {}
    codes = sorted(set(problems.values()))  # not the names: anybody may ask
    content = json_bytes({"ready": not problems, "problems": codes})
    return Response(content, 503 if problems else 200, headers, _JSON)


def metrics(request: Request) -> Response:
    """Reply with the counts of this process, to stewards and officers."""
    request.scope[ROUTE] = "/metrics"
    person = person_of(request)
    if not any({Role.STEWARD, Role.OFFICER} & roles for roles in person.usable_roles.values()):
        raise NotAllowed("metrics")
    return Response(request.app.state.counts.text(), media_type=_TEXT)
