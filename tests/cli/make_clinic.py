"""Makes src/lapwing/cli/data/clinic.csv, the invented data of `lapwing demo`.

    python tests/cli/make_clinic.py > src/lapwing/cli/data/clinic.csv

Nobody in it exists. Seeded, so that the file can be made again; no noise of Lapwing is ever seeded.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO, TypeVar

Key = TypeVar("Key")
PATIENTS = 400
FIELDS = ("patient", "town", "ward", "age", "stay_days", "cost", "skipped")
TOWNS = {
    "Ashmere": 130,
    "Brookfield": 105,
    "Calder": 90,
    "Dunmore": 40,
    "Eskdale": 22,
    "Fenwick": 9,
    "Glen": 4,
}
WARDS = {"surgery": 33, "maternity": 17, "heart": 16, "children": 14, "eyes": 11, "lungs": 9}
VISITS = {1: 27, 2: 29, 3: 20, 4: 14, 5: 8, 7: 2}  # the last few exceed the bound that is enforced


def _pick(chance: random.Random, weights: Mapping[Key, int]) -> Key:
    """A key by weight, from `random()` alone: the one method whose values Python keeps for ever."""
    mark = chance.random() * sum(weights.values())
    for key, weight in weights.items():
        mark -= weight
        if mark < 0:
            return key
    raise AssertionError("random() is below 1")


def rows(seed: int = 20_260_301) -> list[dict[str, str]]:
    """All visits, in the order in which they happened."""
    chance = random.Random(seed)
    visits: list[tuple[float, dict[str, str]]] = []
    for patient in range(1, PATIENTS + 1):
        town = _pick(chance, TOWNS)
        age = int(95 * chance.random() ** 0.8)
        skipped = "yes" if chance.random() < 0.3 else "no"
        for _ in range(int(_pick(chance, VISITS))):
            stay = 1 + int(12 * chance.random() ** 3)
            cost = 90 + 160 * stay * (0.5 + chance.random())
            row = {
                "patient": str(patient),
                "town": str(town),
                "ward": str(_pick(chance, WARDS)),
                "age": "" if chance.random() < 0.01 else str(age),
                "stay_days": str(stay),
                "cost": "" if chance.random() < 0.01 else f"{cost:.2f}",
                "skipped": skipped,
            }
            visits.append((chance.random(), row))
    return [row for _, row in sorted(visits, key=lambda visit: visit[0])]


def write(visits: Sequence[dict[str, str]], out: TextIO) -> None:
    """As comma-separated values with plain line ends."""
    writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(visits)


if __name__ == "__main__":
    write(rows(), sys.stdout)
