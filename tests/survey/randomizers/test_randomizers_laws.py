"""Every randomizer's law, message by message, in rational arithmetic, and what it reveals."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import product
from math import comb
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.core.exact import exp_up
from lapwing.core.noise import uniform_int
from lapwing.errors import BadParameter, BadValue
from lapwing.survey.randomizers import (
    ODDS,
    BitwiseResponse,
    DuchiResponse,
    FrequencyOracle,
    HadamardResponse,
    KaryResponse,
    PrefixResponse,
    ProjectiveResponse,
    Randomizer,
    SubsetSelection,
    UnaryEncoding,
    WindowResponse,
    from_recipe,
)
from lapwing.survey.randomizers.index_oracles import orthogonal, points_in
from lapwing.survey.randomizers.randomizer import (
    TwoLevel,
    greatest_favoured,
    ratio_is_within,
    two_level_ratio,
)
from support.cases import each
from support.laws import CONTEXT, decimal, follows
from support.randomizers import ORACLES, SMALL, accepted, law, possible, some_answers
from support.slowly import slow
from support.streams import SeededStream

DRAWS = 60_000


def messages_of(randomizer: Randomizer) -> int:  # noqa: PLR0911
    """How many there must be, by formula."""
    match randomizer:
        case KaryResponse():
            return randomizer.options
        case SubsetSelection():
            return comb(randomizer.options, randomizer.chosen)
        case HadamardResponse():
            return 1 << randomizer.bits
        case ProjectiveResponse():
            return sum(randomizer.prime**m for m in range(randomizer.dimension))
        case BitwiseResponse() | UnaryEncoding():
            return 1 << randomizer.options
        case WindowResponse():
            windows = 1 + randomizer.none
            return randomizer.steps * randomizer.stride + windows * randomizer.width
        case DuchiResponse():
            return 2 + randomizer.none
        case PrefixResponse():
            return sum(messages_of(inner) for inner in randomizer.inner)
    return messages_of(randomizer.window) + messages_of(randomizer.duchi)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name", [slow(name) if name in ("points for letters", "prefixes") else name for name in SMALL]
)
def test_exactly_the_possible_messages_are_accepted(name: str) -> None:
    assert len(possible(name)) == messages_of(SMALL[name])


@each("name", SMALL)
def test_probabilities_add_up_to_one(name: str) -> None:
    for answer in some_answers(SMALL[name]):
        assert sum(law(name, answer).values()) == 1
        assert min(law(name, answer).values()) > 0, "what is impossible is refused"


@each("name", SMALL)
def test_the_worst_ratio_is_the_claimed_one(name: str) -> None:
    """All messages, all pairs of answers: the claim holds and is reached."""
    randomizer = SMALL[name]
    laws = [law(name, answer) for answer in some_answers(randomizer)]
    worst = max(
        max(one[message] for one in laws) / min(one[message] for one in laws) for message in possible(name)
    )
    assert worst == randomizer.ratio
    assert ratio_is_within(worst, randomizer.loss.epsilon)
    assert worst <= exp_up(randomizer.loss.epsilon)


@each("name", SMALL)
def test_one_more_chance_would_be_too_many(name: str) -> None:
    """T is the greatest whole number within ε; the two coins are given, not chosen."""
    randomizer = SMALL[name]
    parts: list[object] = [randomizer]
    parts += [getattr(randomizer, part) for part in ("window", "duchi") if hasattr(randomizer, part)]
    parts += getattr(randomizer, "inner", ())
    for part in parts:
        if isinstance(part, TwoLevel) and part.epsilon is not None:
            assert ratio_is_within(two_level_ratio(part.favoured, part.share), part.epsilon)
            assert not ratio_is_within(two_level_ratio(part.favoured + 1, part.share), part.epsilon)
        if isinstance(part, BitwiseResponse):
            assert part.epsilon is not None
            assert not ratio_is_within(
                two_level_ratio(part.favoured + 1, Fraction(1, 2)) ** part.options, part.epsilon
            )
        if isinstance(part, UnaryEncoding):
            assert part.epsilon is not None
            assert not ratio_is_within(
                UnaryEncoding(part.options, part.one, part.zero - 1).ratio, part.epsilon
            )


@each("name", SMALL)
def test_every_message_travels_unchanged(name: str) -> None:
    randomizer = SMALL[name]
    rows = np.frombuffer(b"".join(possible(name)), dtype=np.uint8).reshape(-1, randomizer.size)
    messages = randomizer.decode(rows)
    assert len(messages) == len(rows)
    assert np.array_equal(randomizer.encode(messages), rows)
    assert len(randomizer.decode(rows[:0])) == 0
    assert randomizer.encode(messages).dtype == np.uint8


@pytest.mark.parametrize("name", SMALL)
def test_the_sampler_follows_the_law(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarm 1e-9 for each answer (and the stream is seeded)."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(5))
    randomizer = SMALL[name]
    numbers = {message: number for number, message in enumerate(possible(name))}
    for answer in [*some_answers(randomizer)[:4], randomizer.inputs - 1]:
        rows = randomizer.encode(randomizer.sample(np.full(DRAWS, answer)))
        drawn = np.array([numbers[row.tobytes()] for row in rows])
        follows(drawn, [decimal(p) for p in law(name, answer).values()])


@pytest.mark.parametrize("name", SMALL)
def test_each_answer_of_a_batch_is_randomized_by_itself(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mixed answers: messages of one of them follow its own law."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(6))
    randomizer = SMALL[name]
    answers = np.arange(4 * DRAWS) % min(randomizer.inputs, 4)
    rows = randomizer.encode(randomizer.sample(answers))
    numbers = {message: number for number, message in enumerate(possible(name))}
    drawn = np.array([numbers[row.tobytes()] for row in rows[answers == 1]])
    follows(drawn, [decimal(p) for p in law(name, 1).values()])


@each("name", SMALL)
def test_a_recipe_makes_the_same_randomizer_and_its_loss_is_computed(name: str) -> None:
    randomizer = SMALL[name]
    made = from_recipe(randomizer.recipe())
    assert made == randomizer
    assert made.recipe() == randomizer.recipe()
    assert isinstance(made, Randomizer)
    assert made.loss.epsilon <= randomizer.loss.epsilon
    assert made.loss.epsilon > randomizer.loss.epsilon - Fraction(1, 10**10)
    assert ratio_is_within(made.ratio, made.loss.epsilon)


@each("name", SMALL)
@each("answers", [[-1], [1 << 62], [0.5], [[0]], ["0"]])
def test_answers_outside_are_refused(name: str, answers: list[object]) -> None:
    with pytest.raises(BadValue):
        SMALL[name].sample(np.array(answers))


@each("name", SMALL)
def test_nobody_and_one_person_can_be_sampled(name: str) -> None:
    randomizer = SMALL[name]
    assert randomizer.encode(randomizer.sample(np.zeros(0, dtype=np.int64))).shape == (0, randomizer.size)
    assert randomizer.encode(randomizer.sample(np.array([1]))).shape == (1, randomizer.size)


@each("name", SMALL)
def test_messages_of_another_size_or_type_are_refused(name: str) -> None:
    size = SMALL[name].size
    wrong: list[NDArray[Any]] = [
        np.zeros((2, size + 1), np.uint8),
        np.zeros((2, size - 1), np.uint8),
        np.zeros(size, np.uint8),
    ]
    for rows in [*wrong, np.zeros((2, size), np.int64)]:
        with pytest.raises(BadValue):
            SMALL[name].decode(rows)


def test_two_coins_cost_ln_3() -> None:
    coins = KaryResponse.two_coins()
    assert coins.inside == Fraction(3, 4)
    assert coins.ratio == 3
    assert 0 <= decimal(coins.loss.epsilon) - CONTEXT.ln(Decimal(3)) < Decimal("1e-25")
    # counts / n - 1/4, divided by 1/2, is the textbook's 2 mean - 1/2.
    assert (coins.outside, coins.inside - coins.outside) == (Fraction(1, 4), Fraction(1, 2))


def test_words_of_two_levels_are_told_apart_and_padded() -> None:
    inner = HadamardResponse.for_epsilon(1, options=32), HadamardResponse.for_epsilon(1, options=1024)
    words = PrefixResponse(2, (1, 2), inner)
    assert words.size == 3
    short = [bytes([0, y, 0]) for y in range(64)]
    long = [bytes([1, *divmod(y, 256)]) for y in range(2048)]
    word = 7 << 5 | 21
    assert sum(words.probability(word, message) for message in short + long) == 1
    for message in short:
        assert words.probability(word, message) == inner[0].probability(7, message[1:2]) / 2
    for message in long[::97]:
        assert words.probability(word, message) == inner[1].probability(word, message[1:]) / 2
    for bad in (b"\0\0\1", b"\0\x40\0", b"\1\x08\0", b"\2\0\0", b"\xff\0\0"):
        assert not accepted(words, bad)
    rows = words.sample(np.full(4000, word))
    assert len(words.messages_of(rows, 0)) + len(words.messages_of(rows, 1)) == 4000
    assert words.part_answers(np.array([word]), 0).tolist() == [7]


@each("epsilon", [Fraction(1, 10**6), Fraction(1, 3), Fraction(1), Fraction(7), Fraction(1000)])
@each("share", [Fraction(1, 2), Fraction(1, 100), Fraction(99, 100)])
def test_the_favour_is_the_greatest_within_epsilon(epsilon: Fraction, share: Fraction) -> None:
    favoured = greatest_favoured(epsilon, share)
    assert share * ODDS < favoured < ODDS
    assert ratio_is_within(two_level_ratio(favoured, share), epsilon)
    assert favoured == ODDS - 1 or not ratio_is_within(two_level_ratio(favoured + 1, share), epsilon)


def test_an_epsilon_too_small_for_the_coins_is_refused() -> None:
    with pytest.raises(BadParameter, match="so small"):
        KaryResponse.for_epsilon("1e-9", options=1 << 30)


def test_a_stated_epsilon_below_the_truth_is_refused() -> None:
    with pytest.raises(BadParameter, match="below what these coins cost"):
        KaryResponse(2, 3 * ODDS // 4, Fraction(1))


@each("name", ORACLES)
def test_oracles_have_their_interface(name: str) -> None:
    assert isinstance(SMALL[name], FrequencyOracle)


def test_points_are_numbered_as_documented() -> None:
    """Fewer coordinates after the leading 1 come first, then their digits in base q: by brute force."""
    for prime, dimension in ((2, 4), (3, 3), (5, 2), (7, 3)):
        vectors = [
            (0,) * (dimension - 1 - after) + (1, *rest)
            for after in range(dimension)
            for rest in product(range(prime), repeat=after)
        ]
        assert len(vectors) == points_in(prime, dimension)
        space = ProjectiveResponse(prime, dimension, len(vectors), ODDS - 1)
        for number, vector in enumerate(vectors):
            expected = [
                sum(a * b for a, b in zip(vector, other, strict=True)) % prime == 0 for other in vectors
            ]
            assert space.membership(np.arange(len(vectors)), number).tolist() == expected
            assert sum(expected) == points_in(prime, dimension - 1)


@each("prime", [2, 3, 149, 65_537, 47_453_111, 2**31 - 1])
def test_orthogonal_rows_are_found_exactly_at_every_size(prime: int) -> None:
    """47,453,111 is near the greatest prime whose products of four coordinates fit a float."""
    rows = np.concatenate(
        [uniform_int(0, prime, 80).reshape(20, 4), np.full((1, 4), prime - 1), np.eye(4, dtype=np.int64)]
    )
    columns = np.concatenate([rows, rows[:, ::-1] * np.array([1, -1, 1, -1]) % prime])
    expected = [[sum(map(int.__mul__, a, b)) % prime == 0 for b in columns.tolist()] for a in rows.tolist()]
    assert orthogonal(rows, columns, prime).tolist() == expected
