"""Joint plans are audited: views, noise shares and the sum of all parts."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.party_audit import case_of_consortium, case_of_plan
from lapwing.errors import BadParameter
from lapwing.parties.joint_plan import plan_jointly
from lapwing.parties.requirements import JointRequirements
from lapwing.parties.statistics import CellBlock

PLANS = [("A", "laplace"), ("B", "laplace"), ("C", "gaussian"), ("D", "laplace"), ("L", "auto")]


@pytest.mark.parametrize(("protocol", "noise"), PLANS)
def test_a_plan_holds_its_claim(protocol: str, noise: str) -> None:
    needs = JointRequirements(
        members=5, coalition=2, losses=0, people_at=2, adversary="bounded", protocol=protocol,
        epsilon=Fraction(1), delta=Fraction(1, 10**6), noise=noise,
    )  # fmt: skip
    plan = plan_jointly(needs, [CellBlock("rows", 3, 1, 1, Fraction(1))], stages=1)
    found = case_of_plan("test", plan).stages[Stage.EXACT](StageBudget(is_thorough=False))
    assert found.holds, found.witness
    assert any("stand for those of 5" in note for note in found.notes)
    if found.measured is not None:
        assert 0.5 < found.measured <= 1 + 1e-12


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="cannot be read"):
        case_of_consortium(tmp_path / "no.consortium")
