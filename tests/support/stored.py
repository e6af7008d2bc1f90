"""Write the stored files of one version of Lapwing into an archive that later versions must still open.

Run once for a version, in `tests/` of a checkout of it: `python -m support.stored stored/COMMIT.tar.gz`.
An archive in `stored/expressions` has answers to expressions of ibis alone.
`tests/stored/test_stored.py` unpacks every archive, opens everything in it and compares what comes out
with the answers that were written down here.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from lapwing import open as open_policy
from lapwing.ledger.spending import Target
from support.ledgers import Home, open_sliced, release
from support.postgres import dumped, server
from support.published import KILLED_RELEASE

PLACE = (
    "/tmp/lapwing-stored-{}"  # sources are known by their path: archives are made and opened at one place
)
LAPWING = str(Path(sys.executable).parent / "lapwing")

POLICY = """
[dataset]
name = "stays"

[budget]
epsilon = 10.0
delta = 1e-6

[blocks]
by = "unit"
cohorts = 4

[tables.stays]
source = "stays.csv"
unit = "patient"
rows_per_unit = 3

[tables.stays.columns.ward]
values = ["surgery", "cardiology", "maternity"]

[tables.stays.columns.days]
low = 0
high = 30
step = 1
missing = 0
"""

# The exact bytes of each answer must come back, from a ledger with a prepared copy and from one without.
QUESTIONS = (
    ["SELECT ward, COUNT(*) AS n FROM stays GROUP BY ward", "--epsilon", "0.5"],
    ["SELECT AVG(days) AS mean FROM stays", "--epsilon", "0.5"],
    ["SELECT MEDIAN(days) AS middle FROM stays WHERE ward = 'surgery'", "--epsilon", "0.25"],
    ["SELECT COUNT(DISTINCT patient) AS people FROM stays", "--within", "20"],
)


def place_of(archive: Path) -> Path:
    """The folder in which the files of an archive were made."""
    return Path(PLACE.format(archive.name.split(".")[0]))


def environment(top: Path) -> dict[str, str]:
    """The second anchors, and who asks, whoever runs this."""
    return {"LAPWING_STATE": str(top / "state"), "LOGNAME": "analyst"}


def lapwing(folder: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run([LAPWING, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise SystemExit(f"lapwing {arguments}: {done.stderr}")
    return done.stdout


def curator(folder: Path, *, prepared: bool) -> None:
    folder.mkdir()
    wards = ("surgery", "cardiology", "maternity")
    # Some ids differ by case or spaces alone: versions may differ in which of them are one person.
    people = [f"{'pP'[k % 37 == 0]}{k % 150}{' ' * (k % 41 == 0)}" for k in range(400)]
    rows = [f"{person},{wards[k * k % 3]},{k * 7 % 33}" for k, person in enumerate(people)]
    (folder / "stays.csv").write_text("patient,ward,days\n" + "\n".join(rows) + "\n")
    (folder / "stays.toml").write_text(POLICY)
    if prepared:
        lapwing(folder, "prepare", "stays.toml")
    answers = [
        json.loads(lapwing(folder, "ask", "stays.toml", *question, "--json")) for question in QUESTIONS
    ]
    lapwing(folder, "dropped", "stays.toml", "stays", "--epsilon", "0.1")
    (folder / "answers.json").write_text(json.dumps(answers, indent=1))


def ibis_questions() -> list[Any]:
    """Expressions that ibis writes with sub-queries, of which a question can have fewer."""
    import ibis  # noqa: PLC0415 (with its pandas, it takes seconds)
    from ibis import _  # noqa: PLC0415

    stays = ibis.table({"patient": "string", "ward": "string", "days": "int64"}, name="stays")
    long = stays.filter(_.days >= 2)
    return [
        long.group_by("ward").aggregate(n=_.count()),
        stays.mutate(more=_.days + 1).filter(_.more > 3).aggregate(mean=_.more.mean()),
        long.mutate(a=_.days, b=_.days).aggregate(one=_.a.sum(), other=_.b.sum()),
        stays.filter(_.ward == "surgery").aggregate(middle=_.days.median()),
        stays.join(long.view(), "patient").group_by("ward").aggregate(n=_.count()),
    ]


def expressions(folder: Path) -> None:
    """Answers to expressions of ibis."""
    curator(folder, prepared=True)
    with open_policy(folder / "stays.toml", analyst="analyst") as stays:
        answers = [stays.ask(question, epsilon="0.3").to_json() for question in ibis_questions()]
    (folder / "answers.json").write_text(json.dumps(answers, indent=1))


def survey(folder: Path) -> None:
    folder.mkdir()
    lapwing(folder, "survey", "example")
    lapwing(folder, "survey", "invite", "wellbeing.toml", "--count", "2", "--out", "links.txt")
    lapwing(folder, "survey", "simulate", "wellbeing.toml", "--n", "300")
    (folder / "estimates.json").write_text(
        lapwing(
            folder, "survey", "estimate", "wellbeing.toml", "--reports", "wellbeing.simulated", "--json"
        )
    )


def parties(folder: Path) -> None:
    folder.mkdir()
    lapwing(folder, "party", "example")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wish = folder / "joint.toml"
    text = wish.read_text()
    wish.write_text(text.replace("127.0.0.1:7443", f"127.0.0.1:{port}"))
    members = ("north", "south", "east")
    for name in members:
        lapwing(folder, "party", "init", name)
    cards = [f"{name}/{name}.card" for name in members]
    lapwing(folder, "party", "invite", "joint.toml", *cards, "--policy", "north/visits.toml")
    for name in members:
        joined = ("--me", name, "--policy", f"{name}/visits.toml", "--yes")
        lapwing(folder, "party", "join", "joint-wards.consortium", *joined)
    run = {
        name: ("party", "run", "joint-wards.consortium", "--me", name, "--policy", f"{name}/visits.toml")
        for name in members
    }
    running = [
        subprocess.Popen([LAPWING, *run[name]], cwd=folder, stdout=subprocess.PIPE) for name in members
    ]
    for name, process in zip(members, running, strict=True):
        process.communicate(timeout=300)
        if process.returncode:
            raise SystemExit(f"{name} failed")
    for name in members:
        (folder / f"{name}.answer").write_text(lapwing(folder, *run[name]))


def on_a_server(folder: Path) -> None:
    folder.mkdir()
    home = home_on_a_server(folder)
    ledger = home.create()
    open_sliced(ledger, 3)
    release(ledger, "0.25", Target("visits", ("b0", "b1")), key="stored", answer=b"kept")
    ledger.close()
    (folder / "dump.sql").write_text(dumped(home.where))


def home_on_a_server(folder: Path) -> Home:
    """The place of the ledger that lies in PostgreSQL."""
    path = folder / "visits.ledger"
    where = f"{server()}#stored_{folder.parent.name.rpartition('-')[2]}"
    return Home(where, Path(f"{path}.keys"), Path(f"{path}.anchor"), Path(f"{path}.curator"))


def learning(folder: Path) -> None:
    folder.mkdir()
    lapwing(folder, "train", "example")
    lapwing(folder, "stream", "append", "rides.toml", "--through", "2026-01")
    lapwing(folder, "train", "mean.toml")
    (folder / "mean.answer").write_text(lapwing(folder, "train", "mean.toml"))


def publishing(folder: Path) -> None:
    """A census with its bundle, and a synthesis that was killed after some steps."""
    folder.mkdir()
    lapwing(folder, "publish", "example")
    lapwing(folder, "publish", "run", "town-census.toml", "--out", "census")
    command = [
        sys.executable,
        "-c",
        KILLED_RELEASE,
        "9",
        "publish",
        "run",
        "town-rows.toml",
        "--out",
        "rows",
    ]
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if not list(folder.glob("town-rows.*.journal")):
        raise SystemExit("the release was not interrupted")


def everything(top: Path) -> None:
    curator(top / "prepared", prepared=True)
    curator(top / "unprepared", prepared=False)
    survey(top / "survey")
    parties(top / "parties")
    learning(top / "learning")
    publishing(top / "publishing")
    on_a_server(top / "postgres")


def main(archive: Path) -> None:
    top = place_of(archive)
    top.mkdir()
    try:
        os.environ.update(environment(top))
        if archive.parent.name == "expressions":
            expressions(top / "expressions")
        else:
            everything(top)
        # An archive rounds times, and a source whose time differs is another version of it.
        times = {str(path.relative_to(top)): path.stat().st_mtime_ns for path in top.rglob("*")}
        (top / "times.json").write_text(json.dumps(times))
        with tarfile.open(archive, "w:gz") as out:
            for path in sorted(top.iterdir()):
                out.add(path, path.name)
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
