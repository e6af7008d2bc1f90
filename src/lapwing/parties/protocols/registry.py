"""The protocols, each one member's part: what it posts in every round, and what it makes of the others'."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lapwing.parties.protocols.masked_sum import MaskedSum
from lapwing.parties.protocols.own_noise import LocalModel, OwnNoise
from lapwing.parties.protocols.protocol import (
    LARGEST_VALUE,
    Heard,
    OpenedSum,
    Post,
    Protocol,
    ProtocolStopped,
    Publics,
    RoundTraffic,
    Setting,
)
from lapwing.parties.protocols.secret_sharing import FIELD, Field, FreshCoins, ProtocolCoins
from lapwing.parties.protocols.share_dealing import AdditiveSharing, ShamirSharing

__all__ = [
    "FIELD",
    "LARGEST_VALUE",
    "NAMES",
    "PROTOCOLS",
    "ProtocolCoins",
    "Field",
    "FreshCoins",
    "Heard",
    "OpenedSum",
    "Post",
    "Protocol",
    "Publics",
    "Setting",
    "ProtocolStopped",
    "RoundTraffic",
]

PROTOCOLS: Mapping[str, type[Protocol]] = MappingProxyType(
    {"A": OwnNoise, "B": AdditiveSharing, "C": ShamirSharing, "D": MaskedSum, "L": LocalModel}
)
NAMES: Mapping[str, str] = MappingProxyType({letter: kind.name for letter, kind in PROTOCOLS.items()})
