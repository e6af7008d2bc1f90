"""Accounts open with the first charge that fits: a plan or a refused question leaves none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lapwing.errors import LapwingError, OverBudget
from lapwing.ledger import Ledger
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"
OTHER = "SELECT COUNT(*) AS n FROM visits WHERE stay < 9"
COHORTS = '[blocks]\nby = "unit"\ncohorts = 4\n'
QUOTAS = '[analysts."*"]\nepsilon = 9.0\ndelta = 0.0\n[analysts.bob]\nepsilon = 0.5\ndelta = 0.0\n'


def opened_accounts(folder: Path) -> list[str]:
    with Ledger.open(folder / "lapwing.ledger") as ledger:
        assert ledger.verify().findings == ()
        return [account.label for account in ledger.accounts()]


def data_sets(folder: Path) -> list[tuple[str, int]]:
    with Ledger.open(folder / "lapwing.ledger") as ledger:
        return [
            (label, version) for label, version in ledger.store.rows("SELECT label, version FROM datasets")
        ]


@pytest.fixture
def typo(opened: Open, tmp_path: Path) -> Path:
    """A second policy of the same people, whose account has ε 2 of 10 left."""
    with opened() as dataset:
        dataset.ask(COUNT, epsilon=8)
    text = (tmp_path / "visits.toml").read_text()
    path = tmp_path / "typo.toml"
    path.write_text(text.replace('name = "visits"', 'name = "typo"'))
    return path


def test_a_refused_question_opens_no_account(typo: Path) -> None:
    """It added its ε to what every statement states, for life."""
    for _ in range(2):  # the second reads the copy that the first made
        with Dataset(load_policy(typo), analyst="ann") as dataset:
            dataset.plan(OTHER, epsilon=3)
            with pytest.raises(OverBudget, match='"visits"'):
                dataset.ask(OTHER, epsilon=3)
    assert opened_accounts(typo.parent) == ["visits"]
    assert data_sets(typo.parent) == [("visits", 1)]


def test_the_first_charge_that_fits_opens_it_and_says_so(typo: Path) -> None:
    with Dataset(load_policy(typo), analyst="ann") as dataset:
        with pytest.raises(OverBudget, match='"visits"'):
            dataset.ask(OTHER, epsilon=3)
        answer = dataset.ask(OTHER, epsilon=2)
        assert answer.notes[-1] == 'New account "typo" with ε 10 and δ 1e-6, for life.'
        assert dataset.ask(OTHER, epsilon=2).is_replay
        with pytest.raises(OverBudget, match='"visits"'):
            dataset.ask(COUNT, epsilon=1)
    assert opened_accounts(typo.parent) == ["visits", "typo"]
    assert data_sets(typo.parent) == [("visits", 1), ("typo", 1)]


@pytest.mark.parametrize("question", [COUNT, "SELECT COUNT(*) AS n FROM nowhere"])
def test_a_question_beyond_the_policy_s_own_budget_opens_nothing(
    opened: Open, tmp_path: Path, question: str
) -> None:
    with opened(more=COHORTS) as dataset:
        with pytest.raises(LapwingError):
            dataset.ask(question, epsilon=11)
        assert dataset.ledger.accounts() == ()
        assert str(dataset.left()).startswith("ε 10 of 10")
    assert opened_accounts(tmp_path) == []
    assert data_sets(tmp_path) == []


def test_blocks_open_with_their_account(opened: Open, tmp_path: Path) -> None:
    with opened(more=COHORTS) as dataset:
        dataset.ask(COUNT, epsilon=1)
        assert dataset.curator.all_blocks() == ["0", "1", "2", "3"]
    assert opened_accounts(tmp_path) == ["visits"]


def test_a_quota_opens_with_its_own_first_charge(opened: Open, tmp_path: Path) -> None:
    with opened(more=QUOTAS, analyst="bob") as dataset, pytest.raises(OverBudget, match="quota of bob"):
        dataset.ask(COUNT, epsilon=1)
    assert opened_accounts(tmp_path) == []
    with opened(more=QUOTAS, analyst="eve", rewrite=False) as dataset:
        dataset.ask(COUNT, epsilon=1)
    assert opened_accounts(tmp_path) == ["visits", "visits: quota of *"]


def test_sessions_that_planned_the_same_account_share_it(opened: Open, tmp_path: Path) -> None:
    """And the second does not see the budget as untouched."""
    with opened() as one, opened(rewrite=False) as two:
        for dataset in (one, two):
            with pytest.raises(OverBudget):
                dataset.ask(COUNT, epsilon=11)
        one.ask(COUNT, epsilon=8)
        with pytest.raises(OverBudget, match="ε 2 of 10 is left"):
            two.ask(OTHER, epsilon=3)
        two.ask(OTHER, epsilon=2)
        assert str(two.left()).startswith("ε 0 of 10")
    assert opened_accounts(tmp_path) == ["visits"]


def test_preparing_is_the_curator_s_act_and_opens_the_account(opened: Open, tmp_path: Path) -> None:
    with opened() as dataset:
        with pytest.raises(OverBudget):
            dataset.ask(COUNT, epsilon=11)
        assert dataset.prepare()
        assert dataset.version() == 1
    assert opened_accounts(tmp_path) == ["visits"]
