"""Audits of pipeline files: nothing is charged, and bad input is told in one line."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import pytest

from lapwing.audit.attempt_replay import in_turn
from lapwing.audit.audited_pipeline import AuditedPipeline, ordinary_codes
from lapwing.audit.case import Family, Stage, StageBudget, StageResult, Witness
from lapwing.audit.training_audit import case_of_pipeline
from lapwing.errors import BadParameter
from lapwing.examples.rides import RIDES_POLICY, write_rides
from lapwing.learn.features import Feature, Features
from lapwing.learn.stream import Stream
from lapwing.learn.validators import MeanValidator
from lapwing.ledger import Ledger
from lapwing.sql.policy.kinds import Numeric

QUICK = StageBudget(is_thorough=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rides")
    write_rides(made)
    with Stream.open(made / RIDES_POLICY, analyst="trainer") as stream:
        stream.append(through="2026-01")
    return made


def ledger_of(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.rglob("*.ledger"))]


@pytest.mark.parametrize("name", ["durations", "mean", "histogram"])
def test_a_pipeline_holds_and_nothing_is_charged(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ledger_of(folder)
    assert before

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("something was charged")

    monkeypatch.setattr(Ledger, "charge", refuse, raising=False)
    monkeypatch.setattr("lapwing.sql.row_questions.read_rows", refuse)
    case = case_of_pipeline(folder / f"{name}.toml")
    assert case.family is Family.TRAINER
    assert (Stage.CANARIES in case.stages) is (name == "durations")
    for run in case.stages.values():
        result = run(QUICK)
        assert result.holds, result
    assert ledger_of(folder) == before


def test_a_broken_validator_of_a_pipeline_is_caught(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    l1 = MeanValidator._l1.fget  # type: ignore[attr-defined]
    noise = MeanValidator._noise.fget  # type: ignore[attr-defined]

    def less(self: MeanValidator) -> object:
        found = noise(self)
        return type(found).for_epsilon(self.epsilon, l1=l1(self) // 2)

    monkeypatch.setattr(MeanValidator, "_noise", property(less))
    case = case_of_pipeline(folder / "mean.toml")
    result = case.stages[Stage.REPLAY](QUICK)
    assert result.witness is not None
    assert result.witness.event == "the inputs are farther apart than declared: L1"


def test_bad_input_is_told_in_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="is no file"):
        case_of_pipeline(tmp_path / "nothing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[pipeline]\nname = 3\n")
    with pytest.raises(BadParameter):
        case_of_pipeline(broken)
    (tmp_path / "new").mkdir()
    write_rides(tmp_path / "new")
    with pytest.raises(BadParameter, match="no ledger yet"):
        case_of_pipeline(tmp_path / "new" / "mean.toml")
    text = (folder / "mean.toml").read_text().replace("SELECT duration", "SELECT nonsense")
    (folder / "wrong.toml").write_text(text)
    with pytest.raises(ValueError, match="nonsense"):
        case_of_pipeline(folder / "wrong.toml")


def test_canaries_that_could_show_nothing_do_not_count_as_passed(folder: Path) -> None:
    case = case_of_pipeline(folder / "durations.toml")
    result = case.stages[Stage.CANARIES](StageBudget(error=1e-12))
    assert not result.holds
    assert "could show nothing" in result.unable


def test_generated_rows_lie_in_the_declared_ranges() -> None:
    features = Features((Feature("age", Numeric(Fraction(1), 5, 9)),), "tall", Numeric(Fraction(1), 0, 1))
    audited = AuditedPipeline(cast(Any, None), features)
    rows = audited.rows([[ordinary_codes(k)] for k in range(100)], range(100))
    assert set(rows.columns["age"].codes.tolist()) <= set(range(5, 10))
    assert set(rows.columns["tall"].codes.tolist()) == {0, 1}
    assert rows.columns["age"].known.all()


def test_stages_in_turn_end_at_the_first_violation() -> None:
    good = StageResult(Stage.REPLAY, 3, 1.0, notes=("a",))
    bad = StageResult(Stage.REPLAY, 2, 1.0, witness=Witness("pair", "event", {}))
    unable = StageResult(Stage.REPLAY, 0, 1.0, unable="no")
    both = in_turn(lambda _: good, lambda _: good)(QUICK)
    assert (both.checks, both.notes, both.holds) == (6, ("a", "a"), True)
    assert in_turn(lambda _: good, lambda _: bad)(QUICK).checks == 5
    assert in_turn(lambda _: bad, lambda _: pytest.fail("ran"))(QUICK).witness is not None
    assert not in_turn(lambda _: good, lambda _: unable)(QUICK).holds
