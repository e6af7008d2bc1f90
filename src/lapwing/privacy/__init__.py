"""What releases reveal, what that costs, and whether it still fits: losses, charges, filters."""

from __future__ import annotations

from lapwing.privacy.charge import Charge
from lapwing.privacy.loss import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    Pure,
    SampledGaussian,
    Sum,
    Worst,
)
from lapwing.privacy.pld import FixedRun
from lapwing.privacy.portfolio import Filter, Terms
from lapwing.privacy.relation import Relation

__all__ = [
    "Approximate",
    "BoundedRange",
    "Charge",
    "Concentrated",
    "Filter",
    "FixedRun",
    "GaussianNoise",
    "LaplaceNoise",
    "Loss",
    "Pure",
    "Relation",
    "SampledGaussian",
    "Sum",
    "Terms",
    "Worst",
]
