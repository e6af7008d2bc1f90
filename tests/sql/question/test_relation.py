"""How many rows one unit can have, which blocks are read, and what is private."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.sql.policy.kinds import Kind, Numeric, Truth
from lapwing.sql.question.expression import Constant, Reference
from lapwing.sql.question.relation import (
    Filter,
    Join,
    PerUnit,
    Project,
    PublicScan,
    Relation,
    Scan,
    UnionAll,
    blocks_of,
    contribution_bound,
    expressions_of,
    is_private,
    public_scans_of,
    scans_of,
)

WHOLE: Kind = Numeric(Fraction(1), 0, 9)
COLUMNS = (("x", WHOLE),)
FIVE, THREE = Scan("visits", COLUMNS, 5), Scan("others", COLUMNS, 3, (1, 2))
PUBLIC = PublicScan("wards", (("y", WHOLE),), ("y",))
TRUE = Constant(True, Truth())
X = Reference("x", WHOLE)
PER = PerUnit(FIVE, (), (("n", "rows", None, WHOLE),))


@pytest.mark.parametrize(
    ("relation", "rows", "blocks"),
    [
        (FIVE, 5, None),
        (THREE, 3, {1, 2}),
        (Filter(FIVE, TRUE), 5, None),
        (Project(THREE, (("z", X),)), 3, {1, 2}),
        (Join(FIVE, PUBLIC, (("x", "y"),), False, 4), 20, None),
        (Join(THREE, PUBLIC, (("x", "y"),), True, 0), 3, {1, 2}),
        (Join(FIVE, THREE, (), False, 0), 15, None),
        (Join(THREE, THREE, (), True, 0), 9, {1, 2}),
        (UnionAll((FIVE, THREE)), 8, None),
        (UnionAll((THREE, THREE)), 6, {1, 2}),
        (PER, 1, None),
        (PerUnit(FIVE, (("k", X),), ()), 5, None),
        (PerUnit(Join(FIVE, PUBLIC, (("x", "y"),), False, 4), (("k", X),), ()), 20, None),
        (Join(PER, FIVE, (), False, 0), 5, None),
    ],
)
def test_s9_rows_of_one_unit(relation: Relation, rows: int, blocks: set[int] | None) -> None:
    assert contribution_bound(relation) == rows
    assert blocks_of(relation) == (None if blocks is None else frozenset(blocks))
    assert is_private(relation)


def test_a_public_table_has_no_units() -> None:
    assert not is_private(PUBLIC)
    assert not is_private(Filter(PUBLIC, TRUE))
    with pytest.raises(AssertionError):
        contribution_bound(PUBLIC)


def test_scans_and_expressions_are_found() -> None:
    join = Join(Filter(FIVE, TRUE), PUBLIC, (("x", "y"),), False, 1)
    whole = UnionAll((Project(join, (("z", X),)), Project(THREE, (("z", X),))))
    assert scans_of(whole) == [FIVE, THREE]
    assert public_scans_of(whole) == [PUBLIC]
    assert expressions_of(whole) == [TRUE, X, X]
    assert expressions_of(
        PerUnit(FIVE, (("k", X),), (("s", "sum", X, WHOLE), ("n", "rows", None, WHOLE)))
    ) == [X, X]
    assert whole.columns == (("z", WHOLE),)
    assert join.columns == (("x", WHOLE), ("y", WHOLE))
