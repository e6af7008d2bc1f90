"""A pipeline from its file (TOML). All mistakes are found and told together, each with its line.

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

from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator

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
from lapwing.config.values import kind_of, quoted_choices
from lapwing.core.losses import checked_epsilon
from lapwing.errors import BadParameter
from lapwing.learn.pipelines import network
from lapwing.learn.pipelines.calibration import MOST_CALIBRATION_BINS, CalibrationSettings
from lapwing.learn.pipelines.components import (
    CLASS_LOSSES,
    ERROR,
    NETWORK,
    NUMBER_LOSSES,
    TRAINER_OPTIONS,
    TrainerSettings,
    ValidatorSettings,
)
from lapwing.learn.pipelines.pipeline import LONGEST_NAME, TEST_SHARE, AttemptSchedule, Pipeline, Strategy

MOST_LEVELS = 1000
MOST_UNITS_PER_BLOCK, MOST_BLOCKS = 10**10, 10**6
TRAINERS, STRATEGIES = tuple(TRAINER_OPTIONS), tuple(one.value for one in Strategy)
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
_SHARE = fits(lambda one: 0 < one < 1, "must lie between 0 and 1: 0.1 tests with a tenth of the units")
_WHOLE = fits(
    lambda ends: all(1 <= one <= MOST_BLOCKS and one.denominator == 1 for one in ends),
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
        if self.kind == NETWORK:
            self.require(**network.REQUIRED_SETTINGS)
        check = network.checked_setting if self.kind == NETWORK else _positive
        checked = [value is not None and self.attempt(partial(check, name, value), name) is not None
                   for name, value in given.items()]  # fmt: skip
        if not all(checked):
            return None
        settings = {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
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

    kind: Annotated[Text, one_of(("loss", "accuracy", ERROR))] | None = needed(
        'kind = "loss", "accuracy" or (of a statistic) "error"'
    )
    loss: Annotated[Text, one_of((*NUMBER_LOSSES, *CLASS_LOSSES))] | None = None
    bound: Number | None = None
    step: Number | None = None
    target: Number | None = needed("target = 7: the number that must be shown to be reached")
    eta: Number | None = needed("eta = 0.05: how often a bad model may be accepted")

    def settings(self, reject: RejectTable | None) -> ValidatorSettings | None:
        """Return the target that must be shown; None if something is wrong, which is noted."""
        if self.kind == ERROR and reject is not None:
            reject.wrong("levels", "is for models. Remove [reject]")
        for name in ("loss", "bound", "step"):
            if self.kind in ("accuracy", ERROR) and self.has(name):
                self.wrong(name, 'belongs to kind = "loss". Remove it')
        must: dict[str, Any] = {"target": self.target, "eta": self.eta}
        if self.kind == "loss":
            self.require(loss='loss = "absolute error"', bound="bound = 60")
            must |= {"loss": self.loss, "bound": self.bound}
        if self.kind is None or None in must.values():
            return None
        levels = 0 if reject is None else reject.levels or 0
        try:
            if self.kind == ERROR:
                return ValidatorSettings(**must, loss=ERROR)
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
    _, found = read_toml(Path(path), what="pipeline file", example="", draft="lapwing train example")
    mistakes = FileMistakes(found.file, found.lines)
    own = ("pipeline", error.name if error.name in PipelineTable.by_key() else "features")
    mistakes.add(KEY_OF_PARAMETER.get(error.name, own), error.why)
    mistakes.complain()
