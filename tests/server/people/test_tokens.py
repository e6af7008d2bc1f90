"""Tokens: shown once, scoped, expiring, revocable."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter
from lapwing.server.people.people import People
from lapwing.server.people.person import NotFound, NotSignedIn, Requester, Role
from lapwing.server.people.tokens import MOST_TOKENS, PREFIX
from lapwing.server.state import ServerState
from support.cases import each

ANALYST = frozenset({Role.ANALYST})


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def ann(people: People) -> Requester:
    """Somebody who signed in, an analyst of two data sets."""
    people.accounts.make("ann")
    for data in ("visits", "town"):
        people.accounts.set_roles("ann", data, ANALYST)
    found = people.sessions.find(people.sessions.begin("ann"))
    assert found is not None
    return found.person


def test_a_token_stands_for_its_account_within_its_scope(people: People, ann: Requester) -> None:
    token, secret = people.tokens.make(
        ann, name="nightly", data=frozenset({"visits"}), most_epsilon=Fraction(1, 2), expires=tomorrow()
    )
    assert secret.startswith(PREFIX)
    assert secret not in repr(token)
    assert (token.label, token.data, token.left) == ("nightly", frozenset({"visits"}), Fraction(1, 2))
    person = people.tokens.find(secret)
    assert person is not None
    assert (person.name, person.credential, person.credential_id) == ("ann", "token", token.id)
    assert person.roles_for("visits") == ANALYST
    assert person.roles_for("town") == frozenset()
    with pytest.raises(NotFound):
        person.require("town", Role.ANALYST)
    for bad in ("", PREFIX, secret[:-1], secret + "x", token.id):
        assert people.tokens.find(bad) is None


def test_roles_that_the_account_loses_the_token_loses_too(people: People, ann: Requester) -> None:
    _, secret = people.tokens.make(ann, name="a", data=None, most_epsilon=None, expires=tomorrow())
    people.accounts.set_roles("ann", "town", frozenset())
    person = people.tokens.find(secret)
    assert person is not None
    assert not person.can("town", Role.ANALYST)
    assert person.can("visits", Role.ANALYST)


def test_a_token_ends_when_it_expires_or_is_revoked_in_all_processes(
    people: People, ann: Requester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, secret = people.tokens.make(ann, name="a", data=None, most_epsilon=None, expires=tomorrow())
    _, other = people.tokens.make(ann, name="b", data=None, most_epsilon=None, expires=tomorrow())
    elsewhere = ServerState.open(tmp_path / "state")
    tokens = People.of(elsewhere).tokens
    assert tokens.find(secret) is not None
    people.tokens.revoke(one.id)
    assert tokens.find(secret) is None
    assert tokens.find(other) is not None
    later = time.time() + 86400 + 1
    monkeypatch.setattr("lapwing.server.people.tokens.time.time", lambda: later)
    assert tokens.find(other) is None
    assert [token.label for token in tokens.all_of("ann")] in (["a", "b"], ["b", "a"])
    assert tokens.all_of("bob") == []
    with pytest.raises(NotFound):
        people.tokens.revoke("none")
    elsewhere.close()


def test_a_token_never_makes_another(people: People, ann: Requester) -> None:
    _, secret = people.tokens.make(ann, name="a", data=None, most_epsilon=Fraction(1), expires=tomorrow())
    person = people.tokens.find(secret)
    assert person is not None
    with pytest.raises(NotSignedIn):
        people.tokens.make(person, name="b", data=None, most_epsilon=None, expires=tomorrow())


def test_a_token_is_for_data_that_its_owner_sees(people: People, ann: Requester) -> None:
    with pytest.raises(NotFound):
        people.tokens.make(
            ann, name="a", data=frozenset({"visits", "other"}), most_epsilon=None, expires=tomorrow()
        )


@each(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a\nb"),
        ("data", frozenset()),
        ("most_epsilon", Fraction(0)),
        ("most_epsilon", Fraction(-1)),
        ("expires", datetime(2020, 1, 1, tzinfo=UTC)),
        ("expires", datetime.now(UTC) + timedelta(days=400)),
        ("expires", datetime(2026, 1, 1)),
    ],
)
def test_bad_values_are_refused(people: People, ann: Requester, field: str, value: object) -> None:
    good = {"name": "a", "data": None, "most_epsilon": None, "expires": tomorrow()}
    with pytest.raises(BadParameter) as caught:
        people.tokens.make(ann, **{**good, field: value})  # type: ignore[arg-type]
    assert caught.value.name == field
    assert people.tokens.all_of("ann") == []


def test_an_account_has_a_limited_number_of_tokens(people: People, ann: Requester) -> None:
    made = [
        people.tokens.make(ann, name="a", data=None, most_epsilon=None, expires=tomorrow())[0]
        for _ in range(MOST_TOKENS)
    ]
    with pytest.raises(BadParameter, match="Revoke some"):
        people.tokens.make(ann, name="a", data=None, most_epsilon=None, expires=tomorrow())
    people.tokens.revoke(made[0].id)
    people.tokens.make(ann, name="a", data=None, most_epsilon=None, expires=tomorrow())
