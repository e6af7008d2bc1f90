"""What all validators have in common: a public price, a noisy release, and a verdict made of it alone."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Self

from lapwing.errors import BadParameter, BadValue
from lapwing.exact import Number, exact, positive, settle, whole
from lapwing.learn.validators.rows import Rows
from lapwing.mechanisms import Laplace
from lapwing.privacy import Loss, Relation
from lapwing.privacy.loss import checked_epsilon


class Verdict(Enum):
    """ACCEPT: shown to be good. REJECT: shown that nothing in the class is. RETRY: neither was shown."""

    ACCEPT = "accept"
    RETRY = "retry"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and what was shown.

    `bound` holds with a probability of at least 1 - η/(i(i+1)) at the i-th attempt. With a REJECT it is a
    lower bound, of every model of the class; else an upper one of the loss or the error, and a lower one of
    the accuracy. None where nothing was shown.
    """

    verdict: Verdict
    estimate: float | None
    bound: float | None
    words: str


@dataclass(frozen=True, slots=True)
class Released:
    """Noisy whole numbers, and by which validator they were made. It may be shown to anybody."""

    numbers: tuple[int, ...]
    made_by: str

    def to_bytes(self) -> bytes:
        """One form, to be stored under the charge."""
        return json.dumps([self.made_by, list(self.numbers)], separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """What `to_bytes` gave."""
        made_by, numbers = json.loads(content)
        return cls(tuple(whole(number, "number", at_least=-(1 << 63)) for number in numbers), made_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validator(ABC):
    """Shows that something is good, or says that it could not.

    Claim    whatever is validated: with a probability of at most η, any of the attempts 1, 2, ... of one
             pipeline ends in a wrong ACCEPT; and the same of a wrong REJECT.
    Because  attempt i errs with a probability of at most η/(i(i+1)), and these add up to less than η.
             docs/arguments/validators.md says what must be independent for it.
    Test     tests/learn/validators/test_attempts.py

    Neighbours add or remove one unit. `loss` is the price of one `release`, to be charged first; `judge`
    only looks at what was released.
    """

    relation: ClassVar[Relation] = Relation.ADD_REMOVE
    target: Fraction
    eta: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        settle(self, target=positive(self.target, "target"), eta=checked_eta(self.eta))
        settle(self, epsilon=checked_epsilon(self.epsilon))

    @property
    @abstractmethod
    def _l1(self) -> int:
        """How far one unit moves what is released."""

    @property
    def _noise(self) -> Laplace:
        return Laplace.for_epsilon(self.epsilon, l1=self._l1)

    @property
    def loss(self) -> Loss:
        """The price of one validation. Public."""
        return self._noise.loss

    @property
    def parameters(self) -> dict[str, str | int]:
        """All that was declared, for the receipt."""
        return self._shown()

    def _shown(self) -> dict[str, str | int]:
        """Numbers that were declared."""
        declared = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: one if isinstance(one, int) else str(one) for name, one in declared.items()}

    @property
    def mechanism(self) -> str:
        """A name for the receipt."""
        return type(self).__name__

    @abstractmethod
    def release(self, rows: Rows) -> Released:
        """The noisy numbers that a verdict needs. Charge the loss first; a second call is a second use."""

    @abstractmethod
    def judge(self, released: Released, *, attempt: int) -> Judged:
        """The verdict of the i-th attempt of a pipeline, i = 1, 2, ... Costs nothing."""

    @property
    def _name(self) -> str:
        return json.dumps([self.mechanism, self.parameters], sort_keys=True)

    def _made(self, *numbers: int) -> Released:
        return Released(numbers, self._name)

    def _numbers(self, released: Released, count: int) -> tuple[int, ...]:
        """What this validator released. Another price, target or η would make the bounds untrue."""
        if released.made_by != self._name:
            raise BadParameter("released", "was made by another validator, or with other parameters")
        if len(released.numbers) != count:
            raise BadValue(f"released must have {count} numbers")
        return released.numbers


def eta_of(eta: Fraction, attempt: int) -> Fraction:
    """The share η/(i(i+1)) of the i-th attempt: together less than η, however many attempts there are."""
    i = whole(attempt, "attempt", at_least=1)
    return eta / (i * (i + 1))


def checked_eta(value: Number) -> Fraction:
    """A probability of error strictly between 0 and 1."""
    eta = exact(value, "eta")
    if not 0 < eta < 1:
        raise BadParameter("eta", "must lie strictly between 0 and 1")
    return eta


@lru_cache(maxsize=1024)
def noise_reach(mechanism: Laplace, miss: Fraction) -> int:
    """The least w with P[noise > w] <= miss: the exact quantile. By symmetry the same below."""
    return mechanism.spread(1 - 2 * miss)


def float_up(value: Fraction) -> float:
    """The nearest float that is not below it."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def float_down(value: Fraction) -> float:
    """The nearest float that is not above it."""
    return -float_up(-value)
