"""Few failures: that a charged question fails may tell of one person's rows, and nobody has priced it.

Claim    an analyst learns of at most `policy.failures` questions of theirs that failed, and of those that
         end in the same moment, until the curator has looked; whatever the policy file and the data are
         called. Where answers are shared, they may learn of other analysts' as well, each of whom has no
         more; a question that was held already is no failure of who asks it again.
Because  failures are read from the ledger itself, by the analyst and the accounts that were charged. Who
         has had so many is told nothing any more, neither old answers nor the outcome of questions that
         were under way: the check comes before the charge, and again before an outcome is told.
Test     tests/query/test_failures.py
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from lapwing.errors import AllHeld
from lapwing.ledger.failed import Failures, failures
from lapwing.query import custody
from lapwing.query.bounded import registered
from lapwing.query.bounded.prepared import folder_of

if TYPE_CHECKING:
    from lapwing.query.dataset import Dataset

KEPT = "failed.json"  # what need not be read again; if it is lost, it is
KEEP_EVERY = 1000  # entries


def require_few(dataset: Dataset, *, besides: int | None = None) -> None:
    """Raise `AllHeld` if the analyst has had too many failures, not counting one of them."""
    ledger, policy = dataset.ledger, dataset.policy
    data = custody.find_data(ledger, policy)
    if data is None:
        return
    path = folder_of(policy) / KEPT
    kept = Failures()
    with suppress(OSError, ValueError, TypeError):
        kept = Failures.from_json(json.loads(path.read_text(encoding="utf-8")))
    found, known = failures(ledger, kept)
    if known.last >= kept.last + KEEP_EVERY:
        with suppress(OSError):
            registered.replace_file(path, json.dumps(known.to_json()))
    analyst, looked = ledger.principal(dataset.analyst), registered.looked_at(policy)
    own = [
        one.position
        for one in found
        if one.by == analyst and set(one.accounts) & set(data.accounts)
        and one.position not in looked and one.position != besides
    ]  # fmt: skip
    if len(own) >= policy.failures:
        raise AllHeld(own)
