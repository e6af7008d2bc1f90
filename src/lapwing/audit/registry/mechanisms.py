"""The cases of all mechanisms: exact laws at twenty settings on the worst neighbours, and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit import laws
from lapwing.audit.case import AuditCase
from lapwing.audit.registry.mechanism_case import (
    DELTA,
    FORCED,
    ONE,
    SCALES,
    forced,
    mechanism_case,
    numbers,
    sampled_on,
    scaled,
)
from lapwing.audit.registry.noise_laws import BUDGETS, with_noise_laws
from lapwing.audit.registry.noisy_decisions import against_the_odds, with_noisy_decisions
from lapwing.audit.stages.exact import ExactPair
from lapwing.audit.stages.sampled import Draw
from lapwing.core import (
    Pure,
    Relation,
    gaussian,
    laplace,
    order_statistics,
    partition_selection,
    randomized_response,
    selection,
)
from lapwing.core.gaussian import Gaussian, GaussianShares
from lapwing.core.laplace import Laplace, LaplaceShares
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import AboveThreshold, Exponential, NoisyMax, PermuteAndFlip

# Gaussian laws are listed as far as Rényi values at this order need, and e^-144 beyond.
_LARGEST_ORDER = 72
_DEVIATIONS = 17

# Laplace noise


def _laplace_pairs(setting: tuple[Fraction, int, int]) -> Iterator[ExactPair]:
    """Yield the laws of one vector and of its neighbours at the whole L1 distance."""
    epsilon, l1, dimension = setting
    mechanism = scaled(laplace).Laplace.for_epsilon(epsilon, l1=l1)

    def law(shift: tuple[int, ...], moved: int) -> laws.Law:
        values = [d * moved for d in shift if d]
        scales, _, centres = SCALES.of_vector(lambda: mechanism.sample(values))
        each = zip(scales, centres, filter(None, shift), strict=True)
        return laws.independent(*(laws.laplace(scale, centre, 0, d) for scale, centre, d in each))

    for shift in product(range(l1 + 1), repeat=dimension):
        if sum(shift) == l1 and list(shift) == sorted(shift, reverse=True):
            first, second = law(shift, 0), law(shift, 1)
            name = f"Laplace, ε = {epsilon}, L1 = {l1}: zeros, and {shift}"
            yield ExactPair(name, first, second, mechanism.loss, epsilon)


def _vector(mechanism: Laplace, values: list[int]) -> Draw:
    return lambda size: mechanism.sample(values * size).reshape(size, len(values))


def _laplace() -> AuditCase:
    epsilons = numbers("1", "3", "0.1", "0.01", "8")
    settings = [(e, l1, dim) for l1, dim in ((1, 1), (2, 2), (3, 2), (5, 3)) for e in epsilons]
    draws = [
        sampled_on("a count of 0 or 1", _vector, Laplace.for_epsilon(1, l1=1), [0], [1]),
        sampled_on("(0, 0) or (1, 2)", _vector, Laplace.for_epsilon(1, l1=3), [0, 0], [1, 2]),
    ]
    return with_noise_laws(mechanism_case("Laplace", Laplace, settings, _laplace_pairs, draws))


def _laplace_share_pairs(setting: tuple[Fraction, int, int]) -> Iterator[ExactPair]:
    """Yield the laws of sums in which the honest shares are all, one more, or one fewer than planned."""
    epsilon, l1, of = setting
    shares = scaled(laplace).LaplaceShares.for_epsilon(epsilon, l1=l1, of=of)
    [scale], parties, _ = SCALES.of_vector(lambda: shares.sample([0]))
    for present in (of, of + 1):
        first, second = laws.shifted_pair(laws.laplace_shares(scale, parties, present), l1)
        name = f"Laplace shares, ε = {epsilon}, L1 = {l1}, {present} honest of {of}: sums of 0 and {l1}"
        yield ExactPair(name, first, second, shares.loss, epsilon)
        told = shares.loss_with(present)
        yield ExactPair(f"{name}, as `loss_with` says", first, second, Pure(told), told)
    if of > 1:
        fewer = shares.loss_with(of - 1)
        first, second = laws.shifted_pair(laws.laplace_shares(scale, parties, of - 1), l1)
        name = f"Laplace shares, ε = {epsilon}, L1 = {l1}, {of - 1} honest of {of}: sums of 0 and {l1}"
        yield ExactPair(name, first, second, Pure(fewer), fewer)


def _opened(shares: LaplaceShares | GaussianShares, value: int) -> Draw:
    """Return draws of an opened sum without the coalition's own shares: only the honest members' remain."""

    def draw(size: int) -> NDArray[np.int64]:
        each = shares if isinstance(shares, LaplaceShares) else replace(shares, dimension=size)
        others = [each.sample(np.zeros(size, dtype=np.int64)) for _ in range(shares.of - 1)]
        return each.sample(np.full(size, value)) + sum(others)

    return draw


def _laplace_shares() -> AuditCase:
    epsilons = numbers("1", "3", "1/2", "1/4", "8")
    settings = [(e, l1, of) for l1, of in ((1, 3), (1, 2), (2, 4), (1, 7)) for e in epsilons]
    shares = LaplaceShares.for_epsilon(1, l1=1, of=3)
    draws = [sampled_on("opened sums of 0 and 1", _opened, shares, 0, 1)]
    return with_noise_laws(
        mechanism_case("Laplace shares", LaplaceShares, settings, _laplace_share_pairs, draws)
    )


# Gaussian noise


def _reach(sigma: Fraction, distance: int) -> int:
    return int(_DEVIATIONS * sigma) + _LARGEST_ORDER * distance + 2


def _sigma(mechanism: Any) -> Fraction:
    """Return the σ with which a mechanism draws: the least one of its coordinates."""
    return min(SCALES.of_vector(lambda: mechanism.sample([0] * mechanism.dimension))[0])


def _gaussian_pairs(setting: tuple[Fraction, Fraction, Fraction, int]) -> Iterator[ExactPair]:
    """Yield the laws at the whole L2 distance: in one coordinate, and the same in several.

    A shift by (1, ..., 1) shows in the sum of the coordinates alone, so the law of the sum is enough.
    """
    epsilon, delta, squared, dimension = setting
    mechanism = scaled(gaussian).Gaussian.for_budget(
        epsilon, delta, l2_squared=squared, dimension=dimension
    )
    sigma = _sigma(mechanism)
    distance = math.isqrt(int(squared))  # whole numbers: √l2_squared is rounded down
    reach = _reach(sigma, distance)
    first, second = (laws.gaussian(sigma, c, -reach, reach + distance) for c in (0, distance))
    name = f"Gaussian, ε = {epsilon}, δ = {delta}, L2² = {squared}: 0 and {distance}"
    yield ExactPair(name, first, second, mechanism.loss, epsilon, delta)
    if dimension == squared > 1:
        sums = laws.gaussian_shares(sigma, dimension, _reach(sigma, 1))
        first, second = laws.shifted_pair(sums, dimension)
        name = f"Gaussian, ε = {epsilon}, δ = {delta}, L2² = {squared}: zeros, and {dimension} ones"
        yield ExactPair(name, first, second, mechanism.loss, epsilon, delta)


def _gaussian_draw(mechanism: Gaussian, value: int) -> Draw:
    # One sample of many coordinates is as many samples of one: the noises are independent.
    return lambda size: replace(mechanism, dimension=size).sample(np.full(size, value))


def _gaussian() -> AuditCase:
    shapes = [(Fraction(squared), dim) for squared, dim in ((1, 1), (4, 1), (2, 2), (3, 3))]
    shapes.append((Fraction(9, 4), 1))
    settings = [(e, d, squared, dim) for squared, dim in shapes for e, d in BUDGETS]
    mechanism = Gaussian.for_budget(1, DELTA, l2_squared=1, dimension=1)
    draws = [sampled_on("a count of 0 or 1", _gaussian_draw, mechanism, 0, 1)]
    return with_noise_laws(
        mechanism_case("Gaussian", Gaussian, settings, _gaussian_pairs, draws, delta=DELTA)
    )


def _gaussian_share_pairs(setting: tuple[Fraction, Fraction, int]) -> Iterator[ExactPair]:
    """Yield the laws of sums of exactly the planned honest shares, and of one more."""
    epsilon, delta, of = setting
    made = scaled(gaussian).GaussianShares.for_budget
    shares = made(epsilon, delta, l2_squared=1, dimension=1, of=of)
    sigma = _sigma(shares)
    for present in (of, of + 1):
        far = _reach(sigma * Fraction(present**0.5), 1)
        # Near the ends of the listed shares the law of a sum is not complete: it is cut before.
        sums = laws.gaussian_shares(sigma, present, max(far // present + 20, _reach(sigma, 1)))
        sums = {outcome: p for outcome, p in sums.items() if abs(outcome) <= far}
        first, second = laws.shifted_pair(sums, 1)
        name = f"Gaussian shares, ε = {epsilon}, δ = {delta}, {present} honest of {of}: sums of 0 and 1"
        yield ExactPair(name, first, second, shares.loss, epsilon, delta)
        for at in (epsilon, 2 * epsilon) if present == of else ():
            yield ExactPair(f"{name}, δ at ε = {at}", first, second, shares.loss, at, shares.delta(at))


def _gaussian_shares() -> AuditCase:
    millionth = Fraction(1, 10**6)
    budgets = [(ONE, DELTA), (ONE, millionth), (Fraction(3), millionth), (Fraction(1, 2), DELTA)]
    budgets.append((Fraction(1, 2), millionth))  # wide noise, whose δ is that of the continuous law
    budgets += [(Fraction(9), millionth), (Fraction(12), Fraction(1, 10**9)), (Fraction(20), millionth)]
    settings = [(e, d, of) for of in (2, 1, 3, 5) for e, d in budgets]
    shares = GaussianShares.for_budget(1, DELTA, l2_squared=1, dimension=1, of=2)
    draws = [sampled_on("opened sums of 0 and 1", _opened, shares, 0, 1)]
    return with_noise_laws(
        mechanism_case(
            "Gaussian shares", GaussianShares, settings, _gaussian_share_pairs, draws, delta=DELTA
        )
    )


# Choices


def _score_pairs(candidates: int, sensitivity: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield scores and their worst neighbours: some rise by Δ, the others fall by Δ."""
    for base in ((0,) * candidates, tuple(range(0, 2 * candidates, 2))):
        for signs in product((-1, 1), repeat=candidates):
            if signs[0] == 1:
                yield list(base), [b + s * sensitivity for b, s in zip(base, signs, strict=True)]
    # One candidate falls while all others rise, from the top of the others and from below.
    ahead = [2 * sensitivity] + [0] * (candidates - 1)
    yield ahead, [sensitivity] + [sensitivity] * (candidates - 1)
    behind = [0] + [2 * sensitivity] * (candidates - 1)
    yield behind, [sensitivity] + [sensitivity] * (candidates - 1)


Scored = Exponential | PermuteAndFlip | NoisyMax


def _scored_case(
    name: str,
    kind: type[Scored],
    in_copy: Callable[[ModuleType], Any],
    law_of: Callable[[Any, list[int]], laws.Law],
    sampled: tuple[list[int], list[int]],
) -> AuditCase:
    """Return the case of a choice by scores. `in_copy` makes the copy of its module for `law_of`."""
    words = " and ".join(f"({', '.join(map(str, scores))})" for scores in sampled)
    draws = [sampled_on(f"scores {words}", _chosen, kind.for_epsilon(1, sensitivity=1), *sampled)]

    def pairs(setting: tuple[Fraction, int, int]) -> Iterator[ExactPair]:
        epsilon, sensitivity, candidates = setting
        mechanism = getattr(in_copy(selection), kind.__name__).for_epsilon(epsilon, sensitivity=sensitivity)
        for first, second in _score_pairs(candidates, sensitivity):
            text = f"{name}, ε = {epsilon}, Δ = {sensitivity}: scores {first} and {second}"
            yield ExactPair(
                text, law_of(mechanism, first), law_of(mechanism, second), mechanism.loss, epsilon
            )

    epsilons = numbers("1", "2", "1/2", "1/10", "8")
    settings = [(e, s, k) for s, k in ((1, 3), (1, 2), (2, 4), (3, 3)) for e in epsilons]
    return mechanism_case(name, kind, settings, pairs, draws)


def _forced_law(mechanism: Any, values: Sequence[int]) -> laws.Law:
    """Return the law of one choice, by all paths."""
    array = np.array(values, dtype=np.int64)
    return FORCED.law(lambda: mechanism.sample(array))


def _noisy_max_law(mechanism: Any, scores: list[int]) -> laws.Law:
    used, _ = SCALES.of(lambda: mechanism.sample(scores))
    return laws.noisy_max(scores, min(scale for scale, _ in used))


def _chosen(mechanism: Any, values: list[int]) -> Draw:
    """Return draws of one choice each, from scores or from values."""
    array = np.array(values, dtype=np.int64)
    return lambda size: np.array([mechanism.sample(array) for _ in range(size)])


def _choices() -> list[AuditCase]:
    falling, rising = ([2, 2, 1], [1, 1, 2]), ([0, 0, 1], [1, 1, 0])
    return [
        _scored_case("exponential", Exponential, forced, _forced_law, falling),
        _scored_case("permute-and-flip", PermuteAndFlip, forced, _forced_law, falling),
        with_noise_laws(
            with_noisy_decisions(_scored_case("noisy max", NoisyMax, scaled, _noisy_max_law, rising))
        ),
    ]


# Above-threshold


_LONGEST = 8  # a session with more yeses than this does not end


def _threshold_pairs(setting: tuple[Fraction, int, int]) -> Iterator[ExactPair]:
    epsilon, sensitivity, positives = setting
    made = scaled(selection).AboveThreshold.for_epsilon
    terms = made(epsilon, sensitivity=sensitivity, positives=positives)

    def session() -> int:
        """Ask as long as one may, and return the number of yeses."""
        begun, asked = terms.start(0), 0
        while not begun.is_over and asked <= _LONGEST:
            begun.ask(0)
            asked += 1
        return asked

    ((threshold_scale, _), *questions), yeses = SCALES.of(session)
    question_scale = min(scale for scale, _ in questions)

    def law(values: tuple[int, ...]) -> laws.Law:
        return laws.above_threshold(values, yeses, threshold_scale, question_scale)

    for values, signs in (
        ((0, 0, 0), (1, 1, -1)),
        ((0, 0, 1), (1, 1, -1)),
        ((4, 4, -4), (1, 1, -1)),
        ((0, -3, 1), (-1, 1, 1)),
    ):
        moved = tuple(v + s * sensitivity for v, s in zip(values, signs, strict=True))
        name = f"above threshold, ε = {epsilon}, Δ = {sensitivity}, {positives} yeses: {values} and {moved}"
        yield ExactPair(name, law(values), law(moved), terms.loss, epsilon)
    yield against_the_odds(terms, yeses, threshold_scale, question_scale)


def _answers(mechanism: AboveThreshold, values: list[int]) -> Draw:
    """Return draws of the answers of a session, as binary digits: 1 is yes."""

    def one_session() -> int:
        session, answers = mechanism.start(0), 0
        for place, value in enumerate(values):
            if session.is_over:
                break
            answers |= session.ask(value) << place
        return answers

    return lambda size: np.array([one_session() for _ in range(size)])


def _above_threshold() -> AuditCase:
    epsilons = numbers("1", "2", "6", "8", "3")
    settings = [(e, s, c) for s, c in ((1, 1), (1, 2), (2, 1), (1, 3)) for e in epsilons]
    terms = AboveThreshold.for_epsilon(1, sensitivity=1, positives=1)
    draws = [sampled_on("values (0, 0, 1) and (1, 1, 0)", _answers, terms, [0, 0, 1], [1, 1, 0])]
    case = mechanism_case("above threshold", AboveThreshold, settings, _threshold_pairs, draws)
    return with_noisy_decisions(case)


# Order statistics

_FIRST, _LAST = 0, 30
_Data = tuple[int, ...]
# If the last row of (0, 1, 30) is added, the median leaves 0, and comes nearer to the other thirty points.
_ADDED: tuple[tuple[_Data, _Data], ...] = (((), (30,)), ((1, 3), (1, 3, 3)), ((2, 2), (2, 2, 99)))
_REPLACED: tuple[tuple[_Data, _Data], ...] = (((0,), (30,)), ((1, 3), (1, -2)), ((0, 1, 1), (0, 1, 30)))


def _neighbours(rows: int, relation: Relation) -> Iterator[tuple[_Data, _Data]]:
    """Yield data sets that differ by one unit of up to `rows` rows, also by rows outside of the grid."""
    yield from _ADDED
    yield (0, 1), (0, 1, *(_LAST,) * rows)
    yield (_LAST - 1, _LAST), (*(_FIRST,) * rows, _LAST - 1, _LAST)
    held = tuple(range(_LAST - rows + 1, _LAST + 1))  # each of these values gets its second row
    yield ((1, 1) * rows + held), ((1, 1) * rows + 2 * held)
    if relation is Relation.REPLACE:
        yield from _REPLACED
        yield (*(_FIRST,) * rows, 15), (15, *(_LAST,) * rows)
    if rows > 1:  # each row that often: scores move as far as a unit of so many rows can move them
        for first, second in (*_ADDED, *(_REPLACED if relation is Relation.REPLACE else ())):
            yield _repeated(first, rows), _repeated(second, rows)


def _repeated(data: _Data, rows: int) -> _Data:
    return tuple(value for value in data for _ in range(rows))


def _at_the_rank(fraction: Fraction, rows: int) -> Iterator[tuple[_Data, _Data]]:
    """Yield rows whose first value holds the wanted rank just so, and a unit that moves all scores most.

    Then that value gets worse by the whole sensitivity, and nearly all others get better by as much.
    """
    f, g = fraction.numerator, fraction.denominator - fraction.numerator
    if f >= g > 0:
        data = (_FIRST,) * (f * rows) + (_FIRST + 1,) * (g * rows)
        yield data, data + (_LAST,) * rows
    elif f > 0:
        data = (_LAST - 1,) * (f * rows) + (_LAST,) * (g * rows)
        yield data, (_FIRST,) * rows + data


def _quantile_pairs(setting: tuple[Fraction, Fraction, int, Relation]) -> Iterator[ExactPair]:
    epsilon, fraction, rows, relation = setting
    mechanism = forced(order_statistics).Quantile.for_epsilon(
        epsilon, fraction=fraction, first=_FIRST, last=_LAST, rows=rows, relation=relation
    )
    for data, neighbour in (*_neighbours(rows, relation), *_at_the_rank(fraction, rows)):
        first, second = _forced_law(mechanism, data), _forced_law(mechanism, neighbour)
        name = f"quantile {fraction}, ε = {epsilon}, {relation.value}, {rows} rows: {data} and {neighbour}"
        yield ExactPair(name, first, second, mechanism.loss, epsilon)


def _quantile() -> AuditCase:
    half = Fraction(1, 2)
    median = Quantile.for_epsilon(1, fraction="0.5", first=0, last=9, relation=Relation.ADD_REMOVE, rows=1)
    epsilons = numbers("1", "4", "1/5")
    fractions = [(half, 2), (half, 1), (Fraction(9, 10), 2), (Fraction(0), 1)]
    settings = [(e, f, r, relation) for f, r in fractions for relation in Relation for e in epsilons]
    settings += [(ONE, Fraction(1), 3, relation) for relation in Relation]
    # Below one half, 1 − f is the greater part of the sensitivity. These come first, for a quick audit.
    settings = [
        (ONE, Fraction(1, g), r, Relation.ADD_REMOVE) for g, r in ((10, 1), (4, 2), (10, 3))
    ] + settings
    draws = [sampled_on("rows (2, 3) and (2, 3, 8)", _chosen, median, [2, 3], [2, 3, 8])]
    return mechanism_case("quantile", Quantile, settings, _quantile_pairs, draws)


def _extreme_pairs(setting: tuple[Fraction, bool, int, Fraction]) -> Iterator[ExactPair]:
    epsilon, greatest, rows, miss = setting
    mechanism = forced(order_statistics).Extreme.for_epsilon(
        epsilon, greatest=greatest, first=_FIRST, last=_LAST, rows=rows, miss=miss
    )
    rank = mechanism.rank
    near, far = (1, _LAST) if greatest else (_LAST - 1, _FIRST)
    more = [((near,) * n, (near,) * n + (far,) * rows) for n in (rank - 1, rank)]
    for data, neighbour in [*_neighbours(rows, Relation.REPLACE), *more]:
        first, second = _forced_law(mechanism, data), _forced_law(mechanism, neighbour)
        kind = "greatest" if greatest else "least"
        name = f"{kind}, ε = {epsilon}, {rows} rows: {_short(data)}; {_short(neighbour)}"
        yield ExactPair(name, first, second, mechanism.loss, epsilon)


def _short(data: _Data) -> str:
    """Return data as a text: each value with the number of its rows."""
    return ", ".join(f"{data.count(value)} × {value}" for value in sorted(set(data))) or "no row"


def _extreme() -> AuditCase:
    epsilons = numbers("1", "4", "8", "2", "10")
    settings = [
        (e, greatest, rows, miss)
        for rows, miss in ((1, Fraction(1, 20)), (2, Fraction(9, 10)))
        for greatest in (True, False)
        for e in epsilons
    ]
    mechanism = Extreme.for_epsilon(1, greatest=True, first=0, last=3, rows=1)
    draws = [sampled_on("nine rows of 2, and ten", _chosen, mechanism, [2] * 9, [2] * 10)]
    return mechanism_case("extreme", Extreme, settings, _extreme_pairs, draws)


# Keys


def _key_pairs(setting: tuple[Fraction, Fraction, int]) -> Iterator[ExactPair]:
    """Yield the laws of the shown keys: a unit with as many keys as it may have is there, or not."""
    epsilon, delta, keys = setting
    mechanism = forced(partition_selection).PartitionSelection.for_budget(epsilon, delta, keys=keys)

    def law(counts: Sequence[int]) -> laws.Law:
        held = {place: count for place, count in enumerate(counts) if count}  # others do not exist
        return FORCED.law(lambda: tuple(mechanism.sample(held)) if held else ())

    # The probability rises in another way from about one half on, and is 1 in the end.
    half, full, end = (mechanism.spread(level) for level in ("0.5", "0.9", "0.999999999999"))
    near_half = range(max(half - 3, 0), half + 3)
    for start in sorted({0, 1, 2, half // 2, *near_half, full - 1, full, max(end - 1, 0), end, end + 1}):
        counts = [start + 2 * place for place in range(keys)] if start else [0] * keys
        more = [count + 1 for count in counts]
        name = f"keys, ε = {epsilon}, δ = {delta}: held by {counts} units, and {more}"
        yield ExactPair(name, law(counts), law(more), mechanism.loss, epsilon, delta)


def _kept(mechanism: PartitionSelection, count: int) -> Draw:
    if not count:  # there is no such key
        return lambda size: np.zeros(size, dtype=np.int64)
    return lambda size: mechanism.decide(np.full(size, count)).astype(np.int64)


def _keys() -> AuditCase:
    deltas = [DELTA, Fraction(1, 10**6), Fraction(1, 10**12), Fraction(1, 4)]
    settings = [(ONE, d, k) for k in (1, 2, 3) for d in deltas]
    settings += [(e, DELTA, k) for e in numbers("4", "1/10") for k in (1, 2, 3, 4)]
    mechanism = PartitionSelection.for_budget(1, DELTA, keys=1)
    draws = [
        sampled_on("the first unit of a key", _kept, mechanism, 0, 1),
        sampled_on("the fourth unit of a key", _kept, mechanism, 3, 4),
    ]
    return mechanism_case(
        "partition selection", PartitionSelection, settings, _key_pairs, draws, delta=DELTA
    )


# Randomized response


def report_pairs(setting: RandomizedResponse) -> Iterator[ExactPair]:
    """Yield the exact laws of one report, for the first answer and another."""
    made = forced(randomized_response).RandomizedResponse
    mechanism = made(setting.options, setting.epsilon, setting.truth)
    loss = mechanism.loss

    def law(answer: int) -> laws.Law:
        return FORCED.law(lambda: int(mechanism.sample([answer])[0]))

    for answer in {1, setting.options - 1}:
        first, second = law(0), law(answer)
        name = (
            f"randomized response, {setting.options} options, ε = {float(loss.epsilon):g}: 0 and {answer}"
        )
        yield ExactPair(name, first, second, loss, loss.epsilon)


def _report(mechanism: RandomizedResponse, answer: int) -> Draw:
    return lambda size: mechanism.sample(np.full(size, answer))


def _responses() -> list[AuditCase]:
    coins, options = RandomizedResponse.two_coins(), RandomizedResponse.for_epsilon(1, options=5)
    by_epsilon = [
        RandomizedResponse.for_epsilon(e, options=k)
        for k in (5, 2, 3, 50)
        for e in numbers("1", "1/10", "3", "8")
    ]
    by_truth = [
        RandomizedResponse.for_truth(t, options=k)
        for t, k in zip(numbers("2/3", "51/100", "99/100"), (4, 2, 7), strict=True)
    ]
    settings = [*by_epsilon[:7], *by_truth, *by_epsilon[7:]]
    return [
        mechanism_case("randomized response", RandomizedResponse, settings, report_pairs,
              [sampled_on("answers 0 and 3 of five", _report, options, 0, 3)]),
        mechanism_case("two coins", RandomizedResponse, [coins], report_pairs,
              [sampled_on("answers 0 and 1", _report, coins, 0, 1)], epsilon=coins.loss.epsilon),
    ]  # fmt: skip


def mechanism_cases() -> list[AuditCase]:
    """Return the cases of all mechanisms."""
    return [
        _laplace(),
        _laplace_shares(),
        _gaussian(),
        _gaussian_shares(),
        *_choices(),
        _above_threshold(),
        _quantile(),
        _extreme(),
        _keys(),
        *_responses(),
    ]
