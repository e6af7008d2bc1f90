"""A pipeline that is audited: rows that are generated from its declared ranges, and models of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lapwing.learn.payer import PublicData
from lapwing.sql.row_questions import CodedColumn, PrivateRows

if TYPE_CHECKING:
    from lapwing.learn.features import Features
    from lapwing.learn.pipelines.pipeline import Pipeline, PlannedAttempt

UNITS = 40
# Of the first and last code, and the column's place; None: NULL.
Pick = Callable[[int, int, int], int | None]


@dataclass(frozen=True, slots=True)
class AuditedPipeline:
    """A pipeline, and its features as its stream declares them."""

    pipeline: Pipeline
    features: Features

    @property
    def attempts(self) -> list[PlannedAttempt]:
        """The first attempt and the last one, if there is one."""
        from lapwing.learn.pipelines.training import first_and_last_attempt  # noqa: PLC0415 (an extra)

        return first_and_last_attempt(self.pipeline, 1)

    def rows(self, units: Sequence[Sequence[Pick]], ids: Sequence[int]) -> PrivateRows:
        """Return made-up rows: for each unit the codes of its rows, and the id of each unit."""
        rows = [(unit, pick) for unit, picks in enumerate(units) for pick in picks]
        numbers = np.array([unit for unit, _ in rows], dtype=np.int64)
        columns = {}
        for place, column in enumerate([*self.features.columns, self.features.label_feature]):
            codes = [pick(*column.ends, place) for _, pick in rows]
            columns[column.name] = CodedColumn(
                np.array([code or 0 for code in codes], dtype=np.int64),
                np.array([code is not None for code in codes], dtype=np.bool_),
            )
        return PrivateRows(numbers, 0 * numbers, columns, numbers, np.array(ids, dtype=np.int64))

    def ordinary_rows(self, *more: tuple[Sequence[Pick], int]) -> PrivateRows:
        """Return ordinary units of one row each, and further units with their ids."""
        units: list[Sequence[Pick]] = [[ordinary_codes(unit)] for unit in range(UNITS)]
        return self.rows(
            [*units, *(picks for picks, _ in more)], [*range(UNITS), *(id_ for _, id_ in more)]
        )

    def trained(self, tried: PlannedAttempt, rows: PrivateRows) -> Any:
        """Return a model that the pipeline's trainer makes of generated rows. Nothing is charged."""
        from lapwing.learn.pipelines.components import fit_on_rows  # noqa: PLC0415 (an extra)

        pipeline, features = self.pipeline, self.features
        trainer = pipeline.trainer.create(
            features, epsilon=tried.epsilon, delta=pipeline.delta, size=pipeline.size(tried.blocks),
            payer=PublicData(),
        )  # fmt: skip
        return fit_on_rows(trainer, features, rows)


def ordinary_codes(seed: int) -> Pick:
    """Return codes within the declared range."""
    return lambda first, last, place: first + (seed * 7919 + place * 104_729 + 17) % (last - first + 1)


def added_units() -> list[tuple[str, list[Pick]]]:
    """Return units to be added, in words and by their rows. The most telling ones are the first."""

    def low(first: int, _last: int, _place: int) -> int:
        return first

    def high(_first: int, last: int, _place: int) -> int:
        return last

    def mixed(first: int, last: int, place: int) -> int:
        return (first, last)[place % 2]

    def beyond(first: int, last: int, place: int) -> int:
        return (first - 10**9, last + 10**9)[place % 2]

    def missing(_first: int, _last: int, _place: int) -> None:
        return None

    def half_missing(first: int, _last: int, place: int) -> int | None:
        return first if place % 2 else None

    return [
        ("a unit of 40 equal rows", [high] * 40),
        ("a unit of one row at the lower ends", [low]),
        ("a unit of one row at mixed ends", [mixed]),
        ("a unit of NULL", [missing]),
        ("a unit of one row", [ordinary_codes(12345)]),
        ("a unit far beyond the bounds", [beyond]),
        ("a unit of one row with NULL", [half_missing]),
        ("a unit of 40 rows", [ordinary_codes(k) for k in range(40)]),
        ("a unit of one row at the upper ends", [high]),
    ]
