"""Cases of private selection claim what is charged, and their exact laws can fail."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import pytest

from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.laws import best_of_negative_binomial
from lapwing.audit.registry import searching
from lapwing.audit.registry.searching import searching_fit, selection_cases
from lapwing.audit.stages.exact import ExactPair, exact_stage
from lapwing.audit.stages.input_distances import by_differences, distance
from lapwing.audit.training_runs import charged_loss
from lapwing.core.losses import Loss, Pure
from lapwing.core.selection import PermuteAndFlip
from lapwing.learn.repetition import NegativeBinomialRuns, PoissonRuns

CASES = {case.name: case for case in selection_cases()}
CANDIDATES = [{"epsilon": Fraction(1)}, {"epsilon": Fraction(1, 2)}]


def claimed(loss: Loss) -> Fraction:
    return loss.pair[0] if loss.pair is not None else loss.pure or Fraction(0)


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("search over every candidate, permute-and-flip", searching._every(PermuteAndFlip)),
        (
            "best of a negative binomial number of runs",
            searching._random(lambda: NegativeBinomialRuns.with_mean(2, eta=0)),
        ),
        (
            "best of a Poisson number of runs",
            searching._random(lambda: PoissonRuns(Fraction(2))),
        ),
    ],
)
def test_the_claim_of_a_case_is_what_is_charged(name: str, strategy: object) -> None:
    loss = charged_loss(searching_fit(strategy(), CANDIDATES), searching._TESTED)  # type: ignore[operator]
    assert 0.99 * CASES[name].epsilon < claimed(loss) <= CASES[name].epsilon


@pytest.mark.parametrize("name", CASES)
def test_exact_laws_stay_within_the_price(name: str) -> None:
    result = CASES[name].stages[Stage.EXACT](StageBudget(is_thorough=False))
    assert result.holds, result


def test_the_best_of_several_runs_at_the_price_of_one_is_caught() -> None:
    law = NegativeBinomialRuns.with_mean(5, eta=1)
    best = partial(best_of_negative_binomial, eta=law.eta, gamma=law.gamma)
    one, other = (best(searching._response(Fraction(1), likely)) for likely in (0, 2))
    pair = ExactPair("the best of 5", one, other, Pure(Fraction(1)), Fraction(1))
    result = exact_stage(lambda _: [pair], epsilon=Fraction(1))(StageBudget())
    assert result.witness is not None


@pytest.mark.parametrize(("more", "holds"), [((1, 1, 1), True), ((1, 0, 0), True), ((1, -1, 0), False)])
def test_a_choice_may_move_all_scores_together_but_not_apart(more: tuple[int, ...], holds: bool) -> None:
    seen = by_differences(PermuteAndFlip(Fraction(1), Fraction(1, 2)))
    assert distance(seen, {"scores": [5, 5, 5]}, {"scores": [5 + one for one in more]}).is_within is holds
