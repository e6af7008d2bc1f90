"""The device against servers that are slow, endless, changing or somewhere else than they say."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.survey.credentials import BlindSigningKey
from lapwing.survey.designing import design
from lapwing.survey.offered import fingerprint, read_offered
from lapwing.survey.respondent import Respondent
from lapwing.survey.survey_client import SurveyAddress, SurveyClient
from lapwing.survey.survey_file import load
from support.hostile_server import Hostile, hostile
from support.raised import named
from support.survey_site import one_question

YES = {"shop": "yes"}
INVITATION = "A" * 24


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> BlindSigningKey:
    return BlindSigningKey.create(tmp_path_factory.mktemp("key") / "key")


@pytest.fixture
def server(tmp_path: Path, key: BlindSigningKey) -> Iterator[Hostile]:
    (tmp_path / "survey.toml").write_text(one_question())
    with hostile(design(load(tmp_path / "survey.toml")).public(), key) as found:
        yield found


# The server would go on until the test is over, and a device waits a minute. A busy machine takes seconds.
ENDLESS = 30


@pytest.fixture
def device(tmp_path: Path, server: Hostile) -> Respondent:
    found = Respondent(tmp_path / "me")
    found.answer(server.public, YES)
    return found


@pytest.mark.parametrize("how", ["hang", "drip", "drip_body"])
@pytest.mark.parametrize("path", ["/survey.json", "/sign"])
def test_a_server_that_never_ends_is_left_in_time(server: Hostile, how: str, path: str) -> None:
    asked = SurveyClient(server.address, patience=0.7)
    _, key = asked.survey()
    server.replies[path] = getattr(server, how)
    token = asked.new_token(key)
    start = time.monotonic()
    with pytest.raises(Unavailable, match="too slow"):
        asked.survey() if path == "/survey.json" else asked.sign(key, token, INVITATION)
    assert time.monotonic() - start < ENDLESS


@pytest.mark.parametrize(("path", "most"), [("/survey.json", 16 << 20), ("/sign", 64 << 10)])
def test_a_reply_has_a_greatest_length(server: Hostile, path: str, most: int) -> None:
    asked = SurveyClient(server.address)
    _, key = asked.survey()
    token = asked.new_token(key)
    for reply in (server.flood, b" " * (most + 1)):
        server.replies[path] = reply
        with pytest.raises(BadValue, match="too long"):
            asked.survey() if path == "/survey.json" else asked.sign(key, token, INVITATION)


def test_the_device_is_free_while_a_server_is_awaited(
    tmp_path: Path, server: Hostile, device: Respondent
) -> None:
    for path in ("/sign", "/report", "/survey.json"):
        server.replies = {path: server.hang}
        sending = threading.Thread(target=_send, args=(device, server.address), daemon=True)
        before = len(server.asked)
        sending.start()
        while not any(each[0] == path for each in server.asked[before:]):
            time.sleep(0.01)
        start = time.monotonic()
        assert device.left == Respondent(tmp_path / "me").left
        assert time.monotonic() - start < ENDLESS
        assert sending.is_alive()


def _send(device: Respondent, address: str) -> None:
    with pytest.raises(Unavailable):
        device.send(address, INVITATION, wait=0)


def test_every_request_has_a_connection_of_its_own(server: Hostile, device: Respondent) -> None:
    device.send(server.address, INVITATION, wait=0)
    assert [path for path, _, _ in server.asked] == ["/survey.json", "/sign", "/report"]
    assert len({port for _, port, _ in server.asked}) == 3
    for _, _, headers in server.asked:
        assert headers["Accept-Encoding"] == "identity"
        assert headers["User-Agent"] == "lapwing"
        assert not {name.lower() for name in headers} & {"cookie", "date", "accept-language", "referer"}


def test_a_credential_can_be_fetched_long_before_the_report_is_sent(
    tmp_path: Path, server: Hostile
) -> None:
    device = Respondent(tmp_path / "me")
    device.authorize(server.address, INVITATION)
    assert [path for path, _, _ in server.asked] == ["/survey.json", "/sign"]
    device.answer(server.public, YES)
    Respondent(tmp_path / "me").send(server.address, INVITATION, wait=0)
    assert [path for path, _, _ in server.asked[2:]] == ["/survey.json", "/report"]


def test_senders_at_the_same_time_show_one_token(
    tmp_path: Path, server: Hostile, device: Respondent
) -> None:
    seen = []

    def honest(path: str, body: bytes) -> bytes:
        seen.append((path, body))
        time.sleep(0.1)
        return Hostile.honest(server, path, body)

    server.honest = honest  # type: ignore[method-assign]
    senders = [
        threading.Thread(
            target=Respondent(tmp_path / "me").send, args=(server.address, INVITATION), kwargs={"wait": 0}
        )
        for _ in range(4)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert len({body for path, body in seen if path == "/sign"}) == 1
    reports = [body for path, body in seen if path == "/report"]
    assert len(reports) == 4
    assert len(set(reports)) == 1


def test_redirects_are_not_followed(server: Hostile, device: Respondent) -> None:
    for path in ("/survey.json", "/sign", "/report"):
        server.replies = {path: _moved}
        with pytest.raises(Unavailable, match="the code 307"):
            device.send(server.address, INVITATION, wait=0)
    assert not any(path == "/elsewhere" for path, _, _ in server.asked)


def _moved(out: Any) -> None:
    out.write(b"HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")


def test_a_key_or_survey_other_than_the_one_shown_gets_nothing(
    tmp_path: Path, server: Hostile, device: Respondent
) -> None:
    shown = fingerprint(read_offered(server.public).digest, server.key.public)
    server.key = BlindSigningKey.create(tmp_path / "another")
    with pytest.raises(BadParameter, match="has changed since its fingerprint was shown"):
        device.send(server.address, INVITATION, shown=shown, wait=0)
    assert [path for path, _, _ in server.asked] == ["/survey.json"]


def test_a_report_is_shown_to_its_own_invitation_only(server: Hostile, device: Respondent) -> None:
    assert not device.is_of(server.public, INVITATION)
    device.send(server.address, INVITATION, wait=0)
    assert device.is_of(server.public, INVITATION)
    assert not device.is_of(server.public, "B" * 24)
    device.send(server.address, "B" * 24, wait=0)
    assert not device.is_of(server.public, "B" * 24)


REPLIES = {
    "deep": b'{"survey":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "no text": b"\xff\xfe\x00",
    "a page": b"<html>",
    "a list": b"[]",
    "endless size": b'{"survey": {"report_size": Infinity}, "digest": "", "key": {}, "version": 1}',
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES.keys())
def test_a_reply_that_is_no_survey_is_refused(server: Hostile, reply: bytes) -> None:
    server.replies["/survey.json"] = reply
    asked = SurveyClient(server.address)
    with pytest.raises(BadValue):
        asked.survey()


def test_a_survey_must_be_what_its_digest_says(server: Hostile) -> None:
    for more in ({"digest": "0" * 64}, {"version": 2}, {"person": 17}, {"survey": None}):
        server.replies["/survey.json"] = server.survey(**more)
        asked = SurveyClient(server.address)
        with pytest.raises(BadValue, match="not in order"):
            asked.survey()


@pytest.mark.parametrize(
    "url",
    [
        "https://[/", "http://[::1]:x/", "https://a..b/", f"https://{'a' * 300}/", "https://xn--\u2603/",
        "https://exa mple/", "https://host:99999/", "https:///", "http://localhost.evil.test/",
        "http://127.0.0.1.nip.io/", "http://evil@127.0.0.1/", "https://user:word@host/", "https://",
        f"https://{'.'.join(['a' * 60] * 5)}/", "ftp://x", "https://\ud800/",
    ],
)  # fmt: skip
def test_addresses_that_cannot_be_are_told_plainly(url: str) -> None:
    with pytest.raises(BadParameter, check=named("url")):
        SurveyAddress.of(url)


def test_addresses_are_kept_as_they_are_written() -> None:
    assert SurveyAddress.of("https://Survey.example:8443/a/b/") == SurveyAddress(
        "https", "survey.example", 8443, "/a/b/"
    )
    assert SurveyAddress.of("https://b\u00fccher.example") == SurveyAddress(
        "https", "xn--bcher-kva.example", None, "/"
    )
    assert SurveyAddress.of("http://[::1]:80/x y") == SurveyAddress("http", "::1", 80, "/x%20y/")
