"""An invented town: its people, its blocks, and two releases that publish them."""

from __future__ import annotations

from pathlib import Path

from lapwing.examples.visits import chance, example_text, first_person, write_example

DRAWN, DISTRICTS, BLOCKS = 6000, 4, 16  # blocks of each district
TOWN_PEOPLE = 5193  # of those drawn, as nobody lives in a park
TOWN_POLICY, TOWN_ROWS, TOWN_CENSUS = "town.toml", "town-rows.toml", "town-census.toml"
_UNINHABITED = 7  # every so many blocks there is a park


def _people_sql() -> str:
    adult, way = chance("p", "work"), chance("p", "way")
    return f"""
        SELECT {first_person()} + p AS person,
            100 * district + 1 + CAST(floor({BLOCKS} * {chance("p", "block")}) AS INTEGER) AS block,
            CASE WHEN {chance("p", "sex")} < 0.51 THEN 'f' ELSE 'm' END AS sex, age,
            CASE WHEN age < 18 THEN 'school' WHEN age >= 66 THEN 'retired' WHEN {adult} < 0.68 THEN
                'employed' WHEN {adult} < 0.8 THEN 'own business' ELSE 'at home' END AS work,
            CASE WHEN age >= 66 OR (age >= 18 AND {adult} >= 0.8) THEN 'none'
                WHEN {way} < 0.25 THEN 'foot' WHEN {way} < 0.5 THEN 'bicycle'
                WHEN {way} < 0.7 OR age < 18 THEN 'bus' ELSE 'car' END AS commute
        FROM (SELECT p,
                1 + CAST(floor({DISTRICTS} * {chance("p", "d1")} * {chance("p", "d2")}) AS INTEGER)
                    AS district,
                CAST(floor(99 * {chance("p", "a1")} * (0.35 + 0.65 * {chance("p", "a2")})) AS INTEGER)
                    AS age
              FROM range({DRAWN}) AS people(p))
        WHERE (district * {BLOCKS} + floor({BLOCKS} * {chance("p", "block")})) % {_UNINHABITED} <> 0
        ORDER BY hash(p)"""  # noqa: S608 (no input)


def _blocks_csv() -> str:
    lines = ["town,district,block,uninhabited"]
    for district in range(1, DISTRICTS + 1):
        for block in range(BLOCKS):
            is_park = (district * BLOCKS + block) % _UNINHABITED == 0
            lines.append(f"town,district {district},{100 * district + 1 + block},{str(is_park).lower()}")
    return "\n".join(lines) + "\n"


def write_town(folder: Path) -> tuple[list[str], bool]:
    """Write the data, the policy and the releases into a folder, unless they are there unchanged.

    Args:
        folder: is created if it is missing.

    Returns:
        The names of the files, and whether they were written now.

    Raises:
        BadParameter: other files of these names are there, or the folder cannot be written.
    """
    texts = {name: example_text(name) for name in (TOWN_POLICY, TOWN_ROWS, TOWN_CENSUS)}
    texts["blocks.csv"] = _blocks_csv()
    tables = {"people.parquet": _people_sql()}
    return [*texts, *tables], write_example(folder, texts, tables)
