"""Audit runs in a report: the JSON that `lapwing audit … --json` prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lapwing.audit.audit_run import AUDIT_FORMAT, PASSED, audit_failure
from lapwing.audit.signed_audit import is_signed_by
from lapwing.errors import BadParameter

LARGEST_AUDIT = 1 << 26
_ROUNDED = 1 + 1e-9  # the numbers of a run are rounded
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "passed": bool, "started": str, "version": str, "cases": list, "self_check": list, "uncovered": list,
}  # fmt: skip
_ERROR = {1: "error", AUDIT_FORMAT: "error_probability"}  # the field of the error, by format


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One audit run, as a report tells it. The verdict follows from its rows, never from its own words."""

    file: str
    digest: str  # SHA-256 of the file
    started: str
    version: str
    failure: str  # why it did not pass; empty if it passed
    rows: tuple[tuple[str, ...], ...]  # claim, stage, claimed ε, found ε, result
    is_signed: bool

    @classmethod
    def read(cls, path: Path, key: bytes | None) -> AuditRecord:
        """Read the JSON of an audit run.

        Args:
            path: The file.
            key: The public key of the ledger that signs the report; None for a report that nobody signs.

        Returns:
            The run.

        Raises:
            BadParameter: If the file is no audit run, or if the ledger's key did not sign it.
        """
        wrong = BadParameter(
            "audit",
            f"{path} is no audit run of format {AUDIT_FORMAT}. Make one: lapwing audit … --json --sign … > "
            f"{path.name}",
        )
        if not path.is_file():
            raise BadParameter("audit", f"there is no file {path}")
        if path.stat().st_size > LARGEST_AUDIT:
            raise wrong
        content = path.read_bytes()
        try:
            report = json.loads(content)
            json.dumps(report, ensure_ascii=False, allow_nan=False).encode()  # every text can be shown
            if report["lapwing"] != "audit":
                raise wrong
            fields = {**_FIELDS, _ERROR[report["format"]]: (int, float)}
            if any(not isinstance(report[name], kind) for name, kind in fields.items()):
                raise wrong
            rows = tuple(row for case in report["cases"] for row in _rows(case))
            failure = _failure(report)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise wrong from None
        is_signed = key is not None and is_signed_by(report, key)
        if key is not None and not is_signed:
            raise BadParameter(
                "audit",
                f"{path} is not signed by the key of this report's ledger, or was edited. Run the audit "
                "again, with --json --sign and the file that this report is about",
            )
        name = path.name.encode("utf-8", "replace").decode()  # without letters that no text file can hold
        return cls(
            name,
            sha256(content).hexdigest(),
            report["started"],
            report["version"],
            failure,
            rows,
            is_signed,
        )

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        return self.failure or PASSED


def _failure(report: Mapping[str, Any]) -> str:
    """Return why a run did not pass, from its rows; nothing if it passed."""
    cases = report["cases"]
    broken = [case for case in cases if any(map(_is_broken, case["stages"]))]
    unable = [
        case
        for case in cases
        if case not in broken and (not case["stages"] or any(stage["unable"] for stage in case["stages"]))
    ]
    why = audit_failure(
        {str(bug["name"]): bug["caught"] is True for bug in report["self_check"]},
        [str(case["name"]) for case in broken],
        [str(case["name"]) for case in unable],
        [str(what) for what in report["uncovered"]],
    )
    if not why and not cases:
        return "Not passed: the run has no claims."
    return why if why or report["passed"] else "Not passed, by the run's own account."


def _is_broken(stage: Mapping[str, Any]) -> bool:
    """Return whether a stage found a violation, by its witness or by its numbers: a run may be edited."""
    measured = math.inf if stage["measured"] == "infinite" else float(stage["measured"] or 0)
    return stage["witness"] is not None or measured > float(stage["claimed"]) * _ROUNDED


def _rows(case: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    for stage in case["stages"]:
        result = "no violation found"
        if _is_broken(stage):
            result = "VIOLATION"
        elif stage["unable"]:
            result = "could not run"
        claimed, measured = _number(stage["claimed"]), _number(stage["measured"])
        yield str(case["name"]), str(stage["stage"]), claimed, measured, result


def _number(value: float | str | None) -> str:
    """Return a number as a table shows it. An infinite one is a text in an audit run."""
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"
