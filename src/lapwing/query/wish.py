"""What an analyst wants of an answer: to spend so much, or to be so sharp."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from lapwing.errors import BadParameter
from lapwing.exact import Number
from lapwing.query.answering.estimate_spread import for_width
from lapwing.query.answering.shares import Shares, share_out
from lapwing.query.language.question import Question


@dataclass(frozen=True, slots=True)
class Wish:
    """ε, or the width that every number must have at a confidence: then ε follows."""

    epsilon: Number | None
    within: Number | None
    confidence: Fraction
    delta: Number | None
    noise: str
    n: int | None

    def __post_init__(self) -> None:
        if (self.epsilon is None) is (self.within is None):
            raise BadParameter("epsilon", "or within must be given, and not both")

    @property
    def why(self) -> str:
        """How ε was found, if it was not given."""
        if self.within is None:
            return ""
        return f"the least for ± {self.within} at {float(self.confidence):g} confidence"

    def shares(self, question: Question, delta: Fraction) -> Shares:
        """The price, divided. `delta` is the policy's, if the analyst names none."""
        allowed: Number = delta if self.delta is None else self.delta
        if self.epsilon is not None:
            return share_out(question, epsilon=self.epsilon, delta=allowed, noise=self.noise)
        assert self.within is not None
        return for_width(
            question,
            within=self.within,
            confidence=self.confidence,
            delta=allowed,
            noise=self.noise,
            n=self.n,
        )


def checked_count(number: int | None, name: str) -> int | None:
    """A whole number above 0, if there is one."""
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
        raise BadParameter(name, "must be a whole number of at least 1")
    return number
