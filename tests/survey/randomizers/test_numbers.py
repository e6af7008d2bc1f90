"""Numbers: scores are exactly unbiased, and stray as far as is claimed."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.errors import BadParameter
from lapwing.survey.randomizers import (
    ODDS,
    DuchiResponse,
    HybridResponse,
    Messages,
    NumericRandomizer,
    Piecewise,
    SquareWave,
    WindowResponse,
)
from support.randomizers import NUMERIC, law, possible
from support.slowly import slow
from support.streams import SeededStream

TENTHS = st.integers(1, 80).map(lambda tenth: Fraction(tenth, 10))


def exact_score(randomizer: WindowResponse | DuchiResponse | HybridResponse, message: bytes) -> Fraction:
    """What `scores` must be, as a rational."""
    if isinstance(randomizer, HybridResponse):
        part = randomizer.window if message[0] else randomizer.duchi
        return exact_score(part, message[1 : 1 + part.size])
    number = int.from_bytes(message, "big")
    if isinstance(randomizer, DuchiResponse):
        ends = randomizer.ends
        return ((number == 1) - ends.outside) / (ends.inside - ends.outside)
    a, b, c = randomizer.line()
    return c if number >= randomizer.numbers else a * number + b


def expected(randomizer: WindowResponse | DuchiResponse | HybridResponse, answer: int) -> Fraction:
    return Fraction(0) if answer > randomizer.steps else Fraction(answer, randomizer.steps)


def sent(name: str) -> Messages:
    randomizer: NumericRandomizer = NUMERIC[name]
    rows = np.frombuffer(b"".join(possible(name)), dtype=np.uint8).reshape(-1, randomizer.size)
    return randomizer.decode(rows)


@pytest.mark.parametrize(
    "name", [slow(name) if name in ("piecewise, fine", "hybrid or none") else name for name in NUMERIC]
)
def test_scores_are_exactly_unbiased(name: str) -> None:
    randomizer = NUMERIC[name]
    for answer in range(randomizer.inputs):
        mean = sum(p * exact_score(randomizer, message) for message, p in law(name, answer).items())
        assert mean == expected(randomizer, answer)
    scores = randomizer.scores(sent(name))
    exact = [float(exact_score(randomizer, message)) for message in possible(name)]
    assert scores == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("name", NUMERIC)
def test_who_answered_is_unbiased_too(name: str) -> None:
    randomizer = NUMERIC[name]
    told = randomizer.answered(sent(name))
    for answer in range(randomizer.inputs):
        mean = sum(float(p) * one for p, one in zip(law(name, answer).values(), told, strict=True))
        assert mean == pytest.approx(float(answer <= randomizer.steps), abs=1e-9)


@pytest.mark.parametrize("name", NUMERIC)
def test_the_worst_variance_is_that_of_the_worst_answer(name: str) -> None:
    randomizer = NUMERIC[name]
    variances = []
    for answer in range(randomizer.inputs):
        squares = sum(p * exact_score(randomizer, message) ** 2 for message, p in law(name, answer).items())
        variances.append(float(squares - expected(randomizer, answer) ** 2))
    assert randomizer.worst_variance() == pytest.approx(max(variances), rel=1e-9)


@pytest.mark.parametrize("name", NUMERIC)
def test_they_have_their_interface(name: str) -> None:
    assert isinstance(NUMERIC[name], NumericRandomizer)


@pytest.mark.parametrize("none", [False, True])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_the_mean_of_many_is_near_the_truth(
    epsilon: Fraction, none: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six deviations: false alarm below 1e-8 for each (and the stream is seeded)."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(4))
    people, steps = 200_000, 50
    answers = np.arange(people) % (steps + 1 + none)
    truth = np.where(answers > steps, 0, answers).mean() / steps
    made: list[NumericRandomizer] = [
        kind.for_epsilon(epsilon, steps=steps, none=none) for kind in (DuchiResponse, HybridResponse)
    ]
    made += [kind.for_epsilon(epsilon, steps=steps, none=none) for kind in (Piecewise, SquareWave)]
    for randomizer in made:
        messages = randomizer.decode(randomizer.encode(randomizer.sample(answers)))
        error = math.sqrt(randomizer.worst_variance() / people)
        assert abs(randomizer.scores(messages).mean() - truth) < 6 * error
        share = (answers <= steps).mean()
        told = randomizer.answered(messages)
        assert abs(told.mean() - share) <= 6 * told.std() / math.sqrt(people) + 1e-12


@settings(max_examples=20, deadline=None)
@given(TENTHS, st.integers(1, 5000), st.booleans())
def test_the_hybrid_is_at_worst_as_good_as_its_parts(epsilon: Fraction, steps: int, none: bool) -> None:
    hybrid = HybridResponse.for_epsilon(epsilon, steps=steps, none=none)
    parts = (hybrid.window.worst_variance(), hybrid.duchi.worst_variance())
    assert hybrid.worst_variance() <= min(parts) * (1 + 1e-9)
    assert 0 <= hybrid.odds <= ODDS
    assert hybrid.loss.epsilon == epsilon


def test_up_to_061_the_hybrid_is_all_duchi() -> None:
    assert HybridResponse.for_epsilon("0.6", steps=1000, none=False).odds == 0
    assert HybridResponse.for_epsilon("0.7", steps=1000, none=False).odds > 0


@pytest.mark.parametrize("epsilon", [1, 2, 4])
def test_variances_are_those_of_the_continuous_methods(epsilon: int) -> None:
    """On [-1, 1], four times those on [0, 1] (Wang and others, 2019; Duchi and others, 2018)."""
    half = math.exp(epsilon / 2)
    piecewise = 4 * half / (3 * (half - 1) ** 2)
    ends = ((half**2 + 1) / (half**2 - 1)) ** 2
    steps = 100_000
    window = WindowResponse.with_width(
        epsilon, steps=steps, stride=1, width=round(steps / half), none=False
    )
    assert 4 * window.worst_variance() == pytest.approx(piecewise, rel=0.001)
    best = Piecewise.for_epsilon(epsilon, steps=steps, none=False)
    assert best.worst_variance() < window.worst_variance(), "another width is better at worst"
    assert 4 * DuchiResponse.for_epsilon(
        epsilon, steps=100_000, none=False
    ).worst_variance() == pytest.approx(ends)
    mixed = half**-1 * ends + (1 - half**-1) * piecewise
    assert 4 * HybridResponse.for_epsilon(epsilon, steps=100_000, none=False).worst_variance() < mixed


def test_the_square_wave_has_the_published_width() -> None:
    for epsilon, half in ((1, 0.2560), (2, 0.1293)):
        wave = SquareWave.for_epsilon(epsilon, steps=10_000, none=False)
        assert wave.stride == 1
        assert wave.width / 20_000 == pytest.approx(half, abs=1e-3)
    assert SquareWave.for_epsilon("1e-6", steps=1000, none=False).width == 1000
    assert SquareWave.for_epsilon(900, steps=1000, none=True).width == 1


@pytest.mark.parametrize("kind", [SquareWave, Piecewise, DuchiResponse, HybridResponse])
def test_bad_parameters_are_refused(kind: type[DuchiResponse]) -> None:
    for epsilon, steps in ((0, 5), (-1, 5), ("nan", 5), (1, 0), (1, 1 << 60)):
        with pytest.raises(BadParameter):
            kind.for_epsilon(epsilon, steps=steps, none=False)
