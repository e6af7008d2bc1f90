"""Policies in code: what a policy file says, said in Python.

Claim    a policy in code and the file that `save` writes are one thing: they make the same checked policy,
         with the same digests, and a mistake is the same in both.
Because  both are the same values, checked by the same models. In code, a mistake names the argument.
Test     tests/sql/policy/test_policy_in_code.py

Claim    what a policy says is fixed when it is made.
Because  values are copied then. Rows of data frames are copied into a file when the policy is opened.
Test     tests/sql/policy/test_policy_in_code.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Self

from lapwing.config.toml_text import BYTES_AT_MOST, FileMistakes, Key, quoted, toml_key, toml_value
from lapwing.config.values import POSTGRES_SCHEMES, is_postgres
from lapwing.core.exact import WRITE_A_NUMBER, Number
from lapwing.errors import BadParameter
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.policy.policy_file import checked_policy, read_policy
from lapwing.sql.policy.source_location import FRAME, moved_source
from lapwing.storage.private_file import replaced_private_file

Values = dict[str, Any]
BUDGET = ("epsilon", "delta", "delta_per_query", "least_epsilon")
DATASET = ("name", "protects", "population", "ids", "share_answers")
SECTIONS = ("blocks", "ledger", "analysts", "engine", "parties")
PLACES = ("url", "keys", "anchor", "registry")  # of a ledger
MOMENT_AT_MOST = 40  # letters of a date with a time
SHOWN = 12  # values or columns of a table in a notebook
STEM_AT_MOST = 50  # of up to four bytes each
_WHOLE = re.compile(r"[-+]?[0-9]{1,60}")
_DECIMAL = re.compile(r"[-+]?([0-9]{1,60}\.?[0-9]{0,60}|\.[0-9]{1,60})([eE][-+]?[0-9]{1,9})?")


def between(
    low: Number | date | str,
    high: Number | date | str,
    *,
    step: Number | str | None = None,
    missing: Number | date | str | None = None,
    source: str | None = None,
) -> Values:
    """Return the declaration of a column of numbers, dates or times between two bounds.

    Values beyond the bounds are clamped to them. Bounds are public: write what you know, not what the data
    say.

    Args:
        low: The least value: a number, a date or a time. Texts such as "0.5" and "2026-01-31" are read.
        high: The greatest value.
        step: How fine the values are. Whole numbers need none. For times, "second", "minute" or "hour".
        missing: The value that missing values count as. None: they stay NULL.
        source: The column's name in the source, if that is another one.

    Returns:
        What a policy file says of the column.

    Example:
        >>> lapwing.between(0, 500, step="0.01")
        {'low': 0, 'high': 500, 'step': Decimal('0.01')}
        >>> lapwing.between("2026-01-01", "2026-12-31")["low"]
        datetime.date(2026, 1, 1)
    """
    bounds = {"low": low, "high": high, "step": step, "missing": missing}
    given = {name: _read_bound(bound) for name, bound in bounds.items() if bound is not None}
    return given if source is None else {**given, "source": source}


def _read_bound(bound: Any) -> Any:
    """Return the number, date or time that a text shows. Other values stay as they are."""
    value = _read_number(bound)
    if not isinstance(value, str) or len(value) > MOMENT_AT_MOST:
        return value
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            return read(value)
        except ValueError:
            pass
    return value


def _read_number(value: Any) -> Any:
    if isinstance(value, float):
        return Decimal(repr(float(value)))
    if not isinstance(value, str):
        return value
    if _WHOLE.fullmatch(value):
        return int(value)
    return Decimal(value) if _DECIMAL.fullmatch(value) else value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table:
    """A table of a policy: where its rows are, whose they are, and what is public about its columns.

    Args:
        name: The table's name in SQL.
        source: A data frame of pandas or Polars, an Arrow table, or what a policy file takes: the path of
            files, a URL, `spark:table`. "frame" stands for rows that `lapwing.open` gets in `tables`.
        unit: The column that says which person a row belongs to, or a mapping as in a policy file.
        rows_per_unit: How many rows of one person may count. The others are left out.
        columns: For each column its declared values as a list, `lapwing.between(low, high)`, "text",
            "bool", or a mapping with the words of a policy file, such as {"hidden": True}.
        public: Whether the rows belong to nobody. Such a table has neither `unit` nor `rows_per_unit`.
        primary_key: The column, or the columns, that tell rows apart.
        rows: The public number of rows.
        csv: The properties of CSV files, as a mapping with the words of a policy file.

    Example:
        >>> visits = lapwing.Table(
        ...     "visits",
        ...     "visits.parquet",
        ...     unit="patient_id",
        ...     rows_per_unit=5,
        ...     columns={"ward": ["surgery", "maternity"], "stay": lapwing.between(0, 60), "note": "text"},
        ... )
        >>> beds = lapwing.Table("beds", "beds.csv", public=True)
    """

    name: str
    source: Any
    _: KW_ONLY
    unit: str | Mapping[str, str] | None = None
    rows_per_unit: int | None = None
    columns: Mapping[str, Any] | None = None
    public: bool | None = None
    primary_key: str | Sequence[str] | None = None
    rows: int | None = None
    csv: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        source = self.source if not self.has_rows else f"<{type(self.source).__name__}>"
        given = {name: value for name in _WORDS if (value := getattr(self, name)) is not None}
        given.pop("source", None)
        words = [f"{name}={_shown(value)}" for name, value in given.items()]
        return f"Table({', '.join([repr(self.name), _shown_source(str(source)), *words])})"

    @property
    def has_rows(self) -> bool:
        """True if the rows are in memory."""
        return not isinstance(self.source, str | os.PathLike)

    def words(self) -> Values:
        """Return what a policy file says of the table."""
        said = {name: value for name in _WORDS if (value := getattr(self, name)) is not None}
        said["source"] = FRAME if self.has_rows else self.source
        if isinstance(self.columns, Mapping):
            said["columns"] = {name: _column_words(column) for name, column in self.columns.items()}
        return said


_WORDS = tuple(field.name for field in fields(Table) if field.name != "name")


def _shown(value: Any) -> str:
    """Return a declared value in short: the first of many, and how many there are."""
    if isinstance(value, Mapping):
        parts, ends = [f"{key!r}: {_shown(one)}" for key, one in islice(value.items(), SHOWN)], "{}"
    elif isinstance(value, list | tuple):
        parts, ends = [_shown(one) for one in value[:SHOWN]], "[]"
    else:
        return str(value) if isinstance(value, Decimal | Fraction | date) else repr(value)
    more = [f"… {len(value):,} in all"] if len(value) > SHOWN else []
    return f"{ends[0]}{', '.join([*parts, *more])}{ends[1]}"


def _shown_source(source: str) -> str:
    """Return where rows are, without what a URL may hold of passwords."""
    scheme, mark, rest = source.partition("://")
    if not mark:
        return source if source.startswith("<") else repr(source)
    place, hash_, table = rest.rpartition("@")[2].partition("#")
    return repr(f"{scheme}://{place.partition('?')[0]}{hash_}{table}")


def _column_words(column: Any) -> Any:
    if isinstance(column, str):
        return {"type": column}
    return {"values": column} if isinstance(column, list | tuple) else column


class ArgumentMistakes(FileMistakes):
    """Mistakes of a policy in code: each names the argument."""

    def complain(self) -> None:
        """Raise BadParameter with all mistakes. Do nothing if there are none."""
        if not self._found:
            return
        texts = list(dict.fromkeys(what for _, what in self._found))
        name, _, why = texts[0].partition(": ")
        raise BadParameter(name, "\n".join([why, *texts[1:]]))

    def add(self, key: Key, what: str) -> None:
        """Note a mistake at an argument, or that it is missing."""
        self._found.append((1, f"{argument(key)}: {what}"))


def argument(key: Key) -> str:
    """Return how the place of a policy file is written in code: tables["orders"].columns["amount"].step."""
    first, rest = key[0], key[1:]
    if first in ("dataset", "budget") and rest:
        first, rest = rest[0], rest[1:]
    attributes = (1, 3) if first == "tables" else ()  # the words of a table, and of its columns
    has_columns = rest[1:2] == ("columns",)
    written = [
        f".{part}"
        if place in attributes and (place == 1 or has_columns)
        else f"[{quoted(part, at_most=80)}]"
        for place, part in enumerate(rest)
    ]
    return first + "".join(written)


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Policy:
    """A policy in code: it says what a policy file says, by the same words and with the same defaults.

    It is checked when it is made, and fixed from then on. `print(policy)` shows it as a file. Paths begin
    at the working folder of that moment. Its ledger is there as well, unless `ledger` or `lapwing.open`
    names another place.

    Args:
        name: The name of the data in the ledger.
        epsilon: The lifetime budget in ε.
        delta: The lifetime budget in δ.
        tables: The tables.
        protects: "person", "row" or "person-period". None: "person".
        population: The account, if data sets about the same people share one.
        ids: "exact", or "folded" if ids that differ only in case and outer spaces are equal.
        share_answers: Whether an answer that one analyst paid for is given to all.
        delta_per_query: The δ of a question that needs one and does not name it.
        least_epsilon: The least ε of a question.
        blocks: The blocks, such as {"by": "unit", "cohorts": 64}.
        ledger: The place of the ledger, or a mapping with url, keys, anchor and registry.
        analysts: The quota of each analyst, such as {"ann": {"epsilon": 1, "delta": 0}}.
        engine: Limits of the engine, such as {"timeout": 60}.
        parties: Such as {"least_coalition": 2}.

    Raises:
        BadParameter: If something is wrong. All mistakes are listed, each with its argument.

    Example:
        >>> stay = lapwing.between(0, 60)
        >>> visits = lapwing.Table(
        ...     "visits", "visits.parquet", unit="patient_id", rows_per_unit=5, columns={"stay": stay}
        ... )
        >>> policy = lapwing.Policy("stays", epsilon=3, delta=1e-7, tables=[visits])
        >>> policy
        <Policy stays, with visits>
        >>> print(policy.save("stays.toml").read_text())
        [dataset]
        name = "stays"
        ...
    """

    path: Path
    has_file: bool
    frames: Mapping[str, Any]
    _values: Values

    def __init__(
        self,
        name: str,
        *,
        epsilon: Number,
        delta: Number,
        tables: Sequence[Table],
        protects: str | None = None,
        population: str | None = None,
        ids: str | None = None,
        share_answers: bool | None = None,
        delta_per_query: Number | None = None,
        least_epsilon: Number | None = None,
        blocks: Mapping[str, Any] | None = None,
        ledger: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        analysts: Mapping[str, Mapping[str, Number]] | None = None,
        engine: Mapping[str, Any] | None = None,
        parties: Mapping[str, Any] | None = None,
    ) -> None:
        where = {"url": ledger} if isinstance(ledger, str | os.PathLike) else ledger
        budget = (epsilon, delta, delta_per_query, least_epsilon)
        dataset = (name, protects, population, ids, share_answers)
        sections = (blocks, where, analysts, engine, parties)
        mistakes = ArgumentMistakes("policy")
        numbers = {word: _read_number(value) for word, value in zip(BUDGET, budget, strict=True)}
        for word, value in numbers.items():
            if isinstance(value, str):
                mistakes.add(("budget", word), f"is not a number. {WRITE_A_NUMBER}")
        given = {
            "dataset": dict(zip(DATASET, dataset, strict=True)),
            "budget": numbers,
            **dict(zip(SECTIONS, sections, strict=True)),
            "tables": {table.name: table.words() for table in _checked_tables(tables, mistakes)},
        }
        values = _as_in_a_file(given, (), mistakes)
        mistakes.complain()
        frames = {table.name: table.source for table in tables if table.has_rows}
        self._set(Path.cwd() / f"{_stem(name)}.toml", values, frames)
        self.checked(rows_follow=True)

    def _set(
        self, path: Path, values: Values, frames: Mapping[str, Any], *, has_file: bool = False
    ) -> None:
        made = {"path": path, "has_file": has_file, "frames": frames, "_values": values}
        for name, value in made.items():
            object.__setattr__(self, name, value)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a policy file. No data is read.

        Args:
            path: The policy's TOML file.

        Returns:
            The policy. Its ledger and stored rows are those of the file.

        Raises:
            BadFile: If the file cannot be read or has mistakes. Each is listed with its line.

        Example:
            >>> lapwing.Policy.load("visits.toml")
            <Policy visits, with visits, patients, wards>
        """
        values, mistakes = read_policy(os.fspath(path))
        there = Path(path).absolute()
        checked_policy(deepcopy(values), mistakes, there, rows_follow=True)
        self = cls.__new__(cls)
        self._set(there, values, {}, has_file=True)
        return self

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> Path:
        """Write the policy to a TOML file, which says the same. Rows of data frames are not in it.

        A file that says the same already is left alone.

        Args:
            path: The file, such as "orders.toml".
            replace: Whether a file that says something else is replaced.

        Returns:
            The absolute path of the file.

        Raises:
            BadParameter: If the file is there and says something else, or a policy file cannot be so long.

        Example:
            >>> policy = lapwing.Policy.load("visits.toml")
            >>> policy.save("visits-again.toml").name
            'visits-again.toml'
        """
        there = Path(path).absolute()
        if not there.parent.is_dir() or there.is_dir():
            raise BadParameter("path", "must be a file in a folder that exists, such as orders.toml")
        values = (
            self._values if there.parent == self.path.parent else _moved(self._values, self.path.parent)
        )
        checked_policy(deepcopy(values), ArgumentMistakes("policy"), there, rows_follow=True)
        text = _as_text(values).encode()
        if len(text) > BYTES_AT_MOST:
            raise BadParameter("path", "a policy file has at most 1 MiB, and this policy is longer")
        if there.exists() and _text_of(there) == text.decode():
            return there
        if there.exists() and not replace:
            raise BadParameter(
                "path", "is there, and says something else. Write another name, or replace=True"
            )
        with replaced_private_file(there) as file:
            file.write(text)
        return there

    @property
    def name(self) -> str:
        """The name of the data in the ledger."""
        return str(self._values["dataset"]["name"])

    @property
    def sources(self) -> dict[str, str]:
        """The source of each table, as a policy file says it."""
        return {name: about["source"] for name, about in self._values["tables"].items()}

    def checked(self, *, rows_follow: bool = False) -> CheckedPolicy:
        """Return the policy with its sources found. `rows_follow`: rows need not be stored yet."""
        mistakes = ArgumentMistakes("policy")
        policy = checked_policy(deepcopy(self._values), mistakes, self.path, rows_follow=rows_follow)
        return replace(policy, is_in_code=not self.has_file)

    def with_stored_rows(self) -> CheckedPolicy:
        """Return the checked policy of stored rows. Refuses rows in memory: nobody named their version."""
        if self.frames:
            raise BadParameter(
                "tables", 'have rows in memory. Name them: lapwing.open(policy, version="2026-03")'
            )
        return self.checked()

    def spending_from(self, ledger: str | os.PathLike[str]) -> Policy:
        """Return the policy as if its file lay in the folder of a ledger."""
        place = os.fspath(ledger)
        if self.has_file:
            raise BadParameter("ledger", f"is what {self.path.name} says in [ledger]. Do not give it here")
        if self._values.get("ledger", {}).get("url"):
            raise BadParameter("ledger", "is what the policy says already. Give it once")
        values, path, url = deepcopy(self._values), self.path, place
        if not is_postgres(place):
            there = Path(place).absolute()
            folder = there if place.endswith("/") or there.is_dir() else there.parent
            if not place or "://" in place or not folder.is_dir():
                raise BadParameter(
                    "ledger",
                    "must be a folder, or a file in a folder that exists, or begin with postgresql://",
                )
            values, path = _moved(values, self.path.parent), folder / self.path.name
            url = "" if folder == there else str(there)
        values["ledger"] = {**values.get("ledger", {}), **({"url": url} if url else {})}
        placed = Policy.__new__(Policy)
        placed._set(path, values, self.frames)
        placed.checked(rows_follow=True)
        return placed

    def __repr__(self) -> str:
        return f"<Policy {self.name}, with {', '.join(self.sources)}>"

    def __str__(self) -> str:
        return _as_text(self._values)


def policy_of_rows(
    source: Any,
    *,
    name: str = "data",
    unit: str | None = None,
    rows_per_unit: int = 1,
    columns: Mapping[str, Any] | None = None,
    epsilon: Number | None = None,
    delta: Number = 0,
) -> Policy:
    """Return the policy of a single table. What is not given has the value that reveals least."""
    if epsilon is None or unit is None or columns is None:
        raise BadParameter(
            "source",
            "must be the path of a policy file, a lapwing.Policy, or the rows of one table, with unit, "
            "columns and epsilon",
        )
    try:
        table = Table(name, source, unit=unit, rows_per_unit=rows_per_unit, columns=columns)
        return Policy(name, epsilon=epsilon, delta=delta, tables=[table])
    except BadParameter as error:
        inside = f"tables[{quoted(str(name), at_most=80)}]."
        raise BadParameter(error.name.removeprefix(inside), error.why.replace(inside, "")) from None


def _checked_tables(tables: Any, mistakes: ArgumentMistakes) -> list[Table]:
    if isinstance(tables, Mapping | str | Table) or not isinstance(tables, Sequence):
        mistakes.add(("tables",), "must be a list of lapwing.Table")
        return []
    if not all(isinstance(table, Table) and isinstance(table.name, str) for table in tables):
        mistakes.add(("tables",), "must be a list of lapwing.Table, each with a name")
        return []
    names = [table.name for table in tables]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        mistakes.add(("tables", name), "is here twice")
    for table in tables:
        if table.has_rows and not _is_frame(table.source):
            mistakes.add(
                ("tables", table.name, "source"),
                "must be a path, a URL, a data frame of pandas or Polars, or an Arrow table",
            )
    return list(tables)


def _is_frame(source: Any) -> bool:
    """Return whether a source is rows in memory. A lazy frame has none yet, a series has no columns."""
    library = type(source).__module__.partition(".")[0]
    if library == "polars":
        return hasattr(source, "to_arrow") and hasattr(source, "columns")
    return hasattr(source, "columns" if library == "pandas" else "__arrow_c_stream__")


def _stem(name: Any) -> str:
    """Return the name of a policy's file, without its suffix. It is another one if no file can have it."""
    if re.fullmatch(rf"\w[\w-]{{0,{STEM_AT_MOST}}}", str(name)):
        return str(name)
    return f"policy-{sha256(str(name).encode('utf-8', 'replace')).hexdigest()[:16]}"


# Values of Python as a file has them


def _as_in_a_file(value: Any, key: Key, mistakes: FileMistakes) -> Any:
    """Return a copy of a value as a TOML file gives it. What no file can say is noted."""
    if isinstance(value, Mapping):
        return {
            str(name): _as_in_a_file(inner, (*key, str(name)), mistakes)
            for name, inner in value.items()
            if inner is not None
        }
    if isinstance(value, list | tuple):
        return [_as_in_a_file(inner, key, mistakes) for inner in value]
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime(warn=False)
    elif type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        value = value.item()
    try:
        return _scalar(value, is_number=key[:1] == ("analysts",))
    except (ValueError, OverflowError):
        mistakes.add(key, f"must be what a policy file can say, not {type(value).__name__} of this kind")
        return None


def _scalar(value: Any, *, is_number: bool) -> Any:
    """Return a single value as a TOML file gives it. Raises ValueError if no file can say it."""
    value = _read_number(value) if is_number else value
    match value:
        case bool() | int():
            return value if isinstance(value, bool) else int(value)
        case float() | Decimal() | Fraction():
            return _decimal(value)
        case str():
            text = str.__str__(value)
            text.encode()  # raises UnicodeEncodeError, a ValueError, if no file can have it
            return text
        case datetime():
            return value if value.tzinfo is None else value.astimezone(UTC)
        case date():
            return value
        case os.PathLike():
            return os.fspath(value)
    raise ValueError


def _decimal(number: float | Decimal | Fraction) -> Decimal:
    """Return a number as the decimal that a file has. In TOML, 5 is a whole number and 5.0 is not."""
    if isinstance(number, Fraction):
        decimal = Decimal(number.numerator) / Decimal(number.denominator)
        if Fraction(decimal) != number:
            raise ValueError
    else:
        decimal = number if isinstance(number, Decimal) else Decimal(repr(float(number)))
    is_written_whole = decimal.is_finite() and decimal.as_tuple().exponent == 0
    return Decimal(f"{decimal}.0") if is_written_whole else decimal


def _moved(values: Values, folder: Path) -> Values:
    """Return values that mean in every folder what they mean in this one."""
    moved = deepcopy(values)
    for about in moved["tables"].values():
        about["source"] = moved_source(about["source"], folder)
    for word, place in moved.get("ledger", {}).items():
        if word in PLACES and not place.startswith(POSTGRES_SCHEMES) and "://" not in place:
            moved["ledger"][word] = os.path.join(folder, place)
    return moved


def _text_of(path: Path) -> str:
    """Return what a policy file says, as `_as_text` writes it; "" if it cannot be read."""
    try:
        return _as_text(read_policy(path)[0])
    except (BadParameter, AttributeError):  # no TOML, or no tables
        return ""


def _as_text(values: Values) -> str:
    """Return the text of a policy file."""
    sections: list[tuple[str, Values]] = []
    for name, about in values.items():
        if name == "tables":
            for table, said in about.items():
                plain = {word: value for word, value in said.items() if word != "columns"}
                sections.append((f"tables.{toml_key(table)}", plain))
                if said.get("columns"):
                    sections.append((f"tables.{toml_key(table)}.columns", said["columns"]))
        elif name == "analysts":
            sections += [(f"analysts.{toml_key(analyst)}", quota) for analyst, quota in about.items()]
        else:
            sections.append((name, about))
    return "\n".join(
        "".join(
            [f"[{heading}]\n", *(f"{toml_key(key)} = {toml_value(value)}\n" for key, value in said.items())]
        )
        for heading, said in sections
    )
