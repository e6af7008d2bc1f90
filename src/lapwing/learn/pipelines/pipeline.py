"""Pipelines: the data, the trainer, and the target that a model must reach before it leaves.

Attempts follow a public schedule of blocks and ε, which is fixed before the first one:

Claim    the data and ε of attempt i are a function of the pipeline file, of the blocks that had arrived
         when the run began, of the order in which others arrive, and of i. Attempts 1 to i use at most
         about twice what attempt i uses; so at most about 4 times what would have been enough.
Because  blocks times ε doubles from attempt to attempt, and nothing else is looked at: neither verdicts nor
         budgets. A block that cannot pay ends the run, and is not replaced. docs/arguments/attempts.md.
Test     tests/learn/pipelines/test_pipeline_schedule.py

A pipeline from its file (TOML). All mistakes are found and told together, each with its line.

```toml
[pipeline]
name = "durations"
stream = "rides.toml"
features = "SELECT distance, duration FROM rides"
label = "duration"
delta = 1e-8
[trainer]
kind = "linear regression"
[validator]
kind = "loss"
loss = "absolute error"
bound = 60
target = 7
eta = 0.05
[strategy]
kind = "conserve"
epsilon = [0.1, 1.0]
blocks = [1, 64]
```
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator

from lapwing.canonical_json import canonical_json
from lapwing.config.file_table import (
    TEXT_AT_MOST,
    ColumnName,
    Delta,
    Epsilon,
    FileTable,
    Flag,
    Label,
    Number,
    Text,
    exact_number,
    fits,
    needed,
    one_of,
    read_table,
)
from lapwing.config.toml_text import FileMistakes, read_toml
from lapwing.config.values import checked_label, kind_of, quoted_choices
from lapwing.core.exact import inside_unit, set_fields, whole
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.errors import BadParameter
from lapwing.learn.features import Features
from lapwing.learn.pipelines import components, network
from lapwing.learn.pipelines.calibration import MOST_CALIBRATION_BINS, CalibrationSettings
from lapwing.learn.pipelines.components import TRAINER_OPTIONS, TrainerSettings, ValidatorSettings
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
            there = start if self.most_blocks is None else min(start, self.most_blocks)
            blocks = min(self.first_blocks * doubled, max(there, self.first_blocks))
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
            "missing": {name: [type(value).__name__, str(value)] for name, value in self.missing.items()},
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
        return hashlib.sha256(canonical_json(there, spaces=True, other=str).encode()).hexdigest()


MOST_LEVELS = 1000
MOST_UNITS_PER_BLOCK, MOST_BLOCKS = 10**10, 10**6
TRAINERS, STRATEGIES = tuple(TRAINER_OPTIONS), tuple(strategy.value for strategy in Strategy)
MODEL_KEYS = ("delta", "test_share", "units_per_block", "indicators")  # not for statistics


def _sql(text: object) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > TEXT_AT_MOST:
        raise ValueError(f"must be SQL in quotes, not {kind_of(text)}")
    return text.strip()


def _plain(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)


def _pair(ends: object) -> tuple[Fraction, Fraction]:
    if not isinstance(ends, list) or len(ends) != 2:
        raise ValueError("must be two numbers in brackets: the first and the last")
    return exact_number(ends[0]), exact_number(ends[1])


def _epsilons(ends: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    return checked_epsilon(ends[0]), checked_epsilon(ends[1])


def _column_value(value: object) -> object:
    if isinstance(value, Decimal):
        return exact_number(value)
    if not isinstance(value, bool | int | str | date):
        raise ValueError("must be one value of the column")
    return value


_SHORT = fits(lambda name: len(name) <= LONGEST_NAME, f"must be at most {LONGEST_NAME} long")
_SHARE = fits(lambda share: 0 < share < 1, "must lie between 0 and 1: 0.1 tests with a tenth of the units")
_WHOLE = fits(
    lambda ends: all(1 <= end <= MOST_BLOCKS and end.denominator == 1 for end in ends),
    f"must be whole numbers from 1 to {MOST_BLOCKS:,}",
)
Pair = Annotated[tuple[Fraction, Fraction], PlainValidator(_pair)]
PlainNumber = Annotated[Number, AfterValidator(_plain)]


class PipelineTable(FileTable):
    """The table [pipeline]."""

    name: Annotated[Label, _SHORT] | None = needed('name = "durations": how the ledger calls it')
    stream: Text | None = needed('stream = "rides.toml": the policy whose data is learned from')
    features: Annotated[str, PlainValidator(_sql)] | None = needed(
        'features = "SELECT distance, duration FROM rides"'
    )
    label: ColumnName | None = needed('label = "duration": the column to be learned')
    delta: Delta | None = None
    test_share: Annotated[Number, _SHARE] | None = None
    units_per_block: int | None = Field(None, ge=1, le=MOST_UNITS_PER_BLOCK)
    indicators: Flag = False

    def settings(self, path: Path, *, is_statistic: bool) -> dict[str, Any]:
        """Return the fields of `Pipeline` that this table gives."""
        if not is_statistic:
            self.require(delta="delta = 1e-8: the δ of one attempt")
        for name in MODEL_KEYS:
            if is_statistic and self.has(name):
                self.wrong(name, "is for models: a statistic has no such thing. Remove it")
        return {
            **self.model_dump(include={"name", "label", "units_per_block", "indicators"}),
            "stream": path.absolute().parent / (self.stream or ""),
            "sql": self.features,
            "delta": self.delta or Fraction(0),
            "test_share": self.test_share or TEST_SHARE,
        }


class TrainerTable(FileTable):
    """The table [trainer]: the kind, and the settings of all kinds."""

    kind: Annotated[Text, one_of(TRAINERS)] | None = needed(f"kind = {quoted_choices(TRAINERS)}")
    activation: Text | None = None
    optimizer: Text | None = None
    layers: Any = None
    batch: PlainNumber | None = None
    bins: PlainNumber | None = None
    clip: PlainNumber | None = None
    learning_rate: PlainNumber | None = None
    momentum: PlainNumber | None = None
    pace: PlainNumber | None = None
    passes: PlainNumber | None = None
    radius: PlainNumber | None = None
    rate: PlainNumber | None = None
    steps: PlainNumber | None = None
    stride: PlainNumber | None = None
    unit_rows: PlainNumber | None = None

    def settings(self) -> TrainerSettings | None:
        """Return the settings of this kind; None if one is wrong, which is noted."""
        if self.kind is None:
            return None
        own = TRAINER_OPTIONS[self.kind]
        for name in self.model_fields_set - {"kind", *own}:
            self.wrong(name, f"is no setting of {self.kind}")
        given = {name: getattr(self, name) for name in own if self.has(name)}
        if self.kind == components.NETWORK:
            self.require(**network.REQUIRED_SETTINGS)
        check = network.checked_setting if self.kind == components.NETWORK else _positive
        checked = [value is not None and self.attempt(partial(check, name, value), name) is not None
                   for name, value in given.items()]  # fmt: skip
        if not all(checked):
            return None
        settings = {
            name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
        }
        return self.attempt(lambda: TrainerSettings(str(self.kind), settings))


def _positive(name: str, value: float) -> float:
    if value <= 0:
        raise BadParameter(name, "must be above 0")
    return value


class RejectTable(FileTable):
    """The table [reject]."""

    levels: int | None = needed(
        "levels = 17: how fine the net of lines is, in each weight", ge=2, le=MOST_LEVELS
    )


class ValidatorTable(FileTable):
    """The table [validator]."""

    kind: Annotated[Text, one_of(("loss", "accuracy", components.ERROR))] | None = needed(
        'kind = "loss", "accuracy" or (of a statistic) "error"'
    )
    loss: Annotated[Text, one_of((*components.NUMBER_LOSSES, *components.CLASS_LOSSES))] | None = None
    bound: Number | None = None
    step: Number | None = None
    target: Number | None = needed("target = 7: the number that must be shown to be reached")
    eta: Number | None = needed("eta = 0.05: how often a bad model may be accepted")

    def settings(self, reject: RejectTable | None) -> ValidatorSettings | None:
        """Return the target that must be shown; None if something is wrong, which is noted."""
        if self.kind == components.ERROR and reject is not None:
            reject.wrong("levels", "is for models. Remove [reject]")
        for name in ("loss", "bound", "step"):
            if self.kind in ("accuracy", components.ERROR) and self.has(name):
                self.wrong(name, 'belongs to kind = "loss". Remove it')
        must: dict[str, Any] = {"target": self.target, "eta": self.eta}
        if self.kind == "loss":
            self.require(loss='loss = "absolute error"', bound="bound = 60")
            must |= {"loss": self.loss, "bound": self.bound}
        if self.kind is None or None in must.values():
            return None
        levels = 0 if reject is None else reject.levels or 0
        try:
            if self.kind == components.ERROR:
                return ValidatorSettings(**must, loss=components.ERROR)
            return ValidatorSettings(**must, step=self.step, levels=levels)
        except BadParameter as error:
            self.wrong(error.name if error.name in self.by_key() else "target", error.why)
            return None


class CalibrationTable(FileTable):
    """The table [calibration]."""

    epsilon: Epsilon | None = needed(
        "epsilon = 0.1: how much of an attempt's ε the testing units pay for it"
    )
    bins: int | None = needed("bins = 10", ge=2, le=MOST_CALIBRATION_BINS)


class StrategyTable(FileTable):
    """The table [strategy]."""

    kind: Annotated[Text, one_of(STRATEGIES)] | None = needed(f"kind = {quoted_choices(STRATEGIES)}")
    epsilon: Annotated[Pair, AfterValidator(_epsilons)] | None = needed(
        "epsilon = [0.1, 1.0]: the least and the most of an attempt"
    )
    blocks: Annotated[Pair, _WHOLE] | None = needed(
        "blocks = [1, 64]: of how many the first attempt learns, and how many at most"
    )

    def schedule(self) -> AttemptSchedule | None:
        """Return the schedule of attempts; None if something is wrong, which is noted."""
        if self.kind is None or self.epsilon is None or self.blocks is None:
            return None
        (least, most), (first, last) = self.epsilon, self.blocks
        made = partial(AttemptSchedule, strategy=Strategy(self.kind), least=least, most=most)
        return self.attempt(partial(made, first_blocks=int(first), most_blocks=int(last)))


class PipelineFile(FileTable):
    """A pipeline file as it is written."""

    pipeline: PipelineTable = needed("[pipeline] with name, stream, features, label and delta")
    trainer: TrainerTable = needed('[trainer] with kind = "linear regression"')
    validator: ValidatorTable = needed("[validator] with kind, target and eta")
    reject: RejectTable | None = None
    calibration: CalibrationTable | None = None
    strategy: StrategyTable = needed("[strategy] with kind, epsilon and blocks")
    missing_: dict[str, Annotated[Any, AfterValidator(_column_value)]] = Field({}, alias="missing")


# The keys of mistakes that are found when all values are put together.
KEY_OF_PARAMETER = {
    "levels": ("reject", "levels"), "reject": ("reject",), "calibration": ("calibration", "epsilon"),
    "trainer": ("trainer", "kind"), "validator": ("validator", "kind"), "target": ("validator", "target"),
    "epsilon": ("strategy", "epsilon"), "blocks": ("strategy", "blocks"), "missing": ("missing",),
    "eta": ("validator", "eta"), "bound": ("validator", "bound"), "step": ("validator", "step"),
    "size": ("pipeline", "units_per_block"),
    **{name: ("trainer", name) for names in TRAINER_OPTIONS.values() for name in names},
}  # fmt: skip


def load_pipeline(path: str | Path) -> Pipeline:
    """Read and check a pipeline file. No data is read.

    Args:
        path: The pipeline file (TOML).

    Returns:
        The pipeline.

    Raises:
        BadFile: With every mistake in the file, each with its line.

    Example:
        With the files that `lapwing train example` writes:

        ```python
        from lapwing.learn import load_pipeline

        pipeline = load_pipeline("durations.toml")
        ```
    """
    path = Path(path)
    values, mistakes = read_toml(
        path, what="pipeline file", example="durations.toml", draft="lapwing train example"
    )
    file = read_table(PipelineFile, values, mistakes)
    trainer, schedule = file.trainer.settings(), file.strategy.schedule()
    validator = file.validator.settings(file.reject)
    is_statistic = trainer is not None and trainer.is_statistic
    said = file.pipeline.settings(path, is_statistic=is_statistic)
    mistakes.complain()
    assert trainer is not None
    assert validator is not None
    assert schedule is not None
    calibration = None if file.calibration is None else CalibrationSettings(**dict(file.calibration))
    try:
        return Pipeline(
            trainer=trainer,
            validator=validator,
            schedule=schedule,
            missing=file.missing_,
            calibration=calibration,
            **said,
        )
    except BadParameter as error:
        mistakes.add(KEY_OF_PARAMETER.get(error.name, ("pipeline", error.name)), error.why)
        mistakes.complain()
        raise


def raise_as_file_mistake(path: str | Path, error: BadParameter) -> None:
    """Raise BadFile, with the line, for a parameter that does not fit the stream's policy."""
    _, empty = read_toml(Path(path), what="pipeline file", example="", draft="lapwing train example")
    mistakes = FileMistakes(empty.file, empty.lines)
    own = ("pipeline", error.name if error.name in PipelineTable.by_key() else "features")
    mistakes.add(KEY_OF_PARAMETER.get(error.name, own), error.why)
    mistakes.complain()
