"""The independent accountant finds whatever is wrong with a history, and nothing in one that is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.ledger.accountant import replay as module
from lapwing.ledger.accountant.balance import LOST, MOVED, OPEN
from lapwing.ledger.accountant.outcomes import ANSWERED, FAILED, NOTHING
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.entry import Raw, digest_of, encode
from lapwing.privacy import (
    Approximate,
    Concentrated,
    FixedRun,
    LaplaceNoise,
    Loss,
    Pure,
    Repeated,
    Sum,
    Terms,
    Worst,
)
from support.histories import COUNT, History, long_history

COSTS = tuple[int, ...]


def read(history: History) -> Replay:
    replay = Replay()
    replay.feed(history.entries())
    return replay


def found(history: History) -> tuple[str, ...]:
    return read(history).finish()


def small() -> History:
    """Two accounts; blocks 2 and 3 in the first, everyone is 1; the second is block 4."""
    history = History()
    history.account(1)
    history.blocks("north", "south")
    history.account(2, slices="none", label="another")
    return history


# A history that is right


def test_nothing_is_found_in_a_history_with_one_of_everything() -> None:
    replay = read(long_history())
    assert replay.finish() == ()
    assert (replay.prices.checked, replay.prices.unchecked) == (11, 0)
    assert [replay.outcome_of(seq) for seq in (6, 9, 8)] == [ANSWERED, FAILED, NOTHING]
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
    assert replay.spent_of(2) == spent
    assert {number: sums for number, _, _, sums, _ in replay.blocks()}[2] == spent


def test_new_blocks_begin_with_what_was_spent_on_everyone() -> None:
    history = small()
    history.charge((1, [[1, 3]]))
    history.blocks("west")  # 5
    replay = read(history)
    assert replay.finish() == ()
    assert replay.spent_of(5) == replay.spent_of(1) == tuple(history.costs(COUNT))


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
    assert before.held_of(2) == total
    assert not any(before.spent_of(2))
    history.step(held, COUNT)
    during, step = read(history), tuple(history.costs(COUNT))
    assert during.spent_of(3) == step
    assert during.held_of(3) == tuple(t - min(t, s) for t, s in zip(total, step, strict=True))
    history.settle(held)
    after = read(history)
    assert after.finish() == ()
    assert after.spent_of(3) == step
    assert not any(after.held_of(3))


def test_what_is_left_can_be_spent() -> None:
    history = small()
    history.settle(history.reserve((1, [[2, 2]]), loss=Pure(Fraction(1, 2))), spent=True)
    replay = read(history)
    assert replay.finish() == ()
    assert replay.spent_of(2) == tuple(history.costs(Pure(Fraction(1, 2))))


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
    "a charge after a loss": (
        lambda h: (h.recovered(), h.charge((2, [[5, 5]]))), "block 5 is not an open block",
    ),
    "blocks after a loss": (lambda h: (h.recovered(), h.blocks("x", account=3)), "account that was lost"),
    "no kind": (lambda h: h.records[3].update(kind="refund"), "is of no known kind"),
    "time in another form": (lambda h: h.records[3].update(at="yesterday"), "bad 'at'"),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
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
        history.charge((1, [[1, 1]]), loss=Worst((COUNT, COUNT)))
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
        assert replay.spent_of(block) == tuple(cap + 1 for cap in history.terms[account].caps)
    history.settle(held)
    assert found(history) == (f"entry 7: reservation {held} has ended",)


def test_a_raise_after_a_loss_opens_the_blocks_again() -> None:
    history = small()
    history.recovered()
    history.account(3, raises=1, moved=[[2, 6], [3, 7]])
    history.charge((3, [[6, 7]]))
    assert found(history) == ()


# Digests, numbers, bytes


def test_changed_bytes_are_found_by_their_digest() -> None:
    entries = long_history().entries()
    seq, body, digest = entries[5]
    entries[5] = (seq, body.replace(b"0.1.0", b"0.1.1"), digest)
    replay = Replay()
    replay.feed(entries)
    assert replay.finish() == ("entry 6: its bytes are not those of its digest",)


def test_numbers_rise_and_may_have_gaps() -> None:
    history = small()
    history.charge((1, [[2, 2]]))
    for numbers, count in (([1, 2, 3, 4, 9], 0), ([1, 2, 3, 5, 5], 1), ([2, 1, 3, 4, 5], 1)):
        replay = Replay()
        entries = zip(numbers, history.entries(), strict=True)
        replay.feed([(number, body, digest) for number, (_, body, digest) in entries])
        assert len(replay.finish()) == count


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b'"debits":', b'"debits":[[1,[[2,2]],[0,0,0,0,0,0,0,0]]],"debits":'),
        lambda body: body.replace(b'{"scale":"10"}', b'{"scale":"10","scale":"11"}'),
        lambda body: body.replace(b'{"scale":"10"}', b'{},"debits":[],"more":{}'),
        lambda body: body.replace(b'"code":"0.1.0"', b'"code":"0.1.0","code":"0.1.1"'),
        lambda body: body.replace(b'"loss":{', b'"loss":{"scale":"1",'),
        lambda body: body.replace(b",", b", ", 1),
        lambda body: body.replace(b"[[2,2]]", b"[[02,2]]"),
        lambda body: body.replace(b"[[2,2]]", b"[[2,2.0]]"),
        lambda body: body.replace(b"[0,1", b"[-0,1"),
        lambda body: body.replace(b"Laplace", b"L\\u0061place"),
        lambda body: body.replace(b"Laplace", "Läplace".encode()),
        lambda body: body + b" ",
        lambda body: body + b"\n",
        lambda body: body[:-1],
        lambda body: body[:-1] + b',"kind":"failed"}',
    ],
    ids=range(15),
)
def test_a_body_has_one_form_of_bytes(change: Callable[[bytes], bytes]) -> None:
    history = small()
    history.charge((1, [[2, 2]]))
    *before, body = history.bodies
    for bodies in ([*before, change(body)], [*before, body, change(body)]):
        replay = Replay()
        replay.feed([(seq, body, digest_of(body)) for seq, body in enumerate(bodies, 1)])
        assert change(body) != body
        assert any(finding.startswith(f"entry {len(bodies)}: ") for finding in replay.finish())


def _entries(bodies: list[bytes]) -> list[Raw]:
    return [(seq, body, digest_of(body)) for seq, body in enumerate(bodies, 1)]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_whatever_is_written_is_a_finding_and_not_a_crash(data: st.DataObject) -> None:
    bodies = long_history().bodies
    place = data.draw(st.integers(0, len(bodies) - 1))
    record = json.loads(bodies[place])
    name = data.draw(st.sampled_from(sorted(record)))
    junk = st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=3)
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )
    record[name] = data.draw(junk | st.sampled_from([[[1, 1]], [2**70], [[1, [[1, 2]], [0] * 8]]]))
    bodies[place] = data.draw(st.sampled_from([encode(record), data.draw(st.binary(max_size=20))]))
    replay = Replay()
    replay.feed(_entries(bodies))
    replay.finish()
    list(replay.blocks())
    assert not any("cannot be followed" in finding for finding in replay.finish())


def test_nested_and_huge_bodies_are_findings() -> None:
    deep = b'{"kind":"charge","loss":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    long = b'{"kind":"failed","charge":' + b"9" * 10_000 + b"}"
    replay = Replay()
    replay.feed(_entries([*small().bodies, deep, long]))
    assert len(replay.finish()) == 2


def test_findings_are_counted_beyond_the_first_few() -> None:
    history = small()
    for _ in range(30):
        history.failed(99)
    findings = found(history)
    assert len(findings) == 21
    assert findings[-1] == "and 10 more"


# Sums: exact, whatever their size, and the same as one by one


def test_a_thousand_charges_of_the_greatest_cost_do_not_wrap_round() -> None:
    history = small()
    huge = [0, 1 << 62, 1 << 62, *[1 << 62] * 4, 0]  # the last order is free for ever
    for _ in range(1000):
        history.charge((1, [[2, 2]]), loss=Sum(()))
        history.records[-1]["debits"][0][2] = huge
    replay = read(history)
    assert replay.finish() == ()
    caps = history.terms[1].caps
    assert replay.spent_of(2) == (0, *[cap + 1 for cap in caps[1:7]], 0)
    assert replay.balances.spent(replay.balances.row(2))[1] == 1000 << 62


class OneByOne:
    """The plainest accountant: Python integers, entry by entry, as the claim is written."""

    def __init__(self, caps: dict[int, COSTS]) -> None:
        self.caps = caps
        self.spent = {block: [0] * 8 for block in caps}
        self.held = {block: [0] * 8 for block in caps}
        self.open: dict[int, tuple[range, list[int], list[int]]] = {}
        self.refused: list[int] = []

    def _holds(self, block: int) -> bool:
        fits = [
            s + h <= cap
            for s, h, cap in zip(self.spent[block], self.held[block], self.caps[block], strict=True)
        ]
        return fits[0] and ((fits[1] and fits[2]) or any(fits[3:]))

    def charge(self, seq: int, blocks: range, costs: list[int], into: dict[int, list[int]]) -> None:
        for block in blocks:
            into[block] = [a + b for a, b in zip(into[block], costs, strict=True)]
        if not all(map(self._holds, blocks)):
            self.refused.append(seq)

    def reserve(self, seq: int, blocks: range, total: list[int]) -> None:
        clipped = [min(cost, cap + 1) for cost, cap in zip(total, self.caps[blocks[0]], strict=True)]
        self.charge(seq, blocks, clipped, self.held)
        self.open[seq] = blocks, clipped, [0] * 8

    def step(self, seq: int, costs: list[int]) -> None:
        blocks, clipped, used = self.open[seq]
        after = [a + b for a, b in zip(used, costs, strict=True)]
        taken = [min(a, c) - min(u, c) for a, u, c in zip(after, used, clipped, strict=True)]
        self.open[seq] = blocks, clipped, after
        for block in blocks:
            self.spent[block] = [a + b for a, b in zip(self.spent[block], costs, strict=True)]
            self.held[block] = [a - b for a, b in zip(self.held[block], taken, strict=True)]

    def settle(self, seq: int, *, spent: bool) -> None:
        blocks, clipped, used = self.open.pop(seq)
        left = [max(c - u, 0) for c, u in zip(clipped, used, strict=True)]
        for block in blocks:
            self.held[block] = [a - b for a, b in zip(self.held[block], left, strict=True)]
            if spent:
                self.spent[block] = [a + b for a, b in zip(self.spent[block], left, strict=True)]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_batches_find_exactly_the_entries_that_one_by_one_refuses(data: st.DataObject) -> None:
    history = small()
    caps = history.terms[1].caps
    naive = OneByOne(dict.fromkeys((1, 2, 3), caps))
    for _ in range(data.draw(st.integers(1, 25))):
        first = data.draw(st.integers(1, 3))
        blocks = range(first, data.draw(st.integers(first, 3)) + 1)
        costs = [data.draw(st.sampled_from([0, 1, cap // 3, cap, cap + 1, 1 << 62])) for cap in caps]
        costs[0] = data.draw(st.sampled_from([0, caps[0] // 5]))
        kind = data.draw(st.sampled_from(["charge", "charge", "charge", "reserve", "step", "settle"]))
        if kind in ("charge", "reserve"):
            more = {"fixed": False} if kind == "reserve" else {}
            seq = history.charge((1, [[blocks[0], blocks[-1]]]), loss=Sum(()), kind=kind, **more)
            history.records[-1]["debits"][0][2] = costs
            if kind == "charge":
                naive.charge(seq, blocks, costs, naive.spent)
            else:
                naive.reserve(seq, blocks, costs)
        elif naive.open:
            held = data.draw(st.sampled_from(sorted(naive.open)))
            if kind == "settle":
                is_spent = data.draw(st.booleans())
                history.settle(held, spent=is_spent)
                naive.settle(held, spent=is_spent)
                continue
            _, _, used = naive.open[held]
            total = history.records[held - 1]["debits"][0][2]
            step = [
                cost if t > cap else min(cost, t - u)
                for cost, t, u, cap in zip(costs, total, used, caps, strict=True)
            ]
            history.step(held, Sum(()))
            history.records[-1]["costs"] = [[1, step]]
            naive.step(held, step)
    replay = read(history)
    findings = [text for text in replay.finish() if "beyond" in text]
    assert replay.finish() == tuple(findings)
    # The first refusal of each block is named; what comes after it in the same batch may go unnamed.
    refused = {f"entry {seq}" for seq in naive.refused}
    assert {text.split(":")[0] for text in findings} <= refused
    assert bool(findings) == bool(refused)
    if refused:
        assert f"entry {naive.refused[0]}" in {text.split(":")[0] for text in findings}
    for block in (1, 2, 3):
        row = replay.balances.row(block)
        assert list(replay.balances.spent(row)) == naive.spent[block]
        assert list(replay.held_of(block)) == naive.held[block]


def test_too_many_failures_are_refused_by_no_other_filter() -> None:
    history = small()
    for count, findings in ((1, 0), (1, 1)):
        for _ in range(count):
            # 0.06 of δ 1e-6 is for failures: one of 4e-8 fits, two do not.
            history.charge((1, [[2, 2]]), loss=Approximate(Fraction(0), Fraction(4, 10**8)))
        assert len(found(history)) == findings


def test_what_everyone_spent_in_an_earlier_batch_is_not_forgotten() -> None:
    history = small()
    for _ in range(3):
        history.charge((1, [[3, 3]]))
    history.blocks("west")
    history.settle(history.reserve((1, [[2, 2]]), loss=COUNT))
    history.charge((1, [[1, 1]]))
    history.blocks("east")  # 6
    replay = read(history)
    assert replay.finish() == ()
    assert replay.spent_of(6) == tuple(history.costs(COUNT))


def test_wide_and_narrow_charges_add_up() -> None:
    history = History()
    history.account(1, epsilon="10", delta="1/1000")
    history.blocks(*[f"block {k}" for k in range(200)])  # 2 to 201
    tiny: Loss = Repeated(LaplaceNoise(Fraction(1000), 1), 3)
    for blocks in ([[1, 201]], [[5, 9]], [[2, 80], [90, 201]], [[100, 100]]):
        history.charge((1, blocks), loss=tiny)
    replay = read(history)
    assert replay.finish() == ()
    times = {1: 1, 2: 2, 7: 3, 85: 1, 100: 3, 201: 2}
    cost = history.costs(tiny)
    for block, count in times.items():
        assert replay.spent_of(block) == tuple(count * each for each in cost)


def test_numbers_with_gaps_are_found() -> None:
    history = small()
    history.next_block = 1000
    history.blocks("far", "farther")
    history.charge((1, [[1001, 1001]]))
    assert found(history) == ()
    history.charge((1, [[500, 500]]))
    assert found(history) == ("entry 7: block 500 is not an open block of account 1",)


def test_terms_of_every_size_have_caps_that_the_second_opinion_agrees_with() -> None:
    for epsilon in ("1/1000000000", "1/10", "3", "1000"):
        for delta in ("0", "1/1" + "0" * 400, "1/1000000", "999/1000"):
            history = History()
            history.account(1, epsilon=epsilon, delta=delta)
            assert found(history) == ()
            assert Terms.of(Fraction(epsilon), Fraction(delta)).caps == read(history).accounts[1].caps
