"""The shuffled ε is never below the truth: all laws of few reports, by brute force."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from lapwing.core.exact import log_up
from lapwing.errors import BadParameter
from lapwing.survey.randomizers import KaryResponse, Randomizer, from_recipe
from lapwing.survey.shuffled import BlanketPiece, excess, general_law, law_of, shuffled_epsilon

ODDS = 1 << 48
DELTA = Fraction(1, 10**6)
Seen = dict[tuple[int, ...], Fraction]
Matrix = list[list[Fraction]]  # a row for each answer: the probabilities of its messages


def made(**recipe: Any) -> Randomizer:
    return from_recipe(recipe)


def shuffled_law(rows: list[list[Fraction]]) -> Seen:
    """The law of the histogram of independent messages, one from each row."""
    law: Seen = defaultdict(Fraction, {(0,) * len(rows[0]): Fraction(1)})
    for row in rows:
        grown: Seen = defaultdict(Fraction)
        for seen, p in law.items():
            for message, q in enumerate(row):
                more = (*seen[:message], seen[message] + 1, *seen[message + 1 :])
                grown[more] += p * q
        law = grown
    return law


def true_excess(matrix: Matrix, growth: Fraction, n: int) -> Fraction:
    """The greatest δ at e^ε = growth, over all pairs of answers and all answers of the others."""
    worst = Fraction(0)
    inputs = range(len(matrix))
    for others in combinations_with_replacement(inputs, n - 1):
        laws = [shuffled_law([matrix[own], *(matrix[x] for x in others)]) for own in inputs]
        for one, other in product(laws, laws):
            gaps = (p - growth * other[s] for s, p in one.items())
            worst = max(worst, sum((gap for gap in gaps if gap > 0), start=Fraction(0)))
    return worst


def choice_matrix(k: int, favoured: int) -> Matrix:
    truth = Fraction(favoured, ODDS)
    return [[truth if i == j else (1 - truth) / (k - 1) for j in range(k)] for i in range(k)]


def ratio_of(matrix: Matrix) -> Fraction:
    return max(one[y] / other[y] for one in matrix for other in matrix for y in range(len(one)))


@pytest.mark.parametrize(("k", "favoured"), [(2, 3 << 46), (3, 1 << 47), (3, 7 << 45), (4, 1 << 47)])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_bound_is_never_below_the_truth_for_few_reports(k: int, favoured: int, n: int) -> None:
    matrix = choice_matrix(k, favoured)
    local = log_up(ratio_of(matrix))
    law = law_of(made(kind="choice", options=k, favoured=favoured))
    assert law is not None
    for part in (0, 1, 3, 7):
        epsilon = local * part / 8
        growth = Fraction(math.exp(float(epsilon))) * (1 - Fraction(1, 10**12))  # the harder side
        truth = true_excess(matrix, growth, n)
        own = excess(law, epsilon, n, DELTA)
        assert truth <= own + Fraction(1, 10**9)
        assert own <= excess(general_law(local), epsilon, n, DELTA)
        if n == 1:
            assert float(own) == pytest.approx(float(truth), abs=1e-9), "alone, nobody hides"


def test_the_general_bound_holds_for_randomizers_of_any_shape() -> None:
    """Random tables of three answers and four messages, with ratios anywhere between the extremes."""
    generator = np.random.Generator(np.random.Philox(5))
    for _ in range(25):
        weights = generator.integers(1, 5, size=(3, 4))
        matrix = [[Fraction(int(w), int(row.sum())) for w in row] for row in weights]
        local = log_up(ratio_of(matrix))
        for part in (0, 2, 5):
            epsilon = local * part / 8
            growth = Fraction(math.exp(float(epsilon))) * (1 - Fraction(1, 10**12))
            for n in (2, 3):
                bound = excess(general_law(local), epsilon, n, DELTA)
                assert true_excess(matrix, growth, n) <= bound + Fraction(1, 10**9)


def projective_matrix(q: int, t: int, favoured: int) -> Matrix:
    """Points of the projective space as messages; those orthogonal to the answer's point are favoured."""
    points = [v for v in product(range(q), repeat=t) if any(v) and next(x for x in v if x) == 1]
    rows = []
    for own in points[:3]:
        inside = [sum(a * b for a, b in zip(own, y, strict=True)) % q == 0 for y in points]
        size, truth = sum(inside), Fraction(favoured, ODDS)
        rows.append([truth / size if a else (1 - truth) / (len(points) - size) for a in inside])
    return rows


def window_matrix(steps: int, stride: int, width: int, none: int, favoured: int) -> Matrix:
    size = steps * stride + width + none * width
    truth = Fraction(favoured, ODDS)
    starts = [x * stride for x in range(steps + 1)] + [size - width] * none
    return [
        [truth / width if s <= y < s + width else (1 - truth) / (size - width) for y in range(size)]
        for s in starts
    ]


def hadamard_matrix(bits: int, options: int, favoured: int) -> Matrix:
    size, truth = 1 << bits, Fraction(favoured, ODDS)
    even = [[(y & (v + 1)).bit_count() % 2 == 0 for y in range(size)] for v in range(options)]
    return [[truth / (size // 2) if e else (1 - truth) / (size // 2) for e in row] for row in even]


def subset_matrix(k: int, d: int, favoured: int) -> Matrix:
    masks = [m for m in range(1 << k) if m.bit_count() == d]
    truth = Fraction(favoured, ODDS)
    inside = math.comb(k - 1, d - 1)
    return [
        [truth / inside if m >> v & 1 else (1 - truth) / (len(masks) - inside) for m in masks]
        for v in range(k)
    ]


SHAPES = [
    ({"kind": "projective", "prime": 2, "dimension": 3, "options": 3}, projective_matrix(2, 3, 5 << 45)),
    ({"kind": "hadamard", "bits": 2, "options": 3}, hadamard_matrix(2, 3, 5 << 45)),
    ({"kind": "subset", "options": 4, "chosen": 2}, subset_matrix(4, 2, 5 << 45)),
    (
        {"kind": "window", "steps": 2, "stride": 1, "width": 3, "none": 0},
        window_matrix(2, 1, 3, 0, 5 << 45),
    ),
    (
        {"kind": "window", "steps": 1, "stride": 2, "width": 2, "none": 1},
        window_matrix(1, 2, 2, 1, 5 << 45),
    ),
]


@pytest.mark.parametrize(("recipe", "matrix"), SHAPES)
def test_the_bound_of_a_protocol_is_never_below_its_truth(recipe: dict[str, Any], matrix: Matrix) -> None:
    local = log_up(ratio_of(matrix))
    law = law_of(made(**recipe, favoured=5 << 45))
    assert law is not None
    for part in (0, 2, 5):
        epsilon = local * part / 8
        growth = Fraction(math.exp(float(epsilon))) * (1 - Fraction(1, 10**12))
        for n in (1, 2, 3):
            own = excess(law, epsilon, n, DELTA)
            assert true_excess(matrix, growth, n) <= own + Fraction(1, 10**9)


@pytest.mark.parametrize("n", [1, 2, 7, 40])
@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(1, 10), Fraction(9, 10)])
def test_the_excess_is_the_sum_over_all_numbers_of_clones(n: int, epsilon: Fraction) -> None:
    """Independent of the recursion: own report and n - 1 others, each a clone of either side or known."""
    ratio, growth = math.e, math.exp(float(epsilon))
    total = 0.0
    for clones in range(n):
        a = np.arange(clones + 2)
        up, stay = binom.pmf(a - 1, clones, 0.5), binom.pmf(a, clones, 0.5)
        one, other = (ratio * up + stay) / (ratio + 1), (up + ratio * stay) / (ratio + 1)
        total += binom.pmf(clones, n - 1, 2 / (ratio + 1)) * np.maximum(one - growth * other, 0).sum()
    found = excess(general_law(Fraction(1)), epsilon, n, Fraction(1, 10**30))
    assert float(found) == pytest.approx(total, rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon0", "n", "published"),
    [(log_up(3), 1_000, "0.2094"), (1, 10_000, "0.0530"), (4, 100_000, "0.1698")],
)
def test_it_is_no_greater_than_the_published_bounds(epsilon0: Fraction, n: int, published: str) -> None:
    """The numeric bounds of Feldman, McMillan and Talwar (2023) for general randomizers."""
    assert shuffled_epsilon(epsilon0, n, DELTA) <= Fraction(published)


def test_it_is_the_least_epsilon_that_is_proven() -> None:
    found = shuffled_epsilon(1, 10_000, DELTA)
    assert excess(general_law(Fraction(1)), found, 10_000, DELTA) <= DELTA
    assert excess(general_law(Fraction(1)), found - Fraction(1, 10**7), 10_000, DELTA) > DELTA


@pytest.mark.parametrize("epsilon0", [Fraction(1, 100), Fraction(1), Fraction(9)])
def test_it_never_exceeds_the_local_epsilon_and_falls_with_more_reports(epsilon0: Fraction) -> None:
    found = [shuffled_epsilon(epsilon0, n, DELTA) for n in (1, 2, 30, 1_000, 30_000)]
    assert found[0] <= epsilon0
    assert found == sorted(found, reverse=True)


def test_alone_with_delta_nearly_nothing_is_gained() -> None:
    assert 1 - Fraction(1, 10**5) < shuffled_epsilon(1, 1, DELTA) <= 1


def test_a_tiny_delta_is_no_trouble() -> None:
    assert shuffled_epsilon(1, 50, Fraction(1, 10**200)) <= 1


@pytest.mark.parametrize("recipe", [recipe for recipe, _ in SHAPES])
def test_a_known_protocol_hides_at_least_as_well_as_any(recipe: dict[str, Any]) -> None:
    one = made(**recipe, favoured=5 << 45)
    assert shuffled_epsilon(2, 5_000, DELTA, one) <= shuffled_epsilon(2, 5_000, DELTA)


def test_ten_options_hide_better_than_two() -> None:
    truth = Fraction(math.e / (math.e + 9))
    ten = made(kind="choice", options=10, favoured=int(truth * ODDS))
    assert shuffled_epsilon(1, 10_000, DELTA, ten) < Fraction(65, 100) * shuffled_epsilon(1, 10_000, DELTA)


def test_one_question_at_random_hides_among_all_who_got_it() -> None:
    two = made(kind="choice", options=2, favoured=3 << 46)
    local = log_up(3)
    alone, drawn = (shuffled_epsilon(local, 10_000, DELTA, parts) for parts in (two, [two] * 4))
    fewer = shuffled_epsilon(local, 2_500, DELTA, two)
    assert drawn < fewer, "which question she got is not known either"
    assert drawn == alone, "nor how many others got it"


def test_mixtures_fall_back_where_a_part_is_not_known() -> None:
    local = log_up(9)
    known = made(kind="duchi", steps=10, none=1, favoured=3 << 46)
    unary = made(kind="unary", options=4, one=1 << 47, zero=1 << 46)
    plain = shuffled_epsilon(local, 1_000, DELTA)
    assert shuffled_epsilon(local, 1_000, DELTA, [known, unary]) == plain
    window = {"kind": "window", "steps": 10, "stride": 1, "width": 5, "none": 1, "favoured": 3 << 46}
    hybrid = made(kind="hybrid", odds=1 << 47, window=window, duchi=known.recipe())
    assert shuffled_epsilon(local, 1_000, DELTA, hybrid) < plain
    drawn = [from_recipe(window), known]
    assert shuffled_epsilon(local, 1_000, DELTA, hybrid) == shuffled_epsilon(local, 1_000, DELTA, drawn)
    one = made(kind="subset", options=32, chosen=1, favoured=1 << 46)
    two = made(kind="hadamard", bits=11, options=1024, favoured=3 << 46)
    words = made(kind="prefixes", letters=2, levels=[1, 2], inner=[one.recipe(), two.recipe()])
    local = words.loss.epsilon
    assert shuffled_epsilon(local, 1_000, DELTA, words) == shuffled_epsilon(local, 1_000, DELTA, [one, two])


def test_a_randomizer_that_loses_more_is_refused() -> None:
    honest, loose = KaryResponse.two_coins(), KaryResponse.for_epsilon(2, options=2)
    assert shuffled_epsilon(log_up(3), 100, DELTA, honest) < log_up(3)
    for parts in (loose, [honest, loose], (loose,)):
        with pytest.raises(BadParameter, match="loses more than epsilon0"):
            shuffled_epsilon(log_up(3), 100, DELTA, parts)


@pytest.mark.parametrize("rare", [1, 1 << 46, 1 << 47])
def test_a_coin_whose_own_messages_are_not_the_likelier_ones_cannot_be_made(rare: int) -> None:
    """Such coins tell a lot, or nothing: the pieces of two levels would be wrong for them."""
    for recipe in ({"kind": "choice", "options": 2}, {"kind": "duchi", "steps": 10, "none": 0}):
        with pytest.raises(BadParameter, match="likelier than by chance"):
            made(**recipe, favoured=rare)


def test_coins_that_tell_nothing_have_no_excess() -> None:
    even = (BlanketPiece(Fraction(1), Fraction(1), Fraction(1)),)
    assert excess(even, Fraction(0), 5, DELTA) == 0


@pytest.mark.parametrize(
    ("epsilon0", "n", "delta"), [(0, 10, DELTA), (1, 0, DELTA), (1, 10, 0), (1, 10, 1), (1, 10, "nan")]
)
def test_senseless_parameters_are_refused(epsilon0: int, n: int, delta: Fraction) -> None:
    with pytest.raises(BadParameter):
        shuffled_epsilon(epsilon0, n, delta)
