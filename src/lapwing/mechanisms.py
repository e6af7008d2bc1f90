"""Mechanisms: the public names of those in `lapwing.core`.

Each class states its claim, why it holds and the test that checks it. It has a `loss` to charge, a `sample`
(or a session) to release, and a `spread`: how far an answer may be from the truth. Its `metric` is the
distance of neighbouring inputs that the loss is about. The functions of `sensitivity` return how far one
privacy unit moves the textbook statistics.

Example:
    >>> from lapwing.mechanisms import Laplace, sensitivity
    >>> mechanism = Laplace.for_epsilon(1, l1=sensitivity.count(rows=5).in_steps().l1)
    >>> mechanism.loss.pure
    Fraction(1, 1)
"""

from lapwing.core import sensitivity
from lapwing.core.gaussian import Gaussian, GaussianShares, SummedGaussian
from lapwing.core.input_metric import Distance, InputMetric
from lapwing.core.laplace import Laplace, LaplaceShares, SummedLaplace
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.core.partition_selection import PartitionSelection
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.core.selection import AboveThreshold, Exponential, NoisyMax, PermuteAndFlip
from lapwing.core.sensitivity import Sensitivity
from lapwing.core.values import Grid

__all__ = [
    "AboveThreshold",
    "Distance",
    "Exponential",
    "Extreme",
    "Gaussian",
    "GaussianShares",
    "Grid",
    "InputMetric",
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
    "sensitivity",
]
