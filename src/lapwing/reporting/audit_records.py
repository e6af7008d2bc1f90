"""Audit runs in a report: the JSON that `lapwing audit … --json` prints."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lapwing.audit.audit_run import AUDIT_FORMAT
from lapwing.errors import BadParameter

LARGEST_AUDIT = 1 << 26
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "passed": bool, "verdict": str, "started": str, "version": str, "cases": list,
}  # fmt: skip
_ERROR = {1: "error", AUDIT_FORMAT: "error_probability"}  # the field of the error, by format


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One audit run, as a report tells it."""

    file: str
    started: str
    version: str
    passed: bool
    verdict: str
    rows: tuple[tuple[str, ...], ...]  # claim, stage, claimed ε, found ε, result

    @classmethod
    def read(cls, path: Path) -> AuditRecord:
        """Read the JSON of an audit run. Raises BadParameter if the file is none."""
        wrong = BadParameter(
            "audit",
            f"{path} is no audit run of format {AUDIT_FORMAT}. Make one: lapwing audit … --json > "
            f"{path.name}",
        )
        if not path.is_file():
            raise BadParameter("audit", f"there is no file {path}")
        if path.stat().st_size > LARGEST_AUDIT:
            raise wrong
        try:
            found = json.loads(path.read_bytes())
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode()  # every text can be shown
            if found["lapwing"] != "audit":
                raise wrong
            fields = {**_FIELDS, _ERROR[found["format"]]: (int, float)}
            if any(not isinstance(found[name], kind) for name, kind in fields.items()):
                raise wrong
            rows = tuple(row for case in found["cases"] for row in _rows(case))
        except (ValueError, LookupError, TypeError, RecursionError):
            raise wrong from None
        name = path.name.encode("utf-8", "replace").decode()  # without letters that no text file can hold
        return cls(name, found["started"], found["version"], found["passed"], found["verdict"], rows)


def _rows(case: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    for stage in case["stages"]:
        result = "no violation found"
        if stage["witness"] is not None:
            result = "VIOLATION"
        elif stage["unable"]:
            result = "could not run"
        claimed, measured = _number(stage["claimed"]), _number(stage["measured"])
        yield str(case["name"]), str(stage["stage"]), claimed, measured, result


def _number(value: float | str | None) -> str:
    """Return a number as a table shows it. An infinite one is a text in an audit run."""
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"
