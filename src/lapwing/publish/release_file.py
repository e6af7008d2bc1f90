"""A release file (TOML): what is published, how, and at which price. All mistakes are told together.

```toml
[release]
name = "visits-2026"
policy = "visits.toml"
rows = "SELECT ward, stay, urgent FROM visits"
method = "adaptive"
epsilon = 1.0
delta = 1e-9

[columns.stay]
bins = 12

[[impossible]]
ward = "maternity"
urgent = true
```

A census has `method = "census"`, and the tables [census] and [census.shares.LEVEL].
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from lapwing.config.file_table import (
    TEXT_AT_MOST,
    ColumnName,
    Delta,
    Epsilon,
    FileTable,
    Flag,
    Label,
    Number,
    Text,
    exact_number,
    fits,
    needed,
    one_of,
    read_table,
)
from lapwing.config.toml_text import read_toml
from lapwing.config.values import kind_of, quoted_choices
from lapwing.core.conversions import largest_rho
from lapwing.publish.measured.published_column import MOST_CELLS, shown_value

SYNTHETIC = ("independent", "tree", "adaptive")
CENSUS = "census"
METHODS = (*SYNTHETIC, CENSUS)
MOST_MEGABYTES = 256
USUAL_MEGABYTES = 4
MOST_COLUMNS = 100
MOST_RHO = 10**6
MOST_RULES = 1000
TOTAL, CELLS, TIMES = "total", "cells", "*"  # queries of a census level: sums, all columns, and crosses


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    """Settings of a column: the number of bins (None: the usual), and if missing values have a cell."""

    bins: int | None = None
    unknown: bool = True


@dataclass(frozen=True, slots=True)
class CensusSettings:
    """The spine of a census, the shares of ρ, and public facts.

    `shares` has, for each level, the share of each query; a query is "total", "cells" or columns joined by
    *. `totals` has public totals of nodes, by level. `wanted` has the greatest expected error of totals, by
    level.
    """

    spine: str
    levels: tuple[str, ...]
    area: str
    shares: Mapping[str, Mapping[str, Fraction]]
    empty: str | None = None
    totals: Mapping[str, Mapping[str, int]] | None = None
    wanted: Mapping[str, Fraction] | None = None


@dataclass(frozen=True, slots=True)
class ReleasePlanFile:
    """A release as its file declares it. `rho` is None if it follows from wanted errors."""

    path: Path
    text: bytes
    name: str
    policy: Path
    sql: str
    method: str
    epsilon: Fraction | None
    delta: Fraction
    rho: Fraction | None
    columns: Mapping[str, ColumnSettings]
    impossible: tuple[Mapping[str, Any], ...]
    workload: tuple[tuple[str, ...], ...] | None
    model_bytes: int
    check: Fraction
    census: CensusSettings | None

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the file."""
        return hashlib.sha256(self.text).hexdigest()

    @property
    def facts(self) -> list[str]:
        """The public facts that the tables keep. They are not protected."""
        lines = [
            "No row has " + " and ".join(f"{name} = {shown_value(value)}" for name, value in rule.items())
            for rule in self.impossible
        ]
        census = self.census
        for level, totals in ((census and census.totals) or {}).items():
            lines += [f"The total of {level} {node} is {total:,}" for node, total in totals.items()]
        if census is not None and census.empty is not None:
            lines.append(f'Areas with {census.empty} = true in the public table "{census.spine}" are empty')
        return lines


def _sql(text: object) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > TEXT_AT_MOST:
        raise ValueError(f"must be SQL in quotes, not {kind_of(text)}")
    return text.strip()


def _names(value: object) -> tuple[str, ...]:
    if (
        not isinstance(value, list)
        or not value
        or not all(isinstance(name, str) and name for name in value)
    ):
        raise ValueError('must be a list of names, such as ["state", "county", "block"]')
    if len(set(value)) < len(value):
        raise ValueError("must name each one once")
    return tuple(value)


def _name_lists(value: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MOST_RULES:
        raise ValueError('must be a list of lists of columns, such as [["ward", "stay"]]')
    return tuple(_names(names) for names in value)


def _share(value: object) -> Fraction:
    share = exact_number(value)
    if not 0 <= share <= 1:
        raise ValueError("must lie between 0 and 1: a share of ρ")
    return share


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("must be a whole number of rows, at least 0")
    return value


def _rule(value: object) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise ValueError("must be a table of columns with the values that do not go together")
    if any(isinstance(cell, list | dict) for cell in value.values()):
        raise ValueError("must have one value for each column")
    return dict(value)


_PRICE = fits(lambda rho: 0 < rho <= MOST_RHO, f"must be above 0, and at most {MOST_RHO:,}")
_POSITIVE = fits(lambda number: number > 0, "must be above 0")
_PART = fits(lambda share: 0 <= share < 1, "must be at least 0 and below 1: a share of ρ")


_NO_DELTA = "must be above 0: Gaussian noise needs some, such as 1e-9"


class ReleaseTable(FileTable):
    """The table [release]."""

    name: Label | None = needed('name = "visits-2026": how the ledger calls it')
    policy: Text | None = needed('policy = "visits.toml": the policy whose data is published')
    rows: Annotated[str, PlainValidator(_sql)] | None = needed('rows = "SELECT ward, stay FROM visits"')
    method: Annotated[Text, one_of(METHODS)] | None = needed(f"method = {quoted_choices(METHODS)}")
    epsilon: Epsilon | None = None
    delta: Annotated[Delta, fits(lambda delta: delta > 0, _NO_DELTA)] | None = None
    rho: Annotated[Number, _PRICE] | None = None
    check: Annotated[Number, _PART] | None = None

    def price(self, *, has_wanted: bool) -> tuple[Fraction | None, Fraction | None]:
        """Return ε and ρ, of which the file gives one, or wanted errors instead. Mistakes are noted."""
        if self.has("rho") and self.has("epsilon"):
            self.wrong("rho", "is another way to give the price. Keep epsilon or rho")
        if has_wanted and (self.has("rho") or self.has("epsilon")):
            self.wrong(
                "epsilon" if self.has("epsilon") else "rho",
                "follows from [census.wanted]. Keep one of them",
            )
        if not has_wanted and not self.has("rho"):
            self.require(epsilon="epsilon = 1.0: what one person may lose by the whole release")
        self.require(delta="delta = 1e-9: far below one in the number of people")
        if self.epsilon is None or self.delta is None:
            return self.epsilon, self.rho
        return self.epsilon, largest_rho(self.epsilon, self.delta)


class PublishedColumnTable(FileTable):
    """A table [columns.NAME]."""

    bins: int | None = Field(None, ge=1, le=MOST_CELLS)
    unknown: Flag = True


class SyntheticSettingsTable(FileTable):
    """The table [synthetic]."""

    workload: Annotated[tuple[tuple[str, ...], ...], PlainValidator(_name_lists)] | None = None
    model_megabytes: int | None = Field(None, ge=1, le=MOST_MEGABYTES)


class CensusTable(FileTable):
    """The table [census]."""

    spine: ColumnName | None = needed(
        'spine = "blocks": a public table of the policy, one row for each area'
    )
    levels: Annotated[tuple[str, ...], PlainValidator(_names)] | None = needed(
        'levels = ["state", "county", "block"]: its columns, from the top'
    )
    area: ColumnName | None = needed('area = "block": the column of `rows` that names the smallest area')
    shares: dict[str, dict[str, Annotated[Fraction, PlainValidator(_share)]]] = needed(
        "[census.shares.block] with total = 0.1 and cells = 0.2"
    )
    empty: ColumnName | None = None
    totals: dict[str, dict[str, Annotated[int, PlainValidator(_count)]]] = Field({})
    wanted: dict[str, Annotated[Number, _POSITIVE]] = Field({})

    def settings(self) -> CensusSettings | None:
        """Return the settings of a census; None if one is wrong, which is noted."""
        if self.spine is None or self.levels is None or self.area is None:
            return None
        for name in ("shares", "totals", "wanted"):
            for level in getattr(self, name):
                if level not in self.levels:
                    self.note(f"is no level of the census: {', '.join(self.levels)}", name, level)
        total = sum((share for queries in self.shares.values() for share in queries.values()), Fraction(0))
        if total != 1:
            self.wrong("shares", f"must sum to 1, and sum to {float(total):.10g}")
        if not self.shares.get(self.levels[-1], {}).get(CELLS):
            self.wrong(
                "shares",
                f"must measure the cells of the last level: [census.shares.{self.levels[-1]}] cells",
            )
        return CensusSettings(
            self.spine, self.levels, self.area, self.shares, self.empty, self.totals, self.wanted
        )


class ReleaseFileTables(FileTable):
    """A release file as it is written."""

    release: ReleaseTable = needed("[release] with name, policy, rows, method, epsilon and delta")
    columns: dict[str, PublishedColumnTable] = Field({})
    impossible: Annotated[list[Any], Field(max_length=MOST_RULES)] | None = None
    synthetic: SyntheticSettingsTable | None = None
    census: CensusTable | None = None


def load_release(path: str | Path) -> ReleasePlanFile:
    """Read and check a release file. No data is read.

    Args:
        path: The release file (TOML).

    Returns:
        The release as it is declared.

    Raises:
        BadFile: With every mistake in the file, each with its line.

    Example:
        >>> from lapwing.publish import load_release
        >>> load_release("town-rows.toml").method
        'adaptive'
    """
    where = Path(path)
    values, mistakes = read_toml(
        where, what="release file", example="visits-release.toml", draft="lapwing publish example"
    )
    tables = read_table(ReleaseFileTables, dict(values), mistakes)
    release, census = tables.release, None
    if release.method == CENSUS:
        if tables.census is None:
            tables.missing("census", "[census] with spine, levels, area and shares")
        else:
            census = tables.census.settings()
        if tables.synthetic is not None:
            tables.wrong("synthetic", "is for synthetic tables. Remove it")
        if release.has("check"):
            release.wrong("check", "is for synthetic tables: a census has the variance of every number")
    elif tables.census is not None:
        tables.wrong("census", 'is for method = "census". Remove it')
    if tables.synthetic is not None and release.method != "adaptive" and tables.synthetic.workload:
        tables.synthetic.wrong("workload", 'is for method = "adaptive". Remove it')
    rules = []
    for number, rule in enumerate(tables.impossible or [], 1):
        try:
            rules.append(_rule(rule))
        except ValueError as error:
            mistakes.add(("impossible", str(number)), str(error))
    epsilon, rho = release.price(has_wanted=bool(census and census.wanted))
    mistakes.complain()
    assert release.name is not None
    assert release.policy is not None
    assert release.rows is not None
    assert release.method is not None
    assert release.delta is not None
    synthetic = tables.synthetic
    return ReleasePlanFile(
        path=where,
        text=where.read_bytes(),
        name=release.name,
        policy=where.absolute().parent / release.policy,
        sql=release.rows,
        method=release.method,
        epsilon=epsilon,
        delta=release.delta,
        rho=rho,
        columns={
            name: ColumnSettings(column.bins, column.unknown is not False)
            for name, column in tables.columns.items()
        },
        impossible=tuple(rules),
        workload=None if synthetic is None else synthetic.workload,
        model_bytes=((synthetic and synthetic.model_megabytes) or USUAL_MEGABYTES) << 20,
        check=release.check or Fraction(0),
        census=census,
    )
