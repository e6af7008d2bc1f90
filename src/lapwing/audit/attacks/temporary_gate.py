"""A real gate for attacks: generated rows, a policy, a curator and a ledger in a temporary folder.

All of it is removed afterwards: keys, anchors and the registry of data sets are in the same folder.
To put them there, an attack changes the environment variable LAPWING_STATE of the whole process while it
runs. So do not open a ledger of your own in another thread of that process: its second anchor would be
written into the temporary folder, and removed with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lapwing.audit.attacks.attack_result import EPSILON_PARTS
from lapwing.sql.dataset import Dataset
from lapwing.sql.opening import open as open_dataset

ATTACKER = "the attacker"
_STATE = "LAPWING_STATE"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that is removed afterwards. Ledgers keep their second anchors in it.

    Until then, LAPWING_STATE has another value for the whole process: open no other ledger meanwhile.
    """
    before = os.environ.get(_STATE)
    with TemporaryDirectory(prefix="lapwing-attack-") as folder:
        os.environ[_STATE] = str(Path(folder, "state"))
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[_STATE]
            else:
                os.environ[_STATE] = before


def new_folder(folder: Path) -> Path:
    """Create a folder inside this one, and return it."""
    for number in count(1):
        made = folder / f"world-{number}"
        if not made.exists():
            made.mkdir()
            return made
    raise AssertionError("count(1) has no end")


def write_world(
    folder: Path,
    name: str,
    rows: Mapping[str, Sequence[Any]],
    columns: Mapping[str, str],
    *,
    epsilon: Fraction,
    delta: Fraction = Fraction(0),
) -> Path:
    """Write rows and their policy into a new folder, and return the path of the policy.

    Args:
        folder: The folder in which the new one is made.
        name: The name of the table and of the data set.
        rows: The columns. "person" is the id of the person; each person has one row.
        columns: The declaration of each column in the policy, such as "low = 0, high = 9, step = 1".
        epsilon: The lifetime ε of a person.
        delta: The lifetime δ of a person.
    """
    world = new_folder(folder)
    pq.write_table(pa.table(dict(rows)), world / f"{name}.parquet")
    lines = [
        "[dataset]", f'name = "{name}"',
        "[ledger]", 'registry = "state"',  # worlds have the same people, and budgets of their own
        "[budget]", f"epsilon = {float(epsilon)}", f"delta = {float(delta)}",
        f"[tables.{name}]", f'source = "{name}.parquet"', 'unit = "person"', "rows_per_unit = 1",
        f"[tables.{name}.columns]", *(f"{column} = {{ {what} }}" for column, what in columns.items()),
    ]  # fmt: skip
    policy = world / f"{name}.toml"
    policy.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return policy


@contextmanager
def opened(policy: Path) -> Iterator[Dataset]:
    """Open the data of a policy for the attacker."""
    with open_dataset(policy, analyst=ATTACKER) as dataset:
        dataset.curator.notify = lambda _: None  # no remarks about a temporary ledger
        yield dataset


def part_of(epsilon: Fraction, parts: int) -> Fraction:
    """Return ε / parts, rounded down to whole units of a ledger, so that all parts fit."""
    return Fraction(epsilon * EPSILON_PARTS // parts, EPSILON_PARTS)
