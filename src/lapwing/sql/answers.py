"""Answers: numbers with intervals, their price and receipt; how they are stored, and how several combine.

The ledger stores the noisy numbers as they left the mechanisms, and the request. All that people see is
computed from these at no cost, at any confidence, as often as they like.

Several releases of one additive question are combined to one more accurate answer:

Claim    the intervals of all combined answers (of two releases, of three, …) hold together with probability
         1 - η, also if each release, its ε and its kind of noise were decided from the ones before. η is
         fixed in advance. (The first alone was shown at 1 - η, like all answers.)
Because  weights are inverse scales. Noise divided by its scale has the same distribution, however the scale
         was decided, so the mean's noise is a sum of independent noises of one scale. (With weights by
         inverse variances, a chosen ε could keep or reduce noise that is known to be far off.) One release
         alone is the other choice. Σ 1 / (i (i + 1)) is 1, and 1/2 over i > 1. So sums of one kind of noise
         miss with η / 2, single releases with η / 4, and a second kind adds η / 4.
Test     tests/sql/test_answers_combine.py; docs/arguments/query-noise.md has the proof.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lapwing.core.exact import float_up
from lapwing.errors import MissingExtra
from lapwing.ledger import Receipt
from lapwing.mechanisms import Gaussian, Laplace
from lapwing.sql.bound_query import BoundQuery, KeyValue, NoisyAggregate
from lapwing.sql.estimates import AnswerColumn, AnswerRows
from lapwing.sql.group_statistics import step_of
from lapwing.sql.intervals import NoiseFamily, half_width, noise_scale
from lapwing.sql.noising import BudgetShares, NoisyGrouping, WantedCode, has_declared_keys

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure

_SHOWN = 20


@dataclass(frozen=True, repr=False)
class Answer:
    """A released answer: a table of numbers with intervals, its price and its receipt.

    Print it, or convert it with `to_arrow`, `to_pandas`, `to_polars` or `to_json`.

    Args:
        rows: The columns, with the ends of their intervals.
        cost: The price in words.
        confidence: The probability with which each interval holds.
        receipt: The ledger's receipt; None for a dry run.
        is_replay: Whether it was released before, and cost nothing now.
        is_fake: Whether it was made from generated rows.
        of: The number of releases that it combines.
        left: The budget left, in words.
        notes: Sentences about this answer.
        earlier: Earlier answers of the same question that could not be combined with it.
        truncation: Sentences on how many rows of a person it uses.

    Example:
        >>> answer = dataset.ask("SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
        >>> answer.columns[0].name, len(answer.columns[0].values)
        ('n', 1)
    """

    rows: AnswerRows
    cost: str
    confidence: float
    receipt: Receipt | None
    is_replay: bool = False
    is_fake: bool = False
    of: int = 1
    left: str = ""
    notes: tuple[str, ...] = ()
    earlier: tuple[Answer, ...] = field(default=(), repr=False)
    truncation: tuple[str, ...] = ()

    @property
    def columns(self) -> list[AnswerColumn]:
        """The columns, with values and ends of intervals."""
        return self.rows.columns

    def __len__(self) -> int:
        return self.rows.length

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table. A column `n` with intervals has `n_low` and `n_high` beside it.

        Returns:
            The table, with distinct column names.

        Example:
            >>> answer.to_arrow().column_names
            ['n', 'n_low', 'n_high']
        """
        named = [
            (f"{one.name}{end}", values)
            for one in self.columns
            for end, values in (("", one.values), ("_low", one.low), ("_high", one.high))
            if values is not None
        ]
        names = _distinct_names([name for name, _ in named])
        return pa.table([_array(values) for _, values in named], names=names)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas DataFrame, with columns as in `to_arrow`.

        Returns:
            The data frame.

        Raises:
            MissingExtra: If pandas is not installed.

        Example:
            >>> frame = answer.to_pandas()
        """
        _import_frames("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return a polars DataFrame, with columns as in `to_arrow`.

        Returns:
            The data frame.

        Raises:
            MissingExtra: If polars is not installed.

        Example:
            >>> frame = answer.to_polars()
        """
        frame: pl.DataFrame = _import_frames("polars").from_arrow(self.to_arrow())
        return frame

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain values for JSON. An infinite end of an interval is None.

        Returns:
            The columns, the price, the receipt and all sentences.

        Example:
            >>> sorted(answer.to_json())[:3]
            ['columns', 'combines', 'confidence']
        """
        return {
            "columns": [
                {
                    "name": column.name,
                    "values": _plain(column.values),
                    "low": _plain(column.low),
                    "high": _plain(column.high),
                    "note": column.note,
                    "rank_error": column.rank_error,
                }
                for column in self.columns
            ],
            "confidence": self.confidence,
            "cost": self.cost,
            "left": self.left,
            "replayed": self.is_replay,
            "fake": self.is_fake,
            "combines": self.of,
            "truncation": list(self.truncation),
            "notes": list(self.notes),
            "receipt": None if self.receipt is None else json.loads(self.receipt.to_json()),
        }

    def to_priced_json(self) -> dict[str, Any]:
        """Return the answer for JSON, with its price as numbers, rounded up.

        The receipt has the same numbers as the ledger has them: rationals as texts.
        """
        found = self.to_json()
        paid = found["receipt"] and found["receipt"]["parameters"]
        price = paid and {name: float_up(Fraction(paid[name])) for name in ("epsilon", "delta")}
        return {**found, "price": price}

    def table(self, most: int | None = _SHOWN) -> tuple[list[str], list[list[str]]]:
        """Return headings and cells as text, such as "1,234 (1,178 to 1,290)".

        Args:
            most: The largest number of rows. None: all.

        Returns:
            The headings, and one list of texts for each row.

        Example:
            >>> headings, cells = answer.table()
        """
        shown = len(self) if most is None else min(most, len(self))
        headings = [column.name for column in self.columns]
        cells = [[cell_text(column, row) for column in self.columns] for row in range(shown)]
        return headings, cells

    def __str__(self) -> str:
        headings, cells = self.table()
        widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
        lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()
                 for row in [headings, *cells]]  # fmt: skip
        if len(self) > len(cells):
            lines.append(f"… {len(self) - len(cells):,} more rows")
        return "\n".join([*lines, *column_notes(self.columns), *self.footer()])

    __repr__ = __str__

    def footer(self) -> list[str]:
        """Return the sentences below the table: confidence, price, truncation, notes and receipt.

        Returns:
            One text for each line.

        Example:
            >>> print(*answer.footer(), sep="; ")
        """
        kinds = ["intervals"] if any(column.low is not None for column in self.columns) else []
        kinds += ["ranks"] if any(column.rank_error is not None for column in self.columns) else []
        sure = f"{' and '.join(kinds).capitalize()} hold with {self.confidence:.4g} confidence each"
        sure = sure if kinds else "No column has an interval"
        price = "released before, nothing was charged" if self.is_replay else f"charged {self.cost}"
        if self.is_fake:
            price = "made of generated rows: nothing was read or charged"
        lines = [f"{sure}; {price}.", *self.truncation, *self.notes]
        if self.of > 1:
            lines.append(
                f"It combines {self.of} releases of the same question, or is the best of them if sharper."
            )
        if self.left:
            lines.append(f"Left: {self.left}.")
        if self.receipt is not None:
            lines.append(f"Receipt: {self.receipt.position}, {self.receipt.hash[:16]}…")
        return lines

    def _repr_html_(self) -> str:
        from lapwing.sql.html_view import answer_html  # noqa: PLC0415 (it knows answers)

        return answer_html(self)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the answer with error bars.

        Args:
            path: A .svg, .png or .pdf file to write. None: no file is written.

        Returns:
            The figure.

        Raises:
            MissingExtra: If matplotlib is not installed.

        Example:
            >>> figure = answer.plot("visits.svg")
        """
        from lapwing.plots.answers import answer_picture as draw  # noqa: PLC0415 (matplotlib is an extra)
        from lapwing.plots.style import checked_path, save  # noqa: PLC0415

        columns = [
            (one.name, list(one.values), _listed(one.low), _listed(one.high)) for one in self.columns
        ]
        figure = draw(columns, confidence=self.confidence)
        if path is not None:
            save(figure, checked_path(Path(path)))
        return figure


def _import_frames(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError:
        raise MissingExtra("frames", library) from None


def column_notes(columns: Sequence[AnswerColumn]) -> list[str]:
    """Return the notes of the columns. A quantile has an error in ranks instead of an interval."""
    return [
        f"{column.name}: {'no interval of values; ' if _is_by_rank(column) else ''}{column.note}"
        for column in columns
        if column.note
    ]


def _is_by_rank(column: AnswerColumn) -> bool:
    return column.rank_error is not None and column.low is None


def cell_text(column: AnswerColumn, row: int) -> str:
    """Return one value as text, with its interval."""
    value = column.values[row]
    if value is None:
        return "·"
    if column.low is None or column.high is None:
        return number_text(value) if isinstance(value, float) else str(value)  # 2026 may be a year
    low, high = column.low[row], column.high[row]
    if low is None or high is None:
        return number_text(value)
    return f"{number_text(value)} ({number_text(low)} to {number_text(high)})"


def number_text(value: Any) -> str:
    """Return a number as text, with thousands separated and few digits."""
    if isinstance(value, bool | np.bool_ | str | date):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if isinstance(value, float | np.floating):
        size = abs(float(value))
        if size == np.inf:
            return "∞" if value > 0 else "-∞"
        digits = 0 if size >= 1000 or not size else 1 if size >= 100 else 2 if size >= 1 else 4
        return f"{float(value):,.{digits}f}"
    return str(value)


def _array(values: Any) -> pa.Array:
    return pa.array(values if values.dtype != object else values.tolist())


def _distinct_names(names: list[str]) -> list[str]:
    """Make names distinct by numbers: SQL allows equal names, most data frames do not."""
    taken = set(names)
    found: list[str] = []
    for name in names:
        other, number = name, 2
        while other in found or (other != name and other in taken):
            other, number = f"{name}_{number}", number + 1
        found.append(other)
    return found


def _listed(values: NDArray[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _plain(values: NDArray[Any] | None) -> list[Any] | None:
    """Return plain values for JSON, which has no infinity: None instead."""
    return None if values is None else [_plain_value(value) for value in values]


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat() if isinstance(value, date) else value


ANSWER_FORMAT = 2
_ASKED = '"asked":'  # precedes the request in the bytes of an answer
SHAPE_FORMAT = 3  # of requests that are recognised by `form`, with any column names


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A request, as far as it decides what is released. All of it is public, or the analyst's own."""

    sql: str  # in one normal form
    version: int
    epsilon: Fraction
    delta: Fraction
    noise: str
    rows: int | None
    mechanisms: str  # their digest: it shows whether this code would choose the same ones again
    meaning: str = ""  # a digest of the bound question, the declared columns and public tables
    data: int = 0  # the ledger's number of the data set; 0: stored before it was noted
    form: str = ""  # the meaning without names of columns and tables; "": stored before it was noted

    @property
    def shape(self) -> str:
        """The request without its price. Answers of one shape can be combined."""
        if self.form:
            return json.dumps([SHAPE_FORMAT, self.version, self.rows, self.form, self.data])
        parts = [ANSWER_FORMAT, self.sql, self.version, self.rows, self.meaning]
        parts += [self.data] if self.data else []
        return json.dumps(parts, ensure_ascii=False)

    @property
    def price(self) -> tuple[Fraction, Fraction, str, str]:
        """The price and mechanisms, which differ between answers of one shape."""
        return self.epsilon, self.delta, self.noise, self.mechanisms

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored and digested: a changed name or order of fields changes it."""
        return {**asdict(self), "epsilon": str(self.epsilon), "delta": str(self.delta)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> QueryRequest:
        """Read the stored form. Fields that a later version added are ignored."""
        known = {field.name: found[field.name] for field in fields(cls) if field.name in found}
        exact = {name: Fraction(found[name]) for name in ("epsilon", "delta")}
        return cls(**{**known, **exact})


def answer_to_bytes(asked: QueryRequest, noisy: Sequence[NoisyGrouping]) -> bytes:
    """Return the stored bytes of an answer."""
    groupings = [
        {
            "groups": one.groups,
            "keys": one.keys,
            "parts": [_packed(part) for part in one.parts],
            "codes": [
                [want.spectrum, want.function, fraction, _packed(codes)]
                for want, codes in one.codes.items()
                for fraction in [None if want.fraction is None else str(want.fraction)]
            ],
        }
        for one in noisy
    ]
    content = {"format": ANSWER_FORMAT, "asked": asked.to_json(), "groupings": groupings}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def answer_from_bytes(content: bytes) -> tuple[QueryRequest, list[NoisyGrouping]]:
    """Read the stored bytes of an answer."""
    found = json.loads(content)
    noisy = [
        NoisyGrouping(
            tuple(_unpacked(part) for part in one["parts"]),
            {
                WantedCode(spectrum, function, fraction and Fraction(fraction)): _unpacked(codes)
                for spectrum, function, fraction, codes in one["codes"]
            },
            None if one["keys"] is None else [tuple(key) for key in one["keys"]],
            one["groups"],
        )
        for one in found["groupings"]
    ]
    return QueryRequest.from_json(found["asked"]), noisy


def stored_question(content: bytes) -> str | None:
    """Return the question of a stored answer from its first bytes; None if it is no answer to SQL."""
    text = content.decode("utf-8", errors="ignore")
    begin = text.find(_ASKED, 0, 40)
    if begin < 0:
        return None
    try:
        found, _ = json.JSONDecoder().raw_decode(text, begin + len(_ASKED))
        return str(found["sql"])
    except (ValueError, KeyError, TypeError):
        return None


def _packed(values: NDArray[np.int64]) -> str:
    return base64.b64encode(values.astype("<i8").tobytes()).decode("ascii")


def _unpacked(text: str) -> NDArray[np.int64]:
    return np.frombuffer(base64.b64decode(text), dtype="<i8").astype(np.int64)


FEW_LAPLACE = 6  # Laplace noises up to which the closed form is used; with more, its terms cancel
# The shares of η for single releases, and for each of two kinds of noise.
SINGLE_SHARE, EACH_KIND_SHARE = Fraction(1, 4), Fraction(1, 6)


def can_combine(question: BoundQuery) -> bool:
    """Return whether all outputs are additive, over declared keys, in a fixed order of rows."""
    if question.having is not None or question.order or question.limit is not None or question.offset:
        return False
    values = [output.value for output in question.outputs]
    is_additive = all(
        isinstance(value, KeyValue)
        or (isinstance(value, NoisyAggregate) and value.function in ("count", "sum"))
        for value in values
    )
    return len(question.sets) == 1 and has_declared_keys(question, 0) and is_additive


def level_of_repeat(confidence: Fraction, repeat: int, share: Fraction = Fraction(1)) -> Fraction:
    """Return the confidence at which the i-th noise alone, or the first i together, are held."""
    return 1 - share * (1 - confidence) / (repeat * (repeat + 1))


def combine_releases(
    releases: Sequence[tuple[BudgetShares, NoisyGrouping]], rows: AnswerRows, confidence: Fraction
) -> AnswerRows:
    """Return the newest answer's rows with the combined values of all releases."""
    question = releases[-1][0].question
    columns = []
    for output, column in zip(question.outputs, rows.columns, strict=True):
        if not isinstance(output.value, NoisyAggregate):
            columns.append(column)
            continue
        (part,) = output.value.parts
        mechanisms = [shares.mechanism(0, part) for shares, _ in releases]
        weights, half = narrowest_mean(mechanisms, confidence)
        mean = sum(w * noisy.parts[part] for w, (_, noisy) in zip(weights, releases, strict=True))
        step = float(step_of(output.value))
        values, low, high = (np.asarray(v * step) for v in (mean, mean - half, mean + half))
        if output.value.function == "count":
            values, low, high = (np.maximum(v, 0) for v in (values, low, high))
        columns.append(AnswerColumn(column.name, values, low, high, column.note))
    return AnswerRows(columns, rows.length, rows.agree)


def narrowest_mean(
    mechanisms: Sequence[Laplace | Gaussian], confidence: Fraction
) -> tuple[list[float], float]:
    """Return weights of the releases and the half-width of their mean: of all, or of one alone.

    Only the scales decide which. `confidence` is that of a single answer.
    """
    alone = [
        half_width(mechanism, level_of_repeat(confidence, number, SINGLE_SHARE))
        for number, mechanism in enumerate(mechanisms, 1)
    ]
    # By the inverse of the standard deviation, taken as continuous.
    factors = [1.0 if isinstance(mechanism, Gaussian) else math.sqrt(2) for mechanism in mechanisms]
    inverse = [1 / (noise_scale(one) * factor) for one, factor in zip(mechanisms, factors, strict=True)]
    weights = [each / sum(inverse) for each in inverse]
    together = half_width_of_mean(mechanisms, weights, confidence)
    if min(alone) > together:
        return weights, together
    best = alone.index(min(alone))
    return [float(number == best) for number in range(len(alone))], float(alone[best])


def half_width_of_mean(
    mechanisms: Sequence[Laplace | Gaussian], weights: Sequence[float], confidence: Fraction
) -> float:
    """Return the half-width of a mean by inverse scales. Whole noise is within 1 of continuous noise."""
    kinds = [
        [
            weight * noise_scale(one)
            for one, weight in zip(mechanisms, weights, strict=True)
            if isinstance(one, Gaussian) is is_gaussian
        ]
        for is_gaussian in (False, True)
    ]
    share = EACH_KIND_SHARE if all(kinds) else Fraction(1)
    total = 1.0
    for is_gaussian, scales in enumerate(kinds):
        if scales:
            level = level_of_repeat(confidence, len(scales), share)
            total += _width(scales, is_gaussian=bool(is_gaussian), level=level)
    return total


def _width(scales: list[float], *, is_gaussian: bool, level: Fraction) -> float:
    """Return the half-width of a sum of continuous noises."""
    if not is_gaussian and len(scales) > FEW_LAPLACE:
        return width_of_many(np.array(scales), float(1 - level))
    return float(NoiseFamily(is_gaussian, level).width([np.array(scale) for scale in scales])) - 0.5


def width_of_many(scales: NDArray[np.float64], miss: float) -> float:
    """Return the t with P[|Σ noises| > t] = miss, for Laplace noises, from their characteristic function.

    P[|S| <= t] is 2t/L + 2/π Σ φ(nh) sin(nht) / n with h = 2π/L, up to P[|S| > L - t]. L is so large that
    this is below 1e-15 (Chernoff). The sum ends where φ is below e^-37.
    """
    a = np.maximum(scales / scales.max(), 1e-3)  # wider, so on the safe side
    far = 2 * (math.log(2e15) - float(np.log1p(-(a**2) / 4).sum()))
    last = 1.0
    while np.log1p((a * last) ** 2).sum() < 37:
        last *= 1.5
    n = np.arange(1, math.ceil(last * far / math.pi) + 1)
    u = n * (math.pi / far)
    phi = np.exp(-sum(np.log1p((one * u) ** 2) for one in a)) / n
    low, high = 0.0, far
    for _ in range(50):
        t = (low + high) / 2
        beyond = 1 - t / far - 2 / math.pi * float((phi * np.sin(u * t)).sum())
        low, high = (t, high) if beyond > miss else (low, t)
    return high * float(scales.max())
