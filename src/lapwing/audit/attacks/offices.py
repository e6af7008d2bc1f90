"""A generated world for attacks on counts: the patients of a counselling service, by office.

Every office has one head, who is a patient with probability 1/2. The attacker guesses whether the head is.
All other patients are staff.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.attacks.attack_result import SuccessCount
from lapwing.audit.attacks.temporary_gate import write_world
from lapwing.core.noise import bernoulli, uniform_int
from lapwing.sql.answering.answers import Answer

LEAST_STAFF, MOST_STAFF = 5, 20
BY_OFFICE = "SELECT office, COUNT(*) AS n FROM patients GROUP BY office"
BY_OFFICE_WITHOUT_HEADS = "SELECT office, COUNT(*) AS n FROM patients WHERE NOT head GROUP BY office"


@dataclass(frozen=True, slots=True)
class Offices:
    """The number of patients among the staff of each office, and whether the head is a patient."""

    staff: NDArray[np.int64]
    heads: NDArray[np.bool_]

    @classmethod
    def drawn(cls, offices: int) -> Offices:
        """Draw a world with this number of offices."""
        return cls(uniform_int(LEAST_STAFF, MOST_STAFF + 1, offices), bernoulli(Fraction(1, 2), offices))

    @property
    def counts(self) -> NDArray[np.int64]:
        """The true number of patients in each office."""
        return self.staff + self.heads

    def write(self, folder: Path, epsilon: Fraction) -> Path:
        """Write the patients and their policy, and return the path of the policy."""
        offices = range(len(self.staff))
        of_staff = np.repeat(offices, self.staff)
        of_heads = np.flatnonzero(self.heads)
        table = {
            "person": list(range(len(of_staff) + len(of_heads))),
            "office": [*of_staff.tolist(), *of_heads.tolist()],
            "head": [False] * len(of_staff) + [True] * len(of_heads),
        }
        columns = {"office": f"values = {list(offices)}", "head": 'type = "bool"'}
        return write_world(folder, "patients", table, columns, epsilon=epsilon)

    def score(self, guesses: NDArray[np.bool_]) -> SuccessCount:
        """Count the offices of which the guess is right."""
        return SuccessCount(int((guesses == self.heads).sum()), len(self.heads))


def guess_from(extra: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Guess whether a head is a patient from an estimate of 0 or 1. At exactly 1/2, the guess is random."""
    is_in: NDArray[np.bool_] = (extra > 0.5) | ((extra == 0.5) & bernoulli(Fraction(1, 2), len(extra)))
    return is_in


def by_office(answer: Answer) -> NDArray[np.float64]:
    """Return the counts of an answer in the order of the offices."""
    rows = sorted(answer.to_arrow().to_pylist(), key=lambda row: row["office"])
    return np.array([row["n"] for row in rows], dtype=np.float64)
