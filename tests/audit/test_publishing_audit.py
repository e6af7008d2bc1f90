"""A release is audited without a charge or a private row, and planted errors are found."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lapwing.audit import publishing_audit
from lapwing.audit.case import AuditCase, Stage, StageBudget, Witness
from lapwing.audit.publishing_audit import case_of_release
from lapwing.audit.registry.publishing import publishing_cases
from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.gaussian import Gaussian
from lapwing.errors import BadFile, BadParameter
from lapwing.publish.census import census_release
from lapwing.publish.measured import private_marginals
from lapwing.publish.measured.private_marginals import Candidate, PrivateMarginals
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy

POLICY = """dataset.name = "people"
budget = { epsilon = 20, delta = 1e-6 }
[tables.people]
source = "people.parquet"
unit = "person"
rows_per_unit = 2
columns.race = { values = ["white", "black", "other"] }
columns.age = { low = 0, high = 99 }
columns.block = { values = ["B0", "B1"] }
[tables.blocks]
source = "blocks.csv"
public = true
"""
ROWS = """[release]
name = "rows"
policy = "people.toml"
rows = "SELECT race, age FROM people"
method = "tree"
epsilon = 1
delta = 1e-6
check = 0.1
[columns.age]
bins = 5
"""
CENSUS = """[release]
name = "census"
policy = "people.toml"
rows = "SELECT block, race FROM people"
method = "census"
delta = 1e-6
[columns.race]
unknown = false
[census]
spine = "blocks"
levels = ["town", "block"]
area = "block"
[census.shares.town]
total = 0.5
[census.shares.block]
cells = 0.5
[census.wanted]
town = 20
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = "SELECT p AS person, 'white' AS race, 30 AS age, 'B1' AS block FROM range(50) AS rows(p)"
    duckdb.execute(f"COPY ({rows}) TO '{tmp_path / 'people.parquet'}'")
    (tmp_path / "blocks.csv").write_text("town,block\nT,B0\nT,B1\n")
    for name, text in {"people": POLICY, "rows": ROWS, "census": CENSUS}.items():
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ["rows", "census"])
def test_nothing_is_charged_or_written_and_no_private_row_is_read(folder: Path, name: str) -> None:
    with Dataset(load_policy(folder / "people.toml"), analyst="ann") as dataset:
        dataset.ask("SELECT COUNT(*) FROM people", epsilon=1)
    (folder / "people.parquet").write_bytes(b"neither rows nor a schema")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    case = case_of_release(folder / f"{name}.toml")
    assert 0 < case.epsilon <= 2
    assert case.delta == Fraction(1, 10**6)
    found = case.stages[Stage.REPLAY](StageBudget(is_thorough=False))
    assert found.holds, found.witness
    assert found.notes[1] == "largest distance: 1 of the declared one"
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_policy_without_a_ledger_and_a_bad_file_are_refused(folder: Path) -> None:
    with pytest.raises(BadParameter, match="has no ledger yet"):
        case_of_release(folder / "rows.toml")
    (folder / "rows.toml").write_text("[release]\n")
    with pytest.raises(BadFile):
        case_of_release(folder / "rows.toml")


# Planted errors


def violation(method: str) -> Witness:
    case = next(one for one in publishing_cases() if one.name == f"publish: {method}")
    found = case.stages[Stage.REPLAY](StageBudget(is_thorough=False))
    assert found.witness is not None
    return found.witness


def test_noise_for_one_row_of_a_person_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = private_marginals.measuring

    def for_one(sigma: Fraction, _rows: int, cells: int) -> Gaussian:
        return real(sigma, 1, cells)

    monkeypatch.setattr(private_marginals, "measuring", for_one)
    monkeypatch.setattr(census_release, "measuring", for_one)
    for method in ("independent", "census"):
        witness = violation(method)
        assert (witness.numbers["found"], witness.numbers["declared"]) == ("9", "1")


def test_a_measurement_that_is_charged_once_and_drawn_twice_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = PrivateMarginals._drawn

    def twice(source: PrivateMarginals, draw: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        draw()
        return real(source, draw)

    monkeypatch.setattr(PrivateMarginals, "_drawn", twice)
    for method in ("independent", "tree", "adaptive"):
        assert "add up to more than what is charged" in violation(method).event


def test_one_uncharged_step_among_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget has room for it, but what was charged step by step has not."""
    real = PrivateMarginals._step

    def step(source: PrivateMarginals, *args: Any) -> Any:
        charge = source._charge
        source._charge = (lambda _: None) if not source._journal.steps else charge
        try:
            return real(source, *args)
        finally:
            source._charge = charge

    monkeypatch.setattr(PrivateMarginals, "_step", step)
    assert "charged step by step" in violation("independent").numbers


def test_a_conversion_that_claims_half_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing_audit, "zcdp_to_epsilon", lambda *args: zcdp_to_epsilon(*args) / 2)
    assert violation("independent").event == "the charge is more than the claim"


def test_a_choice_without_a_mechanism_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_rows(source: PrivateMarginals, candidates: list[Candidate], _epsilon: Fraction) -> Any:
        return candidates[int(source._counts(candidates[0].clique).sum()) % 2].clique

    monkeypatch.setattr(PrivateMarginals, "choose", by_rows)
    assert "differ" in violation("tree").event


def test_a_score_that_moves_by_more_than_declared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = private_marginals.score
    monkeypatch.setattr(private_marginals, "score", lambda counts, one: 2 * real(counts, one))
    assert "largest move of a score" in violation("adaptive").event


def test_the_right_ones_hold() -> None:
    """Nothing stays planted."""

    def holds(case: AuditCase) -> bool:
        return case.stages[Stage.REPLAY](StageBudget(is_thorough=False)).holds

    assert all(
        holds(case) for case in publishing_cases() if case.name in ("publish: tree", "publish: census")
    )


def test_a_step_that_is_charged_after_its_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(one for one in publishing_cases() if one.name == "publish: independent")
    stage, quick = case.stages[Stage.REPLAY], StageBudget(is_thorough=False)
    assert stage(quick).holds

    def late(self: PrivateMarginals, step: Any, rho: Any, loss: Any, draw: Any) -> Any:
        self._journal.begin(step, rho)
        self._journal.end(self._drawn(draw))
        self._charge(loss)
        self._next, self._spent = self._next + 1, self._spent + rho
        return self._journal.steps[-1]

    monkeypatch.setattr(PrivateMarginals, "_step", late)
    witness = stage(quick).witness
    assert witness is not None
    assert "before the charge of the step" in witness.event
