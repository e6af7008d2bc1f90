"""The request of an answer, as it is stored: the question, the data, the price and the mechanisms."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from typing import Any

ANSWER_FORMAT = 2
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
    def stored_forms(self) -> tuple[tuple[QueryRequest, bool], ...]:
        """The forms in which answers may be stored, and whether their keys are shared by all analysts.

        The oldest comes first. The last two are in use: the analyst's own, and that of everybody.
        """
        old = replace(self, form="")
        return (replace(old, data=0), False), (old, False), (self, False), (self, True)

    def key(self, repeat: int) -> str:
        """Return the idempotency key of an answer of this shape. They are numbered from 0."""
        return f"{hashlib.sha256(self.shape.encode()).hexdigest()}:{repeat}"

    @property
    def first_keys(self) -> tuple[tuple[str, bool], ...]:
        """The key of the first answer in each form, and whether it is shared."""
        return tuple((form.key(0), shared) for form, shared in self.stored_forms)

    @property
    def price(self) -> tuple[Fraction, Fraction, str, str]:
        """The price and mechanisms, which differ between answers of one shape."""
        return self.epsilon, self.delta, self.noise, self.mechanisms

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored and digested: a changed name or order of fields changes it."""
        return {**asdict(self), "epsilon": str(self.epsilon), "delta": str(self.delta)}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> QueryRequest:
        """Read the stored form. Fields that a later version added are ignored."""
        known = {field.name: stored[field.name] for field in fields(cls) if field.name in stored}
        exact = {name: Fraction(stored[name]) for name in ("epsilon", "delta")}
        return cls(**{**known, **exact})


def batch_key(data: int, version: int, number: int) -> str:
    """Return the idempotency key of a batch. Those of one version of a data set are numbered from 0."""
    return f"batch {data} {version}:{number}"
