"""Scores of linear functions: their expectation over all messages is the function, exactly."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lapwing.survey.estimating.scores import (
    function_scores,
    option_scores,
    question_functions,
    score_extremes,
    share_functions,
)
from lapwing.survey.randomizers import (
    BitwiseResponse,
    FrequencyOracle,
    HadamardResponse,
    KaryResponse,
    ProjectiveResponse,
    SubsetSelection,
    UnaryEncoding,
)
from support.estimated import designed, indices, law_of, means

FIVE = np.array([[1.0, 0.5], [2.0, -1.0], [3.0, 0.0], [4.0, 2.0], [0.0, 0.0]])


def masks(options: int, size: int | None) -> NDArray[np.uint8]:
    """All sets of options, or those of one size, as rows."""
    chosen = [m for m in range(1 << options) if size is None or m.bit_count() == size]
    return np.array([[m] for m in chosen], dtype=np.uint8)


def all_rows(oracle: FrequencyOracle) -> NDArray[np.uint8]:
    match oracle:
        case SubsetSelection():
            return masks(oracle.options, oracle.chosen)
        case UnaryEncoding():
            return masks(oracle.options, None)
        case HadamardResponse():
            return indices(oracle, 1 << oracle.bits)[1]
        case ProjectiveResponse():
            return indices(oracle, oracle.messages)[1]
        case _:
            return indices(oracle, oracle.options)[1]


ORACLES: list[FrequencyOracle] = [
    KaryResponse.for_epsilon(1, options=5),
    SubsetSelection.for_epsilon(1, options=5),
    UnaryEncoding.for_epsilon(1, options=5),
    HadamardResponse.for_epsilon(1, options=5),
    ProjectiveResponse.for_epsilon(2, options=5),
]


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: type(oracle).__name__)
def test_scores_have_the_function_as_expectation(oracle: FrequencyOracle) -> None:
    rows = all_rows(oracle)
    scores = function_scores(oracle, oracle.decode(rows), FIVE)
    for answer in range(5):
        assert means(law_of(oracle, rows, answer), scores) == pytest.approx(FIVE[answer], abs=1e-9)
    held = option_scores(oracle, oracle.decode(rows), 3)
    for answer in range(5):
        assert means(law_of(oracle, rows, answer), held) == pytest.approx(float(answer == 3), abs=1e-9)


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: type(oracle).__name__)
def test_extremes_are_those_of_all_possible_messages(oracle: FrequencyOracle) -> None:
    scores = function_scores(oracle, oracle.decode(all_rows(oracle)), FIVE)
    low, high = score_extremes(oracle, FIVE)
    assert low == pytest.approx(scores.min(axis=0))
    assert high == pytest.approx(scores.max(axis=0))


def test_bits_are_functions_of_their_options() -> None:
    bits = BitwiseResponse.for_epsilon(2, options=3)
    rows = masks(3, None)
    scores = function_scores(bits, bits.decode(rows), np.eye(3))
    for answer in range(8):
        expected = [answer >> place & 1 for place in range(3)]
        assert means(law_of(bits, rows, answer), scores) == pytest.approx(expected, abs=1e-9)
    assert score_extremes(bits, np.eye(3))[1] == pytest.approx(scores.max(axis=0))


def test_a_rating_has_a_mean_of_those_who_answered(tmp_path: Path) -> None:
    question = designed(tmp_path, 'kind = "rating"\nlow = -2\nhigh = 2').parts[0].question
    (mean,) = question_functions(question)
    assert mean.values[:, 0].tolist() == [-2, -1, 0, 1, 2, 0]
    assert (mean.none, mean.of, mean.low, mean.high) == (5, "answered", -2, 2)


def test_a_ranking_has_mean_ranks_and_pairs(tmp_path: Path) -> None:
    lines = 'kind = "ranking"\noptions = ["a", "b", "c"]'
    question = designed(tmp_path, lines).parts[0].question
    ranks, pairs = question_functions(question)
    code = question.code(["c", "a", "b"])
    assert ranks.values[code].tolist() == [2, 3, 1]
    assert dict(zip(pairs.labels, pairs.values[code].tolist(), strict=True)) == {
        "a before b": 1,
        "a before c": 0,
        "b before c": 0,
    }
    silent = question.code(None)
    assert not ranks.values[silent].any()
    assert not pairs.values[silent].any()


def test_sets_have_the_share_of_every_option(tmp_path: Path) -> None:
    lines = 'kind = "several"\nas = "set"\noptions = ["x", "y"]'
    question = designed(tmp_path, lines).parts[0].question
    (shares,) = question_functions(question)
    assert shares.labels == ("x", "y", "no answer")
    for chosen in [*combinations("xy", 1), *combinations("xy", 2), ()]:
        expected = [float(label in chosen) for label in "xy"]
        assert shares.values[question.code(list(chosen))].tolist() == [*expected, 0]
    assert shares.values[question.code(None)].tolist() == [0, 0, 1]


def test_shares_of_those_who_answered_leave_no_answer_out(tmp_path: Path) -> None:
    question = designed(tmp_path, 'kind = "yes_no"').parts[0].question
    assert share_functions(question).labels == question.labels
    answered = share_functions(question, of="answered")
    assert answered.labels == question.labels[:-1]
    assert answered.none == 2
