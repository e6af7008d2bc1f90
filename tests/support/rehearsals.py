"""Settings, values and rehearsals of protocols, for tests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lapwing.parties.protocols.protocol import Ints, Setting
from lapwing.parties.simulation import SimulatedRun, run_in_memory


def setting_of(members: int, coalition: int = 0, losses: int = 0, length: int = 4) -> Setting:
    return Setting(members=members, coalition=coalition, losses=losses, length=length)


def values_of(setting: Setting) -> list[Ints]:
    generator = np.random.default_rng(setting.members)
    return [generator.integers(-1000, 1000, setting.length) for _ in range(setting.members)]


def rehearsed(
    letter: str,
    setting: Setting,
    *,
    losses: Mapping[int, int] | None = None,
    late: Mapping[int, int] | None = None,
) -> SimulatedRun:
    return run_in_memory(letter, setting, values_of(setting), losses=losses or {}, late=late or {})
