"""The text of a TOML file: its values, the line of every key, and the list of its mistakes."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from lapwing.errors import BadFile

Key = tuple[str, ...]

BYTES_AT_MOST = 1 << 20
MISTAKES_AT_MOST = 100

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")
_TOKEN = re.compile(
    r'''(?P<text>"""(?:\\[\s\S]|[^\\])*?"{3,5}|\'\'\'[\s\S]*?\'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')'''
    r"|(?P<comment>\#[^\n]*)|(?P<end>\n)|(?P<mark>[\[\]{}=,])"
    r"""|(?P<bare>[^\s\[\]{}=,.\#"']+)|(?P<other>.)"""
)
_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)$")
_AT_END = re.compile(r"\s*\(at end of document\)$")


@dataclass(slots=True)
class FileMistakes:
    """Mistakes of a file, collected, so that all are reported at once."""

    file: str
    lines: Mapping[Key, int] = field(default_factory=dict)
    _found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, key: Key, what: str) -> None:
        """Note a mistake at a key, or that a key is missing."""
        self._found.append((self._line(key), f"{dotted(key)}: {what}"))

    def complain(self) -> None:
        """Raise BadFile with all mistakes, in the order of the file. Do nothing if there are none."""
        if not self._found:
            return
        in_order = dict.fromkeys(sorted(self._found, key=lambda mistake: mistake[0]))
        texts = [f"{self.file}:{line}: {what}" for line, what in in_order]
        if len(texts) > MISTAKES_AT_MOST:
            more = len(texts) - MISTAKES_AT_MOST
            texts = [*texts[:MISTAKES_AT_MOST], f"{self.file}: and {more} more mistakes"]
        raise BadFile(texts)

    def _line(self, key: Key) -> int:
        for length in range(len(key), 0, -1):  # a missing key is reported at the line of its table
            if key[:length] in self.lines:
                return self.lines[key[:length]]
        return 1


def toml_value(value: Any) -> str:
    """Return a value as it is written in TOML, on one line: a text, number, date, list or inline table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, date):  # a datetime is one
        return value.isoformat()
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        inside = ", ".join(f"{toml_key(key)} = {toml_value(inner)}" for key, inner in value.items())
        return f"{{ {inside} }}"
    return str(value).lower()  # of decimals, the exponent


def toml_key(key: str) -> str:
    """Return a key as it is written in TOML."""
    return key if _PLAIN_KEY.fullmatch(key) else quoted(key)


def read_toml(path: Path, *, what: str, example: str, draft: str) -> tuple[dict[str, Any], FileMistakes]:
    """Return the values of a TOML file, and the list for its mistakes. Decimals keep all their digits.

    For error messages, `what` the file should be, an `example` of its name, and the command that writes a
    `draft`.
    """
    shown = str(path) if str(path).isprintable() else quoted(str(path))
    text = _text(path, shown, what, example, draft)
    try:
        values = tomllib.loads(text, parse_float=_decimal)
    except RecursionError:
        raise BadFile([f"{shown}: is nested too deeply to be a {what}"]) from None
    except ValueError as error:  # also numbers with thousands of digits
        line, why = _place(str(error), text)
        raise BadFile([f"{shown}:{line}: is not TOML here: {why}. See https://toml.io"]) from None
    scanned = KeyScan().run(text)
    return values, FileMistakes(shown, {**scanned.items, **scanned.lines})


def dotted(key: Key) -> str:
    """Return a key as it may be written in TOML, on one line and not too long."""
    return ".".join([part if _PLAIN_KEY.fullmatch(part) else quoted(part, at_most=80) for part in key])


def quoted(text: str, *, at_most: int | None = None) -> str:
    """Return a text as it is written in TOML: always on one line and within its quotes."""
    if at_most is not None and len(text) > at_most:
        text = text[:at_most] + "…"
    written = json.dumps(text, ensure_ascii=False)
    return "".join([letter if letter.isprintable() else _escaped(letter) for letter in written])


def _escaped(letter: str) -> str:
    number = ord(letter)
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def _text(path: Path, shown: str, what: str, example: str, draft: str) -> str:
    # The functions of os.path never raise, whatever the name holds.
    if os.path.isdir(path):
        raise BadFile([f"{shown}: is a folder. Name the {what} file in it, such as {example}"])
    if not os.path.exists(path):
        raise BadFile([f"{shown}: there is no such file. `{draft}` drafts one"])
    if not os.path.isfile(path):  # reading a pipe would wait for ever
        raise BadFile([f"{shown}: is not a file"])
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_AT_MOST + 1)
    except OSError as error:
        raise BadFile([f"{shown}: cannot be read ({error.strerror})"]) from None
    if len(raw) > BYTES_AT_MOST:
        raise BadFile([f"{shown}: is larger than 1 MiB. A {what} holds declarations, not data"])
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadFile([f"{shown}:{line}: is not UTF-8 here. Save the file as UTF-8"]) from None


def _place(message: str, text: str) -> tuple[int, str]:
    if match := _LINE.search(message):
        return int(match[1]), message[: match.start()]
    what = _AT_END.sub("", message).split(":")[0]
    return text.count("\n", 0, len(text.rstrip())) + 1, what


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:  # an exponent beyond all that Decimal can hold
        return Decimal("inf")


_Path = tuple[str | int, ...]  # a key with the numbers, from 1, of the list items on its path


@dataclass(slots=True)
class _Opened:
    """An open bracket of a value, its key, and the number of the current item."""

    mark: str
    at: _Path
    item: int = 1


class KeyScan:
    """Walks over the tokens of valid TOML. It needs to know where values end, not what they are.

    `lines` has the line of each key's first occurrence; of a table, its heading. `items` has the lines of
    keys in lists of tables, with the number of each table: `name` in the third `[[questions]]` is
    ("questions", "3", "name").
    """

    def __init__(self) -> None:
        self.lines: dict[Key, int] = {}
        self.items: dict[Key, int] = {}
        self.headings: set[Key] = set()
        self.counts: dict[_Path, int] = {}  # of lists of tables
        self.line = 1
        self.table: _Path = ()  # the heading that we are under
        self.at: _Path = ()  # the key whose value is being read
        self.opened: list[_Opened] = []
        self.parts: list[str] = []  # of the key that is being read
        self.in_key = True
        self.in_heading = 0  # how many [ it began with, until the first ] is seen

    def run(self, text: str) -> KeyScan:
        """Read a text."""
        for token in _TOKEN.finditer(text):
            match token.lastgroup:
                case "end":
                    self._end_line()
                case "mark":
                    self._mark(token[0])
                case "text" | "bare" if self.in_key:
                    self.parts.append(_named(token[0]))
                case "text":
                    self.line += token[0].count("\n")
                case _:
                    pass
        return self

    def _end_line(self) -> None:
        self.line += 1
        if not self.opened:
            self._expect_key()

    def _expect_key(self) -> None:
        self.in_key, self.parts = True, []

    def _mark(self, mark: str) -> None:
        if mark == "=":
            above = self.opened[-1].at if self.opened else self.table
            self.at, self.in_key = (*above, *self.parts), False
            self._note(self.at)
        elif self.in_key and not self.opened:
            self._heading(mark)
        elif mark in "[{":
            self._open(mark)
        elif mark in "]}":
            self.in_key = False
            self.opened.pop()
        elif self.opened[-1].mark == "{":
            self._expect_key()
        else:
            self.opened[-1].item += 1

    def _open(self, mark: str) -> None:
        in_list = bool(self.opened) and self.opened[-1].mark == "["
        at = (*self.opened[-1].at, self.opened[-1].item) if in_list else self.at
        self.opened.append(_Opened(mark, at))
        if mark == "{":
            if in_list:
                self.items.setdefault(tuple(map(str, at)), self.line)
            self._expect_key()

    def _heading(self, mark: str) -> None:
        if mark == "[":
            self.in_heading += 1
        elif self.in_heading:  # `]`; the second one of `]]` finds it done
            self.table = self._headed(self.parts, is_item=self.in_heading > 1)
            self.in_heading = 0
            plain, numbered = self._note(self.table)
            if plain not in self.headings:  # it may have been implied by a longer one before
                self.headings.add(plain)
                self.lines[plain] = self.line
            if numbered != plain:
                self.items[numbered] = self.line

    def _headed(self, parts: list[str], *, is_item: bool) -> _Path:
        """Return the table of a heading: in the newest item of every list of tables on its path."""
        at: _Path = ()
        for k, part in enumerate(parts, 1):
            at += (part,)
            if is_item and k == len(parts):
                self.counts[at] = self.counts.get(at, 0) + 1
            if number := self.counts.get(at):
                at += (number,)
        return at

    def _note(self, at: _Path) -> tuple[Key, Key]:
        """Note the line of a key, and return the key without and with the numbers of list items."""
        plain, numbered = tuple(part for part in at if isinstance(part, str)), tuple(map(str, at))
        for length in range(1, len(plain) + 1):
            self.lines.setdefault(plain[:length], self.line)
        if numbered != plain:
            self.items.setdefault(numbered, self.line)
        return plain, numbered


def _named(token: str) -> str:
    return str(tomllib.loads(f"key = {token}")["key"]) if token[0] in "\"'" else token
