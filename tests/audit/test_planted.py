"""Every planted bug is caught, by the stage that is named for it; without the bug, nothing is."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.audit import laws
from lapwing.audit.case import Stage, StageBudget
from lapwing.audit.planted import planted_bugs
from lapwing.audit.stages.exact import ExactPair, compare_exactly
from lapwing.audit.stages.self_check import PlantedBug, run_self_check
from lapwing.core.laplace import LaplaceShares
from lapwing.core.selection import Exponential, PermuteAndFlip

BUGS = planted_bugs()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_is_caught(bug: PlantedBug) -> None:
    [checked] = run_self_check([bug]).bugs
    assert checked.is_caught, checked.why_not


def test_they_are_those_of_the_issue() -> None:
    assert {bug.name for bug in BUGS} == {
        "noise x 0.8", "no clip", "float Laplace", "one seed in two processes", "charged once, taken twice",
        "permute-and-flip charged ε²/8", "keys from data", "rank by row position",
        "noise sized for all members", "monotone exponential step on L1 scores",
    }  # fmt: skip
    assert {bug.stage for bug in BUGS} == {Stage.SAMPLED, Stage.REPLAY, Stage.EXACT}


def test_what_is_repaired_passes() -> None:
    """The same laws at the right rate, number of shares and charge."""
    one = Fraction(1)
    shares = LaplaceShares.for_epsilon(1, l1=1, of=2)
    step, flip = (
        Exponential.for_epsilon(1, sensitivity=1),
        PermuteAndFlip.for_epsilon("0.01", sensitivity=1),
    )
    pairs = [
        ExactPair("", *laws.shifted_pair(laws.laplace_shares(one, 2, 2), 1), shares.loss, one),
        ExactPair(
            "",
            laws.exponential([1, *[0] * 20], step.rate),
            laws.exponential([0, *[1] * 20], step.rate),
            step.loss,
            one,
        ),
        ExactPair(
            "",
            laws.permute_and_flip([0, 0], flip.rate),
            laws.permute_and_flip([1, -1], flip.rate),
            flip.loss,
            flip.epsilon,
        ),
    ]
    assert compare_exactly(pairs, StageBudget(is_thorough=False), epsilon=one).holds
