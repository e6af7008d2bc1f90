"""Servers are real: a process of their own, asked over a socket. So is the browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from support.browser import Visit, chromium, scripts_page, visiting
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


_OPEN = ExitStack()


@cache
def _chromium() -> Browser:
    return _OPEN.enter_context(chromium())


@pytest.fixture
def browser() -> Browser:
    """One for all files of this folder: to start it takes longer than most of their tests."""
    return _chromium()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the browser after the last test of this folder: elsewhere its loop would be in the way."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _OPEN.close()
        _chromium.cache_clear()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Makes visitors, of whom each has a memory of its own."""
    with visiting(browser) as new:
        yield new


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """An empty page beside the page's scripts."""
    found = scripts_page(_chromium())
    yield found
    found.close()
