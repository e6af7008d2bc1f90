"""Exact laws: the probability of each outcome of a mechanism, from its description alone.

A law maps outcomes to probabilities with 60 digits. No mechanism is imported here, so that a mechanism and
its law cannot share a mistake.
"""

from lapwing.audit.laws.choice_laws import (
    above_threshold,
    courses,
    exponential,
    keep_probabilities,
    noisy_max,
    permute_and_flip,
    quantile,
)
from lapwing.audit.laws.decimals import LARGEST_TAIL, SLACK, Law, Rational, dec, exp, ln, middle, precise
from lapwing.audit.laws.distances import (
    delta_of_pure,
    delta_of_renyi,
    epsilon_at,
    excess,
    gathered,
    log_ratio,
    renyi,
    total,
)
from lapwing.audit.laws.noise_laws import gaussian, independent, laplace, laplace_at_least, shifts

__all__ = [
    "LARGEST_TAIL",
    "SLACK",
    "Law",
    "Rational",
    "above_threshold",
    "courses",
    "dec",
    "delta_of_pure",
    "delta_of_renyi",
    "epsilon_at",
    "excess",
    "exp",
    "exponential",
    "gathered",
    "gaussian",
    "independent",
    "keep_probabilities",
    "laplace",
    "laplace_at_least",
    "ln",
    "log_ratio",
    "middle",
    "noisy_max",
    "permute_and_flip",
    "precise",
    "quantile",
    "renyi",
    "shifts",
    "total",
]
