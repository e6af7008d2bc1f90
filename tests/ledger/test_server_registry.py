"""A registry on a server keeps the promises of one in a folder, for a team on several machines."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from lapwing.config.values import is_postgres
from lapwing.errors import BadParameter, LapwingError, OverBudget, SessionOver, Tampered, Unavailable
from lapwing.ledger import Ledger, server_registry
from lapwing.ledger.recovery import recover, register_anew
from lapwing.ledger.registry import OpenCopy, Registry
from lapwing.ledger.spending import Target
from lapwing.ledger.unit_ids import Sketch
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from sql.conftest import POLICY, write_visits
from support import postgres
from support.ledgers import Home, open_account, release

SECRET = "s3cret-pa55"


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a registry that nobody has used yet, for all ledgers of the test."""
    url = postgres.fresh_url()
    monkeypatch.setenv("LAPWING_STATE", url)
    yield url
    gc.collect()
    postgres.sql(url, f"DROP SCHEMA IF EXISTS {postgres.schema_of(url)} CASCADE")


def started(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def in_process(script: str, *arguments: object) -> str:
    """Return what a script in a process of its own prints."""
    with started(script, *arguments) as process:
        return process.communicate()[0].strip()


def two_copies(folder: Path) -> tuple[Path, Path]:
    """Make a ledger with ε 1, and copy it with its keys and its anchor."""
    (folder / "a").mkdir()
    with Ledger.create(folder / "a" / "ledger") as ledger:
        open_account(ledger, "visits")
    shutil.copytree(folder / "a", folder / "b")
    return folder / "a" / "ledger", folder / "b" / "ledger"


def end_sessions(url: str, number: int) -> None:
    """End the connection that holds an advisory lock, as an administrator may."""
    [(ended,)] = postgres.sql(
        url,
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_locks WHERE locktype = 'advisory' "
        f"AND ((classid::bigint << 32) | objid::bigint) = {number} AND objsubid = 1",
    )
    assert ended == 1


def lock_of(url: str, ledger: Ledger) -> int:
    return server_registry.ServerHome.of(url).lock_number(f"copy {ledger.id}")


class TestHome:
    def test_its_default_is_a_schema_of_its_own(self) -> None:
        address = server_registry.ServerHome.of("postgresql://bob@there/data").address
        assert (address.schema, address.where) == ("lapwing_registry", "postgresql://there/data#registry")

    def test_an_environment_or_a_policy_names_it(self, team: str, tmp_path: Path) -> None:
        named, other = Registry.at(team), Registry.at(str(tmp_path))
        assert named.id == Registry.at().id != other.id
        assert is_postgres(named.where)
        write_visits(tmp_path, range(20))
        (tmp_path / "visits.toml").write_text(POLICY.format(more=f'[ledger]\nregistry = "{team}"\n'))
        policy = load_policy(tmp_path / "visits.toml")
        assert policy.ledger_registry == team
        (tmp_path / "visits.toml").write_text(POLICY.format(more='[ledger]\nregistry = "ftp://there"\n'))
        with pytest.raises(LapwingError, match="postgresql://"):
            load_policy(tmp_path / "visits.toml")

    def test_a_ledger_on_either_database_opens_with_it(self, team: str, home: Home) -> None:
        with home.create() as ledger:
            open_account(ledger, "visits")
            release(ledger, "0.1", Target("visits"))
        with home.open() as ledger:
            release(ledger, "0.1", Target("visits"))
            assert not ledger.verify().findings
        assert postgres.sql(team, "SELECT count(*) > 0 FROM witnesses") == [(True,)]

    def test_nobody_else_may_read_the_key(self, team: str) -> None:
        schema = postgres.schema_of(team)
        _ = Registry.at().key
        reader = f"{schema}_reader"
        postgres.sql(team, f"CREATE ROLE {reader}")
        try:
            may = f"SELECT has_schema_privilege('{reader}', '{schema}', 'USAGE')"
            assert postgres.sql(team, may) == [(False,)]
        finally:
            postgres.sql(team, f"DROP ROLE {reader}")
        postgres.sql(team, f"GRANT USAGE ON SCHEMA {schema} TO PUBLIC")
        with pytest.raises(BadParameter, match="REVOKE"):
            _ = Registry.at().key

    def test_a_plain_connection_to_another_machine_is_refused(
        self, team: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server_registry, "_is_local", lambda _: False)
        with pytest.raises(Unavailable, match="not encrypted"):
            _ = Registry.at().key
        assert postgres.sql(team, f"SELECT to_regnamespace('{postgres.schema_of(team)}')") == [(None,)]

    def test_no_error_has_the_password(self, team: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server_registry, "_is_local", lambda _: False)
        server = postgres.server()
        query = server.partition("?")[2]
        urls = (
            f"postgresql://bob:{SECRET}@127.0.0.1:1/data",
            f"postgresql://bob:{SECRET}/@127.0.0.1:1/data",
            f"postgresql://bob:{SECRET}@127.0.0.1:1/data#NO-NAME",
            f"postgresql://127.0.0.1:1/data?user=bob&password={SECRET}",
            f"postgresql://postgres:{SECRET}@/postgres?{query}",
        )
        for url in urls:
            with pytest.raises(LapwingError) as refused:
                _ = Registry.at(url).key
            assert SECRET not in f"{refused.value!r} {refused.value}"
        assert SECRET not in repr(Registry.at(urls[0]))


class TestWhole:
    # Case C15.
    @pytest.mark.parametrize(
        "damage",
        [
            "DELETE FROM registry",
            "UPDATE registry SET key = 'short'",
            *(f"DROP TABLE {name}" for name in ("registry", "ledgers", "sources", "people", "copies")),
        ],
    )
    def test_a_registry_without_a_part_is_refused(self, team: str, tmp_path: Path, damage: str) -> None:
        Ledger.create(tmp_path / "ledger").close()
        postgres.sql(team, damage)
        for attempt in (Ledger.open, Ledger.create):
            with pytest.raises(BadParameter, match="is not whole") as refused:
                attempt(tmp_path / ("ledger" if attempt == Ledger.open else "second"))
            assert refused.value.name == "registry"

    def test_another_key_is_noticed_by_who_knew_the_first(self, team: str) -> None:
        registry = Registry.at()
        _ = registry.key
        postgres.sql(team, "UPDATE registry SET key = decode(repeat('00', 32), 'hex')")
        with pytest.raises(BadParameter, match="was changed"), registry.open():
            pass

    # Case C15.
    def test_a_new_registry_in_its_place_is_another_one(self, team: str, file_home: Home) -> None:
        with file_home.create() as ledger:
            open_account(ledger, "visits")
        postgres.sql(team, f"DROP SCHEMA {postgres.schema_of(team)} CASCADE")
        with pytest.raises(BadParameter, match="another one"):
            file_home.open()
        home = file_home
        register_anew(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor)
        home.open().close()

    def test_a_registry_that_forgot_a_ledger_is_refused(self, team: str, file_home: Home) -> None:
        file_home.create().close()
        postgres.sql(team, "DELETE FROM ledgers")
        with pytest.raises(BadParameter, match="does not know it any more"):
            file_home.open()

    def test_a_ledger_s_schema_is_no_registry(self, tmp_path: Path) -> None:
        url = postgres.fresh_url()
        Ledger.create(url, keys=tmp_path / "keys", anchor=tmp_path / "anchor").close()
        with pytest.raises(BadParameter, match="is not whole"):
            _ = Registry.at(url).key

    def test_what_fails_is_undone_and_the_key_stays(self, team: str) -> None:
        registry = Registry.at()

        def failing(*, goes_on: bool) -> None:
            with registry.open() as known:
                known.note(ledger="1", place="there")
                try:
                    known.run("SELECT 1 FROM none")
                except Unavailable:
                    if not goes_on:
                        raise

        for goes_on, why in ((False, "cannot be used"), (True, "may not have noted")):
            with pytest.raises(Unavailable, match=why):
                failing(goes_on=goes_on)
            assert Registry.at().key == registry.key
            with registry.open() as known:
                assert known.place_of("1") is None


class TestPeople:
    def test_people_are_known_by_ids_and_only_in_other_ledgers(self, team: str) -> None:
        registry = Registry.at()
        key = registry.key
        with registry.open() as known:
            for place in ("then", "there"):
                known.note(["s", "s"], ledger="1", place=place, account="a")
            for some in ([1, 2, 3], [9]):
                known.note_people(Sketch.of(some, key), key, ledger="1", data="visits")
        with registry.open() as known:
            for ids, found in (([3, 4], {"1": "there"}), ([9], {"1": "there"}), ([4], {})):
                assert known.ledgers_with(Sketch.of(ids, key), key, besides="2") == found
            assert known.ledgers_with(Sketch.of([3], key), key, besides="1") == {}
            assert known.ledgers_of(["s"]) == {"1": "there"}
            assert known.accounts_of(["s"]) == {"a"}
            known.forget_sources("1")
            assert known.ledgers_of(["s"]) == {}
            known.note(["file:/no/a#t", "file:/no/ab"], ledger="2", place="/no/ledger")
            known.forget_gone([Path("/no/a")])
            assert known.ledgers_of(["file:/no/a#t"]) == {}
            assert known.ledgers_of(["file:/no/ab"]) == {"2": "/no/ledger"}

    # Case C15.
    def test_the_same_people_in_two_ledgers_of_the_team_are_refused(
        self, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By the policy alone: each user has a registry of their own besides."""
        for name in ("a", "b"):
            monkeypatch.setenv("LAPWING_STATE", str(tmp_path / f"state of {name}"))
            (tmp_path / name).mkdir()
            write_visits(tmp_path / name, range(300))
            policy = tmp_path / name / "visits.toml"
            policy.write_text(POLICY.format(more=f'[ledger]\nregistry = "{team}"\n'))
        with Dataset(load_policy(tmp_path / "a" / "visits.toml"), analyst="ann") as dataset:
            dataset.ask("SELECT COUNT(*) AS n FROM visits", epsilon=1)
        with (
            Dataset(load_policy(tmp_path / "b" / "visits.toml"), analyst="bob") as dataset,
            pytest.raises(BadParameter, match=r"a/lapwing\.ledger"),
        ):
            dataset.ask("SELECT COUNT(*) AS n FROM visits", epsilon=1)

    def test_of_two_processes_with_the_same_people_exactly_one_wins(self, team: str) -> None:
        script = """if True:
            import sys
            from lapwing.ledger.registry import Registry
            from lapwing.ledger.unit_ids import Sketch
            own, registry = sys.argv[1], Registry.at()
            print("ready", flush=True)
            sys.stdin.readline()
            people = Sketch.of([1, 2, 3], registry.key)
            with registry.open() as known:
                others = known.ledgers_with(people, registry.key, besides=own)
                if not others:
                    known.note(ledger=own, place=own)
                    known.note_people(people, registry.key, ledger=own, data="visits")
            print("refused" if others else "noted")
            """
        both = [started(script, name) for name in "ab"]  # the tables are made by one of them, too
        for one in both:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in both:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        assert sorted(one.communicate()[0].strip() for one in both) == ["noted", "refused"]
        assert postgres.sql(team, "SELECT count(*) FROM people") == [(1,)]

    def test_a_thread_opens_it_once_and_others_wait(self, team: str) -> None:
        registry, seen = Registry.at(), []
        _ = registry.key

        def look() -> None:
            with Registry.at(team).open() as known:
                seen.append(known.place_of("1"))

        with registry.open() as known:
            with Registry.at(team).open() as again:
                assert again is known
                assert Registry.at(team).key == registry.key
            other = threading.Thread(target=look)
            other.start()
            postgres.until(lambda: postgres.sql(team, "SELECT 1 FROM pg_locks WHERE NOT granted"))
            known.note(ledger="1", place="there")
        other.join()
        assert seen == ["there"]


class TestWitness:
    # Case C15.
    def test_it_notices_a_restored_ledger(self, team: str, tmp_path: Path) -> None:
        """Also if the first anchor is restored with it."""
        current, older = two_copies(tmp_path)
        with Ledger.open(current) as ledger:
            release(ledger, "0.1", Target("visits"))
        with pytest.raises(Tampered):
            Ledger.open(older)
        Ledger.open(current).close()

    # Case C15.
    def test_it_only_grows_and_must_be_there(self, team: str, file_home: Home) -> None:
        home = file_home
        with home.create() as ledger:
            open_account(ledger, "visits")
        for change in ("DELETE FROM witnesses", "UPDATE witnesses SET seq = 0", "TRUNCATE witnesses"):
            with pytest.raises(psycopg.Error, match="only grows"):
                postgres.sql(team, change)
        postgres.sql(team, "ALTER TABLE witnesses DISABLE TRIGGER witnesses_stay; DELETE FROM witnesses")
        with pytest.raises(Tampered, match="second anchor"):
            home.open()
        assert recover(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor) == 1
        with home.open() as ledger, pytest.raises(OverBudget):
            release(ledger, "0.1", Target("visits"))


class TestCopies:
    # Case C15.
    def test_two_copies_are_never_open_at_once(self, team: str, tmp_path: Path) -> None:
        script = """if True:
            import sys
            from lapwing.errors import BadParameter
            from lapwing.ledger import Ledger
            try:
                Ledger.open(sys.argv[1]).close()
                print("opened")
            except BadParameter as error:
                print("refused" if "is a copy of the ledger" in str(error) else error)
            """
        one, other = two_copies(tmp_path)
        with Ledger.open(one):
            assert in_process(script, one) == "opened"  # of the same copy, there may be many
            assert in_process(script, other) == "refused"
            with pytest.raises(BadParameter, match="copy") as refused:
                Ledger.open(other)
            assert str(one) in str(refused.value)
        assert in_process(script, other) == "opened"  # nobody spent anything meanwhile

    # Case C15.
    def test_a_lost_connection_ends_the_session(self, team: str, tmp_path: Path) -> None:
        one, other = two_copies(tmp_path)
        with closing(Ledger.open(one)) as first:
            release(first, "0.1", Target("visits"))
            end_sessions(team, lock_of(team, first))
            for _ in range(2):  # for good: another copy may have been open meanwhile
                with pytest.raises(SessionOver, match="connection to the registry") as over:
                    release(first, "0.1", Target("visits"))
            assert "postgres@" not in str(over.value)
        with Ledger.open(one) as again:
            release(again, "0.1", Target("visits"))
        with pytest.raises(Tampered):
            Ledger.open(other)

    def test_a_removed_name_ends_the_session(self, team: str, tmp_path: Path) -> None:
        one, _ = two_copies(tmp_path)
        with closing(Ledger.open(one)) as first:
            postgres.sql(team, "DELETE FROM copies")
            with pytest.raises(SessionOver, match="was removed"):
                release(first, "0.1", Target("visits"))

    def test_the_same_inode_on_another_machine_is_another_copy(
        self, team: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry = Registry.at()
        with (
            closing(OpenCopy(registry, "1", "64:12", "here")),
            closing(OpenCopy(registry, "2", "postgres:1", "x")),
        ):
            OpenCopy(registry, "1", "64:12", "here").close()
            monkeypatch.setattr(server_registry, "_machine", lambda: "another")
            OpenCopy(registry, "2", "postgres:1", "x").close()
            with pytest.raises(BadParameter, match="is a copy of the ledger here"):
                OpenCopy(registry, "1", "64:12", "there")
        OpenCopy(registry, "1", "64:12", "there").close()

    def test_threads_share_answers(self, team: str) -> None:
        with closing(OpenCopy(Registry.at(), "1", "64:12", "here")) as copy:
            threads = [threading.Thread(target=copy.require_held) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            copy.require_held()

    def test_a_forked_child_leaves_the_lock_to_its_parent(self, team: str, tmp_path: Path) -> None:
        script = """if True:
            import gc, os, sys
            from lapwing.errors import SessionOver
            from lapwing.ledger import Ledger
            ledger = Ledger.open(sys.argv[1])
            child = os.fork()
            try:
                ledger.require_here()
                done = "held"
            except SessionOver:
                done = "over"
            if not child:
                ledger._copy.close()
                del ledger
                gc.collect()
                os._exit(done != "over")
            _, status = os.waitpid(child, 0)
            ledger.require_here()
            print(done, status)
            """
        one, _ = two_copies(tmp_path)
        assert in_process(script, one) == "held 0"
