"""A real Chromium, the one that the system has. Nothing is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium; the test is skipped where there is none."""
    place = shutil.which("chromium") or shutil.which("chromium-browser")
    if place is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=place, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
