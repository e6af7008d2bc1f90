"""Second moments of bounded rows, released once: what linear regression and principal components need.

Claim    without one unit, the upper half of Σ xxᵀ moves by at most √((b² + m b) / 2) in L2, where b bounds
         a row's squared length and m its largest squared entry.
Because  Σ_{i≤j} x_i² x_j² = (|x|⁴ + Σ x_i⁴) / 2, and Σ x_i⁴ ≤ m |x|².
Test     tests/learn/trainers/test_neighbours.py::test_one_unit_moves_every_sum_within_its_price
"""

from __future__ import annotations

import math

import numpy as np

from lapwing.learn.trainers.columns import ONE, Wholes
from lapwing.learn.trainers.pricing import Part, Run
from lapwing.learn.trainers.shape import Floats, summed


def moments_part(squared_length: int, wide: int) -> Part:
    """The release of Σ xxᵀ for rows of `wide` entries up to ONE and of this squared length at most."""
    reach = (squared_length * squared_length + ONE * ONE * squared_length) // 2
    return Part(reach, wide * (wide + 1) // 2)


def upper_half(rows: Wholes) -> Wholes:
    """Σ x_i x_j for i <= j, exactly."""
    held = rows.astype(np.float64)
    return summed(held, held, ONE * ONE)[np.triu_indices(rows.shape[1])]


def noisy_moments(run: Run, rows: Wholes) -> Floats:
    """Σ xxᵀ with noise, as a symmetric matrix, for columns scaled to -1 … 1."""
    half = run.release(0, upper_half(rows)) / (ONE * ONE)
    wide = rows.shape[1]
    whole_matrix = np.zeros((wide, wide))
    whole_matrix[np.triu_indices(wide)] = half
    return whole_matrix + np.triu(whole_matrix, 1).T


def edge(run: Run, wide: int) -> float:
    """About the largest eigenvalue of the noise: 2 σ √n of a symmetric matrix of n rows (Wigner)."""
    return 2 * float(run.sigmas[0]) / (ONE * ONE) * math.sqrt(wide)
