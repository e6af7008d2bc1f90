"""Three invented hospitals, each with its data and policy in a folder, and the file of their joint wish."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from lapwing.errors import BadParameter
from lapwing.examples.visits import chance, forget_lost_ledgers

MEMBERS = ("north", "south", "east")
WISH, POLICY = "joint.toml", "visits.toml"
FILES = {"north": "visits.csv", "south": "visits.parquet", "east": "visits.duckdb"}
PEOPLE = {"north": 900, "south": 500, "east": 1300}


def write_hospitals(folder: Path) -> None:
    """Write all files into the folder. Raise BadParameter if one of them exists."""
    targets = [folder / WISH, *(folder / name / file for name, file in FILES.items())]
    if existing := [path for path in targets if path.exists()]:
        raise BadParameter("folder", f"{existing[0]} exists: nothing is written over")
    data = files("lapwing.examples").joinpath("data")
    policy = data.joinpath("joint_policy.toml").read_text(encoding="utf-8")
    for name in MEMBERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
        location = f"{FILES[name]}#visits" if FILES[name].endswith(".duckdb") else FILES[name]
        (folder / name / POLICY).write_text(policy.replace("SOURCE", location), encoding="utf-8")
        _write_rows(name, folder / name / FILES[name])
    (folder / WISH).write_text(data.joinpath(WISH).read_text(encoding="utf-8"), encoding="utf-8")
    forget_lost_ledgers(targets)


def _write_rows(name: str, path: Path) -> None:
    import duckdb  # noqa: PLC0415

    sql = _visits_sql(name, PEOPLE[name])
    with duckdb.connect(str(path) if path.suffix == ".duckdb" else ":memory:") as connection:
        match path.suffix:
            case ".csv":
                connection.sql(sql).write_csv(str(path))
            case ".parquet":
                connection.sql(sql).write_parquet(str(path))
            case _:
                connection.execute(f"CREATE TABLE visits AS {sql}")


def _visits_sql(name: str, people: int) -> str:
    """Return visits of invented people: the same on every machine, and looking like chance."""

    def random(key: str, salt: str) -> str:
        return f"({chance(key, f'{salt} of {name}')})"

    return f"""
        SELECT '{name}-' || p AS patient,
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
