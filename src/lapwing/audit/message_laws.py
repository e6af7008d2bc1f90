"""The exact laws of survey randomizers: the probability of each message, under any two answers.

Claim    for a randomizer of at most a million messages, the law of a pair is that of all its messages by
         `Randomizer.probability`. Messages with the same two probabilities are gathered into one outcome.
Because  gathered outcomes have one ratio, so no distance changes. docs/arguments/audit_exact.md
Test     tests/audit/test_message_laws.py

A larger randomizer is compared by classes of messages: those that both answers favour, one of them, or
none. Then the sizes of the classes are the ones that the randomizer states, and the pair's description says
"by classes".
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.laws import Law, dec
from lapwing.audit.stages.exact import ExactPair
from lapwing.core.losses import Pure
from lapwing.errors import BadParameter
from lapwing.survey.randomizers import BitwiseResponse, Randomizer, SubsetSelection, UnaryEncoding
from lapwing.survey.randomizers.mask_oracles import MaskMessages
from lapwing.survey.randomizers.randomizer import IndexMessages, PartedRandomizer, TwoLevel

MOST_MESSAGES = 1_000_000
MOST_ANSWERS = 100  # of which all pairs are compared
_Cells = dict[str, tuple[Fraction, Fraction]]


def _not_listed(randomizer: Randomizer) -> BadParameter:
    return BadParameter("randomizer", f"{type(randomizer).__name__} has messages that are not listed")


def message_count(randomizer: Randomizer) -> int:
    """Return the number of possible messages of a randomizer."""
    if isinstance(randomizer, PartedRandomizer):
        return sum(map(message_count, randomizer.parts.values()))
    if isinstance(randomizer, TwoLevel):
        return randomizer.messages
    if isinstance(randomizer, MaskMessages):
        return 1 << randomizer.options
    raise _not_listed(randomizer)


def all_messages(randomizer: Randomizer) -> NDArray[np.uint8]:
    """Return all possible messages as they are sent, a row of bytes each. They are not checked here."""
    if isinstance(randomizer, PartedRandomizer):
        return np.concatenate([_part_rows(randomizer, first) for first in randomizer.parts])
    if isinstance(randomizer, IndexMessages):
        return randomizer.encode(np.arange(randomizer.messages, dtype=np.int64))
    if isinstance(randomizer, SubsetSelection):
        chosen = np.array(list(combinations(range(randomizer.options), randomizer.chosen)))
        bits = np.zeros((len(chosen), randomizer.options), dtype=np.uint8)
        np.put_along_axis(bits, chosen, 1, axis=1)
        return np.packbits(bits, axis=1, bitorder="little")
    if isinstance(randomizer, MaskMessages):
        numbers = np.arange(1 << randomizer.options, dtype="<u8")
        return numbers.view(np.uint8).reshape(-1, 8)[:, : randomizer.size].copy()
    raise _not_listed(randomizer)


def _part_rows(randomizer: PartedRandomizer, first: int) -> NDArray[np.uint8]:
    messages = all_messages(randomizer.parts[first])
    rows = np.zeros((len(messages), randomizer.size), dtype=np.uint8)
    rows[:, 0] = first
    rows[:, 1 : 1 + messages.shape[1]] = messages
    return rows


class ListedMessages:
    """All messages of a randomizer, with their exact probabilities under each answer that was asked for."""

    def __init__(self, randomizer: Randomizer) -> None:
        self.randomizer = randomizer
        self.messages = [bytes(row) for row in all_messages(randomizer)]
        self._places: dict[Fraction, int] = {}
        self._codes: dict[int, NDArray[np.int64]] = {}

    def _probabilities(self, answer: int) -> NDArray[np.int64]:
        """Return the place of each message's probability in `_places`."""
        if answer not in self._codes:
            chances = (self.randomizer.probability(answer, message) for message in self.messages)
            codes = [self._places.setdefault(p, len(self._places)) for p in chances]
            self._codes[answer] = np.array(codes, dtype=np.int64)
        return self._codes[answer]

    def cells(self, answer: int, other_answer: int) -> _Cells:
        """Return the total probabilities under two answers, of all messages with the same two."""
        first, second = self._probabilities(answer), self._probabilities(other_answer)
        both = first * len(self._places) + second
        _, places, counts = np.unique(both, return_index=True, return_counts=True)
        values = list(self._places)
        cells: _Cells = {}
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            name = f"{count} messages such as {self.messages[place].hex()}"
            cells[name] = count * values[first[place]], count * values[second[place]]
        return cells


def _class_cells(randomizer: Randomizer) -> _Cells:
    """Return the total probabilities of classes of messages, under the two answers that differ most."""
    if isinstance(randomizer, PartedRandomizer):
        cells: _Cells = {}
        for first, part in randomizer.parts.items():
            chance = randomizer.chance(first)
            for name, (p, q) in _class_cells(part).items():
                cells[f"part {first}: {name}"] = chance * p, chance * q
        return cells
    if isinstance(randomizer, UnaryEncoding):  # only the bits of the two answers differ
        return ListedMessages(UnaryEncoding(2, randomizer.one, randomizer.zero)).cells(0, 1)
    if isinstance(randomizer, BitwiseResponse):  # no option, and all options
        m, truth = randomizer.options, randomizer.inside
        flips = [comb(m, k) * truth ** (m - k) * (1 - truth) ** k for k in range(m + 1)]
        return {f"{k} options are set": (flips[k], flips[m - k]) for k in range(m + 1)}
    if isinstance(randomizer, TwoLevel):
        likely, unlikely = randomizer.likely, randomizer.unlikely
        both, only = randomizer.both, randomizer.share - randomizer.both
        return {
            "favoured by both": (both * likely, both * likely),
            "favoured by the first": (only * likely, only * unlikely),
            "favoured by the second": (only * unlikely, only * likely),
            "favoured by neither": ((1 - both - 2 * only) * unlikely, (1 - both - 2 * only) * unlikely),
        }
    raise _not_listed(randomizer)


def _laws(cells: _Cells) -> tuple[Law, Law]:
    first: dict[str, Decimal] = {}
    second: dict[str, Decimal] = {}
    for name, (p, q) in cells.items():
        if p or q:
            first[name], second[name] = dec(p), dec(q)
    return first, second


def chosen_answers(inputs: int, most: int) -> list[int]:
    """Return all answers if they are at most `most`, else the first and last ones and some between."""
    if inputs <= most:
        return list(range(inputs))
    spread = {0, 1, inputs - 1} | {inputs * k // max(most - 2, 1) for k in range(1, max(most - 2, 1))}
    return sorted(spread)[:most] if most > 2 else [0, inputs - 1]


@lru_cache(maxsize=64)
def _listed(randomizer: Randomizer) -> ListedMessages:
    return ListedMessages(randomizer)


def message_pairs(
    randomizer: Randomizer, name: str, *, epsilon: Fraction | None = None, most: int = MOST_MESSAGES
) -> Iterator[ExactPair]:
    """Yield the laws of one message under pairs of answers: all pairs, if `most` probabilities suffice.

    Pairs with the same probabilities as an earlier pair are left out: all distances are the same.

    The claimed ε is the announced one, or that of the randomizer's loss.
    """
    claimed = randomizer.loss.epsilon if epsilon is None else epsilon
    loss = Pure(claimed)
    count = message_count(randomizer)
    if count > min(MOST_MESSAGES, most // 2):
        first, second = _laws(_class_cells(randomizer))
        text = f"{name}: {count:,} messages by classes, two answers that are as different as can be"
        yield ExactPair(text, first, second, loss, claimed)
        return
    listed = _listed(randomizer)
    answers = chosen_answers(randomizer.inputs, min(max(2, most // count), MOST_ANSWERS))
    seen: set[frozenset[tuple[Fraction, Fraction]]] = set()
    for a, b in combinations(answers, 2):
        cells = listed.cells(a, b)
        kind = frozenset(cells.values())
        if kind in seen:  # the same probabilities again, of other messages
            continue
        seen.add(kind)
        first, second = _laws(cells)
        yield ExactPair(f"{name}: {count:,} messages, answers {a} and {b}", first, second, loss, claimed)
