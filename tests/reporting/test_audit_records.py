"""Audit runs that a report can show, and those that it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lapwing.audit.audit_run import AUDIT_FORMAT, PASSED
from lapwing.audit.signed_audit import signed_run
from lapwing.errors import BadParameter
from lapwing.ledger.keys import SigningKey
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
    "started": "2026-01-31T00:00", "error_probability": 1e-9, "uncovered": [],
    "cases": [{"name": "a count", "stages": [STAGE]}], "self_check": [{"name": "a bug", "caught": True}],
}  # fmt: skip
GOOD_STAGE = {**STAGE, "measured": 0.9, "witness": None}
GOOD: dict[str, Any] = {**RUN, "passed": True, "cases": [{"name": "a count", "stages": [GOOD_STAGE]}]}
KEY = SigningKey(bytes(range(32)))


def read(path: Path, run: dict[str, Any], key: bytes | None = None) -> AuditRecord:
    path.write_text(json.dumps(run))
    return AuditRecord.read(path, key)


def test_a_violation_without_bound_is_told(tmp_path: Path) -> None:
    found = read(tmp_path / "audit\udcff.json", RUN)  # a name that is no text
    assert found.rows == (("a count", "exact", "1", "infinite", "VIOLATION"),)
    assert found.file == "audit?.json"
    assert found.failure == "Violation found: a count."


def test_texts_and_numbers_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    for changed in ({"verdict": "\ud800"}, {"error_probability": float("nan")}):
        with pytest.raises(BadParameter, match="is no audit run"):
            read(tmp_path / "audit.json", {**RUN, **changed})


def test_the_verdict_follows_from_the_rows_and_never_from_the_words(tmp_path: Path) -> None:
    """Failure case C19."""
    path = tmp_path / "audit.json"
    praised = {"passed": True, "verdict": "Proven private by NIST."}
    assert read(path, {**GOOD, **praised}).verdict == PASSED
    for changed, why in (
        ({"cases": RUN["cases"]}, "Violation found: a count."),
        ({"cases": [{"name": "a", "stages": [{**GOOD_STAGE, "unable": "no time"}]}]}, "could not run (a)"),
        ({"cases": [{"name": "a", "stages": []}]}, "could not run (a)"),
        ({"cases": [{"name": "a", "stages": [{**GOOD_STAGE, "measured": 7.5}]}]}, "Violation found: a."),
        ({"cases": []}, "no claims"),
        ({"self_check": []}, "no planted bugs"),
        ({"self_check": [{"name": "a bug", "caught": "yes"}]}, "did not catch a bug"),
        ({"uncovered": ["a mechanism has no case"]}, "a mechanism has no case"),
        ({"passed": False}, "by the run's own account"),
    ):
        found = read(path, {**GOOD, **praised, **changed})
        assert why in found.failure
        assert "NIST" not in found.verdict


def test_a_run_that_the_ledgers_key_did_not_sign_is_refused(tmp_path: Path) -> None:
    """Failure case C19."""
    path = tmp_path / "audit.json"
    signed = signed_run(GOOD, KEY)
    assert read(path, signed, KEY.public).is_signed
    assert read(path, dict(reversed(signed.items())), KEY.public).is_signed  # whatever its layout is
    other = SigningKey(bytes(32))
    for run in (
        GOOD,
        {**signed, "verdict": "Proven private by NIST."},
        {**signed, "cases": []},
        {**signed, "note": "more"},
        {**signed, "signature": signed["signature"][:-2] + "00"},
        {**signed, "signature": 7},
        signed_run(GOOD, other),
        {**signed_run(GOOD, other), "key": KEY.public.hex()},
    ):
        with pytest.raises(BadParameter, match="is not signed by the key"):
            read(path, run, KEY.public)
    assert not read(path, GOOD, None).is_signed  # in a report that nobody signs
