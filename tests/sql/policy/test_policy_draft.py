"""`lapwing init`: a draft says what the schema says, and nothing of the data."""

from __future__ import annotations

import io
import os
import sys
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from uuid import uuid4

import duckdb
import psycopg
import pytest
import typer
from typer.testing import CliRunner

from lapwing.cli.starting import init
from lapwing.errors import BadFile, BadParameter, MissingExtra, Unavailable
from lapwing.sql.policy.kinds import Choice, Moment, Numeric, Truth
from lapwing.sql.policy.policy_draft import (
    KnownFacts,
    SourceSchema,
    draft_of,
    read_column_facts,
    read_schema,
    suggested_table_name,
)
from lapwing.sql.policy.policy_file import load_policy
from support.policy_files import draft
from support.postgres import server
from support.raised import named

# Values that nothing else in a draft would show: texts, numbers, a date, a count.
CANARIES = ("CANARY", "73159", "73.159", "1873-05-09", "18:47", "731")
ROWS = """
SELECT 'CANARY' || (i % 3) AS patient_id, 73159 + i AS stay, ('CANARY' || (i % 2))::mood AS ward,
       73.159 + i AS cost, DATE '1873-05-09' AS born, TIMESTAMP '1873-05-09 18:47:00' AS seen, i > 3 AS ill,
       ['CANARY'] AS notes, {'CANARY': 1} AS more, i AS "odd" FROM range(731) t(i)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same private rows in every form of file, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "years").mkdir()
    with duckdb.connect("clinic.duckdb") as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('CANARY0', 'CANARY1')")
        connection.execute(f"CREATE TABLE visits AS {ROWS}")
        connection.execute("COPY visits TO 'visits.parquet'")
        connection.execute("COPY visits TO 'years/2024.parquet'")
        connection.execute("COPY (SELECT * EXCLUDE (notes, more) FROM visits) TO 'visits.csv'")
    return tmp_path


SOURCES = [
    "visits.parquet",
    "years",
    "years/*.parquet",
    "visits.csv",
    "clinic.duckdb",
    "clinic.duckdb#visits",
]


def filled(text: str) -> str:
    """A draft as soon as the curator has written what must be known."""
    for name in ("epsilon", "delta", "rows_per_unit"):
        lines = [line for line in text.splitlines() if line.startswith(f"# {name} = ") and "TODO" in line]
        text = text.replace(lines[0], lines[0].removeprefix("# "))
    return text


@pytest.mark.parametrize("source", SOURCES)
def test_no_value_of_the_data_is_in_a_draft(source: str) -> None:
    text = draft(source, unit="patient_id")
    assert not [canary for canary in CANARIES if canary in text]
    assert "stay" in text


@pytest.mark.parametrize("source", SOURCES)
def test_a_draft_loads_once_what_must_be_known_is_written(source: str) -> None:
    text = draft(source, unit="PATIENT_ID")
    Path("policy.toml").write_text(filled(text))
    policy = load_policy("policy.toml")
    (table,) = policy.tables.values()
    assert table.unit is not None
    assert (table.unit.column, table.rows_per_unit, table.columns) == ("patient_id", 5, {})
    assert table.name == ("years" if source.startswith("years") else "visits")
    assert policy.name == table.name


@pytest.mark.parametrize("source", SOURCES)
def test_a_draft_is_toml_and_its_mistakes_are_what_is_left_to_say(source: str) -> None:
    Path("policy.toml").write_text(draft(source, unit=None))
    with pytest.raises(BadFile) as caught:
        load_policy("policy.toml")
    told = [line.split(": ")[1].split(".")[-1] for line in caught.value.mistakes]
    assert told == ["epsilon", "delta", "rows_per_unit", "unit"]
    assert "which column says which person a row belongs to?" in Path("policy.toml").read_text()


WRITTEN = {
    "INTEGER": "0 100", "BIGINT": "0 100", "DECIMAL": "0.0 100.0 0.01", "DATE": "2000-01-01 2029-12-31",
    "TIMESTAMP": "2000-01-01T00:00:00 2029-12-31T23:59:59", "ENUM": '"A"', "VARCHAR": '"A"', "BOOLEAN": "",
}  # fmt: skip


def written(lines: list[str]) -> list[str]:
    """Declared columns, with something for each TODO."""
    made, left = [], iter("")
    for line in lines:
        if line.startswith("[tables"):
            left = iter(WRITTEN[line.rpartition("# ")[2]].split())
        made.append(line.replace('"TODO"', next(left), 1) if '"TODO"' in line else line)
    return made


def declared_columns() -> tuple[list[str], list[str]]:
    """The lines before the columns of a draft, and those of its columns without the first hash."""
    lines = filled(draft("visits.parquet", unit="patient_id")).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("# [tables.visits.columns."))
    declared = [
        line.removeprefix("# ") if " cannot be declared" not in line else line for line in lines[start:]
    ]
    return lines[:start], declared


def test_columns_are_declared_by_removing_the_first_hash_and_writing_what_is_to_do() -> None:
    before, declared = declared_columns()
    Path("policy.toml").write_text("\n".join(before + written(declared)))
    columns = load_policy("policy.toml").tables["visits"].columns
    assert {name: type(column.kind) for name, column in columns.items()} == {
        "stay": Numeric, "ward": Choice, "cost": Numeric, "born": Moment, "seen": Moment, "ill": Truth,
        "odd": Numeric,
    }  # fmt: skip


# Case C12.
def test_a_column_that_is_still_as_drafted_is_refused_with_its_line() -> None:
    before, declared = declared_columns()
    Path("policy.toml").write_text("\n".join(before + declared))
    with pytest.raises(BadFile) as caught:
        load_policy("policy.toml")
    told = [line.split(": ")[1].removeprefix("tables.visits.columns.") for line in caught.value.mistakes]
    assert told == ["stay.low", "ward.values", "cost.low", "born.low", "seen.low", "odd.low"]
    assert all("is still TODO, as drafted" in line for line in caught.value.mistakes)


@pytest.mark.parametrize("place", range(3))
def test_one_bound_that_is_still_to_do_is_enough(place: int) -> None:
    bounds = ["0.0", "9.0", "0.5"]
    bounds[place] = '"TODO"'
    lines = [f"{name} = {value}" for name, value in zip(("low", "high", "step"), bounds, strict=True)]
    text = filled(draft("visits.parquet", unit="patient_id"))
    Path("policy.toml").write_text("\n".join([text, "[tables.visits.columns.cost]", *lines]))
    with pytest.raises(BadFile, match="is still TODO, as drafted"):
        load_policy("policy.toml")


def test_types_that_have_no_kind_are_said_to_have_none() -> None:
    text = draft("clinic.duckdb", unit=None)
    assert "# notes (VARCHAR[]): values of this type cannot be declared" in text
    assert "# more (STRUCT): values of this type cannot be declared" in text
    assert "# [tables.visits.columns.ward]  # ENUM\n" in text


def test_a_csv_says_that_its_types_were_guessed() -> None:
    assert "the types were guessed from its rows" in draft("visits.csv", unit=None)
    assert "guessed" not in draft("visits.parquet", unit=None)


def test_a_hostile_name_of_a_column_stays_in_its_quotes() -> None:
    name = 'x"\n[budget]\nepsilon = 1000\x7f\u2028'
    quoted = name.replace('"', '""')
    duckdb.execute(f"COPY (SELECT 1 AS patient_id, 2 AS \"{quoted}\", 3 AS lapwing_rank) TO 'odd.parquet'")
    text = draft("odd.parquet", unit="patient_id")
    assert tomllib.loads(text)["budget"] == {}
    assert '# source = "x\\"\\n[budget]\\nepsilon = 1000\\u007f\\u2028"' in text
    assert "[tables.odd.columns.x_budget_epsilon_1000]" in text
    assert "[tables.odd.columns.c_lapwing_rank]" in text
    unit = tomllib.loads(draft("odd.parquet", unit=name))["tables"]["odd"]["unit"]
    assert unit == {"name": "x_budget_epsilon_1000", "source": name}


def test_a_unit_that_is_not_there_is_told_what_is() -> None:
    with pytest.raises(BadParameter, match=r'unit: there is no such column. Did you mean "patient_id"'):
        draft("visits.parquet", unit="patientid")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("gone.parquet", "there is no such file"),
        ("visits.txt", "is not a known kind of source"),
        ("broken.parquet", "cannot be read as Parquet"),
        ("broken.duckdb", "cannot be read as a DuckDB file"),
        ("broken.csv", "cannot be read as CSV"),
        ("clinic.duckdb#stays", "there is no table stays"),
        ("two.duckdb", "say which table with #table after the file. Tables in it: a, b"),
        ("postgresql://localhost/d", "say which table with #table"),
    ],
)
def test_a_source_that_cannot_be_read_is_told_without_its_data(source: str, expected: str) -> None:
    for name in ("broken.parquet", "broken.duckdb"):
        Path(name).write_text("CANARY")
    Path("broken.csv").write_bytes(b"a,b\n\xff\xfeCANARY,\x00\n1\n" * 50)
    if source == "two.duckdb":
        with duckdb.connect(source) as connection:
            connection.execute("CREATE TABLE b (x INT); CREATE TABLE a (x INT)")
    with pytest.raises(BadParameter) as caught:
        draft(source, unit=None)
    assert expected in str(caught.value)
    assert "CANARY" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("visits.parquet", "visits"),
        ("data/Visits 2024-05.csv.gz", "Visits_2024_05"),
        ("2024.parquet", "t_2024"),
        ("lapwing_x.csv", "t_lapwing_x"),
        ("data/visits/**/*.parquet", "visits"),
        ("*.parquet", "rows"),
        ("../..", "rows"),
        ("postgresql://h/d#clinic.visits", "visits"),
        ("spark:lake.visits", "visits"),
        ("spark:s3a://lake/visits/*.parquet", "visits"),
        ("ß.csv", "ss"),
        ("Käufe 2026.csv", "Kaufe_2026"),
        ("注文.csv", "rows"),
    ],
)
def test_a_table_is_called_like_its_source(source: str, expected: str) -> None:
    assert suggested_table_name(source) == expected


@pytest.fixture
def clinic() -> Iterator[str]:
    """The address of a PostgreSQL table with the same secrets."""
    table = f"visits_{uuid4().hex[:12]}"
    with psycopg.connect(server(), autocommit=True) as connection:
        connection.execute(f"CREATE TYPE {table}_mood AS ENUM ('CANARY')")
        connection.execute(
            f"CREATE TABLE {table} (patient_id text DEFAULT 'CANARY', stay int CHECK (stay < 73159), "
            f"ward {table}_mood, seen timestamptz, cost numeric(9,2), notes text[])"
        )
        yield f"{server()}#{table}"
        connection.execute(f"DROP TABLE {table}; DROP TYPE {table}_mood")


def test_a_table_in_postgresql_is_drafted_from_its_catalogue(clinic: str) -> None:
    text = draft(clinic, unit="patient_id")
    assert not [canary for canary in ("CANARY", "73159") if canary in text]
    table = clinic.rpartition("#")[2]
    for name, kind in (("stay", "INTEGER"), ("seen", "TIMESTAMP WITH TIME ZONE"), ("cost", "NUMERIC")):
        assert f"# [tables.{table}.columns.{name}]  # {kind}\n" in text
    assert f"# [tables.{table}.columns.ward]  # USER-DEFINED\n# values" in text
    assert "# notes (ARRAY): values of this type cannot be declared" in text
    Path("policy.toml").write_text(filled(text))
    assert load_policy("policy.toml").tables[table].source.table == table


def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    with pytest.raises(Unavailable) as caught:
        draft("postgresql://me:SECRET@127.0.0.1:1/d#visits", unit=None)
    assert "SECRET" not in str(caught.value)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    with pytest.raises(MissingExtra, match=r"lapwing\[postgres\]"):
        draft("postgresql://h/d#visits", unit=None)
    with pytest.raises(MissingExtra, match=r"lapwing\[spark\]"):
        draft("spark:visits", unit=None)


@pytest.mark.slow
def test_a_folder_that_spark_reads_is_drafted_from_its_schema() -> None:
    pytest.importorskip("pyspark")
    duckdb.execute("COPY (SELECT 'CANARY' AS patient_id, 73159 AS stay) TO 'years/2024.parquet'")
    text = draft("spark:./years", unit="patient_id")
    assert "# [tables.years.columns.stay]  # INT\n# low" in text
    assert not [canary for canary in CANARIES if canary in text]


def run(*arguments: str, typed: str | None = None) -> tuple[int, str]:
    """The command's exit code, and what it printed."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(init)
    done = CliRunner().invoke(app, list(arguments), input=typed)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_init_writes_a_policy_and_says_what_to_do_next() -> None:
    code, out = run("visits.parquet", "--unit", "patient_id")
    assert code == 0
    assert out.splitlines() == [
        "1. Fill in visits.toml: whatever says TODO, from what you know, not from the data.",
        "2. lapwing prepare visits.toml",
        '3. lapwing plan visits.toml "SELECT COUNT(*) FROM visits" --epsilon 0.1',
    ]
    assert Path("visits.toml").read_text() == draft("visits.parquet", unit="patient_id")


def test_init_never_writes_over_a_file_unless_told_to() -> None:
    Path("visits.toml").write_text("mine")
    with pytest.raises(BadParameter, match=r"output: visits.toml exists"):
        run("visits.parquet")
    assert Path("visits.toml").read_text() == "mine"
    assert run("visits.parquet", "--force")[0] == 0
    assert 'unit = ""' in Path("visits.toml").read_text()


@pytest.mark.parametrize("source", SOURCES)
def test_a_policy_in_another_folder_still_finds_the_data(source: str, folder: Path) -> None:
    Path("policies").mkdir()
    run(source, "-o", "policies/clinic.toml", "--unit", "patient_id")
    target = Path("policies/clinic.toml")
    target.write_text(filled(target.read_text()))
    (table,) = load_policy(target).tables.values()
    assert table.source == read_schema(source, folder=folder).source
    assert str(folder) not in target.read_text()


def test_a_file_that_cannot_be_written_is_named(folder: Path) -> None:
    with pytest.raises(BadParameter, match=r"output: gone/visits.toml cannot be written"):
        run("visits.parquet", "-o", "gone/visits.toml")
    assert os.listdir(folder / "years") == ["2024.parquet"]


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("Patient_Id\n", 'unit = "patient_id"'),
        ("patientid\npatient_id\n", 'unit = "patient_id"'),
        ("\n", 'unit = ""'),
    ],
)
def test_at_a_terminal_the_unit_is_asked_for(
    typed: str, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    init("visits.parquet")
    shown = capsys.readouterr().out
    assert "Which column says whom a row is about?\n  patient_id  (VARCHAR)\n  stay  (BIGINT)\n" in shown
    assert ("Did you mean" in shown) == ("patientid" in typed)
    assert expected in Path("visits.toml").read_text()


FACTS = [
    "ward=A,B",
    "stay=0..60",
    "cost=0..500/0.01",
    "day=2025-01-01..2025-12-31",
    "urgent=bool",
    "note=text",
]
WARDS = """
SELECT i AS person, 'A' AS ward, 7 AS stay, 1.5::DOUBLE AS cost, DATE '2025-03-01' AS day, true AS urgent,
    'x' AS note, 3 AS floor FROM range(9) AS t(i)
"""


@pytest.fixture
def wards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceSchema:
    monkeypatch.chdir(tmp_path)
    duckdb.execute(f"COPY ({WARDS}) TO 'wards.parquet'")
    return read_schema("wards.parquet", folder=tmp_path)


def test_what_the_curator_knows_completes_the_draft(wards: SourceSchema) -> None:
    facts = KnownFacts("person", 5, "3", "1e-7", read_column_facts([*FACTS, "FLOOR=1,2"], wards))
    assert facts.complete
    Path("wards.toml").write_text(draft_of(wards, facts))
    policy = load_policy("wards.toml")
    assert policy.epsilon == 3
    assert policy.tables["wards"].rows_per_unit == 5
    columns = policy.tables["wards"].columns
    assert list(columns) == ["ward", "stay", "cost", "day", "urgent", "note", "floor"]
    assert columns["ward"].kind == Choice(("A", "B"))
    assert columns["floor"].kind == Choice((1, 2))  # whole numbers in the source
    assert columns["cost"].kind == Numeric(Fraction(1, 100), 0, 50_000)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("stay", "a name, ="), ("stay=", "a name, ="), ("stya=0..6", "stay"), ("cost=0..5", "how fine"),
        ("stay=a..b", "numbers or dates"), ("day=2025-1-1..2025-12-31", "numbers or dates"),
    ],
)  # fmt: skip
def test_a_wrong_fact_is_told(given: str, told: str, wards: SourceSchema) -> None:
    with pytest.raises(BadParameter, match=told, check=named("column")):
        draft_of(wards, KnownFacts(columns=read_column_facts([given], wards)))


@pytest.mark.parametrize("number", ["1/2", "x", "", "1\nrows = 3", "inf"])
def test_epsilon_and_delta_are_numbers_of_toml(number: str) -> None:
    with pytest.raises(BadParameter, check=named("epsilon")):
        KnownFacts(epsilon=number)
    with pytest.raises(BadParameter, check=named("delta")):
        KnownFacts(delta=number)


def test_values_with_quotes_and_line_breaks_stay_values(wards: SourceSchema) -> None:
    facts = KnownFacts("person", 5, "3", "1e-7", read_column_facts(['ward=A"]\nhidden = true,B'], wards))
    Path("wards.toml").write_text(draft_of(wards, facts))
    assert load_policy("wards.toml").tables["wards"].columns["ward"].kind == Choice(
        ('A"]\nhidden = true', "B")
    )
