"""The chapter "Choosing"."""

from __future__ import annotations

from fractions import Fraction

from lapwing.show.topic import Chapter, Parameter, Topic, computed_in

_HERE = "lapwing.show.topics."
_LOSS = "ε, the privacy loss of the choice"

CHAPTER = Chapter(
    "Choosing",
    (
        Topic(
            "exponential",
            "How can a choice be private, where noise would spoil it?",
            (
                Parameter("epsilon", Fraction(1), Fraction(1, 100), Fraction(10), _LOSS),
                Parameter(
                    "n", Fraction(300), Fraction(20), Fraction(100_000), "the number of people",
                    is_whole=True,
                ),
            ),
            "exponential.md",
            computed_in(f"{_HERE}price_choice", "exponential"),
        ),
        Topic(
            "network-choice",
            "Can a network be released with noise on its weights?",
            (
                Parameter("epsilon", Fraction(1), Fraction(1, 100), Fraction(100), _LOSS),
                Parameter(
                    "n", Fraction(1000), Fraction(50), Fraction(20_000), "the number of private rows",
                    is_whole=True,
                ),
            ),
            "exponential.md",
            computed_in(f"{_HERE}network_choice", "network_choice"),
        ),
    ),
)  # fmt: skip
