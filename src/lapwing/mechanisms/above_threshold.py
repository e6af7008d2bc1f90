"""Above-threshold (sparse vector): many questions, a price only for those that are answered yes."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fractions import Fraction

from lapwing.errors import BadParameter, BadValue, SessionOver
from lapwing.exact import Number, settle, whole
from lapwing.mechanisms.laplace import noise_width
from lapwing.mechanisms.spread import checked_confidence
from lapwing.mechanisms.values import whole_values
from lapwing.noise import LARGEST_SCALE, discrete_laplace
from lapwing.privacy import Pure
from lapwing.privacy.loss import LARGEST_EPSILON, checked_epsilon
from lapwing.privacy.once import Once


@dataclass(frozen=True, slots=True)
class AboveThreshold:
    """Is this whole number at or above the threshold? Any number of times, until `positives` yeses.

    Claim    pure loss ε for the whole session, however many noes, if no question's value moves by more
             than `sensitivity` (Δ) between neighbours, and questions may depend on earlier answers.
    Because  shifting the noise of the threshold by Δ and that of each yes by 2Δ maps every course of
             answers on one data set to the same course on the other: ε₁ for the threshold at Δ/ε₁,
             ε₂/c for each of c yeses at 2cΔ/ε₂. Noes cost nothing. All shifts are whole.
    Test     claims/test_above_threshold.py::test_every_course_is_within_the_claimed_ratio
    """

    epsilon: Fraction
    sensitivity: int
    positives: int

    def __post_init__(self) -> None:
        sensitivity = whole(self.sensitivity, "sensitivity", at_least=1)
        settle(self, epsilon=checked_epsilon(self.epsilon), sensitivity=sensitivity)
        settle(self, positives=whole(self.positives, "positives", at_least=1))
        if self.positives > LARGEST_SCALE * LARGEST_EPSILON:
            raise BadParameter("positives", "are so many that the noise would not fit")
        if max(self.threshold_scale, self.question_scale) > LARGEST_SCALE:
            raise BadParameter("epsilon", "is so small that the noise would not fit")

    @classmethod
    def for_epsilon(cls, epsilon: Number, *, sensitivity: int, positives: int) -> AboveThreshold:
        """ε-private for the whole session, which ends at the last of `positives` yeses."""
        return cls(checked_epsilon(epsilon), sensitivity, positives)

    @property
    def threshold_epsilon(self) -> Fraction:
        """ε₁. The error is least near ε₁ : ε₂ = 1 : (2c)^(2/3)."""
        ratio = Fraction(round(100 * (2 * self.positives) ** (2 / 3)), 100)
        return self.epsilon / (1 + ratio)

    @property
    def threshold_scale(self) -> Fraction:
        """Noise on the threshold, drawn once."""
        return self.sensitivity / self.threshold_epsilon

    @property
    def question_scale(self) -> Fraction:
        """Noise on every question."""
        return 2 * self.positives * self.sensitivity / (self.epsilon - self.threshold_epsilon)

    @property
    def loss(self) -> Pure:
        """What a whole session reveals. Charge it before the session starts."""
        return Pure(self.epsilon)

    def start(self, threshold: int) -> Session:
        """A session for one public threshold."""
        return Session(self, whole(threshold, "threshold", at_least=-(1 << 61)))

    def spread(self, confidence: Number, *, questions: int) -> int:
        """With this confidence every value further than this from the threshold is told rightly."""
        # Half of the miss for the threshold's noise, half for the noises of all questions.
        each = 1 - (1 - checked_confidence(confidence)) / 2
        answers = whole(questions, "questions", at_least=1)
        return noise_width(self.threshold_scale, each, answers=1) + noise_width(
            self.question_scale, each, answers=answers
        )


class Session(Once):
    """One run. It lives in one process only: a session that is lost is over.

    A saved, copied or forked session could give more yeses than were paid for from the same noisy
    threshold, so none of these is possible.
    """

    def __init__(self, terms: AboveThreshold, threshold: int) -> None:
        super().__init__()
        self._terms = terms
        self._noisy_threshold = threshold + int(discrete_laplace(terms.threshold_scale, 1)[0])
        self._yeses_left = terms.positives
        self._asking = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether the last yes was given, or this is another process."""
        return self._yeses_left == 0 or not self.is_here

    def ask(self, value: int) -> bool:
        """Whether the value, with fresh noise, reaches the noisy threshold."""
        values = whole_values(value)
        if len(values) != 1:
            raise BadValue("a question has one value")
        asked = int(values[0])
        self.require_here()
        with self._asking:  # two threads must not share the last yes
            if not self._yeses_left:
                raise SessionOver("the last yes was given; start (and pay for) a new session")
            noisy = asked + int(discrete_laplace(self._terms.question_scale, 1)[0])
            above = noisy >= self._noisy_threshold
            self._yeses_left -= above
            return above
