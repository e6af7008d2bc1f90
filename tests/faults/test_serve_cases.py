"""Cases H1 to H5 and H8 to H15: HTTP requests against a server process.

One `lapwing serve` serves the whole file, over TCP, as programs and browsers are served.
Cases H7 and X6: tests/server/api/test_route_neighbours.py. Case X7: tests/faults/test_serve_logs.py.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import expect

from lapwing.server.app import ROUTES
from lapwing.server.people.links import LinkKind
from lapwing.server.people.sessions import IDLE_SECONDS, LIFE_SECONDS
from lapwing.server.settings import STATE_FOLDER
from lapwing.server.state import STATE_FILE
from support.browser import chromium
from support.cases import each
from support.open_id_provider import CLIENT, SECRET, LoopbackProvider, running_provider
from support.served import COUNT, write_data
from support.served_process import ServedProcess, serving, until
from support.server_people import GOOD

SLOT = 0.2  # seconds
SETTINGS = """
[server]
reply_slot = {slot}
[limits]
requests_per_minute = 1000000
unknown_per_minute = 1000000
[open_id]
issuer = "{issuer}"
client_id = "{client}"
client_secret_file = "secret"
"""
QUOTAS = "".join(
    f'[analysts."{name}"]\nepsilon = {epsilon}\ndelta = 0\n'
    for name, epsilon in (("ann", 4), ("bob", 4), ("robbed", "0.5"), ("rich", 4))
)
PRICED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.011) COUNT(*) AS n FROM visits"
PRICES = (f"0.01{number:05}" for number in itertools.count(1))  # a question of its own for each release


@pytest.fixture(scope="module")
def provider() -> Iterator[LoopbackProvider]:
    with running_provider() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, provider: LoopbackProvider) -> Iterator[ServedProcess]:
    """A server with quotas, people with passwords, and a provider of identities."""
    folder = tmp_path_factory.mktemp("served")
    write_data(folder, after=QUOTAS)
    (folder / "server.toml").write_text(SETTINGS.format(slot=SLOT, issuer=provider.address, client=CLIENT))
    (folder / "secret").touch(0o600)
    (folder / "secret").write_text(SECRET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAPWING_STATE", str(folder / "state"))  # other tests have people with the same ids
        with serving(folder) as running:
            for name, role in (
                ("ann", "analyst"), ("bob", "analyst"), ("rich", "analyst"), ("robbed", "analyst"),
                ("sue", "steward"),
            ):  # fmt: skip
                running.person(name, role, password=GOOD)
            running.people.accounts.bind("bob", provider.address, provider.subject)
            yield running


@pytest.fixture(scope="module")
def ann(server: ServedProcess) -> httpx.Client:
    return server.program("ann")


@pytest.fixture(scope="module")
def bob(server: ServedProcess) -> httpx.Client:
    return server.program("bob")


def planned(client: httpx.Client, epsilon: str = "", **more: Any) -> str:
    """Return the address of the release of a new plan."""
    body = {"data": "visits", "sql": COUNT, "epsilon": epsilon or next(PRICES), **more}
    reply = client.post("/v1/plans", json=body)
    assert reply.status_code == 201, reply.text
    return f"/v1/plans/{reply.json()['id']}/release"


def released(client: httpx.Client, epsilon: str = "") -> dict[str, Any]:
    """Return a new answer."""
    reply = client.post(planned(client, epsilon))
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def charges(server: ServedProcess) -> int:
    """The number of charges in the ledger of all people."""
    reply = server.program("sue").get("/v1/data/visits/history?last=1000")
    assert reply.status_code == 200, reply.text
    return len(reply.json()["history"])


def told(reply: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    """All of a reply."""
    return reply.status_code, dict(reply.headers), reply.content


def signed_in(server: ServedProcess, name: str) -> httpx.Client:
    """A browser in which somebody has signed in with a password."""
    browser = server.browser()
    reply = browser.post("/session", json={"name": name, "password": GOOD})
    assert reply.status_code == 204, reply.text
    return browser


def age(server: ServedProcess, name: str, column: str, seconds: int) -> None:
    """Let time pass for the sessions of an account: what it was last is longer ago now."""
    path = server.folder / STATE_FOLDER / STATE_FILE
    with closing(sqlite3.connect(path)) as state, state:
        changed = state.execute(
            f"UPDATE sessions SET {column} = {column} - ? WHERE name = ?", (seconds, name)
        )
        assert changed.rowcount


# What belongs to others


def test_H1_what_another_has_is_the_404_of_what_never_was(
    server: ServedProcess, ann: httpx.Client, bob: httpx.Client
) -> None:
    answer = released(ann)
    plan = planned(ann).split("/")[3]
    batch = ann.post(
        "/v1/batches", json={"data": "visits", "epsilon": next(PRICES), "questions": [{"sql": COUNT}]}
    ).json()["id"]
    position = answer["receipt"]["position"]
    before, browser = charges(server), signed_in(server, "bob")
    for method, own, never in (
        ("GET", f"/v1/answers/{answer['id']}", "/v1/answers/visits.999"),
        ("GET", f"/v1/answers/{answer['id']}?format=csv", "/v1/answers/other.1?format=csv"),
        ("GET", f"/v1/plans/{plan}", f"/v1/plans/{'0' * 32}"),
        ("POST", f"/v1/plans/{plan}/release", f"/v1/plans/{'0' * 32}/release"),
        ("POST", f"/v1/plans/{plan}/dry-run", f"/v1/plans/{'0' * 32}/dry-run"),
        ("GET", f"/v1/batches/{batch}", f"/v1/batches/{'0' * 32}"),
        ("POST", f"/v1/batches/{batch}/release", f"/v1/batches/{'0' * 32}/release"),
        ("GET", f"/v1/data/visits/receipts/{position}", "/v1/data/visits/receipts/999"),
        ("GET", f"/v1/data/visits/proofs/{position}", "/v1/data/other/proofs/1"),
        ("GET", f"/answers/{answer['id']}", "/answers/visits.999"),
        ("GET", f"/answers/{answer['id']}/as/csv", "/answers/visits.999/as/csv"),
        ("GET", f"/answers/{answer['id']}/chart/light.svg", "/answers/visits.999/chart/light.svg"),
        ("GET", f"/d/visits/ask/{plan}", f"/d/visits/ask/{'0' * 32}"),
        ("GET", f"/d/visits/plans/{plan}", f"/d/visits/plans/{'0' * 32}"),
        ("GET", f"/d/visits/ledger/{position}/proof", "/d/visits/ledger/999/proof"),
    ):
        client = bob if own.startswith("/v1/") else browser
        first, second = client.request(method, own), client.request(method, never)
        assert first.status_code == 404, own
        assert told(first) == told(second), own
        if client is bob:
            assert ann.request(method, own).status_code == 200, own
    assert charges(server) == before + 2  # the owner's two releases


# Prices


HOSTILE = (
    "1e999", "NaN", "nan", "inf", "Infinity", "-1", "-0", "0", "0.0", "1e-320", "0x1", "1_0", "", " 1",
    "1 ", "1\n", "１", "٣", "1,5", "+1", ".5", "5.", "1/2", "9" * 400, "1e9999999999", "0.5\x00",
)  # fmt: skip


def test_H2_an_epsilon_that_is_no_number_is_refused_and_uncharged(
    server: ServedProcess, ann: httpx.Client
) -> None:
    before, addresses = charges(server), ("/v1/plans", "/v1/batches", "/v1/sql")
    values: tuple[Any, ...] = (*HOSTILE, 0.5, 1, True, None, [], {}, ["0.5"])
    for value in values:
        priced = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = {json.dumps(value)}) {COUNT[7:]}"
        bodies: tuple[dict[str, Any], ...] = (
            {"sql": COUNT, "epsilon": value},
            {"questions": [{"sql": COUNT}], "epsilon": value},
            {"sql": priced},
        )
        for address, more in zip(addresses, bodies, strict=True):
            if address == "/v1/sql" and type(value) in (int, float):
                continue  # a number of SQL is exact
            reply = ann.post(address, json={"data": "visits", **more})
            assert reply.status_code == 422, (address, value, reply.text)
            assert {"code", "message"} <= set(reply.json()["error"])
    for text in ("1e999", "NaN", "inf", "-1", "0", "1e-320"):
        sql = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = {text}) COUNT(*) AS n FROM visits"
        assert ann.post("/v1/sql", json={"data": "visits", "sql": sql}).status_code == 422, text
    for body in (b'{"data":"visits","sql":"SELECT 1","epsilon":NaN}', b'{"epsilon":1e999}', b"[" * 5000):
        reply = ann.post("/v1/plans", content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 422
    assert charges(server) == before


def test_H3_whoever_hangs_up_finds_the_stored_bytes(server: ServedProcess, ann: httpx.Client) -> None:
    before, address = charges(server), planned(ann)
    secret = f"Authorization: {ann.headers['authorization']}"
    head = f"POST {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n{secret}\r\n\r\n"
    with server.connected() as client:
        client.sendall(head.encode())
        time.sleep(0.01)  # it is being worked on
    first = ann.post(address)  # waits for the work, and never does it again
    assert first.status_code == 200
    answer = first.json()
    contents = {ann.get(f"/v1/answers/{answer['id']}").content for _ in range(3)}
    assert len(contents) == 1
    assert json.loads(contents.pop())["columns"] == answer["columns"]
    assert ann.post(address).json()["columns"] == answer["columns"]
    assert charges(server) == before + 1


# Stolen tokens


def test_H4_a_stolen_token_spends_its_own_limit_or_the_quota_and_no_more(
    server: ServedProcess, ann: httpx.Client
) -> None:
    whole = server.program("sue").get("/v1/data/visits/left").json()["epsilon"]
    thief = server.program("robbed")
    assert thief.post(planned(thief, "0.4")).status_code == 200
    beyond = thief.post(planned(thief, "0.2"))
    assert (beyond.status_code, beyond.json()["error"]["code"]) == (422, "over-budget")
    assert float(server.program("sue").get("/v1/data/visits/left").json()["epsilon"]) == pytest.approx(
        float(whole) - 0.4
    )
    assert released(ann)["id"]  # nobody else is kept out
    for method, path, body in (
        ("POST", "/v1/tokens", {"name": "more", "days": 9}),
        ("PUT", "/v1/me/password", {"old": GOOD, "new": GOOD}),
        ("POST", "/v1/people", {"name": "eve", "data": "visits", "roles": ["analyst"]}),
        ("DELETE", "/session", None),
    ):
        assert thief.request(method, path, json=body).status_code == 403, path
    browser = signed_in(server, "robbed")
    [token] = browser.get("/v1/tokens").json()["tokens"]
    assert browser.delete(f"/v1/tokens/{token['id']}").status_code == 204
    assert thief.get("/v1/data").status_code == 401


def test_H12_a_token_spends_at_most_its_epsilon_however_many_ask_at_once(server: ServedProcess) -> None:
    client, before = server.program("rich", most_epsilon="0.25"), charges(server)
    addresses = [planned(client, f"0.1000{number}") for number in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        replies = [*pool.map(client.post, addresses)]
    assert sorted(one.status_code for one in replies) == [200] * 2 + [403] * 6
    assert {one.json()["error"]["code"] for one in replies if one.status_code == 403} == {"token-spent"}
    assert charges(server) == before + 2
    other = server.program("rich")  # the same account without such a limit
    assert other.post(planned(other, "0.11")).status_code == 200


# Methods and caches


def test_H5_only_post_spends_and_nothing_is_kept_on_the_way(
    server: ServedProcess, ann: httpx.Client
) -> None:
    answer, address = released(ann), planned(ann)
    before, override = charges(server), {"x-http-method-override": "POST", "x-method-override": "POST"}
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"):
        reply = ann.request(method, address, headers=override, params={"_method": "POST"})
        assert reply.status_code == 405, method
    kept = [
        (one.method, one.path, ann.request(one.method if one.method == "GET" else "HEAD", path))
        for one in ROUTES
        for path in [one.path.replace("{name}", "visits").replace("{answer}", answer["id"])]
    ]
    kept += [
        ("GET", path, signed_in(server, "ann").get(path)) for path in ("/", f"/answers/{answer['id']}")
    ]
    for method, path, reply in kept:
        assert reply.headers["cache-control"] == "no-store", (method, path)
        assert "etag" not in reply.headers
        assert "age" not in reply.headers
    assert charges(server) == before


# Time


def test_H15_replies_of_releases_leave_on_the_grid_whatever_they_say(
    server: ServedProcess, ann: httpx.Client
) -> None:
    """Their moments are those of the server's clock, which is this machine's, and a little way."""
    old, dear, browser = planned(ann), planned(ann, "3.99"), signed_in(server, "ann")
    assert ann.post(old).status_code == 200
    assert ann.post(planned(ann, "0.5")).status_code == 200
    kinds: list[tuple[httpx.Client, str, Any, int]] = [
        (ann, old, None, 200),
        (ann, dear, None, 422),
        (ann, f"/v1/plans/{'0' * 32}/release", None, 404),
        (ann, "/v1/sql", {"data": "visits", "sql": PRICED}, 200),
        (ann, "/v1/sql", {"data": "visits", "sql": "SELECT"}, 422),
        (ann, "/v1/batches/0/release", None, 404),
        (browser, "/d/visits/release", None, 200),
        (browser, f"/d/visits/dashboard/{'0' * 32}/release", None, 404),
    ]
    new = [(ann, planned(ann), None, 200) for _ in range(8)]

    def ask(number: int) -> float:
        client, address, body, status = (kinds * 3 + new)[number]
        time.sleep(0.05 * number)  # at any phase
        reply = client.post(address, json=body)
        assert reply.status_code == status, (address, reply.text)
        return time.time() % SLOT

    with ThreadPoolExecutor(32) as pool:
        phases = sorted(pool.map(ask, range(32)))
    # Moments at random would lie in this half of a slot with a chance below 1 : 500,000.
    assert sum(phase < SLOT / 2 for phase in phases) >= 29, phases


# Forged, replayed, stale


FORGED = (
    "Bearer forged", "Bearer", "Basic YW5uOmNvcnJlY3Q=", "bearer lapwing_", "Bearer " + "A" * 8000,
    "Bearer lapwing_" + "A" * 43, "Bearer lapwing_' OR '1'='1", "Digest x",
)  # fmt: skip


def test_H8_forged_sessions_and_tokens_are_nobodys(server: ServedProcess, ann: httpx.Client) -> None:
    before, address = charges(server), planned(ann)
    own = signed_in(server, "ann").cookies["lapwing"]
    stranger = told(server.stranger().get("/v1/data"))
    assert stranger[0] == 401
    secret = ann.headers["authorization"]
    headers = [{"authorization": value} for value in (*FORGED, secret[:-1], f"{secret}x", secret.upper())]
    cookies = ("forged", own[:-1], f"{own}x", own.swapcase(), own[::-1], "", "%00", "lapwing", secret[7:])
    headers += [{"cookie": f"lapwing={value}"} for value in cookies]
    headers += [{"cookie": f"{name}={own}"} for name in ("__Host-lapwing", "Lapwing", "session")]
    headers += [{"authorization": f"Bearer {own}"}, {"x-forwarded-user": "ann"}, {"remote-user": "ann"}]
    for one in headers:
        reply = server.stranger().get("/v1/data", headers=one)
        assert told(reply) == stranger, one
        own_origin = {"origin": server.address.rstrip("/"), **one}
        assert server.stranger().post(address, headers=own_origin).status_code in (401, 403), one
    both = {"cookie": f"lapwing={own}", "authorization": secret}
    assert server.stranger().get("/v1/data", headers=both).status_code == 400
    assert charges(server) == before


def test_H10_a_sign_in_that_is_replayed_signs_nobody_in(
    server: ServedProcess, provider: LoopbackProvider
) -> None:
    browser = signed_in(server, "ann")
    cookie = browser.cookies["lapwing"]
    assert browser.delete("/session").status_code == 204
    assert server.browser(cookie).get("/v1/data").status_code == 401  # after signing out
    planted = server.browser(cookie)
    assert planted.post("/session", json={"name": "ann", "password": GOOD}).status_code == 204
    assert planted.cookies["lapwing"] != cookie  # a planted session is not taken over
    assert server.browser(cookie).get("/v1/data").status_code == 401

    browser = server.browser()
    begun = browser.get("/oidc/sign-in")
    back = provider.authorized(begun.headers["location"])
    assert browser.get(back).status_code == 200
    assert browser.get("/v1/me").json()["name"] == "bob"
    replay = server.browser()
    replay.headers["cookie"] = begun.headers["set-cookie"].partition(";")[0]
    for again in (replay, server.browser()):
        assert again.get(back).status_code == 401
        assert "lapwing" not in again.cookies

    link = server.people.links.make_password("bob")
    first, second = (
        server.browser().post("/v1/password", json={"link": link, "password": GOOD}) for _ in range(2)
    )
    assert (first.status_code, second.status_code) == (204, 401)


@each(("column", "seconds"), (("seen", IDLE_SECONDS), ("began", LIFE_SECONDS)))
def test_H11_a_stale_session_is_over(server: ServedProcess, column: str, seconds: int) -> None:
    browser, address = signed_in(server, "bob"), planned(server.program("bob"))
    before = charges(server)
    age(server, "bob", column, seconds - 60)
    assert browser.get("/v1/me").status_code == 200
    if column == "seen":  # the request was noted
        until(lambda: _seen(server) >= time.time() - 30)
    age(server, "bob", column, seconds + 1 if column == "seen" else 61)
    assert browser.get("/v1/me").status_code == 401
    assert browser.post(address).status_code == 401
    assert browser.get("/d/visits", headers={"accept": "text/html"}).status_code == 303
    assert charges(server) == before


def _seen(server: ServedProcess) -> float:
    with closing(sqlite3.connect(server.folder / STATE_FOLDER / STATE_FILE)) as state:
        [(seen,)] = state.execute("SELECT max(seen) FROM sessions WHERE name = 'bob'").fetchall()
        return float(seen)


def test_H13_a_start_link_signs_in_one_browser_once(server: ServedProcess) -> None:
    link = server.people.links.make_start("ann", server.settings)
    assert server.stranger().get("/start", params={"key": f"{link}x"}).status_code == 401
    fetched = server.stranger().get("/start", params={"key": link}, headers={"sec-purpose": "prefetch"})
    assert fetched.status_code == 401
    with ThreadPoolExecutor(8) as pool:
        replies = [*pool.map(lambda _: server.stranger().get("/start", params={"key": link}), range(8))]
    assert sorted(one.status_code for one in replies) == [303] + [401] * 7
    assert [bool(one.headers.get("set-cookie")) for one in replies].count(True) == 1
    late = server.people.links.make_start("ann", server.settings)
    with closing(sqlite3.connect(server.folder / STATE_FOLDER / STATE_FILE)) as state, state:
        state.execute("UPDATE links SET ends = ends - 3601 WHERE kind = ?", (LinkKind.START.value,))
    assert server.stranger().get("/start", params={"key": late}).status_code == 401


# Pages of other sites


ELSEWHERE = """<!doctype html><title>elsewhere</title><iframe name="inner"></iframe>
<form id="form" method="post" target="inner"></form>"""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[int]:
    """The port of a site of somebody else, on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(ELSEWHERE.encode())

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield site.server_port
        site.shutdown()
        thread.join()


POST = """async ([address, body, options]) => {
    try {
        const reply = await fetch(address, {method: "POST", body, ...options});
        return [reply.type, reply.status, await reply.text()];
    } catch { return "refused by the browser"; }
}"""
SUBMIT = """([address, fields, coding]) => new Promise(done => {
    const form = document.getElementById("form");
    form.action = address; form.enctype = coding; form.replaceChildren();
    for (const [name, value] of Object.entries(fields)) {
        const input = document.createElement("input");
        input.name = name; input.value = value; form.append(input);
    }
    document.querySelector("iframe").onload = () => done();
    form.submit();
})"""
LOAD = """([kind, address]) => new Promise(done => {
    const found = document.createElement(kind);
    found.onload = () => done("loaded"); found.onerror = () => done("refused");
    found[kind === "link" ? "href" : "src"] = address;
    if (kind === "link") found.rel = "stylesheet";
    document.body.append(found);
})"""


def test_H9_a_page_of_another_origin_changes_and_reads_nothing(
    server: ServedProcess, ann: httpx.Client, elsewhere: int
) -> None:
    """A page on another port gets the cookie from the browser (it is "same-site"), and changes nothing."""
    own, before = server.address.rstrip("/"), charges(server)
    link = server.people.links.make_start("bob", server.settings)
    with chromium() as browser:
        context = browser.new_context()
        page = context.new_page()
        statuses: list[tuple[str, int]] = []
        page.on("response", lambda reply: statuses.append((reply.request.method, reply.status)))
        page.goto(f"{own}/sign-in")
        page.get_by_label("Name").fill("ann")
        page.get_by_label("Password").fill(GOOD)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{own}/")
        signed = page.evaluate("fetch('/v1/me').then(reply => reply.json())")
        for host in ("127.0.0.1", "localhost"):
            page.goto(f"http://{host}:{elsewhere}/")
            statuses.clear()
            plan = planned(ann)
            fields = {"plan": plan.split("/")[3], "as_planned": "1", "sql": COUNT}
            attacks: list[tuple[str, str | None]] = [
                (plan, None),
                (plan, "{}"),
                ("/v1/sql", json.dumps({"data": "visits", "sql": PRICED})),
                ("/d/visits/release", urlencode(fields)),
                ("/sign-out", None),
                ("/session", json.dumps({"name": "bob", "password": GOOD})),
                ("/v1/tokens", json.dumps({"name": "stolen", "days": 9})),
            ]
            kinds = [
                {"mode": mode, "credentials": credentials, "headers": headers}
                for mode in ("no-cors", "cors")
                for credentials in ("include", "omit")
                for headers in (
                    {},
                    {"Content-Type": "application/json"},
                    {"Content-Type": "application/x-www-form-urlencoded"},
                    {"Authorization": ann.headers["authorization"]},
                )
            ]
            for (path, body), options in itertools.product(attacks, kinds):
                seen = page.evaluate(POST, [f"{own}{path}", body, options])
                assert seen in ("refused by the browser", ["opaque", 0, ""]), (path, options, seen)
            for path, _ in attacks:
                for coding in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
                    page.evaluate(SUBMIT, [f"{own}{path}", fields, coding])
            page.evaluate("address => navigator.sendBeacon(address, '{}')", f"{own}{plan}")
            posted = {status for method, status in statuses if method == "POST"}
            assert posted <= {401, 403, 415}, posted
            assert 403 in posted
            for kind in ("img", "script", "link"):
                for path in ("/v1/data", "/d/visits", f"/start?key={link}"):
                    assert page.evaluate(LOAD, [kind, f"{own}{path}"]) == "refused", (kind, path)
            reading = "address => fetch(address, {credentials: 'include'}).then(() => 1, () => 0)"
            assert page.evaluate(reading, f"{own}/v1/data") == 0
            page.evaluate("address => { location = address }", f"{own}/start?key={link}")
            expect(page.get_by_text("works once")).to_be_visible()
        page.goto(f"{own}/")
        after = page.evaluate("fetch('/v1/me').then(reply => reply.json())")
        context.close()
    assert after == signed  # not signed out, not signed in as another
    assert after["name"] == "ann"
    assert server.people.links.name_of(link, LinkKind.START) == "bob"  # not used up
    assert "stolen" not in signed_in(server, "ann").get("/v1/tokens").text
    assert charges(server) == before


# Slow senders


@pytest.mark.slow  # 20 seconds of waiting
def test_H14_slow_senders_are_closed_and_keep_nobody_out(server: ServedProcess, ann: httpx.Client) -> None:
    secret = ann.headers["authorization"]
    head = "GET /v1/data HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + "x" * 4000
    body = (
        f"POST /v1/plans HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {secret}\r\n"
        f"Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{{"
    )
    chunked = body.replace("Content-Length: 5000", "Transfer-Encoding: chunked")[:-1]

    def send(start: str, piece: str) -> tuple[float, bytes]:
        begun, got = time.monotonic(), b""
        with server.connected() as client:
            client.settimeout(0.5)
            client.sendall(start.encode())
            while time.monotonic() < begun + 60:
                try:
                    client.sendall(piece.encode())
                    got += (more := client.recv(1000))
                    if not more:
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
        return time.monotonic() - begun, got

    before = charges(server)
    kinds = [(head, "x")] * 20 + [(body, " ")] * 20 + [(chunked, "1\r\n \r\n")] * 5 + [("", "")] * 5
    with ThreadPoolExecutor(50) as pool:
        slow = [pool.submit(send, *kind) for kind in kinds]
        time.sleep(1)
        for _ in range(5):
            begun = time.monotonic()
            assert released(ann)["id"]
            assert time.monotonic() - begun < 5
        ends = [one.result() for one in slow]
    for (start, _), (seconds, got) in zip(kinds, ends, strict=True):
        assert seconds < (13 if start in (head, "") else 24), start[:20]
        assert got[:12] in (b"", b"HTTP/1.1 408")
        assert b"408" in got or start in (head, "")
    assert charges(server) == before + 5
