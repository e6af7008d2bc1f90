"""The independent accountant adds up exactly, in batches as one by one."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core.budget import Terms
from lapwing.core.losses import Approximate, LaplaceNoise, Loss, Repeated, SequentialComposition
from support.histories import COUNT, History
from support.replayed import found, read, small
from support.replays import held_of, spent_of

COSTS = tuple[int, ...]


def test_a_thousand_charges_of_the_greatest_cost_do_not_wrap_round() -> None:
    history = small()
    huge = [0, 1 << 62, 1 << 62, *[1 << 62] * 4, 0]  # the last order is free for ever
    for _ in range(1000):
        history.charge((1, [[2, 2]]), loss=SequentialComposition(()))
        history.records[-1]["debits"][0][2] = huge
    replay = read(history)
    assert replay.finish() == ()
    caps = history.terms[1].caps
    assert spent_of(replay, 2) == (0, *[cap + 1 for cap in caps[1:7]], 0)
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
            seq = history.charge(
                (1, [[blocks[0], blocks[-1]]]), loss=SequentialComposition(()), kind=kind, **more
            )
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
            history.step(held, SequentialComposition(()))
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
        assert list(held_of(replay, block)) == naive.held[block]


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
    assert spent_of(replay, 6) == tuple(history.costs(COUNT))


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
        assert spent_of(replay, block) == tuple(count * each for each in cost)


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
