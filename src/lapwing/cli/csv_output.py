"""CSV on standard output: plain numbers, and no text that a terminal or a spreadsheet would run."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

from typer import Option

from lapwing.cli.console import AsJson, printable
from lapwing.errors import BadParameter

_FORMULAS = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four are full-width forms


@dataclass(frozen=True, slots=True)
class OutputForm:
    """The options for output that programs read: none, or one of them."""

    as_json: AsJson = False
    as_csv: Annotated[bool, Option("--csv", help="Print CSV.")] = False

    def __post_init__(self) -> None:
        if self.as_json and self.as_csv:
            raise BadParameter("csv", "or --json: ask for one of them")

    @property
    def is_for_programs(self) -> bool:
        """Whether a program reads the output, and not a person."""
        return self.as_json or self.as_csv


class CsvWriter:
    """Writes rows as they come, after one line of names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._csv = csv.writer(sys.stdout, lineterminator="\n")
        self.write(list(names))

    def write(self, values: Sequence[Any]) -> None:
        """Write one row."""
        self._csv.writerow([csv_cell(value) for value in values])


def csv_cell(value: Any) -> str | int | float:
    """Return a cell. A missing value and an infinite end of an interval are empty.

    Numbers have no separators of thousands. A text that a spreadsheet would take for a formula begins with
    an apostrophe.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        value = "; ".join(map(str, value))
    text = printable(value.isoformat() if isinstance(value, date) else str(value))
    # Some spreadsheets leave out spaces before they look for a formula; a tab has become a space.
    return f"'{text}" if text.lstrip().startswith(_FORMULAS) else text
