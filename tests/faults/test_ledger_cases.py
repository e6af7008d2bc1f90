"""Cases of family L that need a story each.

L1, L3, L4 and L12 are in test_ledger_concurrency.py and test_ledger_crashes.py, L6 in
test_ledger_restores.py, L13 in test_ledger_tampering.py and test_ledger_guards.py.
"""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import psycopg
import pytest

from lapwing.core.budget import Terms
from lapwing.core.losses import Approximate, Pure, Repeated, SequentialComposition
from lapwing.errors import BadParameter, InProgress, KeyReused, OverBudget, WorkEnded
from lapwing.ledger import Ledger, entry
from lapwing.ledger.gate import ChargedRelease, Gate
from lapwing.ledger.spending import Target
from support.attackers import somebody_at
from support.clocks import Clock
from support.ledgers import Home, open_account, open_sliced, release, spending

UNIT = 10**9
SAYS_NO = (sqlite3.IntegrityError, psycopg.errors.CheckViolation, psycopg.errors.RaiseException)


def spent(ledger: Ledger, block: str = "*") -> int:
    return next(b.spent[1] for b in ledger.blocks("visits") if b.label == block)


class TestCaseL2:
    """The promise is kept by a row lock and a CHECK, and not by what an isolation level promises."""

    def test_the_database_itself_refuses_sums_beyond_the_caps(self, home: Home) -> None:
        open_account(home.create())
        program = somebody_at(home)
        beyond = ", ".join(f"left_{k} = -1" for k in range(1, 8))
        with pytest.raises(SAYS_NO):
            program.run(f"UPDATE budgets SET {beyond}")
        with pytest.raises(SAYS_NO):
            program.run("UPDATE budgets SET left_0 = -1")
        program.run("UPDATE budgets SET left_1 = 0")  # this much no filter forbids
        program.leave()

    def test_a_charge_waits_for_the_row_and_then_decides_anew(self, home: Home) -> None:
        """Another transaction has spent 0.8 and not committed yet: the charge must not miss it."""
        ledger = home.create()
        open_account(ledger, delta=0)
        release(ledger, "0.1")
        program = somebody_at(home)
        program.run("BEGIN")
        program.run("UPDATE budgets SET left_1 = left_1 - 800000000")
        outcome: list[object] = []

        def charge() -> None:
            try:
                outcome.append(release(ledger, "0.5"))
            except OverBudget as error:
                outcome.append(error.left)

        waiting = threading.Thread(target=charge)
        waiting.start()
        time.sleep(0.2)
        assert outcome == []
        program.run("COMMIT")
        waiting.join()
        assert outcome == ["ε 0.1 of 1"]
        program.leave()


def test_case_L7_a_client_retries_after_a_timeout(home: Home) -> None:
    """In flight: ask later. Afterwards: the same bytes, whoever asks again. Another request: an error."""
    ledger = home.create()
    open_account(ledger)
    is_running, may_go_on = threading.Event(), threading.Event()
    draws: list[bytes] = []

    def run() -> bytes:
        is_running.set()
        assert may_go_on.wait(30)
        draws.append(random.randbytes(8))
        return draws[-1]

    plan = ChargedRelease(spending("0.1"), run)
    first = threading.Thread(target=lambda: Gate(ledger, principal="analyst").release(plan, key="monday"))
    first.start()
    assert is_running.wait(30)  # the client's patience ends here
    with home.open() as elsewhere:
        for retry in (ledger, elsewhere):
            with pytest.raises(InProgress):
                Gate(retry, principal="analyst").release(plan, key="monday")
            with pytest.raises(KeyReused):
                release(retry, "0.1", key="monday", request=b"something else")
    may_go_on.set()
    first.join()
    with home.open() as restarted:
        for retry in (ledger, restarted):
            again = Gate(retry, principal="analyst").release(plan, key="monday")
            assert (again.answer, again.is_replay) == (draws[0], True)
            with pytest.raises(KeyReused):
                release(retry, "0.2", key="monday")
    assert len(draws) == 1
    assert spent(ledger) == UNIT // 10


JUMPS = {
    "back one hour": datetime(2026, 11, 15, 11, tzinfo=UTC),
    "back ten years": datetime(2016, 11, 15, tzinfo=UTC),
    "to the epoch": datetime(1970, 1, 1, tzinfo=UTC),
    "midnight": datetime(2026, 11, 16, tzinfo=UTC),
    "just after midnight": datetime(2026, 11, 16, tzinfo=UTC) + timedelta(microseconds=1),
    "the first of the month": datetime(2026, 12, 1, tzinfo=UTC),
    "new year": datetime(2027, 1, 1, tzinfo=UTC),
    "a leap day": datetime(2028, 2, 29, tzinfo=UTC),
    "a century on": datetime(2126, 11, 15, tzinfo=UTC),
}


def test_case_L8_no_date_refills_anything(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes forward and back, with and without a restart; what was spent stays spent."""
    monkeypatch.setattr(entry, "time_ns", Clock.time_ns)
    ledger = home.create()
    open_account(ledger, delta=0)
    release(ledger, "0.7", key="first")
    held = Gate(ledger, principal="analyst").reserve(spending("0.3"))
    for when in JUMPS.values():
        monkeypatch.setattr(Clock, "told", when)
        monkeypatch.setattr(time, "time", when.timestamp)
        with home.open() as restarted:
            for opened in (ledger, restarted):
                with pytest.raises(OverBudget):
                    release(opened, Fraction(1, UNIT))
                assert release(opened, "0.7", key="first").is_replay
    held.step(Pure(Fraction(3, 10)))
    assert spent(ledger) == UNIT
    times = [receipt_time(ledger, seq) for seq in range(1, 3)]
    assert times == ["2026-11-15T12:00:00.000000Z"] * 2, "the clock was faked"
    assert ledger.verify().findings == ()


def receipt_time(ledger: Ledger, seq: int) -> str:
    [(body,)] = ledger.store.read(lambda tx: tx.rows("SELECT body FROM entries WHERE seq = ?", seq))
    return bytes(body).decode().split('"at":"')[1].split('"')[0]


class TestCaseL9:
    """Whole units, every price rounded up, caps rounded down. In floats 0.1 + 0.1 + 0.1 > 0.3."""

    def test_three_times_a_tenth_is_three_tenths(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger, epsilon="0.3", delta=0)
        for _ in range(3):
            release(ledger, "0.1")
        with pytest.raises(OverBudget):
            release(ledger, Fraction(1, 10**30))
        assert spent(ledger) == 3 * UNIT // 10

    def test_next_to_nothing_costs_one_unit(self, home: Home) -> None:
        """A float would absorb it: 0.3 + 1e-17 == 0.3. Here a thousand millions of them are ε 1."""
        ledger = home.create()
        open_account(ledger, epsilon="5e-9", delta=0)
        for _ in range(5):
            release(ledger, "1e-17")
        with pytest.raises(OverBudget):
            release(ledger, "1e-17")

    def test_nothing_at_all_costs_nothing(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger, delta=0)
        release(ledger, "1")
        release(ledger, "0")
        assert spent(ledger) == UNIT

    @pytest.mark.parametrize(
        "number",
        [math.nan, -math.nan, math.inf, -math.inf, "nan", Decimal("NaN"), Decimal("-Infinity"), -1e-17],
    )
    def test_what_is_no_number_is_refused(self, file_home: Home, number: object) -> None:
        """`not nan > cap` holds, and so a careless comparison lets it pass."""
        ledger = file_home.create()
        with pytest.raises(BadParameter):
            open_account(ledger, epsilon=number)
        open_account(ledger)
        for loss in (lambda: Pure(number), lambda: Approximate(Fraction(1), number)):  # type: ignore[arg-type]
            with pytest.raises(BadParameter):
                release(ledger, loss())
        assert spent(ledger) == 0

    def test_eleven_elevenths_do_not_fit_one_by_one(self, home: Home) -> None:
        """1/11 is no whole number of units: each is rounded up to 0.090909091, and eleven are 1.000000001.

        So ten fit, and 0.09090909 is left. Rounding is never in the analyst's favour.
        """
        ledger = home.create()
        open_account(ledger, delta=0)
        for _ in range(10):
            release(ledger, Fraction(1, 11))
        with pytest.raises(OverBudget) as refused:
            release(ledger, Fraction(1, 11))
        assert refused.value.left == "ε 0.09090909 of 1"
        release(ledger, Fraction(90_909_090, UNIT))
        assert spent(ledger) == UNIT

    @pytest.mark.parametrize(
        "loss", [Repeated(Pure(Fraction(1, 11)), 11), SequentialComposition((Pure(Fraction(1, 11)),) * 11)]
    )
    def test_as_one_loss_they_are_rounded_once_and_fit(
        self, home: Home, loss: SequentialComposition
    ) -> None:
        ledger = home.create()
        open_account(ledger, delta=0)
        release(ledger, loss)
        assert spent(ledger) == UNIT


def fails() -> bytes:
    raise RuntimeError("disk full")


def is_interrupted() -> bytes:
    raise KeyboardInterrupt


def exits() -> bytes:
    raise SystemExit(0)


def is_cancelled() -> bytes:
    raise asyncio.CancelledError


class TestCaseL10:
    """Once charged, charged: whatever becomes of the work."""

    @pytest.mark.parametrize("run", [fails, is_interrupted, exits, is_cancelled])
    def test_work_that_stops_stays_charged(self, home: Home, run: Callable[[], bytes]) -> None:
        ledger = home.create()
        open_account(ledger)
        with pytest.raises((WorkEnded, KeyboardInterrupt, SystemExit, asyncio.CancelledError)):
            Gate(ledger, principal="analyst").release(ChargedRelease(spending("0.4"), run), key="k")
        with pytest.raises(WorkEnded):
            release(ledger, "0.4", key="k")
        ledger.close()
        assert spent(home.open()) == 4 * UNIT // 10

    def test_a_consumer_that_goes_away_leaves_the_charge(self, file_home: Home) -> None:
        ledger = file_home.create()
        open_account(ledger)

        def answers() -> object:
            work = Gate(ledger, principal="analyst").reserve(spending(Repeated(Pure(Fraction(1, 10)), 5)))
            while True:
                work.step(Pure(Fraction(1, 10)))
                yield b"42"

        consumer = answers()
        next(consumer), next(consumer)  # type: ignore[call-overload]
        consumer.close()  # type: ignore[attr-defined]
        [block] = ledger.blocks("visits")
        assert (block.spent[1], block.held[1]) == (2 * UNIT // 10, 3 * UNIT // 10)

    def test_a_cancelled_task_leaves_the_charge(self, file_home: Home) -> None:
        ledger = file_home.create()
        open_account(ledger)
        runs = threading.Event()

        def run() -> bytes:
            runs.set()
            time.sleep(0.05)
            return b"42"

        async def client() -> None:
            asked = asyncio.to_thread(
                Gate(ledger, principal="analyst").release, ChargedRelease(spending("0.4"), run)
            )
            task = asyncio.create_task(asked)
            while not runs.is_set():
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(client())
        assert spent(ledger) == 4 * UNIT // 10

    @pytest.mark.parametrize("loss", ["-0.1", "-1e-30"])
    def test_a_loss_below_nothing_is_no_loss(self, file_home: Home, loss: str) -> None:
        ledger = file_home.create()
        open_account(ledger)
        release(ledger, "0.5")
        with pytest.raises(BadParameter):
            release(ledger, loss)
        assert spent(ledger) == UNIT // 2

    def test_there_is_no_way_to_ask_for_a_refund(self) -> None:
        words = ("refund", "credit", "reset", "undo", "delete", "remove", "cancel", "refill", "rollback")
        for kind in (Ledger, Gate):
            assert not [name for name in dir(kind) for word in words if word in name.lower()]


# L14

STEP = Fraction(1, 5)
CALM, BOLD = 1, 5  # ε 0.2 and ε 1, in steps


def fixed_composition(calm: int, bold: int, epsilon: float) -> float:
    """δ at ε of so many randomized responses, had their number been fixed beforehand."""
    law = {0: 1.0}
    for size in [CALM] * calm + [BOLD] * bold:
        truth = 1 / (1 + math.exp(-size * float(STEP)))
        after: dict[int, float] = {}
        for at, p in law.items():
            for by, q in ((size, 1 - truth), (-size, truth)):  # the law on the second data set
                after[at + by] = after.get(at + by, 0.0) + p * q
        law = after
    return sum(q * max(math.exp(at * float(STEP)) - math.exp(epsilon), 0) for at, q in law.items())


@pytest.mark.parametrize("seed", range(3))
def test_case_L14_the_filter_holds_at_every_step_of_an_adaptive_analyst(file_home: Home, seed: int) -> None:
    """He is bold after answers that favour his guess, and calm otherwise, until nothing fits any more.

    A fixed-composition formula, fed with what was asked so far, would have let him go on. It has no right
    to: tests/claims/test_portfolio.py computes that an analyst can get 1.5 δ from it.
    """
    ledger, luck = file_home.create(), random.Random(seed)
    open_sliced(ledger, 2, epsilon=2, delta="0.0533")
    terms, target = Terms.of(2, "0.0533"), Target("visits", ["b0"])
    asked, sums, ahead, more = {CALM: 0, BOLD: 0}, [0] * 8, 0, 0
    while True:
        wanted = BOLD if ahead > 0 else CALM
        size = next((size for size in (wanted, CALM, BOLD) if fits(ledger, size, target)), None)
        if size is None:
            break
        asked[size] += 1
        price = terms.price(Pure(size * STEP)).costs
        sums = [total + cost for total, cost in zip(sums, price, strict=True)]
        within = [total <= cap for total, cap in zip(sums, terms.caps, strict=True)]
        assert within[0], "the filter, by hand"
        assert (within[1] and within[2]) or any(within[3:])
        truth = 1 / (1 + math.exp(-size * float(STEP)))
        ahead += size if luck.random() < truth else -size
    for size in (CALM, BOLD):
        following = asked | {size: asked[size] + 1}
        more += fixed_composition(following[CALM], following[BOLD], 2.0) <= 0.0533
    assert more, "the formula would have admitted another one"
    assert fits(ledger, BOLD, Target("visits", ["b1"])), "others are not affected"


def fits(ledger: Ledger, size: int, target: Target) -> bool:
    try:
        release(ledger, size * STEP, target)
    except OverBudget:
        return False
    return True
