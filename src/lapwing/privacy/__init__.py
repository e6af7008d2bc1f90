"""What releases reveal, what that costs, and whether it still fits: losses, charges, filters."""

from __future__ import annotations

from lapwing.privacy.charge import Charge
from lapwing.privacy.compose import Repeated, Sum, Worst
from lapwing.privacy.loss import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    Pure,
    SampledGaussian,
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
    "Repeated",
    "SampledGaussian",
    "Sum",
    "Terms",
    "Worst",
]
