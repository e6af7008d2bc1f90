"""Every mistake in a policy file is told with its line and what to write."""

from __future__ import annotations

import pytest

from lapwing.errors import BadParameter
from lapwing.sql.policy.policy_file import load_policy
from support.cases import each
from support.policy_files import (
    GOOD,
    HEAD,
    PUBLIC,
    complaint,
    mistakes,
    table,
)


@each(
    ("declared", "expected"),
    [
        ("", "10: tables.visits.columns.c: says nothing about its values. Write one of: values"),
        (
            "hihg = 3\nlow = 0\nhigh = 3",
            '11: tables.visits.columns.c.hihg: unknown key. Did you mean "high"?',
        ),
        ("low = 0", "10: tables.visits.columns.c.high: is missing. Write high = … beside low"),
        ("high = 0", "10: tables.visits.columns.c.low: is missing"),
        ("low = 0\nhigh = 1.5", "10: tables.visits.columns.c.step: is missing. Write step = 0.01"),
        ("low = 2\nhigh = 2", "11: tables.visits.columns.c.low: must be below high"),
        ("low = 0\nhigh = 5\nstep = 9", "13: tables.visits.columns.c.step: leaves fewer than two"),
        ("low = 0\nhigh = 5\nstep = 0", "13: tables.visits.columns.c.step: must be above 0"),
        ("low = 0.1\nhigh = 1.9\nstep = 1", "13: tables.visits.columns.c.step: leaves fewer than two"),
        ("low = 0\nhigh = 4503599627370496", "step: is too fine: bounds must be within 2^52"),
        (
            "low = 0\nhigh = 0x" + "f" * 5000,
            "10: tables.visits.columns.c.step: and bounds must lie between",
        ),
        ("low = 0\nhigh = nan\nstep = 1", "12: tables.visits.columns.c.high: is not a finite number"),
        ("low = -inf\nhigh = 1\nstep = 1", "11: tables.visits.columns.c.low: is not a finite number"),
        ("low = 0\nhigh = 1e99999\nstep = 1", "12: tables.visits.columns.c.high: is too large"),
        (f"low = 0\nhigh = 1e{'9' * 30}\nstep = 1", "12: tables.visits.columns.c.high: is not a finite"),
        ('low = "0"\nhigh = 5', "low: must be a number, not a text. Remove the quotes"),
        ("low = true\nhigh = 5", "low: must be a number, not true or false"),
        (
            "low = 2024-01-01\nhigh = 5",
            "high: must be of the same kind as low: low is a date, high a whole",
        ),
        ("low = 2024-01-01\nhigh = 2024-02-01T00:00:00", "high: must be written like low: both as dates"),
        ("low = 2024-01-01\nhigh = 2023-01-01", "low: must be below high"),
        ('low = 2024-01-01\nhigh = 2025-01-01\nstep = "hour"', 'step: must be "day" for dates'),
        (
            "low = 2024-01-01T00:00:00\nhigh = 2025-01-01T00:00:00\nstep = 5",
            "step: must be a text in quotes",
        ),
        (
            'low = 2024-01-01T00:00:00\nhigh = 2025-01-01T00:00:00\nstep = "minutes"',
            'step: must be "second", "minute", "hour" or "day". Did you mean "minute"?',
        ),
        (
            "low = 0001-01-01T00:00:00+23:00\nhigh = 2025-01-01T00:00:00",
            "low: and high must lie in the years",
        ),
        ("low = 07:30:00\nhigh = 8", "low: must be a number, not a time of day"),
        ("values = []", "values: must list 1 to 1,000,000 values"),
        ('values = "A"', 'values: must be a list such as ["A", "B"], not a text'),
        (
            'values = ["A", 1]',
            "values: must be all texts, all whole numbers, or true and false: see value 2",
        ),
        ("values = [1, true]", "see value 2"),
        ("values = [1.5, 2.5]", "see value 1"),
        ('values = ["A", "B", "A"]', "values: must be distinct: value 3 is value 1 again"),
        ('values = ["A\\u0000"]', "and no NUL: see value 1"),
        ("values = [9223372036854775808]", "values: must be whole numbers within 2^63 of 0: see value 1"),
        ('values = ["A"]\nlow = 1\nhigh = 2', "low: cannot stand beside values"),
        ('type = "text"\nvalues = ["A"]', "type: cannot stand beside values"),
        ('type = "text"\nstep = 1', "step: belongs to low and high only"),
        ('type = "string"', 'type: must be "text" or "bool". Write type = "text"'),
        ('type = "integer"', "Write low and high, such as"),
        ('type = "txt"', 'Did you mean "text"?'),
        ('hidden = "yes"\ntype = "text"', "hidden: must be true or false, without quotes, not a text"),
        ('type = "text"\nmissing = "A"', "missing: must be left out"),
        ("values = [0, 1]\nmissing = false", "missing: must be one of the declared values"),
        (
            "low = 0\nhigh = 4\nstep = 2\nmissing = 3",
            "missing: must be a multiple of step between low and high",
        ),
        ("low = 0\nhigh = 4\nmissing = 5", "missing: must be a multiple of step between"),
        ('low = 0\nhigh = 4\nmissing = "x"', "missing: must be a number, not a text"),
        (
            "low = 2024-01-01\nhigh = 2025-01-01\nmissing = 2024-05-05T00:00:00",
            "missing: must be a date between",
        ),
        ("low = 2024-01-01\nhigh = 2025-01-01\nmissing = 5", "missing: must be a date between"),
        ('type = "bool"\nmissing = 1', "missing: must be true or false"),
    ],
)
def test_a_wrong_column_is_told_what_to_write(declared: str, expected: str) -> None:
    assert expected in complaint(declared)


@each(
    ("before", "after", "expected"),
    [
        ('name = "visits"', "", "1: dataset.name: is missing. Write name ="),
        ('name = "visits"', "name = 5", "2: dataset.name: must be a text in quotes, not a whole number"),
        ('name = "visits"', 'name = ""', "2: dataset.name: must not be empty"),
        ('name = "visits"', 'name = "a\\nb"', "2: dataset.name: must be printable, on one line"),
        ('name = "visits"', f'name = "{"a" * 300}"', "2: dataset.name: must have 1 to 200 characters"),
        ('name = "visits"', 'nme = "v"\nname = "v"', '2: dataset.nme: unknown key. Did you mean "name"?'),
        ('name = "visits"', 'name = "v"\nx = 1', "3: dataset.x: unknown key. Known here: ids, name, "),
        (
            'name = "visits"',
            'name = "v"\nprotects = "persons"',
            'dataset.protects: must be "person", "row" or',
        ),
        (
            'name = "visits"',
            'name = "v"\nprotects = "person-period"',
            "blocks: is missing. Write [blocks] with",
        ),
        ("epsilon = 3.0", "", "3: budget.epsilon: is missing. Write epsilon = 3.0"),
        ("epsilon = 3.0", "epsilon = 0", "4: budget.epsilon: must be above 0"),
        ("epsilon = 3.0", "epsilon = 1001", "4: budget.epsilon: must lie between 1e-9"),
        ("epsilon = 3.0", "epsilon = nan", "4: budget.epsilon: is not a finite number"),
        (
            "epsilon = 3.0",
            'epsilon = "3"',
            "4: budget.epsilon: must be a number, not a text. Remove the quotes",
        ),
        ("epsilon = 3.0", "epsilon = true", "4: budget.epsilon: must be a number, not true or false"),
        ("delta = 1e-7", "delta = 1", "5: budget.delta: must lie in [0, 1)"),
        ("delta = 1e-7", "delta = -1e-9", "5: budget.delta: must lie in [0, 1)"),
        (
            "delta = 1e-7",
            "delta = 1e-7\ndelta_per_query = 1e-8",
            "6: budget.delta_per_query: must be at most 6%",
        ),
        (
            "delta = 1e-7",
            "delta = 1e-7\nleast_epsilon = 3.1",
            "6: budget.least_epsilon: must be at most epsilon",
        ),
        ("[dataset]", "[data]", '1: data: unknown key. Did you mean "dataset"?'),
        ('source = "visits.parquet"', "", "6: tables.visits.source: is missing"),
        ('source = "visits.parquet"', "source = 1", "7: tables.visits.source: must be a text"),
        ('unit = "patient_id"', "", "6: tables.visits.unit: is missing. Write unit ="),
        ('unit = "patient_id"', 'unit = ""', "8: tables.visits.unit: is empty. Write unit ="),
        (
            'unit = "patient_id"',
            'unit = ["a", "b"]',
            "8: tables.visits.unit: must be the name of one column, not a list",
        ),
        (
            'unit = "patient_id"',
            'unit = "a b"',
            "8: tables.visits.unit: must name a column. A name has letters",
        ),
        ('unit = "patient_id"', 'unit = "a"\nunit = "b"', "9: is not TOML here: Cannot overwrite a value"),
        (
            'unit = "patient_id"',
            'unit = "a"\npublic = true\nrows = 5',
            "8: tables.visits.unit: cannot stand in a public",
        ),
        (
            'unit = "patient_id"',
            'unit = { through = "x", by = "a" }',
            "8: tables.visits.unit.key: is missing",
        ),
        (
            'unit = "patient_id"',
            'unit = { through = "x", by = "a", key = "k" }',
            "unit.through: there is no such table",
        ),
        (
            'unit = "patient_id"',
            'unit = { thru = "x" }',
            '8: tables.visits.unit.thru: unknown key. Did you mean "through"?',
        ),
        (
            'unit = "patient_id"',
            'unit = { through = "visits", by = "a", key = "k" }',
            "through: is this table itself",
        ),
        ("rows_per_unit = 5", "", "6: tables.visits.rows_per_unit: is missing. Write rows_per_unit = 5"),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 0",
            "9: tables.visits.rows_per_unit: must lie between 1 and 1,000,000",
        ),
        ("rows_per_unit = 5", "rows_per_unit = 5.0", "must be a whole number, not a decimal number"),
        (
            "rows_per_unit = 5",
            'rows_per_unit = "5"',
            "must be a whole number, not a text. Remove the quotes",
        ),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 5\nrows = -1",
            "10: tables.visits.rows: must lie between 1 and",
        ),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 5\nprimary_key = []",
            "primary_key: must be a column or a list",
        ),
        (
            "rows_per_unit = 5",
            'rows_per_unit = 5\nprimary_key = ["a", "A"]',
            "primary_key: must name each column once",
        ),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 5\ncolumns = 5",
            "tables.visits.columns: must be a table of tables",
        ),
        (
            "rows_per_unit = 5",
            "rows_per_unit = 5\ncolumns.c = 5",
            "tables.visits.columns.c: must be a table, not",
        ),
        (
            "[tables.visits]",
            '[tables."vis its"]',
            '6: tables."vis its": is not a valid name. A name has letters',
        ),
        (
            "[tables.visits]",
            "[tables.lapwing_x]",
            "6: tables.lapwing_x: is not a valid name. A name must not begin",
        ),
        ("[tables.visits]", "[[tables]]", "6: tables: must be a table of tables, not a list"),
        ("[tables.visits]", "[table.visits]", '6: table: unknown key. Did you mean "tables"?'),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_to_write(before: str, after: str, expected: str) -> None:
    assert before in GOOD
    assert expected in "\n".join(mistakes(GOOD.replace(before, after, 1)))


@each(
    ("more", "expected"),
    [
        (
            '[blocks]\nby = "units"\ncohorts = 3',
            '11: blocks.by: must be "unit" or "row". Did you mean "unit"?',
        ),
        ("[blocks]\ncohorts = 3", "10: blocks.by: is missing"),
        ('[blocks]\nby = "unit"', "10: blocks.cohorts: is missing. Write cohorts = 64"),
        ('[blocks]\nby = "unit"\ncohorts = 100_001', "12: blocks.cohorts: must lie between 1 and 100,000"),
        (
            '[blocks]\nby = "unit"\ncohorts = 3\nevery = "month"',
            "13: blocks.every: cannot stand beside cohorts",
        ),
        ('[blocks]\nby = "unit"\nevery = "year"', '12: blocks.every: must be "month"'),
        (
            '[blocks]\nby = "unit"\ncohorts = 3\ncolumn = "Patient_ID"',
            "13: blocks.column: [tables.visits] has such",
        ),
        (
            '[blocks]\nby = "row"\ncolumn = "a"\nevery = "day"',
            '11: blocks.by: "row" protects a person in one period',
        ),
        ('[ledger]\nurl = "sqlite:///x"', "11: ledger.url: must be a path, or begin with postgresql://"),
        ('[ledger]\nurl = "visits.toml"', "11: ledger.url: must be a file of its own"),
        ('[ledger]\nurl = "empty"', "11: ledger.url: must be a file of its own"),
        ('[ledger]\nkeys = "postgresql://x"', "11: ledger.keys: must be the path of a file"),
        ("[analysts.ana]\nepsilon = 1", "10: analysts.ana.delta: is missing"),
        (
            "[analysts.ana]\nepsilon = 4\ndelta = 0",
            "11: analysts.ana.epsilon: must be at most budget.epsilon",
        ),
        ("[analysts]\nana = 4", "11: analysts.ana: must be a table, not a whole number"),
        ("[engine]\ntimeout = 0", "11: engine.timeout: must lie between 1 and 86,400"),
        ('[tables.Visits]\nsource = "wards.csv"\npublic = true', '10: tables.Visits: is "visits" again'),
        ("[tables.visits.columns.Patient_Id]\nhidden = true", "columns.Patient_Id: is the unit"),
        ('[tables.visits.columns]\na.type = "text"\nA.type = "text"', 'columns.A: is "a" again'),
        (table("p", "wards") + PUBLIC, "13: tables.p.unit.through: must be a private table"),
        (table("p", "visit"), '13: tables.p.unit.through: there is no such table. Did you mean "visits"?'),
        (table("p", "visits") + table("q", "p"), "17: tables.q.unit.through: must hold the unit itself"),
        (
            '[tables.p]\nsource = "postgresql://h/d"\nrows_per_unit = 1\nunit = "a"',
            "11: tables.p.source: must lie in the same engine as [tables.visits]",
        ),
        (
            '[tables.p]\nsource = "spark:wards"\npublic = true',
            "same engine as [tables.visits], or be a file",
        ),
    ],
)
def test_a_mistake_between_parts_is_told(more: str, expected: str) -> None:
    assert expected in "\n".join(mistakes(GOOD + more))


def test_all_mistakes_are_told_together_in_the_order_of_the_file() -> None:
    text = (
        GOOD.replace("3.0", "0").replace("patient_id", "")
        + "[tables.visits.columns.stay]\nlow = 0\nhihg = 3\n"
    )
    found = mistakes(text)
    assert [line.split(":")[1] for line in found] == ["4", "8", "10", "12"]
    assert found[3] == 'visits.toml:12: tables.visits.columns.stay.hihg: unknown key. Did you mean "high"?'
    with pytest.raises(BadParameter) as caught:
        load_policy("visits.toml")
    assert str(caught.value) == "\n".join(found)


def test_an_empty_file_is_told_what_a_policy_needs() -> None:
    assert [line.split(": ")[1] for line in mistakes("")] == ["dataset", "budget", "tables"]


def test_a_policy_without_private_tables_protects_nobody() -> None:
    assert "tables: name no private table" in mistakes(HEAD + PUBLIC)[0]
    assert "tables: name no private table" in mistakes(HEAD + "[tables]")[0]
