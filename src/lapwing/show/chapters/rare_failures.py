"""The chapter "Rare failures"."""

from __future__ import annotations

from fractions import Fraction

from lapwing.show.topic import Chapter, Parameter, Topic, computed_in

_HERE = "lapwing.show.topics."
_EPSILON = Parameter(
    "epsilon", Fraction(1), Fraction(1, 10), Fraction(5), "ε, the privacy loss of the answer"
)
_DELTA_MEANS = "δ, what may lie above e^ε"

CHAPTER = Chapter(
    "Rare failures",
    (
        Topic(
            "delta-area",
            "What is δ?",
            (
                _EPSILON,
                Parameter("delta", Fraction(1, 10**5), Fraction(1, 10**12), Fraction(1, 10), _DELTA_MEANS),
            ),
            "gaussian.md",
            computed_in(f"{_HERE}area_above", "delta_area"),
        ),
        Topic(
            "telling-event",
            "Can an answer prove that you are in the data?",
            (
                _EPSILON,
                Parameter("delta", Fraction(1, 10**4), Fraction(1, 10**9), Fraction(1, 10), _DELTA_MEANS),
            ),
            "audit_exact.md",
            computed_in(f"{_HERE}telling_event", "telling_event"),
        ),
        Topic(
            "many-numbers",
            "Which noise is smaller when many numbers are released together?",
            (
                Parameter(
                    "epsilon", Fraction(1), Fraction(1, 10), Fraction(5), "ε of all numbers together"
                ),
                Parameter("delta", Fraction(1, 10**6), Fraction(1, 10**12), Fraction(1, 100), _DELTA_MEANS),
                Parameter(
                    "k", Fraction(1000), Fraction(10), Fraction(10_000), "the number of counts",
                    is_whole=True,
                ),
            ),
            "gaussian.md",
            computed_in(f"{_HERE}many_numbers", "many_numbers"),
        ),
    ),
)  # fmt: skip
