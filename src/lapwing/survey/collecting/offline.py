"""Reports that came on paper, by mail or in a file: taken on the owner's word, without a credential."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.noise import random_bytes
from lapwing.survey.collecting.store import HASH_BYTES, Reports, Rule, Store, Verdict


def digest_of(path: Path) -> bytes:
    """What names a pile: a hash of its whole file, in which each device that makes one writes a mark."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise BadParameter("reports", f"{path} cannot be read ({error.strerror})") from None


def marked(reports: NDArray[np.uint8], pile: bytes, *, again: bool = False) -> Reports:
    """Reports, each under a hash of its place in the pile of this name: the same pile again counts once.

    If somebody made a second pile of the very same content, it is taken `again`, under hashes of its own.
    """
    named = hashlib.sha256(b"lapwing survey pile\n" + pile)
    if again:
        named.update(random_bytes(HASH_BYTES))
    begun = named.digest()
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
