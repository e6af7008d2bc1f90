"""Bookings: the charges of a token never exceed its most ε, repeated, at once, in several processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, KeyReused, TokenSpent
from lapwing.server.people.people import People
from lapwing.server.people.person import NotSignedIn
from lapwing.server.state import ServerState

TENTH = Fraction(1, 10)


def token_of(people: People, most: Fraction | None) -> str:
    if people.accounts.find("ann") is None:
        people.accounts.make("ann")
    found = people.sessions.find(people.sessions.begin("ann"))
    assert found is not None
    expires = datetime.now(UTC) + timedelta(days=1)
    token, _ = people.tokens.make(found.person, name="a", data=None, most_epsilon=most, expires=expires)
    return token.id


def test_bookings_add_up_exactly_to_the_most(people: People) -> None:
    token = token_of(people, Fraction(1))
    for number in range(10):  # ten times 0.1 as floats would be less than 1
        people.tokens.book(token, f"plan {number}", TENTH)
    assert people.tokens.known(token).left == 0
    with pytest.raises(TokenSpent) as caught:
        people.tokens.book(token, "plan 10", Fraction(1, 10**9))
    assert caught.value.code == "token-spent"
    assert (caught.value.asked, caught.value.left) == ("ε 1e-09", "ε 0 of 1")


def test_a_key_books_once_and_means_one_charge(people: People) -> None:
    token, other = token_of(people, Fraction(1)), token_of(people, Fraction(1))
    for _ in range(3):
        people.tokens.book(token, "plan", TENTH)
    assert people.tokens.known(token).booked == TENTH
    with pytest.raises(KeyReused):
        people.tokens.book(token, "plan", 2 * TENTH)
    people.tokens.book(other, "plan", 2 * TENTH)  # the key of another token
    assert people.tokens.known(token).booked == TENTH


def test_a_repeated_key_is_booked_also_when_the_token_is_spent(people: People) -> None:
    token = token_of(people, TENTH)
    people.tokens.book(token, "plan", TENTH)
    people.tokens.book(token, "plan", TENTH)


def test_a_booking_ends_when_all_who_booked_it_let_go(people: People) -> None:
    """Two requests with one key: the first is refused and cancels, and the second may still be charged."""
    token = token_of(people, TENTH)
    people.tokens.book(token, "plan", TENTH)
    people.tokens.book(token, "plan", TENTH)
    people.tokens.cancel_booking(token, "plan")
    with pytest.raises(TokenSpent):
        people.tokens.book(token, "other", TENTH)
    people.tokens.cancel_booking(token, "plan")
    people.tokens.cancel_booking(token, "plan")  # of nothing
    assert people.tokens.known(token).booked == 0
    people.tokens.book(token, "other", TENTH)


def test_a_token_without_a_most_books_nothing(people: People) -> None:
    token = token_of(people, None)
    people.tokens.book(token, "plan", Fraction(10**6))
    assert people.tokens.known(token).left is None


def test_a_token_that_has_ended_books_nothing(people: People) -> None:
    token = token_of(people, Fraction(1))
    people.tokens.revoke(token)
    for ended in (token, "none"):
        with pytest.raises(NotSignedIn):
            people.tokens.book(ended, "plan", TENTH)
    with pytest.raises(BadParameter):
        people.tokens.book(token_of(people, Fraction(1)), "plan", Fraction(-1))


def test_threads_that_book_at_once_never_exceed_the_most(people: People) -> None:
    token = token_of(people, Fraction(1))
    found: Counter[str] = Counter()

    def book(worker: int) -> None:
        for number in range(10):
            try:
                people.tokens.book(token, f"{worker} {number}", TENTH)
                found["booked"] += 1
            except TokenSpent:
                found["refused"] += 1

    threads = [threading.Thread(target=book, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"booked": 10, "refused": 30}
    assert people.tokens.known(token).booked == 1


WORKER = """
import sys
from fractions import Fraction
from lapwing.server.people.people import People
from lapwing.errors import TokenSpent
from lapwing.server.state import ServerState

state = ServerState.open(sys.argv[1])
tokens, booked = People.of(state).tokens, 0
for number in range(20):
    try:
        tokens.book(sys.argv[2], f"{sys.argv[3]} {number}", Fraction(1, 10))
        booked += 1
    except TokenSpent:
        pass
print(booked)
"""


def test_processes_that_book_at_once_never_exceed_the_most(people: People, tmp_path: Path) -> None:
    token = token_of(people, Fraction(2))
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "state"), token, str(number)],
            stdout=subprocess.PIPE, text=True,
        )
        for number in range(3)
    ]  # fmt: skip
    booked = [int(worker.communicate(timeout=120)[0]) for worker in workers]
    assert sum(booked) == 20
    assert people.tokens.known(token).left == 0


def test_a_booking_is_durable_when_book_returns(people: People, tmp_path: Path) -> None:
    """Another connection reads it from the file, and the sum is that of all bookings."""
    token = token_of(people, Fraction(1))
    people.tokens.book(token, "plan", TENTH)
    people.tokens.book(token, "other", 3 * TENTH)
    people.tokens.cancel_booking(token, "plan")
    elsewhere = ServerState.open(tmp_path / "state")
    rows = elsewhere.rows("SELECT epsilon FROM bookings WHERE token = ?", token)
    assert (
        sum(Fraction(text) for (text,) in rows)
        == People.of(elsewhere).tokens.known(token).booked
        == 3 * TENTH
    )
    elsewhere.close()
