"""The form of a question that comes over HTTP or from a page: SQL, a price or an accuracy, and options.

Claim    a number that decides a price is the one that was written: 0.1 is one tenth, and neither NaN nor a
         number that is too large to be meant passes.
Because  such numbers are decimal text of limited length. Numbers of JSON are refused: programs read them as
         binary fractions.
Test     tests/server/data/test_question_form.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from lapwing.errors import BadParameter

LONGEST_SQL = 20_000  # characters
LARGEST_COUNT = 10**15
DECIMALS = frozenset({"epsilon", "delta", "within", "confidence"})  # numbers that come as text
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,30})?([eE]-?[0-9]{1,2})?")
WHY_DECIMAL = 'must be decimal text, such as "0.5": in quotation marks, not negative, with few digits'
_WHY_POSITIVE = 'must be above 0, as decimal text such as "0.5"'
_EXAMPLE: dict[str, Any] = {
    "sql": "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward",
    "epsilon": "0.5",
}


def _decimal(text: str) -> str:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(WHY_DECIMAL)
    return text


def _positive(text: str) -> str:
    if not Fraction(_decimal(text)):
        raise ValueError(_WHY_POSITIVE)
    return text


DecimalText = Annotated[str, AfterValidator(_decimal), Field(max_length=48, examples=["0.000001"])]
PositiveText = Annotated[str, AfterValidator(_positive), Field(max_length=48, examples=["0.5"])]


class CheckedForm(BaseModel):
    """A form with exact types and no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def read(cls, given: Mapping[str, Any] | bytes) -> Self:
        """Read values, or a JSON object. The error names the first field that is wrong, never its value.

        Raises:
            BadParameter: If a field is missing, unknown, or not of its form.
        """
        try:
            if isinstance(given, bytes):
                return cls.model_validate_json(given)
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise bad_field(first["loc"], first["type"], first["msg"], cls.model_fields) from None
        except (ValueError, RecursionError):
            raise BadParameter("body", "must be a JSON object") from None


def bad_field(
    place: tuple[int | str, ...], kind: str, message: str, known: Mapping[str, Any]
) -> BadParameter:
    """Return the error of a field, from what pydantic says about it."""
    name = ".".join(map(str, place)) or "body"
    if kind in ("json_invalid", "model_type", "model_attributes_type"):
        return BadParameter("body", "must be a JSON object")
    if kind == "extra_forbidden":
        return BadParameter(name[:60], f"is not known here. Known are: {', '.join(known)}")
    if kind == "missing":
        return BadParameter(name, "is missing")
    if kind == "string_type" and place[0] in DECIMALS:
        return BadParameter(name, WHY_DECIMAL)
    why = message.removeprefix("Value error, ")
    return BadParameter(name, why[:1].lower() + why[1:])


class QuestionForm(CheckedForm):
    """A question: the options of `lapwing.Dataset.plan`. Give `epsilon` or `within`."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    sql: str = Field(min_length=1, max_length=LONGEST_SQL, description="One SELECT.")
    epsilon: PositiveText | None = Field(default=None, description="The price in ε.")
    within: PositiveText | None = Field(default=None, description="Instead of ε: the largest half-width.")
    confidence: PositiveText = Field(default="0.95", description="The probability of each interval.")
    delta: DecimalText | None = Field(default=None, description="The price in δ; else the policy's.")
    noise: Literal["auto", "laplace", "gaussian"] = "auto"
    rows: int | None = Field(
        default=None, ge=1, le=LARGEST_COUNT, description="A lower contribution bound."
    )
    n: int | None = Field(default=None, ge=1, le=LARGEST_COUNT, description="A public number of rows.")
    sampling: bool = Field(default=False, description="Include the error of a sample of rows.")
    where_first: bool = Field(default=False, description="Choose rows among those that WHERE keeps.")
    fresh: bool = Field(default=False, description="Release a new answer even if one is stored.")

    @property
    def options(self) -> dict[str, Any]:
        """The options of `Dataset.plan` that were given: the SQL may hold others."""
        return self.model_dump(exclude={"sql", "fresh"}, exclude_unset=True)
