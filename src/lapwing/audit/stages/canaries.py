"""A membership audit that needs one training run: guess which canaries were in the training data.

Claim    if training is (ε, δ)-private for adding or removing a unit, `at_least` is above ε with probability
         at most `error`.
Because  each canary is in the data on its own fair coin. Guesses are made from the released model alone;
         given the earlier coins, a guess is right with probability at most e^ε / (1 + e^ε), up to δ. So the
         number of right guesses is hardly above that binomial law (Steinke, Nasr and Jagielski 2023,
         theorem 5.2; docs/arguments/audit_canaries.md has the statement).
Test     tests/audit/stages/test_canaries.py, with trainers that are broken on purpose and must be caught

An audit in which nothing could be shown (all guesses could be right without contradicting the claim) is
refused before training. The notes of a result tell its power.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from flint import arb
from numpy.typing import NDArray

from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.stages.canary_power import CAUGHT, best_expected_bound, smallest_caught
from lapwing.core.exact import Number, ball, inside_unit, least_where, precision, set_fields, whole
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.core.noise import bernoulli, permutation
from lapwing.errors import BadParameter, BadValue

Included = NDArray[np.bool_]
# Trains with the included canaries, and returns a score for each: high if the model seems to contain it.
Train = Callable[[Included], NDArray[np.float64]]
BITS = 128
_FINEST = 1 << 20  # ε is found in steps of 1 / _FINEST
_LARGEST = 64


@dataclass(frozen=True, slots=True)
class OneRun:
    """The result of one audited training run: the number of right guesses, and the ε that it shows.

    `error` must be above about 2 δ · canaries / guesses. With less, nothing could contradict the claim, and
    such an audit is refused.
    """

    claimed: Fraction
    delta: Fraction
    error: Fraction
    canaries: int
    guesses: int
    right: int

    def __post_init__(self) -> None:
        set_fields(self, claimed=checked_epsilon(self.claimed, "claimed"), delta=checked_delta(self.delta))
        set_fields(self, error=inside_unit(self.error, "error"))
        canaries = whole(self.canaries, "canaries", at_least=1)
        guesses = whole(self.guesses, "guesses", at_least=1)
        if not 0 <= whole(self.right, "right") <= guesses <= canaries:
            raise BadParameter(
                "guesses", "must be at most as many as canaries, and at least as many as right ones"
            )
        if self._plausible(self.claimed, right=guesses):
            raise BadParameter(
                "guesses",
                "could all be right without contradicting the claim, so that it would always hold: make "
                "more guesses, or allow a larger error",
            )

    @property
    def at_least(self) -> float:
        """A lower bound on the true ε, which is right up to the stated error."""
        if self._plausible(Fraction(0)):
            return 0.0
        steps = least_where(lambda n: self._plausible(Fraction(n, _FINEST)), 0, _LARGEST * _FINEST)
        return (steps - 1) / _FINEST

    @property
    def holds(self) -> bool:
        """True if the audit found no contradiction to the claim."""
        return self._plausible(self.claimed)

    @property
    def least_right(self) -> int:
        """The least number of right guesses that contradicts the claim."""
        return least_where(lambda right: not self._plausible(self.claimed, right), 0, self.guesses)

    def _plausible(self, epsilon: Fraction, right: int | None = None) -> bool:
        """Return whether `right` (None: the observed number of) right guesses are plausible under ε."""
        seen = self.right if right is None else right
        with precision(BITS):
            tail = tail_of_right(self.canaries, self.guesses, seen, epsilon, self.delta)
            return not tail <= ball(self.error)


def tail_of_right(canaries: int, guesses: int, right: int, epsilon: Fraction, delta: Fraction) -> arb:
    """Return an upper bound on P[`right` guesses or more are right] under (ε, δ), at the current precision.

    β + δ · m · α with β = P[B >= v], α = max over i = 1 .. m of 2 (P[B >= v - i] - β) / i, where B is
    binomial(guesses, e^ε / (1 + e^ε)) and v = right.
    """
    p = 1 / (1 + ball(-epsilon).exp())
    beta = p.beta_lower(right, guesses - right + 1, regularized=True) if right else arb(1)
    if not delta:
        return beta
    against = ball(-epsilon).exp()  # (1 - p) / p
    term = arb.bin_uiui(guesses, right) * p**right * (1 - p) ** (guesses - right)
    worst, sums = arb(0), arb(0)
    for i in range(1, right + 1):  # beyond v - i = 0 the sum does not grow any more, but i does
        hits = right - i + 1
        term *= against * hits / (guesses - hits + 1)
        sums += term
        worst = worst.max(2 * sums / i)
    return (beta + ball(delta) * canaries * worst).min(arb(1))


def audit_one_run(
    train: Train, *, canaries: int, guesses: int, claimed: Number, delta: Number, error: Number
) -> OneRun:
    """Draw the coins, train once, and guess: the highest scores were included, the lowest were not.

    Half of the guesses are of either kind. Ties are broken by chance.

    Args:
        train: Trains with the included canaries (a mask) and returns one score per canary.
        canaries: The number of canaries, at least 2.
        guesses: The number of guesses, fixed beforehand: at least 2, at most `canaries`.
        claimed: The ε that training claims.
        delta: The δ that training claims.
        error: The greatest probability of a false alarm, strictly between 0 and 1.

    Returns:
        The number of right guesses, and the ε that it shows.

    Raises:
        BadParameter: Before training, if a parameter is out of range or nothing could contradict the claim.
        BadValue: If `train` does not return one score per canary.
    """
    fixed = _with_all_right(canaries, guesses, claimed, delta, error)  # raises before training
    count, number = fixed.canaries, fixed.guesses
    included = bernoulli(Fraction(1, 2), count)
    scores = np.asarray(train(included.copy()), dtype=np.float64)
    if scores.shape != (count,):
        raise BadValue("train must give one score for each canary")
    mixed = permutation(count)
    order = mixed[np.argsort(np.nan_to_num(scores, nan=0.0)[mixed], kind="stable")]
    out, into = order[: number // 2], order[count - (number - number // 2) :]
    right = int((~included[out]).sum()) + int(included[into].sum())
    return replace(fixed, right=right)


def canary_stage(
    train: Train,
    *,
    canaries: int,
    guesses: int,
    claimed: Number,
    delta: Number,
    error: Number | None = None,
) -> RunStage:
    """Return the stage that audits one training run with canaries.

    In its result, `measured` is a lower bound on the true ε. `could_show` is the least true ε (at δ) of a
    Gaussian release, with a coordinate for each canary, that contradicts the claim in 95 % of runs.

    Args:
        train: Trains with the included canaries (a mask) and returns one score per canary.
        canaries: The number of canaries, at least 2.
        guesses: The number of guesses, at least 2, at most `canaries`.
        claimed: The ε that training claims.
        delta: The δ that training claims.
        error: The greatest probability of a false alarm; None takes that of the stage's budget.

    Raises:
        BadParameter: At once, if a parameter is out of range, or if nothing could be shown with these
            canaries; with `error` None, when the stage runs.
    """

    def settings(chosen: Number) -> OneRun:
        return _with_all_right(canaries, guesses, claimed, delta, chosen)

    def run(budget: StageBudget) -> StageResult:
        chosen = budget.error if error is None else error
        fixed = settings(chosen)
        budget.progress(f"training once with about {fixed.canaries // 2:,} of {fixed.canaries:,} canaries")
        one_run = audit_one_run(
            train, canaries=canaries, guesses=guesses, claimed=claimed, delta=delta, error=chosen
        )
        return _stage_result(one_run)

    if error is not None:
        settings(error)
    return run


def _with_all_right(canaries: int, guesses: int, claimed: Number, delta: Number, error: Number) -> OneRun:
    """Return the settings with all guesses right. Raise BadParameter if even this would show nothing."""
    count, number = whole(canaries, "canaries", at_least=2), whole(guesses, "guesses", at_least=2)
    if number > count:
        raise BadParameter("guesses", "must be at most as many as canaries")
    return OneRun(
        checked_epsilon(claimed, "claimed"),
        checked_delta(delta),
        inside_unit(error, "error"),
        count,
        number,
        number,
    )


def _stage_result(one_run: OneRun) -> StageResult:
    canaries, delta = one_run.canaries, one_run.delta
    least, measured = one_run.least_right, one_run.at_least
    could_show = smallest_caught(least, canaries=canaries, guesses=one_run.guesses, delta=delta)
    best, guesses = best_expected_bound(
        one_run.claimed, canaries=canaries, delta=delta, error=one_run.error
    )
    release = "Gaussian release" if one_run.delta else "randomized response"
    notes = (
        f"{one_run.right:,} of {one_run.guesses:,} guesses about {one_run.canaries:,} canaries were right; "
        f"{least:,} or more contradict the claim, with an error of at most {float(one_run.error):g}",
        f"power: for a correct {release} claimed at ε = {float(one_run.claimed):g} and δ = "
        f"{float(one_run.delta):g}, the best bound to be expected with {one_run.canaries:,} canaries is "
        f"{best:.2g} (with {guesses:,} guesses). Only gross errors show",
        f"a {release} with a coordinate for each canary is caught in {CAUGHT:.0%} of runs if its true ε is "
        f"{could_show:.3g} or more",
    )
    witness = None
    if not one_run.holds:
        witness = Witness(
            pair=f"each of {one_run.canaries:,} canaries in the data, or not, by its own fair coin",
            event=f"{one_run.right:,} of {one_run.guesses:,} guesses are right",
            numbers={
                "canaries": one_run.canaries,
                "guesses": one_run.guesses,
                "right": one_run.right,
                "least that contradicts the claim": least,
                "claimed ε": float(one_run.claimed),
                "claimed δ": float(one_run.delta),
                "error": float(one_run.error),
            },
            at_least=measured,
        )
    return StageResult(
        Stage.CANARIES, one_run.guesses, float(one_run.claimed), measured, could_show, witness, notes=notes
    )
