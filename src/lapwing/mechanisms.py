"""Mechanisms: one file each, with the claim, why it holds, the loss, the sample and the spread."""

from __future__ import annotations

from lapwing.core.gaussian import Gaussian, GaussianShares, SummedGaussian
from lapwing.core.laplace import Laplace, LaplaceShares, SummedLaplace
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import AboveThreshold, Exponential, NoisyMax, PermuteAndFlip
from lapwing.core.sensitivity import Sensitivity
from lapwing.core.values import Grid

__all__ = [
    "AboveThreshold",
    "Exponential",
    "Extreme",
    "Gaussian",
    "GaussianShares",
    "Grid",
    "Laplace",
    "LaplaceShares",
    "NoisyMax",
    "PartitionSelection",
    "PermuteAndFlip",
    "Quantile",
    "RandomizedResponse",
    "Sensitivity",
    "SummedGaussian",
    "SummedLaplace",
]
