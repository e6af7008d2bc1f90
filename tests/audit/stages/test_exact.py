"""The exact stage holds for correct mechanisms, and shows broken ones with a witness."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from lapwing.audit.case import StageBudget, StageResult
from lapwing.audit.laws import (
    exponential,
    gaussian,
    laplace,
    laplace_shares,
    permute_and_flip,
    shifted_pair,
)
from lapwing.audit.stages.exact import ExactPair, compare_exactly
from lapwing.core.gaussian import Gaussian
from lapwing.core.losses import Approximate, BoundedRange, LaplaceNoise, Loss, Pure
from lapwing.errors import BadParameter

ONE = Fraction(1)
HALF = Fraction(1, 2)


def audited(pair: ExactPair) -> StageResult:
    return compare_exactly([pair], StageBudget(), epsilon=pair.epsilon, delta=pair.delta)


def flipped(loss: Loss) -> StageResult:
    one, other = (permute_and_flip(scores, HALF) for scores in ([2, 2, 1], [1, 1, 2]))
    return audited(ExactPair("permute-and-flip", one, other, loss, ONE))


def test_laplace_noise_reaches_its_claim_exactly() -> None:
    one, other = (laplace(1, centre, 0, 1) for centre in (0, 1))
    found = audited(ExactPair("Laplace", one, other, LaplaceNoise(ONE, 1), ONE))
    assert found.holds
    assert found.measured == 1


def test_four_fifths_of_the_noise_are_shown_as_five_quarters_of_epsilon() -> None:
    one, other = (laplace(Fraction(4, 5), centre, 0, 1) for centre in (0, 1))
    found = audited(ExactPair("Laplace", one, other, LaplaceNoise(ONE, 1), ONE))
    assert found.witness is not None
    assert found.witness.at_least == 1.25
    assert found.witness.numbers["P[event]"] == pytest.approx(0.7773, abs=1e-4)


def test_four_fifths_of_gaussian_noise_are_shown_by_delta() -> None:
    mechanism = Gaussian.for_budget(1, "1e-6", l2_squared=1, dimension=1)
    for part, holds in ((ONE, True), (Fraction(4, 5), False)):
        one, other = (gaussian(part * mechanism.sigma, c, -160, 161) for c in (0, 1))
        pair = ExactPair("Gaussian", one, other, mechanism.loss, ONE, Fraction(1, 10**6))
        found = audited(pair)
        assert found.holds == holds
        if not holds:
            assert found.witness is not None
            assert found.witness.at_least is not None
            assert 1.2 < found.witness.at_least < 1.4


def test_permute_and_flip_charged_as_a_bounded_range_is_shown_by_its_renyi_value() -> None:
    assert flipped(Pure(ONE)).holds
    found = flipped(BoundedRange(ONE))
    assert found.witness is not None
    assert "Rényi" in found.witness.event
    assert found.witness.at_least is None, "its pure ε is within the claim"
    assert found.witness.numbers["true"] == pytest.approx(0.805, abs=1e-3)
    assert found.witness.numbers["allowed"] == 0.75


def test_a_monotone_step_on_scores_that_rise_and_fall_is_shown() -> None:
    one, other = (exponential(scores, ONE) for scores in ([1, 0, 0, 0, 0], [0, 1, 1, 1, 1]))
    found = audited(ExactPair("exponential at ε / Δ", one, other, BoundedRange(ONE), ONE))
    assert found.witness is not None
    assert found.witness.at_least is not None
    assert 1.5 < found.witness.at_least < 2


def test_noise_sized_for_all_members_is_shown_if_one_is_in_the_coalition() -> None:
    one, other = shifted_pair(laplace_shares(1, 3, 2), 1)
    found = audited(ExactPair("shares", one, other, Pure(ONE), ONE))
    assert found.witness is not None
    assert found.witness.at_least == pytest.approx(1.389, abs=1e-3)


def test_the_second_direction_is_compared_too() -> None:
    one = {0: Decimal("0.999999"), 1: Decimal("0.000001")}
    other = {0: Decimal("0.99999"), 1: Decimal("0.00001")}
    found = audited(ExactPair("rare", one, other, Pure(ONE), ONE))
    assert found.witness is not None
    assert "P: the second input" in found.witness.pair


def test_an_outcome_that_only_one_input_has_needs_delta() -> None:
    one, other = {0: Decimal("0.99"), 1: Decimal("0.01")}, {0: Decimal(1)}
    loss = Approximate(ONE, Fraction(1, 100))
    assert audited(ExactPair("keys", one, other, loss, ONE, Fraction(1, 100))).holds
    found = audited(ExactPair("keys", one, other, Pure(ONE), ONE))
    assert found.witness is not None
    assert found.witness.at_least == float("inf")


@pytest.mark.parametrize(
    "law", [{0: Decimal("0.5")}, {0: Decimal("1.1")}, {0: Decimal("-1"), 1: Decimal(2)}]
)
def test_a_law_that_is_none_is_refused(law: dict[int, Decimal]) -> None:
    with pytest.raises(BadParameter, match="add up to 1"):
        ExactPair("no law", law, {0: Decimal(1)}, Pure(ONE), ONE)


def test_no_pairs_is_not_a_pass() -> None:
    assert not compare_exactly([], StageBudget(), epsilon=ONE).holds
