"""Mistakes that pydantic finds are told in plain words, all at once, and never show a long value."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

import pytest
from pydantic import Field

from lapwing.config.file_table import FileTable, Flag, Label, Number, Text, needed, one_of, read_table
from lapwing.config.toml_text import FileMistakes
from lapwing.errors import BadFile


class Inner(FileTable):
    """A table within others."""

    size: int | None = needed("size = 3", ge=1, le=1000)
    share: Number | None = None
    kind: Annotated[Text, one_of(("old", "new"))] | None = "old"


class Outer(FileTable):
    """A whole file."""

    name: Label | None = needed('name = "x"')
    flag: Flag = False
    day: date | None = None
    first: Inner = needed("[first] with size")
    second: Inner | None = None
    named: dict[str, Inner] = Field(default_factory=dict, alias="by")


def told(values: dict[str, Any]) -> tuple[Outer, list[str]]:
    mistakes = FileMistakes("f.toml")
    table = read_table(Outer, values, mistakes)
    try:
        mistakes.complain()
    except BadFile as error:
        return table, [one.removeprefix("f.toml:1: ") for one in error.mistakes]
    return table, []


def test_a_right_file_is_read_exactly() -> None:
    values = {"name": "a", "first": {"size": 2, "share": Decimal("0.1")}, "by": {"x": {"size": 1}}}
    table, found = told(values)
    assert not found
    assert (table.first.share, table.named["x"].size, table.second) == (Fraction(1, 10), 1, None)
    assert table.first.has("share")
    assert not table.first.has("kind")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": 5}, "name: must be a text in quotes, not a whole number"),
        ({"name": " a"}, "name: must be printable, on one line, without spaces around it"),
        ({"nmae": 5}, 'nmae: unknown key. Did you mean "name"?'),
        ({"flag": 1}, "flag: must be true or false, without quotes, not a whole number"),
        ({"day": "x"}, "day: must be a date without quotes and time, such as 2027-01-31, not a text"),
        ({"first": 5}, "first: must be a table, not a whole number"),
        ({"first": {}}, "first.size: is missing. Write size = 3"),
        ({"first": {"size": True}}, "first.size: must be a whole number, not true or false"),
        ({"first": {"size": "5"}}, "first.size: must be a whole number, not a text. Remove the quotes"),
        ({"first": {"size": Decimal(5)}}, "first.size: must be a whole number, not a decimal number"),
        ({"first": {"size": 1001}}, "first.size: must lie between 1 and 1,000"),
        ({"first": {"size": 16**5000}}, "first.size: must lie between 1 and 1,000"),
        (
            {"second": {"size": 1, "share": "1"}},
            "second.share: must be a number, not a text. Remove the quotes",
        ),
        (
            {"second": {"size": 1, "kind": "odl"}},
            'second.kind: must be "old" or "new". Did you mean "old"?',
        ),
        ({"by": 5}, "by: must be a table of tables, not a whole number"),
        ({"by": {"size": 5}}, "by.size: must be a table, not a whole number"),
        ({"by": {"name": {"sise": 5, "size": 5}}}, 'by.name.sise: unknown key. Did you mean "size"?'),
    ],
)
def test_a_mistake_is_told_in_plain_words(change: dict[str, Any], expected: str) -> None:
    values: dict[str, Any] = {"name": "a", "first": {"size": 2}}
    assert told({**values, **change})[1] == [expected]


def test_what_is_wrong_is_none_and_checks_go_on() -> None:
    table, found = told({"flag": "x", "first": {"size": 0, "odd": 1}, "by": {"a": 5, "b": {"size": 2}}})
    assert len(found) == 5
    assert (table.name, table.flag, table.first.size, list(table.named)) == (None, None, None, ["b"])
    table.named["b"].wrong("size", "is odd")
    table.note("is all wrong", "name")
    with pytest.raises(BadFile, match=r"by\.b\.size: is odd"):
        table._mistakes.complain()


def test_a_missing_table_has_no_more_mistakes() -> None:
    table, found = told({"name": "a"})
    assert found == ["first: is missing. Write [first] with size"]
    table.first.missing("size", "size = 3")
    with pytest.raises(BadFile) as caught:
        table._mistakes.complain()
    assert len(caught.value.mistakes) == 1


def test_no_mistake_shows_a_long_or_invisible_value() -> None:
    _, found = told({"name": "x" * 5000, "x" * 5000: 1, "first": {"size": 1, "kind": "\x1b" * 300}})
    assert len(found) == 3
    assert all(len(one) < 300 and one.isprintable() for one in found)


def test_the_help_of_the_command_line_does_not_load_pydantic() -> None:
    code = "import sys, lapwing, lapwing.cli.main; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
