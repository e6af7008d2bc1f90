"""Answers that all analysts of a data set share: who comes first is charged, and nobody else."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lapwing.errors import BadFile, BadParameter, Held, InProgress, OverBudget
from lapwing.sql.dataset import Dataset
from lapwing.sql.reading.reader import Reader
from sql.conftest import Open
from sql.test_curator_threads import in_threads
from support.askers import ask
from support.forking import FORKING, forked

COUNT = "SELECT COUNT(*) AS n FROM visits"
QUOTAS = "[analysts.ann]\nepsilon = 2\ndelta = 0\n[analysts.bob]\nepsilon = 0.5\ndelta = 0\n"
SHARED = '[dataset]\nname = "visits"\nshare_answers = {}\n'


def spent(dataset: Dataset) -> float:
    return max(block.spent[1] for block in dataset.ledger.blocks("visits")) / 10**9


def shares(opened: Open, tmp_path: Path, what: str, *, more: str = "", analyst: str = "ann") -> Dataset:
    """The data set under a policy that says whether answers are shared."""
    opened(more=more)
    path = tmp_path / "visits.toml"
    path.write_text(path.read_text().replace('[dataset]\nname = "visits"\n', SHARED.format(what)))
    return opened(rewrite=False, analyst=analyst)


def test_an_answer_is_for_all_and_charged_once(opened: Open) -> None:
    first = opened().ask(COUNT, epsilon=1)
    bob = opened(rewrite=False, analyst="bob")
    again = bob.ask("SELECT COUNT(*) AS people FROM visits v", epsilon=1)
    assert again.is_replay
    assert again.receipt == first.receipt
    assert again.receipt.principal == "ann"
    assert spent(bob) == 1
    both = bob.ask(COUNT, epsilon=2)  # another price: a new answer, beside what was known
    assert not both.is_replay
    assert both.of == 2
    assert both.receipt.principal == "bob"


def test_with_quotas_each_has_answers_of_their_own_unless_the_policy_says_so(
    opened: Open, tmp_path: Path
) -> None:
    ann = opened(more=QUOTAS)
    assert not ann.policy.shares_answers
    ann.ask(COUNT, epsilon="0.5")
    bob = opened(rewrite=False, analyst="bob")
    assert not bob.ask(COUNT, epsilon="0.5").is_replay
    assert spent(bob) == 1


def test_a_quota_bounds_what_is_spent_not_what_is_known(opened: Open, tmp_path: Path) -> None:
    ann = shares(opened, tmp_path, "true", more=QUOTAS)
    ann.ask(COUNT, epsilon=1)
    bob = opened(rewrite=False, analyst="bob")
    with pytest.raises(OverBudget):
        bob.ask("SELECT SUM(stay) AS s FROM visits", epsilon=1)
    assert bob.ask(COUNT, epsilon=1).is_replay
    assert spent(bob) == 1
    with pytest.raises(BadParameter, match="has no quota"):  # whom the policy does not know
        opened(rewrite=False, analyst="eve").ask(COUNT, epsilon=1)


def test_a_policy_that_shares_no_more_leaves_answers_to_who_paid(opened: Open, tmp_path: Path) -> None:
    opened().ask(COUNT, epsilon=1)
    ann = shares(opened, tmp_path, "false")
    assert ann.ask(COUNT, epsilon=1).is_replay
    bob = opened(rewrite=False, analyst="bob")
    assert not bob.ask(COUNT, epsilon=1).is_replay
    ann = shares(opened, tmp_path, "true")
    bob = opened(rewrite=False, analyst="bob")
    assert bob.ask(COUNT, epsilon=1).is_replay  # their own from then, or ann's
    assert spent(bob) == 2


def test_many_at_once_are_charged_once(opened: Open) -> None:
    sets = [opened(analyst=f"analyst {n}") for n in range(6)]
    texts = [f"SELECT COUNT(*) AS n{n} FROM visits" for n in range(6)]
    works = [partial(one.ask, text, epsilon=1) for one, text in zip(sets, texts, strict=True)]
    found = in_threads(works)
    answers = [one for one in found if not isinstance(one, InProgress)]
    assert answers
    assert len({one.columns[0].values[0] for one in answers}) == 1
    assert sum(not one.is_replay for one in answers) == 1
    assert spent(sets[0]) == 1
    assert all(one.ask(texts[0], epsilon=1).is_replay for one in sets)


def test_many_processes_are_charged_once(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.version()
    out: Any = FORKING.Queue()
    path = tmp_path / "visits.toml"
    processes = [forked(ask, path, COUNT, "1", out, f"a{n}") for n in range(3)]
    for process in processes:
        process.start()
    found = [out.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert len({value for value in found if value is not None}) == 1
    assert spent(dataset) == 1


def test_what_is_held_is_held_for_all_and_is_a_failure_of_one(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = opened(more="[engine]\nfailures = 1\n"), opened(rewrite=False, analyst="bob")
    with monkeypatch.context() as patch:
        patch.setattr(Reader, "exact", lambda *_: (_ for _ in ()).throw(RuntimeError))
        with pytest.raises(Held) as held:
            ann.ask(COUNT, epsilon=1)
    for _ in range(3):
        with pytest.raises(Held) as other:
            bob.ask("SELECT COUNT(*) AS m FROM visits", epsilon=1)
        assert type(other.value) is Held
        assert other.value.position == held.value.position
    assert spent(bob) == 1
    assert not bob.ask("SELECT SUM(stay) AS s FROM visits", epsilon=1).is_replay  # and bob goes on
    bob.clear_hold(held.value.position)
    assert not bob.ask(COUNT, epsilon=1).is_replay
    assert ann.ask(COUNT, epsilon=1).is_replay


def test_the_flag_is_true_or_false(opened: Open, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="share_answers"):
        shares(opened, tmp_path, '"yes"')
