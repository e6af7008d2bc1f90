"""The lifetime ledger: accounts, blocks, charges, receipts, and the gate that makes all charges."""

from __future__ import annotations

from lapwing.ledger.accounts import Account, Block, Slices, Unit
from lapwing.ledger.data_sets import DataSet, append, register
from lapwing.ledger.entry import Receipt
from lapwing.ledger.gate import ChargedRead, ChargedRelease, Gate, Release, targets
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.spending import Spending, Target

__all__ = [
    "Account",
    "Block",
    "ChargedRead",
    "ChargedRelease",
    "CuratorKey",
    "DataSet",
    "Gate",
    "Ledger",
    "Receipt",
    "Release",
    "Slices",
    "Spending",
    "Target",
    "Unit",
    "append",
    "register",
    "targets",
]
