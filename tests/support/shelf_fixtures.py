"""Stores of reports are tested on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.collecting import Shelf
from support.ledgers import POSTGRES, SQLITE


@pytest.fixture(params=[SQLITE, POSTGRES])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    """A place for one survey's reports, on each database."""
    place = Shelf.of(request.param, tmp_path)
    yield place
    place.close()


@pytest.fixture
def file_shelf(tmp_path: Path) -> Iterator[Shelf]:
    """A place for one survey's reports in an SQLite file."""
    place = Shelf.of(SQLITE, tmp_path)
    yield place
    place.close()
