"""The purse of work that is part of an attempt that was charged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lapwing.errors import BadParameter
from lapwing.learn.purse import Paid, Uncharged
from lapwing.privacy import Loss


class Inside(Uncharged):
    """Pays for nothing by itself: its work is part of one that was charged, at the price it knows."""

    def __init__(self, price: Loss) -> None:
        self._price: Loss | None = price
        self.result = b""

    def pay(self, loss: Loss, run: Callable[[], bytes], **described: Any) -> Paid:
        if loss != self._price:
            raise BadParameter("loss", "is not the one that was charged, or was used before")
        self._price = None
        self.result = run()
        return Paid(self.result, None)
