"""Reservations hold a cap, spend by steps, and lapse only where that is sound."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import GaussianNoise, Loss, Pure, Repeated
from lapwing.errors import BadParameter, InProgress, KeyReused, OverBudget, Unavailable, WorkEnded
from lapwing.ledger import Ledger
from lapwing.ledger.gate import Gate, Work
from lapwing.ledger.request_status import FailedCharges, find_failed_charges
from lapwing.ledger.spending import Target
from support.ledgers import Home, open_account, open_sliced, release, spending
from support.raised import named

STEP = Pure(Fraction(1, 10))
NOISE = GaussianNoise(Fraction(50), Fraction(1), 1)


def held_and_spent(ledger: Ledger, label: str = "*") -> tuple[int, int]:
    [block] = [block for block in ledger.blocks("visits") if block.label == label]
    return block.held[1], block.spent[1]


def lapse(work: Work) -> None:
    work.settle(stopping_was_decided_from_released_values=True)


def test_what_is_held_is_not_there_for_others(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    Gate(ledger, principal="trainer").reserve(spending("0.7"))
    with pytest.raises(OverBudget) as refused:
        release(ledger, "0.4")
    assert refused.value.left == "ε 0.3 of 1"
    release(ledger, "0.3")


def test_steps_are_spent_as_they_begin_and_the_rest_lapses(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    work = Gate(ledger, principal="trainer").reserve(spending(Repeated(STEP, 7)))
    work.step(STEP)
    work.step(STEP)
    assert held_and_spent(ledger) == (500_000_000, 200_000_000)
    lapse(work)
    assert held_and_spent(ledger) == (0, 200_000_000)
    release(ledger, "0.8")


def test_what_is_left_is_spent_if_private_values_decided_to_stop(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    work = Gate(ledger, principal="trainer").reserve(spending(Repeated(STEP, 7)))
    work.step(STEP)
    work.settle(stopping_was_decided_from_released_values=False)
    assert held_and_spent(ledger) == (0, 700_000_000)


def test_settling_must_say_what_decided() -> None:
    with pytest.raises(TypeError):
        Work.settle(None)  # type: ignore[call-arg, arg-type]


def test_no_more_steps_than_were_reserved(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    work = Gate(ledger, principal="trainer").reserve(spending(Repeated(STEP, 2)))
    work.step(STEP)
    work.step(STEP)
    with pytest.raises(OverBudget, match="reservation"):
        work.step(STEP)
    assert held_and_spent(ledger) == (0, 200_000_000)


def test_nothing_follows_after_settling(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    work = Gate(ledger, principal="trainer").reserve(spending("0.5"))
    lapse(work)
    with pytest.raises(BadParameter, match="ended"):
        work.step(STEP)
    with pytest.raises(BadParameter, match="ended"):
        lapse(work)
    assert held_and_spent(ledger) == (0, 0)


def test_losses_without_a_pure_bound_are_held_and_given_back_too(home: Home) -> None:
    """Filters that a loss exceeds for ever must come back when nothing was spent on it."""
    ledger = home.create()
    open_account(ledger)
    gate = Gate(ledger, principal="trainer")
    works = [gate.reserve(spending(Repeated(NOISE, 10))) for _ in range(5)]
    for work in works:
        work.step(NOISE)
    assert ledger.blocks("visits")[0].spent[1] > 10**9
    for work in works:
        lapse(work)
    assert ledger.blocks("visits")[0].held == (0,) * 8
    untouched = gate.reserve(spending(Repeated(NOISE, 20)))
    lapse(untouched)
    work = gate.reserve(spending(Repeated(NOISE, 100)))
    for _ in range(100):
        work.step(NOISE)


def test_a_reservation_that_never_stepped_leaves_the_pure_filter_alone(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    lapse(Gate(ledger, principal="trainer").reserve(spending(Repeated(NOISE, 20))))
    release(ledger, "1")


@pytest.mark.parametrize("steps", [0, 1])
def test_a_fixed_run_is_spent_whole_at_its_first_step(home: Home, steps: int) -> None:
    run: Loss = FixedRun.of((NOISE, 10), delta="1e-8")
    ledger = home.create()
    open_account(ledger)
    work = Gate(ledger, principal="trainer").reserve(spending(run))
    with pytest.raises(BadParameter, match="fixed run"):
        work.step(NOISE)
    for _ in range(steps):
        work.step()
    [block] = ledger.blocks("visits")
    assert any(block.spent) == bool(steps)
    lapse(work)
    [block] = ledger.blocks("visits")
    assert block.held == (0,) * 8
    price = ledger.account("visits").costs(run)
    assert block.spent == (price if steps else (0,) * 8)


def test_it_survives_a_restart(home: Home) -> None:
    ledger = home.create()
    open_sliced(ledger, 3)
    target = Target("visits", ["b0", "b2"])
    work = Gate(ledger, principal="trainer").reserve(spending(Repeated(STEP, 5), target))
    work.step(STEP)
    ledger.close()
    ledger = home.open()
    with pytest.raises(BadParameter, match="principal"):
        Gate(ledger, principal="somebody else").resume(work.number)
    again = Gate(ledger, principal="trainer").resume(work.number)
    assert held_and_spent(ledger, "b2") == (400_000_000, 100_000_000)
    again.step(STEP)
    lapse(again)
    assert held_and_spent(ledger, "b0") == (0, 200_000_000)
    assert held_and_spent(ledger, "b1") == (0, 0)
    home.open()


def test_the_same_key_is_the_same_reservation(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    gate = Gate(ledger, principal="trainer")
    gate.reserve(spending("0.5"), key="run 1")
    with pytest.raises(InProgress):
        gate.reserve(spending("0.5"), key="run 1")
    with pytest.raises(KeyReused):
        gate.reserve(spending("0.4"), key="run 1")
    assert held_and_spent(ledger) == (500_000_000, 0)


def test_the_same_key_after_a_crash_goes_on_with_it(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    number = Gate(ledger, principal="trainer").reserve(spending("0.5"), key="run 1").number
    ledger.close()
    ledger = home.open()
    work = Gate(ledger, principal="trainer").reserve(spending("0.5"), key="run 1")
    assert work.number == number
    assert held_and_spent(ledger) == (500_000_000, 0)
    work.step(STEP)
    work.finish(lambda: b"model")
    again = Gate(ledger, principal="trainer").reserve(spending("0.5"), key="run 1")
    assert again.answered is not None
    assert again.answered.answer == b"model"


def test_its_answer_is_stored_and_given_again(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    gate = Gate(ledger, principal="trainer")
    work = gate.reserve(spending("0.5"), key="run 1")
    work.step(STEP)
    done = work.finish(lambda: b"model")
    lapse(work)
    assert done.answer == b"model"
    assert done.receipt.position == work.number


def test_so_many_at_once_that_sums_would_not_fit_are_refused(home: Home) -> None:
    """Each holds cap + 1 in the filters that it does not rely on: with a large δ, a large number."""
    ledger = home.create()
    open_account(ledger, delta="0.99", epsilon=10)
    tiny = GaussianNoise(Fraction(10**6), Fraction(1), 1)
    gate = Gate(ledger, principal="trainer")
    works: list[Work] = []

    def reserve_many() -> None:
        works.extend(gate.reserve(spending(tiny)) for _ in range(300))

    with pytest.raises(Unavailable, match="settle some"):
        reserve_many()
    [block] = ledger.blocks("visits")
    assert max(block.held) < 1 << 63
    for work in works:
        lapse(work)
    gate.reserve(spending(tiny))
    assert not ledger.verify().findings


def test_there_is_no_answer_without_a_step(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    work = Gate(ledger, principal="trainer").reserve(spending("0.5"))
    ran: list[int] = []

    def run() -> bytes:
        ran.append(1)
        return b""

    with pytest.raises(BadParameter, check=named("work")):
        work.finish(run)
    lapse(work)
    with pytest.raises(BadParameter, check=named("work")):
        work.finish(run)
    assert not ran


def test_raising_waits_for_reservations(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    work = Gate(ledger, principal="trainer").reserve(spending("0.5"))
    with pytest.raises(BadParameter, match="reservations"):
        ledger.raise_budget("visits", epsilon=1, delta=0, curator=home.curator)
    lapse(work)
    ledger.raise_budget("visits", epsilon=1, delta=0, curator=home.curator)


def test_blocks_wait_for_reservations_over_everyone(home: Home) -> None:
    ledger = home.create()
    open_sliced(ledger, 1)
    work = Gate(ledger, principal="trainer").reserve(spending("0.5", Target("visits", everyone=True)))
    with pytest.raises(BadParameter, match="everyone"):
        ledger.open_blocks("visits", ["later"])
    work.step(STEP)
    lapse(work)
    ledger.open_blocks("visits", ["later"])
    with pytest.raises(OverBudget):
        release(ledger, "0.95", Target("visits", ["later"]))


def test_steps_that_fit_only_when_rounded_once_are_refused_and_not_asked_for_ever(home: Home) -> None:
    """Three times 1/3 is 1, but each step of 1/3 is charged as 0.333333334."""
    ledger = home.create()
    open_account(ledger, delta=0)
    with pytest.raises(OverBudget) as refused:
        Gate(ledger, principal="trainer").reserve(spending(Repeated(Pure(Fraction(1, 3)), 3)))
    assert (refused.value.asked, refused.value.left) == ("ε 1.000000001", "ε 1 of 1")
    release(ledger, Repeated(Pure(Fraction(1, 3)), 3))


def test_reserved_work_that_fails_long_after_its_process_ended_is_counted(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    number = Gate(ledger, principal="trainer").reserve(spending(Repeated(STEP, 2))).number
    ledger.close()
    ledger = home.open()
    found, kept = find_failed_charges(ledger, FailedCharges())
    assert not found
    assert kept.last >= number
    work = Gate(ledger, principal="trainer").resume(number)
    work.step(STEP)

    def failing() -> bytes:
        raise ValueError

    with pytest.raises(WorkEnded):
        work.finish(failing)
    ledger.close()
    found, _ = find_failed_charges(home.open(), FailedCharges.from_json(kept.to_json()))
    assert [one.position for one in found] == [number]


def test_work_that_failed_is_spent_counted_and_never_continued(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    gate = Gate(ledger, principal="trainer")
    work = gate.reserve(spending("0.5"), key="run 1")
    work.step(STEP)
    work.fail()
    assert held_and_spent(ledger) == (0, 500_000_000)
    found, _ = find_failed_charges(ledger, FailedCharges())
    assert [one.position for one in found] == [work.number]
    for opened in (ledger, home.open()):
        with pytest.raises(WorkEnded):
            Gate(opened, principal="trainer").reserve(spending("0.5"), key="run 1")
        assert opened.verify().findings == ()


def test_work_that_was_left_is_continued_in_the_same_session(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    gate = Gate(ledger, principal="trainer")
    work = gate.reserve(spending("0.5"), key="run 1")
    work.step(STEP)
    work.leave()
    again = gate.reserve(spending("0.5"), key="run 1")
    assert (again.number, again.charged) == (work.number, 1)
    again.finish(lambda: b"model")
    assert not again.is_settled
    lapse(again)
    assert again.is_settled


def test_charged_steps_are_compared_with_losses(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    work = Gate(ledger, principal="trainer").reserve(spending("0.5"), key="run 1")
    assert work.are_charged([])
    work.step(STEP)
    work.step(Pure(Fraction(1, 7)))
    assert work.are_charged([STEP, Pure(Fraction(1, 7))])
    assert work.are_charged([Pure(Fraction(1, 7)), STEP])
    for others in ([], [STEP], [STEP, STEP], [STEP, Pure(Fraction(1, 7)), STEP]):
        assert not work.are_charged(others)
