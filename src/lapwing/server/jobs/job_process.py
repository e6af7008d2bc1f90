"""The process of one job: it does the work, and writes each finished step into the shared state.

Claim    a job that is begun again goes on where it was, and charges nothing twice.
Because  preparing keeps a current copy; publishing and training have journals and keys of their own, which
         the ledger recognises; an audit charges nothing.
Test     tests/server/jobs/test_job_queue.py
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter, LapwingError
from lapwing.server.data.places import without_places
from lapwing.server.jobs.job import JobKind, JobState
from lapwing.server.settings import ServerSettings
from lapwing.server.state import ServerState

LOCKS = "jobs"  # a folder in the state's: whoever works on a job holds its lock
Advance = Callable[[], None]


def lock_path(settings: ServerSettings, job: str) -> Path:
    """Return the place of a job's lock."""
    return settings.state_folder / LOCKS / f"{job}.lock"


def try_lock(path: Path) -> int | None:
    """Return a handle that holds a job's lock, or None if some process works on the job."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def slot_now(settings: ServerSettings) -> float:
    """Return the beginning of the slot of this moment, in seconds since 1970."""
    now = time.time()
    return now - now % float(settings.reply_slot)


def run_job(settings: ServerSettings, job: str, watches: Connection) -> None:
    """Do the work of a job. `watches` ends with the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handle = try_lock(lock_path(settings, job))
    if handle is None:
        return
    threading.Thread(target=_end_with_server, args=(watches,), daemon=True).start()
    state = ServerState.open(settings.state_folder)
    [(person, kind, text)] = state.rows("SELECT person, kind, settings FROM jobs WHERE id = ?", job)
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        _note(state, job, "step = ?", done)

    try:
        result = WORK[JobKind(kind)](settings.folder, person, json.loads(text), advance)
        outcome = JobState.DONE
    except LapwingError as error:
        result = {"code": error.code, "message": without_places(str(error))}
        outcome = JobState.FAILED
    except Exception as error:  # its text may quote a row
        result = {"code": "server-failed", "message": f"the work failed ({type(error).__name__})"}
        outcome = JobState.FAILED
    _note(
        state,
        job,
        "state = ?, result = ?, ended = ?",
        outcome.value,
        json.dumps(result),
        slot_now(settings),
    )
    state.close()
    os.close(handle)


def _note(state: ServerState, job: str, what: str, *values: object) -> None:
    with state.transaction() as run:
        run(f"UPDATE jobs SET {what} WHERE id = ?", (*values, job))  # noqa: S608 (words of ours)


def _end_with_server(watches: Connection) -> None:
    with suppress(EOFError, OSError):
        watches.recv()
    os._exit(1)  # as a crash does: the job goes on when the server is there again


# The work of each kind. It gets the folder, the person, the settings, and a function for each step.


def _prepare(folder: Path, person: str, wanted: dict[str, Any], advance: Advance) -> dict[str, Any]:
    from lapwing.sql.curator import Curator  # noqa: PLC0415 (only this process needs it)

    with Curator(folder / wanted["policy"]) as curator:
        advance()
        is_new = curator.prepare(again=wanted["again"])
        advance()
        return {"version": curator.version(), "is_new": is_new}


def _publish(folder: Path, person: str, wanted: dict[str, Any], advance: Advance) -> dict[str, Any]:
    from lapwing.publish import Publication  # noqa: PLC0415

    path = folder / wanted["file"]
    out = path.with_name(f"{path.stem}-bundle")
    with Publication.open(path, analyst=person) as publication:
        advance()
        manifest = publication.run(out)
        advance()
    return {"release": out.name, "name": manifest["name"], "method": manifest["method"]}


def _train(folder: Path, person: str, wanted: dict[str, Any], advance: Advance) -> dict[str, Any]:
    from lapwing import learn  # noqa: PLC0415

    path = folder / wanted["file"]
    place = path.with_name(f"{path.stem}.runs")
    pipeline = learn.load_pipeline(path)
    with learn.Stream.open(pipeline.stream, analyst=person) as stream:
        advance()
        outcome = learn.train(stream, pipeline, place)
        advance()
        files = learn.write_outputs(outcome, stream.policy, place)
        advance()
    run = files["card"].parent.name
    return {"model": f"{path.stem}.{run}", "end": outcome.end.value, "words": outcome.words}


def _audit(folder: Path, person: str, wanted: dict[str, Any], advance: Advance) -> dict[str, Any]:
    from lapwing.audit import StageBudget, run_audit  # noqa: PLC0415
    from lapwing.audit.query_audit import case_of_query  # noqa: PLC0415
    from lapwing.audit.signed_audit import signed_run  # noqa: PLC0415
    from lapwing.sql.curator import Curator  # noqa: PLC0415
    from lapwing.storage.private_file import PUBLIC, new_private_file  # noqa: PLC0415

    case = case_of_query(folder / wanted["policy"], wanted["sql"], epsilon=wanted["epsilon"])
    advance()
    report = run_audit([case], StageBudget(seconds=wanted["seconds"], is_thorough=False))
    advance()
    told = report.to_json()
    with Curator(folder / wanted["policy"]) as curator:
        if curator.has_ledger:
            told = signed_run(told, curator.ledger.keys.signing)
    name = f"audit-{wanted['id'][:8]}"
    with suppress(FileExistsError), new_private_file(folder / f"{name}.json", mode=PUBLIC) as file:
        file.write(json.dumps(told, ensure_ascii=False, indent=2).encode())
    advance()
    return {"audit": name, "passed": report.passed, "verdict": report.verdict}


WORK: dict[JobKind, Callable[[Path, str, dict[str, Any], Advance], dict[str, Any]]] = {
    JobKind.PREPARE: _prepare,
    JobKind.PUBLISH: _publish,
    JobKind.TRAIN: _train,
    JobKind.AUDIT: _audit,
}


def checked_file(folder: Path, name: str, kind: JobKind) -> Path:
    """Return a file of the served folder, by its name alone."""
    path = folder / name
    if not name.endswith(".toml") or Path(name).name != name or name.startswith(".") or not path.is_file():
        raise BadParameter("file", f"must be the name of a file of the server's folder to {kind.value}")
    return path
