"""Bound questions for tests of shares, noise, intervals and estimates: no SQL, no engine."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from lapwing.sql.policy.kinds import Choice, Kind, Numeric, Text
from lapwing.sql.question.bound_query import (
    BoundQuery,
    Key,
    KeyValue,
    NoisyAggregate,
    NoisySum,
    Order,
    Output,
    Released,
    Spectrum,
    Sum,
    has_declared_keys,
    number_of_groups,
)
from lapwing.sql.question.expression import Reference
from lapwing.sql.question.relation import Scan
from lapwing.sql.reading.exact_numbers import ExactGrouping

STAY = Numeric(Fraction(1), 0, 60)
X = Reference("stay", STAY)
SUMS = (Sum("rows"), Sum("sum", X), Sum("sum", X), Sum("units"))
COUNT = NoisyAggregate("count", (0,))
AVG = NoisyAggregate("avg", (1, 0), STAY, 30)
VAR = NoisyAggregate("var_pop", (1, 0, 2), STAY, 30)


def declared(size: int, name: str = "ward") -> Key:
    """A key with so many declared values."""
    return Key(name, Reference(name, Choice(tuple(f"{name}{i}" for i in range(size)))), range(size))


def undeclared(name: str = "town") -> Key:
    """A key whose values are selected."""
    return Key(name, Reference(name, Text()), None)


def parts_for(rows: int, count: int = 1) -> tuple[NoisySum, ...]:
    """Rows, the sum around 30, the sum of its squares, people: the first so many of them."""
    every = (
        NoisySum("rows", ((1, 0),), rows, rows**2),
        NoisySum("sum of stay", ((1, 1),), 30 * rows, 900 * rows**2, Fraction(1, 2)),
        NoisySum("squares of stay", ((1, 2),), 900 * rows, 810_000 * rows**2, Fraction(1, 2)),
        NoisySum("people", ((1, 3),), rows, rows),
    )
    return every[:count]


def question(
    *keys: Key,
    sets: tuple[tuple[int, ...], ...] | None = None,
    parts: int = 1,
    rows: int = 1,
    outputs: tuple[Released, ...] = (COUNT,),
    spectra: tuple[Kind, ...] = (),
    having: Released | None = None,
    order: tuple[Order, ...] = (),
    limit: int | None = None,
    offset: int = 0,
) -> BoundQuery:
    """All keys and the outputs, named c0, c1, …"""
    shown = tuple(Output(key.name, KeyValue(i)) for i, key in enumerate(keys))
    columns = tuple(Output(f"c{i}", value) for i, value in enumerate(outputs))
    return BoundQuery(
        source=Scan("visits", (("stay", STAY),), rows),
        keys=keys,
        sets=sets or (tuple(range(len(keys))),),
        sums=SUMS,
        parts=parts_for(rows, parts),
        spectra=tuple(Spectrum("stay", X, kind, rows) for kind in spectra),
        outputs=shown + columns,
        rows=rows,
        having=having,
        order=order,
        limit=limit,
        offset=offset,
    )


def exact(asked: BoundQuery, value: int = 0) -> list[ExactGrouping]:
    """The same value for every number of every part in every group of declared keys."""
    found = []
    for s in range(len(asked.sets)):
        assert has_declared_keys(asked, s)
        found.append(
            ExactGrouping(np.full((number_of_groups(asked, s), asked.numbers), value, dtype=np.int64))
        )
    return found
