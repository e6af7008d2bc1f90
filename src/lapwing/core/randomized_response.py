"""Randomized response: each respondent draws the coins, and nobody else learns the true answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from lapwing.core.exact import Number, Real, ball, exact, log_up, precision, real, set_fields, whole
from lapwing.core.input_metric import Distance, InputMetric
from lapwing.core.losses import Pure, Relation, checked_epsilon
from lapwing.core.noise import bernoulli, uniform_int
from lapwing.core.observed import observed
from lapwing.core.spread import checked_confidence
from lapwing.errors import BadParameter, BadValue

MOST_OPTIONS = 1 << 62  # so that the sum of two options fits 64 bits


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """A report that is the truth with a fixed probability, otherwise one of the other options uniformly.

    Claim    each report is purely private with ε = ln(truth / other), for any two true answers;
             m questions cost m ε.
    Because  a report has probability `truth` for one answer and `other` for all the rest.
    Test     claims/test_randomized_response.py::test_every_report_is_within_the_claimed_ratio

    Either `epsilon` is set and truth = e^ε / (e^ε + options - 1), or a rational `truth` is set.

    Args:
        options: The number of possible answers, at least 2 and at most 2^62.
        epsilon: The pure loss ε of one report, in [1e-9, 1000]; None if `truth` is given.
        truth: The probability of reporting the truth, between 1/options and 1; None if `epsilon` is given.

    Raises:
        BadParameter: If a parameter is out of range, or not exactly one of `epsilon` and `truth` is given.

    Example:
        >>> mechanism = RandomizedResponse.for_epsilon(1, options=3)
        >>> reports = mechanism.sample([0, 1, 2, 2])
        >>> mechanism.estimate(reports).shape
        (3,)
    """

    options: int
    epsilon: Fraction | None = None
    truth: Fraction | None = None

    def __post_init__(self) -> None:
        set_fields(self, options=whole(self.options, "options", at_least=2))
        if self.options > MOST_OPTIONS:
            raise BadParameter("options", "must be at most 2^62")
        if (self.epsilon is None) == (self.truth is None):
            raise BadParameter("epsilon", "either ε or the probability of the truth must be given")
        if self.epsilon is not None:
            set_fields(self, epsilon=checked_epsilon(self.epsilon))
        if self.truth is not None:
            set_fields(self, truth=exact(self.truth, "truth"))
            if not Fraction(1, self.options) < self.truth < 1:
                raise BadParameter("truth", "must lie between 1/options and 1: certainty hides nothing")

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, options: int = 2) -> RandomizedResponse:
        """Return the mechanism that is exactly ε-private for one answer out of `options`."""
        return cls(options, epsilon=checked_epsilon(epsilon))

    @classmethod
    def for_truth(cls, truth: Number, *, options: int = 2) -> RandomizedResponse:
        """Return the mechanism that reports the truth with exactly this probability."""
        return cls(options, truth=exact(truth, "truth"))

    @classmethod
    def two_coins(cls) -> RandomizedResponse:
        """Return the mechanism of two coins: the truth with probability 3/4, so ε is exactly ln 3.

        If the first coin shows heads, the report is the truth; if not, a second coin answers.
        """
        return cls.for_truth(Fraction(3, 4))

    @property
    def loss(self) -> Pure:
        """The loss of one report (ln is rounded up)."""
        if self.truth is None:
            assert self.epsilon is not None
            return Pure(self.epsilon)
        return Pure(log_up(self.truth * (self.options - 1) / (1 - self.truth)))

    @property
    def metric(self) -> InputMetric:
        """The distance that the loss is about: one answer, which becomes any other."""
        return InputMetric(Distance.ANSWERS, Fraction(1), Relation.REPLACE)

    def truth_probability(self) -> Real:
        """Return the probability of reporting the truth, to any precision."""

        def probability() -> arb:
            if self.truth is not None:
                return ball(self.truth)
            assert self.epsilon is not None
            return 1 / (1 + (self.options - 1) * ball(-self.epsilon).exp())

        return real(probability, guard=64)

    @observed
    def sample(self, answers: ArrayLike) -> NDArray[np.int64]:
        """Return one report per answer; answers are 0 .. options - 1."""
        true = self._checked(answers, "answers")
        is_truth = bernoulli(self.truth_probability(), len(true))
        others = uniform_int(1, self.options, len(true))
        return np.where(is_truth, true, (true + others) % self.options)

    def _checked(self, choices: ArrayLike, name: str) -> NDArray[np.int64]:
        array = np.atleast_1d(np.asarray(choices))
        if array.dtype == bool:
            array = array.astype(np.int64)
        if array.dtype.kind not in "iu" or array.ndim != 1 or not array.size:
            raise BadValue(f"{name} must be whole numbers, one or more")
        if array.min() < 0 or array.max() >= self.options:
            raise BadValue(f"{name} must lie in 0 .. {self.options - 1}")
        return array.astype(np.int64)

    def _probabilities(self) -> tuple[float, float]:
        """Return the probability of an option that is not the truth, and how much larger the truth's is."""
        truth = self.truth_probability()(256)
        with precision(256):  # the difference may be too small for floats
            gap = (truth * self.options - 1) / (self.options - 1)
            return float(truth - gap), float(gap)

    def estimate(self, reports: ArrayLike) -> NDArray[np.float64]:
        """Estimate the share of each option among the respondents: unbiased, possibly outside [0, 1]."""
        counts = np.bincount(self._checked(reports, "reports"), minlength=self.options)
        other, gap = self._probabilities()
        shares: NDArray[np.float64] = (counts / counts.sum() - other) / gap
        return shares

    def standard_error(self, n: int, *, share: float = 0.5) -> float:
        """Return the standard error of an estimated share of the population, from n independent reports."""
        if not 0 <= share <= 1:
            raise BadParameter("share", "must lie in [0, 1]")
        other, gap = self._probabilities()
        seen = other + share * gap
        return math.sqrt(seen * (1 - seen) / whole(n, "n", at_least=1)) / gap

    def spread(self, confidence: Number, *, n: int) -> float:
        """Return how far an estimate may be from the respondents' true share, with this confidence.

        It holds for any data, by Hoeffding's inequality: n independent reports, each in {0, 1}.
        """
        log = float(log_up(2 / (1 - checked_confidence(confidence))))
        return math.sqrt(log / (2 * whole(n, "n", at_least=1))) / self._probabilities()[1]
