"""The protocols, each one member's part: what it posts in every round, and what it makes of the others'."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lapwing.parties.protocols.additive import Additive
from lapwing.parties.protocols.coins import Coins, FreshCoins
from lapwing.parties.protocols.field import FIELD, Field
from lapwing.parties.protocols.masked import Masked
from lapwing.parties.protocols.own_noise import LocalModel, OwnNoise
from lapwing.parties.protocols.protocol import (
    LARGEST_VALUE,
    Heard,
    Opened,
    Post,
    Protocol,
    Publics,
    Setting,
    Stop,
    Traffic,
)
from lapwing.parties.protocols.shamir import Shamir

__all__ = [
    "FIELD",
    "LARGEST_VALUE",
    "NAMES",
    "PROTOCOLS",
    "Coins",
    "Field",
    "FreshCoins",
    "Heard",
    "Opened",
    "Post",
    "Protocol",
    "Publics",
    "Setting",
    "Stop",
    "Traffic",
]

PROTOCOLS: Mapping[str, type[Protocol]] = MappingProxyType(
    {"A": OwnNoise, "B": Additive, "C": Shamir, "D": Masked, "L": LocalModel}
)
NAMES: Mapping[str, str] = MappingProxyType({letter: kind.name for letter, kind in PROTOCOLS.items()})
