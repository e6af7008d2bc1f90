"""Signing in and out over HTTP: cookies, new sessions, links, limits, what a token may not do."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from lapwing.errors import TooManyRequests
from lapwing.server.people.links import LinkKind
from support.cases import each
from support.server_people import GOOD, Site, cheapen, opened_site, settings_in


def secret_of(site: Site, browser: httpx.Client) -> str:
    found = browser.cookies.get(site.cookie)
    assert found
    return found


class TestSession:
    def test_a_password_signs_in_until_signing_out(self, site: Site) -> None:
        site.person("ann", visits="analyst")
        browser = site.signed_in("ann")
        me = browser.get("/v1/me").json()
        assert me == {
            "name": "ann", "shown_name": "ann", "roles": {"visits": ["analyst"]},
            "credential": "session", "data": None,
        }  # fmt: skip
        secret = secret_of(site, browser)
        assert browser.delete("/session").status_code == 204
        assert site.cookie not in browser.cookies
        assert browser.get("/v1/me").status_code == 401
        browser.cookies.set(site.cookie, secret)  # replayed
        assert browser.get("/v1/me").status_code == 401

    def test_the_cookie_is_for_this_host_and_no_script(self, tls_site: Site) -> None:
        tls_site.person("ann")
        reply = tls_site.browser().post("/session", json={"name": "ann", "password": GOOD})
        session, known = reply.headers.get_list("set-cookie")
        name, *rest = session.split("; ")
        assert name.startswith("__Host-lapwing=")
        assert len(name) == len("__Host-lapwing=") + 43
        assert sorted(rest) == ["HttpOnly", "Path=/", "SameSite=Strict", "Secure"]
        assert known.startswith("__Host-lapwing-known=")
        assert {"HttpOnly", "Path=/", "SameSite=Strict", "Secure"} <= set(known.split("; "))
        assert "domain" not in (session + known).lower()

    def test_on_this_machine_without_tls_it_has_no_prefix(self, site: Site) -> None:
        site.person("ann")
        reply = site.browser().post("/session", json={"name": "ann", "password": GOOD})
        [session, _] = reply.headers.get_list("set-cookie")
        assert session.startswith("lapwing=")
        assert sorted(session.split("; ")[1:]) == ["HttpOnly", "Path=/", "SameSite=Strict"]

    def test_each_sign_in_makes_a_new_session_and_ends_the_old_one(self, site: Site) -> None:
        """A secret that somebody planted before does not become a session."""
        site.person("ann")
        browser = site.browser()
        browser.cookies.set(site.cookie, "planted")
        secrets = []
        for _ in range(3):
            reply = browser.post("/session", json={"name": "ann", "password": GOOD})
            assert reply.status_code == 204
            secrets.append(reply.cookies[site.cookie])
            browser.cookies.clear()
            browser.cookies.set(site.cookie, secrets[-1])
        assert "planted" not in secrets
        assert [site.people.sessions.find(secret) is not None for secret in secrets] == [
            False, False, True,
        ]  # fmt: skip

    def test_sign_out_everywhere(self, site: Site) -> None:
        site.person("ann")
        site.person("bob")
        one, two, other = site.signed_in("ann"), site.signed_in("ann"), site.signed_in("bob")
        assert one.delete("/session?everywhere=true").status_code == 204
        assert [client.get("/v1/me").status_code for client in (one, two, other)] == [401, 401, 200]

    def test_an_idle_session_is_over(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        site.person("ann")
        browser = site.signed_in("ann")
        later = time.time() + 30 * 60
        monkeypatch.setattr("lapwing.server.people.sessions.time.time", lambda: later)
        assert browser.get("/v1/me").status_code == 401

    def test_wrong_names_and_passwords_get_the_same_reply(self, site: Site) -> None:
        site.person("ann")
        site.people.accounts.make("open-id-only")
        site.person("gone")
        site.people.accounts.disable("gone")
        replies = [
            site.browser().post("/session", json={"name": name, "password": password})
            for name, password in (
                ("ann", "wrong password"), ("ann", ""), ("nobody", GOOD), ("open-id-only", GOOD),
                ("gone", GOOD), ("", ""), ("ANN", GOOD),
            )
        ]  # fmt: skip
        assert {(reply.status_code, reply.content, str(reply.headers)) for reply in replies} == {
            (401, replies[0].content, str(replies[0].headers))
        }
        assert all("set-cookie" not in reply.headers for reply in replies)

    @each(
        "body",
        [
            {},
            {"name": "ann"},
            {"name": "ann", "password": 1},
            {"name": "ann", "password": GOOD, "x": 1},
            [],
        ],
    )
    def test_another_body_is_refused(self, site: Site, body: object) -> None:
        assert site.browser().post("/session", json=body).status_code == 422

    def test_a_cross_site_form_signs_nobody_in(self, site: Site) -> None:
        """A stranger would sign the browser in as the stranger, to read what is asked there."""
        site.person("ann")
        for origin in ("http://evil.example", "null"):
            browser = site.browser(origin=origin, **{"sec-fetch-site": "cross-site"})
            assert browser.post("/session", json={"name": "ann", "password": GOOD}).status_code == 403


class TestFailures:
    def test_too_many_are_refused_and_the_owner_still_comes_in(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cheapen(monkeypatch)
        more = {"behind_tls_proxy": True, "client_address_header": "X-Client"}
        with opened_site(settings_in(tmp_path, **more)) as site:
            site.person("ann")
            own = site.browser(**{"x-client": "192.0.2.1"})
            good = {"name": "ann", "password": GOOD}
            assert own.post("/session", json=good).status_code == 204
            bad = {"name": "ann", "password": "wrong password"}
            statuses = []
            for number in range(30):
                stranger = site.browser(**{"x-client": f"10.0.0.{number}"})
                statuses.append(stranger.post("/session", json=bad).status_code)
            assert statuses == [401] * 10 + [429] * 20
            late = site.browser(**{"x-client": "10.0.1.1"}).post("/session", json=bad)
            assert int(late.headers["retry-after"]) >= 1
            assert own.delete("/session").status_code == 204
            assert own.post("/session", json=good).status_code == 204
            # Another name from another address has nothing to do with it.
            site.person("bob")
            other = site.browser(**{"x-client": "192.0.2.2"})
            assert other.post("/session", json={"name": "bob", "password": GOOD}).status_code == 204

    def test_a_browser_of_another_account_is_a_stranger(self, site: Site) -> None:
        site.person("ann")
        site.person("bob")
        browser = site.signed_in("bob")
        bad = {"name": "ann", "password": "wrong password"}
        statuses = [browser.post("/session", json=bad).status_code for _ in range(12)]
        assert statuses == [401] * 10 + [429] * 2


class TestStartLink:
    def test_it_signs_in_once(self, site: Site) -> None:
        site.person("you", everywhere="analyst steward officer")
        key = site.people.links.make_start("you", site.settings)
        browser = site.browser(**{"sec-fetch-site": "none"})
        reply = browser.get("/start", params={"key": key})
        assert (reply.status_code, reply.headers["location"]) == (303, "/welcome")
        assert browser.get("/v1/me").json()["name"] == "you"
        again = site.browser(**{"sec-fetch-site": "none"}).get("/start", params={"key": key})
        assert again.status_code == 401
        assert "set-cookie" not in again.headers

    def test_a_page_of_another_site_cannot_use_it(self, site: Site) -> None:
        site.person("you")
        key = site.people.links.make_start("you", site.settings)
        for came in ("cross-site", "same-site", "same-origin"):
            reply = site.browser(**{"sec-fetch-site": came}).get("/start", params={"key": key})
            assert reply.status_code == 401
        assert site.people.links.name_of(key, LinkKind.START) == "you"

    def test_what_a_browser_fetches_early_does_not_use_it_up(self, site: Site) -> None:
        site.person("you")
        key = site.people.links.make_start("you", site.settings)
        browser = site.browser(**{"sec-fetch-site": "none"})
        early = browser.get("/start", params={"key": key}, headers={"sec-purpose": "prefetch"})
        assert early.status_code == 401
        assert browser.head("/start", params={"key": key}).status_code == 405
        assert browser.get("/start", params={"key": key}).status_code == 303

    def test_a_server_for_others_has_none(self, tls_site: Site, tmp_path: Path) -> None:
        tls_site.person("you")
        key = tls_site.people.links.make_start("you", settings_in(tmp_path))
        site = tls_site
        object.__setattr__(site.settings, "host", "0.0.0.0")
        reply = site.browser(**{"sec-fetch-site": "none"}).get("/start", params={"key": key})
        assert reply.status_code == 401


class TestPassword:
    def test_the_owner_sets_it_with_the_old_one(self, site: Site) -> None:
        site.person("ann")
        browser, other = site.signed_in("ann"), site.signed_in("ann")
        new = "another good password"
        wrong = browser.put("/v1/me/password", json={"old": "wrong password", "new": new})
        assert (wrong.status_code, wrong.json()["error"]["name"]) == (422, "old")
        short = browser.put("/v1/me/password", json={"old": GOOD, "new": "short"})
        assert short.status_code == 422
        assert browser.put("/v1/me/password", json={"old": GOOD, "new": new}).status_code == 204
        assert browser.get("/v1/me").status_code == 200
        assert other.get("/v1/me").status_code == 401
        assert site.people.accounts.with_password("ann", new) == "ann"

    def test_a_link_sets_it_once(self, site: Site) -> None:
        site.people.accounts.make("ann")
        link = site.people.links.make_password("ann")
        browser = site.browser()
        assert browser.post("/v1/password", json={"link": link, "password": "short"}).status_code == 422
        assert browser.post("/v1/password", json={"link": link, "password": GOOD}).status_code == 204
        assert browser.get("/v1/me").json()["name"] == "ann"
        for used in (link, "none"):
            body = {"link": used, "password": "a third password"}
            assert site.browser().post("/v1/password", json=body).status_code == 401
        assert site.people.accounts.with_password("ann", GOOD) == "ann"


class TestToken:
    def make(self, browser: httpx.Client, **more: object) -> dict[str, str]:
        reply = browser.post("/v1/tokens", json={"name": "nightly", "days": 30, **more})
        assert reply.status_code == 201, reply.text
        return {"id": reply.json()["token"]["id"], "secret": reply.json()["secret"]}

    def test_it_is_made_shown_once_used_and_revoked(self, site: Site) -> None:
        site.person("ann", visits="analyst", town="analyst")
        browser = site.signed_in("ann")
        made = self.make(browser, data=["visits"], most_epsilon="0.5")
        [listed] = browser.get("/v1/tokens").json()["tokens"]
        assert (listed["most_epsilon"], listed["booked_epsilon"], listed["data"]) == (
            "0.5",
            "0",
            ["visits"],
        )
        assert made["secret"] not in browser.get("/v1/tokens").text
        program = site.program(made["secret"])
        me = program.get("/v1/me").json()
        assert (me["name"], me["credential"], me["data"]) == ("ann", "token", ["visits"])
        assert me["token"]["most_epsilon"] == "0.5"
        assert browser.delete(f"/v1/tokens/{made['id']}").status_code == 204
        assert program.get("/v1/me").status_code == 401

    def test_it_manages_nothing(self, site: Site) -> None:
        site.person("ann", everywhere="steward")
        site.person("bob", visits="analyst")
        program = site.program(self.make(site.signed_in("ann"))["secret"])
        made = self.make(site.signed_in("ann"))
        for method, path, body in (
            ("POST", "/v1/tokens", {"name": "more", "days": 1}),
            ("DELETE", f"/v1/tokens/{made['id']}", None),
            ("POST", "/v1/people", {"name": "new", "data": "visits", "roles": []}),
            ("PUT", "/v1/people/bob/roles", {"data": "visits", "roles": ["steward"]}),
            ("POST", "/v1/people/bob/disable", None),
            ("POST", "/v1/people/bob/password-link", None),
            ("POST", "/v1/people/bob/identities", {"issuer": "https://a.example", "subject": "1"}),
            ("DELETE", "/v1/people/bob/identities", {"issuer": "https://a.example", "subject": "1"}),
            ("PUT", "/v1/me/password", {"old": GOOD, "new": "another password"}),
            ("DELETE", "/session", None),
        ):
            assert program.request(method, path, json=body).status_code == 403, path
        assert site.people.accounts.find("new") is None
        assert len(program.get("/v1/tokens").json()["tokens"]) == 1  # itself alone

    @each(
        "body",
        [
            {"name": "a"},
            {"name": "a", "days": 0},
            {"name": "a", "days": 367},
            {"name": "a", "days": "1"},
            {"name": "", "days": 1},
            {"name": "a", "days": 1, "most_epsilon": 0.5},
            {"name": "a", "days": 1, "most_epsilon": "0"},
            {"name": "a", "days": 1, "most_epsilon": "-1"},
            {"name": "a", "days": 1, "most_epsilon": "NaN"},
            {"name": "a", "days": 1, "most_epsilon": "1e999999"},
            {"name": "a", "days": 1, "data": []},
            {"name": "a", "days": 1, "data": "visits"},
            {"name": "a", "days": 1, "id": "x"},
        ],
    )
    def test_bad_wishes_are_refused(self, site: Site, body: object) -> None:
        if site.people.accounts.find("ann") is None:
            site.person("ann", visits="analyst")
        browser = site.browser()
        browser.cookies.set(site.cookie, site.people.sessions.begin("ann"))
        assert browser.post("/v1/tokens", json=body).status_code == 422
        assert site.people.tokens.all_of("ann") == []

    def test_of_data_that_the_person_does_not_see_is_not_found(self, site: Site) -> None:
        site.person("ann", visits="analyst")
        body = {"name": "a", "days": 1, "data": ["town"]}
        assert site.signed_in("ann").post("/v1/tokens", json=body).status_code == 404

    def test_another_persons_is_not_found(self, site: Site) -> None:
        site.person("ann", visits="analyst")
        site.person("bob", visits="analyst")
        made = self.make(site.signed_in("ann"))
        replies = [site.signed_in("bob").delete(f"/v1/tokens/{one}") for one in (made["id"], "never-was")]
        assert {(reply.status_code, reply.content) for reply in replies} == {(404, replies[0].content)}
        assert site.program(made["secret"]).get("/v1/me").status_code == 200


def test_only_changing_requests_change_anything(site: Site) -> None:
    site.person("ann", visits="steward")
    browser = site.signed_in("ann")
    before = (
        site.state.rows("SELECT count(*) FROM accounts"),
        site.state.rows("SELECT count(*) FROM tokens"),
    )
    for path in ("/session", "/v1/people/ann/disable", "/v1/password", "/v1/me/password"):
        assert browser.get(path).status_code in (404, 405)
        assert browser.head(path).status_code in (404, 405)
    after = site.state.rows("SELECT count(*) FROM accounts"), site.state.rows("SELECT count(*) FROM tokens")
    assert before == after
    assert browser.get("/v1/me").status_code == 200


def test_a_disabled_account_is_out_at_once(site: Site) -> None:
    site.person("ann", visits="analyst")
    browser = site.signed_in("ann")
    expires = datetime.now(UTC) + timedelta(days=1)
    found = site.people.sessions.find(secret_of(site, browser))
    assert found is not None
    _, secret = site.people.tokens.make(
        found.person, name="a", data=None, most_epsilon=None, expires=expires
    )
    site.people.accounts.disable("ann")
    assert browser.get("/v1/me").status_code == 401
    assert site.program(secret).get("/v1/me").status_code == 401
    assert site.browser().post("/session", json={"name": "ann", "password": GOOD}).status_code == 401


def test_a_password_that_nobody_looked_at_is_no_failure(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.person("ann", visits="analyst")

    def busy(*_: object) -> None:
        raise TooManyRequests(1)

    body = {"name": "ann", "password": GOOD}
    with monkeypatch.context() as patch:
        patch.setattr(type(site.people.accounts), "with_password", busy)
        for _ in range(30):
            assert site.browser().post("/session", json=body).status_code == 429
    assert site.browser().post("/session", json=body).status_code == 204
