"""The cases of the protocols A to D and the local one: exact views of all coalitions, and draws.

Small fields are enumerated, at ε = 1. In the local model each row is randomized by itself, so its case is
also that of the row's randomized response.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, Stage, StageBudget
from lapwing.audit.protocol_views import CLAIM, ViewedSetting, view_stage
from lapwing.audit.registry.mechanisms import report_pairs
from lapwing.audit.stages.exact import exact_stage
from lapwing.audit.stages.known_law import (
    KnownEvent,
    KnownLaw,
    uniform_events,
    with_known_laws,
)
from lapwing.audit.stages.sampled import Draw, SampledPair, sampled_stage
from lapwing.mechanisms import LaplaceShares, RandomizedResponse
from lapwing.parties.contribution import LocalContribution
from lapwing.parties.journals import RecordedCoins
from lapwing.parties.protocols.masked_sum import Masks
from lapwing.parties.protocols.protocol import Setting
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.parties.protocols.secret_sharing import FIELD, FreshCoins, ProtocolCoins
from lapwing.parties.simulation import run_in_memory

# Members, t, losses and modulus: quick ones, and those of a thorough audit besides.
_QUICK = {
    "A": [(2, 1, 0, 3), (3, 1, 1, 5), (4, 2, 0, 5)],
    "B": [(2, 1, 0, 3), (3, 1, 0, 5), (4, 2, 0, 5)],
    "C": [(3, 1, 0, 5)],
    "D": [(2, 1, 0, 3), (4, 2, 0, 5)],
    "L": [(2, 1, 0, 3), (4, 2, 1, 5)],
}
_MORE = {
    "A": [(3, 2, 0, 5), (4, 3, 0, 5)],
    "B": [(3, 2, 0, 5), (3, 1, 1, 5)],
    "C": [(3, 1, 1, 5)],
    "D": [(3, 1, 1, 5)],
    "L": [(3, 2, 0, 5)],
}


# Members, t and losses of groups whose quorum must have an honest member in common. The first is quick.
_QUORUMS = [(5, 1, 1), (5, 2, 1)]


def _settings(letter: str) -> Callable[[StageBudget], list[ViewedSetting]]:
    def chosen(budget: StageBudget) -> list[ViewedSetting]:
        shapes = _QUICK[letter] + (_MORE[letter] if budget.is_thorough else [])
        kind = PROTOCOLS[letter]
        return [
            *(ViewedSetting(kind, *shape) for shape in shapes),
            *(
                ViewedSetting(kind, *shape, 7, honest_quorum=True, signs_twice=True)
                for shape in (_QUORUMS[: 2 if budget.is_thorough else 1] if letter in "CD" else ())
            ),
        ]

    return chosen


def _opened(letter: str, value: int) -> Draw:
    """Return draws of an opened sum of three members, less the noise of the one in the coalition."""
    kind = PROTOCOLS[letter]

    def draw(size: int) -> NDArray[np.int64]:
        if letter == "L":  # each member counts one row, which was randomized by itself
            return RandomizedResponse.for_epsilon(CLAIM).sample(np.full(size, value))
        setting = Setting(members=3, coalition=1, losses=0, length=size)
        shares = LaplaceShares.for_epsilon(CLAIM, l1=1, of=kind.honest(setting))
        truths = [np.full(size, value), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)]
        noised = [shares.sample(truth) for truth in truths]
        run = run_in_memory(kind, setting, noised)
        return run.opened.values - noised[2]

    return draw


_MODULI, _COINS = (FIELD, 5, 257), 20_000


def _coin_laws() -> list[KnownLaw]:
    """Return draws of the coins and masks that members use: pieces of values are as uniform as these.

    The keystream of one seed is always the same, so that its masks are right or wrong for ever.
    """
    known = []
    sources: dict[str, ProtocolCoins] = {"fresh": FreshCoins(), "recorded": RecordedCoins()}
    for words, coins in sources.items():
        for modulus in _MODULI:
            drawn = partial(coins.elements, modulus, _COINS)
            known.append(KnownLaw(f"{words} coins below {modulus}", drawn, uniform_events(modulus)))
        known.append(KnownLaw(f"{words} secrets", partial(_secret_bits, coins.secret), _bit_events()))
    for modulus in _MODULI:
        mask = partial(Masks().expand, bytes(range(32)), modulus, _COINS)
        known.append(KnownLaw(f"coins of a mask below {modulus}", mask, uniform_events(modulus)))
    return known


def _secret_bits(secret: Callable[[], bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(secret() for _ in range(_COINS // 32)), np.uint8).astype(np.uint64)


def _bit_events() -> tuple[KnownEvent, ...]:
    return (
        *(KnownEvent(f"bit {k} is set", partial(_is_set, k), 0.5) for k in range(8)),
        KnownEvent("a byte is that of the secret before", _again, 1 / 256),
    )


def _is_set(bit: int, drawn: NDArray[np.uint64]) -> NDArray[np.bool_]:
    bits: NDArray[np.bool_] = drawn >> np.uint64(bit) & np.uint64(1) == 1
    return bits


def _again(drawn: NDArray[np.uint64]) -> NDArray[np.bool_]:
    repeats: NDArray[np.bool_] = drawn[32::64] == drawn[: len(drawn) - 32 : 64]
    return repeats


def _local_reports() -> AuditCase:
    """Return the case of a member's tally in the local model: each row is randomized by itself."""
    settings = [RandomizedResponse.for_epsilon(CLAIM, options=options) for options in (2, 5, 50)]
    stages = {
        Stage.EXACT: exact_stage(
            lambda _: (pair for setting in settings for pair in report_pairs(setting)), epsilon=CLAIM
        )
    }
    name = "protocol L: one row of a member's tally"
    return AuditCase(name, Family.PROTOCOL, (LocalContribution,), CLAIM, 0 * CLAIM, stages)


def _opened_sum(letter: str) -> AuditCase:
    kind = PROTOCOLS[letter]
    drawn = SampledPair("opened sums; one value is 0 or 1", _opened(letter, 0), _opened(letter, 1))
    stages = {
        Stage.EXACT: view_stage(_settings(letter)),
        Stage.SAMPLED: with_known_laws(
            sampled_stage([drawn], CLAIM, 0 * CLAIM), _coin_laws if letter in "BCD" else list, float(CLAIM)
        ),
    }
    return AuditCase(f"protocol {letter}: {kind.name}", Family.PROTOCOL, (kind,), CLAIM, 0 * CLAIM, stages)


def protocol_cases() -> list[AuditCase]:
    """Return the cases of all protocols."""
    return [_local_reports(), *map(_opened_sum, PROTOCOLS)]
