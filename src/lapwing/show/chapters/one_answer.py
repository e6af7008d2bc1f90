"""The chapter "One answer"."""

from __future__ import annotations

from fractions import Fraction

from lapwing.show.topic import Chapter, Parameter, Topic, computed_in

_HERE = "lapwing.show.topics."
_EPSILON = Parameter(
    "epsilon", Fraction(1), Fraction(1, 100), Fraction(10), "the privacy loss of the answer, ε"
)

LAPLACE = Topic(
    "laplace",
    "What is Laplace noise, and how large is it?",
    (
        _EPSILON,
        Parameter(
            "sensitivity", Fraction(1), Fraction(1), Fraction(1000),
            "the most that one person changes the count", is_whole=True,
        ),
    ),
    "laplace.md",
    computed_in(f"{_HERE}laplace_law", "laplace"),
)  # fmt: skip

CHAPTER = Chapter("One answer", (LAPLACE,))
