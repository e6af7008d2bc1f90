"""The lifetime ledger: accounts, blocks, charges, receipts. Spending goes through `lapwing.ledger.gate`."""

from __future__ import annotations

from lapwing.ledger.accounts import Account, Block, Slices, Unit
from lapwing.ledger.data_sets import DataSet, append, register
from lapwing.ledger.entry import Receipt
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.ledger import Ledger

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
