"""Losses: the public algebra of privacy losses. Compose them, convert them, store them as JSON.

A mechanism has a `loss`. `compose`, `parallel` and `poisson_sampled` return the loss of several releases,
or of a sample, as a `StatedLoss`. It has all conversions: (ε, δ), ρ, Rényi curve, trade-off curve.

Example:
    >>> from lapwing import losses
    >>> from lapwing.mechanisms import Laplace
    >>> a, b = Laplace.for_epsilon("0.5", l1=1), Laplace.for_epsilon("0.25", l1=1)
    >>> losses.compose(a.loss, b.loss).epsilon(delta=0)
    Fraction(3, 4)
"""

from lapwing.core.composition import (
    StatedLoss,
    compose,
    from_json,
    how_many,
    parallel,
    poisson_sampled,
    repeated,
)
from lapwing.core.dp_events import from_dp_event
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Pure,
    Relation,
)

__all__ = [
    "Approximate",
    "BoundedRange",
    "Concentrated",
    "GaussianNoise",
    "LaplaceNoise",
    "Pure",
    "Relation",
    "StatedLoss",
    "compose",
    "from_dp_event",
    "from_json",
    "how_many",
    "parallel",
    "poisson_sampled",
    "repeated",
]
