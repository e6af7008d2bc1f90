"""A server with the routes of people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.served import Door, write_data
from support.server_people import Site, cheapen, opened_site, settings_in


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    cheapen(monkeypatch)
    with opened_site(settings_in(tmp_path)) as opened:
        yield opened


@pytest.fixture
def tls_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The same as browsers see it by https."""
    cheapen(monkeypatch)
    with opened_site(settings_in(tmp_path, has_tls=True)) as opened:
        yield opened


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    """The application of a server with one data set, and nothing asked yet."""
    write_data(tmp_path)
    opened = Door(tmp_path)
    yield opened
    opened.close()
