"""An average that stands alone is made of a pair of sums under one mechanism: half the noise.

Claim    an average's noise then has half the variance that it has with a total and a count of their own, at
         the same ε and wherever the mean lies; with Gaussian noise the same variance. Its loss is counted
         once.
Because  a = Σ (x - low) and b = Σ (high - x) together move by rows · (high - low) in L1, so both get the
         whole ε of the average, not half of it each. See docs/arguments/query-noise.md.
Test     tests/query/test_pairs.py

Where another statistic needs the count or the total too, they stay: what is shared is paid for once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from lapwing.query.language.kinds import Number
from lapwing.query.language.question import (
    Computed,
    Order,
    Output,
    Pair,
    Part,
    Question,
    Released,
    Statistic,
)


def paired(question: Question, pairs: Mapping[Statistic, Pair]) -> Question:
    """The question with these pairs instead of totals and counts that nothing else needs."""
    statistics = question.statistics
    needed = Counter(part for one in statistics for part in set(one.parts))
    alone = {one for one in statistics if one in pairs and all(needed[part] == 1 for part in one.parts)}
    if not alone:
        return question
    instead: dict[int, Part | None] = {}
    for one in alone:
        total, known = one.parts
        instead[total], instead[known] = pairs[one], None
    parts: list[Part] = []
    places: dict[int, int] = {}
    for position, own in enumerate(question.parts):
        part = instead.get(position, own)
        if part is not None:
            places[position] = len(parts)
            parts.append(part)

    def moved(one: Statistic) -> Statistic:
        if one not in alone:
            return replace(one, parts=tuple(places[part] for part in one.parts))
        assert isinstance(one.number, Number)
        assert one.number.first is not None
        return replace(one, function="avg_of_pair", parts=(places[one.parts[0]],), centre=one.number.first)

    renewed = {one: moved(one) for one in statistics}
    return replace(
        question,
        parts=tuple(parts),
        outputs=tuple(Output(one.name, _with(one.value, renewed.__getitem__)) for one in question.outputs),
        having=None if question.having is None else _with(question.having, renewed.__getitem__),
        order=tuple(
            Order(_with(one.value, renewed.__getitem__), one.descending, one.nulls_first)
            for one in question.order
        ),
    )


def _with(tree: Released, renewed: Callable[[Statistic], Statistic]) -> Released:
    if isinstance(tree, Statistic):
        return renewed(tree)
    if isinstance(tree, Computed):
        return Computed(tree.op, tuple(_with(arg, renewed) for arg in tree.args))
    return tree
