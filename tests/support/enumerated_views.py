"""Coalitions' views by counting: all values of all unknowns, with integers. It assumes nothing.

The tests check that `lapwing.audit.coalition_views`, which computes with a basis, agrees with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.audit.coalition_views import HONEST_RELAY, Basis, Schedule, World, noise_law, with_precision
from lapwing.parties.protocols.protocol import Protocol, Setting
from lapwing.parties.protocols.secret_sharing import Elements


def all_schedules(members: int, rounds: int) -> Iterator[Schedule]:
    """Yield all schedules in which each member stays, is lost from a round on, or is late in a round."""
    fates = [("stays", 0), *product(("lost", "late"), range(rounds))]
    for chosen in product(fates, repeat=members):
        told = list(enumerate(chosen))
        losses = {i: at for i, (fate, at) in told if fate == "lost"}
        yield Schedule(losses, {i: at for i, (fate, at) in told if fate == "late"}, HONEST_RELAY)


class Enumerated(World):
    """The world of all values of all unknowns, except those of a coalition, which are given."""

    def __init__(self, setting: Setting, unknowns: Sequence[int], given: Mapping[int, int]) -> None:
        # Unknowns are numbered as in a `Basis`. All others have the value in `given`, or 0.
        self._length: int = setting.modulus ** len(unknowns)
        self._place = {unknown: setting.modulus**at for at, unknown in enumerate(unknowns)}
        self._given = given
        super().__init__(setting.modulus, setting.members)

    @property
    def length(self) -> int:
        """The length of all vectors."""
        return self._length

    def vector(self, unknown: int) -> Elements:
        """Return the values of an unknown, in all coordinates."""
        if unknown not in self._place:
            return np.full(self.length, self._given.get(unknown, 0), dtype=np.uint64)
        every = np.arange(self.length, dtype=np.uint64)
        return every // np.uint64(self._place[unknown]) % np.uint64(self.modulus)


@with_precision
def enumerated_loss(
    protocol: type[Protocol],
    setting: Setting,
    schedule: Schedule,
    coalition: frozenset[int],
    *,
    given: Mapping[int, int],
) -> tuple[arb, int]:
    """Return `worst_loss` by counting views over all values and all coins, and their number."""
    plain = Basis(setting)
    plain.run(protocol, setting, schedule)
    unknowns = [u for u, owners in enumerate(plain.owners) if not owners & coalition]
    world = Enumerated(setting, unknowns, given)
    rehearsal = world.run(protocol, setting, schedule)
    p, honest = setting.modulus, setting.members - len(coalition)
    views = _numbered(world.seen(rehearsal, coalition))
    values = np.arange(world.length) % p**honest  # values are the first unknowns
    counts = np.zeros((p**honest, int(views.max()) + 1), dtype=np.int64)
    np.add.at(counts, (values, views), 1)
    law = noise_law(p, protocol.honest(setting))
    worst = arb(0)
    for view in counts.T:
        chances = {}
        for truth in _neighbourhood(honest):
            chances[truth] = _chance(view, truth, law, p)
        base = chances[(0,) * honest]
        worst = max([worst, *(abs((base / chance).log()) for chance in chances.values())])
    return worst, world.length


def _neighbourhood(honest: int) -> Iterator[tuple[int, ...]]:
    """Yield zero, and all single steps from it. Elsewhere the law is the same, with moved views."""
    yield (0,) * honest
    for i in range(honest):
        for step in (-1, 1):
            yield tuple(step * int(i == j) for j in range(honest))


def _chance(view: NDArray[np.int64], truth: Sequence[int], law: Sequence[arb], p: int) -> arb:
    total = arb(0)
    for values in np.flatnonzero(view):
        digits = [int(values) // p**j % p for j in range(len(truth))]
        weight = arb(int(view[values]))
        for digit, true in zip(digits, truth, strict=True):
            weight *= law[(digit - true) % p]
        total += weight
    return total


def _numbered(seen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for each different column."""
    number = np.zeros(seen.shape[1], dtype=np.int64)
    for row in seen:
        number = np.unique(number * (int(row.max()) + 1) + row, return_inverse=True)[1]
    return number
