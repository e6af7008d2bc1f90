"""Whatever stands in a file, it is a policy or its mistakes are told, and nothing else."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lapwing.config.toml_text import KeyScan
from lapwing.errors import BadFile
from lapwing.sql.policy.policy_file import BlocksTable, PolicyFile, load_policy
from lapwing.sql.policy.policy_tables import ColumnTable, DataTable, UnitTable
from support.policy_files import (
    GOOD,
    PUBLIC,
    mistakes,
)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"[dataset]\nname = \n", "visits.toml:2: is not TOML here: Invalid value"),
        (b"[dataset]\nname = 'a\n", "visits.toml:2: is not TOML here"),
        (b"[dataset\n", "visits.toml:1: is not TOML here"),
        (b"[dataset]\n\n[dataset]\n", "visits.toml:3: is not TOML here"),
        (b"a = 1\nb = " + b"9" * 5000, "visits.toml:2: is not TOML here: Exceeds the limit"),
        (b"a = [1,\n2,\n", "visits.toml:2: is not TOML here"),
        (b"a = 1\nb = '\xff'", "visits.toml:2: is not UTF-8 here"),
        (b"a = " + b"[" * 100_000, "visits.toml: is nested too deeply"),
        (b"#" * ((1 << 20) + 1), "visits.toml: is larger than 1 MiB"),
    ],
)
def test_what_is_not_a_toml_file_is_told_where(raw: bytes, expected: str) -> None:
    Path("visits.toml").write_bytes(raw)
    with pytest.raises(BadFile) as caught:
        load_policy("visits.toml")
    assert caught.value.mistakes[0].startswith(expected)


def test_what_is_no_file_is_told_so(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for path, expected in (
        ("gone.toml", "gone.toml: there is no such file. `lapwing init DATA` drafts one"),
        ("empty", "empty: is a folder. Name the policy file in it"),
        ("pipe", "pipe: is not a file"),
        ("a\0b\n", '"a\\u0000b\\n": there is no such file'),
    ):
        with pytest.raises(BadFile) as caught:
            load_policy(path)
        assert str(caught.value).startswith(expected)


def test_a_policy_has_limits() -> None:
    many = "".join(f'[tables.t{n}]\nsource = "wards.csv"\npublic = true\n' for n in range(500))
    assert any("tables: must be at most 500" in line for line in mistakes(GOOD + many))
    columns = "[tables.visits.columns]\n" + "".join(f'c{n}.type = "text"\n' for n in range(5001))
    assert any("tables: must declare at most 5,000 columns" in line for line in mistakes(GOOD + columns))
    wrong = "[tables.visits.columns]\n" + "".join(f"c{n} = 1\n" for n in range(300))
    assert mistakes(GOOD + wrong)[-1] == "visits.toml: and 200 more mistakes"


def keys_in(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*above, name)
            yield from keys_in(inner, (*above, name))
    elif isinstance(value, list):
        for inner in value:
            yield from keys_in(inner, above)


def test_every_key_has_the_line_on_which_it_stands() -> None:
    text = (
        'a = """\n=[{"\n\\"""" # [x]\n[b."c.d".e] # = [\n'
        "'f' = [ # ]\n  {g = 1, h = {\"i\" = '}'}},\n  2024-01-01 07:00:00,\n]\n"
        "j.k = 1.5\n[b]\nl = '''\n[m]\n'''\n[[n]]\no = 1\n[[n]]\no = 2\n[n.p]\n"
    )
    assert KeyScan().run(text).lines == {
        ("a",): 1, ("b",): 10, ("b", "c.d"): 4, ("b", "c.d", "e"): 4, ("b", "c.d", "e", "f"): 5,
        ("b", "c.d", "e", "f", "g"): 6, ("b", "c.d", "e", "f", "h"): 6, ("b", "c.d", "e", "f", "h", "i"): 6,
        ("b", "c.d", "e", "j"): 9, ("b", "c.d", "e", "j", "k"): 9, ("b", "l"): 11,
        ("n",): 14, ("n", "o"): 15, ("n", "p"): 18,
    }  # fmt: skip
    assert set(KeyScan().run(text).lines) == set(keys_in(tomllib.loads(text)))


WORDS = st.sampled_from(
    [
        *PolicyFile.by_key(),
        *ColumnTable.by_key(),
        *DataTable.by_key(),
        *UnitTable.by_key(),
        *BlocksTable.by_key(),
        "visits",
        "stay",
        "name",
        "epsilon",
        "delta",
        "url",
    ]
)
LEAVES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
    st.times(),
    st.sampled_from(
        [
            "visits.parquet",
            "person-period",
            "row",
            "unit",
            "month",
            "text",
            "spark:x",
            "../**",
            "postgresql://[",
        ]
    ),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=4), inner, max_size=4)
    ),
)
MANY = settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@MANY
@given(
    st.dictionaries(WORDS, VALUES, max_size=7),
    st.lists(st.tuples(st.lists(WORDS, max_size=5), VALUES), max_size=4),
)
def test_whatever_a_file_says_only_its_mistakes_are_raised(
    garbage: dict[str, Any], changes: list[tuple[list[str], Any]]
) -> None:
    good = tomllib.loads(GOOD + PUBLIC + "[tables.visits.columns.stay]\nlow = 0\nhigh = 5\n")
    for path, value in changes:  # a good policy with a few wrong places gets further than garbage
        inside = good
        for name in path[:-1]:
            inside = inside[name] if isinstance(inside.get(name), dict) else inside
        inside[path[-1] if path else "tables"] = value
    for values in (garbage, good):
        try:
            text = tomlkit.dumps(values)
            tomllib.loads(text)
        except (ValueError, TypeError):  # what tomlkit cannot write
            continue
        assert set(KeyScan().run(text).lines) == set(keys_in(tomllib.loads(text)))
        Path("visits.toml").write_text(text, encoding="utf-8", newline="")
        found: tuple[str, ...] = ()
        try:
            load_policy("visits.toml")
        except BadFile as error:
            found = error.mistakes
        assert all(line.startswith("visits.toml:") and line.isprintable() for line in found)


@MANY
@given(st.binary(max_size=200) | st.text("[]{}=.,\"'#\n ab1-:", max_size=60).map(str.encode))
def test_whatever_bytes_a_file_has_only_its_mistakes_are_raised(raw: bytes) -> None:
    Path("visits.toml").write_bytes(raw)
    with pytest.raises(BadFile):
        load_policy("visits.toml")
