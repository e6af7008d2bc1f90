"""Guards: hosts, cross-site requests, credentials, bodies, limits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lapwing.errors import Unavailable
from lapwing.server import guards
from lapwing.server.guards import Guards
from lapwing.server.people.people import People
from lapwing.server.state import ServerState
from support.cases import each
from support.server_people import GOOD, Site, cheapen, client_of, opened_site, settings_in

JSON = {"content-type": "application/json"}


def token_of(site: Site, name: str) -> str:
    if site.people.accounts.find(name) is None:
        site.person(name, visits="analyst")
    found = site.people.sessions.find(site.people.sessions.begin(name))
    assert found is not None
    expires = datetime.now(UTC) + timedelta(days=1)
    return site.people.tokens.make(found.person, name="a", data=None, most_epsilon=None, expires=expires)[1]


def cookie_of(site: Site, name: str = "ann") -> dict[str, str]:
    if site.people.accounts.find(name) is None:
        site.person(name, visits="analyst")
    return {"cookie": f"{site.cookie}={site.people.sessions.begin(name)}"}


def bare(site: Site) -> httpx.Client:
    return client_of(site.app, site.base, {})


@each(
    ("host", "status"),
    [
        ("localhost", 401),
        ("LOCALHOST:8000", 401),
        ("127.0.0.1:80", 401),
        ("[::1]:80", 401),
        ("[::1]", 401),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("evil.example:localhost", 421),
        ("localhost@evil.example", 421),
        ("localhost:80@evil.example", 421),
        ("localhost:x", 421),
        ("localhost:", 421),
        ("localhost:8000000", 421),
        ("localhost.", 421),
        ("[::1]:80@evil.example", 421),
        ("", 421),
        (":80", 421),
        ("10.0.0.1", 421),
    ],
)
def test_only_known_hosts_are_answered(site: Site, host: str, status: int) -> None:
    assert bare(site).get("/who", headers={"host": host}).status_code == status


def test_a_header_that_matters_comes_once(site: Site) -> None:
    for name in ("host", "origin", "authorization", "sec-fetch-site", "content-length", "content-type"):
        once = {"host": "localhost", "sec-fetch-site": "same-origin", "content-length": "2", **JSON}
        headers = [*once.items(), (name, "localhost"), (name, "localhost")]
        assert _raw(site, "POST", headers, b"{}")[0] == 400, name


def test_a_body_has_one_length(site: Site) -> None:
    headers = [("host", "localhost"), ("sec-fetch-site", "same-origin"), *JSON.items()]
    for length in ("2", "0"):
        both = [*headers, ("content-length", length), ("transfer-encoding", "chunked")]
        assert _raw(site, "POST", both, b"{}")[0] == 400


def _raw(
    site: Site, method: str, headers: list[tuple[str, str]], body: bytes = b"", pieces: int = 1
) -> tuple[int, dict[str, str]]:
    """Send a request with exactly these headers, and return status and headers of the reply."""
    sent: list[Any] = []
    parts = [body[part::pieces] for part in range(pieces)]

    async def receive() -> Any:
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": method, "path": "/change", "raw_path": b"/change", "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "client": ("192.0.2.7", 1), "server": ("localhost", 80), "scheme": "http", "root_path": "",
        "http_version": "1.1", "app": site.app, "extensions": {},
    }  # fmt: skip
    asyncio.run(site.app(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found


SAME = "http://localhost"


class TestChangingRequests:
    @each(
        ("origin", "fetch_site", "passes"),
        [
            (SAME, "same-origin", True),
            (None, "same-origin", True),
            (SAME, None, True),
            (SAME, "none", True),
            (None, None, False),
            (None, "none", False),
            (SAME, "cross-site", False),
            (SAME, "same-site", False),
            ("http://evil.example", "same-origin", False),
            ("http://evil.example", None, False),
            ("http://evil.example", "cross-site", False),
            ("https://localhost", None, False),
            ("http://localhost:81", None, False),
            ("http://localhost.evil.example", None, False),
            ("null", None, False),
            ("null", "same-origin", False),
            ("null", "cross-site", False),
            ("", "other", False),
        ],
    )
    def test_with_a_cookie_or_nothing_they_come_from_a_page_of_this_server(
        self, site: Site, origin: str | None, fetch_site: str | None, passes: bool
    ) -> None:
        headers = {} if origin is None else {"origin": origin}
        if fetch_site is not None:
            headers["sec-fetch-site"] = fetch_site
        for own in ({}, cookie_of(site)):
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                reply = bare(site).request(method, "/change", headers={**headers, **own})
                assert reply.status_code == (200 if passes else 403)
        assert bool(site.seen) == passes
        site.seen.clear()

    def test_a_program_with_a_token_needs_no_origin(self, site: Site) -> None:
        token = {"authorization": f"Bearer {token_of(site, 'ann')}"}
        assert bare(site).post("/change", headers=token).status_code == 200
        assert bare(site).post("/change", headers={**token, "origin": SAME}).status_code == 200
        for more in (
            {"origin": "null"},
            {"origin": "http://evil.example"},
            {"sec-fetch-site": "cross-site"},
        ):
            assert bare(site).post("/change", headers={**token, **more}).status_code == 403

    def test_a_token_with_a_cookie_is_refused(self, site: Site) -> None:
        token = {"authorization": f"Bearer {token_of(site, 'ann')}"}
        for method in ("GET", "POST"):
            reply = bare(site).request(method, "/who", headers={**token, **cookie_of(site), "origin": SAME})
            assert reply.status_code == 400
            assert reply.json()["error"]["code"] == "two-credentials"

    def test_behind_tls_the_origin_is_https(self, tls_site: Site) -> None:
        for origin, status in (("https://localhost", 200), ("http://localhost", 403)):
            assert bare(tls_site).post("/change", headers={"origin": origin}).status_code == status

    def test_a_refusal_quotes_nothing_and_ends_the_connection(self, site: Site) -> None:
        reply = bare(site).post("/change?canary", headers={"origin": "http://canary"}, content=b"canary")
        assert "canary" not in reply.text
        assert reply.headers["connection"] == "close"
        assert "set-cookie" not in reply.headers
        assert reply.headers["cache-control"] == "no-store"


class TestPerson:
    def test_it_is_found_by_cookie_or_token(self, site: Site) -> None:
        assert bare(site).get("/who", headers=cookie_of(site)).json() == {"name": "ann"}
        token = token_of(site, "bob")
        for scheme in ("Bearer", "bearer"):
            headers = {"authorization": f"{scheme} {token}"}
            assert bare(site).get("/who", headers=headers).json() == {"name": "bob"}

    def test_all_that_is_not_valid_gets_the_same_reply(self, site: Site) -> None:
        token, cookie = token_of(site, "ann"), cookie_of(site)
        site.people.accounts.disable("ann")
        replies = [
            bare(site).get("/who", headers=headers)
            for headers in (
                {},
                cookie,
                {"cookie": f"{site.cookie}=none"},
                {"cookie": "other=1"},
                {"authorization": f"Bearer {token}"},
                {"authorization": "Bearer none"},
                {"authorization": f"Basic {token}"},
                {"authorization": "Bearer"},
            )
        ]
        assert {(reply.status_code, reply.content) for reply in replies} == {(401, replies[0].content)}

    def test_a_cookie_without_its_prefix_does_not_count_behind_tls(self, tls_site: Site) -> None:
        tls_site.person("ann")
        secret = tls_site.people.sessions.begin("ann")
        for name, status in (("__Host-lapwing", 200), ("lapwing", 401)):
            headers = {"cookie": f"{name}={secret}"}
            assert bare(tls_site).get("/who", headers=headers).status_code == status

    def test_a_state_that_cannot_be_read_is_no_sign_in(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise Unavailable("canary")

        headers = cookie_of(site)
        monkeypatch.setattr(ServerState, "rows", fail)
        reply = bare(site).get("/who", headers=headers)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "5")
        assert "canary" not in reply.text

    def test_last_seen_is_noted(self, site: Site) -> None:
        headers = cookie_of(site)
        with site.state.transaction() as run:
            run("UPDATE sessions SET seen = seen - 100")
        [(before,)] = site.state.rows("SELECT seen FROM sessions")
        assert bare(site).get("/who", headers=headers).status_code == 200
        [(after,)] = site.state.rows("SELECT seen FROM sessions")
        assert after >= before + 100


class TestBodies:
    def test_one_that_is_too_long_is_not_read(self, site: Site) -> None:
        most = site.settings.body_bytes
        headers = {**cookie_of(site), "origin": SAME, **JSON}
        assert bare(site).post("/change", headers=headers, content=b"x" * most).status_code == 200
        assert bare(site).post("/change", headers=headers, content=b"x" * (most + 1)).status_code == 413
        assert [len(body) for body in site.seen] == [most]

    def test_without_a_person_it_is_short(self, site: Site) -> None:
        for size, status in ((4096, 200), (4097, 413)):
            reply = bare(site).post("/change", headers={"origin": SAME, **JSON}, content=b"x" * size)
            assert reply.status_code == status
            if status == 413:
                assert reply.headers["connection"] == "close"

    @each("pieces", [1, 2, 7])
    def test_without_a_length_it_is_counted(self, site: Site, pieces: int) -> None:
        headers = [("host", "localhost"), ("origin", SAME), ("content-type", "application/json")]
        headers += [("transfer-encoding", "chunked")]
        assert _raw(site, "POST", headers, b"x" * 4096, pieces)[0] == 200
        assert site.seen.pop() == b"x" * 4096
        assert _raw(site, "POST", headers, b"x" * 4097, pieces)[0] == 413

    @each("length", ["-1", "x", "+4", "1e3", "9" * 5000, "4, 4"])
    def test_a_length_is_a_number(self, site: Site, length: str) -> None:
        headers = [("host", "localhost"), ("origin", SAME), ("content-type", "application/json")]
        assert _raw(site, "POST", [*headers, ("content-length", length)], b"abcd")[0] == 413

    @each(
        ("kind", "status"),
        [
            ("application/json", 200),
            ("Application/JSON; charset=utf-8", 200),
            ("application/x-www-form-urlencoded", 200),
            ("text/plain", 415),
            ("multipart/form-data; boundary=a", 415),
            ("application/json-patch+json", 415),
            ("", 415),
        ],
    )
    def test_it_is_json_or_a_form(self, site: Site, kind: str, status: int) -> None:
        headers = {"origin": SAME, "content-type": kind}
        assert bare(site).post("/change", headers=headers, content=b"{}").status_code == status

    def test_one_that_comes_slowly_is_refused(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(guards, "BODY_SECONDS", 0.05)
        sent: list[Any] = []

        async def receive() -> Any:
            await asyncio.sleep(0.02)
            return {"type": "http.request", "body": b"x", "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"origin", SAME.encode()), (b"content-length", b"1000")]
        headers += [(b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": headers,
            "client": ("1.1.1.1", 1),
        }
        asyncio.run(Guards(site.app, settings=site.settings, people=site.people)(scope, receive, send))
        assert sent[0]["status"] == 408

    def test_whoever_hangs_up_gets_no_reply(self, site: Site) -> None:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"origin", SAME.encode()), (b"content-length", b"10")]
        headers += [(b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": headers,
            "client": ("1.1.1.1", 1),
        }
        asyncio.run(Guards(site.app, settings=site.settings, people=site.people)(scope, receive, send))
        assert sent == []


class TestLimits:
    def limited(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
        cheapen(monkeypatch)
        return opened_site(settings_in(folder, requests_per_minute=120, unknown_per_minute=60, **more))

    def test_a_person_is_limited_whatever_the_credential(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.limited(tmp_path, monkeypatch) as site:
            cookie, token = cookie_of(site), {"authorization": f"Bearer {token_of(site, 'ann')}"}
            found = [
                bare(site).get("/who", headers=headers) for _ in range(15) for headers in (cookie, token)
            ]
            statuses = [reply.status_code for reply in found]
            assert statuses[:20] == [200] * 20
            assert 429 in statuses
            late = next(reply for reply in found if reply.status_code == 429)
            assert int(late.headers["retry-after"]) >= 1
            assert late.json()["error"]["code"] == "too-many"
            assert bare(site).get("/who", headers=cookie_of(site, "bob")).status_code == 200

    def test_an_address_is_limited_without_a_person_and_then_forgotten(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.limited(tmp_path, monkeypatch) as site:
            statuses = [bare(site).get("/who").status_code for _ in range(15)]
            assert statuses[:10] == [401] * 10
            assert 429 in statuses
            assert bare(site).get("/who", headers=cookie_of(site)).status_code == 200

    def test_behind_a_proxy_the_last_address_of_its_header_counts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.limited(
            tmp_path, monkeypatch, behind_tls_proxy=True, client_address_header="X-Forwarded-For"
        ) as site:

            def ask(told: str) -> int:
                return bare(site).get("/who", headers={"x-forwarded-for": told}).status_code

            assert [ask(f"10.0.0.{number}, 192.0.2.1") for number in range(15)].count(429) >= 4
            assert ask("192.0.2.1, 192.0.2.2") == 401
            assert {ask("no address") for _ in range(30)} == {401}

    def test_behind_a_proxy_without_a_header_only_people_are_limited(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.limited(tmp_path, monkeypatch, behind_tls_proxy=True) as site:
            headers = {"x-forwarded-for": "192.0.2.1"}
            assert {bare(site).get("/who", headers=headers).status_code for _ in range(30)} == {401}


def test_a_token_that_another_process_revokes_ends_at_once(site: Site) -> None:
    token = token_of(site, "ann")
    headers = {"authorization": f"Bearer {token}"}
    assert bare(site).get("/who", headers=headers).status_code == 200
    elsewhere = ServerState.open(site.settings.state_folder)
    [made] = People.of(elsewhere).tokens.all_of("ann")
    People.of(elsewhere).tokens.revoke(made.id)
    assert bare(site).get("/who", headers=headers).status_code == 401
    elsewhere.close()


def test_a_password_in_an_address_signs_nobody_in(site: Site) -> None:
    site.person("ann")
    assert bare(site).get(f"/who?name=ann&password={GOOD}").status_code == 401
    assert bare(site).get("/session", params={"name": "ann", "password": GOOD}).status_code == 405
