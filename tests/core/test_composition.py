"""Composition: each rule beside all probabilities of small laws, and what is refused."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from lapwing import losses
from lapwing.audit import laws
from lapwing.core.losses import ParallelComposition, Repeated, SampledGaussian, SequentialComposition
from lapwing.errors import BadParameter
from lapwing.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Pure,
    Relation,
    StatedLoss,
    compose,
    how_many,
    parallel,
    poisson_sampled,
    repeated,
)
from lapwing.mechanisms import Gaussian, Laplace, PartitionSelection, Quantile, RandomizedResponse
from support.cases import each
from support.judged_losses import judge

ONE, HALF, TENTH = Fraction(1), Fraction(1, 2), Fraction(1, 10)
ADD_REMOVE, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE


def response(answer: int, epsilon: Fraction = ONE) -> laws.Law:
    return laws.randomized_response(answer, 2, laws.exp(epsilon) / (1 + laws.exp(epsilon)))


@laws.precise
def told(answer: int, epsilon: Fraction = ONE, delta: Fraction = TENTH) -> laws.Law:
    """The worst law that is (ε, δ)-private: the answer with probability δ, otherwise a response."""
    hidden, certain = response(answer, epsilon), laws.dec(delta)
    return {
        **{(False, report): (1 - certain) * p for report, p in hidden.items()},
        **{(True, report): certain * (report == answer) for report in (0, 1)},
    }


@laws.precise
def mixed(one: laws.Law, other: laws.Law, share: Fraction) -> laws.Law:
    """The law that is `other` with probability `share`."""
    law: dict[Any, Decimal] = defaultdict(Decimal)
    for part, weight in ((one, 1 - laws.dec(share)), (other, laws.dec(share))):
        for outcome, p in part.items():
            law[outcome] += weight * p
    return law


# Sequential composition.


@each("count", [1, 2, 5])
def test_pure_releases_add_up(count: int) -> None:
    one, other = (laws.independent(*[response(answer)] * count) for answer in (0, 1))
    judge(one, other, repeated(Pure(ONE), count))


def test_releases_of_all_kinds_add_up() -> None:
    one, other = (
        laws.independent(
            laws.laplace(ONE, moved, 0, 1), laws.laplace(Fraction(4), 2 * moved, 0, 2), told(moved)
        )
        for moved in (0, 1)
    )
    judge(one, other, compose(LaplaceNoise(ONE, 1), LaplaceNoise(4, 2), Approximate(ONE, TENTH)))


def test_choices_in_a_range_add_up() -> None:
    scores = ((0, 0, 0), (1, -1, 0))
    one, other = (laws.independent(*[laws.exponential(each, HALF)] * 3) for each in scores)
    judge(one, other, repeated(BoundedRange(ONE), 3))


def twice_gaussian() -> tuple[laws.Law, laws.Law]:
    """The laws of two answers about 0 and about 1: of their sum, which alone tells the two apart."""
    sums = laws.summed(laws.gaussian(Fraction(2), 0, -80, 80), 2)
    return laws.shifted_pair(sums, 2)


def test_gaussian_answers_add_up() -> None:
    judge(*twice_gaussian(), repeated(GaussianNoise(2, 1, 1), 2))


def test_what_is_asked_may_depend_on_earlier_answers_if_losses_do_not() -> None:
    """After a 1 the second question is about the opposite, after a 0 it is a count with noise."""

    @laws.precise
    def law(answer: int) -> laws.Law:
        joint = {}
        for first, p in response(answer).items():
            rest = response(1 - answer) if first else laws.laplace(ONE, answer, 0, 1)
            joint.update({(first, second): p * q for second, q in rest.items()})
        return joint

    judge(law(0), law(1), repeated(Pure(ONE), 2))


def test_the_bound_of_randomized_response_is_the_truth() -> None:
    """Nothing is lost: δ at ε and the trade-off are those of the law itself."""
    direction, loss = laws.Direction(response(1), response(0)), compose(Pure(ONE))
    for epsilon in (Fraction(0), TENTH, HALF, ONE):
        assert float(loss.delta(epsilon=epsilon)) == pytest.approx(
            float(direction.excess(epsilon)), rel=1e-12
        )
    for delta in ("0.01", "0.2", "0.4"):
        least = direction.epsilon_at(Decimal(delta))
        assert float(loss.epsilon(delta=delta)) == pytest.approx(float(least), abs=2e-9)


def test_equal_parts_are_counted_and_sequences_are_flat() -> None:
    nested = compose(Pure(ONE), compose(Pure(HALF), repeated(Pure(ONE), 3)), compose())
    assert nested.loss == SequentialComposition((Repeated(Pure(ONE), 4), Pure(HALF)))
    deep = compose(Pure(TENTH))
    for _ in range(200):
        deep = compose(deep, Pure(TENTH))
    assert deep.epsilon(delta=0) == Fraction(201, 10)
    assert compose().epsilon(delta=0) == 0


def test_ten_thousand_equal_parts_are_quick() -> None:
    assert compose(*[Pure(Fraction(1, 10**4))] * 10**4).epsilon(delta="1e-6") < HALF


# Disjoint sets of units.


@each("moved", [(1, 0), (0, 1)])
def test_a_unit_meets_one_of_two_disjoint_sets(moved: tuple[int, int]) -> None:
    one, other = (
        laws.independent(*(told(d * there, e) for e, d in zip((ONE, HALF), moved, strict=True)))
        for there in (0, 1)
    )
    judge(one, other, parallel(Approximate(ONE, TENTH), Approximate(HALF, TENTH), relation=ADD_REMOVE))


def test_a_replaced_unit_meets_both_sets() -> None:
    """The rule would be wrong for REPLACE: the unit leaves the first set and enters the second."""
    one = laws.independent(response(1), response(0))
    other = laws.independent(response(0), response(1))
    assert laws.log_ratio(one, other) > Decimal("1.999")
    with pytest.raises(BadParameter) as caught:
        parallel(Pure(ONE), Pure(ONE), relation=REPLACE)
    assert caught.value.name == "relation"


# Poisson samples.


def sampled_count(people: int, rate: Fraction, noisy: Callable[[int], laws.Law]) -> laws.Law:
    """The law of a noisy count of a Poisson sample, by all samples."""

    @laws.precise
    def law() -> laws.Law:
        found: dict[Any, Decimal] = defaultdict(Decimal)
        for sample in product((0, 1), repeat=people):
            p = math.prod((laws.dec(rate if drawn else 1 - rate) for drawn in sample), start=Decimal(1))
            for outcome, q in noisy(sum(sample)).items():
                found[outcome] += p * q
        return found

    return law()


@each("rate", [Fraction(1, 100), HALF, ONE])
@each("people", [0, 2])
def test_a_sample_amplifies_pure_noise(rate: Fraction, people: int) -> None:
    one, other = (
        sampled_count(n, rate, lambda count: laws.laplace(ONE, count, 0, 4)) for n in (people, people + 1)
    )
    judge(one, other, poisson_sampled(LaplaceNoise(ONE, 1), rate=rate, relation=ADD_REMOVE))


@each("rate", [Fraction(1, 100), HALF, Fraction(99, 100)])
def test_a_sample_amplifies_epsilon_and_delta(rate: Fraction) -> None:
    one, other = told(0), mixed(told(0), told(1), rate)
    loss = poisson_sampled(Approximate(ONE, TENTH), rate=rate, relation=ADD_REMOVE)
    assert loss.loss.delta0 == rate * TENTH
    judge(one, other, loss)


def test_the_amplified_epsilon_is_the_least() -> None:
    loss = poisson_sampled(Pure(ONE), rate=TENTH, relation=ADD_REMOVE)
    true = laws.log_ratio(response(0), mixed(response(0), response(1), TENTH))
    assert 0 <= float(loss.epsilon(delta=0)) - float(true) < 1e-11


@each("rate", [Fraction(1, 100), HALF])
def test_a_sample_amplifies_gaussian_noise_and_several_answers_from_it(rate: Fraction) -> None:
    absent, drawn = (laws.gaussian(Fraction(2), c, -80, 80) for c in (0, 1))
    noise = GaussianNoise(2, 1, 1)
    judge(absent, mixed(absent, drawn, rate), poisson_sampled(noise, rate=rate, relation=ADD_REMOVE))
    twice = twice_gaussian()
    loss = poisson_sampled(repeated(noise, 2), rate=rate, relation=ADD_REMOVE)
    judge(twice[0], mixed(*twice, rate), loss)


def test_a_sample_hides_no_replacement() -> None:
    """The rule would be wrong for REPLACE: whether the unit was drawn shows, and then all of its ε."""
    nobody: laws.Law = {"nobody": Decimal(1)}
    one, other = (mixed(nobody, response(answer), TENTH) for answer in (0, 1))
    true = max(one[o] / other[o] for o in one).ln()
    claimed = poisson_sampled(Pure(ONE), rate=TENTH, relation=ADD_REMOVE).epsilon(delta=0)
    assert true > 0.99 > 2 * claimed
    with pytest.raises(BadParameter):
        poisson_sampled(Pure(ONE), rate=TENTH, relation=REPLACE)
    with pytest.raises(BadParameter):
        poisson_sampled(RandomizedResponse.two_coins(), rate=TENTH, relation=ADD_REMOVE)


def test_a_loss_without_a_pair_is_not_reduced_by_sampling() -> None:
    loss = poisson_sampled(Concentrated(TENTH), rate=TENTH, relation=ADD_REMOVE)
    assert loss.rho() == TENTH


@each("rate", [0, -1, "1.01", math.nan, math.inf, None, True])
def test_a_rate_that_is_no_probability_is_refused(rate: Any) -> None:
    with pytest.raises(BadParameter):
        poisson_sampled(Pure(ONE), rate=rate, relation=ADD_REMOVE)


# Relations.

RESPONSE, COUNT = RandomizedResponse.two_coins(), Laplace.for_epsilon(1, l1=1)
MEDIAN = Quantile.for_epsilon(1, fraction="0.5", first=0, last=9, relation=ADD_REMOVE, rows=1)
SAMPLE = SampledGaussian(TENTH, GaussianNoise(2, 1, 1))


def test_mechanisms_name_the_relation_that_they_fix() -> None:
    assert compose(RESPONSE).relation is REPLACE
    assert compose(MEDIAN).relation is ADD_REMOVE
    assert compose(COUNT).relation is None
    assert compose(COUNT, relation=REPLACE).relation is REPLACE
    assert compose(SAMPLE).relation is ADD_REMOVE
    assert compose(Pure(ONE), PartitionSelection.for_budget(1, "1e-6", keys=1)).relation is None


@each(
    "parts",
    [
        (RESPONSE, MEDIAN),
        (RESPONSE, COUNT),
        (MEDIAN, COUNT.loss),
        (compose(COUNT, relation=REPLACE), MEDIAN),
        (SAMPLE, COUNT.loss),
        (SAMPLE, RESPONSE),
        (ParallelComposition((Pure(ONE),)), compose(Pure(ONE), relation=REPLACE)),
    ],
)
def test_relations_are_never_mixed_silently(parts: tuple[Any, ...]) -> None:
    for order in (parts, parts[::-1]):
        with pytest.raises(BadParameter) as caught:
            compose(*order)
        assert caught.value.name == "relation"


def test_a_relation_is_stated_for_losses_that_name_none_only() -> None:
    assert compose(RESPONSE, COUNT, relation=REPLACE).relation is REPLACE
    for parts, relation in (((RESPONSE, COUNT), ADD_REMOVE), ((SAMPLE,), REPLACE), ((COUNT,), "replace")):
        with pytest.raises(BadParameter):
            compose(*parts, relation=relation)  # type: ignore[arg-type]


def test_replacing_a_unit_is_removing_one_and_adding_one() -> None:
    one, other = (laws.laplace(ONE, count, 0, 2) for count in (0, 2))
    loss = compose(LaplaceNoise(ONE, 1), relation=ADD_REMOVE).for_replacement()
    assert loss.relation is REPLACE
    judge(one, other, loss)
    # Disjoint sets: the unit leaves one and enters the other.
    sets = parallel(Pure(ONE), Pure(HALF), relation=ADD_REMOVE).for_replacement()
    assert sets.epsilon(delta=0) == 3
    assert compose(sets, RESPONSE).relation is REPLACE
    for wrong in (compose(SAMPLE), compose(Pure(ONE)), compose(RESPONSE)):
        with pytest.raises(BadParameter):
            wrong.for_replacement()


def test_a_ledger_for_replacement_refuses_what_was_sampled() -> None:
    """Also if the bare loss, without its relation, is charged."""
    loss = poisson_sampled(Pure(ONE), rate=TENTH, relation=ADD_REMOVE).loss
    with pytest.raises(BadParameter):
        StatedLoss(loss, REPLACE)


# Losses that are made by hand.


class Cheap(Pure):
    """It says that it costs less than nothing."""

    @property
    def pure(self) -> Fraction:
        return Fraction(-5)


class NotALoss:
    loss = 3


@each(
    "part",
    [
        Cheap(ONE),
        Repeated(Cheap(ONE), 2),
        SequentialComposition((Cheap(ONE),)),
        NotALoss(),
        NotALoss,
        1,
        None,
        "0.5",
    ],
)
def test_a_loss_of_no_known_kind_is_refused(part: Any) -> None:
    for build in (
        lambda: compose(part),
        lambda: StatedLoss(part),
        lambda: parallel(part, relation=ADD_REMOVE),
        lambda: poisson_sampled(part, rate=HALF, relation=ADD_REMOVE),
        lambda: repeated(part, 2),
        lambda: how_many(part, epsilon=1, delta=0, adaptive=True),
    ):
        with pytest.raises(BadParameter):
            build()


def test_a_composition_of_no_losses_cannot_be_made() -> None:
    wrong: list[Callable[[], object]] = [
        lambda: SequentialComposition((3,)),  # type: ignore[arg-type]
        lambda: ParallelComposition((Pure(ONE), None)),  # type: ignore[arg-type]
        lambda: Repeated(3, 2),  # type: ignore[arg-type]
        lambda: SampledGaussian(HALF, Pure(ONE)),  # type: ignore[arg-type]
    ]
    for make in wrong:
        with pytest.raises(BadParameter):
            make()


@each("count", [0, -1, 1.5, math.nan, None, True, "3"])
def test_a_count_that_is_no_number_of_times_is_refused(count: Any) -> None:
    with pytest.raises(BadParameter):
        repeated(Pure(ONE), count)


def test_huge_counts_are_counted() -> None:
    loss = repeated(Pure(Fraction(1, 10**40)), 10**40)
    assert loss.epsilon(delta=0) == 1
    assert repeated(GaussianNoise(1, 1, 1), 10**30).epsilon(delta="1e-6") > 10**29
    assert repeated(Pure(ONE), 10**30).delta(epsilon=1) == 1


# Adaptive composition is something else.


def test_an_adaptive_asker_gets_fewer() -> None:
    for part in (Pure(Fraction(1, 100)), GaussianNoise(50, 1, 1), BoundedRange(TENTH)):
        counts = [how_many(part, epsilon=3, delta="1e-6", adaptive=each) for each in (True, False)]
        assert 0 < counts[0] <= counts[1]
    assert how_many(Pure(TENTH), epsilon=1, delta=0, adaptive=False) == 10


def test_the_most_that_fit_do_fit_and_one_more_does_not() -> None:
    most = how_many(Concentrated(Fraction(1, 1000)), epsilon=1, delta="1e-6", adaptive=False)
    fitting = [repeated(Concentrated(Fraction(1, 1000)), n).epsilon(delta="1e-6") for n in (most, most + 1)]
    assert fitting[0] <= 1 < fitting[1]
    assert how_many(Pure(Fraction(2)), epsilon=1, delta=0, adaptive=False) == 0
    assert how_many(Pure(0), epsilon=1, delta=0, adaptive=False) == 10**9


@each("adaptive", [None, 1, "yes"])
def test_whether_the_asker_adapts_must_be_said(adaptive: Any) -> None:
    with pytest.raises(BadParameter):
        how_many(Pure(ONE), epsilon=1, delta=0, adaptive=adaptive)


# JSON.


@each(
    "loss",
    [
        compose(Pure("0.5"), GaussianNoise(10, 2, 3), relation=REPLACE),
        compose(),
        parallel(Pure(1), Approximate(1, "1e-9"), relation=ADD_REMOVE),
        poisson_sampled(GaussianNoise(10, 1, 1), rate="0.01", relation=ADD_REMOVE),
    ],
)
def test_a_loss_comes_back_from_its_json(loss: StatedLoss) -> None:
    assert losses.from_json(loss.to_json()) == loss


GOOD = json.loads(compose(Pure(ONE)).to_json())


@each(
    "changes",
    [
        {"format": 2},
        {"format": True},
        {"relation": "both"},
        {"relation": 1},
        {"relation": ["x"]},
        {"loss": None},
        {"loss": []},
        {"loss": {"loss": "Free"}},
        {"loss": {"loss": "Pure", "epsilon": "-1"}},
        {"loss": {"loss": "Pure", "epsilon": 0.5}},
        {"loss": {"loss": "Pure", "epsilon": "nan"}},
        {"loss": {"loss": "Worst", "parts": []}, "relation": "replace one unit"},
        {"more": 1},
    ],
)
def test_other_json_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        losses.from_json(json.dumps(GOOD | changes))


@each("text", ["", "[]", "3", "{", None, 5, '{"format": 1}', "[" * 100_000])
def test_what_is_no_json_is_refused(text: Any) -> None:
    with pytest.raises(BadParameter):
        losses.from_json(text)


def test_json_that_is_nested_too_deep_is_refused() -> None:
    record: dict[str, Any] = {"loss": "Pure", "epsilon": "1"}
    for _ in range(400):
        record = {"loss": "Repeated", "each": record, "count": 1}
    with pytest.raises(BadParameter):
        losses.from_json(json.dumps(GOOD | {"loss": record}))


def test_the_example_of_the_issue_runs_as_it_stands() -> None:
    import lapwing  # noqa: PLC0415

    a, b = COUNT, Gaussian.for_rho("0.01", l2_squared=1, dimension=1)
    assert lapwing.losses.compose(a.loss, b.loss).epsilon(delta=1e-6) > 1
