"""An invented data set, visits to a hospital, and its policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter

PEOPLE = 4000
FEWER_PEOPLE = 1 << 16  # than this are in every example
_WARDS = (
    ("surgery", "north", 60),
    ("cardiology", "south", 40),
    ("maternity", "north", 30),
    ("emergency", "south", 90),
)
_DIAGNOSES = ("fracture", "asthma", "infarction", "birth", "migraine", "burn", "pneumonia", "diabetes")


def chance(key: str, salt: str) -> str:
    """Return SQL of a number in [0, 1) from a hash: the same on every machine, and looking like chance."""
    return f"(hash({key}, '{salt}') % 10000) / 10000.0"


def first_person() -> int:
    """Return the id of the first invented person of a folder. Each folder has people of its own.

    Ledgers know people by their ids, and the same example may be written into several folders.
    """
    return FEWER_PEOPLE * int.from_bytes(random_bytes(4))


def _visits_sql(first: int) -> str:
    diagnoses = "[" + ", ".join(f"'{name}'" for name in _DIAGNOSES) + "]"
    return f"""
        SELECT {first} + p AS patient_id,
            CASE WHEN {chance("v", "ward")} < 0.35 THEN 'emergency'
                WHEN {chance("v", "ward")} < 0.6 THEN 'surgery'
                WHEN {chance("v", "ward")} < 0.85 THEN 'cardiology' ELSE 'maternity' END AS ward,
            DATE '2025-01-01' + CAST(floor(680 * {chance("v", "day")}) AS INTEGER) AS admitted,
            CAST(floor(-6 * ln(1.0001 - {chance("v", "stay")})) AS INTEGER) AS stay,
            round(250 + 3000 * {chance("v", "cost")} * {chance("v", "more")}, 2) AS cost,
            {chance("v", "urgent")} < 0.3 AS urgent,
            {diagnoses}[CAST(1 + floor(8 * {chance("v", "what")} * {chance("v", "rare")}) AS INTEGER)]
                AS diagnosis
        FROM (SELECT p, 100 * p + k AS v FROM range({PEOPLE}) AS people(p), range(12) AS rows(k)
              WHERE k < 1 + floor(-1.8 * ln(1.0001 - {chance("p", "visits")})))
        ORDER BY hash(v)"""  # noqa: S608 (no input)


def _patients_sql(first: int) -> str:
    return f"""
        SELECT {first} + p AS patient_id,
            CASE WHEN {chance("p", "sex")} < 0.53 THEN 'f' ELSE 'm' END AS sex,
            2020 - CAST(floor(90 * {chance("p", "born")}) AS INTEGER) AS born
        FROM range({PEOPLE}) AS people(p)"""  # noqa: S608


def forget_lost_ledgers(paths: Iterable[Path]) -> None:
    """Forget ledgers that are gone of files that were just written, so that examples can be repeated."""
    from lapwing.ledger.registry import Registry  # noqa: PLC0415

    with Registry.at().open() as known:
        known.forget_gone(paths)


def already_written(texts: Mapping[Path, str], others: Iterable[Path] = ()) -> bool:
    """Return whether an example was written before and is unchanged. Raise BadParameter for other files.

    Args:
        texts: the texts of the example's text files. They are compared.
        others: its data files. They only have to be there.
    """
    paths = [*texts, *others]
    there = [path for path in paths if path.exists()]
    changed = [path for path in texts if path in there and path.read_text(encoding="utf-8") != texts[path]]
    if there and (changed or there != paths):
        path = changed[0] if changed else there[0]
        how = "is not the example's" if changed else "other files of the example are missing"
        raise BadParameter(
            "folder",
            f"{path} exists, and {how}: nothing is written over. Give a new folder, such as try-again",
        )
    return bool(there)


def example_text(name: str) -> str:
    """Return a text file of the examples."""
    return files("lapwing.examples").joinpath("data", name).read_text(encoding="utf-8")


def _write_tables(tables: Mapping[Path, str]) -> None:
    import duckdb  # noqa: PLC0415

    with duckdb.connect(":memory:") as connection:  # to start it takes longer than to write a file
        for path, sql in tables.items():
            match path.suffix:
                case ".csv":
                    connection.sql(sql).write_csv(str(path))
                case ".parquet":
                    connection.sql(sql).write_parquet(str(path))
                case _:
                    with duckdb.connect(str(path)) as database:
                        database.execute(f"CREATE TABLE visits AS {sql}")


def write_example(folder: Path, texts: Mapping[str, str], tables: Mapping[str, str]) -> bool:
    """Write the files of an example into a folder, unless they are there unchanged.

    Args:
        folder: is created if it is missing.
        texts: the texts of its text files, by their names in the folder.
        tables: the SQL of its CSV, Parquet and DuckDB files, by their names. A DuckDB file has the one
            table `visits`.

    Returns:
        Whether the files were written now.

    Raises:
        BadParameter: other files of these names are there, or the folder cannot be written.
    """
    import duckdb  # noqa: PLC0415

    contents = {folder / name: text for name, text in texts.items()}
    rows = {folder / name: sql for name, sql in tables.items()}
    if already_written(contents, rows):
        return False
    try:
        for path in (*rows, *contents):
            path.parent.mkdir(parents=True, exist_ok=True)
        if rows:
            _write_tables(rows)
        for path, text in contents.items():
            path.write_text(text, encoding="utf-8")
    except (OSError, duckdb.IOException):
        raise BadParameter("folder", f"{folder.resolve()} cannot be written") from None
    if rows:
        forget_lost_ledgers((*contents, *rows))
    return True


def write_visits(folder: Path) -> tuple[list[str], bool]:
    """Write the data and the policy into a folder, unless they are there unchanged.

    Args:
        folder: is created if it is missing.

    Returns:
        The names of the files, and whether they were written now.

    Raises:
        BadParameter: other files of these names are there, or the folder cannot be written.
    """
    first = first_person()
    wards = ["ward,region,beds", *(f"{ward},{region},{beds}" for ward, region, beds in _WARDS)]
    texts = {"visits.toml": example_text("visits.toml"), "wards.csv": "\n".join(wards) + "\n"}
    tables = {"visits.parquet": _visits_sql(first), "patients.parquet": _patients_sql(first)}
    return [*texts, *tables], write_example(folder, texts, tables)
