"""The purse of trainers inside a search: what they ask for was charged as a part of the whole.

Claim    a trainer inside a search trains once, at the loss that was part of the search's price.
Because  `Prepaid` compares what is asked with what was priced, and pays one time; `purse.Stored` gives the
         model that lies under the search's charge, and never trains.
Test     tests/learn/selection/test_search.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lapwing.errors import BadParameter
from lapwing.learn.purse import Paid, Uncharged
from lapwing.privacy import Loss
from lapwing.privacy.describe import describe


class Prepaid(Uncharged):
    """Pays one training at one loss, and keeps its result for the search."""

    def __init__(self, loss: Loss) -> None:
        self._priced = describe(loss)
        self._result: bytes | None = None

    @property
    def result(self) -> bytes:
        """The stored model."""
        if self._result is None:
            raise BadParameter("estimator", "must train through its purse")
        return self._result

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> Paid:
        if self._result is not None or describe(loss) != self._priced:
            raise BadParameter("estimator", "asked for more than its price, which is part of the search's")
        self._result = run()
        return Paid(self._result, None)
