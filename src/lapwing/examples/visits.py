"""`lapwing example`: an invented data set and its policy, to try things on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from lapwing.errors import BadParameter

PEOPLE = 4000
# Digits of a hash of a person's or a visit's number: the same on every machine, and looking like chance.
_CHANCE = "(hash({what}, '{salt}') % 10000) / 10000.0"
_WARDS = (
    ("surgery", "north", 60),
    ("cardiology", "south", 40),
    ("maternity", "north", 30),
    ("emergency", "south", 90),
)
_DIAGNOSES = ("fracture", "asthma", "infarction", "birth", "migraine", "burn", "pneumonia", "diabetes")


def _chance(what: str, salt: str) -> str:
    return _CHANCE.format(what=what, salt=salt)


def _visits_sql() -> str:
    diagnoses = "[" + ", ".join(f"'{name}'" for name in _DIAGNOSES) + "]"
    return f"""
        SELECT p AS patient_id,
            CASE WHEN {_chance("v", "ward")} < 0.35 THEN 'emergency'
                WHEN {_chance("v", "ward")} < 0.6 THEN 'surgery'
                WHEN {_chance("v", "ward")} < 0.85 THEN 'cardiology' ELSE 'maternity' END AS ward,
            DATE '2025-01-01' + CAST(floor(680 * {_chance("v", "day")}) AS INTEGER) AS admitted,
            CAST(floor(-6 * ln(1.0001 - {_chance("v", "stay")})) AS INTEGER) AS stay,
            round(250 + 3000 * {_chance("v", "cost")} * {_chance("v", "more")}, 2) AS cost,
            {_chance("v", "urgent")} < 0.3 AS urgent,
            {diagnoses}[CAST(1 + floor(8 * {_chance("v", "what")} * {_chance("v", "rare")}) AS INTEGER)]
                AS diagnosis
        FROM (SELECT p, 100 * p + k AS v FROM range({PEOPLE}) AS people(p), range(12) AS rows(k)
              WHERE k < 1 + floor(-1.8 * ln(1.0001 - {_chance("p", "visits")})))
        ORDER BY hash(v)"""  # noqa: S608 (all of it is ours)


def _patients_sql() -> str:
    return f"""
        SELECT p AS patient_id, CASE WHEN {_chance("p", "sex")} < 0.53 THEN 'f' ELSE 'm' END AS sex,
            2020 - CAST(floor(90 * {_chance("p", "born")}) AS INTEGER) AS born
        FROM range({PEOPLE}) AS people(p)"""  # noqa: S608


def forget_lost_ledgers(files: Iterable[Path]) -> None:
    """Forget ledgers that are gone of files just written: who threw invented data away may try again."""
    from lapwing.ledger.data_sets import open_registry  # noqa: PLC0415

    with open_registry() as known:
        known.forget_gone(files)


def already_written(texts: Mapping[Path, str], others: Iterable[Path] = ()) -> bool:
    """Tell whether an example was written before and is as it was. Other files in its place are refused."""
    paths = [*texts, *others]
    there = [path for path in paths if path.exists()]
    as_it_was = there == paths and all(path.read_text(encoding="utf-8") == texts[path] for path in texts)
    if there and not as_it_was:
        raise BadParameter("folder", f"{there[0]} exists: nothing is written over")
    return as_it_was


def write_visits(
    folder: Annotated[Path, typer.Argument(help="Where to write; this folder unless you say.")] = Path("."),
) -> None:
    """Write an invented data set (visits to a hospital) and its policy, to try things on."""
    import duckdb  # noqa: PLC0415

    lines = ["ward,region,beds", *(f"{ward},{region},{beds}" for ward, region, beds in _WARDS)]
    policy = files("lapwing.cli").joinpath("data", "visits.toml").read_text(encoding="utf-8")
    texts = {folder / "visits.toml": policy, folder / "wards.csv": "\n".join(lines) + "\n"}
    rows = {"visits": _visits_sql(), "patients": _patients_sql()}
    tables = {folder / f"{name}.parquet": sql for name, sql in rows.items()}
    names = ", ".join(path.name for path in (*texts, *tables))
    done = f"There already, and left as it was: {names}. Next:"
    if not already_written(texts, tables):
        done = f"Wrote {names}. Next:"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with duckdb.connect() as connection:
                for path, sql in tables.items():
                    connection.sql(sql).write_parquet(str(path))
            for path, text in texts.items():
                path.write_text(text, encoding="utf-8")
        except (OSError, duckdb.IOException):
            raise BadParameter("folder", f"{folder.resolve()} cannot be written") from None
        forget_lost_ledgers((*texts, *tables))
    question = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"
    print(done)
    print(f'  lapwing ask {folder / "visits.toml"} "{question}" --epsilon 0.2')
