"""Links: good for one use, and start links for this machine alone."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from lapwing.errors import BadParameter
from lapwing.server.people.links import LinkKind
from lapwing.server.people.people import People
from lapwing.server.people.person import NotSignedIn
from lapwing.server.settings import read_settings

GOOD = "correct horse battery"


def test_a_start_link_signs_in_once(people: People, tmp_path: Path) -> None:
    people.accounts.make("you")
    link = people.links.make_start("you", read_settings(tmp_path))
    assert people.links.name_of(link, LinkKind.START) == "you"
    assert people.links.use(link, LinkKind.START) == "you"
    with pytest.raises(NotSignedIn):
        people.links.use(link, LinkKind.START)
    for bad in ("", link[:-1], "none"):
        with pytest.raises(NotSignedIn):
            people.links.use(bad, LinkKind.START)


def test_a_start_link_is_for_this_machine_alone(people: People, tmp_path: Path) -> None:
    people.accounts.make("you")
    for settings in (
        read_settings(tmp_path, host="0.0.0.0", has_tls=True),
        read_settings(tmp_path, behind_tls_proxy=True),
    ):
        with pytest.raises(BadParameter, match="this machine only"):
            people.links.make_start("you", settings)


def test_a_link_is_of_one_kind_and_ends(
    people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.accounts.make("you")
    link = people.links.make_password("you")
    with pytest.raises(NotSignedIn):
        people.links.use(link, LinkKind.START)
    later = time.time() + 3 * 86400
    monkeypatch.setattr("lapwing.server.people.links.time.time", lambda: later)
    with pytest.raises(NotSignedIn):
        people.links.name_of(link, LinkKind.PASSWORD)
    with pytest.raises(NotSignedIn):
        people.accounts.set_password_by_link(link, GOOD)


def test_browsers_that_use_a_link_at_once_get_one_session(people: People, tmp_path: Path) -> None:
    people.accounts.make("you")
    link = people.links.make_start("you", read_settings(tmp_path))
    found: list[str] = []

    def use() -> None:
        try:
            found.append(people.links.use(link, LinkKind.START))
        except NotSignedIn:
            found.append("")

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [""] * 7 + ["you"]


def test_a_password_link_sets_the_password_once_and_stays_good_for_a_second_try(people: People) -> None:
    people.accounts.make("ann", password="the old password")
    session = people.sessions.begin("ann")
    link, other = people.links.make_password("ann"), people.links.make_password("ann")
    with pytest.raises(BadParameter, match="12 to"):
        people.accounts.set_password_by_link(link, "short")
    assert people.accounts.set_password_by_link(link, GOOD) == "ann"
    assert people.accounts.with_password("ann", GOOD) == "ann"
    assert people.sessions.find(session) is None
    for used in (link, other):
        with pytest.raises(NotSignedIn):
            people.accounts.set_password_by_link(used, "a third password")


def test_an_answer_comes_once(people: People) -> None:
    assert people.links.note_answer("state")
    assert not people.links.note_answer("state")
    assert people.links.note_answer("other")
    with pytest.raises(NotSignedIn):
        people.links.use("state", LinkKind.ANSWER)
