"""A survey file is audited: each question, and the total."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.survey_audit import cases_of_survey
from lapwing.errors import BadFile
from support.survey_files import write_survey


def test_a_survey_holds_its_announced_loss(tmp_path: Path) -> None:
    case, page = cases_of_survey(write_survey(tmp_path, epsilon=2.0))
    found = case.stages[Stage.EXACT](StageBudget(is_thorough=False))
    assert found.holds
    assert found.measured is not None
    assert 1.9 < found.measured <= float(case.epsilon) + 1e-12
    assert len(found.notes) == 3
    assert "the code that devices run" in found.notes[-1]
    assert page.stages[Stage.EXACT](StageBudget(is_thorough=False)).holds


def test_a_file_with_a_mistake_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[survey]\n")
    with pytest.raises(BadFile):
        cases_of_survey(path)
