"""Selection mechanisms: they choose a candidate, or answer yes or no, where noisy numbers would be useless.

`Exponential`, `PermuteAndFlip` and `NoisyMax` choose one of several candidates by their scores.
`AboveThreshold` (sparse vector) answers many questions and pays only for those that it answers with yes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from flint import arb
from numpy.typing import ArrayLike

from lapwing.core.exact import Number, ball, positive, precision, set_fields, whole
from lapwing.core.input_metric import Distance, InputMetric
from lapwing.core.laplace import noise_width
from lapwing.core.laplace_sampler import LARGEST_SCALE
from lapwing.core.losses import LARGEST_EPSILON, BoundedRange, Pure, checked_epsilon
from lapwing.core.noise import bernoulli_exp, discrete_laplace, exponential_choice, uniform_int
from lapwing.core.observed import observed, observed_call
from lapwing.core.process_bound import ProcessBound
from lapwing.core.spread import BITS, checked_confidence, least_width, score_gap
from lapwing.core.values import whole_scores, whole_values
from lapwing.errors import BadParameter, BadValue, SessionOver


@dataclass(frozen=True, slots=True)
class ScoredChoice:
    """The terms of a choice: ε, and how far one neighbouring step moves a score (`sensitivity`, Δ)."""

    epsilon: Fraction
    sensitivity: Fraction

    def __post_init__(self) -> None:
        sensitivity = positive(self.sensitivity, "sensitivity")
        set_fields(self, epsilon=checked_epsilon(self.epsilon), sensitivity=sensitivity)

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: Number) -> Self:
        """Return the mechanism that is ε-private for scores that move by at most `sensitivity`."""
        return cls(checked_epsilon(epsilon), positive(sensitivity, "sensitivity"))

    @property
    def rate(self) -> Fraction:
        """The exponent per unit of score: ε / 2Δ."""
        return self.epsilon / (2 * self.sensitivity)

    @property
    def metric(self) -> InputMetric:
        """The distance of scores that the loss is about: the largest move of one."""
        return InputMetric(Distance.L_INFINITY, self.sensitivity)

    def spread(self, confidence: Number, *, candidates: int) -> Fraction:
        """Return how far the chosen score may be below the best, with this confidence, for any data."""
        return score_gap(self.rate, candidates, confidence)


@dataclass(frozen=True, slots=True)
class Exponential(ScoredChoice):
    """The exponential mechanism: candidate o has probability proportional to exp(ε u(o) / 2Δ).

    Claim    pure loss ε, Rényi divergence order · ε² / 8, if no score moves by more than
             `sensitivity` (Δ) between neighbours.
    Because  each weight moves by a factor within e^±ε/2, and so does their sum. All log-ratios
             share that sum, so they span a range of ε; such a loss is ε²/8-concentrated.
    Test     claims/test_exponential.py::test_every_choice_is_within_the_claimed_ratio

    Args:
        epsilon: The pure loss ε, in [1e-9, 1000].
        sensitivity: The most that a score moves between neighbours, above 0.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> Exponential.for_epsilon(1, sensitivity=1).sample([0, 1000, 3])
        1
    """

    @property
    def loss(self) -> BoundedRange:
        """The loss of one use."""
        return BoundedRange(self.epsilon)

    @observed
    def sample(self, scores: ArrayLike) -> int:
        """Return the index of the chosen candidate. Scores are whole numbers, one per candidate."""
        return int(exponential_choice(whole_scores(scores), self.rate)[0])


@dataclass(frozen=True, slots=True)
class PermuteAndFlip(ScoredChoice):
    """Permute-and-flip: in random order, a candidate is taken with probability exp(ε (u - best) / 2Δ).

    At equal pure ε it is never worse than the exponential mechanism.

    Claim    pure loss ε if no score moves by more than `sensitivity` (Δ) between neighbours. No
             better curve: its log-ratios do not stay in a range of ε, so ε²/8 would be wrong.
    Because  the first head in a random order is a uniform choice among all heads, and it is drawn
             in that way here; and the exact law's ratio is within e^±ε (docs/arguments).
    Test     claims/test_permute_and_flip.py::test_every_choice_is_within_the_claimed_ratio

    Args:
        epsilon: The pure loss ε, in [1e-9, 1000].
        sensitivity: The most that a score moves between neighbours, above 0.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> PermuteAndFlip.for_epsilon(1, sensitivity=1).sample([0, 1000, 3])
        1
    """

    @property
    def loss(self) -> Pure:
        """The loss of one use."""
        return Pure(self.epsilon)

    @observed
    def sample(self, scores: ArrayLike) -> int:
        """Return the index of the chosen candidate. All coins are drawn, also after a head."""
        wholes = whole_scores(scores)
        heads = np.flatnonzero(bernoulli_exp(wholes.max() - wholes, rate=self.rate))
        return int(heads[uniform_int(0, len(heads), 1)[0]])


@dataclass(frozen=True, slots=True)
class NoisyMax:
    """Report noisy max: the index of the greatest whole score after discrete Laplace noise at 2Δ/ε.

    If several are greatest, the first is returned.

    Claim    pure loss ε if no score moves by more than `sensitivity` (Δ) between neighbours.
    Because  given the other noises, i wins iff its own noise reaches a whole threshold, which moves
             by at most 2Δ; the tail of the noise falls by at most e^(-ε) over 2Δ. Only the index may
             be released: the winning value is not covered.
    Test     claims/test_noisy_max.py::test_every_winner_is_within_the_claimed_ratio

    Args:
        epsilon: The pure loss ε, in [1e-9, 1000].
        sensitivity: The most that a score moves between neighbours: a whole number, at least 1.

    Raises:
        BadParameter: If a parameter is out of range, or the noise would not fit 64-bit integers.

    Example:
        >>> NoisyMax.for_epsilon(1, sensitivity=1).sample([0, 1000, 3])
        1
    """

    epsilon: Fraction
    sensitivity: int

    def __post_init__(self) -> None:
        sensitivity = whole(self.sensitivity, "sensitivity", at_least=1)
        set_fields(self, epsilon=checked_epsilon(self.epsilon), sensitivity=sensitivity)
        if self.scale > LARGEST_SCALE:
            raise BadParameter("epsilon", "is so small that the noise would not fit 64-bit integers")

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: int) -> NoisyMax:
        """Return the mechanism that is ε-private for whole scores that move by at most `sensitivity`."""
        return cls(checked_epsilon(epsilon), whole(sensitivity, "sensitivity", at_least=1))

    @property
    def scale(self) -> Fraction:
        """The scale of the noise on every score: 2Δ / ε."""
        return 2 * self.sensitivity / self.epsilon

    @property
    def metric(self) -> InputMetric:
        """The distance of scores that the loss is about: the largest move of one."""
        return InputMetric(Distance.L_INFINITY, Fraction(self.sensitivity))

    @property
    def loss(self) -> Pure:
        """The loss of one use."""
        return Pure(self.epsilon)

    @observed
    def sample(self, scores: ArrayLike) -> int:
        """Return the index of the winner."""
        checked = whole_values(scores)
        return int(np.argmax(checked + discrete_laplace(self.scale, len(checked))))

    def spread(self, confidence: Number, *, candidates: int) -> int:
        """Return how far the winner's score may be below the best, with this confidence, for any data.

        A candidate w + 1 or more below the best wins only if its noise exceeds the best one's by as
        much; there are at most candidates - 1 of them.
        """
        rivals = whole(candidates, "candidates", at_least=1) - 1
        miss = 1 - checked_confidence(confidence)
        return least_width(self._overtakes, miss / rivals) if rivals else 0

    def _overtakes(self, width: int) -> arb:
        """Return P[R - R' > width] for two noises R, R'.

        P[R - R' = d] = c² q^d (d + (1+q²)/(1-q²)), c = (1-q)/(1+q).
        """
        with precision(BITS):
            q, less = ball(-1 / self.scale).exp(), -ball(-1 / self.scale).expm1()
            first = width + 1
            centre = (1 + q * q) / (less * (1 + q))
            return ball(-first / self.scale).exp() * ((first + centre) * less + q) / (1 + q) ** 2


@dataclass(frozen=True, slots=True)
class AboveThreshold:
    """Sparse vector: is this whole number at or above the threshold? It ends after `positives` yeses.

    Claim    pure loss ε for the whole session, with any number of noes, if no question's value moves by
             more than `sensitivity` (Δ) between neighbours. Questions may depend on earlier answers.
    Because  shifting the noise of the threshold by Δ and that of each yes by 2Δ maps every sequence of
             answers on one data set to the same sequence on the other: ε₁ for the threshold at Δ/ε₁,
             ε₂/c for each of c yeses at 2cΔ/ε₂. Noes cost nothing. All shifts are whole.
    Test     claims/test_above_threshold.py::test_every_course_is_within_the_claimed_ratio

    Args:
        epsilon: The pure loss ε of the whole session, in [1e-9, 1000].
        sensitivity: The most that a value moves between neighbours: a whole number, at least 1.
        positives: The number of yeses after which the session is over, at least 1.

    Raises:
        BadParameter: If a parameter is out of range, or the noise would not fit 64-bit integers.

    Example:
        >>> session = AboveThreshold.for_epsilon(1, sensitivity=1, positives=1).start(threshold=500)
        >>> session.ask(0), session.ask(1000), session.is_over
        (False, True, True)
    """

    epsilon: Fraction
    sensitivity: int
    positives: int

    def __post_init__(self) -> None:
        sensitivity = whole(self.sensitivity, "sensitivity", at_least=1)
        set_fields(self, epsilon=checked_epsilon(self.epsilon), sensitivity=sensitivity)
        set_fields(self, positives=whole(self.positives, "positives", at_least=1))
        if self.positives > LARGEST_SCALE * LARGEST_EPSILON:
            raise BadParameter("positives", "are too many: the noise would not fit 64-bit integers")
        if max(self.threshold_scale, self.question_scale) > LARGEST_SCALE:
            raise BadParameter("epsilon", "is so small that the noise would not fit 64-bit integers")

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: int, positives: int) -> AboveThreshold:
        """Return terms that are ε-private for a whole session, which ends after `positives` yeses."""
        return cls(checked_epsilon(epsilon), sensitivity, positives)

    @property
    def threshold_epsilon(self) -> Fraction:
        """The part ε₁ of ε. The error is least near ε₁ : ε₂ = 1 : (2c)^(2/3)."""
        ratio = Fraction(round(100 * (2 * self.positives) ** (2 / 3)), 100)
        return self.epsilon / (1 + ratio)

    @property
    def threshold_scale(self) -> Fraction:
        """The scale of the noise on the threshold, which is drawn once."""
        return self.sensitivity / self.threshold_epsilon

    @property
    def question_scale(self) -> Fraction:
        """The scale of the noise on every question."""
        return 2 * self.positives * self.sensitivity / (self.epsilon - self.threshold_epsilon)

    @property
    def loss(self) -> Pure:
        """The loss of a whole session. Charge it before the session starts."""
        return Pure(self.epsilon)

    @property
    def metric(self) -> InputMetric:
        """The distance of each question's values that the loss is about."""
        return InputMetric(Distance.L_INFINITY, Fraction(self.sensitivity))

    def start(self, threshold: int) -> AboveThresholdSession:
        """Start a session for one public threshold."""
        return AboveThresholdSession(self, whole(threshold, "threshold", at_least=-(1 << 61)))

    def spread(self, confidence: Number, *, questions: int) -> int:
        """Return the distance from the threshold beyond which all answers are right, with this confidence.

        `questions` is the number of questions that are asked.
        """
        # Half of the miss for the threshold's noise, half for the noises of all questions.
        each = 1 - (1 - checked_confidence(confidence)) / 2
        of_threshold = noise_width(self.threshold_scale, each, answers=1)
        answers = whole(questions, "questions", at_least=1)
        return of_threshold + noise_width(self.question_scale, each, answers=answers)


class AboveThresholdSession(ProcessBound):
    """One run of `AboveThreshold`. It lives in one process only: a session that is lost is over.

    A saved, copied or forked session could give more yeses than were paid for, from the same noisy
    threshold. So none of these is possible.
    """

    def __init__(self, terms: AboveThreshold, threshold: int) -> None:
        super().__init__()
        self._terms = terms
        self._noisy_threshold = threshold + int(discrete_laplace(terms.threshold_scale, 1)[0])
        self._yeses_left = terms.positives
        self._asking = threading.Lock()

    @property
    def is_over(self) -> bool:
        """True if the last yes was given, or this is another process."""
        return self._yeses_left == 0 or not self.is_here

    def ask(self, value: int) -> bool:
        """Return whether the value, with fresh noise, reaches the noisy threshold.

        Raises SessionOver if the last yes was given, or this is a forked child.
        """
        values = whole_values(value)
        if len(values) != 1:
            raise BadValue("a question has one value")
        asked = int(values[0])
        self.require_here()
        with self._asking:  # two threads must not share the last yes
            if not self._yeses_left:
                raise SessionOver("the last yes was given; start (and pay for) a new session")
            above = observed_call(self._terms, lambda: self._is_above(asked), value=asked)
            self._yeses_left -= above
            return above

    def _is_above(self, value: int) -> bool:
        return value + int(discrete_laplace(self._terms.question_scale, 1)[0]) >= self._noisy_threshold
