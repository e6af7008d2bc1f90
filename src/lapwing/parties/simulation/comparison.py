"""The lectures' comparison, measured: one curator, several members, one member per person, the local model.

Every number comes from runs of the protocols with fresh noise and coins. A run's vector has one cell for
each repetition, so that one run measures many; cells are independent, as noise is drawn for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.exact import Number, whole
from lapwing.mechanisms import LaplaceShares, RandomizedResponse
from lapwing.parties.protocols import PROTOCOLS, Setting
from lapwing.parties.protocols.rehearsal import rehearse
from lapwing.plots.parties import Measured
from lapwing.privacy.loss import checked_epsilon

SIZES = (10, 32, 100, 316, 1000, 10_000, 100_000)
PEOPLE = 1000
MEMBERS = (2, 3, 5, 10, 30, 100)
EVERYBODY_AT_MOST = 316  # as members of one run
REPORTS_AT_MOST = 4_000_000  # coins thrown for one point of the local model
FEWEST = 30


def compare(
    epsilon: Number,
    *,
    repetitions: int = 200,
    sizes: Sequence[int] = SIZES,
    people: int = PEOPLE,
    members: Sequence[int] = MEMBERS,
    tell: Callable[[int, int], None] = lambda _, __: None,
) -> Measured:
    """Root mean square errors of a share of yes answers, half of n people's."""
    e, runs = checked_epsilon(epsilon), whole(repetitions, "repetitions", at_least=2)
    if any(n < 10 for n in (*sizes, people)) or any(not 2 <= m <= people for m in members):
        raise BadParameter("sizes", "must be at least 10 people, and 2 to n members")

    def shared(n: int, m: int, t: int) -> float:
        return member_error(e, n, members=m, coalition=t, repetitions=runs)

    jobs: list[tuple[str, str, int, Callable[[], float]]] = []
    for n in sizes:
        jobs += [
            ("size", "curator", n, partial(shared, n, 1, 0)),
            ("size", "shared", n, partial(shared, n, 3, 1)),
            ("size", "alone", n, partial(shared, n, 10, 9)),
        ]
        if n <= EVERYBODY_AT_MOST:
            jobs.append(("size", "everybody", n, partial(shared, n, n, n - 1)))
        if n * min(runs, FEWEST) <= REPORTS_AT_MOST:
            jobs.append(("size", "local", n, partial(local_model_error, e, n, repetitions=runs)))
    for m in members:
        if m > 2:  # of two, whoever is feared is not a minority
            jobs.append(("members", "shared", m, partial(shared, people, m, (m - 1) // 2)))
        jobs.append(("members", "alone", m, partial(shared, people, m, m - 1)))
    found: dict[str, dict[str, list[tuple[int, float]]]] = {"size": {}, "members": {}}
    for done, (what, name, x, measure) in enumerate(jobs):
        tell(done, len(jobs))
        found[what].setdefault(name, []).append((x, measure()))
    tell(len(jobs), len(jobs))
    return Measured(e, people, found["size"], found["members"])


def member_error(epsilon: Fraction, n: int, *, members: int, coalition: int, repetitions: int) -> float:
    """Of a share of n people, who are divided among the members, by the best protocol of A and C."""
    letter = "C" if 2 * coalition < members and members > 1 else "A"
    setting = Setting(members=members, coalition=coalition, losses=0, length=repetitions)
    share = LaplaceShares.for_epsilon(epsilon, l1=1, of=PROTOCOLS[letter].honest(setting))
    answers = np.arange(n) % 2
    counts = [int(part.sum()) for part in np.array_split(answers, members)]
    values = [share.sample(np.full(repetitions, count)) for count in counts]
    opened = rehearse(letter, setting, values).opened
    return _rms(opened.values / n - answers.mean())


def local_model_error(epsilon: Fraction, n: int, *, repetitions: int) -> float:
    """Of a share of n people, who randomize their own answers; three members count what they say."""
    runs = max(min(repetitions, REPORTS_AT_MOST // n), 2)
    coins = RandomizedResponse.for_epsilon(epsilon)
    answers = np.arange(n) % 2
    parts = np.array_split(answers, 3)
    tallies = [
        np.array([int(coins.sample(part).sum()) for _ in range(runs)], dtype=np.int64) for part in parts
    ]
    setting = Setting(members=3, coalition=2, losses=0, length=runs)
    yes = rehearse("L", setting, tallies).opened.values / n
    truth = coins.truth_probability()(64)
    other = 1 - float(truth)
    return _rms((yes - other) / (1 - 2 * other) - answers.mean())


def _rms(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt((errors**2).mean()))
