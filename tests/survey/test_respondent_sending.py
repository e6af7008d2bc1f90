"""The respondent's device against a real server: one report, one credential, whatever happens between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, Unavailable
from lapwing.survey.credentials import PublicKey
from lapwing.survey.respondent import DeviceAccount, Respondent
from lapwing.survey.survey_client import SurveyClient
from support.faults import dies_at
from support.survey_site import EVERY_KIND, Site, one_question

YES = {"shop": "yes"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("site"), one_question()).start()
    yield found
    found.stop()


def answered(folder: Path, site: Site) -> Respondent:
    device = Respondent(folder)
    device.answer(site.design.public(), YES)
    return device


def test_a_report_is_counted_once_however_often_it_is_sent(tmp_path: Path, site: Site) -> None:
    before, invitation = len(site.reports()), site.invitation()
    device = answered(tmp_path / "me", site)
    report = device.answered(site.design.public())
    for _ in range(3):
        device.send(site.address, invitation, wait=0)
    Respondent(tmp_path / "me").send(site.address, site.invitation(), wait=0)  # another one is not used up
    rows = [row.tobytes() for row in site.reports()]
    assert len(rows) == before + 1
    assert report in rows


def test_a_kill_while_sending_loses_nothing_and_counts_nothing_twice(tmp_path: Path, site: Site) -> None:
    before, moment, ended = len(site.reports()), 0, False
    while not ended:
        moment += 1
        invitation = site.invitation()
        device = answered(tmp_path / str(moment), site)

        def work(device: Respondent = device, invitation: str = invitation) -> bytes:
            device.send(site.address, invitation, wait=0)
            return b"sent"

        ended, _ = dies_at(moment, work)
        Respondent(tmp_path / str(moment)).send(site.address, invitation, wait=0)
        assert len(site.reports()) == before + moment
    assert moment > 9  # three states are stored: the token, the signature, that it was sent


def test_an_invitation_serves_one_device(tmp_path: Path, site: Site) -> None:
    before, invitation = len(site.reports()), site.invitation()
    answered(tmp_path / "me", site).send(site.address, invitation, wait=0)
    other = answered(tmp_path / "other", site)
    with pytest.raises(BadParameter, match="was used on another device"):
        other.send(site.address, invitation, wait=0)
    assert len(site.reports()) == before + 1


@pytest.mark.parametrize("invitation", ["", "wrong", "A" * 43])
def test_an_unknown_invitation_is_refused(tmp_path: Path, site: Site, invitation: str) -> None:
    device = answered(tmp_path / "me", site)
    with pytest.raises(BadParameter, match="invitation: is not known"):
        device.send(site.address, invitation, wait=0)


@pytest.mark.parametrize("thrown", [True, False], ids=["answered", "not answered"])
def test_a_lost_reply_uses_up_no_second_invitation(
    tmp_path: Path, site: Site, monkeypatch: pytest.MonkeyPatch, *, thrown: bool
) -> None:
    device = answered(tmp_path / "me", site) if thrown else Respondent(tmp_path / "me")
    first, second = site.invitation(), site.invitation()
    seen: list[tuple[str, str]] = []

    def lost(server: SurveyClient, key: PublicKey, token: dict[str, str], invitation: str) -> str:
        signed(server, key, token, invitation)
        seen.append((invitation, token["blinded"]))
        raise Unavailable("the reply is lost")

    signed = SurveyClient.sign
    with monkeypatch.context() as patch:
        patch.setattr(SurveyClient, "sign", lost)
        with pytest.raises(Unavailable, match="lost"):
            device.authorize(site.address, first)
        with pytest.raises(BadParameter, match="is not the one that was begun with"):
            Respondent(tmp_path / "me").authorize(site.address, second)
    assert [invitation for invitation, _ in seen] == [first]
    assert not device.is_of(site.design.public(), first)
    device.authorize(site.address, first)  # the server gives the same signature again
    assert device.is_of(site.design.public(), first)
    answered(tmp_path / "another", site).send(site.address, second, wait=0)


def test_an_invitation_that_was_refused_leaves_the_device_to_the_next(tmp_path: Path, site: Site) -> None:
    used = site.invitation()
    answered(tmp_path / "other", site).send(site.address, used, wait=0)
    device, tokens = answered(tmp_path / "me", site), []
    before = len(site.reports())
    for invitation in ("wrong", used):
        with pytest.raises(BadParameter, match=r"invitation: (is not known|was used)"):
            device.send(site.address, invitation, wait=0)
        with DeviceAccount(tmp_path / "me", None).turn() as state:
            tokens += [memo for memo in state.memos.values() if "token" in memo or "invited" in memo]
    assert not tokens  # no token is shown under two invitations
    device.send(site.address, site.invitation(), wait=0)
    assert len(site.reports()) == before + 1


def test_a_token_from_before_is_kept(tmp_path: Path, site: Site) -> None:
    """It was stored without its invitation, and may have been signed."""
    device, invitation = answered(tmp_path / "me", site), site.invitation()
    server = SurveyClient(site.address)
    _, key = server.survey()
    token = server.new_token(key)
    with DeviceAccount(tmp_path / "me", None).turn() as state:
        (memo,) = state.memos.values()
        memo.update(key=key.to_json(), token=token)
        state.store()
    server.sign(key, token, invitation)
    device.send(site.address, invitation, wait=0)
    assert device.is_of(site.design.public(), invitation)


def test_what_was_not_answered_cannot_be_sent(tmp_path: Path, site: Site) -> None:
    device = Respondent(tmp_path / "me")
    with pytest.raises(BadParameter, match="answer it first"):
        device.send(site.address, "any", wait=0)


@pytest.mark.parametrize(
    "url", ["http://survey.example.org/", "ftp://127.0.0.1/", "survey.example.org", ""]
)
def test_only_encrypted_addresses_are_used(tmp_path: Path, url: str) -> None:
    device = Respondent(tmp_path / "me")
    with pytest.raises(BadParameter, match="must begin with https"):
        device.send(url, "any", wait=0)


def test_a_server_that_is_away_is_told_plainly(tmp_path: Path) -> None:
    device = Respondent(tmp_path / "me")
    with pytest.raises(Unavailable, match="cannot be reached"):
        device.send("http://127.0.0.1:9/", "any", wait=0)  # the port of "discard": nobody listens


def test_a_key_that_changed_is_not_used(tmp_path: Path, site: Site) -> None:
    device = answered(tmp_path / "me", site)
    device.send(site.address, site.invitation(), wait=0)
    with DeviceAccount(tmp_path / "me", None).turn() as state:
        (memo,) = state.memos.values()
        memo["key"] = {"n": "f" * 512, "e": "010001"}
        state.store()
    with pytest.raises(BadParameter, match="has changed"):
        device.send(site.address, site.invitation(), wait=0)


def test_a_survey_is_what_its_digest_says(site: Site, tmp_path: Path) -> None:
    public, key = SurveyClient(site.address).survey()
    assert public == site.design.public()
    assert key.size == 256


def test_a_closed_survey_says_so(tmp_path: Path) -> None:
    content = EVERY_KIND.replace("stop_after = 1000", "stop_after = 1000\nuntil = 2020-01-01")
    site = Site(tmp_path / "site", content).start()
    try:
        device = Respondent(tmp_path / "me")
        names = [question["name"] for question in site.design.public()["questions"]]
        device.answer(site.design.public(), dict.fromkeys(names))
        with pytest.raises(Unavailable, match="closed"):
            device.send(site.address, site.invitation(), wait=0)
    finally:
        site.stop()


def test_a_reply_that_is_no_survey_is_refused(site: Site, tmp_path: Path) -> None:
    server = SurveyClient(f"{site.address}by-hand")
    with pytest.raises(BadParameter, match="not known"):
        server.survey()
