"""CSV files: how they are written, their header, and their encoding."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Sequence
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
    """The form of CSV files, as far as the files do not say it themselves.

    delimiter    separates cells; "" for the most frequent one of the first line: , ; tab or |.
    quote        encloses cells, and is doubled within them.
    null         texts that stand for a missing cell, with or without quotes.
    decimal      the decimal mark: "." or ",".
    date_format  of dates and times, such as "%d.%m.%Y"; "" for ISO form.
    """

    encoding: str = "utf-8"
    delimiter: str = ""
    quote: str = '"'
    null: tuple[str, ...] = ("",)
    decimal: str = "."
    date_format: str = ""

    def __repr__(self) -> str:
        """Return only the settings that differ from the default. Digests are made of this."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = CsvForm()
        words = [f"{name}={value!r}" for name, value in said.items() if value != getattr(plain, name)]
        return f"CsvForm({', '.join(words)})"


DEFAULT_CSV = CsvForm()


def read_header(paths: Sequence[str], form: CsvForm = DEFAULT_CSV) -> tuple[str, list[str]]:
    """Return the delimiter and the column names, which must be the same in all files.

    The files are in UTF-8.
    """
    first_lines = {_first_line(path) for path in paths}
    if len(first_lines) != 1:
        raise BadParameter("source", "its CSV files have different first lines, and so different columns")
    line = first_lines.pop()
    if not line.strip():
        raise BadParameter("source", "is a CSV file without a first line of column names")
    separator = form.delimiter or max(SEPARATORS, key=line.count)  # a comma, if there is only one column
    names: list[str] = []
    taken: set[str] = set()
    cells = next(csv.reader([line], delimiter=separator, quotechar=form.quote), [])
    for number, written in enumerate(cells, start=1):
        name, again = written.strip() or f"column{number}", 1
        while name.lower() in taken:  # the engine ignores case
            name, again = f"{written.strip() or f'column{number}'}_{again}", again + 1
        taken.add(name.lower())
        names.append(name)
    return separator, names


def _first_line(path: str) -> str:
    start = next(_parts(path, _LONGEST), b"")
    try:
        text = start.split(b"\n", 1)[0].removesuffix(b"\r").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadParameter("source", f"has column names that are {NOT_UTF8}") from None
    return text.split("\r", 1)[0]


def _parts(path: str, size: int = _PART) -> Iterator[bytes]:
    """Yield the content of a file, which may be compressed."""
    with pa.input_stream(path, compression="detect") as file:
        while part := file.read(size):
            yield part


def recode(path: str, encoding: str, target: Path) -> None:
    """Write a copy of a file in UTF-8, readable by its owner only.

    Bytes that are no letter in the encoding become U+FFFD: no byte of any row can make this fail.
    """
    decoder = codecs.getincrementaldecoder(_PYTHON.get(encoding, encoding))(errors="replace")
    with target.open("xb") as out:
        target.chmod(0o600)
        for part in _parts(path):
            out.write(decoder.decode(part).encode())
        out.write(decoder.decode(b"", final=True).encode())


def is_utf8(path: str) -> bool:
    """Return whether a whole file is in UTF-8. It is read to its end."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for part in _parts(path):
            decoder.decode(part)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def is_utf16(path: str) -> bool:
    """Return whether a file begins like one in UTF-16."""
    return next(_parts(path, 2), b"") in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
