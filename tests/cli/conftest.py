"""The command line for tests."""

from __future__ import annotations

import pytest

from support.shell import Shell


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Runs commands in this process."""
    return Shell(capsys)
