"""An analyst whose charged questions failed waits for the curator: failures tell of rows, unpriced."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.engines.engine import TimedOut
from lapwing.errors import AllHeld, BadParameter, Held, LapwingError
from lapwing.ledger.request_status import FailedCharges, find_failed_charges
from lapwing.sql import policy_ledger as query_failures
from lapwing.sql import row_questions
from lapwing.sql.dataset import Dataset
from lapwing.sql.joint_questions import JointQuestion
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.reading.reader import Reader
from sql.conftest import POLICY
from support.askers import die
from support.forking import forked
from support.raised import coded, named

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"
LEDGER = '[ledger]\nurl = "all.ledger"\n'


def below(stay: int) -> str:
    return f"{COUNT} WHERE stay <= {stay}"


def spent(dataset: Dataset) -> int:
    return max(block.spent[1] for block in dataset.ledger.blocks("visits"))


def fail(dataset: Dataset, sql: str, error: type[Exception] = ValueError) -> int:
    """The receipt of a question that fails."""

    def failing(*_: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "exact", failing)
        with pytest.raises(Held) as held:
            dataset.ask(sql, epsilon="0.1")
    assert type(held.value) is Held
    return held.value.position


def test_after_three_failures_all_questions_of_the_analyst_wait(opened: Open) -> None:
    dataset = opened()
    dataset.ask(COUNT, epsilon="0.1")
    failed = [fail(dataset, below(1)), fail(dataset, below(2), TimedOut), fail(dataset, below(3))]
    before = spent(dataset)
    with pytest.raises(AllHeld) as held:
        dataset.ask(below(4), epsilon="0.1")
    assert held.value.positions == tuple(failed)
    assert str(held.value).endswith(f"lapwing clear-hold POLICY {failed[0]} {failed[1]} {failed[2]}")
    with pytest.raises(AllHeld):
        dataset.ask(COUNT, epsilon="0.1")  # whether an answer is stored would tell whether it failed
    assert dataset.session.look().truncation("visits", 2, confidence=Fraction(95, 100)) is None
    with pytest.raises(AllHeld):
        row_questions.checked_version(
            dataset, row_questions.row_question(dataset, "SELECT stay FROM visits")
        )
    with pytest.raises(AllHeld):
        JointQuestion.of(dataset, COUNT).version()
    assert spent(dataset) == before
    opened(analyst="bob", rewrite=False).ask(below(4), epsilon="0.1")
    dataset.clear_hold(failed[1])
    assert dataset.ask(COUNT, epsilon="0.1").is_replay
    dataset.ask(below(4), epsilon="0.1")
    with pytest.raises(Held) as one:
        dataset.ask(below(1), epsilon="0.1")  # which was not looked at
    assert type(one.value) is Held
    fail(dataset, below(5))
    with pytest.raises(AllHeld):
        dataset.ask(below(6), epsilon="0.1")


def test_another_name_of_the_policy_or_the_data_and_another_process_change_nothing(
    opened: Open, tmp_path: Path
) -> None:
    dataset = opened(more=LEDGER)
    for n in range(3):
        fail(dataset, below(n))
    dataset.close()
    for name, data in (("renamed", "visits"), ("again", "others")):
        text = POLICY.format(more=LEDGER).replace(
            'name = "visits"', f'name = "{data}"\npopulation = "visits"'
        )
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        with Dataset(load_policy(path), analyst="ann") as other:
            if data == "visits":  # as the curator who moves a policy does
                other.prepare()
            with pytest.raises(AllHeld):
                other.ask(below(7), epsilon="0.1")


def test_a_process_that_died_counts(opened: Open, tmp_path: Path) -> None:
    one = opened(more="[engine]\nfailures = 1\n")
    assert one.policy.failures == 1
    one.ask(COUNT, epsilon="0.1")
    dying = forked(die, tmp_path / "visits.toml", below(2), "1")
    dying.start()
    dying.join()
    with pytest.raises(AllHeld) as held:
        opened(rewrite=False, analyst=one.analyst).ask(below(3), epsilon="0.1")
    one.clear_hold(*held.value.positions)
    one.ask(below(3), epsilon="0.1")


@pytest.mark.parametrize("succeeds", [True, False])
def test_the_outcome_of_what_was_under_way_is_not_told(
    opened: Open, monkeypatch: pytest.MonkeyPatch, succeeds: bool
) -> None:
    """However many are asked at once: those that end after the last allowed failure are held."""
    dataset, other, exact = opened(), opened(rewrite=False), Reader.exact
    failed: list[int] = []
    dataset.ask(COUNT, epsilon="0.1")

    def late(self: Reader, question: Any) -> Any:
        monkeypatch.setattr(Reader, "exact", exact)
        failed.extend(fail(other, below(n)) for n in range(3))
        if not succeeds:
            raise ValueError
        return exact(self, question)

    monkeypatch.setattr(Reader, "exact", late)
    with pytest.raises(AllHeld) as held:
        dataset.ask(below(9), epsilon="0.1")
    assert held.value.positions == tuple(failed)
    dataset.clear_hold(*failed)
    if succeeds:
        assert dataset.ask(below(9), epsilon="0.1").is_replay
    else:
        with pytest.raises(Held, check=coded("held")):
            dataset.ask(below(9), epsilon="0.1")


def test_what_is_kept_of_the_history_is_only_to_save_time(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_failures, "SAVE_FAILURES_EVERY", 1)
    dataset = opened()
    failed = [fail(dataset, below(n)) for n in range(2)]
    dataset.close()  # and sealed
    dataset.ask(COUNT, epsilon="0.1")
    kept = tmp_path / "visits.prepared" / query_failures.FAILURES_FILE
    before = kept.read_text()
    found, known = find_failed_charges(dataset.ledger, FailedCharges())
    assert [one.position for one in found] == failed
    assert find_failed_charges(dataset.ledger, known)[0] == found
    assert FailedCharges.from_json(known.to_json()) == known
    failed.append(fail(dataset, below(2)))
    for content in (before, "", "[1, 2]", "{}", '[9, "x", []]', before.replace('", [', '", 7, [', 1)):
        kept.write_text(content)
        with pytest.raises(AllHeld) as held:
            dataset.ask(below(3), epsilon="0.1")
        assert held.value.positions == tuple(failed)


def test_only_failures_are_looked_at(opened: Open) -> None:
    dataset = opened()
    failed = fail(dataset, below(1))
    for positions in ((), (failed, failed + 1), (failed - 1,)):
        with pytest.raises(BadParameter, check=named("receipt")):
            dataset.clear_hold(*positions)
    dataset.clear_hold(failed, failed)


def test_the_limit_is_checked(opened: Open) -> None:
    for wrong in ("0", "101", "true", '"3"'):
        with pytest.raises(LapwingError, match=r"engine\.failures"):
            opened(more=f"[engine]\nfailures = {wrong}\n")
