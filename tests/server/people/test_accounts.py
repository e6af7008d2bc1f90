"""Accounts: names for ever, roles by data set, passwords, identities, disabling."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lapwing.errors import BadParameter
from lapwing.server.people.accounts import typed_name
from lapwing.server.people.people import People
from lapwing.server.people.person import EVERYWHERE, NotFound, NotSignedIn, Role
from support.cases import each

GOOD = "correct horse battery"
ANALYST = frozenset({Role.ANALYST})


def test_an_account_is_made_found_and_listed(people: People) -> None:
    made = people.accounts.make("ann", shown_name="Ann Example", by="root")
    assert made == people.accounts.find("ann")
    assert (made.name, made.shown_name, made.made_by) == ("ann", "Ann Example", "root")
    assert (made.roles, made.has_password, made.identities, made.is_disabled) == ({}, False, (), False)
    people.accounts.make("Bob Ö", password=GOOD)
    assert [one.name for one in people.accounts.all()] == ["Bob Ö", "ann"]
    assert people.accounts.known("Bob Ö").has_password
    assert people.accounts.find("cleo") is None
    with pytest.raises(NotFound):
        people.accounts.known("cleo")


def test_a_name_is_never_used_again(people: People) -> None:
    people.accounts.make("ann", password=GOOD)
    people.accounts.disable("ann")
    for taken in ("ann", "ANN", "Ann"):
        with pytest.raises(BadParameter, match="never used again"):
            people.accounts.make(taken)
    assert people.accounts.known("ann").is_disabled


@each("name", ["", " ann", "a\nb", "x" * 201, "*", ".", "..", "a/b", "a?b", "a#b", "a%2Fb", "a\\b"])
def test_a_name_must_be_good_in_a_ledger_and_in_an_address(people: People, name: str) -> None:
    with pytest.raises(BadParameter):
        people.accounts.make(name)
    assert people.accounts.all() == []


def test_a_name_has_one_form(people: People) -> None:
    assert people.accounts.make("Zoe\u0308").name == "Zo\u00eb"
    with pytest.raises(BadParameter, match="is taken"):
        people.accounts.make("Zo\u00eb")


def test_roles_are_replaced_for_one_data_set(people: People) -> None:
    people.accounts.make("ann")
    people.accounts.set_roles("ann", "visits", frozenset({Role.ANALYST, Role.STEWARD}))
    people.accounts.set_roles("ann", EVERYWHERE, frozenset({Role.OFFICER}))
    people.accounts.set_roles("ann", "visits", ANALYST)
    assert people.accounts.known("ann").roles == {"visits": ANALYST, EVERYWHERE: {Role.OFFICER}}
    people.accounts.set_roles("ann", "visits", frozenset())
    assert people.accounts.known("ann").roles == {EVERYWHERE: {Role.OFFICER}}
    with pytest.raises(NotFound):
        people.accounts.set_roles("bob", "visits", ANALYST)
    with pytest.raises(BadParameter):
        people.accounts.set_roles("ann", "a\nb", ANALYST)


def test_a_password_signs_in_its_own_account_alone(people: People) -> None:
    people.accounts.make("ann", password=GOOD)
    people.accounts.make("bob")
    assert people.accounts.with_password("ann", GOOD) == "ann"
    for name, password in (
        ("ann", "wrong password"),
        ("ann", ""),
        ("bob", GOOD),
        ("bob", ""),
        ("cleo", GOOD),
    ):
        assert people.accounts.with_password(name, password) is None
    people.accounts.disable("ann")
    assert people.accounts.with_password("ann", GOOD) is None


def test_a_name_may_be_typed_in_any_form(people: People) -> None:
    people.accounts.make("Zo\u00eb", password=GOOD)
    assert people.accounts.with_password("Zoe\u0308", GOOD) == "Zo\u00eb"
    for name in ("\ud800", "x" * 201, "Zo\u00eb" + "x" * 200, "a\0b"):
        assert people.accounts.with_password(name, GOOD) is None
    assert {typed_name("Zoe\u0308"), typed_name("Zo\u00eb")} == {
        "Zo\u00eb"
    }  # which failures are counted by


def test_a_new_password_ends_all_sessions(people: People) -> None:
    people.accounts.make("ann", password=GOOD)
    session = people.sessions.begin("ann")
    people.accounts.set_password("ann", "another password")
    assert people.sessions.find(session) is None
    assert people.accounts.with_password("ann", "another password") == "ann"
    people.accounts.set_password("ann", None)
    assert people.accounts.with_password("ann", "another password") is None
    with pytest.raises(NotFound):
        people.accounts.set_password("bob", GOOD)


def test_disabling_ends_sessions_tokens_links_and_identities(people: People) -> None:
    people.accounts.make("ann", password=GOOD)
    session = people.sessions.begin("ann")
    found = people.sessions.find(session)
    assert found is not None
    expires = datetime.now(UTC) + timedelta(days=1)
    token, secret = people.tokens.make(
        found.person, name="a", data=None, most_epsilon=None, expires=expires
    )
    people.accounts.bind("ann", "https://id.example", "1")
    link = people.links.make_password("ann")
    people.accounts.disable("ann")
    assert people.sessions.find(session) is None
    assert people.tokens.find(secret) is None
    assert people.accounts.with_identity("https://id.example", "1") is None
    with pytest.raises(NotSignedIn):
        people.accounts.set_password_by_link(link, GOOD)
    with pytest.raises(NotSignedIn):
        people.tokens.book(token.id, "key", token.booked + 1)
    with pytest.raises(NotSignedIn):
        people.sessions.begin("ann")
    with pytest.raises(NotFound):
        people.accounts.set_password("ann", GOOD)
    with pytest.raises(NotFound):
        people.accounts.disable("bob")


def test_an_identity_belongs_to_one_account(people: People) -> None:
    people.accounts.make("ann")
    people.accounts.make("bob")
    people.accounts.bind("ann", "https://id.example", "1")
    people.accounts.bind("ann", "https://id.example", "1")
    assert people.accounts.known("ann").identities == (("https://id.example", "1"),)
    with pytest.raises(BadParameter, match="another account"):
        people.accounts.bind("bob", "https://id.example", "1")
    assert people.accounts.with_identity("https://id.example", "1") == "ann"
    assert people.accounts.with_identity("https://id.example", "2") is None
    assert people.accounts.with_identity("https://other.example", "1") is None
    session = people.sessions.begin("ann")
    people.accounts.unbind("ann", "https://id.example", "1")
    assert people.accounts.with_identity("https://id.example", "1") is None
    assert people.sessions.find(session) is None
    for bad in ("", "x" * 256, "ö"):
        with pytest.raises(BadParameter):
            people.accounts.bind("ann", "https://id.example", bad)
    with pytest.raises(NotFound):
        people.accounts.unbind("ann", "https://id.example", "1")
    with pytest.raises(NotFound):
        people.accounts.bind("cleo", "https://id.example", "1")
