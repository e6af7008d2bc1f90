"""Limits: they refill with time alone, forget who is not limited, and keep no owner out."""

from __future__ import annotations

import pytest

from lapwing.errors import TooManyRequests
from lapwing.server.people import limits
from lapwing.server.people.limits import RateLimit, SignInLimits


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(limits, "time", clock)
    return clock


def taken(limit: RateLimit, key: str) -> int:
    """Take until it is refused, and return how many were taken."""
    for count in range(10**6):
        try:
            limit.take(key)
        except TooManyRequests:
            return count
    raise AssertionError("it never ends")


def test_a_burst_is_limited_and_refills_with_time(clock: Clock) -> None:
    limit = RateLimit(per_minute=60, burst=10)
    assert taken(limit, "ann") == 10
    assert taken(limit, "bob") == 10
    clock.now += 3
    assert taken(limit, "ann") == 3
    clock.now += 1000
    assert taken(limit, "ann") == 10


def test_whoever_waits_as_told_is_let_in(clock: Clock) -> None:
    limit = RateLimit(per_minute=2, burst=3)
    taken(limit, "ann")
    with pytest.raises(TooManyRequests) as caught:
        limit.take("ann")
    clock.now += caught.value.retry_after - 1
    with pytest.raises(TooManyRequests):
        limit.take("ann")
    clock.now += 1
    limit.take("ann")


def test_refused_attempts_do_not_make_it_longer(clock: Clock) -> None:
    limit = RateLimit(per_minute=60, burst=2)
    taken(limit, "ann")
    for _ in range(100):
        with pytest.raises(TooManyRequests):
            limit.take("ann")
    clock.now += 1
    limit.take("ann")


def test_keys_are_forgotten_when_they_are_not_limited_and_their_number_is_bounded(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = RateLimit(per_minute=60, burst=10)
    for number in range(100):
        limit.take(number)
    clock.now += 60
    for _ in range(60):
        limit.take("ann")
        clock.now += 1
    assert len(limit) <= 1
    monkeypatch.setattr(limits, "MOST_KEYS", 50)
    for number in range(1000):
        limit.take(number)
    assert len(limit) <= 52


def test_what_was_given_back_can_be_taken_again(clock: Clock) -> None:
    limit = RateLimit(per_minute=60, burst=3)
    for _ in range(100):
        limit.take("ann")
        limit.give_back("ann")
    assert taken(limit, "ann") == 3
    limit.give_back("nobody")


def test_strangers_from_many_addresses_do_not_keep_an_owner_out(clock: Clock) -> None:
    """The owner's browser has signed in before; without it, the next minute has room for the name."""
    found = SignInLimits()
    refused = 0
    for number in range(1000):
        try:
            found.begin(f"10.0.{number // 250}.{number % 250}", "ann", "")
        except TooManyRequests:
            refused += 1
    assert refused == 990
    found.begin("192.0.2.1", "ann", "the owner's browser")
    with pytest.raises(TooManyRequests):
        found.begin("192.0.2.1", "ann", "")
    clock.now += 60
    found.begin("192.0.2.1", "ann", "")


def test_a_stolen_browser_is_limited_too(clock: Clock) -> None:
    found = SignInLimits()
    for number in range(10):
        found.begin(f"10.0.0.{number}", "ann", "stolen")
    with pytest.raises(TooManyRequests):
        found.begin("10.0.0.99", "ann", "stolen")


def test_an_address_is_limited_whatever_names_it_tries(clock: Clock) -> None:
    found = SignInLimits()
    for number in range(20):
        found.begin("192.0.2.1", f"name {number}", "")
    with pytest.raises(TooManyRequests):
        found.begin("192.0.2.1", "another", "")
    found.begin("192.0.2.2", "another", "")
    for _ in range(100):  # successes are not counted
        found.begin("192.0.2.3", "ann", "")
        found.not_failed("192.0.2.3", "ann", "")
    for _ in range(9):
        found.begin("", "bob", "")  # of an address that is not known


def test_failures_of_neighbours_do_not_keep_a_known_browser_out(clock: Clock) -> None:
    found = SignInLimits()
    for number in range(20):
        found.begin("192.0.2.1", f"name {number}", "")
    with pytest.raises(TooManyRequests):
        found.begin("192.0.2.1", "ann", "")
    found.begin("192.0.2.1", "ann", "the owner's browser")


def test_an_account_is_limited_also_if_it_succeeds(clock: Clock) -> None:
    found = SignInLimits()

    def sign_in() -> None:
        found.begin("192.0.2.1", "ann", "")
        found.not_failed("192.0.2.1", "ann", "")

    for _ in range(120):
        sign_in()
    with pytest.raises(TooManyRequests):
        sign_in()
    found.begin("192.0.2.1", "bob", "")
    clock.now += 60
    sign_in()
