"""The queue of long work: at most so many jobs wait, one works at a time, and its state is on disk.

Claim    closing a page stops nothing, and after a restart each job goes on, or says what became of it.
Because  a job is a row in the shared state and a process of its own, which holds a lock while it works. A
         row that says "running" while nobody holds its lock is begun again, up to three times.
Test     tests/server/jobs/test_job_queue.py

Claim    no token spends more than its most ε by jobs.
Because  a token with a most ε starts no job that spends.
Test     tests/server/jobs/test_job_queue.py
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from lapwing.core.noise import random_bytes
from lapwing.errors import BadParameter, LapwingError, TooManyRequests
from lapwing.server.data.served_data import ServedData, ServedDataSets
from lapwing.server.jobs.job import MAY_START, SPENDING, Job, JobForm, JobKind, JobState
from lapwing.server.jobs.job_process import checked_file, lock_path, run_job, slot_now, try_lock
from lapwing.server.people.person import NotFound, Requester, Role
from lapwing.server.people.tokens import Tokens
from lapwing.server.settings import ServerSettings
from lapwing.server.state import ServerState

MOST_WAITING = 16
MOST_BEGINS = 3
MOST_KEPT = 200  # jobs of a person that are listed
_LOOK_EVERY = 0.5  # seconds
_BUSY_SECONDS = 30
_COLUMNS = "id, person, data, kind, settings, state, step, result, made, ended"
_SPAWN = multiprocessing.get_context("spawn")


class Jobs:
    """The jobs of all people. Threads and processes may share them; one process of them all works.

    Args:
        settings: The settings of the server.
        state: The shared state.
        sets: The data sets.
    """

    def __init__(self, settings: ServerSettings, state: ServerState, sets: ServedDataSets) -> None:
        self._settings, self._state, self._sets = settings, state, sets
        self._wake, self._stops = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def start(self, person: Requester, form: JobForm) -> Job:
        """Put a job into the queue.

        Raises:
            NotFound, NotAllowed: As `ServedDataSets.require` does.
            BadParameter: If the settings are not acceptable.
            TooManyRequests: If the queue is full.
        """
        served = self._sets.require(person, form.data, *MAY_START[form.kind])
        self._require_no_limit(person, form.kind)
        settings = self._checked(served, form)
        job = random_bytes(16).hex()
        with self._state.transaction() as run:
            [waiting] = run(
                "SELECT count(*) FROM jobs WHERE state IN (?, ?)",
                (JobState.QUEUED.value, JobState.RUNNING.value),
            ).fetchone()
            if waiting >= MOST_WAITING:
                raise TooManyRequests(_BUSY_SECONDS)
            run(
                "INSERT INTO jobs (id, person, data, kind, settings, state, made) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    job, person.name, served.name, form.kind.value,
                    json.dumps({**settings, "id": job}), JobState.QUEUED.value, self._slot(),
                ),
            )  # fmt: skip
        self.work()
        self._wake.set()
        return self.find(person, job)

    def _require_no_limit(self, person: Requester, kind: JobKind) -> None:
        """Refuse to spend for a token with a most ε: a job books nothing on it."""
        if kind not in SPENDING or person.credential != "token":
            return
        if Tokens(self._state).known(person.credential_id).most_epsilon is not None:
            raise BadParameter(
                "kind",
                f"must not be {kind.value} with a token that has a most ε: a job books nothing. Sign in, "
                "or send a token without a limit of its own",
            )

    def _checked(self, served: ServedData, form: JobForm) -> dict[str, Any]:
        policy = served.curator.policy.path
        settings: dict[str, Any] = {"policy": policy.name}
        match form.kind:
            case JobKind.PREPARE:
                return {**settings, "again": form.again}
            case JobKind.AUDIT:
                if not form.sql:
                    raise BadParameter("sql", "is missing: an audit is of a question")
                asked = {"sql": form.sql, "epsilon": form.epsilon, "seconds": form.seconds}
                return {**settings, **asked}
            case _:
                path = checked_file(self._settings.folder, form.file, form.kind)
                if self._policy_of(form.kind, path) != policy:
                    raise BadParameter("file", f'is not about the data "{served.name}"')
                return {**settings, "file": form.file}

    @staticmethod
    def _policy_of(kind: JobKind, path: Any) -> Any:
        """Return the policy that a release or pipeline file names. Only that file is read."""
        if kind is JobKind.TRAIN:
            from lapwing.learn import load_pipeline  # noqa: PLC0415 (slow to load, and seldom needed)

            return load_pipeline(path).stream
        from lapwing.publish import load_release  # noqa: PLC0415

        return load_release(path).policy

    def find(self, person: Requester, job_id: str) -> Job:
        """Return a job: an own one, or any about data that the person is steward of."""
        rows = self._state.rows(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", job_id)  # noqa: S608
        if not rows:
            raise NotFound(job_id)
        job = _job(rows[0])
        may = (
            person.roles_for(job.data) if job.person == person.name else person.can(job.data, Role.STEWARD)
        )
        if not may:
            raise NotFound(job_id)
        return job

    def all_of(self, person: Requester) -> list[Job]:
        """Return the newest jobs that a person may see, newest first."""
        rows = self._state.rows(
            f"SELECT {_COLUMNS} FROM jobs ORDER BY made DESC, id LIMIT {10 * MOST_KEPT}"  # noqa: S608
        )
        seen = [
            job
            for job in map(_job, rows)
            if (job.person == person.name and person.roles_for(job.data))
            or person.can(job.data, Role.STEWARD)
        ]
        return seen[:MOST_KEPT]

    def events(self, person: Requester, job_id: str, *, every: float = _LOOK_EVERY) -> Iterator[Job]:
        """Yield a job whenever it has changed, until it has ended."""
        last: Job | None = None
        while True:
            job = self.find(person, job_id)
            if job != last:
                yield job
                last = job
            if job.has_ended:
                return
            time.sleep(every)

    # Working

    def work(self) -> None:
        """Begin to work on what waits, in a thread that starts processes."""
        with self._starting:
            if self._thread is None and not self._stops.is_set():
                self._thread = threading.Thread(target=self._work, daemon=True, name="lapwing jobs")
                self._thread.start()

    def close(self) -> None:
        """End the process that works. Its job goes on when the server is there again."""
        self._stops.set()
        self._wake.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        turn = None
        while not self._stops.is_set():
            if turn is None:  # one of all processes of the server works at a time
                turn = try_lock(lock_path(self._settings, "turn"))
            with suppress(LapwingError, OSError):  # such as a full disk: it looks again
                job = None if turn is None else self._next()
                if job is not None:
                    self._run(job)
                    continue
            self._wake.wait(_LOOK_EVERY)
            self._wake.clear()
        if turn is not None:
            os.close(turn)

    def _next(self) -> str | None:
        """Return the job to begin: one whose process has ended without a word, or the first that waits."""
        for job, begins in self._state.rows(
            "SELECT id, begins FROM jobs WHERE state = ? ORDER BY made, id", JobState.RUNNING.value
        ):
            handle = try_lock(lock_path(self._settings, job))
            if handle is None:
                continue
            os.close(handle)
            if begins >= MOST_BEGINS:
                result = {"code": "work-ended", "message": "the work ended several times without a word"}
                self._set(job, JobState.FAILED, result)
                continue
            return str(job)
        waiting = self._state.rows(
            "SELECT id FROM jobs WHERE state = ? ORDER BY made, id LIMIT 1", JobState.QUEUED.value
        )
        return str(waiting[0][0]) if waiting else None

    def _run(self, job: str) -> None:
        with self._state.transaction() as run:
            run(
                "UPDATE jobs SET state = ?, step = 0, begins = begins + 1 WHERE id = ?",
                (JobState.RUNNING.value, job),
            )
        watches, alive = _SPAWN.Pipe(duplex=False)
        process = _SPAWN.Process(target=run_job, args=(self._settings, job, watches))
        process.start()
        watches.close()
        while process.is_alive() and not self._stops.is_set():
            process.join(_LOOK_EVERY / 10)
        alive.close()  # it ends, if it has not
        process.join()
        with suppress(FileNotFoundError):
            if self._state.rows("SELECT 1 FROM jobs WHERE id = ? AND ended > 0", job):
                lock_path(self._settings, job).unlink()

    def _set(self, job: str, state: JobState, result: dict[str, Any]) -> None:
        with self._state.transaction() as run:
            run(
                "UPDATE jobs SET state = ?, result = ?, ended = ? WHERE id = ?",
                (state.value, json.dumps(result), self._slot(), job),
            )

    def _slot(self) -> float:
        return slot_now(self._settings)


def _job(row: tuple[Any, ...]) -> Job:
    job, person, data, kind, settings, state, step, result, made, ended = row
    told = {name: value for name, value in json.loads(settings).items() if name not in ("id", "policy")}
    outcome = json.loads(result) if result else {}
    return Job(job, person, data, JobKind(kind), told, JobState(state), step, outcome, made, ended)
