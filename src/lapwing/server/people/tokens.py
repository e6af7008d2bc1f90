"""Tokens: what a program signs in with, for some data sets only, up to a most ε, until a day.

Claim    the charges that were made with a token never exceed its most ε, whoever sends it, however often
         and at once.
Because  before a charge is made, its ε is booked: added to the token's sum in one transaction that
         commits durably, or refused. A booking is cancelled only by the caller who made it, after a
         charge that was not made.
Test     tests/server/people/test_tokens.py, tests/server/people/test_tokens_bookings.py

A booking has a key, so that a repeated request books once. Each `book` takes hold of the booking, and each
`cancel_booking` lets go once: a booking ends only when all have let go. After a crash it stays, which is
the safe side.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from lapwing.config.values import checked_label
from lapwing.core.exact import positive
from lapwing.errors import BadParameter, KeyReused, TokenSpent
from lapwing.server.people.accounts import roles_by_data
from lapwing.server.people.credentials import hash_of, new_id, new_secret
from lapwing.server.people.person import NotFound, NotSignedIn, Requester
from lapwing.server.state import ServerState

PREFIX = "lapwing_"  # so that programs which look for lost secrets recognise it
LONGEST_LIFE = timedelta(days=366)
MOST_TOKENS = 100  # of one account
_COLUMNS = "id, name, label, data, most_epsilon, booked, made, expires, is_revoked"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its secret.

    Args:
        id: The public id.
        name: The account that it acts for.
        label: What its owner calls it.
        data: The data sets that it is for; None for all of the account.
        most_epsilon: The most ε that it may spend; None for no limit of its own.
        booked: The ε that was booked on it, if it has a limit.
        made: When it was made.
        expires: When it ends.
        is_revoked: Whether it was ended before.
    """

    id: str
    name: str
    label: str
    data: frozenset[str] | None
    most_epsilon: Fraction | None
    booked: Fraction
    made: datetime
    expires: datetime
    is_revoked: bool

    @property
    def left(self) -> Fraction | None:
        """The ε that is left; None for no limit of its own."""
        return None if self.most_epsilon is None else self.most_epsilon - self.booked


class Tokens:
    """All tokens of a server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    def make(
        self,
        person: Requester,
        *,
        name: str,
        data: frozenset[str] | None,
        most_epsilon: Fraction | None,
        expires: datetime,
    ) -> tuple[Token, str]:
        """Make a token of the person's own.

        Args:
            person: Whose token it is. A token never makes another: it would have no limit.
            name: What its owner calls it.
            data: The data sets that it is for; None for all of the account.
            most_epsilon: The most ε that it may spend; None for no limit of its own.
            expires: When it ends: at most 366 days from now.

        Returns:
            The token, and its secret, which is shown once and stored nowhere.

        Raises:
            BadParameter: If a value is not acceptable, or there are too many tokens.
            NotFound: If the person has no role for one of the data sets.
            NotSignedIn: If the person came with a token, or the account was disabled.
        """
        if person.credential == "token":
            raise NotSignedIn
        label, now = checked_label(name, "name"), datetime.now(UTC)
        if data is not None and not data:
            raise BadParameter("data", "must name at least one data set, or be left out for all")
        for dataset in data or ():
            if not person.roles_for(dataset):
                raise NotFound(dataset)
        most = None if most_epsilon is None else positive(most_epsilon, "most_epsilon")
        if expires.tzinfo is None or not now < expires <= now + LONGEST_LIFE:
            raise BadParameter("expires", f"must be within {LONGEST_LIFE.days} days from now")
        secret, public_id = new_secret(PREFIX), new_id()
        with self._state.transaction() as run:
            if not run(
                "SELECT 1 FROM accounts WHERE name = ? AND NOT is_disabled", (person.name,)
            ).fetchone():
                raise NotSignedIn
            [count] = run(
                "SELECT count(*) FROM tokens WHERE name = ? AND NOT is_revoked AND expires > ?",
                (person.name, int(now.timestamp())),
            ).fetchone()
            if count >= MOST_TOKENS:
                raise BadParameter("tokens", f"are at most {MOST_TOKENS} of one account. Revoke some first")
            run(
                "INSERT INTO tokens (hash, id, name, label, data, most_epsilon, made, expires) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    hash_of(secret), public_id, person.name, label,
                    None if data is None else json.dumps(sorted(data)),
                    None if most is None else str(most),
                    int(now.timestamp()), int(expires.timestamp()),
                ),
            )  # fmt: skip
        return self.known(public_id), secret

    def find(self, secret: str) -> Requester | None:
        """Return the person that a token stands for, or None if the token has ended or never was."""
        rows = self._state.rows(
            "SELECT id, name, shown_name, data FROM tokens JOIN accounts USING (name) "
            "WHERE hash = ? AND NOT is_revoked AND expires > ? AND NOT is_disabled",
            hash_of(secret),
            int(time.time()),
        )
        if not rows:
            return None
        [(public_id, name, shown_name, data)] = rows
        roles = roles_by_data(self._state.rows("SELECT data, role FROM roles WHERE name = ?", name))
        return Requester(name, roles, "token", public_id, _scope(data), shown_name)

    def all_of(self, name: str) -> list[Token]:
        """Return the tokens of an account, newest first; also those that have ended."""
        return self._some("WHERE name = ? ORDER BY made DESC, id", name)

    def known(self, token_id: str) -> Token:
        """Return a token by its public id. Raises NotFound if there is none."""
        if not (tokens := self._some("WHERE id = ?", token_id)):
            raise NotFound(token_id)
        return tokens[0]

    def _some(self, which: str, *values: object) -> list[Token]:
        rows = self._state.rows(f"SELECT {_COLUMNS} FROM tokens {which}", *values)  # noqa: S608  our own text
        return [_token(row) for row in rows]

    def revoke(self, token_id: str) -> None:
        """End a token now. Raises NotFound if there is none."""
        with self._state.transaction() as run:
            if not run("UPDATE tokens SET is_revoked = 1 WHERE id = ?", (token_id,)).rowcount:
                raise NotFound(token_id)

    def book(self, token_id: str, key: str, epsilon: Fraction) -> None:
        """Book the ε of a charge before it is made. The booking is durable when this returns.

        A token without a most ε books nothing.

        Args:
            token_id: The token's public id: `person.credential_id`.
            key: What the charge is for, such as the id of a plan. The same key books once.
            epsilon: The ε of the charge.

        Raises:
            TokenSpent: If the sum would exceed the token's most ε. Nothing was booked.
            KeyReused: If the key was booked with another ε.
            NotSignedIn: If the token has ended.
            BadParameter: If ε is not positive.
        """
        epsilon = positive(epsilon, "epsilon")
        with self._state.transaction() as run:
            row = run(
                "SELECT most_epsilon, booked FROM tokens WHERE id = ? AND NOT is_revoked AND expires > ?",
                (token_id, int(time.time())),
            ).fetchone()
            if row is None:
                raise NotSignedIn
            if row[0] is None:
                return
            most, booked = map(Fraction, row)
            known = run(
                "SELECT epsilon FROM bookings WHERE token = ? AND key = ?", (token_id, key)
            ).fetchone()
            if known is not None:
                if Fraction(known[0]) != epsilon:
                    raise KeyReused
                run(
                    "UPDATE bookings SET holders = holders + 1 WHERE token = ? AND key = ?", (token_id, key)
                )
                return
            if booked + epsilon > most:
                raise TokenSpent(epsilon, most - booked, most)
            run("INSERT INTO bookings VALUES (?, ?, ?, 1)", (token_id, key, str(epsilon)))
            run("UPDATE tokens SET booked = ? WHERE id = ?", (str(booked + epsilon), token_id))

    def cancel_booking(self, token_id: str, key: str) -> None:
        """Let go of a booking whose charge was certainly not made. Call it once for each `book`."""
        with self._state.transaction() as run:
            row = run(
                "SELECT epsilon, holders FROM bookings WHERE token = ? AND key = ?", (token_id, key)
            ).fetchone()
            if row is None:
                return
            if row[1] > 1:
                run(
                    "UPDATE bookings SET holders = holders - 1 WHERE token = ? AND key = ?", (token_id, key)
                )
                return
            run("DELETE FROM bookings WHERE token = ? AND key = ?", (token_id, key))
            [booked] = run("SELECT booked FROM tokens WHERE id = ?", (token_id,)).fetchone()
            left = Fraction(booked) - Fraction(row[0])
            run("UPDATE tokens SET booked = ? WHERE id = ?", (str(left), token_id))


def _scope(data: str | None) -> frozenset[str] | None:
    return None if data is None else frozenset(json.loads(data))


def _token(row: tuple[Any, ...]) -> Token:
    public_id, name, label, data, most, booked, made, expires, is_revoked = row
    return Token(
        public_id,
        name,
        label,
        _scope(data),
        None if most is None else Fraction(most),
        Fraction(booked),
        datetime.fromtimestamp(made, UTC),
        datetime.fromtimestamp(expires, UTC),
        bool(is_revoked),
    )
