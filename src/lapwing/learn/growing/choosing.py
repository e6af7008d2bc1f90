"""Which blocks can pay for a loss now, by the accounts' own filters.

Claim    a block that is named can pay in every account that would be charged, unless somebody spends there
         in between: then the charge is refused, and nothing is lost.
Because  what is taken and the cost are what the ledger's transaction compares; whoever chooses wrongly is
         only refused, because choosing spends nothing.
Test     tests/learn/growing/test_stream.py::test_who_is_chosen_can_pay_and_who_is_not_cannot
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lapwing.gate import Target
from lapwing.learn.growing.sharing import Share
from lapwing.ledger import Ledger
from lapwing.ledger.accounts import Account, Block
from lapwing.privacy import Loss
from lapwing.privacy.charge import DELTA, DELTA0, EPSILON, FIRST_ORDER

WHOLE = Fraction(1)


def able_to_pay(
    ledger: Ledger,
    targets: Sequence[Target],
    loss: Loss,
    unlocked: Mapping[str, Fraction] | None = None,
    share: Share | None = None,
) -> set[str]:
    """The blocks of the targets that can pay. If an account without named blocks cannot, none can.

    `unlocked` is the part of a block's budget that may be used by now, by name; else all of it. `share` is
    the pipeline's, where there is one. Nothing is opened in it.
    """
    labels = {label for target in targets for label in target.blocks}
    able: set[str] | None = None
    if share is not None and labels:
        fits_anew = share.terms.after(share.taken, share.terms.price(loss)) is not None
        able = {label for label in labels if fits_anew or label in share.blocks}
        here = share.target(sorted(labels))
        targets = targets if here is None else (*targets, here)
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
    """The filter (`Terms.after` is its twin), for many blocks at once."""
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
        caps = _scaled(caps, [unlocked.get(block.label, WHOLE) for _, block in found])
    within = taken + costs <= caps
    one = (within[:, EPSILON] & within[:, DELTA]) | within[:, FIRST_ORDER:].any(axis=1)
    fits: NDArray[np.bool_] = is_open & within[:, DELTA0] & one
    return [bool(fit) for fit in fits]


def _scaled(caps: NDArray[np.int64], shares: Sequence[Fraction]) -> NDArray[np.int64]:
    """Caps times the shares, rounded down. A cap below 0 is a filter that never holds, and stays so."""
    rows = [
        [int(cap * share) if cap > 0 else cap for cap in row] if share != WHOLE else row
        for row, share in zip(caps.tolist(), shares, strict=True)
    ]
    return np.array(rows, np.int64)
