"""Shares: exactly unbiased, as far from the truth as is claimed, and counted alike in every way."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.errors import BadParameter, BadValue
from lapwing.survey.randomizers import (
    BitwiseResponse,
    FrequencyOracle,
    HadamardResponse,
    KaryResponse,
    Messages,
    ProjectiveResponse,
    SubsetSelection,
    UnaryEncoding,
)
from support.randomizers import ORACLES, law, possible, some_answers
from support.streams import SeededStream


def holds(oracle: FrequencyOracle, answer: int, option: int) -> bool:
    return bool(answer >> option & 1) if isinstance(oracle, BitwiseResponse) else answer == option


def all_messages(name: str) -> Messages:
    oracle: FrequencyOracle = ORACLES[name]
    rows = np.frombuffer(b"".join(possible(name)), dtype=np.uint8).reshape(-1, oracle.size)
    return oracle.decode(rows)


@pytest.mark.parametrize("name", ORACLES)
def test_shares_are_unbiased_and_vary_as_claimed(name: str) -> None:
    """For every answer and option, over all messages, in rational arithmetic."""
    oracle: FrequencyOracle = ORACLES[name]
    messages = all_messages(name)
    for option in range(min(oracle.options, 8)):
        speaks = oracle.membership(messages, option)
        for answer in some_answers(oracle):
            spoken = sum(
                (p for p, yes in zip(law(name, answer).values(), speaks, strict=True) if yes), Fraction(0)
            )
            assert spoken == (oracle.inside if holds(oracle, answer, option) else oracle.outside)
    gap = oracle.inside - oracle.outside
    assert oracle.variance(0) == pytest.approx(float(oracle.outside * (1 - oracle.outside) / gap**2))
    assert oracle.variance(1) == pytest.approx(float(oracle.inside * (1 - oracle.inside) / gap**2))
    assert oracle.variance(0.25) == pytest.approx(0.25 * oracle.variance(1) + 0.75 * oracle.variance(0))


@pytest.mark.parametrize("name", ORACLES)
def test_all_ways_of_counting_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(1))
    oracle: FrequencyOracle = ORACLES[name]
    messages = oracle.sample(np.arange(5001) % oracle.inputs)
    counts = oracle.counts(messages)
    assert counts.dtype == np.int64
    assert counts.shape == (oracle.options,)
    assert counts.tolist() == [int(oracle.membership(messages, v).sum()) for v in range(oracle.options)]
    some = [oracle.options - 1, 0, 1 % oracle.options]
    assert oracle.counts_of(messages, some).tolist() == counts[some].tolist()
    nobody = oracle.sample(np.zeros(0, dtype=np.int64))
    assert oracle.counts(nobody).tolist() == [0] * oracle.options
    assert oracle.counts_of(nobody, some).tolist() == [0] * 3
    assert oracle.counts_of(messages, []).tolist() == []


@pytest.mark.parametrize("name", ORACLES)
def test_options_outside_are_refused(name: str) -> None:
    oracle: FrequencyOracle = ORACLES[name]
    messages = oracle.sample(np.zeros(3, dtype=np.int64))
    for option in (-1, oracle.options):
        with pytest.raises(BadValue):
            oracle.counts_of(messages, [option])
        with pytest.raises(BadValue):
            oracle.membership(messages, option)
    with pytest.raises(BadParameter):
        oracle.variance(1.5)


@pytest.mark.parametrize(
    ("oracle", "published"),
    [
        (KaryResponse.for_epsilon(1, options=100), 34.11),
        (UnaryEncoding.for_epsilon(1, options=100), 3.683),
        (SubsetSelection.for_epsilon(1, options=100), 3.590),
        (HadamardResponse.for_epsilon(1, options=100), 4.683),
    ],
)
def test_variances_are_the_published_ones(oracle: FrequencyOracle, published: float) -> None:
    assert oracle.variance(0) == pytest.approx(published, abs=0.0051)


def mean_squared_error(oracle: FrequencyOracle, people: int) -> float:
    """Of counts, when everyone is on one item."""
    others = oracle.options - 1
    return people * (oracle.variance(1) + others * oracle.variance(0)) / oracle.options


def test_errors_of_counts_are_the_published_ones() -> None:
    """Published from simulations: 272.8, 272.7 and 26.17, which are within one part in a hundred."""
    assert mean_squared_error(SubsetSelection.for_epsilon(5, options=22_000), 10_000) == pytest.approx(
        272.8, rel=0.01
    )
    points = ProjectiveResponse.for_epsilon(5, options=22_000)
    assert (points.prime, points.dimension, points.size) == (149, 3, 2)
    assert mean_squared_error(points, 10_000) == pytest.approx(272.7, rel=0.01)
    assert mean_squared_error(SubsetSelection.for_epsilon(5, options=1024), 1000) == pytest.approx(
        26.17, rel=0.01
    )


@settings(deadline=None)
@given(st.integers(2, 3000), st.integers(1, 80).map(lambda tenth: Fraction(tenth, 10)))
def test_the_size_of_sets_is_the_best_of_all_neighbours(options: int, epsilon: Fraction) -> None:
    best = SubsetSelection.for_epsilon(epsilon, options=options)
    for chosen in (best.chosen - 1, best.chosen + 1):
        if 1 <= chosen < options:
            other = SubsetSelection.for_epsilon(epsilon, options=options, chosen=chosen)
            assert best.variance(0) <= other.variance(0) * (1 + 1e-9)


def test_sets_of_one_are_k_ary_randomized_response() -> None:
    alone, choice = SubsetSelection.for_epsilon(4, options=5), KaryResponse.for_epsilon(4, options=5)
    assert alone.chosen == 1
    assert (alone.favoured, alone.inside, alone.outside) == (choice.favoured, choice.inside, choice.outside)


@settings(deadline=None)
@given(st.integers(2, 1 << 60), st.integers(1, 100).map(lambda tenth: Fraction(tenth, 10)))
def test_every_number_of_options_has_a_space(options: int, epsilon: Fraction) -> None:
    points = ProjectiveResponse.for_epsilon(epsilon, options=options)
    assert points.options == options <= points.messages <= 1 << 62
    assert points.size <= 8


@pytest.mark.parametrize("epsilon", [1, 3, 6])
def test_points_are_nearly_as_good_as_sets(epsilon: int) -> None:
    points, sets = (
        ProjectiveResponse.for_epsilon(epsilon, options=5000),
        SubsetSelection.for_epsilon(epsilon, options=5000),
    )
    assert points.variance(0) < 1.05 * sets.variance(0)


@pytest.mark.parametrize("bits", [31, 61])
def test_huge_domains_count_what_is_named(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The true answer among 2^30 and 2^60 (five deviations: false alarm below 1e-6, seeded)."""
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(2))
    options = 1 << (bits - 1)
    true, people = options - 3, 20_000
    for oracle in (
        HadamardResponse.for_epsilon(1, options=options),
        ProjectiveResponse.for_epsilon(3, options=options),
    ):
        messages = oracle.decode(oracle.encode(oracle.sample(np.full(people, true))))
        with pytest.raises(BadParameter, match="too many to count all"):
            oracle.counts(messages)
        shares = oracle.counts_of(messages, [true, 0, options // 3]) / people - float(oracle.outside)
        shares /= float(oracle.inside - oracle.outside)
        errors = [(oracle.variance(share) / people) ** 0.5 for share in (1, 0, 0)]
        assert np.all(np.abs(shares - [1, 0, 0]) < 5 * np.array(errors))


def test_many_points_are_counted_as_the_definition_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.core.noise.SYSTEM", SeededStream(3))
    monkeypatch.setattr("lapwing.survey.randomizers.index_oracles.PAIRS", 1000)  # several rounds
    for epsilon, options in ((1, 364), (2, 300), (5, 2000)):
        points = ProjectiveResponse.for_epsilon(epsilon, options=options)
        messages = points.sample(np.arange(4000) % options)
        assert points.counts(messages).tolist() == points.counts_of(messages, np.arange(options)).tolist()
