"""The exact law of the view of a coalition, without sampling.

Protocols add and multiply coordinate by coordinate, so one run with long vectors is many runs at once: each
coordinate has values and coins of its own. Two kinds of worlds use this:

- `Basis`: coordinate c has a 1 in unknown c, and 0 in all others. As messages are linear in values and
  coins, this one run gives the whole map. Coins are uniform, so a view tells exactly those combinations of
  values in which no coin is left: `leaked`. With noise on the values, the law of these is one finite sum:
  `worst_loss`.
- `Chosen`: the unknowns are given.

The tests also count the views over all values of all unknowns, with integers. That assumes nothing, and
must agree with `Basis`.

Test: tests/parties/protocols/test_protocols_views.py
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, wraps
from itertools import combinations, product
from math import comb
from struct import unpack
from typing import ParamSpec, TypeVar

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.core.exact import precision
from lapwing.errors import BadParameter
from lapwing.parties.protocols.masked_sum import MaskedSum, Masks
from lapwing.parties.protocols.protocol import Protocol, Setting
from lapwing.parties.protocols.secret_sharing import WORD, Elements, ProtocolCoins
from lapwing.parties.simulation import SimulatedRun, run_in_memory

Rows = tuple[tuple[int, ...], ...]
EPSILON = Fraction(1)
BITS = 160
_P = ParamSpec("_P")
_T = TypeVar("_T")


def with_precision(compute: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorate a function so that it computes balls with 160 bits."""

    @wraps(compute)
    def computed(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with precision(BITS):
            return compute(*args, **kwargs)

    return computed


@dataclass(frozen=True)
class ObservedMessage:
    """One message that the adversary sees: public (`recipient` is None), or to a colluding member."""

    round: int
    sender: int
    recipient: int | None
    content: bytes


def view(run: SimulatedRun, coalition: Iterable[int]) -> list[ObservedMessage]:
    """Return all messages that a coalition and the relay see, without their own values and coins."""
    members = sorted(set(coalition))
    seen = []
    for number, spoken in enumerate(run.rounds):
        for sender, post in sorted(spoken.posts.items()):
            seen.append(ObservedMessage(number, sender, None, post.public))
            private = post.private or {}
            seen += [ObservedMessage(number, sender, i, private[i]) for i in members if i in private]
    return seen


@dataclass(frozen=True)
class Schedule:
    """The members that are lost or late, by round, and the posts that a lying relay shows to each."""

    losses: Mapping[int, int]
    late: Mapping[int, int]
    shown: Mapping[tuple[int, int], Collection[int]]
    twice: Collection[int] = ()  # the members that sign every agreement


HONEST_RELAY: Mapping[tuple[int, int], Collection[int]] = {}
NOTHING_LOST = Schedule({}, {}, HONEST_RELAY)


def coalitions(setting: Setting) -> Iterator[frozenset[int]]:
    """Yield all coalitions of up to t members. The empty one is the relay alone."""
    for size in range(setting.coalition + 1):
        yield from map(frozenset, combinations(range(setting.members), size))


class World(ABC):
    """A world: it gives a vector to each unknown, to values first, then to coins as they are drawn."""

    def __init__(self, modulus: int, members: int) -> None:
        self.modulus = modulus
        self.members = members
        self.owners: list[frozenset[int]] = []
        self.values = [self.new(i) for i in range(members)]
        self.pairs: dict[tuple[int, int], Elements] = {}

    @property
    @abstractmethod
    def length(self) -> int:
        """The length of all vectors."""

    def new(self, *owners: int) -> Elements:
        """Return a new unknown. A coalition that has one of its owners knows it."""
        self.owners.append(frozenset(owners))
        return self.vector(len(self.owners) - 1)

    @abstractmethod
    def vector(self, unknown: int) -> Elements:
        """Return the vector of an unknown."""

    def run(self, protocol: type[Protocol], setting: Setting, schedule: Schedule) -> SimulatedRun:
        """Run the protocol in memory, on the values and coins of this world."""
        coins = [WorldCoins(self, i) for i in range(self.members)]
        if issubclass(protocol, MaskedSum):
            protocol = with_ideal_masks(protocol, self.members)
            self.pairs = {pair: self.new(*pair) for pair in combinations(range(self.members), 2)}
        return run_in_memory(
            protocol,
            replace(setting, length=self.length),
            [value.astype(np.int64) for value in self.values],
            losses=schedule.losses,
            late=schedule.late,
            shown=schedule.shown,
            coins=coins,
            twice=schedule.twice,
        )

    def seen(self, rehearsal: SimulatedRun, coalition: Collection[int]) -> NDArray[np.int64]:
        """Return the view: one row for every number in it, one column for every coordinate."""
        content = b"".join(seen.content for seen in view(rehearsal, coalition))
        return np.frombuffer(content, dtype="<u8").astype(np.int64).reshape(-1, self.length)


class WorldCoins(ProtocolCoins):
    """Coins that are unknowns of a world."""

    def __init__(self, world: World, me: int) -> None:
        self._world = world
        self._me = me
        self._secrets = iter((self._key, self._seed))  # as the masked star draws them

    def elements(self, modulus: int, count: int) -> Elements:
        """Return new unknowns, as many as fill `count` numbers."""
        blocks, rest = divmod(count, self._world.length)
        if (modulus, rest) != (self._world.modulus, 0):
            raise BadParameter("count", "must be whole vectors of this world, for its modulus")
        drawn = [self._world.new(self._me) for _ in range(blocks)]
        return np.concatenate([np.empty(0, dtype=np.uint64), *drawn])

    def secret(self) -> bytes:
        """Return the next secret: the key of the masks, then the seed of the own mask."""
        return next(self._secrets)()

    def _key(self) -> bytes:
        """Return all masks of this member with others, each in its place; 0 for other pairs."""
        pairs = self._world.pairs
        return b"".join((mask if self._me in pair else 0 * mask).tobytes() for pair, mask in pairs.items())

    def _seed(self) -> bytes:
        mask = self._world.new(self._me)
        return mask.tobytes() + bytes(mask.nbytes * (len(self._world.pairs) - 1))


class IdealMasks(Masks):
    """Ideal key agreement: a public key tells nothing, a secret key is the list of its masks."""

    public_bytes = 0

    def __init__(self, members: int) -> None:
        self._pairs = list(combinations(range(members), 2))

    def public_key(self, secret: bytes) -> bytes:
        """Return nothing."""
        return b""

    def seed(self, secret: bytes, public: bytes, context: bytes) -> bytes:
        """Return the mask of the pair that the context names."""
        size = len(secret) // len(self._pairs)
        at = self._pairs.index(unpack("<II", context[-8:]))
        return secret[at * size : (at + 1) * size]

    def expand(self, seed: bytes, modulus: int, count: int) -> Elements:
        """Return the first numbers of a mask."""
        return np.frombuffer(seed[: WORD * count], dtype=np.uint64)

    def pieces(self, modulus: int, length: int) -> int:
        """Return the number of elements of one secret."""
        return len(self._pairs) * length

    def cut(self, secret: bytes, modulus: int) -> Elements:
        """Return a secret as elements."""
        return np.frombuffer(secret, dtype=np.uint64)

    def join(self, elements: Elements, modulus: int) -> bytes:
        """Return elements as a secret."""
        return elements.tobytes()


def with_ideal_masks(protocol: type[Protocol], members: int) -> type[Protocol]:
    """Return the same protocol with ideal masks."""
    return type(protocol.__name__, (protocol,), {"masks": IdealMasks(members)})


class Basis(World):
    """The world in which coordinate c has a 1 in unknown c, and 0 in all others."""

    def __init__(self, setting: Setting) -> None:
        self._length = _most_unknowns(setting)
        super().__init__(setting.modulus, setting.members)

    @property
    def length(self) -> int:
        """The length of all vectors."""
        return self._length

    def vector(self, unknown: int) -> Elements:
        """Return the unit vector of an unknown."""
        vector = np.zeros(self.length, dtype=np.uint64)
        vector[unknown] = 1  # an IndexError would mean that there are more unknowns than were counted
        return vector


def _most_unknowns(setting: Setting) -> int:
    """Return a bound on the unknowns: values, masks, the coins of the longest protocol, and one more."""
    m, pairs = setting.members, comb(setting.members, 2)
    threshold = max(setting.coalition + 1, setting.quorum)
    return 1 + 2 * m + pairs + m * max(m, 2 * pairs * (threshold - 1))


class Chosen(World):
    """The world with given unknowns: row u of `chosen` is unknown u."""

    def __init__(self, setting: Setting, chosen: Elements) -> None:
        self._chosen = chosen
        super().__init__(setting.modulus, setting.members)

    @property
    def length(self) -> int:
        """The length of all vectors."""
        return int(self._chosen.shape[1])

    def vector(self, unknown: int) -> Elements:
        """Return the given vector of an unknown."""
        return np.asarray(self._chosen[unknown], dtype=np.uint64)


def reduced(matrix: NDArray[np.int64], modulus: int) -> NDArray[np.int64]:
    """Return the row echelon form, without rows of zeros."""
    rows = matrix % modulus
    top = 0
    for column in range(rows.shape[1]):
        pivots = np.flatnonzero(rows[top:, column])
        if not len(pivots):
            continue
        rows[[top, top + pivots[0]]] = rows[[top + pivots[0], top]]
        rows[top] = rows[top] * pow(int(rows[top, column]), -1, modulus) % modulus
        others = rows[:, column].copy()
        others[top] = 0
        rows = (rows - np.outer(others, rows[top])) % modulus
        top += 1
    return rows[:top]


def leaked(world: Basis, rehearsal: SimulatedRun, coalition: frozenset[int]) -> Rows:
    """Return the combinations of honest values that a view tells. One column for each honest member."""
    honest = [i for i in range(world.members) if i not in coalition]
    coins = [u for u in range(world.members, len(world.owners)) if not world.owners[u] & coalition]
    seen = world.seen(rehearsal, coalition)
    if seen[:, len(world.owners) :].any():
        raise BadParameter("rehearsal", "is not linear: values and coins of 0 gave messages other than 0")
    rows = reduced(seen[:, coins + honest], world.modulus)
    free = rows[~rows[:, : len(coins)].any(axis=1)]
    return tuple(tuple(int(n) for n in row) for row in free[:, len(coins) :])


@lru_cache
@with_precision
def noise_law(modulus: int, shares: int, epsilon: Fraction = EPSILON) -> tuple[arb, ...]:
    """Return the law of one noise share (1/shares of discrete Laplace noise at ε), modulo the modulus.

    By its characteristic function ((1-q)^2 / |1 - q w^k|^2)^(1/shares) at the roots of unity, in balls.
    """
    q = (-arb(epsilon.numerator) / epsilon.denominator).exp()
    turns = [(2 * arb.pi() * k / modulus).cos() for k in range(modulus)]
    at = [((1 - q) ** 2 / (1 - 2 * q * turn + q * q)) ** (arb(1) / shares) for turn in turns]
    sums = (sum((at[k] * turns[k * n % modulus] for k in range(modulus)), arb(0)) for n in range(modulus))
    return tuple(total / modulus for total in sums)


@lru_cache
@with_precision
def worst_loss(rows: Rows, modulus: int, shares: int) -> arb:
    """Return the greatest |ln(P[view] / P'[view])|: over all views, and one honest value moved by 1."""
    if not rows:
        return arb(0)
    members = len(rows[0])
    law = noise_law(modulus, shares)
    chances: dict[tuple[int, ...], arb] = {}
    for noises in product(range(modulus), repeat=members):
        told = _apply(rows, noises, modulus)
        weight = arb(1)
        for noise in noises:
            weight *= law[noise]
        chances[told] = chances.get(told, arb(0)) + weight
    steps = {_apply(rows, [int(i == j) for j in range(members)], modulus) for i in range(members)}
    return max(
        abs((chances[told] / chances[_moved(told, step, modulus)]).log())
        for told in chances
        for step in steps
    )


def _apply(rows: Rows, values: Sequence[int], modulus: int) -> tuple[int, ...]:
    return tuple(sum(a * v for a, v in zip(row, values, strict=True)) % modulus for row in rows)


def _moved(told: Sequence[int], step: Sequence[int], modulus: int) -> tuple[int, ...]:
    return tuple((a + b) % modulus for a, b in zip(told, step, strict=True))
