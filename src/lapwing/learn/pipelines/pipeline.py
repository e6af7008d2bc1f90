"""A pipeline: what is learned from a stream, how, and what must be shown before a model leaves."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lapwing.errors import BadParameter
from lapwing.exact import exact, settle
from lapwing.learn.features import Features
from lapwing.learn.pipelines.parts import TrainerPart, ValidatorPart
from lapwing.learn.pipelines.schedule import Schedule
from lapwing.ledger.entry import checked_label
from lapwing.privacy.loss import checked_delta
from lapwing.query.rows import RowQuestion

LONGEST_NAME = 100
TEST_SHARE = Fraction(1, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """All that its file says. Nothing in it comes from data.

    `missing`: by column, what a missing value counts as (else 0, the middle of its bounds; with
    `indicators`, one more feature says so). `units_per_block`: about how many, a public guess.
    """

    name: str
    stream: Path
    sql: str
    label: str
    delta: Fraction
    trainer: TrainerPart
    validator: ValidatorPart
    schedule: Schedule
    test_share: Fraction = TEST_SHARE
    units_per_block: int | None = None
    missing: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    indicators: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", checked_label(self.name, "name"))
        settle(self, delta=checked_delta(self.delta), test_share=exact(self.test_share, "test_share"))
        if len(self.name) > LONGEST_NAME:
            raise BadParameter("name", f"must be at most {LONGEST_NAME} long")
        if not 0 < self.test_share < 1:
            raise BadParameter("test_share", "must lie strictly between 0 and 1")
        if self.delta <= 0:
            raise BadParameter("delta", "must be above 0: training adds Gaussian noise")
        if self.trainer.needs_size and self.units_per_block is None:
            raise BadParameter("units_per_block", f"is needed by {self.trainer.kind}")

    def features(self, question: RowQuestion) -> Features:
        """The features of its question, checked: the validator can judge what the trainer predicts."""
        if self.label not in question.columns:
            raise BadParameter("label", f"must be a column of the features: {', '.join(question.columns)}")
        for name in self.missing:
            if name not in question.columns or name == self.label:
                raise BadParameter("missing", f"{name[:60]!r} is none of the columns to learn from")
        missing = {name: None for name in question.columns if not self.indicators and name != self.label}
        made = Features.of(question, label=self.label, missing={**missing, **self.missing})
        self.validator.check(made, self.trainer)
        return made

    def size(self, blocks: int) -> int | None:
        """About how many units of so many blocks train."""
        if self.units_per_block is None:
            return None
        return max(1, math.ceil(self.units_per_block * blocks * (1 - self.test_share)))

    @property
    def digest(self) -> str:
        """The same for the same pipeline only."""
        schedule = self.schedule
        said = {
            "name": self.name,
            "sql": self.sql,
            "label": self.label,
            "delta": str(self.delta),
            "trainer": [self.trainer.kind, sorted(map(str, self.trainer.settings.items()))],
            "validator": repr(self.validator),
            "schedule": [schedule.strategy.value, str(schedule.least), str(schedule.most),
                         schedule.first_blocks, schedule.most_blocks],
            "test_share": str(self.test_share),
            "units_per_block": self.units_per_block,
            "missing": sorted((name, repr(value)) for name, value in self.missing.items()),
            "indicators": self.indicators,
        }  # fmt: skip
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
