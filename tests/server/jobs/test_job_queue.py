"""Jobs: in a process of their own, by planned steps, and they go on after a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, TooManyRequests
from lapwing.server.data.served_data import ServedDataSets
from lapwing.server.jobs.job import Job, JobForm, JobKind, JobState
from lapwing.server.jobs.job_process import lock_path, try_lock
from lapwing.server.jobs.job_queue import MOST_BEGINS, MOST_WAITING, Jobs
from lapwing.server.people.people import People
from lapwing.server.people.person import NotAllowed, NotFound, Role
from lapwing.server.state import ServerState
from support.served import ANN, COUNT, OFFICER, STEWARD, STRANGER, person, write_data
from support.server_people import settings_in

PREPARE = JobForm(data="visits", kind=JobKind.PREPARE)


@contextmanager
def _opened(folder: Path, *, works: bool = True) -> Iterator[Jobs]:
    settings = settings_in(folder)
    state, sets = ServerState.open(settings.state_folder), ServedDataSets.open(folder)
    jobs = Jobs(settings, state, sets)
    if not works:
        jobs._thread = None
        jobs.work = lambda: None  # type: ignore[method-assign]
    yield jobs
    jobs.close()
    sets.close()
    state.close()


def _ended(jobs: Jobs, job: Job) -> Job:
    *_, last = jobs.events(person(job.person, *Role), job.id, every=0.05)
    return last


def test_a_job_works_in_a_process_of_its_own_by_planned_steps(tmp_path: Path) -> None:
    write_data(tmp_path)
    with _opened(tmp_path) as jobs:
        job = jobs.start(STEWARD, PREPARE)
        assert job.steps == ("open the data", "store the copy and register its people")
        seen = list(jobs.events(STEWARD, job.id, every=0.01))
        assert [one.step for one in seen] == sorted(one.step for one in seen)
        last = seen[-1]
        assert (last.state, last.step, last.result) == (JobState.DONE, 2, {"version": 1, "is_new": True})
        again = _ended(jobs, jobs.start(STEWARD, PREPARE))
        assert again.result == {"version": 1, "is_new": False}
        assert [one.id for one in jobs.all_of(STEWARD)] in ([again.id, job.id], [job.id, again.id])
    assert (tmp_path / "visits.prepared").is_dir()


def test_a_failure_is_told_with_its_code_and_no_place(tmp_path: Path) -> None:
    write_data(tmp_path)
    (tmp_path / "visits.parquet").write_bytes(b"canary")
    with _opened(tmp_path) as jobs:
        last = _ended(jobs, jobs.start(STEWARD, PREPARE))
    assert last.state is JobState.FAILED
    assert last.result["code"] in ("bad-parameter", "engine-failed")
    assert str(tmp_path) not in last.result["message"]


def test_an_interrupted_job_goes_on_after_a_restart(tmp_path: Path) -> None:
    write_data(tmp_path)
    with _opened(tmp_path, works=False) as jobs:
        job = jobs.start(STEWARD, PREPARE)
        with jobs._state.transaction() as run:  # as a server leaves it that is killed
            run("UPDATE jobs SET state = 'running', begins = 1 WHERE id = ?", (job.id,))
        assert jobs.find(STEWARD, job.id).state is JobState.RUNNING
    with _opened(tmp_path) as jobs:
        jobs.work()
        assert _ended(jobs, job).state is JobState.DONE


def test_a_job_whose_process_always_dies_ends(tmp_path: Path) -> None:
    write_data(tmp_path)
    with _opened(tmp_path, works=False) as jobs:
        job = jobs.start(STEWARD, PREPARE)
        with jobs._state.transaction() as run:
            run("UPDATE jobs SET state = 'running', begins = ? WHERE id = ?", (MOST_BEGINS, job.id))
        held = try_lock(lock_path(jobs._settings, job.id))
        assert held is not None
        assert jobs._next() is None  # some process works on it
        os.close(held)
        assert jobs._next() is None
        last = jobs.find(STEWARD, job.id)
        assert (last.state, last.result["code"]) == (JobState.FAILED, "work-ended")


def test_only_those_start_and_see_jobs_who_may(tmp_path: Path) -> None:
    write_data(tmp_path)
    audit = JobForm(data="visits", kind=JobKind.AUDIT, sql=COUNT)
    with _opened(tmp_path, works=False) as jobs:
        for who in (ANN, OFFICER):
            with pytest.raises(NotAllowed):
                jobs.start(who, PREPARE)
        with pytest.raises(NotFound):
            jobs.start(STRANGER, PREPARE)
        job = jobs.start(OFFICER, audit)
        assert jobs.find(STEWARD, job.id) == jobs.find(OFFICER, job.id) == job
        assert "policy" not in job.settings
        for who in (ANN, person("oscar", Role.OFFICER), person("olga")):
            with pytest.raises(NotFound):
                jobs.find(who, job.id)
            assert jobs.all_of(who) == []
        with pytest.raises(NotFound):
            jobs.find(STEWARD, "never")


def test_settings_that_do_not_fit_are_refused_before_anything_begins(tmp_path: Path) -> None:
    write_data(tmp_path)
    (tmp_path / "other.toml").write_text("[release]\n")
    with _opened(tmp_path, works=False) as jobs:
        for kind, more in (
            (JobKind.AUDIT, {}),
            (JobKind.PUBLISH, {}),
            (JobKind.PUBLISH, {"file": "../visits.toml"}),
            (JobKind.PUBLISH, {"file": "visits.parquet"}),
            (JobKind.PUBLISH, {"file": "other.toml"}),
            (JobKind.TRAIN, {"file": "missing.toml"}),
        ):
            with pytest.raises(BadParameter):
                jobs.start(STEWARD, JobForm(data="visits", kind=kind, **more))  # type: ignore[arg-type]
        assert jobs.all_of(STEWARD) == []


def test_the_queue_is_bounded(tmp_path: Path) -> None:
    write_data(tmp_path)
    with _opened(tmp_path, works=False) as jobs:
        for _ in range(MOST_WAITING):
            jobs.start(STEWARD, PREPARE)
        with pytest.raises(TooManyRequests):
            jobs.start(STEWARD, PREPARE)


def test_a_release_and_its_bundle(tmp_path: Path) -> None:
    from lapwing.examples.town import TOWN_ROWS, write_town  # noqa: PLC0415

    write_town(tmp_path)
    with _opened(tmp_path) as jobs:
        [data] = jobs._sets.names()
        job = jobs.start(STEWARD, JobForm(data=data, kind=JobKind.PUBLISH, file=TOWN_ROWS))
        last = _ended(jobs, job)
        assert last.state is JobState.DONE, last.result
        assert (tmp_path / last.result["release"] / "bundle.json").exists()


def test_a_token_with_a_most_epsilon_starts_no_job_that_spends(tmp_path: Path) -> None:
    write_data(tmp_path)
    (tmp_path / "rows.toml").write_text("[release]\n")
    with _opened(tmp_path, works=False) as jobs:
        people = People.of(jobs._state)
        people.accounts.make("sue")
        for most in (Fraction(1, 100), None):
            made, _ = people.tokens.make(
                STEWARD, name="x", data=None, most_epsilon=most, expires=datetime.now(UTC) + timedelta(1)
            )
            who = replace(STEWARD, credential="token", credential_id=made.id)
            for kind in (JobKind.PUBLISH, JobKind.TRAIN):
                with pytest.raises(BadParameter) as caught:
                    jobs.start(who, JobForm(data="visits", kind=kind, file="rows.toml"))
                assert ("most ε" in str(caught.value)) == (most is not None)
            assert jobs.start(who, PREPARE).state is JobState.QUEUED
