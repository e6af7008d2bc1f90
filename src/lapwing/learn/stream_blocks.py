"""The budget of a stream's blocks: the part that is left in each, and the blocks that can pay.

Claim    a block that is chosen can pay in every account that would be charged, unless somebody else spends
         there first: then the charge is refused, and nothing is lost.
Because  the budget used and the cost are the numbers that the ledger's transaction compares. A wrong choice
         is only refused, because choosing spends nothing.
Test     tests/learn/test_stream.py::test_who_is_chosen_can_pay_and_who_is_not_cannot
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.budget import DELTA, DELTA0, EPSILON, FIRST_ORDER, Terms
from lapwing.core.losses import Loss
from lapwing.learn.budget_sharing import PipelineShare
from lapwing.learn.confidence_bounds import float_down
from lapwing.ledger import Ledger
from lapwing.ledger.accounts import Account, Block
from lapwing.ledger.budget_history import remaining_exactly
from lapwing.ledger.entry import Costs
from lapwing.ledger.spending import Target

ALL_UNLOCKED = Fraction(1)
RETIRED_BELOW = Fraction(1, 1000)  # of the block's ε


def blocks_text(count: int) -> str:
    """Return a number of blocks in words."""
    return f"{count:,} block{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class BlockStatus:
    """The pure ε and the δ that a next release could cost in a block, in all accounts that pay.

    `unlocked` is the share of its budget that may be used now.
    """

    label: str
    epsilon: Fraction
    left: Fraction
    delta_left: Fraction
    has_arrived: bool
    unlocked: Fraction
    is_untouched: bool  # nothing was charged or is held there, in any of the accounts

    @property
    def is_retired(self) -> bool:
        """Whether (nearly) no budget is left, so that the block is never used again."""
        return self.left < self.epsilon * RETIRED_BELOW


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream as it is now. All of it is public."""

    name: str
    unit: str
    version: int | None  # None: nothing was taken in yet
    sharing: str
    blocks: tuple[BlockStatus, ...]
    several: str = ""  # in words: the loss of a person who is several units

    @property
    def retired(self) -> tuple[BlockStatus, ...]:
        """The blocks whose budget is used up."""
        return tuple(block for block in self.blocks if block.is_retired)

    @property
    def usable(self) -> tuple[BlockStatus, ...]:
        """The blocks that have arrived and have budget left."""
        return tuple(block for block in self.blocks if block.has_arrived and not block.is_retired)

    def to_json(self) -> dict[str, Any]:
        """Return the status as plain values. The budget left is rounded down."""
        return {
            "stream": self.name,
            "protects": self.unit,
            "version": self.version,
            "sharing": self.sharing,
            "several_periods": self.several,
            "blocks": [
                {
                    "block": block.label,
                    "epsilon": float(block.epsilon),
                    "epsilon_left": float_down(block.left),
                    "delta_left": float_down(block.delta_left),
                    "has_arrived": block.has_arrived,
                    "unlocked": float(block.unlocked),
                    "is_retired": block.is_retired,
                }
                for block in self.blocks
            ],
        }


def untouched_blocks(epsilon: Fraction, delta: Fraction, labels: Sequence[str]) -> tuple[BlockStatus, ...]:
    """Return the status of declared blocks before anything was appended or spent."""
    terms = Terms.of(epsilon, delta)
    now = (
        terms.epsilon,
        terms.largest_pure(terms.nothing_spent),
        terms.largest_delta(terms.nothing_spent),
    )
    return tuple(BlockStatus(label, *now, False, ALL_UNLOCKED, True) for label in labels)


def budget_left_by_block(
    ledger: Ledger,
    targets: Sequence[Target],
    labels: Sequence[str],
    *,
    arrived: Collection[str],
    unlocked: Mapping[str, Fraction],
    share: PipelineShare | None = None,
) -> tuple[BlockStatus, ...]:
    """Return the budget left of each block: the least of all accounts that pay. Nothing is opened."""
    accounts: defaultdict[str, list[tuple[Fraction, Fraction, Fraction, bool]]] = defaultdict(list)
    if share is not None:
        terms, taken = share.terms, share.taken
        anew = terms.epsilon, terms.largest_pure(taken), terms.largest_delta(taken), not any(taken)
        for label in labels:
            if label not in share.blocks:
                accounts[label].append(anew)
        targets = (*targets, *share.targets(labels))
    for target in targets:
        found = ledger.look_at(ledger.account(target.account), target.blocks)
        sums: dict[Terms, set[Costs]] = {}
        for account, block in found:
            sums.setdefault(account.terms, set()).add(block.taken(account.terms))
        left = {terms: remaining_exactly(terms, several) for terms, several in sums.items()}
        for account, block in found:
            taken = block.taken(account.terms)
            epsilon = left[account.terms][taken] if block.is_open else Fraction(0)
            now = account.terms.epsilon, epsilon, account.terms.largest_delta(taken), not any(taken)
            for label in [block.label] if target.blocks else labels:
                accounts[label].append(now)
    none = [(Fraction(0), Fraction(0), Fraction(0), False)]
    status = []
    for label in labels:
        each = zip(*(accounts[label] or none), strict=True)
        epsilon, left, delta, is_untouched = (min(one) for one in each)
        part = unlocked.get(label, ALL_UNLOCKED)
        status.append(BlockStatus(label, epsilon, left, delta, label in arrived, part, is_untouched))
    return tuple(status)


def blocks_able_to_pay(
    ledger: Ledger,
    targets: Sequence[Target],
    loss: Loss,
    unlocked: Mapping[str, Fraction] | None = None,
    share: PipelineShare | None = None,
) -> set[str]:
    """Return the blocks of the targets that can pay, or none if an account without blocks cannot.

    `unlocked` is the part of each block's budget that may be used now; None means all of it. `share` is
    the pipeline's share of the stream, if it has one. Nothing is opened.
    """
    labels = {label for target in targets for label in target.blocks}
    able: set[str] | None = None
    if share is not None and labels:
        fits_anew = share.terms.after(share.taken, share.terms.price(loss)) is not None
        able = {label for label in labels if fits_anew or label in share.blocks}
        targets = (*targets, *share.targets(sorted(labels)))
    for target in targets:
        found = ledger.look_at(ledger.account(target.account), target.blocks)
        fits = dict(zip([block.label for _, block in found], _fits(found, loss, unlocked), strict=True))
        if not target.blocks:
            if not all(fits.values()):
                return set()
            continue
        cannot = {label for label in target.blocks if not fits.get(label, False)}
        able = (labels if able is None else able) - cannot
    return able or set()


def _fits(
    found: Sequence[tuple[Account, Block]], loss: Loss, unlocked: Mapping[str, Fraction] | None
) -> list[bool]:
    """Apply the accounts' filter (like `Terms.after`) to many blocks at once."""
    if not found:
        return []
    priced = {account.number: account.costs(loss) for account in {a.number: a for a, _ in found}.values()}
    caps = np.array([account.terms.caps for account, _ in found], np.int64)
    spent = np.array([block.spent for _, block in found], np.int64)
    held = np.array([block.held for _, block in found], np.int64)
    taken = np.minimum(spent + held, caps + 1)  # as `Block.taken` does it
    costs = np.array([priced[account.number] for account, _ in found], np.int64)
    is_open = np.array([block.is_open for _, block in found], np.bool_)
    if unlocked is not None:
        caps = _scaled(caps, [unlocked.get(block.label, ALL_UNLOCKED) for _, block in found])
    within = taken + costs <= caps
    one = (within[:, EPSILON] & within[:, DELTA]) | within[:, FIRST_ORDER:].any(axis=1)
    fits: NDArray[np.bool_] = is_open & within[:, DELTA0] & one
    return [bool(fit) for fit in fits]


def _scaled(caps: NDArray[np.int64], shares: Sequence[Fraction]) -> NDArray[np.int64]:
    """Multiply caps by shares, rounded down.

    A cap below 0 is a filter that never holds, and stays as it is.
    """
    rows = [
        [int(cap * share) if cap > 0 else cap for cap in row] if share != ALL_UNLOCKED else row
        for row, share in zip(caps.tolist(), shares, strict=True)
    ]
    return np.array(rows, np.int64)
