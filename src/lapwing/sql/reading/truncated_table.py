"""A truncated table: codes, the unit, and the rank of each row among the rows of its unit.

Claim    a unit's rows and their ranks depend on nothing but the unit's own rows and the key; and each row
         of a unit is equally likely, over keys, to get any rank, whatever it contains.
Because  every code comes from one row (or from it and a row that it refers to). A rank is found among rows
         of one unit, in an order that does not depend on positions, threads or files: a keyed hash of the
         content and of the row's number among the equal rows of its unit. Which of several equal rows has
         which number changes nothing for any query. Equal rows have different numbers: they are kept or
         left out independently, as any other rows.
Test     tests/sql/reading/test_column_codes.py, tests/sql/reading/test_truncated_table_uniform.py

The order is the same on all engines: it uses whole numbers modulo p = 2^31 - 1. The sum x of keyed codes
would order the rows of all units in the same way, and prefer the same rows everywhere. x^5 is a different
number for each x, since 5 does not divide p - 1, and orders them differently for each unit.
docs/arguments/ranks.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from lapwing.engines.dialect import SqlDialect
from lapwing.engines.engine import Engine
from lapwing.errors import BadParameter
from lapwing.sql.policy.kinds import MONTHS, Person, Text
from lapwing.sql.policy.policy import CheckedPolicy, CheckedTable, Column, UnitBy, days_in
from lapwing.sql.question.relation import BLOCK, RANK, UNIT
from lapwing.sql.question.typed_expressions import LARGEST
from lapwing.sql.reading.column_codes import (
    PRIME,
    SHORT,
    WIDEST,
    ColumnCoder,
    HashKeys,
    HashTerm,
    UnitIds,
    fifth_power,
    hash_terms,
    square,
    stored_code,
    text_term,
    whole_term,
)

FOLDED = "lapwing_folded"  # a column of arrivals: whether the unit is the folded id
HASH = "lapwing_hash"  # the keyed sum of a declared primary key, which has no code
# A row's keyed sum, the number among equal rows, both added, its square and fifth power, the place
_X, _EQUAL, _Y, _Y2, _H, _NUMBER = (f"lapwing_{name}" for name in ("x", "equal", "y", "y2", "h", "number"))


@dataclass(frozen=True, slots=True)
class TruncatedTable:
    """The coding and ranking of a table's rows.

    `relations` are FROM items, without an alias, of the private tables' sources, by the tables' names.
    `arrivals` is a FROM item of units and their blocks, or "". All statements contain the key: never show
    them.
    """

    policy: CheckedPolicy
    table: CheckedTable
    engine: Engine
    key: bytes
    relations: Mapping[str, str]
    arrivals: str = ""

    def __post_init__(self) -> None:
        assert self.table.unit is not None, "public tables have no ranks"
        if len(self.key) != 32:
            raise BadParameter("key", "must be 32 bytes")

    @property
    def columns(self) -> list[Column]:
        """The columns that have a code."""
        return [column for column in self.table.columns.values() if not isinstance(column.kind, Person)]

    @property
    def each_row(self) -> bool:
        """True if each row is its own unit."""
        return not self._by.column

    @property
    def _by(self) -> UnitBy:
        assert self.table.unit is not None
        return self.table.unit

    @property
    def stored(self) -> list[str]:
        """The columns of `ranked`."""
        ours = [UNIT, RANK, *([BLOCK] if self.policy.blocks else [])]
        return [*ours, *map(self._name, self.columns)]

    def codes(self, relation: str = "") -> str:
        """Units and codes (and the hash of a primary key) of the source's rows, or of some of them."""
        relation = relation or self.relations[self.table.name]
        source = self._source(self.table, relation)
        unit, joined = ("0", "") if self.each_row else self._unit(source)
        known = "" if self.each_row or joined else f" WHERE {source.is_known(self._by.in_source)}"
        raw, done = [f"{unit} AS {UNIT}"], [UNIT]
        for column in self.columns:
            name, strictly = self._name(column), self._slices_by(column)
            raw.append(f"{source.raw(column)} AS {name}")
            done.append(f"{stored_code(self.engine.dialect, column, name, strictly=strictly)} AS {name}")
        terms: list[HashTerm] = []
        for n, name in enumerate(self.table.primary_key):
            value, term = source.key(name, f"/key {name}", f"lapwing_key{n}")
            raw.append(f"{value} AS lapwing_key{n}")
            terms.append(term)
        if terms:
            done.append(f"{self._keys.summed([*self._unit_terms(), *terms])} AS {HASH}")
        tables = f"{relation} AS t{joined}{''.join(source.lookups)}{known}"
        inner = f"SELECT {', '.join(raw)} FROM {tables}{self._fence}"  # noqa: S608
        return f"SELECT {', '.join(done)} FROM ({inner}) AS r"  # noqa: S608

    def ranked(self, codes: str, passing: str = "") -> str:
        """Return a SELECT of units, ranks, blocks and codes (as `stored`) from one of units and codes.

        `passing` is a condition on z, which has units, blocks and codes: only rows that pass it are ranked.
        """
        dialect, rest = self.engine.dialect, self.stored[2:]
        rows = f"SELECT z.* FROM ({self._hashed(codes)}) AS z{passing and f' WHERE {passing}'}"  # noqa: S608
        within = f"{UNIT}, {BLOCK}" if self.sliced else UNIT
        content = ", ".join(f"{self._compared(column)} NULLS FIRST" for column in self.columns) or _X
        mixed, order = dialect.whole(_X, WIDEST), content
        if self.table.numbers_equal_rows:
            # Different rows have the same sum very rarely: then they are numbered together.
            window = f"row_number() OVER (PARTITION BY {within}, {_X} ORDER BY {content})"
            rows = f"SELECT e.*, {window} AS {_EQUAL} FROM ({rows}) AS e"  # noqa: S608
            number = f"{dialect.whole(_EQUAL, WIDEST)} % {PRIME}"
            mixed = f"({mixed} + {self._keys.of('/number')} * ({number})) % {PRIME}"
            order = _EQUAL  # the power and this number determine the sum, and with it the row
        rows = f"SELECT m.*, {mixed} AS {_Y} FROM ({rows}) AS m{self._fence}"  # noqa: S608
        rows = f"SELECT m.*, {square(_Y)} AS {_Y2} FROM ({rows}) AS m"  # noqa: S608
        rows = f"SELECT m.*, {dialect.stored(fifth_power(_Y, _Y2), 0, PRIME)} AS {_H} FROM ({rows}) AS m"  # noqa: S608
        if self.each_row:
            # Rows of one hash are numbered. The order of equal rows changes no result.
            window = f"row_number() OVER (PARTITION BY {_H} ORDER BY {order})"
            unit = f"{dialect.whole(_H, WIDEST)} * {1 << 31} + {_NUMBER} AS {UNIT}"
            ours, kept = [unit, f"{self._rank('1')} AS {RANK}"], ""
        else:
            window = f"row_number() OVER (PARTITION BY {within} ORDER BY {_H}, {order})"
            ours = [UNIT, f"{self._rank(_NUMBER)} AS {RANK}"]
            kept = f" WHERE {_NUMBER} <= {self.table.rows_per_unit + 1}"
        numbered = f"SELECT r.*, {window} AS {_NUMBER} FROM ({rows}) AS r"  # noqa: S608
        return f"SELECT {', '.join([*ours, *rest])} FROM ({numbered}) AS n{kept}"  # noqa: S608

    def _hashed(self, codes: str) -> str:
        """Return a SELECT of units, blocks, codes and the keyed sum of each row.

        Sorted rows are narrow: the sum has 4 bytes, and there are no intermediate columns.
        """
        dialect, y, y2 = self.engine.dialect, "lapwing_cohort", "lapwing_cohort2"
        summed = HASH if self.table.primary_key else self._keys.summed(self._terms())
        block, joined, where = self._block(y)
        rows = f"SELECT c.*, {summed} AS {_X}{block} FROM ({codes}) AS c{joined}{where}{self._fence}"  # noqa: S608
        carried = [UNIT, *self.stored[2:], f"{dialect.stored(_X, 0, PRIME)} AS {_X}"]
        if self.cohorts:
            rows = f"SELECT x.*, {square(y)} AS {y2} FROM ({rows}) AS x"  # noqa: S608
            cohort = f"({fifth_power(y, y2)}) % {self.cohorts}"
            carried[1] = f"{dialect.stored(cohort, 0, self.cohorts - 1)} AS {BLOCK}"
        return f"SELECT {', '.join(carried)} FROM ({rows}) AS y"  # noqa: S608

    def read_all(self) -> str:
        """Return a SELECT of the greatest unit and the greatest rank, which depend on all rows."""
        rows = self.ranked(self.codes())
        return f"SELECT max({UNIT}) AS u, max({RANK}) AS r FROM ({rows}) AS b"  # noqa: S608

    @property
    def sliced(self) -> bool:
        """True if blocks are periods of rows."""
        return self.policy.blocks is not None and self.policy.blocks.by == "row"

    @property
    def cohorts(self) -> int:
        """The number of cohorts of units, or 0."""
        return self.policy.blocks.cohorts if self.policy.blocks is not None else 0

    @property
    def _keys(self) -> HashKeys:
        return HashKeys(self.key, f"ranks of {self.table.name}")

    @property
    def _fence(self) -> str:
        """A clause that keeps PostgreSQL from computing inner columns again at each use."""
        return " OFFSET 0" if self.engine.name == "postgres" else ""

    def _name(self, column: Column) -> str:
        return self.engine.dialect.name(column.name)

    def _compared(self, column: Column) -> str:
        name = self._name(column)
        return self.engine.dialect.compared_text(name) if isinstance(column.kind, Text) else name

    def _rank(self, number: str) -> str:
        return self.engine.dialect.stored(number, 1, self.table.rows_per_unit + 1)

    def _source(self, table: CheckedTable, relation: str) -> ColumnCoder:
        columns, folds = self.engine.columns(relation), self.policy.folds_ids
        return ColumnCoder(
            self.engine.dialect, columns, table.name, csv=table.source.csv, folds=folds,
            text_bytes=table.coded_bytes,
        )  # fmt: skip

    @property
    def ids(self) -> UnitIds:
        """The form of unit ids, which is the same in all tables."""
        types = {name: self.engine.columns(relation) for name, relation in self.relations.items()}
        return UnitIds.of(self.policy, self.engine.dialect, types)

    def _unit(self, source: ColumnCoder) -> tuple[str, str]:
        """Return the unit's SQL, and the join that finds it.

        A row occurs once for each unit that its key leads to.
        """
        by, whole = self._by, self.ids.whole
        if not by.through:
            source.require_exact(by.in_source)
            return source.unit(by.in_source, whole=whole), ""
        holder = self.policy.tables[by.through]
        assert holder.unit is not None
        other, person = self._source(holder, self.relations[holder.name]), holder.unit.in_source
        other.require_exact(person)
        keys_are_whole = source.is_whole(by.column) and other.is_whole(by.key)
        key, unit = other.unit(by.key, whole=keys_are_whole), other.unit(person, whole=whole)
        known = f"{other.is_known(by.key)} AND {other.is_known(person)}"
        rows = f"{self.relations[holder.name]} AS t WHERE {known}"
        pairs = f"SELECT DISTINCT {key} AS k, {unit} AS u FROM {rows}"  # noqa: S608
        return "w.u", f" INNER JOIN ({pairs}) AS w ON w.k = {source.unit(by.column, whole=keys_are_whole)}"

    def _unit_terms(self) -> list[HashTerm]:
        term = whole_term if self.each_row or self.ids.whole else text_term
        return [term(self.engine.dialect, "/unit", UNIT)]

    def _cohort_term(self) -> HashTerm:
        """Return the hash term of a cohort, which is the same for 7 and '7'.

        The type of ids in a table may change, and units must stay in their cohorts for ever. So cohorts
        depend on the folded id, as in all earlier versions.
        """
        dialect, ids = self.engine.dialect, self.ids
        if self.each_row or ids.whole:
            text, number = dialect.plain_text(UNIT, "bigint"), UNIT
            short = f"{UNIT} BETWEEN {-SHORT} AND {SHORT}"
        else:
            text = ids.folded(UNIT)
            number = dialect.parse_whole(text)
            short = f"{number} IS NOT NULL"
        as_number, as_text = whole_term(dialect, "/unit", number), text_term(dialect, "/unit", text)
        sql = f"(CASE WHEN {short} THEN {as_number.sql} ELSE {as_text.sql} END)"
        return HashTerm("/unit", sql, as_number.most)

    def _slices_by(self, column: Column) -> bool:
        """Return whether rows are divided into blocks by this column.

        A date beyond its bounds is in no block. If it were moved to the first or the last block, it would
        change its block when the bounds are widened.
        """
        return self.sliced and self.policy.blocks is not None and column.name == self.policy.blocks.column

    def _terms(self) -> list[HashTerm]:
        terms = [hash_terms(self.engine.dialect, column, self._name(column)) for column in self.columns]
        content = list(chain.from_iterable(terms))
        return content if self.each_row else [*self._unit_terms(), *content]

    def _block(self, cohort: str) -> tuple[str, str, str]:
        """Return the column, the join and the condition that blocks add to the SELECT.

        The keyed sum of a cohort gets the given name.
        """
        blocks, dialect = self.policy.blocks, self.engine.dialect
        if blocks is None:
            return "", "", ""
        if blocks.by == "row":
            day = dialect.whole(dialect.name(blocks.column), LARGEST)
            period = dialect.stored(_period(dialect, blocks.every, day), blocks.first, blocks.last)
            return f", {period} AS {BLOCK}", "", f" WHERE {dialect.name(blocks.column)} IS NOT NULL"
        if blocks.cohorts:
            terms = self._terms() if self.each_row else [self._cohort_term()]
            return f", {HashKeys(self.key, 'cohorts').summed(terms)} AS {cohort}", "", ""
        if not self.arrivals:
            raise BadParameter(
                "blocks.every",
                "needs a prepared copy: only it holds the arrivals. Run `lapwing prepare` first. "
                "where_first, beyond, bounds and check are not possible then",
            )
        own = f"SELECT {UNIT}, {BLOCK} FROM {self.arrivals} WHERE {FOLDED} = {folded_literal(self.policy)}"  # noqa: S608
        return f", a.{BLOCK}", f" INNER JOIN ({own}) AS a USING ({UNIT})", ""


def folded_literal(policy: CheckedPolicy) -> str:
    """Return the value of `FOLDED` for units as the policy spells them now."""
    return "TRUE" if policy.folds_ids else "FALSE"


def _period(dialect: SqlDialect, every: str, day: str) -> str:
    """Return the SQL of `period_of`."""
    if every in MONTHS:
        return dialect.floor_divide(dialect.month_of(day), MONTHS[every])
    return dialect.floor_divide(day, days_in(every))
