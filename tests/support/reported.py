"""A policy that was asked three questions and raised once, made once for all tests that only read it."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import lapwing
from lapwing.examples.visits import write_visits
from lapwing.ledger import CuratorKey, Ledger

DAY = "2026-01-31"
ANALYSTS = ("Quirina", "Xaverius")
ASKED = (
    (0, "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", "0.3"),
    (1, "SELECT AVG(stay) AS s FROM visits", "0.2"),
    (0, "SELECT diagnosis, COUNT(*) AS n FROM visits GROUP BY diagnosis", "0.25"),
)
FIRST_RECEIPT = 5
_PLACE = TemporaryDirectory(prefix="lapwing-reported-")  # removed when the tests end


@cache
def asked_visits() -> Path:
    """The folder of `visits.toml` after its questions. Nobody may change it."""
    folder = Path(_PLACE.name)
    with patch.dict(os.environ, {"LAPWING_STATE": str(folder / "state")}):
        write_visits(folder)
        for analyst, sql, epsilon in ASKED:
            with lapwing.open(folder / "visits.toml", analyst=ANALYSTS[analyst]) as data:
                data.plan(sql, epsilon=epsilon).release()
        with Ledger.open(folder / "lapwing.ledger") as ledger:
            curator = CuratorKey.load(folder / "lapwing.ledger.curator")
            ledger.raise_budget("visits", epsilon="1", delta="1e-7", curator=curator)
    return folder


DATA = ("visits.toml", "visits.parquet", "patients.parquet", "wards.csv")
LEDGER = tuple(f"lapwing.ledger{end}" for end in ("", ".keys", ".anchor", ".curator"))


def copied_policy(to: Path, files: tuple[str, ...] = (*DATA, *LEDGER)) -> Path:
    """Return a copy of the policy that a test may change, with its data and ledger."""
    for name in files:
        shutil.copy(asked_visits() / name, to / name)
    shutil.copytree(asked_visits() / "state", os.environ["LAPWING_STATE"], dirs_exist_ok=True)
    return to / "visits.toml"
