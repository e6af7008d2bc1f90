"""The independent accountant finds whatever is wrong with a history, and nothing in one that is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import Approximate, Concentrated, LaplaceNoise, ParallelComposition, Pure
from lapwing.ledger.accountant import replay as module
from lapwing.ledger.accountant.balance import LOST, MOVED, OPEN
from lapwing.ledger.accountant.replay import ANSWERED, FAILED, NOTHING, Replay
from lapwing.ledger.entry import encode
from support.cases import each
from support.histories import COUNT, History, long_history
from support.replayed import found, read, small
from support.replays import held_of, outcome_of, spent_of

# A history that is right


def test_nothing_is_found_in_a_history_with_one_of_everything() -> None:
    replay = read(long_history())
    assert replay.finish() == ()
    assert (replay.prices.checked, replay.prices.unchecked) == (11, 0)
    assert [outcome_of(replay, seq) for seq in (6, 9, 8)] == [ANSWERED, FAILED, NOTHING]
    assert {number: data.version for number, data in replay.registers.datasets.items()} == {1: 2}
    states = {number: state for number, _, state, _, _ in replay.blocks()}
    assert [states[k] for k in (1, 2, 3, 4)] == [MOVED] * 4
    assert [states[k] for k in range(5, 11)] == [OPEN] * 6


def test_sums_are_those_of_the_filter() -> None:
    history = small()
    terms = history.terms[1]
    losses = [COUNT, Approximate(Fraction(1, 5), Fraction(1, 10**9)), Concentrated(Fraction(1, 1000))]
    spent = terms.nothing_spent
    for loss in losses:
        history.charge((1, [[2, 2]]), loss=loss)
        after = terms.after(spent, terms.price(loss))
        assert after is not None
        spent = after
    replay = read(history)
    assert replay.finish() == ()
    assert spent_of(replay, 2) == spent
    assert {number: sums for number, _, _, sums, _ in replay.blocks()}[2] == spent


def test_new_blocks_begin_with_what_was_spent_on_everyone() -> None:
    history = small()
    history.charge((1, [[1, 3]]))
    history.blocks("west")  # 5
    replay = read(history)
    assert replay.finish() == ()
    assert spent_of(replay, 5) == spent_of(replay, 1) == tuple(history.costs(COUNT))


def test_feeding_in_pieces_comes_to_the_same() -> None:
    history = long_history()
    whole, pieces = Replay(), Replay()
    whole.feed(history.entries())
    for entry in history.entries():
        pieces.feed([entry])
        assert pieces.finish() == ()
    assert list(whole.blocks()) == list(pieces.blocks())
    assert list(whole.reservations) == list(pieces.reservations)


def test_both_ways_to_read_a_charge_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    history = long_history()
    fast = read(history)
    monkeypatch.setattr(module, "_charge", lambda _: None)
    monkeypatch.setattr(module, "_answer", lambda _: None)
    slow = read(history)
    assert fast.finish() == slow.finish() == ()
    assert list(fast.blocks()) == list(slow.blocks())
    assert fast.prices.checked == slow.prices.checked
    assert fast.registers.names == slow.registers.names


# Reservations


def test_what_is_held_counts_and_what_lapses_does_not() -> None:
    history = small()
    held = history.reserve((1, [[2, 3]]), loss=Pure(Fraction(1, 2)))
    total = tuple(history.costs(Pure(Fraction(1, 2))))
    before = read(history)
    assert held_of(before, 2) == total
    assert not any(spent_of(before, 2))
    history.step(held, COUNT)
    during, step = read(history), tuple(history.costs(COUNT))
    assert spent_of(during, 3) == step
    assert held_of(during, 3) == tuple(t - min(t, s) for t, s in zip(total, step, strict=True))
    history.settle(held)
    after = read(history)
    assert after.finish() == ()
    assert spent_of(after, 3) == step
    assert not any(held_of(after, 3))


def test_what_is_left_can_be_spent() -> None:
    history = small()
    history.settle(history.reserve((1, [[2, 2]]), loss=Pure(Fraction(1, 2))), spent=True)
    replay = read(history)
    assert replay.finish() == ()
    assert spent_of(replay, 2) == tuple(history.costs(Pure(Fraction(1, 2))))


def test_nothing_else_fits_what_is_held() -> None:
    history = small()
    # Each fits alone; ε 0.9 with ε 0.9 fits no filter of ε 1.
    history.reserve((1, [[2, 2]]), loss=Pure(Fraction(9, 10)))
    history.charge((1, [[2, 2]]), loss=Pure(Fraction(9, 10)))
    assert found(history) == ("entry 6: block 2 of account 1 was charged beyond its cap",)
    history.records[5]["debits"][0][1] = [[3, 3]]
    assert found(history) == ()


# Each rule, broken once


def _charge_of(history: History) -> dict[str, Any]:
    return next(record for record in history.records if record["kind"] == "charge")


def _kind(history: History, kind: str, nth: int = 0) -> dict[str, Any]:
    return [record for record in history.records if record["kind"] == kind][nth]


def _double(history: History, kind: str, nth: int = 0) -> None:
    record = _kind(history, kind, nth)
    history.records.append(json.loads(encode(record)))


def _beyond(history: History) -> None:
    for _ in range(60):
        history.charge((1, [[10, 10]]))


def _raise_resigned(change: dict[str, Any]) -> Callable[[History], None]:
    def breaking(history: History) -> None:
        record = _kind(history, "account", 2)
        record.update(change)
        history.sign(history.records.index(record) + 1)

    return breaking


BROKEN: dict[str, tuple[Callable[[History], Any], str]] = {
    "no beginning": (lambda h: h.records.pop(0), "the first entry does not say whose ledger it is"),
    "two beginnings": (lambda h: _double(h, "genesis"), "a history begins once"),
    "another format": (lambda h: h.records[0].update(format=2), "bad 'format'"),
    "an account twice": (lambda h: _double(h, "account"), "account 1 was opened before"),
    "caps too high": (lambda h: _kind(h, "account")["caps"].__setitem__(5, 10**9), "caps are not those"),
    "caps too low": (lambda h: _kind(h, "account")["caps"].__setitem__(5, 1), "caps are not those"),
    "another ε": (lambda h: _kind(h, "account").update(epsilon="2"), "caps are not those"),
    "no orders": (lambda h: _kind(h, "account").update(orders=[2, 2, 3, 4, 5]), "not acceptable"),
    "periods of persons": (lambda h: _kind(h, "account").update(slices="periods"), "person and period"),
    "slices of what is replaced": (
        lambda h: _kind(h, "account").update(relation="replace one unit"), "where that is replaced",
    ),
    "everyone twice": (lambda h: _kind(h, "account", 1).update(everyone=2), "numbers that are not fresh"),
    "an unsigned raise": (lambda h: _kind(h, "account", 2).update(signature=None), "signed by the curator"),
    "a raise changed": (lambda h: _kind(h, "account", 2).update(delta="1/999999"), "signed by the curator"),
    "a raise of nothing": (_raise_resigned({"raises": 9}), "not the first of a family"),
    "a raise of a raise": (lambda h: h.account(4, raises=3, moved=[]), "not the first of a family"),
    "a raise of another unit": (_raise_resigned({"unit": "row"}), "cannot change the unit"),
    "a block left behind": (_raise_resigned({"moved": [[2, 7], [3, 8]]}), "does not move exactly"),
    "a block moved twice": (_raise_resigned({"moved": [[2, 7], [2, 8], [4, 9]]}), "does not move exactly"),
    "a block moved to a used number": (
        _raise_resigned({"moved": [[2, 5], [3, 8], [4, 9]]}), "numbers that are not fresh",
    ),
    "blocks under used numbers": (
        lambda h: h.add("blocks", account=1, first=3, names=["ab" * 16]), "numbers that are not fresh",
    ),
    "blocks of no account": (lambda h: h.blocks("x", account=9), "has no blocks to open"),
    "blocks without slices": (lambda h: h.blocks("x", account=2), "has no blocks to open"),
    "a name twice": (lambda h: h.blocks("east", account=1), "has the name of another block"),
    "blocks while everyone spends elsewhere": (
        lambda h: (h.charge((3, [[6, 6]])), h.blocks("x", account=1)), "which was raised",
    ),
    "blocks while everyone is held": (
        lambda h: (h.reserve((3, [[6, 6]]), loss=COUNT), h.blocks("x", account=3)), "held for everyone",
    ),
    "a charge beyond the cap": (_beyond, "block 10 of account 1 was charged beyond its cap"),
    "a charge on a moved block": (lambda h: h.charge((1, [[2, 2]])), "block 2 is not an open block"),
    "a charge on no block": (lambda h: h.charge((1, [[99, 99]])), "block 99 is not an open block"),
    "a charge on another's block": (lambda h: h.charge((2, [[10, 10]])), "block 10 is not an open block"),
    "a wide charge on no block": (lambda h: h.charge((3, [[7, 700]])), "never opened"),
    "a wide charge on others' blocks": (lambda h: h.charge((3, [[1, 70]])), "block 1 is not an open block"),
    "a charge on no account": (
        lambda h: _charge_of(h)["debits"][0].__setitem__(0, 9), "account 9 was never opened",
    ),
    "a charge that costs nothing": (
        lambda h: _charge_of(h)["debits"][0].__setitem__(2, [0] * 8), "cost number 1 is less",
    ),
    "a charge at half price": (
        lambda h: _charge_of(h)["debits"][0][2].__setitem__(5, 36188207), "cost number 5 is less",
    ),
    "a charge to nobody": (lambda h: _charge_of(h).update(debits=[]), "bad 'debits'"),
    "a charge below 0": (
        lambda h: _charge_of(h)["debits"][0][2].__setitem__(1, -1), "bad 'debits'",
    ),
    "a charge for no loss": (lambda h: _charge_of(h).update(loss={"loss": "Free"}), "not the description"),
    "a charge with one more field": (lambda h: _charge_of(h).update(refund=1), "other fields"),
    "a key twice": (lambda h: _double(h, "charge"), "its key was used by entry 6 before"),
    "an answer twice": (lambda h: _double(h, "answer"), "had an outcome before"),
    "an answer after failing": (lambda h: h.answer(9), "had an outcome before"),
    "an answer to nothing": (lambda h: h.answer(2), "which is none before it"),
    "an answer to itself": (lambda h: h.answer(len(h.records) + 1), "which is none before it"),
    "an answer to what comes later": (
        lambda h: (h.answer(len(h.records) + 2), h.charge((1, [[10, 10]]))), "which is none before it",
    ),
    "a failure of nothing": (lambda h: h.failed(77), "which is none before it"),
    "a step after the end": (lambda h: h.step(11, COUNT), "reservation 11 has ended"),
    "a step of nothing": (lambda h: _kind(h, "step").update(reservation=3), "reservation 3 was never made"),
    "a step too many": (
        lambda h: [_kind(h, "step", k).update(costs=[[1, [0, 3 * 10**8, *[0] * 6]]]) for k in (0, 1)],
        "takes more than reservation 11 holds",
    ),
    "a step in another account": (
        lambda h: _kind(h, "step")["costs"][0].__setitem__(0, 2), "charges other accounts",
    ),
    "a step at no price": (lambda h: _kind(h, "step")["costs"][0].__setitem__(1, [0] * 8), "is less than"),
    "a step for nothing": (lambda h: _kind(h, "step").update(loss=None), "what it is charged for"),
    "a fixed run in part": (
        lambda h: _kind(h, "step", 2)["costs"][0].__setitem__(1, [0] * 8), "must be spent whole",
    ),
    "an end twice": (lambda h: _double(h, "settle"), "reservation 11 has ended"),
    "data twice": (lambda h: _double(h, "data"), "registered before"),
    "a version left out": (lambda h: _kind(h, "version").update(version=3), "does not follow version 1"),
    "a version of nothing": (lambda h: _kind(h, "version").update(data=7), "is not known"),
    "a version under another name": (lambda h: _kind(h, "version").update(name="ab" * 16), "is not known"),
    "an account left": (
        lambda h: _kind(h, "version").update(accounts=[2], same_rule=[False]), "cannot leave an account",
    ),
    "data of no account": (lambda h: _kind(h, "data").update(accounts=[3]), "not the first of a family"),
    "people differ unsigned": (
        lambda h: _kind(h, "version")["differ"][0].__setitem__(1, "ab" * 64), "signed by the curator",
    ),
    "people differ from others": (
        lambda h: _kind(h, "version")["differ"][0].__setitem__(0, 1), "signed by the curator",
    ),
    "recovered unsigned": (
        lambda h: h.add("recovered", lost=None, signature="ab" * 64), "signed by the curator",
    ),
    "a check unsigned": (
        lambda h: h.add("check", account=1, policy="ab" * 32, signature="ab" * 64), "signed by the curator",
    ),
    "a policy of no account": (
        lambda h: h.add("policy", account=99, policy="ab" * 32), "account 99 was never opened",
    ),
    "a check with a count": (
        lambda h: h.add("check", account=1, policy="ab" * 32, signature="ab" * 64, cells=7), "other fields",
    ),
    "a charge after a loss": (
        lambda h: (h.recovered(), h.charge((2, [[5, 5]]))), "block 5 is not an open block",
    ),
    "blocks after a loss": (lambda h: (h.recovered(), h.blocks("x", account=3)), "account that was lost"),
    "no kind": (lambda h: h.records[3].update(kind="refund"), "is of no known kind"),
    "time in another form": (lambda h: h.records[3].update(at="yesterday"), "bad 'at'"),
}  # fmt: skip


@each("rule", BROKEN)
def test_each_rule_that_is_broken_is_found(rule: str) -> None:
    breaking, what = BROKEN[rule]
    history = long_history()
    for record in history.records:  # lists, which tests can change
        record.update(json.loads(encode(record)))
    breaking(history)
    findings = found(history)
    assert any(what in finding for finding in findings), findings


def test_a_raise_while_something_is_held_is_found() -> None:
    history = small()
    history.reserve((1, [[2, 2]]), loss=COUNT)
    history.account(3, raises=1, moved=[[2, 6], [3, 7]])
    assert found(history) == ("entry 6: raises an account in which something is held",)


def test_a_run_priced_as_a_whole_must_be_fixed() -> None:
    history = small()
    run = FixedRun.of((LaplaceNoise(Fraction(40), 1), 5), delta=Fraction(1, 10**8))
    history.reserve((1, [[2, 2]]), loss=run)
    assert found(history) == ("entry 5: a run that is priced as a whole must be fixed",)
    history.records[-1]["fixed"] = True
    assert found(history) == ()


def test_parallel_losses_are_for_adding_and_removing_only() -> None:
    for relation, findings in (("add or remove one unit", 0), ("replace one unit", 1)):
        history = History()
        history.account(1, relation=relation, slices="none")
        history.charge((1, [[1, 1]]), loss=ParallelComposition((COUNT, COUNT)))
        assert len(found(history)) == findings


def test_a_fixed_run_has_one_step() -> None:
    history = small()
    whole = history.reserve((1, [[2, 2]]), loss=Pure(Fraction(0)), fixed=True)
    history.step(whole, None)
    assert found(history) == ()
    history.step(whole, None)
    assert found(history) == (f"entry 7: the fixed run of reservation {whole} had its one step before",)


def test_after_a_loss_every_filter_of_every_open_block_is_exceeded() -> None:
    history = small()
    held = history.reserve((1, [[2, 2]]), loss=COUNT)
    history.recovered(lost=9)
    replay = read(history)
    assert replay.finish() == ()
    assert replay.recovered == [(6, 9)]
    assert {state for _, _, state, _, _ in replay.blocks()} == {LOST}
    for account, block in ((1, 2), (1, 1), (2, 4)):
        assert spent_of(replay, block) == tuple(cap + 1 for cap in history.terms[account].caps)
    history.settle(held)
    assert found(history) == (f"entry 7: reservation {held} has ended",)


def test_a_raise_after_a_loss_opens_the_blocks_again() -> None:
    history = small()
    history.recovered()
    history.account(3, raises=1, moved=[[2, 6], [3, 7]])
    history.charge((3, [[6, 7]]))
    assert found(history) == ()
