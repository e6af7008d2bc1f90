"""The protocols by the letter that plans and documents use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lapwing.parties.protocols.masked_sum import MaskedSum
from lapwing.parties.protocols.own_noise import LocalModel, OwnNoise
from lapwing.parties.protocols.protocol import Protocol
from lapwing.parties.protocols.share_dealing import AdditiveSharing, ShamirSharing

OWN_NOISE, ADDITIVE, SHAMIR, MASKED, LOCAL = "ABCDL"
PROTOCOLS: Mapping[str, type[Protocol]] = MappingProxyType(
    {
        OWN_NOISE: OwnNoise,
        ADDITIVE: AdditiveSharing,
        SHAMIR: ShamirSharing,
        MASKED: MaskedSum,
        LOCAL: LocalModel,
    }
)
NAMES: Mapping[str, str] = MappingProxyType({letter: kind.name for letter, kind in PROTOCOLS.items()})
PROTOCOL_CHOICES = ("auto", *NAMES)
