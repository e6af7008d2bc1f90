"""CSV files as they are written: encodings, decimal commas, dates, null strings, quotes."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path

import pytest

import lapwing
from lapwing.engines.csv_files import CsvForm, is_utf8, recode
from lapwing.engines.duckdb import DuckDbEngine
from lapwing.engines.engine import EngineFailed
from lapwing.errors import BadFile, BadParameter
from lapwing.sql.policy.policy import CheckedPolicy, Source
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.question.bind import bind
from lapwing.sql.question.public_tables import typed_csv_values
from lapwing.sql.question.scope import Catalog
from lapwing.sql.reading.open_sources import encoding_notes, read_public_tables
from lapwing.sql.reading.prepare import prepare
from lapwing.sql.reading.prepared_copy import copy_digest, current_copy
from lapwing.sql.reading.reader import Reader
from support.policy_files import draft
from support.private_tables import KEY, coded_rows

POLICY = """
[dataset]
name = "sales"
[budget]
epsilon = 10.0
delta = 1e-6
[tables.sales]
source = "{source}"
{csv}
unit = "who"
rows_per_unit = 1
[tables.sales.columns.ward]
values = ["Größe", "B|C"]
[tables.sales.columns.cost]
source = "Preis €"
low = 0
high = 100
step = 0.5
[tables.sales.columns.day]
low = 2024-01-01
high = 2024-12-31
"""
GERMAN = 'csv = {{ encoding = "{encoding}", decimal = ",", date_format = "%d.%m.%Y", null = ["", "NA"], quote = "\'", delimiter = ";" }}'  # noqa: E501
QUESTION = (
    "SELECT ward, COUNT(*) AS n, SUM(cost) AS c, SUM(EXTRACT(day FROM day)) AS d FROM sales GROUP BY ward"
)


def german(n: int) -> str:
    """1,5 euros on the n-th of March; every fifth cost is NA, every seventh person has no name."""
    who = "NA" if n % 7 == 0 else f"p{n}"
    ward = "Größe" if n % 2 else "'B|C'"
    return f"{who};{ward};{'NA' if n % 5 == 0 else '1,5'};{n % 28 + 1:02d}.03.2024\n"


def written(folder: Path, people: range, encoding: str, name: str = "sales.csv") -> Path:
    text = "who;ward;Preis €;day\n" if encoding != "latin-1" else "who;ward;Preis ¤;day\n"
    content = (text + "".join(map(german, people))).encode(encoding)
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    return path


def policy_at(folder: Path, source: str, encoding: str, csv: str | None = None) -> CheckedPolicy:
    path = folder / "sales.toml"
    text = POLICY.format(source=source, csv=GERMAN.format(encoding=encoding) if csv is None else csv)
    path.write_text(text.replace("Preis €", "Preis ¤") if encoding == "latin-1" else text)
    return load_policy(path)


def asked(policy: CheckedPolicy) -> list[list[int]]:
    reader = Reader.open(policy, KEY, {})
    try:
        (found,) = reader.exact(bind(QUESTION, Catalog(policy, {})))
    finally:
        reader.close()
    return [[int(value) for value in row] for row in found.values]


def truth(people: range) -> list[list[int]]:
    known = [n for n in people if n % 7]
    rows = []
    for odd in (1, 0):
        own = [n for n in known if n % 2 == odd]
        rows.append([len(own), 3 * sum(n % 5 != 0 for n in own), sum(n % 28 + 1 for n in own)])
    return rows


@pytest.mark.parametrize("name", ["sales.csv", "sales.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "windows-1252", "utf-16"])
def test_a_file_is_read_as_it_is_written(encoding: str, name: str, tmp_path: Path) -> None:
    written(tmp_path, range(100), encoding, name)
    policy = policy_at(tmp_path, name, encoding)
    assert asked(policy) == truth(range(100))
    prepare(policy, KEY)
    assert current_copy(policy, KEY) is not None
    assert asked(policy) == truth(range(100))


def test_new_files_of_a_prepared_folder_are_read_alike(tmp_path: Path) -> None:
    written(tmp_path, range(50), "windows-1252", "sales1.csv")
    policy = policy_at(tmp_path, "sales*.csv", "windows-1252")
    prepare(policy, KEY)
    written(tmp_path, range(50, 100), "windows-1252", "sales2.csv")
    policy = load_policy(policy.path)
    assert current_copy(policy, KEY) is None
    prepare(policy, KEY)
    assert asked(policy) == truth(range(100))


def test_without_options_nothing_of_it_is_read(tmp_path: Path) -> None:
    """What the options mend: rows that are no UTF-8 are none, and commas and dates count as missing."""
    written(tmp_path, range(100), "utf-8")
    policy = policy_at(tmp_path, "sales.csv", "utf-8", csv="")
    counts = asked(policy)
    assert [row[1:] for row in counts] == [[0, 0], [0, 0]]


@pytest.mark.parametrize("encoding", ["latin-1", "windows-1252", "utf-16"])
def test_no_byte_of_a_row_stops_anybody(encoding: str, tmp_path: Path) -> None:
    """DuckDB itself fails over a Latin-1 file with one byte from 0x80 to 0x9f."""
    path = written(tmp_path, range(100), encoding)
    row = "odd;".encode(encoding).removeprefix(b"\xff\xfe")
    odd = bytes(one for one in range(256) if one not in b"\r\n';")
    odd += odd[: len(odd) % 2] if encoding == "utf-16" else b""
    end = ";1,5;01.03.2024\n".encode(encoding).removeprefix(b"\xff\xfe")
    path.write_bytes(path.read_bytes() + row + odd + end)
    policy = policy_at(tmp_path, "sales.csv", encoding)
    assert asked(policy) == truth(range(100))


@pytest.mark.parametrize(
    ("cell", "form", "read"),
    [
        ("1,5", CsvForm(decimal=","), 3),
        (" 1,5 ", CsvForm(decimal=","), 3),
        ("1.5", CsvForm(decimal=","), None),
        ("1.234,5", CsvForm(decimal=","), None),
        ("7", CsvForm(decimal=","), 14),
        ("1,5", CsvForm(), None),
        ("1,5" + " " * (1 << 20), CsvForm(decimal=","), None),
        (",", CsvForm(decimal=","), None),
    ],
)
# Case C12.
def test_decimal_commas_are_read_strictly(
    cell: str, form: CsvForm, read: int | None, tmp_path: Path
) -> None:
    assert _one_cell(tmp_path, cell, form, "cost") == read


@pytest.mark.parametrize(
    ("cell", "form", "read"),
    [
        ("31.12.2024", "%d.%m.%Y", date(2024, 12, 31)),
        (" 1.3.2024 ", "%d.%m.%Y", date(2024, 3, 1)),
        ("2024-03-01", "%d.%m.%Y", None),
        ("31.02.2024", "%d.%m.%Y", None),
        ("03/01/24 5:07 PM", "%m/%d/%y %I:%M %p", date(2024, 3, 1)),
        ("1 March 2024", "%d %B %Y", date(2024, 3, 1)),
        ("", "%d.%m.%Y", None),
        ("1.3.2024" + " " * (1 << 20), "%d.%m.%Y", None),
        ("99999999999999999999.1.2024", "%d.%m.%Y", None),
    ],
)
def test_dates_are_read_in_their_form(cell: str, form: str, read: date | None, tmp_path: Path) -> None:
    found = _one_cell(tmp_path, cell, CsvForm(date_format=form), "day")
    assert found == (None if read is None else (read - date(1970, 1, 1)).days)


def _one_cell(folder: Path, cell: str, form: CsvForm, column: str) -> object:
    cells = f'"{cell}";' if column == "cost" else f';"{cell}"'  # a line has at most 2 MB
    (folder / "sales.csv").write_text(f"who;ward;Preis €;day\na;B;{cells}\n")
    said = ", ".join(
        f'{name} = "{value}"'
        for name, value in (("decimal", form.decimal), ("date_format", form.date_format))
        if value
    )
    policy = policy_at(folder, "sales.csv", "utf-8", csv=f"csv = {{ {said} }}")
    ((_, _, found),) = coded_rows(policy, column, table="sales")
    return found


@pytest.mark.parametrize(
    ("csv", "told"),
    [
        ('{ encoding = "klingon" }', "encoding: must be"),
        ('{ delimiter = ";;" }', "delimiter: must be one ASCII character"),
        ('{ delimiter = "\\n" }', "delimiter: must be one ASCII character"),
        ('{ quote = "" }', "quote: must be one ASCII character"),
        ('{ quote = ";", delimiter = ";" }', "quote: must differ from delimiter"),
        ('{ null = ["a;b"] }', "null: must have no delimiter"),
        ("{ null = [1] }", "null: must be a list of texts"),
        ("{ null = [] }", "null: must be 1 to 20 texts"),
        ('{ decimal = ";" }', "decimal: must be"),
        ('{ date_format = "%q" }', 'date_format: must be such as "%d.%m.%Y"'),
        ('{ date_format = "DD.MM.YYYY" }', 'date_format: must be such as "%d.%m.%Y"'),
        ('{ date_format = "%" }', 'date_format: must be such as "%d.%m.%Y"'),
        ('{ decimals = "," }', "unknown key"),
        ('"latin-1"', "csv: must be a table"),
    ],
)
def test_options_that_mean_nothing_are_told(csv: str, told: str, tmp_path: Path) -> None:
    written(tmp_path, range(3), "utf-8")
    with pytest.raises(BadFile, match=told):
        policy_at(tmp_path, "sales.csv", "utf-8", csv=f"csv = {csv}")


def test_options_are_for_csv_alone_and_files_have_one_encoding(tmp_path: Path) -> None:
    (tmp_path / "sales.parquet").touch()
    with pytest.raises(BadFile, match="csv: is for CSV files only"):
        policy_at(tmp_path, "sales.parquet", "utf-8", csv='csv = { decimal = "," }')
    written(tmp_path, range(3), "utf-8")
    text = POLICY.format(source="sales.csv", csv='csv = { encoding = "latin1" }')
    more = '[tables.again]\nsource = "sales.csv"\nunit = "who"\nrows_per_unit = 1\n'
    (tmp_path / "two.toml").write_text(text + more)
    with pytest.raises(BadFile, match="must be the same for the same files"):
        load_policy(tmp_path / "two.toml")


def test_options_are_part_of_what_a_copy_is_of(tmp_path: Path) -> None:
    written(tmp_path, range(3), "utf-8")
    texts = ["", 'csv = { decimal = "," }', 'csv = { null = ["NA"] }', 'csv = { date_format = "%d.%m.%Y" }']
    digests = [copy_digest(policy_at(tmp_path, "sales.csv", "utf-8", csv=csv), KEY) for csv in texts]
    assert len(set(digests)) == len(texts)
    same = copy_digest(policy_at(tmp_path, "sales.csv", "utf-8", csv='csv = { encoding = "UTF8" }'), KEY)
    assert same == digests[0]
    assert repr(Source("duckdb", "/x", "", "csv")) == (
        "Source(engine='duckdb', location='/x', table='', form='csv')"  # as it was digested before
    )


def test_public_files_are_read_alike(tmp_path: Path) -> None:
    written(tmp_path, range(3), "utf-8")
    (tmp_path / "sizes.csv").write_bytes("Größe;from\n1,5;01.03.2024\nNA;02.03.2024\n".encode("latin-1"))
    text = POLICY.format(source="sales.csv", csv="")
    form = 'csv = { encoding = "latin-1", decimal = ",", date_format = "%d.%m.%Y", null = "NA" }'
    more = f'[tables.sizes]\nsource = "sizes.csv"\npublic = true\n{form}\n'
    (tmp_path / "sales.toml").write_text(text + more)
    values = read_public_tables(load_policy(tmp_path / "sales.toml"))["sizes"].values
    assert [None if value is None else float(str(value)) for value in values["Größe"]] == [1.5, None]
    assert values["from"] == [date(2024, 3, 1), date(2024, 3, 2)]
    assert typed_csv_values(["1,5"]) == ["1,5"]


def test_copies_in_utf8_are_private_and_go_with_the_engine(tmp_path: Path) -> None:
    path = written(tmp_path, range(3), "windows-1252")
    engine = DuckDbEngine.open([path], encodings={str(path): "windows-1252"})
    (copy,) = engine._files[str(path)]
    assert Path(copy).stat().st_mode & 0o777 == 0o600
    assert Path(copy).parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(EngineFailed):  # nothing else can be read
        engine.run(f"SELECT * FROM read_csv('{path}')")
    engine.close()
    assert not Path(copy).exists()


def test_a_file_that_is_not_utf8_gets_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "sales.csv"
    path.write_bytes("who;ward;Preis €;day\na;Größe;1;2024-01-01\nb;B|C;1;2024-01-01\n".encode("cp1252"))
    policy = policy_at(tmp_path, "sales.csv", "utf-8", csv="")
    with pytest.raises(
        BadParameter, match=r'not in UTF-8. Say what it is in: csv = \{ encoding = "latin-1" \}'
    ):
        asked(policy)
    path.write_bytes("who;ward;Preis x;day\na;Größe;1;2024-01-01\n".encode("cp1252"))
    [note] = encoding_notes(policy)
    assert note.startswith("tables.sales: some lines count as no rows, since they are not in UTF-8.")
    text = draft("sales.csv", unit="who")
    assert 'csv = { encoding = "latin-1" }  # it is not in UTF-8: check this guess' in text
    assert "Größe" not in text  # a value
    path.write_bytes("who;Größe\na;1\n".encode("utf-16"))
    text = draft("sales.csv", unit="who")
    assert 'csv = { encoding = "utf-16" }' in text
    assert 'source = "Größe"' in text


@pytest.mark.parametrize(
    ("content", "told"), [("", "is empty"), ("\n\n", "without a first line"), ("  \n1", "without")]
)
def test_a_file_without_columns_is_not_drafted(
    content: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.csv").write_text(content)
    with pytest.raises(BadParameter, match=told):
        draft("empty.csv", unit=None)


def test_names_are_drafted_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.csv").write_text("who, spaced ,,who\n1,2,3,4\n")
    text = draft("odd.csv", unit="who")
    with DuckDbEngineOf(tmp_path / "odd.csv") as names:
        assert names == ["who", "spaced", "column3", "who_1"]
    assert all(f"[tables.odd.columns.{name}]" in text for name in names if name != "who")


class DuckDbEngineOf:
    """The names of columns as questions find them."""

    def __init__(self, path: Path) -> None:
        self.engine, self.path = DuckDbEngine.open([path]), path

    def __enter__(self) -> list[str]:
        return list(self.engine.columns(self.engine.relation_of("csv", self.path)))

    def __exit__(self, *_: object) -> None:
        self.engine.close()


def test_files_are_told_apart_by_all_of_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes("ü".encode() * (1 << 21))  # letters lie across parts
    assert is_utf8(str(path))
    recode(str(path), "utf-8", tmp_path / "y")
    assert (tmp_path / "y").read_bytes() == path.read_bytes()
    path.write_bytes("ü".encode() + b"\xc3")
    assert not is_utf8(str(path))


@pytest.mark.parametrize("has_copy", [True, False])
def test_an_answer_of_another_reading_does_not_come_again(tmp_path: Path, *, has_copy: bool) -> None:
    written(tmp_path, range(1, 200), "latin-1")
    count = "SELECT SUM(cost) AS c FROM sales"

    def ask(csv: str) -> bool:
        policy_at(tmp_path, "sales.csv", "latin-1", csv)
        with lapwing.open(tmp_path / "sales.toml") as sales:
            if has_copy:
                sales.prepare()
            return sales.plan(count, epsilon=1).release().is_replay

    german = GERMAN.format(encoding="latin-1")
    english = german.replace('decimal = ","', 'decimal = "."')
    assert not ask(english)
    assert ask(english)
    if has_copy:
        assert not ask(german)
    else:  # ids may be read otherwise, too: the curator registers them
        with pytest.raises(BadParameter, match="prepare"):
            ask(german)
