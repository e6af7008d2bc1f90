"""Bundles of the example town, made once for all tests that only read or copy them."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from lapwing.examples.town import TOWN_CENSUS, TOWN_ROWS, write_town
from lapwing.publish import Publication

# A process that kills itself after its n-th charged step, before the result is written. Then the command.
KILLED_RELEASE = """
import os, signal, sys
from lapwing.cli.main import run
from lapwing.ledger.gate import Work

real, count = Work.step, [0]
def step(work, loss=None):
    real(work, loss)
    count[0] += 1
    if count[0] == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
Work.step = step
run(sys.argv[2:])
"""
# A policy of visits, for releases of tests.
VISITS = """dataset.name = "visits"
budget = { epsilon = 5, delta = 1e-6 }
[tables.visits]
source = "visits.parquet"
unit = "person"
rows_per_unit = 2
columns.ward = { values = ["a", "b", "c"] }
columns.stay = { low = 0, high = 30 }
columns.urgent = { type = "bool" }
columns.note = { type = "text" }
"""
BUNDLES = {"rows": TOWN_ROWS, "census": TOWN_CENSUS}
_PLACE = TemporaryDirectory(prefix="lapwing-town-")  # removed when the tests end


@cache
def town() -> Path:
    """A folder with the example, its ledger, and the bundles `rows` and `census`."""
    folder = Path(_PLACE.name)
    with patch.dict(os.environ, {"LAPWING_STATE": str(folder / "state")}):
        write_town(folder)
        for name, file in BUNDLES.items():
            with Publication.open(folder / file) as release:
                release.dataset.curator.notify = lambda _: None
                release.run(folder / name)
    return folder


def copied_bundle(name: str, to: Path) -> Path:
    """Return a copy of a bundle that a test may change."""
    return Path(shutil.copytree(town() / name, to / name))
