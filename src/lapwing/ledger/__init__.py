"""The lifetime ledger: accounts, blocks, charges, receipts. Spending goes through `lapwing.gate`."""

from __future__ import annotations

from lapwing.ledger.accounts import Account, Block, Slices, Unit
from lapwing.ledger.data import DataSet, append, register
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.receipt import Receipt

__all__ = [
    "Account",
    "Block",
    "CuratorKey",
    "DataSet",
    "Ledger",
    "Receipt",
    "Slices",
    "Unit",
    "append",
    "register",
]
