"""Accounts, quotas and blocks of a policy, for life."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from lapwing.core.losses import Relation
from lapwing.errors import BadParameter, OverBudget
from lapwing.ledger import Ledger, Unit
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy import block_rule_text
from lapwing.sql.policy.policy_file import load_policy
from sql.conftest import POLICY
from sql.test_releasing import reopened
from support.raised import named
from support.reached import reaching

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"
COHORTS = '[blocks]\nby = "unit"\ncohorts = 4\n'
QUOTAS = '[analysts."*"]\nepsilon = 9.0\ndelta = 0.0\n[analysts."ánn"]\nepsilon = 0.5\ndelta = 0.0\n'


def test_a_name_in_other_characters_has_the_same_quota(opened: Open) -> None:
    """Else who has spent their own would be everybody else."""
    dataset = opened(more=QUOTAS, analyst="a\u0301nn")
    with pytest.raises(OverBudget, match="quota of ánn"):
        dataset.ask(COUNT, epsilon=1)
    opened(more=QUOTAS, analyst="eve").ask(COUNT, epsilon=1)


@pytest.mark.parametrize("name", [" ann", "ann ", "", "a\nb", "x" * 201])
def test_names_that_nobody_has_are_refused_before_anything_is_made(
    opened: Open, tmp_path: Path, name: str
) -> None:
    with pytest.raises(BadParameter, check=named("analyst")):
        opened(analyst=name).ask(COUNT, epsilon=1)
    assert not list(tmp_path.glob("*.ledger*"))


# Case H4.
def test_a_quota_is_for_life(opened: Open, tmp_path: Path) -> None:
    opened(more=QUOTAS, analyst="ánn").ask(COUNT, epsilon="0.5")
    with pytest.raises(BadParameter, match=r"analysts\.ánn: the account has ε 0\.5"):
        reopened(opened, tmp_path / "visits.toml", "epsilon = 0.5", "epsilon = 5.0").ask(COUNT, epsilon=1)


@pytest.mark.parametrize(
    ("old", "new"), [("cohorts = 4", "cohorts = 5"), (COHORTS, ""), ("cohorts = 4", 'every = "month"')]
)
def test_other_slices_are_refused(opened: Open, tmp_path: Path, old: str, new: str) -> None:
    opened(more=COHORTS).ask(COUNT, epsilon=1)
    with pytest.raises(BadParameter, match="differs from what the account was opened with"):
        reopened(opened, tmp_path / "visits.toml", old, new).ask(COUNT, epsilon=1)


def test_L6_a_ledger_that_is_gone_is_not_made_anew(opened: Open, tmp_path: Path) -> None:
    opened().ask(COUNT, epsilon=9)
    opened(rewrite=False).close()
    for path in (tmp_path / "lapwing.ledger", *tmp_path.glob("lapwing.ledger-*")):
        path.unlink()
    with pytest.raises(BadParameter, match="missing"):
        opened(rewrite=False).ask(COUNT, epsilon=9)
    for name in ("sources", "registry.key"):  # also where nobody knows of it
        Path(os.environ["LAPWING_STATE"], name).unlink()
    with pytest.raises(BadParameter, match="never replaced"):
        opened(rewrite=False).ask(COUNT, epsilon=9)


def test_people_stay_in_their_cohorts_when_their_ids_become_texts(opened: Open, tmp_path: Path) -> None:
    """Each cohort has a budget of its own: who moved would be charged to two, each as if it were all."""
    dataset = opened(more=COHORTS)

    def counted() -> list[int]:
        with reaching() as reached:
            for cohort in range(4):
                dataset.ask(f"SELECT COUNT(*) AS n FROM visits WHERE cohort = {cohort}", epsilon="0.1")
        return [call.values[0] for call in reached]

    before = counted()
    file = tmp_path / "visits.parquet"
    texts = f"SELECT * REPLACE (' ' || patient_id AS patient_id) FROM '{file}'"
    duckdb.execute(f"COPY ({texts}) TO '{tmp_path / 'new.parquet'}'")
    (tmp_path / "new.parquet").rename(file)
    dataset.prepare()
    assert counted() == before
    assert sum(before) == 600


def test_rows_as_units_move_to_no_other_cohort(opened: Open, tmp_path: Path) -> None:
    """They are told apart by their codes alone: a policy with other codes is other slices."""
    opened()
    text = POLICY.format(more=COHORTS).replace(
        'name = "visits"', 'name = "visits"\nprotects = "row"\npopulation = "p"'
    )
    text = text.replace('unit = "patient_id"\nrows_per_unit = 2\n', "")
    (tmp_path / "visits.toml").write_text(text)
    dataset = opened(rewrite=False)
    dataset.ask(COUNT, epsilon=1)
    wider = reopened(opened, tmp_path / "visits.toml", "high = 10\n", "high = 20\n")
    assert block_rule_text(wider.policy) != block_rule_text(dataset.policy)
    with pytest.raises(BadParameter, match="differs from what the account was opened with"):
        wider.ask(COUNT, epsilon=1)


def by_rows(folder: Path, name: str, *, population: str = "") -> Path:
    """A policy for a file of this name, whose rows are protected one by one."""
    more = f'\nprotects = "row"\n{population and f"population = {population!r}"}'
    text = POLICY.format(more="").replace('name = "visits"', f'name = "{name}"{more}')
    text = text.replace('unit = "patient_id"\nrows_per_unit = 2\n', "").replace("visits*", name)
    (folder / f"{name}.toml").write_text(text)
    return folder / f"{name}.toml"


# Case C3.
def test_rows_under_another_name_have_the_same_budget(opened: Open, tmp_path: Path) -> None:
    """They have no ids: what they are about must be declared, before anything is made."""
    opened()
    shutil.copy(tmp_path / "visits.parquet", tmp_path / "again.parquet")
    for name in ("visits", "again"):
        with (
            Dataset(load_policy(by_rows(tmp_path, name)), analyst="ann") as dataset,
            pytest.raises(BadParameter, match=r"dataset\.population: is needed"),
        ):
            dataset.ask(COUNT, epsilon=6)
    assert not list(tmp_path.glob("*.ledger*"))
    with Dataset(
        load_policy(by_rows(tmp_path, "visits", population="admissions")), analyst="ann"
    ) as dataset:
        dataset.ask(COUNT, epsilon=6)
    with (
        Dataset(load_policy(by_rows(tmp_path, "again", population="admissions")), analyst="ann") as dataset,
        pytest.raises(OverBudget, match="admissions"),
    ):
        dataset.ask(COUNT, epsilon=6)
    with (
        Dataset(load_policy(by_rows(tmp_path, "again")), analyst="ann") as dataset,
        pytest.raises(BadParameter, match='these rows spend from the account "admissions"'),
    ):
        dataset.ask(COUNT, epsilon=6)


def test_rows_of_a_renamed_file_are_about_what_they_were_about(opened: Open, tmp_path: Path) -> None:
    """Another name and another population in the same ledger: the registry knows the file."""
    opened()
    with Dataset(
        load_policy(by_rows(tmp_path, "visits", population="admissions")), analyst="ann"
    ) as dataset:
        dataset.ask(COUNT, epsilon=6)
    (tmp_path / "visits.parquet").rename(tmp_path / "again.parquet")
    with (
        Dataset(load_policy(by_rows(tmp_path, "again", population="others")), analyst="ann") as dataset,
        pytest.raises(BadParameter, match='population: these rows spend from the account "admissions"'),
    ):
        dataset.ask(COUNT, epsilon=6)


def test_accounts_of_rows_that_name_no_population_go_on(opened: Open, tmp_path: Path) -> None:
    opened()
    policy = load_policy(by_rows(tmp_path, "visits"))
    with Ledger.create(policy.ledger) as ledger:  # as it was made before
        ledger.open_account("visits", epsilon=10, delta="1e-6", unit=Unit.ROW, relation=Relation.ADD_REMOVE)
    with Dataset(policy, analyst="ann") as dataset:
        assert abs(dataset.ask(COUNT, epsilon=1).columns[0].values[0] - 900) < 30


def test_blocks_that_a_recovery_closed_are_still_charged(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their people are still read: who may not be charged may not be asked about."""
    dataset = opened(more='[blocks]\nby = "unit"\nevery = "month"\n')
    dataset.prepare()
    labels = dataset.curator.all_blocks()
    monkeypatch.setattr("lapwing.ledger.accounts.Block.is_open", property(lambda _: False))
    assert dataset.curator.all_blocks() == labels != []


def test_data_sets_about_the_same_people_share_an_account(opened: Open, tmp_path: Path) -> None:
    """L12: a second policy over the same files spends from the same budget."""
    text = opened().policy.path.read_text()
    opened(rewrite=False).ask(COUNT, epsilon=6)
    other = text.replace('name = "visits"', 'name = "again"')
    (tmp_path / "again.toml").write_text(other)
    with (
        Dataset(load_policy(tmp_path / "again.toml"), analyst="bob") as again,
        pytest.raises(OverBudget, match="visits"),
    ):
        again.ask(COUNT, epsilon=6)


def test_the_policy_tells_who_may_ask(opened: Open) -> None:
    many: dict[str, Any] = {"more": "[analysts.bob]\nepsilon = 1.0\ndelta = 0.0\n"}
    for name in ("*", "ann", "Bob", "bоb"):  # the last one in Cyrillic
        with pytest.raises(BadParameter, match="no quota"):
            opened(**many, analyst=name).ask(COUNT, epsilon="0.1")


def test_a_ledger_in_a_server_is_made_by_the_curator(opened: Open, tmp_path: Path) -> None:
    """Plans are free before it is there; questions say what to do."""
    url = "postgresql://localhost:1/nowhere#visits"
    dataset = opened(more=f'[ledger]\nurl = "{url}"\nkeys = "some.keys"\nanchor = "some.anchor"\n')
    assert "truncated table" in dataset.plan(COUNT, epsilon=1).statements[0]
    with pytest.raises(BadParameter, match="lapwing ledger init"):
        dataset.ask(COUNT, epsilon=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["visits.parquet", "visits.toml"]
