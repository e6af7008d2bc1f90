"""A consortium: who computes what together, how, and under which promise; signed by all members."""

from __future__ import annotations

from lapwing.parties.consortium.consortium import Consortium
from lapwing.parties.consortium.wish_file import WishFile, read_wish

__all__ = ["Consortium", "WishFile", "read_wish"]
