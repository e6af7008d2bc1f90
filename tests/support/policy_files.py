"""Texts of policy files, and short ways to load them and to see what is wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.errors import BadFile
from lapwing.sql.policy.kinds import Kind
from lapwing.sql.policy.policy import CheckedPolicy, Source
from lapwing.sql.policy.policy_draft import KnownFacts, draft_of, read_schema
from lapwing.sql.policy.policy_file import load_policy

HEAD = """\
[dataset]
name = "visits"
[budget]
epsilon = 3.0
delta = 1e-7
"""
TABLE = """\
[tables.visits]
source = "visits.parquet"
unit = "patient_id"
rows_per_unit = 5
"""
GOOD = HEAD + TABLE
PUBLIC = """
[tables.wards]
source = "wards.csv"
public = true
"""
PERIODS = """
[tables.visits.columns.admitted]
low = 2023-11-15
high = 2024-02-01
[blocks]
by = "row"
column = "admitted"
every = "{every}"
"""
PERSON_PERIOD = GOOD.replace('"visits"\n', '"visits"\nprotects = "person-period"\n', 1)


def loaded(text: str) -> CheckedPolicy:
    Path("visits.toml").write_text(text, encoding="utf-8")
    return load_policy("visits.toml")


def mistakes(text: str) -> list[str]:
    with pytest.raises(BadFile) as caught:
        loaded(text)
    return list(caught.value.mistakes)


def kind(declared: str) -> Kind:
    return loaded(GOOD + f"[tables.visits.columns.c]\n{declared}").tables["visits"].columns["c"].kind


def complaint(declared: str) -> str:
    """The one mistake of a column, without the file."""
    (found,) = mistakes(GOOD + f"[tables.visits.columns.c]\n{declared}")
    return found.removeprefix("visits.toml:")


def source(text: str, table: str = "visits") -> Source:
    return (
        loaded(HEAD + TABLE.replace("visits.parquet", text).replace("visits]", f"{table}]"))
        .tables[table]
        .source
    )


def table(name: str, through: str) -> str:
    unit = f'unit = {{ through = "{through}", by = "a", key = "k" }}'
    return f'[tables.{name}]\nsource = "wards.csv"\nrows_per_unit = 1\n{unit}\n'


def draft(source: str, *, unit: str | None) -> str:
    """The text of a policy for a source, to be saved in the current folder."""
    return draft_of(read_schema(source, folder=Path.cwd()), KnownFacts(unit))
