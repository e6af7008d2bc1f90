"""Sign-in with OpenID Connect over HTTP: cookies, one use, and what cannot be planted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from lapwing.server.settings import OpenIdSettings
from support.open_id_provider import CLIENT, SECRET, LoopbackProvider, running_provider
from support.server_people import Site, cheapen, opened_site, settings_in


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with running_provider() as running:
        yield running


@pytest.fixture
def open_id_site(
    provider: LoopbackProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    cheapen(monkeypatch)
    own = OpenIdSettings(provider.address, CLIENT, SECRET, "Sign in")
    with opened_site(settings_in(tmp_path, has_tls=True, open_id=own)) as site:
        site.person("ann", visits="analyst")
        site.people.accounts.bind("ann", provider.address, provider.subject)
        yield site


def test_a_browser_signs_in_at_the_provider(open_id_site: Site, provider: LoopbackProvider) -> None:
    browser = open_id_site.browser()
    begun = browser.get("/oidc/sign-in")
    assert begun.status_code == 303
    [cookie] = begun.headers.get_list("set-cookie")
    assert cookie.startswith("__Host-lapwing-sign-in=")
    assert {"HttpOnly", "SameSite=Lax", "Secure", "Max-Age=600"} <= set(cookie.split("; "))
    back = provider.authorized(begun.headers["location"])
    assert back.startswith("https://localhost/oidc/back?")
    done = browser.get(back, headers={"sec-fetch-site": "cross-site"})
    assert done.status_code == 200
    session, gone = done.headers.get_list("set-cookie")
    assert session.startswith("__Host-lapwing=")
    assert {"SameSite=Strict", "HttpOnly", "Secure"} <= set(session.split("; "))
    assert "Max-Age=0" in gone
    assert 'content="0;url=/"' in done.text
    assert browser.get("/v1/me").json()["roles"] == {"visits": ["analyst"]}


@pytest.mark.parametrize(
    ("wanted", "page"),
    [
        ("/data/visits?tab=schema", "/data/visits?tab=schema"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        ('/"><script>', "/"),
        ("/a b", "/"),
        ("/" + "x" * 500, "/"),
        ("", "/"),
    ],
)
def test_the_page_that_follows_is_of_this_server(
    open_id_site: Site, provider: LoopbackProvider, wanted: str, page: str
) -> None:
    browser = open_id_site.browser()
    begun = browser.get("/oidc/sign-in", params={"next": wanted})
    done = browser.get(provider.authorized(begun.headers["location"]))
    assert f'content="0;url={page}"' in done.text
    assert "evil" not in done.text


def test_what_came_back_signs_in_once_and_in_this_browser_alone(
    open_id_site: Site, provider: LoopbackProvider
) -> None:
    browser, other = open_id_site.browser(), open_id_site.browser()
    begun = browser.get("/oidc/sign-in")
    secret = browser.cookies["__Host-lapwing-sign-in"]
    back = provider.authorized(begun.headers["location"])
    assert other.get(back).status_code == 401
    other.get("/oidc/sign-in")
    assert other.get(back).status_code == 401
    assert browser.get(back).status_code == 200
    browser.cookies.set("__Host-lapwing-sign-in", secret)
    again = browser.get(back)
    assert again.status_code == 401
    assert "set-cookie" not in again.headers


def test_parameters_that_come_twice_are_refused(open_id_site: Site, provider: LoopbackProvider) -> None:
    browser = open_id_site.browser()
    back = provider.authorized(browser.get("/oidc/sign-in").headers["location"])
    state = dict(parse_qsl(urlsplit(back).query))["state"]
    assert browser.get(f"{back}&state={state}").status_code == 401
    assert browser.get(back).status_code == 200


def test_an_unknown_host_gets_no_sign_in(open_id_site: Site) -> None:
    """The provider would send the code there."""
    reply = open_id_site.browser().get("/oidc/sign-in", headers={"host": "evil.example"})
    assert reply.status_code == 421


def test_an_identity_that_is_not_bound_is_shown_to_its_owner(
    open_id_site: Site, provider: LoopbackProvider
) -> None:
    provider.subject = "subject-9"
    browser = open_id_site.browser()
    reply = browser.get(provider.authorized(browser.get("/oidc/sign-in").headers["location"]))
    assert reply.status_code == 403
    assert reply.json()["error"]["subject"] == "subject-9"
    assert browser.get("/v1/me").status_code == 401


def test_a_server_without_a_provider_has_no_such_pages(site: Site) -> None:
    for path in ("/oidc/sign-in", "/oidc/back"):
        assert site.browser().get(path).status_code == 404
