"""Mechanisms: one file each, with the claim, why it holds, the loss, the sample and the spread."""

from __future__ import annotations

from lapwing.mechanisms.above_threshold import AboveThreshold
from lapwing.mechanisms.exponential import Exponential
from lapwing.mechanisms.extreme import Extreme
from lapwing.mechanisms.gaussian import Gaussian
from lapwing.mechanisms.gaussian_shares import GaussianShares, SummedGaussian
from lapwing.mechanisms.laplace import Laplace
from lapwing.mechanisms.laplace_shares import LaplaceShares
from lapwing.mechanisms.noisy_max import NoisyMax
from lapwing.mechanisms.partition_selection import PartitionSelection
from lapwing.mechanisms.permute_and_flip import PermuteAndFlip
from lapwing.mechanisms.quantile import Quantile
from lapwing.mechanisms.randomized_response import RandomizedResponse
from lapwing.mechanisms.sensitivity import Sensitivity
from lapwing.mechanisms.summed_laplace import SummedLaplace
from lapwing.mechanisms.values import Grid

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
