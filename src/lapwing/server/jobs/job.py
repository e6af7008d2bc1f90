"""Long work: its kinds with their planned steps, and what is known of one job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import Field

from lapwing.server.data.question_form import LONGEST_SQL, CheckedForm, PositiveText
from lapwing.server.people.person import Role


class JobKind(StrEnum):
    """What a job does."""

    PREPARE = "prepare"
    PUBLISH = "publish"
    TRAIN = "train"
    AUDIT = "audit"


class JobState(StrEnum):
    """How far a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


# The steps are planned before the work begins: nothing about them depends on rows.
STEPS: dict[JobKind, tuple[str, ...]] = {
    JobKind.PREPARE: ("open the data", "store the copy and register its people"),
    JobKind.PUBLISH: ("open the data", "charge, measure and write the bundle"),
    JobKind.TRAIN: ("open the data", "train until a model is shown to be good", "write the model card"),
    JobKind.AUDIT: ("generate neighbours", "try to break the claim", "sign what was found"),
}
# Who may start it. Publishing and training spend from the budget of the data, under the starter's name.
MAY_START: dict[JobKind, frozenset[Role]] = {
    JobKind.PREPARE: frozenset({Role.STEWARD}),
    JobKind.PUBLISH: frozenset({Role.STEWARD}),
    JobKind.TRAIN: frozenset({Role.STEWARD}),
    JobKind.AUDIT: frozenset({Role.STEWARD, Role.OFFICER}),
}
SPENDING = frozenset({JobKind.PUBLISH, JobKind.TRAIN})


class JobForm(CheckedForm):
    """A job to start."""

    data: str = Field(min_length=1, max_length=100, description="The name of the data set.")
    kind: JobKind = Field(strict=False, description="prepare, publish, train or audit.")
    file: str = Field(
        default="", max_length=100, description="To publish or train: the file, such as rows.toml."
    )
    again: bool = Field(
        default=False, description="To prepare: count a new version of files nobody wrote to."
    )
    sql: str = Field(default="", max_length=LONGEST_SQL, description="To audit: the question.")
    epsilon: PositiveText = Field(default="1", description="To audit: the ε that the question claims.")
    seconds: int = Field(default=60, ge=1, le=600, description="To audit: time for drawing samples.")


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of one job."""

    id: str
    person: str
    data: str
    kind: JobKind
    settings: dict[str, Any]
    state: JobState
    step: int  # how many of the steps are done
    result: dict[str, Any]
    made: float  # seconds since 1970: the beginning of a slot
    ended: float  # the same; 0 while it is not ended

    @property
    def steps(self) -> tuple[str, ...]:
        """The planned steps."""
        return STEPS[self.kind]

    @property
    def has_ended(self) -> bool:
        """True if nothing more happens."""
        return self.state in (JobState.DONE, JobState.FAILED)
