"""Files that an earlier version stored: they open, and stored answers come back at no charge."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lapwing
from lapwing.errors import OverBudget
from lapwing.ledger.spending import Target
from support.ledgers import release
from support.postgres import restore
from support.shell import Shell
from support.stored import QUESTIONS, environment, home_on_a_server, ibis_questions, place_of

HERE = Path(__file__).parent
ARCHIVES = sorted(HERE.glob("*.tar.gz"))
OF_EXPRESSIONS = sorted(HERE.glob("expressions/*.tar.gz"))


def _name(path: Path) -> str:
    return path.name.split(".")[0]


@pytest.fixture(params=ARCHIVES, ids=_name)
def stored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folders of an earlier version, where they were made. One test at a time has them."""
    with unpacked(request.param, monkeypatch) as top:
        yield top


@pytest.fixture(params=OF_EXPRESSIONS, ids=_name)
def stored_expressions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder with answers to expressions of ibis."""
    with unpacked(request.param, monkeypatch) as top:
        yield top / "expressions"


@contextmanager
def unpacked(archive_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    top = place_of(archive_path)
    with open(f"{top}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(top, ignore_errors=True)
        with tarfile.open(archive_path) as archive:
            # Python has filters since 3.11.4; these archives are our own.
            wanted: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
            archive.extractall(top, **wanted)
        for name, time in json.loads((top / "times.json").read_text()).items():
            os.utime(top / name, ns=(time, time))
        for note in top.glob("**/*.prepared/*.json"):
            _keep_identities(note)
        for name, value in environment(top).items():
            monkeypatch.setenv(name, value)
        yield top
        shutil.rmtree(top)


def _keep_identities(note: Path) -> None:
    """Note the inodes and times of change of now, which no archive can put back: nobody moved the files."""
    noted = json.loads(note.read_text())
    seen = noted.get("seen") if isinstance(noted, dict) else None
    for files in (seen or {}).values():
        for file in files:
            about = os.stat(file[0])
            file[1], file[4] = about.st_ino, about.st_ctime_ns
    note.write_text(json.dumps(noted))


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def ledger_here(earlier: str) -> str:
    """The ledger in the current folder: first versions named it after the policy."""
    return earlier if Path(earlier).exists() else "lapwing.ledger"


def entries(shell: Shell, ledger: str) -> int:
    done = shell("ledger", "log", ledger, "--json")
    assert done.code == 0, done.error
    return len(done.json)


def alike(now: Any, then: Any) -> bool:
    """Compare JSON. The last digits of an estimate depend on the processor."""
    if isinstance(now, float) and isinstance(then, float):
        return math.isclose(now, then, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(now, dict) and isinstance(then, dict):
        return now.keys() == then.keys() and all(alike(now[key], then[key]) for key in now)
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(alike, now, then))
    return bool(now == then)


def _taken_out(found: Any) -> list[tuple[Any, Any]]:
    """Take the intervals for these respondents out of a survey's JSON; beside each the population's."""
    return [
        (one.pop("respondents"), one["population"])
        for answer in found["answers"]
        for table in answer["tables"]
        for one in table["estimates"]
    ]


def test_answers_to_expressions_come_back_at_no_charge(stored_expressions: Path, shell: Shell) -> None:
    """Also where their sub-queries were part of their meaning."""
    stays = stored_expressions / "stays.toml"
    ledger = str(stored_expressions / "lapwing.ledger")
    before = entries(shell, ledger)
    answers = json.loads((stored_expressions / "answers.json").read_text())
    assert [now["replayed"] for now in answers] == [False] * len(answers)
    with lapwing.open(stays, analyst="analyst") as dataset:
        for question, then in zip(ibis_questions(), answers, strict=True):
            now = dataset.ask(question, epsilon="0.3").to_json()
            assert now["replayed"]
            assert now["receipt"] == then["receipt"]
            assert alike(now["columns"], then["columns"])
        assert entries(shell, ledger) == before
        fresh = dataset.ask(ibis_questions()[0], epsilon="0.3", fresh=True)
        assert not fresh.is_replay
        assert fresh.of == 1  # answers to the earlier form are never combined with
        again = dataset.ask(ibis_questions()[0], epsilon="0.3")
        assert again.receipt == fresh.receipt  # the newest form comes first
    assert shell("ledger", "verify", ledger).code == 0


@pytest.mark.parametrize("kind", ["prepared", "unprepared"])
def test_answers_come_back_at_no_charge(
    stored: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(stored / kind)
    ledger = ledger_here("stays.ledger")
    before = entries(shell, ledger)
    for question, then in zip(QUESTIONS, json.loads(Path("answers.json").read_text()), strict=True):
        done = shell("ask", "stays.toml", *question, "--json")
        assert done.code == 0, done.error
        now = done.json
        assert now["columns"] == then["columns"]
        assert now["replayed"]
        assert now["receipt"] == then["receipt"]
        assert now["truncation"][0].startswith("Uses at most ")
        counts_people = "COUNT(DISTINCT" in question[0]  # else what was bought of truncation is told
        assert counts_people or "people (" in now["truncation"][0]
    assert entries(shell, ledger) == before
    assert shell("ledger", "verify", ledger).code == 0
    new = shell("ask", "stays.toml", "SELECT COUNT(*) AS n FROM stays", "--epsilon", "0.1", "--json")
    assert new.code == 0, new.error
    assert entries(shell, ledger) > before


def test_reports_of_a_survey_give_the_same_estimates(
    stored: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stored / "survey")
    done = shell("survey", "estimate", "wellbeing.toml", "--reports", "wellbeing.simulated", "--json")
    assert done.code == 0, done.error
    now, then = done.json, json.loads(Path("estimates.json").read_text())
    # First versions left the drawing of who is asked out of these intervals, which were too short, or
    # gave the population's, which are too wide.
    for (new, _), (old, population) in zip(_taken_out(now), _taken_out(then), strict=True):
        holds = new["low"] <= old["low"] and old["high"] <= new["high"]
        assert holds or old == population
    then["privacy"]["local_epsilon"] = float(then["privacy"]["local_epsilon"])  # it was a text
    assert alike(now, then)
    assert shell("ledger", "verify", "respondents.ledger").code == 0
    done = shell("survey", "invite", "wellbeing.toml", "--count", "1", "--out", "more.txt")
    assert done.code == 0, done.error


def test_a_joint_run_is_shown_again(stored: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stored / "parties")
    for name in ("north", "south", "east"):
        run = ("party", "run", "joint-wards.consortium", "--me", name, "--policy", f"{name}/visits.toml")
        done = shell(*run)
        assert done.code == 0, done.error
        earlier = Path(f"{name}.answer").read_text()
        earlier = earlier.replace("  Left: ", "  Budget left: ").replace(
            " for one more answer without δ.", "."
        )
        now, then = done.out.splitlines(), earlier.splitlines()
        if not any(line.strip().startswith("Uses at most ") for line in then):  # first versions
            (more,) = set(now) - set(then)
            assert more.strip().startswith("Uses at most ")
            now.remove(more)
        assert now == then
        (transcript,) = [p for p in Path(name, "runs").glob("*.transcript") if ".relay" not in p.name]
        assert shell("party", "verify", str(transcript)).code == 0


def test_a_trained_statistic_is_shown_again(
    stored: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stored / "learning")
    ledger = ledger_here("rides.ledger")
    before = entries(shell, ledger)
    done = shell("train", "mean.toml")
    assert done.code == 0, done.error
    assert done.out == Path("mean.answer").read_text()
    assert entries(shell, ledger) == before
    done = shell("stream", "append", "rides.toml", "arriving/2026-02.parquet", "--through", "2026-02")
    assert done.code == 0, done.error


def test_a_release_comes_again_and_an_interrupted_one_goes_on(
    stored: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stored / "publishing"
    if not folder.exists():
        pytest.skip("nothing was published then")
    monkeypatch.chdir(folder)
    key = json.loads(Path("census/bundle.json").read_text())["key"]
    before = entries(shell, "lapwing.ledger")
    for command in (("run", "town-census.toml", "--out", "again"), ("verify", "census", "--key", key)):
        done = shell("publish", *command)
        assert done.code == 0, done.error
    assert entries(shell, "lapwing.ledger") == before
    measured = [Path(name, "measurements.json").read_bytes() for name in ("census", "again")]
    assert measured[0] == measured[1]
    drawn = [json.loads(line) for line in next(Path().glob("town-rows.*.journal")).read_text().splitlines()]
    done = shell("publish", "run", "town-rows.toml", "--out", "rows")
    assert done.code == 0, done.error
    kept = json.loads(Path("rows/measurements.json").read_text())["steps"]
    results = [line["result"] for line in drawn if "result" in line]
    assert len(results) == 8
    assert [one["result"] for one in kept if one["result"]][:8] == results
    assert shell("publish", "verify", "rows", "--key", key).code == 0


def test_a_ledger_in_postgresql_opens_and_goes_on(stored: Path) -> None:
    home = home_on_a_server(stored / "postgres")
    restore(home.where, (stored / "postgres" / "dump.sql").read_text())
    first = Target("visits", ("b0",))
    ledger = home.open()
    before = release(ledger, "0.25", Target("visits", ("b0", "b1")), key="stored", answer=b"other")
    assert (before.answer, before.is_replay) == (b"kept", True)
    assert not release(ledger, "0.5", first, key="new").is_replay
    with pytest.raises(OverBudget):
        release(ledger, "0.5", first, key="too much")
    assert not ledger.verify().findings
    home.close()
    home.open()
    home.close()
