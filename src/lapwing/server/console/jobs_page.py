"""Long work that spends nothing, started from pages, and its progress: prepare data, audit a question.

Work that spends (publishing, training) is started by its command or by the API: its price depends on how
far it goes, and a button here always has its price.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.responses import HTMLResponse, Response

from lapwing.errors import BadParameter
from lapwing.server.console.desk import AtDesk, PageRoute, Posted, see_other
from lapwing.server.console.parts import Gauge, Outcome
from lapwing.server.console.words import when_text
from lapwing.server.jobs.job import Job, JobForm, JobKind, JobState

router = APIRouter(route_class=PageRoute, include_in_schema=False)
FREE_KINDS = (JobKind.PREPARE, JobKind.AUDIT)
_TITLES = {
    JobKind.PREPARE: "Prepare",
    JobKind.PUBLISH: "Publish",
    JobKind.TRAIN: "Train",
    JobKind.AUDIT: "Audit of",
}
_STATES = {
    JobState.QUEUED: Outcome("waits", "soft"),
    JobState.RUNNING: Outcome("running", "clock"),
    JobState.DONE: Outcome("done"),
    JobState.FAILED: Outcome("failed", "caution"),
}


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with its planned steps."""

    title: str
    who: str
    when: str
    outcome: Outcome
    gauge: Gauge
    words: str
    result: tuple[tuple[str, str], ...]


def job_view(job: Job, now: datetime) -> JobView:
    """Return a job in words."""
    count = len(job.steps)
    made = datetime.fromtimestamp(job.made, UTC)
    if job.has_ended:
        words = f"{job.step} of {count} steps"
    else:
        words = f"step {min(job.step + 1, count)} of {count}: {job.steps[min(job.step, count - 1)]}"
    shown = {name: value for name, value in job.result.items() if isinstance(value, str | int | float)}
    return JobView(
        f"{_TITLES[job.kind]} {job.data}",
        job.person,
        when_text(made, now),
        _STATES[job.state],
        progress(job.step, count),
        words,
        tuple((name.replace("_", " "), str(value)) for name, value in shown.items()),
    )


def progress(done: int, count: int) -> Gauge:
    """Return a gauge that is filled with the steps that are done."""
    share = f"{100 * min(done, count) / count if count else 100:.2f}%"
    return Gauge(share, "", (), str(done), str(count), "")


def job_views(jobs: Iterable[Any]) -> tuple[JobView, ...]:
    """Return jobs in words."""
    now = datetime.now(UTC)
    return tuple(job_view(job, now) for job in jobs)


@router.get("/jobs")
def jobs(desk: AtDesk) -> Response:
    """Show long work, own and of the data sets that the person keeps."""
    found = job_views(desk.services.jobs.all_of(desk.person))
    return desk.page("jobs.html", "Long work", current="Audits", jobs=found)


@router.get("/jobs/list")
def jobs_list(desk: AtDesk) -> Response:
    """Return the list alone, for pages that follow it."""
    found = job_views(desk.services.jobs.all_of(desk.person))
    return HTMLResponse(desk.pages.html("jobs_list.html", jobs=found))


@router.post("/d/{data}/jobs")
def start_job(desk: AtDesk, data: str, posted: Posted) -> Response:
    """Start work that spends nothing. A second click starts nothing while the same waits or runs."""
    kind = posted.get("kind", "")
    if kind not in FREE_KINDS:
        raise BadParameter("kind", f"must be one of {', '.join(FREE_KINDS)}")
    given = {"data": data, "kind": kind}
    if kind == JobKind.AUDIT:
        given |= {"sql": posted.get("sql", "").strip(), "epsilon": posted.get("epsilon", "").strip() or "1"}
    form = JobForm.read(given)
    same = {"sql": form.sql, "epsilon": form.epsilon} if kind == JobKind.AUDIT else {}
    for job in desk.services.jobs.all_of(desk.person):
        is_same = (job.data, job.kind) == (data, form.kind) and same.items() <= job.settings.items()
        if is_same and not job.has_ended:
            return see_other("/jobs")
    desk.services.jobs.start(desk.person, form)
    return see_other("/jobs")
