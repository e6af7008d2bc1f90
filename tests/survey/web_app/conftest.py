"""Servers are real: a process of their own, asked over a socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.collecting import Shelf
from support.survey_server import Process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One server for all tests of a file that leave it as it is."""
    folder = tmp_path_factory.mktemp("server")
    process = Process(folder, str(folder / "survey.reports")).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def shelf(server: Process) -> Iterator[Shelf]:
    """The server's own reports, opened beside it."""
    place = Shelf(server.where)
    yield place
    place.close()
