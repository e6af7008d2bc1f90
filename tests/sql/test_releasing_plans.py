"""A plan is data: whoever releases it is charged, and finds the answers that they may see."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, OverBudget
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from support.raised import named

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"
QUOTAS = "[analysts.ann]\nepsilon = 5\ndelta = 0\n[analysts.bob]\nepsilon = 0.5\ndelta = 0\n"
BY_BEDS = "SELECT beds, COUNT(*) AS n FROM visits JOIN wards USING (ward) GROUP BY beds"
WARDS = '[tables.wards]\nsource = "wards.csv"\npublic = true\n'


def spent(dataset: Dataset) -> float:
    return max(block.spent[1] for block in dataset.ledger.blocks("visits")) / 10**9


@pytest.mark.parametrize("apart", [False, True])
def test_who_releases_a_plan_is_charged_whoever_made_it(opened: Open, tmp_path: Path, apart: bool) -> None:
    """Also if both have a curator of their own. Quotas: answers are not shared."""
    ann = opened(more=QUOTAS)
    with Curator(tmp_path / "visits.toml") as own:
        bob = Dataset(own if apart else ann.curator, analyst="bob")
        plan = ann.plan(COUNT, epsilon="0.4")
        of_ann = plan.release()
        of_bob = bob.session.release(plan)
        assert not of_bob.is_replay
        assert of_bob.receipt.principal == "bob"
        assert of_bob.receipt != of_ann.receipt
        assert of_bob.of == 1
        assert spent(bob) == pytest.approx(0.8)
        with pytest.raises(OverBudget):  # of bob's quota, not of ann's
            bob.session.release(plan, fresh=True)
        assert bob.session.release(plan).receipt == of_bob.receipt
        assert plan.release().receipt == of_ann.receipt
        assert spent(bob) == pytest.approx(0.8)


def test_a_shared_answer_comes_for_nothing_whoever_planned(opened: Open) -> None:
    ann = opened()
    plan = ann.plan(COUNT, epsilon=1)
    first = plan.release()
    again = Dataset(ann.curator, analyst="bob").session.release(plan)
    assert again.is_replay
    assert again.receipt == first.receipt


def test_what_one_analyst_knows_about_truncation_is_not_told_to_another(opened: Open) -> None:
    ann = opened(more=QUOTAS)
    ann.truncated("visits", epsilon="0.1")
    plan = ann.plan(COUNT, epsilon="0.1")
    own, other = plan.release(), Dataset(ann.curator, analyst="bob").session.release(plan)
    assert "receipt" in own.truncation[0]
    assert "receipt" not in other.truncation[0]


@pytest.mark.parametrize(
    ("old", "new"), [('name = "visits"', 'name = "others"'), ("rows_per_unit = 2", "rows_per_unit = 3")]
)
def test_a_plan_of_another_policy_is_refused(opened: Open, tmp_path: Path, old: str, new: str) -> None:
    plan = opened().plan(COUNT, epsilon=1)
    path = tmp_path / "visits.toml"
    path.write_text(path.read_text().replace(old, new, 1))
    other = opened(rewrite=False)
    for act in (other.session.release, other.session.dry_run):
        with pytest.raises(BadParameter, check=named("plan")):
            act(plan)
    assert not list(tmp_path.glob("*.ledger*"))


def test_a_plan_with_other_public_rows_is_refused(opened: Open, tmp_path: Path) -> None:
    """Its sensitivity follows from how often a key stands in the public table."""
    (tmp_path / "wards.csv").write_text("ward,beds\nA,1\nB,2\n")
    plan = opened(more=WARDS).plan(BY_BEDS, epsilon=1)
    (tmp_path / "wards.csv").write_text("ward,beds\nA,1\nA,2\nB,2\n")
    other = opened(rewrite=False)
    with pytest.raises(BadParameter, check=named("plan")):
        other.session.release(plan)
    assert other.plan(BY_BEDS, epsilon=1).shares.epsilon == Fraction(1)
