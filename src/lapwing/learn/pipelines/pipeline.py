"""Pipelines: the data, the trainer, and the target that a model must reach before it leaves.

Attempts follow a public schedule of blocks and ε, which is fixed before the first one:

Claim    the data and ε of attempt i are a function of the pipeline file, of the blocks that had arrived
         when the run began, of the order in which others arrive, and of i. Attempts 1 to i use at most
         about twice what attempt i uses; so at most about 4 times what would have been enough.
Because  blocks times ε doubles from attempt to attempt, and nothing else is looked at: neither verdicts nor
         budgets. A block that cannot pay ends the run, and is not replaced. docs/arguments/attempts.md.
Test     tests/learn/pipelines/test_pipeline_schedule.py
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lapwing.config.values import checked_label
from lapwing.core.exact import inside_unit, set_fields, whole
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.errors import BadParameter
from lapwing.learn.features import Features
from lapwing.learn.pipelines.calibration import CalibrationSettings
from lapwing.learn.pipelines.components import TrainerSettings, ValidatorSettings
from lapwing.sql.row_questions import RowQuestion


class Strategy(Enum):
    """The order in which data and ε grow.

    CONSERVE begins with little ε, and adds data first, then ε. AGGRESSIVE uses all ε at once, and adds
    data.
    """

    CONSERVE = "conserve"
    AGGRESSIVE = "aggressive"


@dataclass(frozen=True, slots=True)
class PlannedAttempt:
    """The number of blocks and the ε of one attempt."""

    attempt: int
    blocks: int
    epsilon: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSchedule:
    """The schedule of attempts: `least` to `most` ε per block, and `first_blocks` to `most_blocks` blocks.

    `most_blocks` is None if there is no limit.
    """

    strategy: Strategy
    least: Fraction
    most: Fraction
    first_blocks: int
    most_blocks: int | None

    def __post_init__(self) -> None:
        set_fields(self, least=checked_epsilon(self.least), most=checked_epsilon(self.most))
        set_fields(self, first_blocks=whole(self.first_blocks, "first_blocks", at_least=1))
        if self.least > self.most:
            raise BadParameter("epsilon", "must begin with the smaller number")
        if self.most_blocks is not None and self.first_blocks > whole(self.most_blocks, "most_blocks"):
            raise BadParameter("blocks", "must begin with the smaller number")

    def at(self, attempt: int, start: int) -> PlannedAttempt | None:
        """Return attempt i of a run that began with `start` blocks; None if the schedule has ended."""
        doubled = 1 << (whole(attempt, "attempt", at_least=1) - 1)
        if self.strategy is Strategy.AGGRESSIVE:
            blocks, epsilon = self.first_blocks * doubled, self.most
        else:
            use = self.first_blocks * self.least * doubled
            blocks = min(self.first_blocks * doubled, self._there(start))
            if use > self.most * blocks:  # both data and ε are used up: wait for data
                blocks = math.ceil(use / self.most)
            epsilon = min(use / blocks, self.most)
        if self.most_blocks is not None and blocks > self.most_blocks:
            return None
        return PlannedAttempt(attempt, blocks, epsilon)

    def attempts(self, start: int) -> Iterator[PlannedAttempt]:
        """Yield the attempts of a run that began with `start` blocks, until the schedule ends."""
        for number in count(1):
            tried = self.at(number, start)
            if tried is None:
                return
            yield tried

    def _there(self, start: int) -> int:
        most = start if self.most_blocks is None else min(start, self.most_blocks)
        return max(most, self.first_blocks)


def attempt_blocks(order: Sequence[str], start: int, blocks: int) -> list[str] | None:
    """Return the blocks of an attempt; None if too few have arrived.

    These are the newest ones of when the run began, or more recent ones if it needs more. `order` are all
    blocks in the order of arrival.
    """
    end = max(start, blocks)
    return list(order[end - blocks : end]) if end <= len(order) else None


LONGEST_NAME = 100
TEST_SHARE = Fraction(1, 10)
_FORM = "lapwing pipeline 1"  # of the digest: change it if the meaning of a key changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The content of a pipeline file. Nothing in it comes from data.

    Args:
        name: The name under which the ledger charges the pipeline.
        stream: The policy file of the stream.
        sql: The query that selects the features and the label.
        label: The column to be learned.
        delta: The δ of one attempt; 0 for a statistic.
        trainer: The kind of trainer, and its settings.
        validator: The target that must be shown.
        schedule: The blocks and ε of each attempt.
        test_share: The share of units that test, between 0 and 1.
        units_per_block: A public guess of the number of units in a block; None if the trainer needs none.
        missing: By column, the value that stands for missing ones (by default 0, the middle of the bounds).
        indicators: Whether one more feature says that a value is missing.
        calibration: The calibration of accepted models; None for no calibration.

    Raises:
        BadParameter: If a value is wrong, or does not fit the others.

    Example:
        With the files that `lapwing train example` writes:

        ```python
        from lapwing.learn import load_pipeline

        pipeline = load_pipeline("durations.toml")
        print(pipeline.name, pipeline.trainer.kind, pipeline.digest)
        ```
    """

    name: str
    stream: Path
    sql: str
    label: str
    delta: Fraction
    trainer: TrainerSettings
    validator: ValidatorSettings
    schedule: AttemptSchedule
    test_share: Fraction = TEST_SHARE
    units_per_block: int | None = None
    missing: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    indicators: bool = False
    calibration: CalibrationSettings | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", checked_label(self.name, "name"))
        set_fields(
            self, delta=checked_delta(self.delta), test_share=inside_unit(self.test_share, "test_share")
        )
        if len(self.name) > LONGEST_NAME:
            raise BadParameter("name", f"must be at most {LONGEST_NAME} long")
        if self.trainer.is_statistic is not self.validator.is_error:
            raise BadParameter("validator", 'must be of kind "error" for statistics, and only for them')
        if self.trainer.is_statistic:
            self._check_statistic()
            return
        if self.delta <= 0:
            raise BadParameter("delta", "must be above 0: training adds Gaussian noise")
        if self.trainer.needs_size and self.units_per_block is None:
            raise BadParameter("units_per_block", f"is needed by {self.trainer.kind}")
        least = self.schedule.least
        if self.calibration is not None and self.calibration.epsilon >= least:
            raise BadParameter(
                "calibration", f"must leave some of the least ε ({float(least):g}) to validate"
            )

    def _check_statistic(self) -> None:
        if self.delta != 0:
            raise BadParameter("delta", "is 0 for a statistic. Remove it")
        if self.calibration is not None:
            raise BadParameter("calibration", "is for models")
        if self.missing or self.indicators:
            raise BadParameter("missing", "is for models: a statistic leaves missing values out")

    def features(self, question: RowQuestion) -> Features:
        """Return the features of its query.

        Raise BadParameter if the validator cannot judge the predictions.
        """
        if self.label not in question.columns:
            raise BadParameter("label", f"must be a column of the features: {', '.join(question.columns)}")
        for name in self.missing:
            if name not in question.columns or name == self.label:
                raise BadParameter("missing", f"{name[:60]!r} is none of the columns to learn from")
        missing = {name: None for name in question.columns if not self.indicators and name != self.label}
        made = Features.of(question, label=self.label, missing={**missing, **self.missing})
        self.validator.check(made, self.trainer)
        if not made.columns and not self.trainer.is_statistic:
            raise BadParameter("features", "must have at least one column besides the label")
        return made

    def size(self, blocks: int) -> int | None:
        """Return about how many units of this many blocks train; None if it was not declared."""
        if self.units_per_block is None:
            return None
        return max(1, math.ceil(self.units_per_block * blocks * (1 - self.test_share)))

    @property
    def digest(self) -> str:
        """The digest of the pipeline.

        Values that are not given are not in it, so that new keys change nothing.
        """
        schedule, validator, calibration = self.schedule, self.validator, self.calibration
        said = {
            "form": _FORM,
            "name": self.name,
            "sql": self.sql,
            "label": self.label,
            "delta": self.delta,
            "test_share": self.test_share,
            "units_per_block": self.units_per_block,
            "indicators": self.indicators,
            "missing": {name: [type(one).__name__, str(one)] for name, one in self.missing.items()},
            "trainer": {"kind": self.trainer.kind, **self.trainer.plain},
            "validator": [validator.loss, validator.target, validator.eta],
            "bound": validator.bound,
            "step": validator.step,
            "levels": validator.levels,
            "calibration": None if calibration is None else [calibration.epsilon, calibration.bins],
            "strategy": [schedule.strategy.value, schedule.least, schedule.most, schedule.first_blocks],
            "most_blocks": schedule.most_blocks,
        }
        there = {name: value for name, value in said.items() if value}
        return hashlib.sha256(json.dumps(there, sort_keys=True, default=str).encode()).hexdigest()
