"""How CSV files are written, and their first line: the names of columns and what stands between them."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa

from lapwing.errors import BadParameter

SEPARATORS = ",;\t|"
ENCODINGS = ("utf-8", "latin-1", "windows-1252", "utf-16")
_PYTHON = {"utf-8": "utf-8-sig", "windows-1252": "cp1252"}
_LONGEST = 1 << 20
_PART = 1 << 22
NOT_UTF8 = 'not in UTF-8. Say what it is in: csv = { encoding = "latin-1" }, or "windows-1252" or "utf-16"'


@dataclass(frozen=True, slots=True)
class CsvForm:
    """What CSV files do not say themselves.

    delimiter    what separates cells; "" for what the first line has most of: , ; tab or |.
    quote        what stands around cells, and twice within for itself.
    null         what stands for a missing cell, with or without quotes.
    decimal      what stands before decimals: "." or ",".
    date_format  of dates and times, such as "%d.%m.%Y"; "" for ISO form.
    """

    encoding: str = "utf-8"
    delimiter: str = ""
    quote: str = '"'
    null: tuple[str, ...] = ("",)
    decimal: str = "."
    date_format: str = ""

    def __repr__(self) -> str:
        """Digests are made of this: of what is said alone."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = CsvForm()
        words = [f"{name}={value!r}" for name, value in said.items() if value != getattr(plain, name)]
        return f"CsvForm({', '.join(words)})"


DEFAULT_CSV = CsvForm()


def read_header(paths: Sequence[str], form: CsvForm = DEFAULT_CSV) -> tuple[str, list[str]]:
    """What separates columns, and their names, which must be the same in all files. They are in UTF-8."""
    found = {_first_line(path) for path in paths}
    if len(found) != 1:
        raise BadParameter("source", "its CSV files have different first lines, and so different columns")
    line = found.pop()
    if not line.strip():
        raise BadParameter("source", "is a CSV file without a first line of column names")
    separator = form.delimiter or max(SEPARATORS, key=line.count)  # the first, if there is one column only
    names: list[str] = []
    taken: set[str] = set()
    cells = next(csv.reader([line], delimiter=separator, quotechar=form.quote), [])
    for number, written in enumerate(cells, start=1):
        name, again = written.strip() or f"column{number}", 1
        while name.lower() in taken:  # the engine does not tell upper case from lower case
            name, again = f"{written.strip() or f'column{number}'}_{again}", again + 1
        taken.add(name.lower())
        names.append(name)
    return separator, names


def _first_line(path: str) -> str:
    with pa.input_stream(path, compression="detect") as file:
        start: bytes = file.read(_LONGEST)
    try:
        text = start.split(b"\n", 1)[0].removesuffix(b"\r").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadParameter("source", f"has column names that are {NOT_UTF8}") from None
    if "\r" in text:
        text = text.split("\r", 1)[0]
    return text


def recode(path: str, encoding: str, target: Path) -> None:
    """Write a file anew in UTF-8, for its owner only. What is no letter in its encoding is U+FFFD: no byte
    of any row can make this fail."""
    decoder = codecs.getincrementaldecoder(_PYTHON.get(encoding, encoding))(errors="replace")
    with pa.input_stream(path, compression="detect") as file, target.open("xb") as out:
        target.chmod(0o600)
        while part := file.read(_PART):
            out.write(decoder.decode(part).encode())
        out.write(decoder.decode(b"", final=True).encode())


def is_utf8(path: str) -> bool:
    """Tell whether all of a file is. It is read to its end."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with pa.input_stream(path, compression="detect") as file:
            while part := file.read(_PART):
                decoder.decode(part)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def is_utf16(path: str) -> bool:
    """Tell whether a file begins as one in UTF-16 does."""
    with pa.input_stream(path, compression="detect") as file:
        return bytes(file.read(2)) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
