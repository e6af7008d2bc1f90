"""The exact view of a coalition in one small run, and its law under two neighbouring inputs.

Claim    `view_of_run` gives the exact probability of the printed view under both inputs, up to the rounding
         of floats.
Because  messages are linear in values and uniform coins (`coalition_views`). Given the coalition's own
         values and coins, a view is as many independent numbers as its rank. Those without a coin are the
         combinations of noised values that leak; the others are uniform, whatever leaks.
Test     tests/show/test_printed_views.py::test_counting_all_coins_gives_the_same_probabilities

Numbers are taken modulo a small prime. That is a function of the whole numbers, so it tells no more of
them; the ε of whole numbers is that of the noise shares (`exact_epsilon`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
from flint import arb

from lapwing.audit import coalition_views as worlds
from lapwing.core.noise import uniform_int
from lapwing.errors import BadParameter
from lapwing.mechanisms import LaplaceShares
from lapwing.parties.protocols.protocol import Setting
from lapwing.parties.protocols.registry import PROTOCOLS

PRIME = 5
INPUT, COIN, RECEIVED, BROADCAST = "input", "coin", "received", "broadcast"


@dataclass(frozen=True, slots=True)
class ViewNumber:
    """One number of a view: an own input or coin of the coalition, or a message that it reads."""

    kind: str
    source: str  # the member that it belongs to or comes from, and to
    round: str
    number: int


@dataclass(frozen=True, slots=True)
class ViewOutcome:
    """A value of the combinations that leak, with its probability under both inputs."""

    told: tuple[int, ...]
    first: float
    second: float

    @property
    def ratio(self) -> float:
        """The larger probability over the smaller one."""
        return max(self.first, self.second) / min(self.first, self.second)


@dataclass(frozen=True, slots=True)
class ViewOfRun:
    """One run as a coalition sees it.

    Members are numbered from 1. Under the first input each member counts its number; under the second one
    the member `changed` counts one more. `combinations` are the sums of noised counts that the view tells,
    and `outcomes` has the law of those that hold the count of `changed`. `view` are the probabilities of
    this very view under both inputs, given the coalition's own inputs and coins. `chosen` and `seen` are
    all values and coins of the run, and the numbers of its messages.
    """

    letter: str
    setting: Setting
    coalition: frozenset[int]
    changed: int
    numbers: tuple[ViewNumber, ...]
    combinations: tuple[str, ...]
    outcomes: tuple[ViewOutcome, ...]
    happened: int  # the place among the outcomes of the one of this run
    uniform: int  # how many further numbers are uniform, whatever the inputs
    view: tuple[float, float]
    chosen: tuple[int, ...]
    seen: tuple[int, ...]

    @property
    def loss(self) -> float:
        """The greatest |ln(P[view] / P'[view])| over all views."""
        return float(np.log(max(outcome.ratio for outcome in self.outcomes)))


def small_setting(letter: str, members: int, coalition: int) -> Setting:
    """Return the setting of a small run. Raises BadParameter if the protocol cannot serve it."""
    setting = Setting(members=members, coalition=coalition, losses=0, length=1, modulus=_prime(members))
    why = PROTOCOLS[letter].refusal(setting)
    if why is not None:
        raise BadParameter(
            "protocol",
            f"{letter} cannot serve {members} members of whom {coalition} collude: {why}. Take another "
            "protocol, more members or a smaller coalition",
        )
    return setting


def _prime(members: int) -> int:
    return PRIME if members < PRIME else 7


def view_of_run(
    letter: str, members: int, coalition: Sequence[int], epsilon: Fraction, *, first: bool
) -> ViewOfRun:
    """Run a protocol once, with fresh noise and coins, and return the view of a coalition.

    Args:
        letter: The protocol, from "A" to "D".
        members: The number of members.
        coalition: The numbers of the members that collude, from 1. Empty: the relay alone.
        epsilon: The ε of the run.
        first: Whether the run has the first input.
    """
    colluding = frozenset(i - 1 for i in coalition)
    setting, kind = small_setting(letter, members, max(len(colluding), 1)), PROTOCOLS[letter]
    p, shares = setting.modulus, kind.honest(setting)
    basis = worlds.Basis(setting)
    rehearsal = basis.run(kind, setting, worlds.NOTHING_LOST)
    rows = worlds.leaked(basis, rehearsal, colluding)
    honest = [i for i in range(members) if i not in colluding]
    changed = honest[-1]
    coins = [u for u in range(members, len(basis.owners)) if not basis.owners[u] & colluding]
    rank = len(worlds.reduced(basis.seen(rehearsal, colluding)[:, coins + honest], p))
    counts = [i + 1 + (i == changed and not first) for i in range(members)]
    share = LaplaceShares.for_epsilon(epsilon, l1=1, of=shares)
    noises = [int(share.sample([0])[0]) for _ in range(members)]
    drawn = [int(n) for n in uniform_int(0, p, len(basis.owners) - members)]
    chosen = [*((c + n) % p for c, n in zip(counts, noises, strict=True)), *drawn]
    world = worlds.Chosen(setting, np.array(chosen, dtype=np.uint64).reshape(-1, 1))
    run = world.run(kind, setting, worlds.NOTHING_LOST)
    own = [u for u, owners in enumerate(world.owners) if owners & colluding]
    numbers: list[ViewNumber] = []
    for u in own:
        whose = " and ".join(f"member {i + 1}" for i in sorted(world.owners[u]))
        if u < members:
            numbers.append(ViewNumber(INPUT, whose, "before", counts[u] % p))
            numbers.append(ViewNumber(COIN, f"{whose}: noise", "before", noises[u] % p))
        else:
            numbers.append(ViewNumber(COIN, whose, "before", chosen[u]))
    for message in worlds.view(run, colluding):
        name = kind.rounds[message.round]
        where = f"member {message.sender + 1}"
        received = message.recipient is not None
        if received:
            where += f" to {(message.recipient or 0) + 1}"
        numbers += [
            ViewNumber(RECEIVED if received else BROADCAST, where, name, int(n))
            for n in np.frombuffer(message.content, dtype="<u8")
        ]
    base = [i + 1 for i in range(members)]
    laws = _LeakedLaws(rows, tuple(honest), changed, p, worlds.noise_law(p, shares, epsilon))
    outcomes = laws.outcomes(base)
    place = [outcome.told for outcome in outcomes].index(laws.told(laws.telling, chosen))
    part = laws.chance_of_others(base, chosen) / float(p) ** (rank - len(rows))
    return ViewOfRun(
        letter=letter,
        setting=setting,
        coalition=colluding,
        changed=changed + 1,
        numbers=tuple(numbers),
        combinations=tuple(_words(row, honest) for row in rows),
        outcomes=outcomes,
        happened=place,
        uniform=rank - len(rows),
        view=(outcomes[place].first * part, outcomes[place].second * part),
        chosen=tuple(chosen),
        seen=tuple(int(n) for n in world.seen(run, colluding).ravel()),
    )


@dataclass(frozen=True, slots=True)
class _LeakedLaws:
    """The laws of the combinations that leak: `rows` over the members in `honest`, modulo p."""

    rows: worlds.Rows
    honest: tuple[int, ...]
    changed: int
    p: int
    law: tuple[arb, ...]  # of one noise share

    @property
    def telling(self) -> worlds.Rows:
        """The rows that hold the changed count."""
        at = self.honest.index(self.changed)
        return tuple(row for row in self.rows if row[at])

    def told(self, rows: worlds.Rows, values: Sequence[int]) -> tuple[int, ...]:
        """Return the values of rows for the values of all members."""
        return tuple(
            sum(a * values[i] for a, i in zip(row, self.honest, strict=True)) % self.p for row in rows
        )

    @worlds.with_precision
    def outcomes(self, counts: Sequence[int]) -> tuple[ViewOutcome, ...]:
        """Return the law of the telling rows with these counts, and with one more of the changed member."""
        rows, chances = self.telling, self._of_noise(self.telling)
        step = self.told(rows, [int(i == self.changed) for i in range(len(counts))])
        base = self.told(rows, counts)
        outcomes = []
        for told in product(range(self.p), repeat=len(rows)):
            first = tuple((t - b) % self.p for t, b in zip(told, base, strict=True))
            second = tuple((f - s) % self.p for f, s in zip(first, step, strict=True))
            if first in chances:
                outcomes.append(ViewOutcome(told, float(chances[first]), float(chances[second])))
        return tuple(outcomes)

    @worlds.with_precision
    def chance_of_others(self, counts: Sequence[int], values: Sequence[int]) -> float:
        """Return the probability of the values of all other rows. It is the same with both inputs."""
        rows = tuple(row for row in self.rows if row not in self.telling)
        assert not any(
            a and b for row in rows for other in self.telling for a, b in zip(row, other, strict=True)
        )
        noises = [value - count for value, count in zip(values, counts, strict=False)]
        return float(self._of_noise(rows)[self.told(rows, noises)])

    def _of_noise(self, rows: worlds.Rows) -> dict[tuple[int, ...], arb]:
        used = [k for k in range(len(self.honest)) if any(row[k] for row in rows)]
        chances: dict[tuple[int, ...], arb] = {}
        for drawn in product(range(self.p), repeat=len(used)):
            told = tuple(sum(row[k] * n for k, n in zip(used, drawn, strict=True)) % self.p for row in rows)
            weight = arb(1)
            for n in drawn:
                weight *= self.law[n]
            chances[told] = chances.get(told, arb(0)) + weight
        return chances


def _words(row: Sequence[int], honest: Sequence[int]) -> str:
    held = [(a, i + 1) for a, i in zip(row, honest, strict=True) if a]
    if any(a != 1 for a, _ in held):
        return " + ".join(f"{a} × count of member {i}" for a, i in held)
    if len(held) == 1:
        return f"count of member {held[0][1]}"
    names = [str(i) for _, i in held]
    return f"sum of the counts of members {', '.join(names[:-1])} and {names[-1]}"


def exact_epsilon(letter: str, members: int, planned: int, colluding: int, epsilon: Fraction) -> Fraction:
    """Return the exact ε of what the first members see, in whole numbers, rounded up.

    Noise is planned for a coalition of `planned`, and `colluding` members collude. Their view is computed
    from a run of the protocol: it tells either one sum of all honest members, or each of their numbers.
    """
    setting, kind = small_setting(letter, members, planned), PROTOCOLS[letter]
    world = worlds.Basis(setting)
    rehearsal = world.run(kind, setting, worlds.NOTHING_LOST)
    rows = worlds.leaked(world, rehearsal, frozenset(range(colluding)))
    honest = members - colluding
    share = LaplaceShares.for_epsilon(epsilon, l1=1, of=kind.honest(setting))
    if rows == ((1,) * honest,):
        return share.loss_with(honest)
    assert len(rows) == honest, "neither one sum nor each number"
    return share.loss_with(1)
