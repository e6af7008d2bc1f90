"""The data services of a small data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.served import Served, served, write_data


@pytest.fixture
def visits(tmp_path: Path) -> Iterator[Served]:
    """One data set, and nothing asked yet."""
    write_data(tmp_path)
    with served(tmp_path) as found:
        yield found
