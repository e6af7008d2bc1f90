"""Reconstruction: random subset sums, decoded by least squares (Dinur and Nissim 2003).

Many answers that are only rounded reveal nearly all data. In each of many villages the attacker asks how
many people are ill in random sets of houses, and solves the equations.

Claim    each guess against Lapwing is right with probability at most `value_limit`, independently.
Because  all answers together cost at most the lifetime ε of every person. Villages have separate noise, and
         one person of each village, drawn beforehand, is counted.
Test     tests/audit/attacks/test_reconstruction.py
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.attacks.attack_result import AttackResult, AttackSettings, SuccessCount, total
from lapwing.audit.attacks.limits import two_step_limit, value_limit
from lapwing.audit.attacks.temporary_gate import opened, part_of, temporary_folder, write_world
from lapwing.core.chances import percent_up
from lapwing.core.losses import Relation
from lapwing.core.noise import bernoulli, uniform_int

RUNS, AT_ONCE = 400, 100
HOUSES, SETS = 24, 96  # houses of a village, with one person each; random sets of houses
TOGETHER = 24  # sets in one question
ROUNDED_TO = 2  # the unprotected answers are multiples of this
HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Villages:
    """People who are ill or not, by village and house, with the sets of houses and one target a village."""

    ill: NDArray[np.bool_]
    sets: NDArray[np.bool_]
    targets: NDArray[np.int64]

    @classmethod
    def drawn(cls, villages: int) -> Villages:
        """Draw a world with this number of villages."""
        ill = bernoulli(HALF, villages * HOUSES).reshape(villages, HOUSES)
        sets = bernoulli(HALF, SETS * HOUSES).reshape(SETS, HOUSES)
        return cls(ill, sets, uniform_int(0, HOUSES, villages))

    @property
    def sums(self) -> NDArray[np.int64]:
        """The true answers, by village and set."""
        return self.ill.astype(np.int64) @ self.sets.T.astype(np.int64)

    def score(self, answers: NDArray[np.float64]) -> tuple[SuccessCount, int]:
        """Decode answers. Return the targets that are right, and how many of all people are."""
        decoded = np.linalg.lstsq(self.sets.astype(np.float64), answers.T, rcond=None)[0].T > 0.5
        is_right = decoded == self.ill
        counted = is_right[np.arange(len(is_right)), self.targets]
        return SuccessCount(int(counted.sum()), len(counted)), int(is_right.sum())


def reconstruction(settings: AttackSettings) -> tuple[AttackResult, ...]:
    """Attack the people of villages with random subset sums."""
    shown: list[SuccessCount] = []
    safe: list[SuccessCount] = []
    everybody = np.zeros(3, dtype=np.int64)
    with temporary_folder() as folder:
        for villages in settings.batches(RUNS, AT_ONCE):
            world = Villages.drawn(villages)
            rounded = ROUNDED_TO * np.rint(world.sums / ROUNDED_TO)
            for counts, answers, place in (
                (shown, rounded, 0),
                (safe, _answers(world, folder, settings.epsilon), 1),
            ):
                targets, people = world.score(answers)
                counts.append(targets)
                everybody[place] += people
            everybody[2] += world.ill.size
    epsilon = settings.epsilon
    return (
        AttackResult(
            "reconstruction",
            "random subset sums",
            knows="The attacker knows who lives in which house, and may ask about any set of houses.",
            guesses="Whether a person is ill, yes or no, both equally likely.",
            without=f"{SETS} sums, rounded to multiples of {ROUNDED_TO}",
            through=f"{SETS} sums, all together for ε",
            unprotected=total(shown),
            protected=total(safe),
            epsilon=epsilon,
            chance=HALF,
            limit=value_limit(epsilon, 2, Relation.ADD_REMOVE),
            formula="min(e^ε / 2, 1 - e^-ε / 2); the two-step limit e^2ε / (e^2ε + 1) is "
            f"{percent_up(float(two_step_limit(epsilon, 2)))}",
            notes=(
                f"Of all {int(everybody[2]):,} people, {100 * everybody[0] / everybody[2]:.1f} % are "
                "decoded without protection, and "
                f"{100 * everybody[1] / everybody[2]:.1f} % from Lapwing's answers.",
            ),
        ),
    )


def _answers(world: Villages, folder: Path, epsilon: Fraction) -> NDArray[np.float64]:
    """Return the private answers, by village and set."""
    villages = len(world.ill)
    table = {
        "person": list(range(world.ill.size)),
        "village": np.repeat(np.arange(villages), HOUSES).tolist(),
        "house": np.tile(np.arange(HOUSES), villages).tolist(),
        "ill": world.ill.reshape(-1).tolist(),
    }
    columns = {
        "village": f"values = {list(range(villages))}",
        "house": f"low = 0, high = {HOUSES - 1}, step = 1",
        "ill": 'type = "bool"',
    }
    price = part_of(epsilon, SETS // TOGETHER)
    answers: list[list[float]] = [[] for _ in range(villages)]
    with opened(write_world(folder, "people", table, columns, epsilon=epsilon)) as people:
        for start in range(0, SETS, TOGETHER):
            names = [f"n{number}" for number in range(TOGETHER)]
            sums = ", ".join(
                f"COUNT_IF(ill AND house IN ({_listed(world.sets[start + number])})) AS {name}"
                for number, name in enumerate(names)
            )
            answer = people.ask(f"SELECT village, {sums} FROM people GROUP BY village", epsilon=price)  # noqa: S608
            for row in answer.to_arrow().to_pylist():
                answers[row["village"]] += [row[name] for name in names]
    return np.array(answers, dtype=np.float64)


def _listed(houses: NDArray[np.bool_]) -> str:
    """Return the numbers of the houses in a set, for SQL. No house has the number -1."""
    return ", ".join(str(number) for number in np.flatnonzero(houses)) or "-1"
