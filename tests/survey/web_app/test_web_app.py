"""The survey over real HTTP: what it answers, what it refuses, and what it never says."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lapwing.survey.credentials import blind_token, new_invitation, prepare_token
from lapwing.survey.web_app import PAGES
from lapwing.web.replies import TYPES
from support.collecting import DIGEST, SIZE, Shelf, credential, invited, key
from support.survey_server import PUBLIC, Process

THREADS = 16
GOOD, OTHER = b"\x01\x00\x01", b"\x02\x01\x01"


def together(work: Callable[[int], Any]) -> list[Any]:
    begin = threading.Barrier(THREADS)

    def one(k: int) -> Any:
        begin.wait(60)
        return work(k)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


class TestThePage:
    def test_every_file_is_served_with_its_type(self, server: Process) -> None:
        for path in PAGES.iterdir():
            if path.suffix == ".html":
                address = "/" if path.stem == "index" else f"/{path.stem.replace('_', '-')}"
            else:
                address = f"/{path.name}"
            reply = server.ask("GET", address)
            assert (reply.status, reply.content) == (200, path.read_bytes()), address
            assert reply.headers["content-type"] == TYPES[path.suffix]
            assert reply.headers["cache-control"] == "no-cache"

    def test_the_survey_its_digest_and_its_key_are_told(self, server: Process) -> None:
        reply = server.ask("GET", "/survey.json")
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.json == {
            "survey": PUBLIC,
            "digest": DIGEST,
            "key": key().public.to_json(),
            "version": 1,
        }

    @pytest.mark.parametrize(
        "path",
        [
            "/docs",
            "/redoc",
            "/openapi.json",
            "/pages",
            "/../app.py",
            "/%2e%2e/app.py",
            "/index.html/",
            "/x",
        ],
    )
    def test_nothing_else_is_there(self, server: Process, path: str) -> None:
        reply = server.ask("GET", path)
        assert (reply.status, reply.json) == (404, {"error": "there is nothing here"})


class TestHeaders:
    # Case H5.
    def test_are_strict_on_every_reply(self, server: Process) -> None:
        replies = [
            server.ask("GET", "/"),
            server.ask("HEAD", "/"),
            server.ask("GET", "/survey.json"),
            server.ask("GET", "/nothing"),
            server.ask("GET", "/report"),
            server.ask("OPTIONS", "/report", headers={"Origin": "https://elsewhere.example"}),
            server.ask("POST", "/report", b"not json"),
            server.ask("POST", "/report", b"x" * 100_000),
            server.report(*credential(), GOOD),
        ]
        assert [r.status for r in replies] == [200, 200, 200, 404, 405, 405, 422, 413, 200]
        for reply in replies:
            policy = reply.headers["content-security-policy"].split("; ")
            assert policy == [
                "default-src 'none'",
                "script-src 'self'",
                "style-src 'self'",
                "connect-src 'self'",
                "img-src 'self'",
                "base-uri 'none'",
                "form-action 'self'",
                "frame-ancestors 'none'",
            ]
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["referrer-policy"] == "no-referrer"
            assert reply.headers["x-frame-options"] == "DENY"
            assert "geolocation=()" in reply.headers["permissions-policy"]
            assert "bluetooth" not in reply.headers["permissions-policy"]  # browsers complain
            assert reply.headers["cache-control"] in ("no-store", "no-cache")
            # Nothing that identifies, dates or shares: no cookie, no software, no clock, no other origin.
            for absent in ("set-cookie", "server", "date", "etag", "last-modified"):
                assert absent not in reply.headers
            assert not [name for name in reply.headers if name.startswith("access-control")]

    def test_strict_transport_is_asked_for_only_over_tls(self, server: Process) -> None:
        assert "strict-transport-security" not in server.ask("GET", "/").headers


class TestSigning:
    def test_a_respondent_gets_a_credential_and_reports(self, server: Process, shelf: Shelf) -> None:
        invitation, blinding = invited(shelf.open())
        reply = server.sign(invitation, blinding.blinded)
        assert reply.status == 200
        signature = blinding.finish(bytes.fromhex(reply.json["signature"]))
        assert server.sign(invitation, blinding.blinded).json == reply.json
        sent = server.report(blinding.prepared, signature, GOOD)
        assert (sent.status, sent.json) == (200, {"accepted": True})

    def test_an_invitation_signs_one_value(self, server: Process, shelf: Shelf) -> None:
        invitation, first = invited(shelf.open())
        server.sign(invitation, first.blinded)
        reply = server.sign(invitation, blind_token(key().public, prepare_token()).blinded)
        assert (reply.status, reply.json) == (409, {"error": "this was used before, for something else"})

    def test_an_unknown_invitation_signs_nothing(self, server: Process) -> None:
        blinded = blind_token(key().public, prepare_token()).blinded
        reply = server.sign(new_invitation(), blinded)
        assert (reply.status, reply.json) == (403, {"error": "this invitation is not known"})
        for text in ("", "short", "#" * 24, "a" * 25):
            assert server.sign(text, blinded).status == 422

    def test_what_is_no_blinded_value_is_refused(self, server: Process, shelf: Shelf) -> None:
        invitation, good = invited(shelf.open())
        for bad in (b"", bytes(256), b"\xff" * 256, good.blinded[:-1], good.blinded + b"\x00"):
            assert server.sign(invitation, bad).status == 422
        assert server.sign(invitation, good.blinded).status == 200

    def test_the_same_invitation_from_many_at_once_signs_one_value(
        self, server: Process, shelf: Shelf
    ) -> None:
        invitation, _ = invited(shelf.open())
        blindings = [blind_token(key().public, prepare_token()) for _ in range(THREADS)]
        replies = together(lambda k: server.sign(invitation, blindings[k].blinded))
        assert Counter(reply.status for reply in replies) == {200: 1, 409: THREADS - 1}
        [k] = [k for k, reply in enumerate(replies) if reply.status == 200]
        assert blindings[k].finish(bytes.fromhex(replies[k].json["signature"]))

    def test_the_same_value_from_many_at_once_gets_one_signature(
        self, server: Process, shelf: Shelf
    ) -> None:
        invitation, blinding = invited(shelf.open())
        replies = together(lambda _: server.sign(invitation, blinding.blinded))
        assert {(reply.status, reply.content) for reply in replies} == {(200, replies[0].content)}


class TestReports:
    def test_P1_the_same_again_is_accepted_and_counted_once(self, server: Process, shelf: Shelf) -> None:
        store, own = shelf.open(), credential()
        before = store.state().reports
        for _ in range(5):
            assert server.report(*own, GOOD).json == {"accepted": True}
        assert store.state().reports == before + 1

    def test_P1_another_report_with_the_token_is_refused(self, server: Process) -> None:
        own = credential()
        server.report(*own, GOOD)
        reply = server.report(*own, OTHER)
        assert (reply.status, reply.json) == (409, {"error": "this was used before, for something else"})

    def test_one_token_from_many_at_once_counts_once(self, server: Process, shelf: Shelf) -> None:
        store, own = shelf.open(), credential()
        before = store.state().reports
        replies = together(lambda k: server.report(*own, (GOOD, OTHER)[k % 2]))
        assert Counter(reply.status for reply in replies) == {200: 8, 409: 8}
        assert store.state().reports == before + 1

    @pytest.mark.parametrize(
        "crafted",
        [b"", b"\x01", bytes(SIZE - 1), bytes(SIZE + 1), b"\x02\x00\x01", b"\x02\x02\x00", b"\xff" * SIZE],
    )
    def test_P2_a_crafted_report_is_refused_and_uses_nothing_up(
        self, server: Process, crafted: bytes
    ) -> None:
        own = credential()
        reply = server.report(*own, crafted)
        assert reply.status == 422
        assert set(reply.json) == {"error"}
        assert server.report(*own, GOOD).status == 200

    def test_P2_a_token_of_ones_own_making_is_refused(self, server: Process) -> None:
        prepared, signature = credential()
        for token, signed in (
            (prepare_token(), signature),
            (prepared, bytes(256)),
            (prepared, b"\x01" * 256),
        ):
            reply = server.report(token, signed, GOOD)
            assert (reply.status, reply.json) == (
                403,
                {"error": "this credential is not one of this survey"},
            )
        assert server.report(prepared[:-1], signature, GOOD).status == 422
        assert server.report(prepared, signature[:-1], GOOD).status == 422

    def test_a_report_to_another_survey_is_refused(self, server: Process) -> None:
        prepared, signature = credential()
        body = {"token": prepared.hex(), "signature": signature.hex(), "report": GOOD.hex()}
        reply = server.ask("POST", "/report", {"digest": "0" * 64, **body})
        assert reply.status == 422
        assert "another survey" in reply.json["error"]

    def test_malformed_requests_are_refused(self, server: Process) -> None:
        prepared, signature = credential()
        good = {
            "digest": DIGEST,
            "token": prepared.hex(),
            "signature": signature.hex(),
            "report": GOOD.hex(),
        }
        bad: list[Any] = [
            b"",
            b"null",
            b"[]",
            b'"text"',
            b"{",
            b"\xff\xfe",
            b"[" * 900,
            b'{"digest": NaN}',
            {**good, "extra": "x"},
            {name: value for name, value in good.items() if name != "digest"},
            {**good, "report": 5},
            {**good, "report": None},
            {**good, "report": [GOOD.hex()]},
            {**good, "report": GOOD.hex().upper() + "AB"},
            {**good, "report": " " + GOOD.hex()[:-1]},
            {**good, "report": "0x" + GOOD.hex()[2:]},
            {**good, "token": good["token"].upper()},
            {**good, "signature": good["signature"][:-1]},
            {**good, "token": "é" * 64},
        ]
        for body in bad:
            reply = server.ask("POST", "/report", body)
            assert reply.status == 422, body
            assert list(reply.json) == ["error"]
        assert server.ask("POST", "/report", good).status == 200

    def test_only_json_of_our_own_page_is_taken(self, server: Process) -> None:
        """What a form on another site can send has another content type."""
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            reply = server.ask("POST", "/report", b"{}", headers={"Content-Type": kind})
            assert reply.status == 415

    @pytest.mark.parametrize("path", ["/report", "/sign"])
    def test_nothing_too_long_is_read(self, server: Process, path: str) -> None:
        reply = server.ask("POST", path, b'{"report": "' + b"0" * 1_000_000 + b'"}')
        assert (reply.status, reply.json) == (413, {"error": "this is too long"})
        connection = server.connect()
        pieces = (b"0" * 4096 for _ in range(100))  # of a length that nobody said before
        try:
            connection.request("POST", path, pieces, {"Content-Type": "application/json"})
            assert connection.getresponse().status == 413
        finally:
            connection.close()

    @pytest.mark.parametrize("path", ["/report", "/sign"])
    # Case H5.
    def test_only_post_changes_anything(self, server: Process, path: str) -> None:
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH"):
            assert server.ask(method, path).status == 405
        for method in ("POST", "PUT", "DELETE"):
            assert server.ask(method, "/survey.json").status == 405

    def test_H3_whoever_hung_up_finds_the_report_counted_once(self, server: Process, shelf: Shelf) -> None:
        store = shelf.open()
        before = store.state().reports
        own = credential()
        for _ in range(5):
            connection = server.connect()
            body = {
                "digest": DIGEST,
                "token": own[0].hex(),
                "signature": own[1].hex(),
                "report": GOOD.hex(),
            }
            connection.request("POST", "/report", json.dumps(body), {"Content-Type": "application/json"})
            connection.close()
        assert server.report(*own, GOOD).status == 200
        assert store.state().reports == before + 1
