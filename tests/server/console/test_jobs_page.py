"""Long work from pages: only what spends nothing, once for each click or two."""

from __future__ import annotations

from datetime import UTC, datetime

from lapwing.server.console.jobs_page import job_view, progress
from lapwing.server.jobs.job import Job, JobKind, JobState
from support.served import STEWARD

from .conftest import ConsoleDoor


def test_a_job_says_its_planned_steps() -> None:
    job = Job("0", "sue", "visits", JobKind.AUDIT, {}, JobState.RUNNING, 1, {}, 0.0, 0.0)
    view = job_view(job, datetime.now(UTC))
    assert view.words == "step 2 of 3: try to break the claim"
    assert view.gauge.left == "33.33%"
    assert progress(9, 3).left == "100.00%"


def test_stewards_start_free_work_once_and_others_do_not(console: ConsoleDoor) -> None:
    steward = console.browser("sue")
    for _ in range(2):
        started = steward.post("/d/visits/jobs", data={"kind": "prepare"})
        assert started.headers["location"] == "/jobs"
    found = console.services.jobs.all_of(STEWARD)
    assert [job.kind for job in found if not job.has_ended].count(JobKind.PREPARE) <= 1
    assert "Prepare visits" in steward.get("/jobs").text
    assert "Prepare visits" in steward.get("/jobs/list").text
    assert steward.post("/d/visits/jobs", data={"kind": "publish"}).status_code == 422
    for name in ("ann", "olga", "otto"):
        assert console.browser(name).post("/d/visits/jobs", data={"kind": "prepare"}).status_code == 403
