"""The data and ε of an attempt follow from public facts, and double: at most four times the need in all."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.errors import BadParameter
from lapwing.learn.pipelines.pipeline import AttemptSchedule, PlannedAttempt, Strategy, attempt_blocks


def schedule(
    strategy: Strategy, least: str = "0.1", most: str = "1", first: int = 1, last: int | None = None
) -> AttemptSchedule:
    return AttemptSchedule(
        strategy=strategy, least=Fraction(least), most=Fraction(most), first_blocks=first, most_blocks=last
    )


def tries(of: AttemptSchedule, start: int, most: int = 12) -> list[PlannedAttempt]:
    found = [of.at(attempt, start) for attempt in range(1, most + 1)]
    return [one for one in found if one is not None]


def use(tried: PlannedAttempt) -> Fraction:
    """The budget that an attempt takes from all its blocks together."""
    return tried.blocks * tried.epsilon


schedules = st.builds(
    lambda strategy, least, times, first, more: AttemptSchedule(
        strategy=strategy,
        least=Fraction(least, 100),
        most=Fraction(least * times, 100),
        first_blocks=first,
        most_blocks=None if more is None else first * more,
    ),
    st.sampled_from(Strategy),
    st.integers(1, 50),
    st.integers(1, 40),
    st.integers(1, 5),
    st.none() | st.integers(1, 100),
)


@settings(max_examples=200, deadline=None)
@given(schedules, st.integers(1, 300))
def test_all_attempts_use_at_most_about_twice_the_last(of: AttemptSchedule, start: int) -> None:
    made = tries(of, start)
    for k, last in enumerate(made):
        # Waiting for whole blocks rounds up, by less than one block each time.
        assert sum(use(one) for one in made[: k + 1]) <= 2 * use(last) + (k + 1) * of.most
        assert of.least <= last.epsilon <= of.most
        assert of.first_blocks <= last.blocks <= (of.most_blocks or last.blocks)


@settings(max_examples=200, deadline=None)
@given(schedules, st.integers(1, 300))
def test_each_attempt_uses_twice_the_one_before_so_four_times_the_need_at_most(
    of: AttemptSchedule, start: int
) -> None:
    made = tries(of, start)
    for before, after in pairwise(made):
        assert 2 * use(before) - of.most <= use(after) <= 2 * use(before) + of.most
        assert after.blocks >= before.blocks
        assert after.epsilon >= before.epsilon


def test_conserve_takes_more_data_first_and_then_more_epsilon_and_then_waits() -> None:
    made = tries(schedule(Strategy.CONSERVE, "0.1", "0.8"), 4, 7)
    found = [(one.blocks, float(one.epsilon)) for one in made]
    assert found == [(1, 0.1), (2, 0.1), (4, 0.1), (4, 0.2), (4, 0.4), (4, 0.8), (8, 0.8)]


def test_all_data_is_used_also_where_its_number_is_no_power_of_two() -> None:
    made = tries(schedule(Strategy.CONSERVE, "0.1", "0.8"), 6, 4)
    assert [(one.blocks, use(one)) for one in made] == [
        (1, Fraction(1, 10)),
        (2, Fraction(1, 5)),
        (4, Fraction(2, 5)),
        (6, Fraction(4, 5)),
    ]


def test_aggressive_spends_all_of_epsilon_at_once() -> None:
    made = tries(schedule(Strategy.AGGRESSIVE), 2, 4)
    assert [one.blocks for one in made] == [1, 2, 4, 8]
    assert {one.epsilon for one in made} == {1}


def test_it_ends_at_the_most_blocks() -> None:
    assert [one.blocks for one in tries(schedule(Strategy.AGGRESSIVE, last=5), 10)] == [1, 2, 4]
    assert schedule(Strategy.AGGRESSIVE, last=5).at(4, 10) is None


ORDER = ["a", "b", "c", "d", "e", "f"]


def test_a_window_is_the_newest_of_when_the_run_began() -> None:
    assert attempt_blocks(ORDER, 4, 1) == ["d"]
    assert attempt_blocks(ORDER, 4, 4) == ["a", "b", "c", "d"]


def test_what_comes_in_later_changes_no_window_that_there_was() -> None:
    for blocks in range(1, 5):
        assert attempt_blocks(ORDER[:4], 4, blocks) == attempt_blocks(ORDER, 4, blocks)


def test_more_than_there_was_waits_for_more() -> None:
    assert attempt_blocks(ORDER[:4], 4, 5) is None
    assert attempt_blocks(ORDER, 4, 5) == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("wrong", [{"least": "2"}, {"first": 0}, {"first": 3, "last": 2}, {"least": "0"}])
def test_ends_before_beginnings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadParameter):
        schedule(Strategy.CONSERVE, **wrong)  # type: ignore[arg-type]
