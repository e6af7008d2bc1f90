"""Passwords: Argon2id, two at once, a short line, the same work for names that do not exist."""

from __future__ import annotations

import statistics
import threading
import time

import argon2
import pytest

from lapwing.errors import BadParameter, TooManyRequests
from lapwing.server.people import passwords
from lapwing.server.people.passwords import AT_ONCE, IN_LINE, Passwords

GOOD = "correct horse battery"


def test_a_password_is_stored_as_argon2id_with_a_salt_of_its_own() -> None:
    checks = Passwords()
    one, two = checks.hash(GOOD), checks.hash(GOOD)
    assert one.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert one != two
    assert GOOD not in one
    assert checks.matches(one, GOOD)
    assert not checks.matches(one, GOOD + "x")
    assert not checks.matches("not a hash", GOOD)


def test_nobody_has_the_cost_of_all_others_and_no_password() -> None:
    assert argon2.extract_parameters(passwords._NOBODY) == argon2.extract_parameters(Passwords().hash(GOOD))
    assert not Passwords().matches(None, GOOD)
    assert not Passwords().matches(None, "")


def test_an_unknown_name_takes_as_long_as_a_wrong_password() -> None:
    """Of processor time, which other programs disturb less. A missing hash would take a thousandth."""
    checks = Passwords()
    stored = checks.hash(GOOD)
    known: list[float] = []
    unknown: list[float] = []
    for _ in range(3):
        for times, one in ((known, stored), (unknown, None)):
            begun = time.process_time()
            checks.matches(one, "wrong password")
            times.append(time.process_time() - begun)
    assert 0.6 < statistics.median(unknown) / statistics.median(known) < 1.7


def test_lengths_are_limited_and_any_text_is_accepted_in_a_check() -> None:
    checks = Passwords()
    for bad in ("short", "x" * 1025):
        with pytest.raises(BadParameter, match="12 to 1024"):
            checks.hash(bad)
    assert not checks.matches(checks.hash("x" * 1024), "x" * 5000)
    assert not checks.matches(None, "\ud800" * 20)
    assert checks.matches(checks.hash("пароль из слов"), "пароль из слов")


def test_two_are_computed_at_once_a_few_wait_and_the_next_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running, most, lock = 0, 0, threading.Lock()
    go_on = threading.Event()

    class Slow:
        def verify(self, stored: str, given: bytes) -> bool:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            go_on.wait(30)
            with lock:
                running -= 1
            return True

    monkeypatch.setattr(passwords, "_HASHER", Slow())
    checks = Passwords()
    threads = [
        threading.Thread(target=checks.matches, args=("stored", GOOD)) for _ in range(AT_ONCE + IN_LINE)
    ]
    for thread in threads:
        thread.start()
    while checks._places._value > 0:
        time.sleep(0.001)
    with pytest.raises(TooManyRequests) as caught:
        checks.matches("stored", GOOD)
    assert caught.value.retry_after >= 1
    go_on.set()
    for thread in threads:
        thread.join()
    assert most == AT_ONCE
    assert checks.matches("stored", GOOD)  # all places are free again
