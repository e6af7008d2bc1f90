"""The law of the best of K runs, beside a sum over all numbers of runs."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import exp, factorial

import pytest

from lapwing.audit.laws import best_of_negative_binomial, best_of_poisson, total

RUN = {0: Decimal("0.2"), 1: Decimal("0.5"), 2: Decimal("0.3")}


def best_of(count: int) -> list[float]:
    sums = [0.0, 0.2, 0.7, 1.0]
    return [sums[k + 1] ** count - sums[k] ** count for k in range(3)]


def test_poisson() -> None:
    law = best_of_poisson(RUN, 2)
    weights = [exp(-2) * 2**k / factorial(k) for k in range(60)]
    assert float(law[None]) == pytest.approx(weights[0])
    for output in range(3):
        expected = sum(weights[k] * best_of(k)[output] for k in range(1, 60))
        assert float(law[output]) == pytest.approx(expected)
    assert abs(total(law) - 1) < Decimal("1e-50")


@pytest.mark.parametrize("eta", [Fraction(0), Fraction(1), Fraction(-1, 2)])
def test_negative_binomial(eta: Fraction) -> None:
    gamma = Fraction(1, 4)
    law = best_of_negative_binomial(RUN, eta, gamma)
    weights, term = [], 0.75
    for k in range(1, 400):
        weights.append(term)
        term *= 0.75 * float(k + eta) / (k + 1)
    assert None not in law
    for output in range(3):
        expected = sum(w * best_of(k)[output] for k, w in enumerate(weights, 1)) / sum(weights)
        assert float(law[output]) == pytest.approx(expected)
    assert abs(total(law) - 1) < Decimal("1e-50")
