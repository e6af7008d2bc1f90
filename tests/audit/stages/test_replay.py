"""A replay lets adaptive steps see the same answers, and finds what differs by more than was declared."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lapwing.audit.case import StageBudget, StageResult, Witness
from lapwing.audit.stages.replay import ReplayPair, recorded_run, replay_stage, sequential
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.losses import Concentrated, Loss, Pure, Relation, SequentialComposition
from lapwing.core.observed import observed
from lapwing.core.order_statistics import Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.selection import AboveThreshold, Exponential

ONE = Fraction(1)
COUNT = Laplace.for_epsilon(1, l1=1)
KEYS = PartitionSelection.for_budget(1, "1e-6", keys=1)
MEDIAN = Quantile.for_epsilon(1, fraction="0.5", first=0, last=9, relation=Relation.ADD_REMOVE, rows=2)
Rows = list[int]


def replayed(
    run: Callable[[Any], Any], one: Any, other: Any, charged: Loss = COUNT.loss, **options: Any
) -> StageResult:
    is_equal = options.pop("is_equal", False)
    pair = ReplayPair("these two", lambda: run(one), lambda: run(other), is_equal)
    claim = {"epsilon": Fraction(10), "delta": Fraction(1, 10**5), **options}
    return replay_stage([pair], charged, **claim)(StageBudget())


def violation(*args: Any, **options: Any) -> Witness:
    found = replayed(*args, **options)
    assert found.witness is not None
    assert not found.holds
    assert found.witness.pair == "these two"
    return found.witness


def test_a_private_count_holds_and_says_what_it_compared() -> None:
    found = replayed(lambda rows: int(COUNT.sample([len(rows)])[0]), [1, 2], [1, 2, 3], epsilon=ONE)
    assert found.holds
    assert (found.checks, found.claimed, found.could_show) == (10, 1.0, 1.0)
    assert found.notes == (
        "1 pairs, 3 calls of mechanisms compared",  # drawn, at the upper ends, and at the lower ends
        "largest distance: 1 of the declared one",
    )


@pytest.mark.parametrize(
    ("charged", "delta", "is_any"),
    [
        (Pure(Fraction(1001, 1000)), Fraction(0), True),
        (Concentrated(Fraction(1, 50)), Fraction(0), False),
        (Concentrated(Fraction(1, 40)), Fraction(1, 10**6), True),
        (Gaussian(Fraction(3), ONE, 1).loss, Fraction(1, 10**6), True),
    ],
)
def test_a_charge_above_the_claim_is_found(charged: Loss, delta: Fraction, is_any: bool) -> None:
    """The ledger would be charged more than the user reads; no pair can show that."""
    found = replay_stage([], charged, epsilon=ONE, delta=delta)(StageBudget())
    assert found.witness is not None
    assert found.witness.event == "the charge is more than the claim"
    told = found.witness.numbers["ε of the charge"]
    assert (told != "none follows") is is_any


def test_a_distance_beyond_the_declared_one_is_told_with_its_call() -> None:
    def total(rows: Rows) -> None:
        COUNT.sample([len(rows)])
        COUNT.sample([sum(rows)])

    found = violation(total, [1, 2], [1, 2, 3], sequential_of(COUNT, COUNT))
    assert found.event == "the inputs are farther apart than declared: L1"
    assert (found.numbers["call"], found.numbers["found"], found.numbers["declared"]) == (2, "3", "1")


def sequential_of(*mechanisms: Any) -> Loss:
    return SequentialComposition(tuple(mechanism.loss for mechanism in mechanisms))


def test_adaptive_steps_see_the_answers_of_the_first_run() -> None:
    """The second question depends on the first answer, which is far apart on these two inputs."""
    choose = Exponential.for_epsilon(1, sensitivity=1)

    def search(rows: Rows) -> int:
        noisy = int(COUNT.sample([len(rows)])[0])
        return choose.sample([sum(row < noisy for row in rows), sum(row >= noisy for row in rows)])

    for _ in range(20):
        assert replayed(search, [1, 5, 9], [1, 5, 9, 9], sequential_of(COUNT, choose)).holds


def test_a_result_that_is_no_function_of_the_outputs_is_found() -> None:
    def with_size(rows: Rows) -> tuple[Any, int]:
        return COUNT.sample([len(rows)]), len(rows)

    assert "results differ" in violation(with_size, [1], [1, 2]).event


@pytest.mark.parametrize("side", ["one", "other"])
def test_a_call_that_only_one_input_has_is_found(side: str) -> None:
    def when_there(rows: Rows) -> None:
        COUNT.sample([len(rows)])
        if len(rows) > 1:
            COUNT.sample([0])

    inputs = ([1, 2], [1]) if side == "one" else ([1], [1, 2])
    found = violation(when_there, *inputs, sequential_of(COUNT, COUNT))
    assert found.event == f"only the run on the {side} input has this call"
    assert found.numbers["call"] == 2


def test_noise_that_depends_on_the_data_is_found() -> None:
    def own_scale(rows: Rows) -> None:
        Laplace.for_epsilon(1, l1=len(rows)).sample([len(rows)])

    assert violation(own_scale, [1], [1, 2]).event == "the mechanisms of the two runs differ"


def test_an_error_is_an_outcome() -> None:
    def fails(rows: Rows) -> None:
        COUNT.sample([len(rows)])
        if 7 in rows:
            raise ValueError("there is a 7")

    assert "there is a 7" in str(violation(fails, [1], [1, 7]).numbers["other"])
    same = replayed(fails, [7], [7, 7])
    assert same.witness is None
    assert any("the first: ('ValueError', 'there is a 7')" in note for note in same.notes)


def test_a_step_that_is_charged_once_and_taken_twice_is_found() -> None:
    def twice(rows: Rows) -> float:
        return float(np.mean([COUNT.sample([len(rows)])[0] for _ in range(2)]))

    found = violation(twice, [1], [1, 2])
    assert found.event == "the losses of all calls add up to more than what is charged"
    assert (found.numbers["cost"], found.numbers["added up"], found.numbers["charged"]) == ("ε", 2.0, 1.0)
    assert replayed(twice, [1], [1, 2], sequential_of(COUNT, COUNT)).holds


def test_gaussian_noise_is_not_covered_by_a_pure_charge() -> None:
    noise = Gaussian(Fraction(10), ONE, 1)

    def count(rows: Rows) -> None:
        noise.sample([len(rows)])

    rho = noise.loss.concentrated.rho
    assert violation(count, [1], [1, 2], Pure(Fraction(10))).numbers["cost"] == "ε"
    assert replayed(count, [1], [1, 2], Concentrated(rho)).holds
    short = violation(count, [1], [1, 2], Concentrated(rho * Fraction(999, 1000)))
    assert str(short.numbers["cost"]).startswith("Rényi value at order ")


def test_sums_that_are_exactly_the_charge_hold() -> None:
    """Intervals of a sum may be rounded up by a unit more than the same value as one number."""
    noise = Gaussian(Fraction(10), Fraction(4), 1)

    def thrice(rows: Rows) -> None:
        for _ in range(3):
            noise.sample([len(rows)])

    assert replayed(thrice, [1], [1, 2], Concentrated(3 * noise.loss.concentrated.rho)).holds


def test_a_charge_step_by_step_must_cover_the_calls_too() -> None:
    def steps(rows: Rows) -> list[Loss]:
        COUNT.sample([len(rows)])
        COUNT.sample([len(rows)])
        return [COUNT.loss]

    whole = Pure(Fraction(5))
    assert replayed(steps, [1], [1, 2], whole).holds
    found = violation(
        steps, [1], [1, 2], whole, stepwise=lambda losses: SequentialComposition(tuple(losses))
    )
    assert found.numbers["charged step by step"] == 1.0


def test_calls_on_disjoint_groups_share_one_loss_and_one_distance() -> None:
    def medians(groups: list[Rows]) -> list[int]:
        return [MEDIAN.sample(rows) for rows in groups]

    def all_groups(mechanism: object) -> str | None:
        return "groups" if mechanism is MEDIAN else None

    here, there = [[1, 2], [5]], [[1, 2, 3], [5, 6]]
    assert replayed(medians, here, there, MEDIAN.loss, share=all_groups).holds
    assert "add up to more" in violation(medians, here, there, MEDIAN.loss).event
    third = violation(medians, here, [[1, 2, 3], [5, 6, 7]], MEDIAN.loss, share=all_groups)
    assert (third.numbers["found"], third.numbers["declared"]) == ("3", "2")


def test_losses_can_be_composed_in_another_way() -> None:
    def twice(rows: Rows) -> None:
        COUNT.sample([len(rows)])
        COUNT.sample([len(rows)])

    seen: list[int] = []

    def one_loss(calls: Any) -> Loss:
        seen.append(len(calls))
        assert sequential(calls).pure == 2
        return COUNT.loss

    assert replayed(twice, [1], [1, 2], compose=one_loss).holds
    assert seen == [2, 2, 2]


class TestSelections:
    """Keys are the same on both inputs: none, then all that both have."""

    def by_key(self, rows: list[str]) -> list[tuple[str, int]]:
        counts = {key: rows.count(key) for key in sorted(set(rows))}
        shown = KEYS.sample(counts)
        return (
            list(zip(shown, COUNT.sample([counts[key] for key in shown]).tolist(), strict=True))
            if shown
            else []
        )

    def test_hold_although_only_one_input_has_a_key(self) -> None:
        found = replayed(self.by_key, ["a", "b"], ["a", "b", "rare"], sequential_of(KEYS, COUNT))
        assert found.holds
        assert (
            found.notes[0] == "1 pairs, 7 calls of mechanisms compared"
        )  # all but the first time with noise

    def test_are_found_if_keys_are_shown_without_them(self) -> None:
        def all_keys(rows: list[str]) -> dict[str, int]:
            return {key: int(COUNT.sample([rows.count(key)])[0]) for key in sorted(set(rows))}

        found = violation(all_keys, ["a"], ["a", "rare"], sequential_of(COUNT, COUNT))
        assert found.event == "only the run on the other input has this call"

    def test_are_found_if_a_unit_has_more_keys_than_declared(self) -> None:
        found = violation(self.by_key, ["a"], ["a", "b", "c"], sequential_of(KEYS, COUNT))
        assert found.event == "the inputs are farther apart than declared: changed keys"

    def test_are_found_if_a_unit_counts_more_than_once(self) -> None:
        found = violation(self.by_key, ["a"], ["a", "a", "a"], sequential_of(KEYS, COUNT))
        assert found.event == "the inputs are farther apart than declared: move of one key's count"

    def test_see_a_number_that_is_too_far_behind_them(self) -> None:
        def sums(rows: list[str]) -> None:
            counts = dict.fromkeys(rows, 1)
            if KEYS.sample(counts):
                COUNT.sample([len(rows)])

        assert violation(sums, ["a"], ["a", "a", "a"], sequential_of(KEYS, COUNT)).numbers["found"] == "2"


def test_equal_inputs_must_give_equal_values() -> None:
    def first(rows: Rows) -> None:
        COUNT.sample([rows[0] % 2])

    assert replayed(first, [1, 2], [2, 1]).holds
    found = violation(first, [1, 2], [2, 1], is_equal=True)
    assert (found.numbers["found"], found.numbers["declared"]) == ("1", "0")


def test_questions_of_a_session_may_be_forced() -> None:
    above = AboveThreshold.for_epsilon(1, sensitivity=1, positives=1)

    def until(rows: Rows) -> int:
        session = above.start(10)
        for asked in range(50):
            if session.ask(len(rows) + asked):
                return asked
        return -1

    for _ in range(10):  # all questions of a session share one loss, and each may move by Δ
        assert replayed(until, [1], [1, 2], above.loss, compose=lambda _: above.loss).holds


def test_pairs_may_be_made_for_the_budget() -> None:
    def pairs(budget: StageBudget) -> list[ReplayPair]:
        one = ReplayPair("one", lambda: COUNT.sample([1]), lambda: COUNT.sample([2]))
        return [one] * (3 if budget.is_thorough else 1)

    told: list[str] = []
    stage = replay_stage(pairs, COUNT.loss, epsilon=ONE)
    assert stage(StageBudget()).checks == 28
    assert stage(StageBudget(is_thorough=False, progress=told.append)).checks == 10  # extremes once
    assert told == ["replay: one"]


def test_without_pairs_nothing_is_said_to_hold() -> None:
    found = replay_stage([], COUNT.loss, epsilon=ONE)(StageBudget())
    assert (found.holds, found.could_show) == (False, None)
    assert found.unable == "no pair was given"


def _fails(_: int) -> None:
    COUNT.sample([_])
    raise TypeError("a bug of the trainer")


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda _: COUNT.sample([0]), "no neighbour moved an input"),
        (lambda _: None, "no mechanism was called"),
        (_fails, "every run ended with an error, the first: ('TypeError', 'a bug of the trainer')"),
    ],
)
def test_replays_that_show_nothing_do_not_pass(run: Callable[[int], Any], why: str) -> None:
    found = replayed(run, 1, 2)
    assert found.witness is None
    assert not found.holds
    assert why in found.unable
    assert found.could_show is None


def test_one_pair_that_shows_something_is_enough() -> None:
    def pair(one: int, other: int) -> ReplayPair:
        return ReplayPair("", lambda: COUNT.sample([one]), lambda: COUNT.sample([other]))

    assert not replay_stage([pair(1, 1)], COUNT.loss, epsilon=ONE)(StageBudget()).holds
    assert replay_stage([pair(1, 1), pair(1, 2)], COUNT.loss, epsilon=ONE)(StageBudget()).holds


def test_what_is_recorded_is_not_changed_later() -> None:
    values = np.array([1, 2])

    def reuses() -> None:
        COUNT.sample(values)
        values[:] = 9

    (call,) = recorded_run(reuses).calls
    assert call.inputs["values"].tolist() == [1, 2]


class NoNoise(Laplace):
    """A subclass of a known mechanism that adds nothing."""

    @observed
    def sample(self, values: Any) -> Any:
        return np.asarray(values)


def test_a_subclass_of_a_known_mechanism_has_no_case() -> None:
    quiet = NoNoise.for_epsilon(1, l1=1)
    found = violation(lambda rows: quiet.sample([len(rows)]), [1], [1, 2])
    assert found.event == "a mechanism without a case: nothing checks the law of NoNoise"


@pytest.mark.parametrize(
    ("mechanism", "is_rare"),
    [
        (COUNT, lambda noisy: noisy > 10_000),
        (COUNT, lambda noisy: noisy < -10_000),
        (Gaussian(Fraction(30), ONE, 1), lambda noisy: noisy > 10_000),
    ],
)
@pytest.mark.parametrize("is_thorough", [True, False])
def test_a_branch_that_only_rare_outputs_take_is_found(
    mechanism: Any, is_rare: Callable[[int], bool], is_thorough: bool
) -> None:
    def exact_if_large(rows: Rows) -> int:
        noisy = int(mechanism.sample([len(rows)])[0])
        return len(rows) if is_rare(noisy) else noisy

    pair = ReplayPair("", lambda: exact_if_large([1]), lambda: exact_if_large([1, 2]))
    stage = replay_stage([pair], mechanism.loss, epsilon=ONE, delta=Fraction(1, 10**6))
    found = stage(StageBudget(is_thorough=is_thorough))
    assert found.witness is not None
    assert "results differ" in found.witness.event


@pytest.mark.parametrize("last", [0, 19])
def test_a_branch_that_one_choice_takes_is_found(last: int) -> None:
    choose = Exponential.for_epsilon(1, sensitivity=1)

    def exact_if_chosen(rows: Rows) -> int:
        chosen = choose.sample([len(rows) if 5 < k < 15 else -1000 for k in range(20)])
        return len(rows) if chosen == last else chosen

    assert "results differ" in violation(exact_if_chosen, [1], [1, 2], choose.loss).event


class Equal:
    """Says that it is equal to anything."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "shown",
    [
        lambda rows: 0.0 if len(rows) > 1 else -0.0,
        lambda rows: True if len(rows) > 1 else 1,
        lambda rows: (1,) if len(rows) > 1 else [1],
        lambda rows: Equal(len(rows)),
    ],
)
def test_results_are_compared_by_type_and_bits(shown: Callable[[Rows], Any]) -> None:
    def count(rows: Rows) -> Any:
        COUNT.sample([len(rows)])
        return shown(rows)

    assert "results differ" in violation(count, [1], [1, 2]).event


def test_a_result_that_cannot_be_compared_does_not_pass() -> None:
    def count(rows: Rows) -> Any:
        COUNT.sample([len(rows)])
        return iter(rows)

    assert "the results cannot be compared" in violation(count, [1], [1, 2]).event
