"""The three engines, and a way to ask all of them the same of the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from lapwing.engines.dialect import SqlDialect
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import Engine, EngineFailed, EngineLimits
from lapwing.engines.postgres import PostgresEngine
from support.postgres import server
from support.slowly import slow
from support.spark import spark

ENGINES = ("duckdb", "postgres", slow("spark"))
_WORDS = (
    "int1",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "text",
    "truth",
    "date",
    "timestamp",
    "zoned",
    "bytes",
)
TYPES = {
    "duckdb": (
        "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "BOOLEAN", "DATE",
        "TIMESTAMP",
        "TIMESTAMPTZ", "BLOB",
    ),
    "postgres": (
        "smallint", "smallint", "integer", "bigint", "real", "double precision", "text", "boolean", "date",
        "timestamp", "timestamptz", "bytea",
    ),
    "spark": (
        "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BOOLEAN", "DATE",
        "TIMESTAMP_NTZ",
        "TIMESTAMP", "BINARY",
    ),
}  # fmt: skip

Make = Callable[[SqlDialect, str, str], str]
Case = tuple[Fraction, int, int]


@dataclass(frozen=True)
class Asker:
    """Puts values of a type into a column and asks for expressions of it."""

    engine: Engine

    @property
    def dialect(self) -> SqlDialect:
        assert isinstance(self.engine.dialect, SqlDialect)
        return self.engine.dialect

    def relation(self, kind: str, values: Sequence[object]) -> str:
        """A FROM item with a column v: texts of the values, cast by the engine."""
        words = dict(zip(_WORDS, TYPES[self.engine.name], strict=True))
        type_name = words.get(kind, kind)

        def literal(value: object) -> str:
            return "NULL" if value is None else self.dialect.text(str(value))

        rows = ", ".join(f"({place}, {literal(value)})" for place, value in enumerate(values))
        # OFFSET keeps PostgreSQL from computing with the constants before it runs.
        hold = " OFFSET 0" if self.engine.name == "postgres" else ""
        return f"(SELECT i, CAST(x AS {type_name}) AS v FROM (VALUES {rows}) AS given (i, x){hold}) AS held"

    def type_of(self, kind: str) -> str:
        return self.engine.columns(self.relation(kind, [None]))["v"]

    def each(self, kind: str, values: Sequence[object], make: Make) -> list[Any]:
        """The expression of each value. `make` gets the column and its type."""
        sql = make(self.dialect, "v", self.type_of(kind))
        return self.all(kind, values, sql)[0]

    def all(self, kind: str, values: Sequence[object], *expressions: str) -> list[list[Any]]:
        """Several expressions at once."""
        named = ", ".join(f"{sql} AS e{place}" for place, sql in enumerate(expressions))
        found = self._run(f"SELECT i, {named} FROM {self.relation(kind, values)} ORDER BY i")
        return [column.to_pylist() for column in found.columns[1:]]

    def steps(self, kind: str, values: Sequence[object], cases: Sequence[Case]) -> list[list[Any]]:
        """The values in steps, for each case of a step and its bounds."""
        name = self.type_of(kind)
        return self.all(
            kind, values,
            *(self.dialect.clamped_steps("v", name, step=step, first=first, last=last)
              for step, first, last in cases),
        )  # fmt: skip

    def one(self, sql: str) -> Any:
        return self._run(f"SELECT {sql} AS e").column(0)[0].as_py()

    def _run(self, sql: str) -> pa.Table:
        try:
            return self.engine.run(sql)
        except EngineFailed as failure:
            pytest.fail(f"{failure.__context__}"[:2000])


@pytest.fixture(scope="session")
def _duckdb() -> Iterator[Engine]:
    engine = DuckDbEngine.open(limits=EngineLimits(threads=2))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def _postgres() -> Iterator[Engine]:
    engine = PostgresEngine(server())
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def _spark() -> Engine:
    return spark()


@pytest.fixture(params=ENGINES)
def ask(request: pytest.FixtureRequest) -> Asker:
    """Each engine in turn."""
    return Asker(request.getfixturevalue(f"_{request.param}"))
