"""Surveys for attacks in the local model: real questions, real randomizers, real devices.

A report is decoded by the most likely answer, with the exact odds of the survey's own randomizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.attacks.attack_result import SuccessCount
from lapwing.core.noise import bernoulli, permutation
from lapwing.survey.designing import Design, design
from lapwing.survey.survey_file import load

_FILE = """
[survey]
name = "{name}"
title = "{name}"
epsilon = {epsilon}
stop_after = 1000000
[[questions]]
name = "answer"
text = "{text}"
{kind}
no_answer = false
"""


@dataclass(frozen=True, slots=True)
class OneQuestion:
    """A survey with one question, whose answers are numbered."""

    design: Design
    labels: tuple[str, ...]

    @classmethod
    def written(
        cls, folder: Path, name: str, text: str, labels: Sequence[str], epsilon: Fraction
    ) -> OneQuestion:
        """Write a survey file, and read it: a yes/no question if there are two labels, else a choice."""
        listed = "[" + ", ".join(f'"{label}"' for label in labels) + "]"
        kind = f'kind = "{"yes_no" if len(labels) == 2 else "choice"}"\noptions = {listed}'
        path = folder / f"{name}.toml"
        path.write_text(_FILE.format(name=name, text=text, kind=kind, epsilon=float(epsilon)))
        return cls(design(load(path)), tuple(labels))

    @property
    def public(self) -> dict[str, Any]:
        """The public part of the survey, which a device needs."""
        return self.design.public()

    def answer(self, code: int) -> dict[str, object]:
        """Return the answer with this number, as a device takes it."""
        return {"answer": self.labels[code]}

    def reports(self, codes: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Randomize answers anew, as a device does, but without an account."""
        return self.design.simulate({"answer": codes})

    def log_odds(self, reports: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return ln P[report | answer] for each report and each answer."""
        randomizer = self.design.parts[0].randomizer
        different, places = np.unique(reports, axis=0, return_inverse=True)
        table = [
            [
                float(np.log(float(randomizer.probability(code, bytes(row[1:])))))
                for code in range(len(self.labels))
            ]
            for row in different
        ]
        odds: NDArray[np.float64] = np.array(table)[places.reshape(-1)]
        return odds


def most_likely(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the answer with the highest score for each person. Chance decides between equal scores."""
    mixed = permutation(scores.shape[1])
    chosen: NDArray[np.int64] = mixed[np.argmax(np.round(scores, 9)[:, mixed], axis=1)]
    return chosen


def scored(scores: NDArray[np.float64], truth: NDArray[np.int64]) -> SuccessCount:
    """Count the people whose most likely answer is the true one."""
    return SuccessCount(int((most_likely(scores) == truth).sum()), len(truth))


def fair_codes(count: int) -> NDArray[np.int64]:
    """Draw answers 0 or 1 for this number of people."""
    return bernoulli(Fraction(1, 2), count).astype(np.int64)
