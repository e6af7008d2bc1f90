"""What releases reveal, what that costs, and whether it still fits: losses, charges, filters."""

from __future__ import annotations

from lapwing.core.budget import Charge, PrivacyFilter, Terms
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    ParallelComposition,
    Pure,
    Relation,
    Repeated,
    SampledGaussian,
    SequentialComposition,
)

__all__ = [
    "Approximate",
    "BoundedRange",
    "Charge",
    "Concentrated",
    "PrivacyFilter",
    "FixedRun",
    "GaussianNoise",
    "LaplaceNoise",
    "Loss",
    "Pure",
    "Relation",
    "Repeated",
    "SampledGaussian",
    "SequentialComposition",
    "Terms",
    "ParallelComposition",
]
