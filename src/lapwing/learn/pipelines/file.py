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

from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter
from lapwing.learn.pipelines.file_parts import calibration_of, needed, trainer_of, validator_of
from lapwing.learn.pipelines.parts import OPTIONS
from lapwing.learn.pipelines.pipeline import LONGEST_NAME, TEST_SHARE, Pipeline
from lapwing.learn.pipelines.schedule import Schedule, Strategy
from lapwing.privacy.loss import checked_delta, checked_epsilon
from lapwing.toml.section import TEXT_AT_MOST, Section, either, kind_of
from lapwing.toml.text import Mistakes, read

ROOT = ("pipeline", "trainer", "validator", "reject", "calibration", "strategy", "missing")
HEAD = (
    "name", "stream", "features", "label", "delta", "test_share", "units_per_block", "indicators",
)  # fmt: skip
NEEDED = (
    ("name", 'name = "durations": how the ledger calls it'),
    ("stream", 'stream = "rides.toml": the policy whose data is learned from'),
    ("features", 'features = "SELECT distance, duration FROM rides"'),
    ("label", 'label = "duration": the column to be learned'),
    ("delta", "delta = 1e-8: the δ of one attempt"),
)
OF_MODELS = ("delta", "test_share", "units_per_block", "indicators")  # a statistic has none of these
MOST_UNITS, MOST_BLOCKS = 10**10, 10**6
# Where a mistake is that is found when all is put together.
PLACES = {
    "levels": ("reject", "levels"), "reject": ("reject",), "calibration": ("calibration", "epsilon"),
    "trainer": ("trainer", "kind"), "validator": ("validator", "kind"), "target": ("validator", "target"),
    "epsilon": ("strategy", "epsilon"), "blocks": ("strategy", "blocks"), "missing": ("missing",),
    "eta": ("validator", "eta"), "bound": ("validator", "bound"), "step": ("validator", "step"),
    "size": ("pipeline", "units_per_block"),
    **{name: ("trainer", name) for names in OPTIONS.values() for name in names},
}  # fmt: skip


def load_pipeline(path: str | Path) -> Pipeline:
    """The pipeline in a file, checked; or `BadFile` with every mistake in it. Reads no data."""
    path = Path(path)
    values, mistakes = read(
        path, what="pipeline file", example="durations.toml", draft="lapwing train example"
    )
    root = Section.of(mistakes, (), values, ROOT)
    assert root is not None
    head = needed(root, "pipeline", HEAD, "name, stream, features, label and delta")
    trainer, validator, calibration = trainer_of(root), validator_of(root), calibration_of(root)
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
        mistakes.add(PLACES.get(error.name, ("pipeline", error.name)), error.why)
        mistakes.complain()
        raise


def complain_about(path: str | Path, error: BadParameter) -> None:
    """What does not fit the stream's policy is a mistake in the file, too."""
    _, found = read(Path(path), what="pipeline file", example="", draft="lapwing train example")
    mistakes = Mistakes(found.file, found.lines)
    own = ("pipeline", error.name if error.name in HEAD else "features")
    mistakes.add(PLACES.get(error.name, own), error.why)
    mistakes.complain()


def _head(head: Section, path: Path, *, is_statistic: bool) -> dict[str, Any]:
    for name, write in NEEDED:
        if not head.has(name) and not (is_statistic and name in OF_MODELS):
            head.missing(name, write)
    for name in OF_MODELS:
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
        "units_per_block": head.whole("units_per_block", least=1, most=MOST_UNITS),
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


def _schedule(root: Section) -> Schedule | None:
    section = needed(root, "strategy", ("kind", "epsilon", "blocks"), "kind, epsilon and blocks")
    if section is None:
        return None
    kinds = tuple(one.value for one in Strategy)
    for name, write in (
        ("kind", f"kind = {either(kinds)}"),
        ("epsilon", "epsilon = [0.1, 1.0]: the least and the most of an attempt"),
        ("blocks", "blocks = [1, 64]: of how many the first attempt learns, and how many at most"),
    ):
        if not section.has(name):
            section.missing(name, write)
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
        return Schedule(
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
    """What missing values count as, by column."""
    found: dict[str, Any] = {}
    for name, value in root.tables("missing").items():
        if isinstance(value, dict | list):
            root.mistakes.add(("missing", name), "must be one value of the column")
        elif isinstance(value, Decimal):
            found[name] = Fraction(value)
        elif isinstance(value, bool | int | str | datetime | date):
            found[name] = value
    return found
