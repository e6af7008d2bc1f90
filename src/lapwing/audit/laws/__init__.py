"""Exact laws: the probability of each outcome of a mechanism, from its description alone.

A law maps outcomes to probabilities with 60 digits. No mechanism is imported here, so that a mechanism and
its law cannot share a mistake.
"""

from lapwing.audit.laws.choice_laws import (
    above_threshold,
    courses,
    exponential,
    extreme,
    keep_probabilities,
    keys_shown,
    noisy_max,
    permute_and_flip,
    quantile,
    randomized_response,
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
from lapwing.audit.laws.noise_laws import (
    gaussian,
    gaussian_shares,
    independent,
    laplace,
    laplace_at_least,
    laplace_shares,
    moved,
    shifted_pair,
    shifts,
    summed,
)

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
    "extreme",
    "gathered",
    "gaussian",
    "gaussian_shares",
    "independent",
    "keep_probabilities",
    "keys_shown",
    "laplace",
    "laplace_at_least",
    "laplace_shares",
    "ln",
    "log_ratio",
    "middle",
    "moved",
    "noisy_max",
    "permute_and_flip",
    "precise",
    "quantile",
    "randomized_response",
    "renyi",
    "shifted_pair",
    "shifts",
    "summed",
    "total",
]
