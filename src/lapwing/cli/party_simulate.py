"""`lapwing party simulate`, `compare` and `example`: all members in one place, to learn and to try."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import typer

from lapwing.cli.example import begin_anew
from lapwing.cli.opened import AsJson, plainly, print_json
from lapwing.errors import BadParameter

NAMES = ("east", "north", "south", "west", "coast", "hills", "lakes", "plain", "river", "woods")
MEMBERS = ("north", "south", "east")
WISH, POLICY = "joint.toml", "visits.toml"
FEW_SIZES, FEW_MEMBERS = (10, 100, 1000), (2, 10)  # of a quick comparison
FILES = {"north": "visits.csv", "south": "visits.parquet", "east": "visits.duckdb"}
PEOPLE = {"north": 900, "south": 500, "east": 1300}


def simulate(
    *,
    members: Annotated[int, typer.Option(help="How many members.", min=1, max=100)] = 3,
    coalition: Annotated[int, typer.Option(help="How many may be the adversary's.", min=0)] = 1,
    losses: Annotated[int, typer.Option(help="How many more may fail before they have shared.", min=0)] = 0,
    people_at: Annotated[int, typer.Option(help="At how many members a person may be.", min=1)] = 1,
    adversary: Annotated[
        Literal["unbounded", "bounded"], typer.Option(help="Its computing power.")
    ] = "unbounded",
    protocol: Annotated[
        Literal["auto", "A", "B", "C", "D"], typer.Option(help="auto: the planner chooses.")
    ] = "auto",
    epsilon: Annotated[str, typer.Option(help="What a person may lose.")] = "1",
    counts: Annotated[
        str | None, typer.Option(help="Made-up counts, such as 120,45,230; else some are made up.")
    ] = None,
    lose: Annotated[
        list[str] | None,
        typer.Option(metavar="MEMBER:ROUND", help="Lose a member from a round on, such as south:deal."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run all members in one process on made-up counts, and show every round."""
    from lapwing.cli.show_party import show_simulation  # noqa: PLC0415
    from lapwing.exact import exact  # noqa: PLC0415
    from lapwing.parties.planning import JointWish  # noqa: PLC0415
    from lapwing.parties.simulation import simulate as simulated  # noqa: PLC0415

    wish = JointWish(
        members=members,
        coalition=coalition,
        losses=losses,
        adversary=adversary,
        protocol=protocol,
        epsilon=exact(epsilon, "epsilon"),
        delta=exact(0),
        people_at=people_at,
        noise="laplace",
    )
    numbers = [100 + 37 * k % 90 for k in range(members)] if counts is None else _whole_numbers(counts)
    done = simulated(wish, numbers, _names(members), lose=dict(_lost(one) for one in lose or ()))
    if as_json:
        print_json(done.to_json())
    else:
        show_simulation(done)


def compare(
    *,
    epsilon: Annotated[str, typer.Option(help="The ε of every way to count.")] = "1",
    repetitions: Annotated[int, typer.Option(help="Runs for each point.", min=2, max=10_000)] = 200,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .svg, .png or .pdf file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the numbers into this .json file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few points, in a second or two.")] = False,
) -> None:
    """Measure the error of a share: one curator, several members, the local model. Takes half a minute."""
    from lapwing.cli.show_ledger import working  # noqa: PLC0415
    from lapwing.cli.show_party import show_comparison  # noqa: PLC0415
    from lapwing.parties.simulation import compare as compared  # noqa: PLC0415
    from lapwing.parties.simulation.comparison import MEMBERS as MEMBERS_COMPARED  # noqa: PLC0415
    from lapwing.parties.simulation.comparison import SIZES  # noqa: PLC0415

    if plot is not None:
        from lapwing.plots.style import checked_path  # noqa: PLC0415

        checked_path(plot)
    sizes, members = (FEW_SIZES, FEW_MEMBERS) if quick else (SIZES, MEMBERS_COMPARED)
    with working("measuring") as report:
        found = compared(epsilon, repetitions=repetitions, sizes=sizes, members=members, tell=report)
    show_comparison(found)
    with plainly():
        if out is not None:
            out.write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
        if plot is not None:
            from lapwing.plots.parties import parties  # noqa: PLC0415
            from lapwing.plots.style import save  # noqa: PLC0415

            save(parties(found), plot)
            print(f"\nThe picture is in {plot}")


def example(
    folder: Annotated[Path, typer.Argument(help="Where to write; this folder unless you say.")] = Path("."),
) -> None:
    """Write three invented hospitals, each with its data and policy in a folder, and their wish."""
    targets = [folder / WISH, *(folder / name / file for name, file in FILES.items())]
    there = [path for path in targets if path.exists()]
    if there:
        raise BadParameter("folder", f"{there[0]} exists: nothing is written over")
    data = files("lapwing.cli").joinpath("data")
    policy = data.joinpath("joint_policy.toml").read_text(encoding="utf-8")
    with plainly():
        for name in MEMBERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
            where = f"{FILES[name]}#visits" if FILES[name].endswith(".duckdb") else FILES[name]
            (folder / name / POLICY).write_text(policy.replace("SOURCE", where), encoding="utf-8")
            _write(name, folder / name / FILES[name])
        (folder / WISH).write_text(data.joinpath(WISH).read_text(encoding="utf-8"), encoding="utf-8")
    begin_anew(targets)
    at = "" if folder == Path(".") else f"{folder}/"
    print(f"Wrote {at}{WISH} and the folders {', '.join(at + name for name in MEMBERS)}. Next:")
    print(f"  lapwing party plan {at}{WISH} --members 3 --policy {at}north/{POLICY}")


def _write(name: str, path: Path) -> None:
    """Visits of invented people: the same on every machine, and looking like chance."""
    import duckdb  # noqa: PLC0415

    sql = _visits(name, PEOPLE[name])
    with duckdb.connect(str(path) if path.suffix == ".duckdb" else ":memory:") as connection:
        match path.suffix:
            case ".csv":
                connection.sql(sql).write_csv(str(path))
            case ".parquet":
                connection.sql(sql).write_parquet(str(path))
            case _:
                connection.execute(f"CREATE TABLE visits AS {sql}")


def _visits(name: str, people: int) -> str:
    def chance(what: str, salt: str) -> str:
        return f"((hash({what}, '{salt} of {name}') % 10000) / 10000.0)"

    return f"""
        SELECT '{name}-' || p AS patient,
            CASE WHEN {chance("v", "ward")} < 0.4 THEN 'emergency'
                WHEN {chance("v", "ward")} < 0.65 THEN 'surgery'
                WHEN {chance("v", "ward")} < 0.9 THEN 'cardiology' ELSE 'maternity' END AS ward,
            CAST(floor(-5 * ln(1.0001 - {chance("v", "stay")})) AS INTEGER) AS stay,
            CAST(floor(95 * {chance("p", "age")}) AS INTEGER) AS age,
            CAST(floor(400 + 20 * floor(95 * {chance("p", "age")})
                + 250 * floor(-5 * ln(1.0001 - {chance("v", "stay")}))
                + 600 * {chance("v", "cost")}) AS INTEGER) AS cost
        FROM (SELECT p, 10 * p + k AS v FROM range({people}) AS people(p), range(3) AS rows(k)
              WHERE k < 1 + floor(-0.7 * ln(1.0001 - {chance("p", "visits")})))
        ORDER BY hash(v)"""  # noqa: S608 (all of it is ours)


def _names(members: int) -> list[str]:
    return [NAMES[k] if members <= len(NAMES) else f"member-{k + 1}" for k in range(members)]


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadParameter("counts", "must be whole numbers with commas, such as 120,45,230") from None


def _lost(text: str) -> tuple[str, str]:
    name, colon, where = text.partition(":")
    if not colon:
        raise BadParameter("lose", "must be MEMBER:ROUND, such as south:deal")
    return name, where
