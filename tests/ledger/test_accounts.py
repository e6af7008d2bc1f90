"""Accounts are fixed for life; blocks open once; raising is signed and adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.core.losses import Relation
from lapwing.errors import BadParameter, OverBudget
from lapwing.ledger import CuratorKey, Slices, Unit
from lapwing.ledger.spending import Target
from support.ledgers import Home, open_account, open_sliced, release
from support.raised import named


def test_an_account_is_as_it_was_opened(home: Home) -> None:
    opened = open_account(home.create(), epsilon="0.5", delta="1e-7")
    assert home.open().account("visits") == opened


def test_an_account_cannot_be_opened_again_with_another_budget(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    with pytest.raises(BadParameter, match="budgets never change"):
        open_account(ledger, epsilon=10)
    assert ledger.account("visits").terms.epsilon == 1


@pytest.mark.parametrize("epsilon", [0, -1, "NaN", "1e999", "inf", "1e-320", 1001, "a lot"])
def test_a_budget_that_makes_no_sense_is_refused(file_home: Home, epsilon: object) -> None:
    with pytest.raises(BadParameter):
        open_account(file_home.create(), epsilon=epsilon)


@pytest.mark.parametrize("name", ["", " visits", "a" * 201, "a\nb", "a\x00b", "\ud800"])
def test_a_name_that_makes_no_sense_is_refused(file_home: Home, name: str) -> None:
    with pytest.raises(BadParameter):
        open_account(file_home.create(), name)


def test_names_are_only_names(home: Home) -> None:
    ledger = home.create()
    for name in ("'); DROP TABLE entries; --", "%s ? $1 :x", "Ω—ю", '"'):
        open_account(ledger, name)
        release(ledger, "0.1", Target(name))
    assert home.open().accounts()[0].label.startswith("');")


def test_names_that_look_alike_are_one_name(file_home: Home) -> None:
    ledger = file_home.create()
    open_account(ledger, "caf\u00e9")
    with pytest.raises(BadParameter):
        open_account(ledger, "cafe\u0301")


def test_rows_sliced_by_time_protect_a_person_and_period_only(file_home: Home) -> None:
    ledger = file_home.create()
    with pytest.raises(BadParameter, match="period"):
        open_account(ledger, slices=Slices.PERIODS, rule="month")
    with pytest.raises(BadParameter, match="period"):
        open_account(ledger, unit=Unit.PERSON_AND_PERIOD)
    open_account(ledger, unit=Unit.PERSON_AND_PERIOD, slices=Slices.PERIODS, rule="month")


class TestBlocks:
    def test_each_has_the_whole_budget(self, home: Home) -> None:
        ledger = home.create()
        open_sliced(ledger, 3)
        for k in range(3):
            release(ledger, "1", Target("visits", [f"b{k}"]))
        with pytest.raises(OverBudget):
            release(ledger, "0.1", Target("visits", ["b1"]))

    def test_all_that_are_touched_are_charged_or_none(self, home: Home) -> None:
        ledger = home.create()
        open_sliced(ledger, 5)
        release(ledger, "0.8", Target("visits", ["b3"]))
        with pytest.raises(OverBudget) as refused:
            release(ledger, "0.3", Target("visits", ["b0", "b1", "b3"]))
        assert refused.value.where == '"visits", block "b3"'
        assert refused.value.asked == "ε 0.3"
        assert refused.value.left == "ε 0.2 of 1"
        assert "Ask for ε 0.2 or less" in refused.value.what_now
        assert '"b0" alone has ε 1 left' in refused.value.what_now
        left = {
            block.label: block.left(ledger.account("visits").terms) for block in ledger.blocks("visits")
        }
        assert left["b0"] == left["b1"] == 1

    def test_a_block_is_advised_only_where_it_helps(self, file_home: Home) -> None:
        """Not where a quota refuses; not `*`, which nobody can name; not more than the quota admits."""
        ledger = file_home.create()
        open_sliced(ledger, 3)
        open_account(ledger, "quota", epsilon="0.5")
        release(ledger, "0.9", Target("visits", ["b2"]))
        few = Target("visits", ["b0", "b2"])

        def advised(*targets: Target) -> str:
            with pytest.raises(OverBudget) as refused:
                release(ledger, "0.6", *targets)
            return refused.value.what_now

        assert advised(few) == 'Ask for ε 0.1 or less. Or name fewer blocks: "b0" alone has ε 1 left.'
        assert advised(few, Target("quota")).endswith('"b0" alone has ε 0.5 left.')
        assert advised(Target("visits", ["b0", "b1"]), Target("quota")) == "Ask for ε 0.5 or less."
        assert advised(Target("visits", everyone=True)) == "Ask for ε 0.1 or less."
        release(ledger, "0.45", Target("quota"))
        assert advised(few, Target("quota")) == "Ask for ε 0.05 or less."

    def test_a_block_that_two_accounts_have_is_advised_for_both(self, file_home: Home) -> None:
        ledger = file_home.create()
        for label, tight in (("visits", "b0"), ("stays", "b1")):
            open_sliced(ledger, 3, label)
            release(ledger, "0.9", Target(label, [tight]))
        blocks = ["b0", "b1", "b2"]
        with pytest.raises(OverBudget) as refused:
            release(ledger, "0.6", Target("visits", blocks), Target("stays", blocks))
        assert '"b2" alone has ε 1 left' in refused.value.what_now

    def test_what_was_charged_to_everyone_is_charged_to_later_blocks(self, home: Home) -> None:
        ledger = home.create()
        open_sliced(ledger, 1)
        release(ledger, "0.4", Target("visits", everyone=True))
        ledger.open_blocks("visits", ["later"])
        for block in ("b0", "later"):
            with pytest.raises(OverBudget):
                release(ledger, "0.61", Target("visits", [block]))
            release(ledger, "0.6", Target("visits", [block]))

    def test_a_block_opens_once(self, home: Home) -> None:
        ledger = home.create()
        open_sliced(ledger, 2)
        release(ledger, "1", Target("visits", ["b1"]))
        with pytest.raises(BadParameter, match="opens once"):
            ledger.open_blocks("visits", ["new", "b1"])
        assert "new" not in {block.label for block in ledger.blocks("visits")}

    @pytest.mark.parametrize("names", [["*"], ["a", "a"], [""], ["x" * 300]])
    def test_names_that_make_no_sense_are_refused(self, file_home: Home, names: list[str]) -> None:
        ledger = file_home.create()
        open_sliced(ledger, 1)
        with pytest.raises(BadParameter):
            ledger.open_blocks("visits", names)

    def test_those_in_no_block_are_charged_only_with_everyone(self) -> None:
        with pytest.raises(BadParameter, match="everyone"):
            Target("visits", ["b0", "*"])

    def test_an_account_without_slices_has_none(self, file_home: Home) -> None:
        ledger = file_home.create()
        open_account(ledger)
        with pytest.raises(BadParameter, match="no slices"):
            ledger.open_blocks("visits", ["a"])

    def test_a_block_that_was_not_declared_does_not_exist(self, home: Home) -> None:
        ledger = home.create()
        open_sliced(ledger, 1)
        with pytest.raises(BadParameter, match="open it first"):
            release(ledger, "0.1", Target("visits", ["b0", "b7"]))

    def test_tens_of_thousands_are_normal(self, file_home: Home) -> None:
        ledger = file_home.create()
        open_sliced(ledger, 25_000)
        names = [f"b{k}" for k in range(25_000)]
        release(ledger, "0.6", Target("visits", names))
        with pytest.raises(OverBudget):
            release(ledger, "0.5", Target("visits", names[:1]))


class TestRaising:
    def test_opens_a_second_budget_over_the_same_data(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)
        release(ledger, "1")
        with pytest.raises(OverBudget):
            release(ledger, "0.1")
        ledger.raise_budget("visits", epsilon="0.5", delta="1e-7", curator=home.curator)
        release(ledger, "0.5")
        with pytest.raises(OverBudget):
            release(ledger, "0.1")
        assert [account.raises for account in home.open().accounts()] == [None, 1]

    def test_needs_the_key_of_the_curator(self, home: Home, tmp_path: Path) -> None:
        ledger = home.create()
        open_account(ledger)
        stranger = CuratorKey.create(tmp_path / "stranger")
        with pytest.raises(BadParameter, check=named("curator")):
            ledger.raise_budget("visits", epsilon=9, delta=0, curator=stranger)
        assert len(ledger.accounts()) == 1

    def test_does_not_free_what_was_left_of_the_first(self, home: Home) -> None:
        """One account after the other: together they are worth their sum, never more."""
        ledger = home.create()
        open_account(ledger)
        ledger.raise_budget("visits", epsilon="0.5", delta=0, curator=home.curator)
        with pytest.raises(OverBudget):
            release(ledger, "0.6")

    def test_is_seen_by_those_who_have_the_ledger_open(self, home: Home) -> None:
        ledger = home.create()
        open_sliced(ledger, 2)
        other = home.open()
        release(other, "1", Target("visits", ["b0"]))
        ledger.raise_budget("visits", epsilon=1, delta=0, curator=home.curator)
        release(other, "1", Target("visits", ["b0"]))

    def test_blocks_opened_later_have_the_first_budget(self, home: Home) -> None:
        ledger = home.create()
        open_sliced(ledger, 1)
        ledger.raise_budget("visits", epsilon="0.5", delta=0, curator=home.curator)
        ledger.open_blocks("visits", ["later"])
        release(ledger, "1", Target("visits", ["later"]))
        with pytest.raises(OverBudget):
            release(ledger, "0.1", Target("visits", everyone=True))

    def test_blocks_opened_after_everyone_was_charged_have_what_everyone_has(self, home: Home) -> None:
        ledger = home.create()
        open_sliced(ledger, 1)
        ledger.raise_budget("visits", epsilon="0.5", delta=0, curator=home.curator)
        release(ledger, "0.2", Target("visits", everyone=True))
        ledger.open_blocks("visits", ["later"])
        with pytest.raises(OverBudget):
            release(ledger, "0.4", Target("visits", ["later"]))
        release(ledger, "0.3", Target("visits", ["later"]))

    def test_blocks_opened_after_two_raises_never_go_back_behind_what_everyone_spent(
        self, home: Home
    ) -> None:
        ledger = home.create()
        open_sliced(ledger, 1)
        ledger.raise_budget("visits", epsilon="0.5", delta=0, curator=home.curator)
        release(ledger, "0.2", Target("visits", everyone=True))
        ledger.raise_budget("visits", epsilon="0.3", delta=0, curator=home.curator)
        ledger.open_blocks("visits", ["later"])
        with pytest.raises(OverBudget):
            release(ledger, "0.4", Target("visits", ["later"]))
        release(ledger, "0.3", Target("visits", ["later"]))
        assert not ledger.verify().findings


def test_slices_by_data_do_not_hold_where_data_is_replaced(file_home: Home) -> None:
    """Whoever is replaced could leave one block and enter another, and both would have paid."""
    ledger = file_home.create()
    with pytest.raises(BadParameter, check=named("slices")):
        open_account(ledger, relation=Relation.REPLACE, slices=Slices.UNITS, rule="month")
    open_account(ledger, relation=Relation.REPLACE, slices=Slices.IDENTITIES, rule="invitation")


def test_a_loss_about_another_relation_or_unit_is_refused(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    with pytest.raises(BadParameter, check=named("relation")):
        release(ledger, "0.1", relation=Relation.REPLACE)
    with pytest.raises(BadParameter, check=named("unit")):
        release(ledger, "0.1", unit=Unit.ROW)
