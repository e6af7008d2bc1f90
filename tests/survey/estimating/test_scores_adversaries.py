"""Crafted reports (failure case P2): liars reach the stated shift, and none goes beyond it."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from lapwing.errors import BadParameter
from lapwing.survey.estimating.intervals import SupportChance
from lapwing.survey.estimating.number_estimates import score_corners
from lapwing.survey.estimating.scores import AdversarialShift
from lapwing.survey.estimating.survey_estimates import estimate
from lapwing.survey.randomizers import HybridResponse
from support.estimated import by_name, designed


def test_a_share_moves_by_the_greatest_score() -> None:
    down, up = AdversarialShift(0.1).share(SupportChance(0.75, 0.25))
    assert (down, up) == pytest.approx((0.1 * 1.5, 0.1 * 1.5))
    assert AdversarialShift(0.0).share(SupportChance(0.75, 0.25)) == (0, 0)


def test_liars_who_choose_their_question_are_more_among_its_reports() -> None:
    liars = AdversarialShift(0.1, ways=4)
    assert liars.among == pytest.approx(0.1 / (0.1 + 0.9 / 4))
    assert liars.of(2).ways == 8


@pytest.mark.parametrize(
    "lines",
    [
        'kind = "yes_no"\nprotocol = "two_coins"\nno_answer = false',
        'kind = "choice"\noptions = ["a", "b", "c"]\nno_answer = false',
        'kind = "choice"\noptions = ["a", "b", "c", "d", "e", "f", "g"]\nprotocol = "subset"',
        'kind = "choice"\noptions = ["a", "b", "c"]\nprotocol = "hadamard"',
        'kind = "choice"\noptions = ["a", "b", "c"]\nprotocol = "unary"',
        'kind = "several"\noptions = ["a", "b", "c"]',
    ],
)
def test_no_crafted_report_pushes_a_share_beyond_the_bound_and_some_reach_it(
    lines: str, tmp_path: Path
) -> None:
    """Exact: the coins' expectation for the honest, every possible message for the liars."""
    made = designed(tmp_path, lines, epsilon="2")
    n, lying = 1000, 100
    part = made.parts[0]
    reports = made.simulate(by_name(made, [np.zeros(n, dtype=np.int64)]))
    base = estimate(made, reports, liars="0.1").answers[0].table("share").estimates
    kinds = {
        bytes(row): row for row in made.simulate(by_name(made, [np.arange(4000) % part.question.inputs]))
    }
    reached = []
    for row in kinds.values():
        crafted = reports.copy()
        crafted[:lying] = row
        after = estimate(made, crafted).answers[0].table("share").estimates
        honest = estimate(made, reports[lying:]).answers[0].table("share").estimates
        for one, other, rest in zip(base, after, honest, strict=True):
            assert one.adversarial_shift is not None
            # The liars' own true share is 0 or 1: what they would have added without lying.
            for true in (0.0, 1.0):
                moved = other.value - (0.9 * rest.value + 0.1 * true)
                assert -one.adversarial_shift[0] - 1e-9 <= moved <= one.adversarial_shift[1] + 1e-9
                reached.append((moved / one.adversarial_shift[1], -moved / one.adversarial_shift[0]))
    assert max(up for up, _ in reached) == pytest.approx(1)
    assert max(down for _, down in reached) == pytest.approx(1)


TRUE = [(0.0, 1.0), (1.0, 1.0), (0.0, 0.0)]
HONEST = [(0.25, 0.5), (0.5, 0.5), (0.4, 0.8), (0.9, 0.9), (0.05, 0.5), (0.8, 0.8), (0.3, 0.3)]


@pytest.mark.parametrize("eta", [0.02, 0.05, 0.1, 0.2])
def test_the_honest_ratio_is_always_within_reach(eta: float) -> None:
    """Every lie, in place of every truth, from many honest means: what was found knows only the lies."""
    sent = score_corners(HybridResponse.for_epsilon(2, steps=10, none=True))
    liars, bounded, reached = AdversarialShift(eta), 0, 0.0
    for (top, bottom), (s, d), (x, g) in product(HONEST, sent, TRUE):
        seen = top + eta * (s - x), bottom + eta * (d - g)
        if seen[1] <= 0:
            continue
        down, up = liars.ratio(seen, sent, TRUE)
        found, honest = seen[0] / seen[1], top / bottom
        assert found - up - 1e-9 <= honest <= found + down + 1e-9
        if math.isfinite(down + up):
            bounded += 1
            reached = max(reached, (found - honest) / max(up, 1e-12))
    assert bounded > 20
    assert reached == pytest.approx(1), "and no less would do"


def test_without_a_bottom_there_is_no_bound() -> None:
    assert AdversarialShift(0.2).ratio((0.1, -0.1), [(0.0, 1.0)], [(0.0, 1.0)]) == (math.inf, math.inf)
    assert AdversarialShift(0.5).ratio((0.1, 0.3), [(0.0, 1.0)], [(0.0, 0.0)]) == (math.inf, math.inf)


@pytest.mark.parametrize("liars", [-0.1, 1, "nan"])
def test_a_fraction_of_liars_lies_between_0_and_1(liars: float, tmp_path: Path) -> None:
    made = designed(tmp_path, 'kind = "yes_no"')
    reports = made.simulate(by_name(made, [np.zeros(10, dtype=np.int64)]))
    with pytest.raises(BadParameter):
        estimate(made, reports, liars=liars)
