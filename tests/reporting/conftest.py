"""The report of a policy that was asked a few questions, made once for all tests that only read it."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest

from lapwing.reporting.writing import MadeReport, make_report
from support.reported import DAY, FIRST_RECEIPT, asked_visits


@pytest.fixture(scope="session")
def made() -> MadeReport:
    """The report, with a picture."""
    with patch.dict(os.environ, {"LAPWING_STATE": str(asked_visits() / "state")}):
        return make_report(asked_visits() / "visits.toml", date=DAY, since=FIRST_RECEIPT, draw=True)
