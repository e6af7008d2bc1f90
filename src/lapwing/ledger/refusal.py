"""Why a charge does not fit: what was asked, what is left, what would pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import OverBudget
from lapwing.ledger.accounts import Account, Block, Slices
from lapwing.ledger.entry import Costs
from lapwing.privacy import Loss, Pure
from lapwing.privacy.charge import DELTA, DELTA0, EPSILON, EPSILON_UNIT, FIRST_ORDER, Charge
from lapwing.privacy.portfolio import pure_text

if TYPE_CHECKING:
    from lapwing.ledger.ledger import Ledger
    from lapwing.ledger.spending import Target


def refusal(
    ledger: Ledger, targets: Sequence[Target], loss: Loss, costs: Callable[[Account], Costs]
) -> OverBudget | None:
    """The refusal, or None if the charge would fit by now: blocks moved, or a reservation lapsed.

    `costs` are what the loss costs in an account: more where its steps are rounded up one by one.
    """
    rooms: list[_Room] = []
    chosen: list[_Room] = []  # those of whose blocks others could be named
    for target in targets:
        root = ledger.account(target.account)
        ledger.forget_blocks(root)
        mine = _rooms(ledger.look_at(root, target.blocks))
        rooms.extend(mine)
        if target.blocks:
            chosen.extend(mine)
    if all(room.fits(costs(room.account)).all() for room in rooms):
        return None
    largest = _largest(lambda epsilon: all(room.fits_pure(epsilon).all() for room in rooms))
    # Of those that do not fit, one that would be the first to refuse a smaller request.
    account, block = min(
        (found for room in rooms if (found := room.first_refusing(costs(room.account), largest))),
        key=lambda found: found[0],
    )[1:]
    asked = tuple(map(max, account.terms.price(loss).costs, costs(account)))
    error = account.terms.refusal(block.taken(account.terms), Charge(account.terms.orders, asked))
    where = f'"{account.label}"' + ("" if account.slices is Slices.NONE else f', block "{block.label}"')
    if not block.is_open:
        lost = "It was closed when a lost ledger was recovered."
        return OverBudget(error.asked, "nothing", lost, where=where)
    fixed = [room for room in rooms if room not in chosen]
    what_now = error.what_now + _fewer_blocks(fixed, chosen, largest)
    return OverBudget(error.asked, error.left, what_now, where=where)


@dataclass(frozen=True, slots=True, eq=False)
class _Room:
    """Blocks of one account, and what is taken of each: many are asked at once."""

    account: Account
    blocks: list[Block]
    taken: NDArray[np.int64]
    is_open: NDArray[np.bool_]

    def fits(self, costs: Costs) -> NDArray[np.bool_]:
        """Whether each block admits the costs (portfolio.Terms.after is its twin)."""
        caps = np.array(self.account.terms.caps, np.int64)
        within = self.taken + np.array(costs, np.int64) <= caps
        one: NDArray[np.bool_] = (within[:, EPSILON] & within[:, DELTA]) | within[:, FIRST_ORDER:].any(
            axis=1
        )
        return self.is_open & within[:, DELTA0] & one

    def fits_pure(self, units: int) -> NDArray[np.bool_]:
        """Whether each block admits a pure ε of so many units."""
        return self.fits(self.account.costs(Pure(Fraction(units, EPSILON_UNIT))))

    def first_refusing(self, costs: Costs, largest: int) -> tuple[int, Account, Block] | None:
        """A block that does not fit, and whether it would refuse just above what fits everywhere."""
        refused = ~self.fits(costs)
        if not refused.any():
            return None
        tight = refused & ~self.fits_pure(largest + 1)
        chosen = np.flatnonzero(tight if tight.any() else refused)[0]
        return int(not tight.any()), self.account, self.blocks[chosen]


def _rooms(found: Sequence[tuple[Account, Block]]) -> list[_Room]:
    by_account: dict[int, tuple[Account, list[Block]]] = {}
    for account, block in found:
        by_account.setdefault(account.number, (account, []))[1].append(block)
    return [
        _Room(
            account,
            blocks,
            np.array([block.taken(account.terms) for block in blocks], np.int64),
            np.array([block.is_open for block in blocks]),
        )
        for account, blocks in by_account.values()
    ]


def _largest(fits: Callable[[int], bool]) -> int:
    """The greatest whole number that fits, where all smaller ones fit too; 0 if none does."""
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fewer_blocks(fixed: list[_Room], chosen: list[_Room], largest: int) -> str:
    """A block that alone would admit more, in every account, if one is named.

    Not a block of everyone, which cannot be named; and not where an account without named blocks (a
    quota, or data that is sliced otherwise) admits no more: `fixed` must admit it as they are.
    """
    labels = sorted({block.label for room in chosen for block in room.blocks})
    if len(labels) < 2:
        return ""
    places = {label: place for place, label in enumerate(labels)}
    rows = [np.array([places[block.label] for block in room.blocks]) for room in chosen]

    def alone(epsilon: int) -> NDArray[np.bool_]:
        """Tell whether each label admits a pure ε in all accounts that have it."""
        admits = np.full(len(labels), all(room.fits_pure(epsilon).all() for room in fixed))
        for room, mine in zip(chosen, rows, strict=True):
            np.logical_and.at(admits, mine, room.fits_pure(epsilon))
        return admits

    most = _largest(lambda epsilon: bool(alone(epsilon).any()))
    if most <= largest:
        return ""
    label, left = labels[int(np.argmax(alone(most)))], pure_text(Fraction(most, EPSILON_UNIT))
    return f' Or name fewer blocks: "{label}" alone has ε {left} left.'
