"""The chapter "One answer"."""

from __future__ import annotations

from fractions import Fraction

from lapwing.show.topic import Chapter, Parameter, Topic, computed_in

_HERE = "lapwing.show.topics."
_LOSS = "ε, the privacy loss of the answer"
_EPSILON = Parameter("epsilon", Fraction(1), Fraction(1, 100), Fraction(10), _LOSS)
_DISTANCE = "the most that one person changes the count"
_MOST = Fraction(1000)

CHAPTER = Chapter(
    "One answer",
    (
        Topic(
            "laplace",
            "What is Laplace noise, and how large is it?",
            (_EPSILON, Parameter("sensitivity", Fraction(1), Fraction(1), _MOST, _DISTANCE, is_whole=True)),
            "laplace.md",
            computed_in(f"{_HERE}laplace_law", "laplace"),
        ),
        Topic(
            "ratio",
            "How much can your data change the probability of an answer?",
            (
                _EPSILON,
                Parameter("sensitivity", Fraction(3), Fraction(1), Fraction(100), _DISTANCE, is_whole=True),
            ),
            "laplace.md",
            computed_in(f"{_HERE}shifted_curves", "ratio"),
        ),
        Topic(
            "pointwise",
            "Why is it enough to compare single answers?",
            (
                _EPSILON,
                Parameter(
                    "k", Fraction(12), Fraction(2), Fraction(15), "the number of answers", is_whole=True
                ),
            ),
            "audit_exact.md",
            computed_in(f"{_HERE}all_events", "pointwise"),
        ),
        Topic(
            "small-epsilon",
            "What does a small ε mean?",
            (Parameter("epsilon", Fraction(1, 10), Fraction(1, 1000), Fraction(5), _LOSS),),
            "laplace.md",
            computed_in(f"{_HERE}small_losses", "small_epsilon"),
        ),
        Topic(
            "mean-noise",
            "How large is the noise on average?",
            (
                Parameter("epsilon", Fraction(1, 2), Fraction(1, 100), Fraction(5), _LOSS),
                Parameter(
                    "n", Fraction(20_000), Fraction(100), Fraction(1_000_000), "the number of draws",
                    is_whole=True,
                ),
            ),
            "laplace.md",
            computed_in(f"{_HERE}mean_noise", "mean_noise"),
        ),
        Topic(
            "sensitivity",
            "How far can one person move a statistic?",
            (
                Parameter(
                    "n", Fraction(100), Fraction(2), Fraction(100_000), "the number of people",
                    is_whole=True,
                ),
                Parameter(
                    "rows", Fraction(5), Fraction(1), Fraction(100),
                    "the most complaints of one person", is_whole=True,
                ),
                _EPSILON,
            ),
            "sensitivities.md",
            computed_in(f"{_HERE}statistic_sensitivity", "sensitivity"),
        ),
    ),
)  # fmt: skip
