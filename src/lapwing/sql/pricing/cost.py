"""Prices of questions: the public values of `lapwing.prices`, which clients of a server have, too."""

from __future__ import annotations

from lapwing.prices import BudgetLeft, Cost

__all__ = ["BudgetLeft", "Cost"]
