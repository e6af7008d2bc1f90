"""Many processes at once: never above the cap, nothing lost, nothing twice, nothing refused that fits.

L1   charges at the same moment that each fit alone, and not together
L12  analysts who each stay below the cap, and together go above it
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.core.losses import Pure
from lapwing.errors import OverBudget
from lapwing.ledger import Ledger
from lapwing.ledger.spending import Target
from support.clients import Place, nursery
from support.histories_check import Judge, plus
from support.ledgers import Home, open_account, open_sliced, release
from support.slowly import slow
from support.spenders import BLOCKS, Diary, Spender

CLIENTS = 16
UNIT = Fraction(1, 10**9)


def prepare(home: Home, epsilon: int = 1) -> Ledger:
    ledger = home.create()
    open_sliced(ledger, BLOCKS, epsilon=epsilon)
    open_account(ledger, "staff", epsilon=2 * epsilon, delta=0)
    return ledger


def use_up(ledger: Ledger, judge: Judge) -> None:
    """What is left by our own arithmetic can be spent, to the last unit, and no more."""
    terms = ledger.account("visits").terms
    for label, taken in judge.taken("visits"):
        if label == "*":
            continue
        left = terms.largest_pure(taken)
        with pytest.raises(OverBudget):
            release(ledger, Pure(left + UNIT), Target("visits", [label]))
        if left:
            release(ledger, Pure(left), Target("visits", [label]))
            then = terms.after(taken, terms.price(Pure(left)))
            assert then is not None
            # Where a Rényi filter decides, crumbs are left: two small ε cost less there than one large.
            left = terms.largest_pure(then)
        with pytest.raises(OverBudget):
            release(ledger, Pure(left + UNIT), Target("visits", [label]))


@pytest.mark.parametrize(("each", "epsilon"), [(15, 1), slow(300, 12)])
def test_sixteen_processes_spend_exactly_what_there_is(
    home: Home, tmp_path: Path, each: int, epsilon: int
) -> None:
    prepare(home, epsilon).close()
    diaries = [tmp_path / f"diary {k}" for k in range(CLIENTS)]
    clients = [
        nursery().start(
            "spenders:spend",
            Place.of(home),
            name=f"client {k}",
            diary=str(diary),
            count=each,
            keys=8 * each,
        )
        for k, diary in enumerate(diaries)
    ]
    for client in clients:
        assert client.last("finished", 600)
    ledger = home.open()
    judge = Judge(ledger, diaries)
    assert judge.judge() == []
    assert ledger.verify().findings == ()
    # Was the run worth judging?
    seen = Counter((ask.what, ask.outcome) for ask in judge.asks)
    seen["charge", "replayed"] = sum(ask.told.get("replay", False) for ask in judge.asks)
    for kind in ("done", "refused", "replayed"):
        assert seen["charge", kind] > 0, kind
    for what in ("reserve", "step", "settle", "open"):
        assert seen[what, "done"] > 0, what
    assert not any(outcome in ("unknown", "cut") for _, outcome in seen)
    use_up(ledger, judge)


def test_a_client_that_dies_says_how(file_home: Home) -> None:
    """A run once failed because a client had ended, and nobody could say why."""
    prepare(file_home).close()
    place = Place.of(file_home)
    client = nursery().start("spenders:crash", place, what="release", at="charge committed")
    with pytest.raises(AssertionError, match="signal SIGKILL"):
        client.last("finished")
    client = nursery().start("spenders:spend", place, name="a", diary="/nowhere/diary", count=1, keys=1)
    with pytest.raises(AssertionError, match=r"a client broke: (?s:.*)FileNotFoundError"):
        client.last("finished")
    client = nursery().start("spenders:ended_by_a_signal", place)
    with pytest.raises(AssertionError, match=r"signal SIGSEGV\nFatal Python error(?s:.*)ended_by_a_signal"):
        client.last("finished")


class TestTheJudge:
    """It is only worth something if it finds what is wrong."""

    @pytest.fixture
    def judge(self, file_home: Home, tmp_path: Path) -> Judge:
        ledger = prepare(file_home)
        diary = tmp_path / "diary"
        spender = Spender(ledger, Diary(str(diary)), "client 0", keys=20)
        for _ in range(60):
            spender.once()
        judge = Judge(ledger, [diary])
        assert Judge(ledger, [diary]).judge() == []
        return judge

    def test_finds_an_acknowledged_charge_that_was_lost(self, judge: Judge) -> None:
        [*_, last] = [k for k, (_, record) in enumerate(judge.entries) if record["kind"] == "charge"]
        seq, _ = judge.entries[last]
        judge.entries[:] = [
            entry for entry in judge.entries if entry[0] != seq and entry[1].get("charge") != seq
        ]
        assert "acknowledged, and not in the ledger" in str(judge.judge())

    def test_finds_a_charge_above_the_cap(self, judge: Judge) -> None:
        charges = [record for _, record in judge.entries if record["kind"] == "charge"]
        for record in charges:
            for debit in record["debits"]:
                debit[2] = plus(debit[2], debit[2])
        assert "above its cap" in str(judge.judge())

    def test_finds_a_key_that_was_charged_twice(self, judge: Judge) -> None:
        charge = next(record for _, record in judge.entries if record["kind"] == "charge")
        judge.entries.append((10_000, charge))
        assert "charged twice" in str(judge.judge())

    def test_finds_a_refusal_without_a_reason(self, judge: Judge) -> None:
        early = min((ask for ask in judge.asks if ask.what == "charge"), key=lambda ask: ask.begun)
        early.outcome = "refused"
        assert "refused although it fits" in str(judge.judge())

    def test_finds_what_was_refused_and_yet_charged(self, judge: Judge) -> None:
        done = next(ask for ask in judge.asks if ask.what == "charge" and ask.outcome == "done")
        for ask in judge.asks:
            if "key" in ask.asked and ask.of == done.of:
                ask.outcome, ask.told = "refused", {}
        assert "everybody who asked for it was refused" in str(judge.judge())

    def test_finds_another_answer_for_the_same_key(self, judge: Judge) -> None:
        replayed = next(ask for ask in judge.asks if ask.told.get("replay"))
        replayed.told["answer"] = "00"
        found = str(judge.judge())
        assert "different answers" in found
        assert "another answer than the one that is stored" in found

    def test_finds_entries_in_another_order_than_they_happened(self, judge: Judge) -> None:
        first, *_, last = [ask for ask in judge.asks if ask.outcome == "done" and ask.what == "charge"]
        first.begun, first.over = last.over + 1, last.over + 2
        assert "begun after" in str(judge.judge())


class TestL1:
    """Eight charges of ε 0.5 at the same moment, and a cap of 1."""

    def test_L1_of_eight_processes_exactly_two_succeed(self, home: Home, tmp_path: Path) -> None:
        ledger = home.create()
        open_account(ledger, delta=0)
        start = tmp_path / "start"
        clients = [
            nursery().start(
                "spenders:charge_once", Place.of(home), principal=f"p{k}", loss="0.5", start=str(start)
            )
            for k in range(8)
        ]
        for client in clients:
            assert client.says() == {"ready": True}
        start.touch()
        admitted = [client.last("admitted") for client in clients]
        assert sum(admitted) == 2
        assert ledger.blocks("visits")[0].spent[1] == 10**9

    def test_L1_of_eight_threads_exactly_two_succeed(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger, delta=0)
        assert self.at_once(lambda: release(ledger, "0.5")) == 2
        assert ledger.blocks("visits")[0].spent[1] == 10**9

    def test_L1_a_ledger_that_looks_before_it_writes_admits_all_eight(self, tmp_path: Path) -> None:
        """The vulnerable system: the same database, but it decides from what it has read."""
        path = tmp_path / "naive"
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE budget (spent REAL)")
            database.execute("INSERT INTO budget VALUES (0)")
        all_have_looked = threading.Barrier(8)

        def charge() -> None:
            connection = sqlite3.connect(path, timeout=60, isolation_level=None)
            [(spent,)] = connection.execute("SELECT spent FROM budget")
            all_have_looked.wait()
            if spent + 0.5 > 1:
                raise OverBudget("0.5", "less", "")
            connection.execute("UPDATE budget SET spent = spent + 0.5")
            connection.close()

        assert self.at_once(charge) == 8

    @staticmethod
    def at_once(charge: Callable[[], Any]) -> int:
        """In how many of eight threads it succeeds."""
        outcomes: list[bool] = []
        all_are_here = threading.Barrier(8)

        def ask() -> None:
            all_are_here.wait()
            try:
                charge()
                outcomes.append(True)
            except OverBudget:
                outcomes.append(False)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 8
        return sum(outcomes)


class TestL12:
    """Analysts who collude: nobody asks for much, and together they know everything."""

    def test_L12_twenty_analysts_share_one_cap(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger, delta=0)
        admitted = 0
        for k in range(20):
            try:
                release(ledger, "0.15", principal=f"analyst {k}")
                admitted += 1
            except OverBudget as error:
                assert error.left == "ε 0.1 of 1"  # noqa: PT017
        assert admitted == 6
        assert ledger.blocks("visits")[0].spent[1] == 900_000_000

    def test_L12_twelve_analysts_in_processes_of_their_own_share_one_cap(
        self, home: Home, tmp_path: Path
    ) -> None:
        ledger = home.create()
        open_account(ledger, delta=0)
        start = tmp_path / "start"
        clients = [
            nursery().start(
                "spenders:charge_once", Place.of(home), principal=f"p{k}", loss="0.15", start=str(start)
            )
            for k in range(12)
        ]
        for client in clients:
            assert client.says() == {"ready": True}
        start.touch()
        assert sum(client.last("admitted") for client in clients) == 6
        assert ledger.blocks("visits")[0].spent[1] == 900_000_000
        assert ledger.verify().findings == ()

    def test_L12_an_analyst_under_many_names_is_still_one_cap(self, file_home: Home) -> None:
        ledger = file_home.create()
        open_account(ledger, delta=0)
        release(ledger, "1", principal="mallory", key="k")
        for name in ("Mallory", "mallory2", "mallory's friend"):
            with pytest.raises(OverBudget):
                release(ledger, "0.000000001", principal=name, key="k")
