"""Requests that Schemathesis makes from the published description: no failure of ours, no overspending.

Some names in addresses and bodies are replaced by names that exist, so that requests get to the work.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lapwing.ledger import Ledger
from lapwing.server.people.person import Role
from support.served import BASE, COUNT, Door, write_data
from support.server_people import cheapen, client_of
from support.slowly import slow

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
SKIPPED = {("DELETE", "/session"), ("POST", "/v1/jobs")}  # the end of our session; processes that work
LONG = {("GET", "/v1/data/{name}/report")}  # 1 second each
PAGES = {  # forms of pages: their fields
    **dict.fromkeys(
        ("/d/visits/ask", "/d/visits/price", "/d/visits/release"),
        ("sql", "epsilon", "within", "odds", "confidence", "delta", "noise", "fresh", "plan", "leads",
         "use_epsilon", "use_sql", "as_planned"),
    ),
    "/d/visits/dashboard": ("sql", "epsilon"),
    "/d/visits/jobs": ("kind", "sql", "epsilon", "file"),
    "/d/visits/ledger/verify": ("text",),
    "/people": ("name", "shown_name", "data", "role"),
    "/people/guest/roles": ("data", "role"),
    "/tokens": ("label", "most_epsilon", "ends", "data"),
    "/password": ("key", "password", "again"),
    "/sign-in": ("name", "password", "next"),
}  # fmt: skip
HOSTILE = ("", "\x00", "1e999", "NaN", "-1", "9" * 400, "'\"<>", "１", " ", "x" * 5000)
GOOD = {"sql": COUNT, "epsilon": "0.1", "data": "visits", "role": "analyst", "label": "x", "name": "guest"}
NUMBERS = ("0", "-1", str(2**63), "9" * 30, "9" * 5000, "x", "%00")
PLACES = ("/d/visits/ledger/{}/proof", "/d/visits/ledger?receipt={}", "/answers/visits.{}", "/answers/{}",
          "/d/visits/ask?epsilon={}", "/d/visits/ask/{}", "/people/{}", "/d/{}", "/d/visits/history?all={}",
          "/sign-in?next={}", "/files/{}/style.css", "/d/visits/budget/chart/{}.svg")  # fmt: skip
TEXTS = (
    COUNT,
    "SELECT AVG(stay) AS a FROM visits",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.2) COUNT(*) AS n FROM visits",
    "SELECT stay FROM visits",
    "SELECT COUNT(*) FROM visits; SELECT 1",
    "SELECT",
)
PRICES = ("0.1", "1", "9.99", "1e-2", "0", "1e999", "NaN", "-1")


class _Fuzzed(Door):
    """A server, and the browser of somebody with all roles, who is asked to try everything."""

    def __init__(self, folder: Any) -> None:
        super().__init__(folder)
        people = self.services.people
        program = self.client("root", *Role)
        answer, batch = (
            self.release(program),
            {"data": "visits", "epsilon": "0.1", "questions": [{"sql": COUNT}]},
        )
        people.accounts.make("guest")
        people.accounts.set_roles("guest", "visits", frozenset({Role.ANALYST}))
        self.names = {
            "name": ["visits", "guest"],
            "data": ["visits"],
            "plan": [self.plan(program), self.plan(program, epsilon="9"), self.plan(program, epsilon="3")],
            "batch": [program.post("/v1/batches", json=batch).json()["id"]],
            "answer": [answer["id"]],
            "receipt": [1, 4],
            "sql": list(TEXTS),
            "epsilon": list(PRICES),
            "roles": [["analyst"], []],
        }
        self.browser = client_of(self.app, BASE, {"origin": BASE, "sec-fetch-site": "same-origin"})
        self.browser.cookies.set("lapwing", people.sessions.begin("root"), domain="127.0.0.1")
        told = self.stranger().get("/v1/openapi.json")
        self.description = schemathesis.openapi.from_dict(told.json())
        self.statuses: Counter[int] = Counter()

    def placed(self, draw: st.DataObject, value: Any, *, whole: bool = False) -> Any:
        """Return a value with some parts replaced by such as exist, and others left out unless `whole`."""
        if isinstance(value, list):
            return [self.placed(draw, part) for part in value]
        if not isinstance(value, dict):
            return value
        found = {}
        for name, part in value.items():
            if name in self.names and draw.draw(st.integers(0, 7)):
                found[name] = draw.draw(st.sampled_from(self.names[name]))
            elif (
                name in self.names
                or whole
                or isinstance(part, dict | list)
                or not draw.draw(st.integers(0, 2))
            ):
                found[name] = self.placed(draw, part)
        return found


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Fuzzed]:
    with pytest.MonkeyPatch.context() as patch:
        cheapen(patch)
        folder = tmp_path_factory.mktemp("served")
        patch.setenv("LAPWING_STATE", str(folder / "state"))  # others have people with the same ids
        write_data(folder)
        opened = _Fuzzed(folder)
        yield opened
        opened.close()


def _try(fuzzed: _Fuzzed, operation: Any, mode: GenerationMode, most: int) -> None:
    """Send requests of one operation, and check each reply."""

    @given(case=operation.as_strategy(generation_mode=mode), draw=st.data())
    @settings(
        max_examples=most,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any, draw: st.DataObject) -> None:
        case.path_parameters = fuzzed.placed(draw, case.path_parameters, whole=True)
        case.body = fuzzed.placed(draw, case.body)
        given = case.as_transport_kwargs(BASE)
        wanted = {
            name: given[name] for name in ("method", "url", "params", "json", "data") if name in given
        }
        try:
            if not isinstance(wanted.get("data", {}), dict):
                wanted["content"] = wanted.pop("data")
            request = fuzzed.browser.build_request(**wanted)
            for name, value in (given["headers"] or {}).items():
                if name.lower() not in ("authorization", "cookie", "user-agent"):
                    request.headers[name] = value
        except (httpx.InvalidURL, UnicodeError, TypeError, ValueError):
            return  # no client sends this
        reply = fuzzed.browser.send(request)
        fuzzed.statuses[reply.status_code] += 1
        reply.elapsed = timedelta(0)  # of a transport of ours
        case.validate_response(reply, checks=CHECKS)

    send()


@pytest.mark.parametrize("most", [3, slow(60)])
def test_H16_no_request_fails_or_overspends(fuzzed: _Fuzzed, most: int) -> None:
    every: list[Any] = list(fuzzed.description.get_all_operations())
    for found in every:
        operation = found.ok()
        key = operation.method.upper(), operation.path
        if key in SKIPPED or (most < 10 and key in LONG):
            continue
        for mode in GenerationMode:
            _try(fuzzed, operation, mode, most)
    assert {200, 201, 404, 422} <= fuzzed.statuses.keys()
    [data] = fuzzed.services.sets
    ledger: Ledger = data.curator.ledger
    assert ledger.verify().findings == ()  # a second accountant: never above the cap
    left = fuzzed.browser.get("/v1/data/visits/left").json()
    assert 0 <= Fraction(left["epsilon"]) < Fraction(left["of"])


@pytest.mark.slow
def test_H16_no_form_of_a_page_makes_the_server_fail(fuzzed: _Fuzzed) -> None:
    browser = fuzzed.browser
    own = dict(browser.cookies)
    for path, fields in PAGES.items():
        good = {name: GOOD[name] for name in fields if name in GOOD}
        for name, value in itertools.product(fields, HOSTILE):
            browser.cookies.update(own)  # signing in as nobody must not end this
            reply = browser.post(path, data={**good, name: value}, headers={"accept": "text/html"})
            assert reply.status_code < 500, (path, name, value[:20])
    for place, number in itertools.product(PLACES, NUMBERS):
        reply = browser.get(place.format(number), headers={"accept": "text/html"})
        assert reply.status_code < 500, (place, number[:20])
    assert browser.get("/v1/me").json()["name"] == "root"
