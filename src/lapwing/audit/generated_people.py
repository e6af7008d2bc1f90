"""Generated people of a policy, and neighbours among them: two sets of people that differ by one.

All values follow from the policy, from places and from a hash. No private row is read. Nothing is drawn, so
an audit finds the same each time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from lapwing.sql.policy.kinds import Choice, Kind, Moment, Numeric, Period, Text, Truth, codes_of
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, CheckedTable, Column

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")
PEOPLE = 7
QUICK = 20  # neighbours of a quick audit, beside those of `_spelled_ids`
# The types of stored numbers. The first is that of most neighbours; a quick audit tries each of the others.
NUMBER_TYPES = ("double", "integer", "smallint", "bigint", "float", "decimal", "text")
SAME_KEYS = 4  # a person has all rows at one of the first codes of each key: public rows may repeat it
MOST_ROWS = 4000  # of one generated person in one table
NOBODIES = (None, "", "  ")
Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]  # by table


@dataclass(frozen=True, slots=True)
class GeneratedPerson:
    """A person: an id, and rows by table. The values of a row are by declared column.

    `numbers` is the type in which numbers are stored, the same for all people of a source. `spellings` are
    other ways to write the id, row by row in turn, where they mean the same person.
    """

    id: str | None
    rows: Rows
    numbers: str = NUMBER_TYPES[0]
    spellings: tuple[str, ...] = ()

    def id_at(self, place: int) -> str | None:
        """Return the id as the row at this place has it."""
        return self.spellings[place % len(self.spellings)] if self.spellings else self.id


@dataclass(frozen=True, slots=True)
class NeighbourPeople:
    """Two sets of people that differ by one person, or by nothing if `is_equal`."""

    description: str
    first: tuple[GeneratedPerson, ...]
    second: tuple[GeneratedPerson, ...]
    is_equal: bool = False
    is_reversed: bool = False  # whether the rows of `second` are stored in the other order


Pick = Callable[[Column, int], Any]  # the value of a column in the n-th row


def ordinary(who: str) -> Pick:
    """Return a function that picks values within the declared bounds, by a hash."""

    def pick(column: Column, place: int) -> Any:
        digest = hashlib.blake2b(f"{who}/{column.name}/{place}".encode(), digest_size=8).digest()
        return _inside(column.kind, int.from_bytes(digest))

    return pick


def _inside(kind: Kind, number: int) -> Any:
    """Return one of the values that a kind declares."""
    codes = codes_of(kind)
    if codes is None:
        return WORDS[number % len(WORDS)]
    return _value(kind, codes[number % len(codes)])


def _value(kind: Kind, code: int) -> Any:
    if isinstance(kind, Truth):
        return bool(code)
    assert isinstance(kind, Numeric | Choice | Moment | Period)
    return kind.value(code)


def _end(column: Column, end: int) -> Any:
    codes = codes_of(column.kind)
    return WORDS[0] if codes is None else _value(column.kind, codes[end])


def _lowest(column: Column, _place: int) -> Any:
    return _end(column, 0)


def _highest(column: Column, _place: int) -> Any:
    return _end(column, -1)


def _in_turn(column: Column, place: int) -> Any:
    """Return the least and the greatest value in turn: sums cancel, and squares do not."""
    return (_lowest if place % 2 else _highest)(column, place)


def _far_beyond(column: Column, place: int) -> Any:
    """Return values beyond all bounds, and values that are not declared."""
    match column.kind:
        case Numeric():
            return (1e300, -1e300, float("inf"), float("-inf"))[place % 4]
        case Moment() | Period():
            return (date(1000, 1, 1), date(9000, 1, 1))[place % 2]
        case Choice(values) if all(
            isinstance(value, int) and not isinstance(value, bool) for value in values
        ):
            return 10**15 + place
        case Choice() | Text():
            return "lapwing: a value that nobody declared"
    return _in_turn(column, place)


def _above(column: Column, place: int) -> Any:
    """Return numbers and dates above their bound, by so little that each type can store them."""
    return _outside(column, 1) if isinstance(column.kind, _BOUNDED) else _highest(column, place)


def _below(column: Column, place: int) -> Any:
    """Return numbers and dates below their bound, by so little that each type can store them."""
    return _outside(column, -1) if isinstance(column.kind, _BOUNDED) else _lowest(column, place)


def _just_below(column: Column, place: int) -> Any:
    """Return the number just below the least one: as a double, its code is still that of the bound."""
    if not isinstance(column.kind, Numeric):
        return _below(column, place)
    return math.nextafter(float(_lowest(column, place)), -math.inf)


_BOUNDED = (Numeric, Moment, Period)


def _outside(column: Column, sign: int) -> Any:
    """Return a value that moves a sum by more than its bounds, if it is not clamped; its code fits."""
    codes = codes_of(column.kind)
    reach = 1 << 20 if codes is None else max(abs(codes[0]), abs(codes[-1]))
    room = next(size for bits in (7, 15, 31, 63) if (size := (1 << bits) - 1) > reach)
    code = sign * min(reach + max(1, reach // 2), room)
    if isinstance(column.kind, Numeric):
        return float(code * column.kind.step)
    try:
        return _value(column.kind, code)
    except (ValueError, OverflowError):  # there is no such date
        return _end(column, -(sign > 0))


def _missing(column: Column, place: int) -> Any:
    """Return NULL, and NaN in every second row of a number."""
    return float("nan") if isinstance(column.kind, Numeric) and place % 2 else None


def _partly_missing(names: Collection[str]) -> Pick:
    """Return a function that picks NULL in these columns, and the greatest value in the others."""
    return lambda column, place: None if column.name in names else _highest(column, place)


def _parts(policy: CheckedPolicy) -> Iterator[frozenset[str]]:
    """Yield sets of columns: of any two columns of a table, some set has one and not the other."""
    listed = [list(table.columns) for table in policy.private_tables]
    for bit in range(max((len(names) - 1).bit_length() for names in listed)):
        for side in (1, 0):
            yield frozenset(
                name for names in listed for at, name in enumerate(names) if at >> bit & 1 == side
            )


def _rare(column: Column, place: int) -> Any:
    """Return as many different values as there are: texts that one or nobody has, and other groups."""
    codes = codes_of(column.kind)
    if codes is None:
        return f"lapwing rare {place}"
    return _value(column.kind, codes[(place * max(1, len(codes) // 7)) % len(codes)])


def _same(code: int) -> Pick:
    """Return a function that picks the same key in each row, and the greatest number."""

    def pick(column: Column, place: int) -> Any:
        codes = codes_of(column.kind)
        if codes is None or not isinstance(column.kind, Choice | Truth):
            return _highest(column, place)
        return _value(column.kind, codes[code % len(codes)])

    return pick


def neighbours(policy: CheckedPolicy) -> list[NeighbourPeople]:
    """Return neighbours: a person who joins generated people, people in another order, and nobody.

    The first `QUICK` of them are for a quick audit.
    """
    crowd = tuple(_crowd(policy))

    def joins(
        description: str, pick: Pick, *, times: int = 1, more: int = 0, who: str = "target"
    ) -> NeighbourPeople:
        person = _person(policy, who, pick, times=times, more=more)
        return NeighbourPeople(f"generated people, and one more: {description}", crowd, (*crowd, person))

    def stored_as(kind: str) -> Iterator[NeighbourPeople]:
        """Yield people whose numbers are stored in another type, and one more beyond the bounds."""
        others = tuple(replace(person, numbers=kind) for person in crowd)
        beyond = {
            "just above the bounds": _above,
            "just below the bounds": _below,
            "far beyond": _far_beyond,
        }
        for words, pick in beyond.items():
            person = replace(_person(policy, "target", pick), numbers=kind)
            text = f"generated people with numbers stored as {kind}, and one more: {words}"
            yield NeighbourPeople(text, others, (*others, person))

    def lacks(names: Collection[str]) -> NeighbourPeople:
        words = f"as many rows as count, which lack {', '.join(sorted(names))}"
        return joins(words, _partly_missing(names))

    typed = {kind: list(stored_as(kind)) for kind in NUMBER_TYPES[1:]}
    partly = [lacks(names) for names in _parts(policy)]
    alone = (_person(policy, "target", _highest),)
    single = (_person(policy, "P1", ordinary("P1"), times=0, more=1),)
    pairs = [
        joins("as many rows as count, each at the greatest value", _highest),
        joins("as many rows as count, with rare keys", _rare),
        joins("many more rows than count", ordinary("target"), times=3, more=5),
        NeighbourPeople(
            "generated people, stored in another order", crowd, crowd, is_equal=True, is_reversed=True
        ),
        NeighbourPeople("nobody, and one person with the greatest values", (), alone),
        joins("as many rows as count, without values (NULL, NaN)", _missing),
        *partly[:2],
        joins("each row has the second of its keys", _same(1)),
        joins("values beyond all bounds, and values that are not declared", _far_beyond, times=2),
        *typed[NUMBER_TYPES[1]],
        *(typed[kind][0] for kind in NUMBER_TYPES[2:]),
        joins("numbers and dates just above their bounds", _above),
        joins("numbers and dates just below their bounds", _below),
        joins("as many rows as count, each at the least value", _lowest),
        joins("as many rows as count, at the least and the greatest value in turn", _in_turn),
        joins("one row", ordinary("one row"), times=0, more=1),
        joins("no row", ordinary("no row"), times=0),
        NeighbourPeople("nobody, and one person with one row", (), single),
    ]
    pairs += [pair for kind in NUMBER_TYPES[2:] for pair in typed[kind][1:]]
    pairs += [
        *partly[2:],
        joins("numbers just below their bounds, by one bit", _just_below),
        *(
            joins(f"each row has code {code} of its keys", _same(code))
            for code in (0, *range(2, SAME_KEYS))
        ),
    ]
    if policy.folds_ids:
        pairs.insert(0, _spelled_ids(policy, crowd))
    else:
        pairs += [
            joins("an id like that of another person, but for a space", _highest, who=" P1", times=2),
            joins("an id like that of another person, but for a capital", _in_turn, who="p1", times=2),
        ]
    if all(table.unit is not None and table.unit.column for table in policy.private_tables):
        lost = tuple(GeneratedPerson(who, _person(policy, "x", _highest).rows) for who in NOBODIES)
        pairs.append(
            NeighbourPeople(
                "generated people, and rows without an id, which belong to nobody",
                crowd, (*crowd, *lost), is_equal=True,
            )
        )  # fmt: skip
    return pairs


def _spelled_ids(policy: CheckedPolicy, crowd: tuple[GeneratedPerson, ...]) -> NeighbourPeople:
    """Return people, and one more with as many rows as count in each of several spellings of one id."""
    spellings = ("target", " target", "TARGET", "Target ")
    person = replace(_person(policy, "target", _highest, times=len(spellings)), spellings=spellings)
    return NeighbourPeople(
        "generated people, and one more, whose id is written in several ways", crowd, (*crowd, person)
    )


def _crowd(policy: CheckedPolicy) -> Iterator[GeneratedPerson]:
    """Yield the people of both neighbours. The first has more rows than count, the others have few.

    The last alone has two rare keys: one more person with them makes two people.
    """
    for number in range(PEOPLE):
        who = f"P{number}"
        times, more = (1, 3) if number == 0 else (0, number % 4)
        pick = _rare if number == PEOPLE - 1 else ordinary(who)
        yield _person(policy, who, pick, times=times, more=more)


def _person(
    policy: CheckedPolicy, who: str, pick: Pick, *, times: int = 1, more: int = 0
) -> GeneratedPerson:
    """Return a person with `times` · K + `more` rows in each table, K being its contribution bound."""
    rows = {}
    for table in policy.private_tables:
        assert table.unit is not None
        count = min(times * table.rows_per_unit + more, MOST_ROWS)
        if not table.unit.column:  # each row is a unit
            count = min(count, 1)
        rows[table.name] = [
            {column.name: _in_block(policy.blocks, column, pick, n) for column in table.columns.values()}
            for n in range(count)
        ]
    return GeneratedPerson(who, rows)


def _in_block(blocks: BlockRule | None, column: Column, pick: Pick, place: int) -> Any:
    """Return a value. Where blocks are periods, a unit is a person in one period: all rows lie in one."""
    if blocks is not None and blocks.by == "row" and column.name == blocks.column:
        codes = codes_of(column.kind)
        assert codes is not None
        return _value(column.kind, codes[len(codes) // 2])
    return pick(column, place)


def rows_of_table(
    people: Sequence[GeneratedPerson], table: CheckedTable
) -> Iterator[tuple[GeneratedPerson, int, Row]]:
    """Yield the rows of a table, with the person and the number of the row among theirs."""
    for person in people:
        for place, row in enumerate(person.rows[table.name]):
            yield person, place, row
