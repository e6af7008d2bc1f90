"""Three invented hospitals, each with data and policy in a folder, and the draft of their consortium."""

from __future__ import annotations

from pathlib import Path

from lapwing.examples.visits import chance, example_text, first_person, write_example

MEMBERS = ("north", "south", "east")
WISH, POLICY = "joint.toml", "visits.toml"
FILES = {"north": "visits.csv", "south": "visits.parquet", "east": "visits.duckdb"}
PEOPLE = {"north": 900, "south": 500, "east": 1300}


def write_hospitals(folder: Path) -> bool:
    """Write all files into a folder, unless they are there unchanged.

    Args:
        folder: is created if it is missing.

    Returns:
        Whether the files were written now.

    Raises:
        BadParameter: other files of these names are there, or the folder cannot be written.
    """
    policy, texts = example_text("joint_policy.toml"), {WISH: example_text(WISH)}
    for name, file in FILES.items():
        location = f"{file}#visits" if file.endswith(".duckdb") else file
        texts[f"{name}/{POLICY}"] = policy.replace("SOURCE", location)
    first = first_person()
    tables = {f"{name}/{file}": _visits_sql(name, PEOPLE[name], first) for name, file in FILES.items()}
    return write_example(folder, texts, tables)


def _visits_sql(name: str, people: int, first: int) -> str:
    """Return visits of invented people: the same on every machine, and looking like chance."""

    def random(key: str, salt: str) -> str:
        return f"({chance(key, f'{salt} of {name}')})"

    return f"""
        SELECT '{name}-' || ({first} + p) AS patient,
            CASE WHEN {random("v", "ward")} < 0.4 THEN 'emergency'
                WHEN {random("v", "ward")} < 0.65 THEN 'surgery'
                WHEN {random("v", "ward")} < 0.9 THEN 'cardiology' ELSE 'maternity' END AS ward,
            CAST(floor(-5 * ln(1.0001 - {random("v", "stay")})) AS INTEGER) AS stay,
            CAST(floor(95 * {random("p", "age")}) AS INTEGER) AS age,
            CAST(floor(400 + 20 * floor(95 * {random("p", "age")})
                + 250 * floor(-5 * ln(1.0001 - {random("v", "stay")}))
                + 600 * {random("v", "cost")}) AS INTEGER) AS cost
        FROM (SELECT p, 10 * p + k AS v FROM range({people}) AS people(p), range(3) AS rows(k)
              WHERE k < 1 + floor(-0.7 * ln(1.0001 - {random("p", "visits")})))
        ORDER BY hash(v)"""  # noqa: S608 (no input)
