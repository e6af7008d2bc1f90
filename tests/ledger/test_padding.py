"""Work is seen to end at a rung of a ladder whose start is random."""

from __future__ import annotations

import math

import pytest

from lapwing.ledger import padding
from lapwing.ledger.padding import NO_LADDER, Ladder, next_rung, random_start
from support.clocks import PaddingClock

GRID = 20_000  # of log2 s


@pytest.mark.parametrize(
    ("seconds", "more"), [(1.0, 0.01), (1.5, 1.0), (3.0, 0.3), (60.0, 5.0), (0.9, 0.2)]
)
def test_a_rung_falls_between_two_times_with_the_claimed_probability(seconds: float, more: float) -> None:
    starts = [2 ** ((n + 0.5) / GRID) for n in range(GRID)]
    differ = sum(next_rung(start, seconds) != next_rung(start, seconds + more) for start in starts)
    claimed = math.log2((seconds + more) / max(seconds, 1))  # no rung is below one second
    assert abs(differ / GRID - claimed) <= 2 / GRID


def test_below_one_second_all_times_look_the_same() -> None:
    for _ in range(100):
        start = random_start()
        assert next_rung(start, 0.0) == next_rung(start, 0.999) == start


def test_the_logarithm_of_the_start_is_uniform() -> None:
    """Each of 16 cells has its share. False alarms: below 1e-9 by Hoeffding, for all cells together."""
    count, cells = 20_000, 16
    starts = [random_start() for _ in range(count)]
    assert all(1 <= start < 2 for start in starts)
    found = [0] * cells
    for start in starts:
        found[int(math.log2(start) * cells)] += 1
    most = math.sqrt(math.log(2 * cells / 1e-9) * count / 2)
    assert all(abs(number - count / cells) <= most for number in found)


def test_a_wait_ends_at_the_rung_that_follows_the_work(padding_clock: PaddingClock) -> None:
    padding_clock.stop()
    for worked in (0.0, 0.5, 1.7, 30.0):
        begun = padding_clock.monotonic()
        with Ladder():
            padding_clock.work(worked)
        took = padding_clock.monotonic() - begun
        assert worked <= took < max(2, 2 * worked) + 1e-6


def test_an_interrupt_during_the_wait_is_raised_at_the_rung(
    padding_clock: PaddingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one during the work: it does not show whether the work had ended. Times are exact in binary."""
    padding_clock.stop()
    monkeypatch.setattr(padding, "random_start", lambda: 1.5)
    interrupts = iter([0.25, 0.5])

    def sleep(seconds: float) -> None:
        after = next(interrupts, None)
        padding_clock.sleep(seconds if after is None else after)
        if after is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr(padding, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt), Ladder():
        padding_clock.work(0.125)
    assert padding_clock.monotonic() == 1.5


def test_without_padding_nobody_waits(padding_clock: PaddingClock) -> None:
    with NO_LADDER:
        padding_clock.work(0.5)
    assert not padding_clock.waits
