"""Losses that several tests build."""

from __future__ import annotations

from fractions import Fraction

from lapwing.core.losses import GaussianNoise, Loss, Repeated, SampledGaussian

GRID = 10**6  # so fine that discrete noise is continuous noise, to twelve digits


def sampled(rate: Fraction, sigma: Fraction, steps: int = 1) -> Loss:
    """`steps` steps of training with noise multiplier `sigma`, on a fine grid."""
    step = SampledGaussian(rate, GaussianNoise(sigma * GRID, Fraction(GRID * GRID), 1))
    return step if steps == 1 else Repeated(step, steps)
