"""The budget follows the data: no other name of a policy, a file or a folder gives a new one."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, LapwingError, OverBudget, Unavailable
from lapwing.ledger import Ledger
from lapwing.ledger.registry import Registry
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy import source_location
from lapwing.sql.policy.policy import Source
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.policy.source_location import registry_names
from lapwing.sql.reading.prepare import PREPARED_NOTE
from lapwing.storage.birth_time import birth_time
from sql.conftest import POLICY, write_visits
from support.askers import ask
from support.forking import FORKING, forked
from support.shell import Shell

COUNT = "SELECT COUNT(*) AS n FROM visits"
OTHER = "SELECT SUM(stay) AS other FROM visits"
Open = Callable[..., Dataset]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def asked(policy: Path, sql: str = OTHER, *, prepare: bool = False) -> None:
    """Ask for all that is left of ε 10."""
    with Dataset(load_policy(policy), analyst="ann") as dataset:
        if prepare:
            dataset.prepare()
        dataset.ask(sql, epsilon=10)


@pytest.fixture
def spent(opened: Open, tmp_path: Path) -> Path:
    """A policy with nothing left."""
    with opened() as dataset:
        dataset.ask(COUNT, epsilon=10)
    return tmp_path / "visits.toml"


def copied(policy: Path) -> Path:
    return Path(shutil.copy(policy, policy.with_name("copy.toml")))


def renamed(policy: Path) -> Path:
    return policy.rename(policy.with_name("renamed.toml"))


def linked(policy: Path) -> Path:
    policy.with_name("link.toml").symlink_to(policy)
    return policy.with_name("link.toml")


@pytest.mark.parametrize("another", [copied, renamed, linked])
# Case C1.
def test_another_name_of_the_policy_has_the_same_budget(
    spent: Path, another: Callable[[Path], Path]
) -> None:
    policy = another(spent)
    with pytest.raises(BadParameter, match="by another policy file"):
        asked(policy)
    with pytest.raises(OverBudget):
        asked(policy, prepare=True)
    assert len(list(spent.parent.glob("*.ledger"))) == 1


def in_a_folder(policy: Path, source: str) -> Path:
    policy = policy.parent / "sub" / "visits.toml"
    policy.parent.mkdir(exist_ok=True)
    policy.write_text(POLICY.format(more="").replace("visits*.parquet", source))
    return policy


def by_path(data: Path, _: Path) -> str:
    return f"../{data.name}"


def by_link(data: Path, folder: Path) -> str:
    (folder / "linked.parquet").symlink_to(data)
    return "linked.parquet"


def by_hard_link(data: Path, folder: Path) -> str:
    (folder / "hard.parquet").hardlink_to(data)
    return "hard.parquet"


def moved(data: Path, folder: Path) -> str:
    data.rename(folder / "moved.parquet")
    return "m*.parquet"


@pytest.mark.parametrize("way", [by_path, by_link, by_hard_link, moved])
def test_a_policy_elsewhere_for_the_same_file_is_told_to_join(
    spent: Path, way: Callable[[Path, Path], str]
) -> None:
    folder = spent.parent / "sub"
    folder.mkdir()
    policy = in_a_folder(spent, way(spent.with_name("visits.parquet"), folder))
    with pytest.raises(BadParameter, match=r"spend from .*lapwing\.ledger already") as refused:
        asked(policy)
    assert not list(folder.glob("*.ledger*"))
    join = str(refused.value).partition("below it ")[2]
    policy.write_text(policy.read_text() + f"[ledger]\n{join}\n")
    with pytest.raises(OverBudget):
        asked(policy, prepare=True)


# Case C1.
def test_a_ledger_of_its_own_gives_no_new_budget(spent: Path) -> None:
    """Neither one that is made for it, nor another that is there."""
    Ledger.create(spent.with_name("empty.ledger")).close()
    for name in ("new.ledger", "empty.ledger"):
        spent.write_text(POLICY.format(more=f'[ledger]\nurl = "{name}"\n'))
        with pytest.raises(BadParameter, match="already, for life"):
            asked(spent)
    assert not spent.with_name("new.ledger").exists()


@pytest.mark.parametrize("also", ["", "copied"])
# Case C1.
def test_a_ledger_that_is_deleted_is_missed(spent: Path, also: str) -> None:
    for path in spent.parent.glob("*.ledger*"):
        path.unlink()
    with pytest.raises(BadParameter, match=r"missing.*recover"):
        asked(copied(spent) if also else spent)
    assert not list(spent.parent.glob("*.ledger*"))


def test_ledgers_named_after_their_policy_stay_in_use(opened: Open, tmp_path: Path) -> None:
    """As they were made before; copies of the policy are told of them."""
    opened()
    Ledger.create(tmp_path / "visits.ledger").close()
    asked(tmp_path / "visits.toml")
    assert not (tmp_path / "lapwing.ledger").exists()
    with pytest.raises(BadParameter, match=r"spend from .*visits\.ledger already"):
        asked(copied(tmp_path / "visits.toml"))
    for path in tmp_path.glob("visits.ledger*"):
        path.unlink()
    with pytest.raises(BadParameter, match=r"visits\.ledger, for life, and that is missing"):
        asked(tmp_path / "visits.toml")


def test_a_folder_that_moves_takes_its_budget_along(spent: Path) -> None:
    folder = spent.parent.rename(spent.parent.with_name("elsewhere"))
    with pytest.raises(OverBudget):
        asked(folder / "visits.toml", prepare=True)
    with pytest.raises(BadParameter, match=r"elsewhere/lapwing\.ledger already"):
        asked(in_a_folder(folder / "visits.toml", "../visits.parquet"))


# Case C15.
def test_a_copied_file_elsewhere_is_about_the_same_people(spent: Path) -> None:
    folder = spent.parent / "sub"
    folder.mkdir()
    shutil.copy(spent.with_name("visits.parquet"), folder)
    with pytest.raises(BadParameter, match="the same people"):
        asked(in_a_folder(spent, "visits.parquet"))


# Case C15.
def test_the_example_in_two_folders_is_about_people_of_their_own(shell: Shell, tmp_path: Path) -> None:
    """A newcomer who tries it again elsewhere is asked nothing."""
    for folder in ("one", "two"):
        shell.good("example", tmp_path / folder)
        shell.good("ask", tmp_path / folder / "visits.toml", COUNT, "--epsilon", "3")


def test_processes_that_ask_first_make_one_ledger(opened: Open, tmp_path: Path) -> None:
    policy = opened().policy.path
    out = FORKING.Queue()
    asking = [forked(ask, policy, COUNT, "10", out) for _ in range(3)]
    for process in asking:
        process.start()
    answers = {out.get(timeout=120) for _ in asking} - {None}
    for process in asking:
        process.join()
    assert [process.exitcode for process in asking] == [0, 0, 0]
    assert len(answers) == 1
    with pytest.raises(OverBudget):
        asked(tmp_path / "visits.toml")


def test_two_data_sets_of_a_folder_have_a_budget_each(spent: Path) -> None:
    """In one ledger; unless somebody is in both."""
    for name, people in (("others", range(1_000, 1_300)), ("some", range(299, 400))):
        write_visits(spent.parent, people, name)
        text = spent.read_text().replace('name = "visits"', f'name = "{name}"')
        spent.with_name(f"{name}.toml").write_text(text.replace("visits*.parquet", f"{name}.parquet"))
    asked(spent.with_name("others.toml"))
    with pytest.raises(OverBudget, match="visits"):
        asked(spent.with_name("some.toml"))
    assert [path.name for path in spent.parent.glob("*.ledger")] == ["lapwing.ledger"]


def test_a_name_that_other_data_have_is_refused(spent: Path) -> None:
    write_visits(spent.parent, range(1_000, 1_300), "others")
    policy = copied(spent)
    policy.write_text(policy.read_text().replace("visits*.parquet", "others.parquet"))
    with pytest.raises(BadParameter, match="a name of their own"):
        asked(policy)


def test_what_is_made_is_told(spent: Path, shell: Shell, tmp_path: Path) -> None:
    """On stderr by commands, once; with the first answer in Python."""
    write_visits(tmp_path, range(1_000, 1_300), "others")
    text = spent.read_text().replace('name = "visits"', 'name = "others"')
    policy = spent.with_name("others.toml")
    policy.write_text(text.replace("visits*.parquet", "others.parquet"))
    with Dataset(load_policy(policy), analyst="ann") as dataset:
        first, second = dataset.ask(COUNT, epsilon=1), dataset.ask(OTHER, epsilon=1)
    assert first.notes[0] == PREPARED_NOTE.format("others.prepared")
    assert first.notes[1:] == ('New account "others" with ε 10 and δ 1e-6, for life.',)
    assert second.notes == ()
    shell("example", tmp_path / "sub")
    done = shell("ask", tmp_path / "sub" / "visits.toml", COUNT, "--epsilon", "1", "--json")
    ledger = tmp_path / "sub" / "lapwing.ledger"
    assert done.error.splitlines() == [
        f"lapwing: New ledger {ledger}, for life. The curator's key is in {ledger}.curator: move it away.",
        f"lapwing: {PREPARED_NOTE.format('visits.prepared')}",
        'lapwing: New account "visits" with ε 3 and δ 1e-6, for life.',
    ]
    assert done.json["notes"] == []
    assert shell("ask", tmp_path / "sub" / "visits.toml", OTHER, "--epsilon", "1").error == ""


def test_the_example_begins_anew(shell: Shell, tmp_path: Path) -> None:
    """Invented data that were thrown away with their ledger are nobody's."""
    for _ in range(2):
        shell.good("example", tmp_path / "sub")
        shell.good("ask", tmp_path / "sub" / "visits.toml", COUNT, "--epsilon", "3")
        shutil.rmtree(tmp_path / "sub")


def test_the_registry_is_its_owner_s_and_is_not_guessed_at(
    spent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(os.environ["LAPWING_STATE"], "sources")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"x" * 5_000)
    with pytest.raises(Unavailable, match="registry"):
        asked(spent)
    monkeypatch.setenv("LAPWING_STATE", "/proc/nowhere")  # a user without a folder
    with pytest.raises(LapwingError):
        asked(spent)


def test_a_new_file_in_the_inode_of_a_deleted_one_is_another_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it has the same time of change: a copy of the same data in a fresh folder."""
    first, second = tmp_path / "one.parquet", tmp_path / "two.parquet"
    write_visits(tmp_path, range(9), "one")
    made, about = birth_time(first), first.stat()
    if made is None:
        pytest.skip("this file system does not know when a file was made")
    noted = registry_names(Source("duckdb", str(first), "", "parquet"))
    first.rename(second)
    os.utime(second, ns=(0, about.st_mtime_ns))
    source = Source("duckdb", str(second), "", "parquet")
    assert birth_time(second) == made
    assert len(registry_names(source) & noted) == 1
    earlier = f"inode:{about.st_dev}:{about.st_ino}:{about.st_mtime_ns}"  # as earlier versions noted it
    assert earlier in registry_names(source, earlier=True) - noted
    later = tmp_path / "later.parquet"
    time.sleep(0.02)  # the clock of a file system has steps
    shutil.copy2(second, later)
    other = birth_time(later)
    assert other is not None
    assert other > made
    monkeypatch.setattr(source_location, "birth_time", lambda _: other)  # this inode, given again
    assert not registry_names(source) & noted


def test_a_server_has_one_name() -> None:
    """Without users and passwords, and however this machine is called."""

    def names(url: str, table: str = "visits") -> set[str]:
        return registry_names(Source("postgres", url, table, "postgres"))

    alike = {
        *names("postgresql://ann:secret@localhost/clinic"),
        *names("postgres://bob@127.0.0.1:5432/clinic?sslmode=require", "public.visits"),
        *names("postgresql:///clinic"),
        *names("postgresql:///?host=/run/postgresql&dbname=clinic"),
    }
    assert alike == {"postgres:localhost:5432/clinic#public.visits"}
    assert names("postgresql://Db.example.org/clinic") == names("postgresql://db.example.org:5432/clinic")
    others = [names("postgresql://h:5433/c"), names("postgresql://h/c"), names("postgresql://h/d")]
    assert len(set().union(*others, names("postgresql://h/c", "s.visits"))) == 4


def test_tables_of_one_database_file_are_several_sources(tmp_path: Path) -> None:
    (tmp_path / "a.duckdb").write_bytes(b"")
    one = Source("duckdb", str(tmp_path / "a.duckdb"), "t", "duckdb")
    assert registry_names(one) == registry_names(replace(one, table="main.t"))
    assert not registry_names(one) & registry_names(replace(one, table="u"))


def test_capitals_of_a_table_give_no_other_name(tmp_path: Path) -> None:
    """Where the engine does not tell them apart."""
    (tmp_path / "a.duckdb").write_bytes(b"")
    one = Source("duckdb", str(tmp_path / "a.duckdb"), "visits", "duckdb")
    spark = Source("spark", "local[2]", "visits", "spark")
    server = Source("postgres", "postgresql://h/c", "visits", "postgres")
    for table in ("Visits", "VISITS"):
        assert registry_names(one) == registry_names(replace(one, table=table))
        assert registry_names(spark) == registry_names(replace(spark, table=f"default.{table}"))
        assert registry_names(server) != registry_names(replace(server, table=table))


def test_files_that_spark_reads_have_one_name(tmp_path: Path) -> None:
    """However they are addressed, and whichever cluster reads them."""
    (tmp_path / "a.parquet").write_bytes(b"")
    here = Source("spark", "local[2]", str(tmp_path / "a.parquet"), "spark-parquet")
    assert len(registry_names(here)) == 2
    assert registry_names(here) == registry_names(replace(here, table=f"file://{here.table}"))
    far = replace(here, table="s3://clinic/a.parquet")
    assert registry_names(far) == registry_names(replace(far, location="spark://there:7077")) != set()


def test_what_was_noted_and_then_failed_is_not_noted() -> None:
    with suppress(ZeroDivisionError), Registry.at().open() as known:
        known.note(["a"], ledger="1", place="there")
        raise ZeroDivisionError
    with Registry.at().open() as known:
        assert known.ledgers_of(["a"]) == {}
        known.note(["a", "b"], ledger="1", place="there")
        known.note(["b"], ledger="2", place="elsewhere")
        known.note([], ledger="1", place="moved")
    with Registry.at().open() as known:
        assert known.ledgers_of(["b", "c"]) == {"1": "moved"}
