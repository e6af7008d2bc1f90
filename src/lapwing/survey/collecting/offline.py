"""Reports that came on paper, by mail or in a file: taken on the owner's word, without a credential."""

from __future__ import annotations

import hashlib
from datetime import date

import numpy as np
from numpy.typing import NDArray

from lapwing.noise import random_bytes
from lapwing.survey.collecting.store import HASH_BYTES, Reports, Rule, Store, Verdict


def marked(reports: NDArray[np.uint8], *, again: bool = False) -> Reports:
    """Reports, each under a hash of its place in exactly this pile: the same pile again counts once.

    Two piles of the same content have the same hashes. If the second came from other people, it is taken
    `again`, under hashes of its own.
    """
    pile = hashlib.sha256(b"lapwing survey pile\n" + reports.tobytes())
    if again:
        pile.update(random_bytes(HASH_BYTES))
    begun = pile.digest()
    return [
        (hashlib.sha256(begun + place.to_bytes(8, "big")).digest(), row.tobytes())
        for place, row in enumerate(reports)
    ]


def new_ones(store: Store, reports: Reports) -> Reports:
    """Those that are not stored yet."""
    known = store.stored([token for token, _ in reports])
    return [(token, report) for token, report in reports if token not in known]


def take(store: Store, reports: Reports, rule: Rule, today: date) -> list[Verdict]:
    """Store them in one transaction: all that the stopping rule lets in, or none."""
    return store.accept(reports, rule, today, has_credential=False)
