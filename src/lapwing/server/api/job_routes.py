"""Routes of long work: start it, look at it, and follow its steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from lapwing.server.api.replies import json_bytes
from lapwing.server.api.route import EVERY_ROLE, SEES_ALL, ApiRoute, Call, json_reply
from lapwing.server.jobs.job import Job, JobForm

LONGEST_STREAM = 600.0  # seconds; then the client asks again
_JOB = {
    "id": "0" * 32, "data": "visits", "kind": "prepare", "state": "running",
    "steps": ["open the data", "store the copy and register its people"], "done": 1, "result": {},
}  # fmt: skip


def job_json(job: Job) -> dict[str, Any]:
    """Return a job, with its planned steps and how many of them are done."""
    return {
        "id": job.id,
        "person": job.person,
        "data": job.data,
        "kind": job.kind.value,
        "settings": job.settings,
        "state": job.state.value,
        "steps": list(job.steps),
        "done": job.step,
        "result": job.result,
        "made": job.made,
        "ended": job.ended or None,
    }


def start_job(call: Call) -> Response:
    """Put a job into the queue. It goes on when the page is closed, and after a restart."""
    job = call.services.jobs.start(call.person, JobForm.read(call.body))
    return json_reply(job_json(job), status=202)


def list_jobs(call: Call) -> Response:
    """Return the newest jobs that the person may see."""
    return json_reply({"jobs": [job_json(job) for job in call.services.jobs.all_of(call.person)]})


def find_job(call: Call) -> Response:
    """Return a job."""
    return json_reply(job_json(call.services.jobs.find(call.person, call.part("job"))))


def job_events(call: Call) -> Response:
    """Send a job whenever a step of it is done, as server-sent events, until it has ended."""
    jobs, person, name = call.services.jobs, call.person, call.part("job")
    first, slot = jobs.find(person, name), float(call.services.slot)

    async def send() -> AsyncIterator[bytes]:
        job, end = first, time.monotonic() + LONGEST_STREAM
        yield _event(job)
        while not job.has_ended and time.monotonic() < end:
            await asyncio.sleep(slot)
            later = await run_in_threadpool(jobs.find, person, name)
            if later != job:
                job = later
                yield _event(job)

    return StreamingResponse(send(), media_type="text/event-stream")


def _event(job: Job) -> bytes:
    return b"event: job\ndata: " + json_bytes(job_json(job)) + b"\n\n"


ROUTES = (
    ApiRoute("POST", "/v1/jobs", SEES_ALL, start_job, "Start long work: prepare, publish, train or audit.",
             form=JobForm, example=_JOB, status=202),
    ApiRoute("GET", "/v1/jobs", EVERY_ROLE, list_jobs, "The newest jobs that you may see."),
    ApiRoute("GET", "/v1/jobs/{job}", EVERY_ROLE, find_job, "A job.", example=_JOB),
    ApiRoute("GET", "/v1/jobs/{job}/events", EVERY_ROLE, job_events,
             "A job whenever a step of it is done, as server-sent events.", kind="text/event-stream"),
)  # fmt: skip
