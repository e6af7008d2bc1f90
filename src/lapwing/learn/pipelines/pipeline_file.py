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

Trainer, validator and calibration of a pipeline file. What is wrong is noted, with its line.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.config.section import TEXT_AT_MOST, Section, kind_of, quoted_choices
from lapwing.config.toml_text import FileMistakes, read_toml
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.errors import BadParameter
from lapwing.learn.pipelines import network
from lapwing.learn.pipelines.calibration import MOST_CALIBRATION_BINS, CalibrationSettings
from lapwing.learn.pipelines.components import (
    CLASS_LOSSES,
    ERROR,
    NETWORK,
    NUMBER_LOSSES,
    TRAINER_OPTIONS,
    Setting,
    TrainerSettings,
    ValidatorSettings,
)
from lapwing.learn.pipelines.pipeline import LONGEST_NAME, TEST_SHARE, AttemptSchedule, Pipeline, Strategy

VALIDATORS = ("loss", "accuracy", ERROR)
MOST_LEVELS = 1000


def required_section(root: Section, name: str, known: tuple[str, ...], write: str) -> Section | None:
    """Return a section that must be there; None, with a note of the mistake, if it is not."""
    if not root.has(name):
        root.missing(name, f"[{name}] with {write}")
    return root.below(name, known)


def require_keys(section: Section, *keys: tuple[str, str]) -> None:
    """Note a mistake for each key that is missing, with an example of what to write."""
    for name, example in keys:
        if not section.has(name):
            section.missing(name, example)


def read_trainer(root: Section) -> TrainerSettings | None:
    """Read [trainer]; None if it has mistakes, which are noted."""
    options = sorted({name for names in TRAINER_OPTIONS.values() for name in names})
    section = required_section(root, "trainer", ("kind", *options), 'kind = "linear regression"')
    if section is None:
        return None
    require_keys(section, ("kind", f"kind = {quoted_choices(tuple(TRAINER_OPTIONS))}"))
    kind = section.one_of("kind", tuple(TRAINER_OPTIONS))
    if kind is None:
        return None
    for name in options:
        if section.has(name) and name not in TRAINER_OPTIONS[kind]:
            section.wrong(name, f"is no setting of {kind}")
    settings = _network(section) if kind == NETWORK else _settings(section, kind)
    try:
        return None if settings is None else TrainerSettings(kind, settings)
    except BadParameter as error:
        section.wrong(error.name, error.why)
        return None


def _settings(section: Section, kind: str) -> dict[str, Setting] | None:
    settings: dict[str, Setting] = {}
    for name in TRAINER_OPTIONS[kind]:
        if (value := section.number(name)) is not None:
            if value <= 0:
                section.wrong(name, "must be above 0")
                return None
            settings[name] = _plain(value)
    return settings


def _network(section: Section) -> dict[str, Setting] | None:
    """Read all settings of a network, each checked; None if one is wrong."""
    settings: dict[str, Setting] = {}
    wrong = [name for name in network.REQUIRED_SETTINGS if not section.has(name)]
    for name in wrong:
        section.missing(name, network.REQUIRED_SETTINGS[name])
    for name in network.NETWORK_OPTIONS:
        if not section.has(name):
            continue
        value: Any
        if name == "layers":
            value = section.values[name]
        elif name in ("activation", "optimizer"):
            value = section.text(name)
        else:
            number = section.number(name)
            value = None if number is None else _plain(number)
        if (
            value is None
            or section.checked(name, lambda one, key: network.checked_setting(key, one), value) is None
        ):
            wrong.append(name)
        else:
            settings[name] = tuple(value) if isinstance(value, list) else value
    return None if wrong else settings


def _plain(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)


def read_validator(root: Section) -> ValidatorSettings | None:
    """Read [validator] and [reject]; None if they have mistakes, which are noted."""
    known = ("kind", "loss", "bound", "step", "target", "eta")
    section = required_section(root, "validator", known, "kind, target and eta")
    levels = _levels(root)
    if section is None:
        return None
    require_keys(
        section,
        ("kind", 'kind = "loss", "accuracy" or (of a statistic) "error"'),
        ("target", "target = 7: the number that must be shown to be reached"),
        ("eta", "eta = 0.05: how often a bad model may be accepted"),
    )
    kind = section.one_of("kind", VALIDATORS)
    target, eta = section.number("target"), section.number("eta")
    loss, bound, step = _loss(section, kind)
    if kind == ERROR and levels:
        root.mistakes.add(("reject",), "is for models. Remove it")
    if kind is None or target is None or eta is None or (kind == "loss") is not bool(loss and bound):
        return None
    try:
        if kind == ERROR:
            return ValidatorSettings(target=target, eta=eta, loss=ERROR)
        return ValidatorSettings(target=target, eta=eta, loss=loss, bound=bound, step=step, levels=levels)
    except BadParameter as error:
        section.wrong(error.name if error.name in known else "target", error.why)
        return None


def _loss(section: Section, kind: str | None) -> tuple[str, Fraction | None, Fraction | None]:
    for name in ("loss", "bound", "step"):
        if kind in ("accuracy", ERROR) and section.has(name):
            section.wrong(name, 'belongs to kind = "loss". Remove it')
        if kind == "loss" and name != "step" and not section.has(name):
            section.missing(name, 'loss = "absolute error"' if name == "loss" else "bound = 60")
    found = section.one_of("loss", (*NUMBER_LOSSES, *CLASS_LOSSES)) or ""
    return found, section.number("bound"), section.number("step")


def _levels(root: Section) -> int:
    reject = root.below("reject", ("levels",))
    if reject is None:
        return 0
    require_keys(reject, ("levels", "levels = 17: how fine the net of lines is, in each weight"))
    return reject.whole("levels", least=2, most=MOST_LEVELS) or 0


def read_calibration(root: Section) -> CalibrationSettings | None:
    """Read [calibration]; None if it is not there or has mistakes, which are noted."""
    section = root.below("calibration", ("epsilon", "bins"))
    if section is None:
        return None
    require_keys(
        section,
        ("epsilon", "epsilon = 0.1: how much of an attempt's ε the testing units pay for it"),
        ("bins", "bins = 10"),
    )
    epsilon, bins = section.number("epsilon"), section.whole("bins", least=2, most=MOST_CALIBRATION_BINS)
    if epsilon is None or bins is None or section.checked("epsilon", checked_epsilon, epsilon) is None:
        return None
    return CalibrationSettings(epsilon=epsilon, bins=bins)


SECTIONS = ("pipeline", "trainer", "validator", "reject", "calibration", "strategy", "missing")
PIPELINE_KEYS = (
    "name", "stream", "features", "label", "delta", "test_share", "units_per_block", "indicators",
)  # fmt: skip
REQUIRED_KEYS = (
    ("name", 'name = "durations": how the ledger calls it'),
    ("stream", 'stream = "rides.toml": the policy whose data is learned from'),
    ("features", 'features = "SELECT distance, duration FROM rides"'),
    ("label", 'label = "duration": the column to be learned'),
    ("delta", "delta = 1e-8: the δ of one attempt"),
)
MODEL_KEYS = ("delta", "test_share", "units_per_block", "indicators")  # not for statistics
MOST_UNITS_PER_BLOCK, MOST_BLOCKS = 10**10, 10**6
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
    root = Section.of(mistakes, (), values, SECTIONS)
    assert root is not None
    head = required_section(root, "pipeline", PIPELINE_KEYS, "name, stream, features, label and delta")
    trainer, validator, calibration = read_trainer(root), read_validator(root), read_calibration(root)
    schedule = _schedule(root)
    is_statistic = trainer is not None and trainer.is_statistic
    said = {} if head is None else _head(head, path, is_statistic=is_statistic)
    missing = _missing(root)
    mistakes.complain()
    assert trainer is not None
    assert validator is not None
    assert schedule is not None
    try:
        return Pipeline(
            trainer=trainer,
            validator=validator,
            schedule=schedule,
            missing=missing,
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
    own = ("pipeline", error.name if error.name in PIPELINE_KEYS else "features")
    mistakes.add(KEY_OF_PARAMETER.get(error.name, own), error.why)
    mistakes.complain()


def _head(head: Section, path: Path, *, is_statistic: bool) -> dict[str, Any]:
    require_keys(head, *(key for key in REQUIRED_KEYS if not (is_statistic and key[0] in MODEL_KEYS)))
    for name in MODEL_KEYS:
        if is_statistic and head.has(name):
            head.wrong(name, "is for models: a statistic has no such thing. Remove it")
    own, stream, label = head.label("name"), head.text("stream"), head.name("label")
    if own is not None and len(own) > LONGEST_NAME:
        head.wrong("name", f"must be at most {LONGEST_NAME} long")
    delta, share = head.number("delta"), head.number("test_share")
    if delta is not None:
        head.checked("delta", checked_delta, delta)
    if share is not None and not 0 < share < 1:
        head.wrong("test_share", "must lie between 0 and 1: 0.1 tests with a tenth of the units")
    return {
        "name": own or "",
        "stream": path.absolute().parent / (stream or ""),
        "sql": _sql(head),
        "label": label or "",
        "delta": delta or Fraction(0),
        "test_share": TEST_SHARE if share is None else share,
        "units_per_block": head.whole("units_per_block", least=1, most=MOST_UNITS_PER_BLOCK),
        "indicators": head.flag("indicators"),
    }


def _sql(head: Section) -> str:
    found = head.values.get("features")
    if found is None:
        return ""
    if not isinstance(found, str) or not found.strip() or len(found) > TEXT_AT_MOST:
        head.wrong("features", f"must be SQL in quotes, not {kind_of(found)}")
        return ""
    return found.strip()


def _schedule(root: Section) -> AttemptSchedule | None:
    section = required_section(root, "strategy", ("kind", "epsilon", "blocks"), "kind, epsilon and blocks")
    if section is None:
        return None
    kinds = tuple(one.value for one in Strategy)
    require_keys(
        section,
        ("kind", f"kind = {quoted_choices(kinds)}"),
        ("epsilon", "epsilon = [0.1, 1.0]: the least and the most of an attempt"),
        ("blocks", "blocks = [1, 64]: of how many the first attempt learns, and how many at most"),
    )
    kind = section.one_of("kind", kinds)
    epsilon, blocks = _pair(section, "epsilon"), _pair(section, "blocks")
    if blocks is not None and any(not 1 <= one <= MOST_BLOCKS or one.denominator > 1 for one in blocks):
        section.wrong("blocks", f"must be whole numbers from 1 to {MOST_BLOCKS:,}")
        return None
    if kind is None or epsilon is None or blocks is None:
        return None
    if any(section.checked("epsilon", checked_epsilon, one) is None for one in epsilon):
        return None
    try:
        return AttemptSchedule(
            strategy=Strategy(kind),
            least=epsilon[0],
            most=epsilon[1],
            first_blocks=int(blocks[0]),
            most_blocks=int(blocks[1]),
        )
    except BadParameter as error:
        section.wrong(error.name, error.why)
        return None


def _pair(section: Section, name: str) -> tuple[Fraction, Fraction] | None:
    found = section.values.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or len(found) != 2:
        section.wrong(name, "must be two numbers in brackets: the first and the last")
        return None
    ends = [Section(section.mistakes, section.key, {name: one}).number(name) for one in found]
    return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def _missing(root: Section) -> dict[str, Any]:
    """Return the values that stand for missing ones, by column."""
    found: dict[str, Any] = {}
    for name, value in root.tables("missing").items():
        if isinstance(value, dict | list):
            root.mistakes.add(("missing", name), "must be one value of the column")
        elif isinstance(value, Decimal):
            found[name] = Fraction(value)
        elif isinstance(value, bool | int | str | datetime | date):
            found[name] = value
    return found
