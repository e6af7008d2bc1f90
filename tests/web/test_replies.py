"""Replies set only the cookies that their server declares: a survey declares none."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from lapwing.web.replies import SecureReplies, cookie_header, cookie_name
from support.cases import each

SET = ("lapwing", "lapwing-other", "tracker", "__Host-lapwing")


async def _sets_cookies(scope: Scope, receive: Receive, send: Send) -> None:
    reply = PlainTextResponse("done")
    for name in SET:
        reply.headers.append("Set-Cookie", f"{name}=1; Path=/")
    await reply(scope, receive, send)


@each(
    ("declared", "kept"),
    [((), []), (("lapwing",), ["lapwing"]), (("__Host-lapwing", "tracker"), ["tracker", "__Host-lapwing"])],
)
def test_a_reply_sets_the_declared_cookies_alone(declared: tuple[str, ...], kept: list[str]) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    app = SecureReplies(_sets_cookies, has_tls=False, cookies=declared)
    asyncio.run(app({"type": "http", "path": "/", "method": "GET"}, receive, send))
    headers = sent[0]["headers"]
    found = [value.decode().partition("=")[0] for name, value in headers if name == b"set-cookie"]
    assert found == kept
    assert (b"cache-control", b"no-store") in headers


def test_a_survey_declares_none() -> None:
    """Its own replies have none: tests/survey/web_app/test_web_app.py."""
    assert SecureReplies(_sets_cookies, has_tls=True)._cookies == ()


def test_a_cookie_is_for_its_host_and_for_no_script() -> None:
    assert cookie_name("a", has_tls=True) == "__Host-a"
    assert cookie_header("a", "1", has_tls=True) == "__Host-a=1; Path=/; HttpOnly; SameSite=Strict; Secure"
    assert cookie_header("a", "", has_tls=False, seconds=0, same_site="Lax") == (
        "a=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"
    )
