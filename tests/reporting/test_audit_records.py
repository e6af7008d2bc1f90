"""Audit runs that a report can show, and those that it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lapwing.audit.audit_run import AUDIT_FORMAT
from lapwing.errors import BadParameter
from lapwing.reporting.audit_records import AuditRecord

STAGE: dict[str, Any] = {
    "stage": "exact",
    "claimed": 1.0,
    "measured": "infinite",
    "witness": {},
    "unable": "",
}
RUN: dict[str, Any] = {
    "lapwing": "audit", "format": AUDIT_FORMAT, "passed": False, "verdict": "A violation.", "version": "1",
    "started": "2026-01-31T00:00", "error_probability": 1e-9,
    "cases": [{"name": "a count", "stages": [STAGE]}],
}  # fmt: skip


def test_a_violation_without_bound_is_told(tmp_path: Path) -> None:
    path = tmp_path / "audit\udcff.json"  # a name that is no text
    path.write_text(json.dumps(RUN))
    found = AuditRecord.read(path)
    assert found.rows == (("a count", "exact", "1", "infinite", "VIOLATION"),)
    assert found.file == "audit?.json"


def test_texts_and_numbers_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    for changed in ({"verdict": "\ud800"}, {"error_probability": float("nan")}):
        path.write_text(json.dumps({**RUN, **changed}))
        with pytest.raises(BadParameter, match="is no audit run"):
            AuditRecord.read(path)
