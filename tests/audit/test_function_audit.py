"""Broken functions of somebody else's are caught, and those that break the contract are not judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lapwing.audit.case import Family, Stage, StageBudget, StageResult
from lapwing.audit.function_audit import case_of_function
from lapwing.errors import BadParameter
from support.slowly import slow

SOURCE = """
import numpy as np
rng = np.random.default_rng()
fixed = np.random.default_rng(7)

def count(data):
    return int(np.clip(np.nan_to_num(data), 0, 1).sum()) if len(data) else 0

def noise(scale, size):
    odds = 1 - np.exp(-1 / scale)
    return rng.geometric(odds, size) - rng.geometric(odds, size)

def good(data, size):
    return count(data) + noise(1, size)

def floats(data, size):
    return count(data) + rng.laplace(0, 1, size)

def each_call(data, size):
    return count(data) + np.random.default_rng(1).laplace(0, 1, size)

def one_seed(data, size):
    return count(data) + fixed.laplace(0, 1, size)

def same_noise(data, size):
    return [count(data) + rng.laplace()] * size

def by_size(data, size):
    return count(data) + rng.laplace(0, 1 if size == 1 else 100, size)

def raises(data, size):
    if len(data) > 10:
        raise ValueError("more than ten")
    return good(data, size)

def hangs(data, size):
    while size > 3:
        pass
    return [0] * size

def nothing(data, size):
    pass

def too_few(data, size):
    return [1]

def strange(data, size):
    return [object()] * size

def texts_only(data, size):
    return [data.upper()] * size

def suppressed(data, size):
    return [len(data) if len(data) >= 20 else -1] * size

def single(data, size):
    return np.array([len(data)]) if size == 1 and len(data) <= 1 else len(data) + noise(1, size)

def ordered(data, size):
    return np.sort(good(data, size)) if size > 2 else good(data, size)

def few_seeds(data, size):
    seed = int(rng.integers(128))
    return count(data) + np.random.default_rng(seed).integers(0, 50, size)

def small(data, size):
    return noise(1, size).astype(np.int8 if len(data) % 2 else np.int64)

def rare_nan(data, size):
    bits = (rng.random(size) < 1 / (1 + np.e)) ^ (len(data) > 10)
    rare = rng.random(size) < 2e-4
    return np.where(rare, np.nan, bits.astype(int)) if rare.any() else bits.astype(int)

def generator(data, size):
    for _ in range(size):
        yield 1 // int(rng.integers(8) > 0)

def nan(data, size):
    return np.full(size, np.nan)
"""
ONE_PAIR = [[[0] * 10, [0] * 10 + [1]]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("theirs") / "theirs.py"
    file.write_text(SOURCE)
    return str(file)


def audited(path: str, name: str, seconds: float = 60) -> StageResult:
    case = case_of_function(f"{path}:{name}", 1, pairs=ONE_PAIR, seconds=seconds)
    return case.stages[Stage.SAMPLED](StageBudget(seconds=20, is_thorough=False))


def test_a_case_says_why_it_is_only_sampled(path: str) -> None:
    case = case_of_function(f"{path}:good", "0.5", "1e-6")
    assert case.family is Family.FUNCTION
    assert case.reason
    assert list(case.stages) == [Stage.SAMPLED]


@pytest.mark.slow
def test_a_correct_function_is_not_contradicted(path: str) -> None:
    result = audited(path, "good")
    assert result.holds, result
    assert result.measured is not None
    assert 0.8 < result.measured <= 1


@pytest.mark.parametrize(("name", "event"), [slow("floats", "lowest bit"), ("raises", "")])
def test_a_broken_function_is_caught(path: str, name: str, event: str) -> None:
    result = audited(path, name)
    assert result.witness is not None
    assert event in result.witness.event


@pytest.mark.parametrize(("name", "event"), [("each_call", "two calls"), ("one_seed", "two processes")])
def test_a_seed_that_is_used_twice_is_caught(path: str, name: str, event: str) -> None:
    result = audited(path, name)
    assert result.witness is not None
    assert event in result.witness.event


@pytest.mark.parametrize(
    ("name", "event"), [("few_seeds", "few seeds"), ("small", "the type of an output")]
)
def test_few_seeds_and_types_are_caught(path: str, name: str, event: str) -> None:
    result = audited(path, name)
    assert result.witness is not None
    assert event in result.witness.event


@pytest.mark.slow
def test_a_count_that_is_exact_for_many_rows_is_caught_by_the_default_pairs(path: str) -> None:
    case = case_of_function(f"{path}:suppressed", 1)
    result = case.stages[Stage.SAMPLED](StageBudget(seconds=5, is_thorough=False))
    assert result.witness is not None


def test_the_contract_is_checked_on_every_side(path: str) -> None:
    case = case_of_function(f"{path}:single", 1, pairs=[*ONE_PAIR, *ONE_PAIR, [[], [1]]])
    result = case.stages[Stage.SAMPLED](StageBudget(seconds=5, is_thorough=False))
    assert "on `size`" in result.unable


@pytest.mark.slow
def test_the_type_of_a_whole_call_is_no_event(path: str) -> None:
    """A rare NaN makes its call's array one of floats. The function is private."""
    result = audited(path, "rare_nan")
    assert result.holds, result


@pytest.mark.slow
def test_what_a_generator_raises_is_an_outcome(path: str) -> None:
    case = case_of_function(f"{path}:generator", 1, pairs=ONE_PAIR)
    result = case.stages[Stage.SAMPLED](StageBudget(seconds=1, is_thorough=False))
    assert result.holds, result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("same_noise", "depend on each other"),
        ("ordered", "depend on each other"),
        ("by_size", "depend on `size`"),
    ],
)
def test_outputs_that_are_not_independent_are_not_judged(path: str, name: str, why: str) -> None:
    result = audited(path, name)
    assert not result.holds
    assert why in result.unable


def test_a_function_that_hangs_is_not_passed(path: str) -> None:
    result = audited(path, "hangs", seconds=2)
    assert not result.holds
    assert "stopped after 2 seconds" in result.unable


@pytest.mark.slow
def test_nan_is_an_outcome_and_is_told(path: str) -> None:
    result = audited(path, "nan")
    assert result.holds
    assert any("NaN" in note for note in result.notes)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "returned None"),
        ("too_few", r"must return 3 outputs, but returned 1"),
        ("strange", "returned a object"),
        ("texts_only", "raised AttributeError on all data"),
        ("goood", "Functions there: good"),
    ],
)
def test_a_function_without_outputs_is_refused(path: str, name: str, why: str) -> None:
    with pytest.raises(BadParameter, match=why) as caught:
        case_of_function(f"{path}:{name}", 1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "epsilon", "delta"),
    [("theirs:good", 0, 0), ("theirs:good", -1, 0), ("theirs:good", 1, 1), ("good", 1, 0), (":good", 1, 0)],
)
def test_impossible_claims_and_names_are_refused(target: str, epsilon: int, delta: int) -> None:
    with pytest.raises(BadParameter):
        case_of_function(target, epsilon, delta)


def test_pairs_may_come_from_a_file(path: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.json"
    file.write_text(json.dumps(ONE_PAIR))
    assert case_of_function(f"{path}:good", 1, pairs=file).stages
    file.write_text("[[1, 2, 3]]")
    with pytest.raises(BadParameter, match="list of pairs"):
        case_of_function(f"{path}:good", 1, pairs=file)
    with pytest.raises(BadParameter, match="no JSON file"):
        case_of_function(f"{path}:good", 1, pairs=tmp_path / "none.json")
    with pytest.raises(BadParameter, match="what JSON has"):
        case_of_function(f"{path}:good", 1, pairs=[(object(), 1)])
