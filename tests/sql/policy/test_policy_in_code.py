"""A policy in code and the file that says the same are one thing."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lapwing
from lapwing.errors import BadFile, BadParameter
from lapwing.sql.curator import Curator
from lapwing.sql.policy import policy_file, policy_in_code, policy_tables
from lapwing.sql.policy.policy_file import load_policy
from support.cases import each
from support.raised import named

FRAME = pa.table({"who": [1, 2], "city": ["Oslo", "Bergen"], "amount": [1, 2]})
UNIT: dict[str, Any] = {"unit": "who", "rows_per_unit": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("who,city,amount\n1,Oslo,3\n")
    return tmp_path


def made(source: Any = "rows.csv", **words: Any) -> lapwing.Policy:
    """A policy of one table. `words` are those of the policy, or else of the table."""
    of_table = {name: words.pop(name) for name in list(words) if name in policy_in_code._WORDS}
    table = lapwing.Table("orders", source, **{**UNIT, **of_table})
    return lapwing.Policy(**{"name": "orders", "epsilon": 3, "delta": 1e-7, "tables": [table], **words})


def mistakes(make: Callable[[], object]) -> str:
    with pytest.raises(BadParameter) as raised:
        make()
    return str(raised.value)


# The same words


def test_code_has_every_word_of_the_file() -> None:
    """In the order of neither: a word that is added to the file is missing here."""
    sections = set(policy_file.PolicyFile.by_key()) - {"dataset", "budget", "tables"}
    assert set(policy_in_code.SECTIONS) == sections
    assert set(policy_in_code.DATASET) == set(policy_file.DatasetTable.by_key())
    assert set(policy_in_code.BUDGET) == set(policy_file.BudgetTable.by_key())
    assert set(policy_in_code._WORDS) == set(policy_tables.DataTable.by_key())
    bounds = set(policy_tables.ColumnTable.by_key()) - {"values", "type", "hidden", "longest"}
    assert set(lapwing.between.__annotations__) - {"return"} == bounds


WHOLE = """
[dataset]
name = "orders"
population = "customers"
ids = "folded"
share_answers = true

[budget]
epsilon = 3
delta = 1e-7
delta_per_query = 1e-10
least_epsilon = 0.01

[blocks]
by = "unit"
cohorts = 8

[ledger]
url = "spent/orders.ledger"
registry = "registry"

[engine]
timeout = 60
threads = 1

[parties]
least_coalition = 2

[analysts.ann]
epsilon = 1.5
delta = 0

[analysts."*"]
epsilon = 0.5
delta = 1e-8

[tables.orders]
source = "rows.csv"
unit = "who"
rows_per_unit = 2
primary_key = ["who", "amount"]
rows = 1000
csv = { delimiter = ",", null = ["", "NA"] }

[tables.orders.columns]
city = { values = ["Oslo", "Bergen"], missing = "Oslo" }
amount = { low = 0, high = 500, step = 0.01, missing = 1.5 }
share = { low = 0.0, high = 1.0, step = 0.25, source = "Share of it" }
paid = { low = 2024-01-01, high = 2026-12-31 }
seen = { low = 2026-01-01T00:00:00, high = 2026-02-01T00:00:00+01:00, step = "hour" }
vip = { type = "bool" }
note = { type = "text", longest = 40 }
secret = { hidden = true }

[tables.visits]
source = "rows.csv"
unit = { through = "orders", by = "order", key = "key" }
rows_per_unit = 3

[tables.cities]
source = "frame"
public = true
"""


def whole() -> lapwing.Policy:
    between = lapwing.between
    return lapwing.Policy(
        "orders",
        epsilon=3,
        delta=1e-7,
        population="customers",
        ids="folded",
        share_answers=True,
        delta_per_query="1e-10",
        least_epsilon=Fraction(1, 100),
        blocks={"by": "unit", "cohorts": np.int64(8)},
        ledger={"url": Path("spent/orders.ledger"), "registry": "registry"},
        engine={"timeout": 60, "threads": 1, "memory": None},
        parties={"least_coalition": 2},
        analysts={"ann": {"epsilon": 1.5, "delta": 0}, "*": {"epsilon": "0.5", "delta": Decimal("1e-8")}},
        tables=(
            lapwing.Table(
                "orders",
                Path("rows.csv"),
                unit="who",
                rows_per_unit=2,
                primary_key=("who", "amount"),
                rows=1000,
                csv={"delimiter": ",", "null": ["", "NA"]},
                columns={
                    "city": {"values": ("Oslo", "Bergen"), "missing": "Oslo"},
                    "amount": between(0, "500", step="0.01", missing=1.5),
                    "share": between(0.0, Decimal(1), step=Fraction(1, 4), source="Share of it"),
                    "paid": between("2024-01-01", date(2026, 12, 31)),
                    "seen": between(
                        pd.Timestamp(2026, 1, 1),
                        datetime(2026, 2, 1, tzinfo=timezone(timedelta(hours=1))),
                        step="hour",
                    ),
                    "vip": "bool",
                    "note": {"type": "text", "longest": 40},
                    "secret": {"hidden": True},
                },
            ),
            lapwing.Table(
                "visits",
                "rows.csv",
                unit={"through": "orders", "by": "order", "key": "key"},
                rows_per_unit=3,
            ),
            lapwing.Table("cities", FRAME, public=True),
        ),
    )


def test_everything_that_a_file_says_can_be_said_in_code(folder: Path) -> None:
    file = folder / "orders.toml"
    file.write_text(WHOLE)
    policy, loaded = whole(), lapwing.Policy.load(file)
    assert repr(policy.checked(rows_follow=True)) == repr(loaded.checked(rows_follow=True))
    file.unlink()
    again = lapwing.Policy.load(policy.save("orders.toml"))
    assert repr(policy.checked(rows_follow=True)) == repr(again.checked(rows_follow=True))
    assert str(again) == str(policy)
    elsewhere = folder / "else where [1]"
    elsewhere.mkdir()
    policy.save(elsewhere / "orders.toml")
    moved = lapwing.Policy.load(elsewhere / "orders.toml").checked(rows_follow=True)
    here = policy.checked(rows_follow=True)
    assert moved.tables["orders"] == here.tables["orders"]
    assert (moved.ledger, moved.ledger_registry) == (here.ledger, here.ledger_registry)


TEXTS = st.text(min_size=1, max_size=20).filter(
    lambda text: "\0" not in text and all(not 0xD800 <= ord(letter) < 0xE000 for letter in text)
)
VALUES = st.one_of(
    st.lists(TEXTS, min_size=1, max_size=5, unique=True),
    st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1, max_size=5, unique=True),
    st.just([True, False]),
)
STEPS = st.sampled_from(["0.1", "1e-3", 0.25, 2, Fraction(1, 8), Decimal("5E+1")])
NUMBERS = st.builds(
    lambda low, width, step: lapwing.between(low, low + width, step=step),
    st.integers(-1000, 1000),
    st.integers(400, 800),
    STEPS,
)
DATES = st.builds(
    lambda first, days: lapwing.between(first, first + timedelta(days)),
    st.dates(date(1, 1, 2), date(9000, 1, 1)),
    st.integers(1, 1000),
)
TIMES = st.builds(
    lambda first, days, zone: lapwing.between(
        first.replace(tzinfo=zone), (first + timedelta(days)).replace(tzinfo=zone), step="hour"
    ),
    st.datetimes(datetime(2, 1, 1), datetime(9000, 1, 1)),
    st.integers(1, 1000),
    st.sampled_from([None, UTC, timezone(timedelta(hours=-5, minutes=-30))]),
)
COLUMNS = st.one_of(
    VALUES, NUMBERS, DATES, TIMES, st.sampled_from(["text", "bool", {"type": "text", "longest": 4}])
)
LABELS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30)


POLICIES = st.fixed_dictionaries(
    {
        "name": LABELS,
        "columns": st.dictionaries(st.from_regex(r"c[a-z0-9_]{0,8}", fullmatch=True), COLUMNS, max_size=4),
        "epsilon": st.one_of(st.floats(0.5, 100), st.decimals("0.5", 100, places=6), st.integers(1, 9)),
        "delta": st.floats(0, 1e-3),
        "blocks": st.one_of(
            st.none(), st.fixed_dictionaries({"by": st.just("unit"), "cohorts": st.integers(1, 20)})
        ),
        "analysts": st.dictionaries(LABELS, st.just({"epsilon": "0.5", "delta": 0}), max_size=2),
    }
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=POLICIES)
def test_a_saved_policy_has_the_same_digest(words: dict[str, Any]) -> None:
    """Its file has the name that the policy in code assumes."""
    policy = made(**words)
    file = policy.save(policy.path, replace=True)
    assert Curator(file).policy_digest == Curator(policy).policy_digest
    assert Curator(lapwing.Policy.load(file)).policy_digest == Curator(policy).policy_digest
    assert policy.save(file) == file  # says the same already


# Mistakes

BAD: list[tuple[dict[str, Any], str]] = [
    ({"columns": {"amount": {"low": 0, "high": 1.5}}}, 'tables["orders"].columns["amount"].step'),
    ({"columns": {"amount": lapwing.between(0, True)}}, 'tables["orders"].columns["amount"].high'),
    ({"columns": {"amount": lapwing.between(5, 5)}}, 'tables["orders"].columns["amount"].low'),
    ({"columns": {"amount": lapwing.between("low", 5)}}, 'tables["orders"].columns["amount"].low'),
    ({"columns": {"city": []}}, 'tables["orders"].columns["city"].values'),
    ({"columns": {"city": ["Oslo", 3]}}, 'tables["orders"].columns["city"].values'),
    ({"columns": {"city": ["Oslo", "\ud800"]}}, 'tables["orders"].columns["city"].values'),
    ({"columns": {"city": "number"}}, 'tables["orders"].columns["city"].type'),
    ({"columns": {"city": {"vlaues": ["Oslo"]}}}, 'tables["orders"].columns["city"].vlaues'),
    ({"columns": {"city": {"Oslo", "Bergen"}}}, 'tables["orders"].columns["city"]'),
    ({"columns": {"city": pd.Series(["Oslo"])}}, 'tables["orders"].columns["city"]'),
    ({"columns": {"city": np.array(["Oslo"])}}, 'tables["orders"].columns["city"]'),
    ({"columns": {"two words": "text"}}, 'tables["orders"].columns["two words"]'),
    ({"columns": {"who": "text"}}, 'tables["orders"].columns["who"]'),
    ({"columns": ["city"]}, 'tables["orders"].columns'),
    ({"unit": None}, 'tables["orders"].unit'),
    ({"unit": 5}, 'tables["orders"].unit'),
    ({"unit": {"through": "people", "by": "a", "key": "b"}}, 'tables["orders"].unit["through"]'),
    ({"rows_per_unit": None}, 'tables["orders"].rows_per_unit'),
    ({"rows_per_unit": "5"}, 'tables["orders"].rows_per_unit'),
    ({"public": True}, 'tables["orders"].unit'),
    ({"csv": {"delimiter": "long"}}, 'tables["orders"].csv["delimiter"]'),
    ({"source": "missing.csv"}, 'tables["orders"].source'),
    ({"source": None}, 'tables["orders"].source'),
    ({"source": 5}, 'tables["orders"].source'),
    ({"source": [[1, 2]]}, 'tables["orders"].source'),
    ({"source": pl.LazyFrame({"who": [1]})}, 'tables["orders"].source'),
    ({"source": pl.Series([1])}, 'tables["orders"].source'),
    ({"source": "frame", "csv": {"quote": "'"}}, 'tables["orders"].csv'),
    ({"name": ""}, "name"),
    ({"name": 5}, "name"),
    ({"epsilon": None}, "epsilon"),
    ({"epsilon": "many"}, "epsilon"),
    ({"epsilon": "1" * 5000}, "epsilon"),
    ({"epsilon": "1e999999"}, "epsilon"),
    ({"columns": {"day": lapwing.between("1" * 5000, 5)}}, 'tables["orders"].columns["day"].low'),
    ({"epsilon": float("nan")}, "epsilon"),
    ({"epsilon": Fraction(1, 3)}, "epsilon"),
    ({"delta": 1.0}, "delta"),
    ({"delta_per_query": 0.5}, "delta_per_query"),
    ({"protects": "people"}, "protects"),
    ({"blocks": {"by": "unit", "cohorts": 0}}, 'blocks["cohorts"]'),
    ({"blocks": {"cohorts": 3}}, 'blocks["by"]'),
    ({"blocks": "unit"}, "blocks"),
    ({"analysts": {"ann": {"epsilon": 4, "delta": 0}}}, 'analysts["ann"]["epsilon"]'),
    ({"analysts": {"ann": 1}}, 'analysts["ann"]'),
    ({"engine": {"timeout": "60"}}, 'engine["timeout"]'),
    ({"parties": {"least": 2}}, 'parties["least"]'),
    ({"ledger": {"keys": "s3://keys"}}, 'ledger["keys"]'),
    ({"ledger": "."}, 'ledger["url"]'),
    ({"tables": []}, "tables"),
    ({"tables": {"orders": FRAME}}, "tables"),
    ({"tables": [FRAME]}, "tables"),
    ({"tables": lapwing.Table("orders", FRAME, **UNIT)}, "tables"),
    ({"tables": [lapwing.Table("orders", FRAME, **UNIT)] * 2}, 'tables["orders"]'),
]


@each(("words", "name"), BAD)
def test_a_mistake_names_the_argument(words: dict[str, Any], name: str) -> None:
    found = mistakes(lambda: made(**words))
    assert found.startswith(f"{name}: "), found


def test_all_mistakes_are_told_as_those_of_the_file_are(folder: Path) -> None:
    policy: dict[str, Any] = {"epsilon": 300.5, "columns": {"amount": {"low": 0.5, "high": 1}, "city": {}}}
    in_code = mistakes(lambda: made(**policy, protects="people", rows_per_unit=0))
    (folder / "orders.toml").write_text(
        """
        budget = { epsilon = 300.5, delta = 1e-7 }
        [dataset]
        name = "orders"
        protects = "people"
        [tables.orders]
        source = "rows.csv"
        unit = "who"
        rows_per_unit = 0
        columns.amount = { low = 0.5, high = 1 }
        columns.city = {}
        """
    )
    with pytest.raises(BadFile) as raised:
        load_policy(folder / "orders.toml")
    in_file = [re.sub(r"^.*?:\d+: [^:]*: ", "", text) for text in raised.value.mistakes]
    assert len(in_file) == 4
    assert sorted(re.sub(r"^[^:]*: ", "", text) for text in in_code.split("\n")) == sorted(in_file)


# Fixed when it is made


def test_a_policy_is_fixed_when_it_is_made() -> None:
    cities, bounds, blocks = ["Oslo", "Bergen"], lapwing.between(0, 10), {"by": "unit", "cohorts": 4}
    columns: dict[str, Any] = {"city": cities, "amount": bounds}
    tables = [lapwing.Table("orders", "rows.csv", **UNIT, columns=columns)]
    policy = lapwing.Policy("orders", epsilon=3, delta=0, tables=tables, blocks=blocks)
    before = repr(policy.checked()), str(policy)
    cities.append("Tromsø")
    bounds["high"] = 10**6
    blocks["cohorts"] = 8
    columns["note"] = "text"
    tables.append(lapwing.Table("more", "rows.csv", **UNIT))
    assert (repr(policy.checked()), str(policy)) == before
    with pytest.raises(AttributeError):
        policy.path = Path("elsewhere.toml")  # type: ignore[misc]
    with pytest.raises(AttributeError):
        tables[0].rows_per_unit = 100  # type: ignore[misc]


def test_its_paths_begin_where_it_was_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = made()
    other = folder / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert policy.checked().path == folder / "orders.toml"
    assert policy.checked().ledger == str(folder / "lapwing.ledger")
    assert policy.checked().tables["orders"].source.location == str(folder / "rows.csv")


@each("name", ["../up", "a/b", ".hidden", "two words", "x" * 200, "ø" * 52, "a.b", "con:aux"])
def test_every_name_has_a_file_in_the_folder(name: str, folder: Path) -> None:
    path = made(name=name).path
    assert path.parent == folder
    assert re.fullmatch(r"policy-[0-9a-f]{16}\.toml", path.name)


def test_it_shows_no_rows() -> None:
    policy = made(pa.table({"who": [987654]}))
    table = lapwing.Table("orders", pa.table({"who": [987654]}), unit="who")
    assert "987654" not in f"{policy}{policy!r}{table!r}"


def test_a_table_shows_what_was_declared() -> None:
    columns = {"city": ["Oslo", "Bergen"], "amount": lapwing.between(0, 500, step="0.01"), "note": "text"}
    table = lapwing.Table(
        "orders", pd.DataFrame({"who": [1]}), unit="who", rows_per_unit=5, columns=columns
    )
    assert repr(table) == (
        "Table('orders', <DataFrame>, unit='who', rows_per_unit=5, columns={'city': ['Oslo', 'Bergen'], "
        "'amount': {'low': 0, 'high': 500, 'step': 0.01}, 'note': 'text'})"
    )
    many = lapwing.Table("t", "t.csv", public=True, columns={"n": [str(n) for n in range(2000)]})
    assert repr(many).startswith("Table('t', 't.csv', columns={'n': ['0', '1', ")
    assert repr(many).endswith("'11', … 2,000 in all]}, public=True)")
    remote = lapwing.Table("t", "postgresql://me:secret@host/db?password=hidden#public.t", public=True)
    assert repr(remote) == "Table('t', 'postgresql://host/db#public.t', public=True)"


def test_a_number_with_a_comma_is_told_how_to_write_one() -> None:
    assert mistakes(lambda: made(epsilon="0,5")).endswith('a point for decimals, as in "0.5"')


# Files


def test_a_file_that_says_something_else_is_not_replaced_unasked(folder: Path) -> None:
    policy = made()
    file = policy.save("orders.toml")
    file.write_text(f"# mine\n{file.read_text()}")
    policy.save(file)
    assert file.read_text().startswith("# mine")
    other = made(epsilon=4)
    with pytest.raises(BadParameter, check=named("path")):
        other.save(file)
    file.write_text("nonsense")
    with pytest.raises(BadParameter, check=named("path")):
        policy.save(file)
    other.save(file, replace=True)
    assert load_policy(file).epsilon == 4


@each("path", [".", "missing/orders.toml"])
def test_a_policy_is_saved_as_a_file(path: str) -> None:
    with pytest.raises(BadParameter, check=named("path")):
        made().save(path)


def test_a_policy_that_no_file_can_hold_is_not_saved(folder: Path) -> None:
    policy = made(columns={"city": [f"{k:0>1000}" for k in range(1100)]})
    with pytest.raises(BadParameter, check=named("path")):
        policy.save("orders.toml")
    assert not (folder / "orders.toml").exists()


def test_mistakes_of_a_file_have_their_lines(folder: Path) -> None:
    (folder / "orders.toml").write_text("[dataset]\nname = 5")
    with pytest.raises(BadFile, match=r"orders\.toml:2: dataset\.name"):
        lapwing.Policy.load("orders.toml")
