"""Private marginals: exact laws of both mechanisms on neighbouring tables, within the loss that is charged.

The laws are made of what the code hands to its mechanisms: the inputs, σ, ε and the sensitivity. So a wrong
sensitivity, a score that overflows, or a loss that is too small fails here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pytest

from lapwing.audit.laws import SLACK, dec, exponential, gaussian, log_ratio, middle
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import Loss
from lapwing.core.selection import Exponential
from lapwing.publish.measured.journal import Journal
from lapwing.publish.measured.private_marginals import Candidate, PrivateMarginals, Wholes
from lapwing.publish.models.domain import Clique, Domain
from support.cases import each
from support.exact_laws import renyi
from support.slowly import slow

DOMAIN = Domain(("a", "b"), (2, 2))
CELLS = list(product((0, 1), repeat=2))
ORDERS = [Fraction(101, 100), Fraction(2), Fraction(10)]


@dataclass
class Used:
    """The mechanism of one step, its input, and the loss that was charged."""

    losses: list[Loss] = field(default_factory=list)
    mechanisms: list[Gaussian | Exponential] = field(default_factory=list)
    inputs: list[list[int]] = field(default_factory=list)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Used:
    seen = Used()

    def measure(mechanism: Gaussian, values: Sequence[int]) -> np.ndarray:
        seen.mechanisms.append(mechanism)
        seen.inputs.append([int(value) for value in values])
        return np.asarray(values)

    def choose(mechanism: Exponential, scores: Sequence[int]) -> int:
        seen.mechanisms.append(mechanism)
        seen.inputs.append(list(scores))
        return 0

    monkeypatch.setattr(Gaussian, "sample", measure)
    monkeypatch.setattr(Exponential, "sample", choose)
    return seen


def neighbours(rows_per_unit: int) -> Iterator[tuple[Wholes, Wholes]]:
    """Tables of up to two rows, and the same with each possible unit of up to K rows added."""
    for base in [(), ((0, 0),), ((0, 1), (1, 1))]:
        for count in range(1, rows_per_unit + 1):
            for unit in combinations_with_replacement(CELLS, count):
                tables = [np.array(rows, np.int64).reshape(-1, 2) for rows in (base, (*base, *unit))]
                yield tables[0], tables[1]


def source(path: Path, table: Wholes, rows_per_unit: int, used: Used) -> PrivateMarginals:
    path.unlink(missing_ok=True)
    return PrivateMarginals(
        DOMAIN, lambda: table, rows_per_unit=rows_per_unit, budget=Fraction(1000),
        charge=used.losses.append, fail=lambda: pytest.fail("a step failed"), journal=Journal(path, "run"),
    )  # fmt: skip


def divergence(loss: Loss, order: Fraction) -> Decimal:
    found = loss.renyi(order)
    assert found is not None
    return middle(found)


@pytest.mark.parametrize("rows_per_unit", [slow(1), 3])
@each("clique", [("a",), ("a", "b")])
def test_measured_counts_are_within_the_divergence_that_was_charged(
    tmp_path: Path, used: Used, clique: Clique, rows_per_unit: int
) -> None:
    sigma, reached = Fraction(3, 2), Decimal(0)
    laws = {centre: gaussian(sigma, centre, -60, 60) for centre in range(rows_per_unit + 3)}
    for tables in neighbours(rows_per_unit):
        for table in tables:
            source(tmp_path / "j", table, rows_per_unit, used).measure(clique, sigma)
        one, other = used.inputs[-2:]
        mechanism = used.mechanisms[-1]
        assert isinstance(mechanism, Gaussian)
        assert mechanism.sigma == sigma
        for order in ORDERS[1:]:
            charged = divergence(used.losses[-1], order)
            found = sum(
                (renyi(laws[x], laws[y], order) for x, y in zip(one, other, strict=True) if x != y),
                Decimal(0),
            )
            assert found <= charged + SLACK
            reached = max(reached, found / charged)
    assert reached > Decimal("0.999999")  # all K rows in one cell: the charge is not more than is needed


@pytest.mark.parametrize("rows_per_unit", [slow(1), 3])
@each("weights", [(1, 1, 1), (1, 4, 2)])
def test_a_choice_is_within_the_ratio_and_the_divergence_that_were_charged(
    tmp_path: Path, used: Used, weights: tuple[int, int, int], rows_per_unit: int
) -> None:
    epsilon, moved = Fraction(1, 2), Fraction(0)
    expected = [[3, 40], [16, 5], [2, 7, 33, 100]]
    cliques: list[Clique] = [("a",), ("b",), ("a", "b")]
    candidates = [
        Candidate(clique, np.array(counts), weight, penalty)
        for clique, counts, weight, penalty in zip(cliques, expected, weights, (0, 5, -3), strict=True)
    ]
    for tables in neighbours(rows_per_unit):
        for table in tables:
            source(tmp_path / "j", table, rows_per_unit, used).choose(candidates, epsilon)
        mechanism = used.mechanisms[-1]
        assert isinstance(mechanism, Exponential)
        one, other = (exponential(scores, mechanism.rate) for scores in used.inputs[-2:])
        assert max(log_ratio(one, other), log_ratio(other, one)) <= dec(epsilon) + SLACK
        for order in ORDERS:
            charged = divergence(used.losses[-1], order)
            assert charged <= dec(order * epsilon**2 / 8) + SLACK
            assert max(renyi(one, other, order), renyi(other, one, order)) <= charged + SLACK
        most = max(abs(x - y) for x, y in zip(*used.inputs[-2:], strict=True))
        assert most <= mechanism.sensitivity
        moved = max(moved, most / mechanism.sensitivity)
    assert moved == 1  # the sensitivity is reached: it is not more than is needed


def test_scores_of_huge_models_do_not_overflow(tmp_path: Path, used: Used) -> None:
    """64-bit sums would wrap: a row more or less would move the score by 2^64."""
    far = [Candidate(("a", "b"), np.array([-(1 << 62), -(1 << 62), 1 << 62, 1 << 62]), 5)]
    for tables in neighbours(1):
        for table in tables:
            source(tmp_path / "j", table, 1, used).choose(far, Fraction(1))
        [one], [other] = used.inputs[-2:]
        assert one == 5 * (4 << 62) + 80 * (len(tables[0]) - 2 * int(tables[0][:, 0].sum()))
        assert abs(one - other) <= used.mechanisms[-1].sensitivity == 80  # type: ignore[union-attr]
