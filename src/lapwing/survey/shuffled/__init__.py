"""What a local ε becomes when n honest reports are shuffled: privacy amplification, never understated.

The promise needs three things that no arithmetic can check, and every caller must say so: a shuffler
removes order, sender and time; the adversary sees only the multiset of reports; and at least n of
them, her own among them, are honest. Reports of liars hide nobody, so they are not counted in n.

The argument is in docs/arguments/shuffle.md. In short: whatever the pair of answers and the data of
the others, the excess δ at ε is at most E(Z₁ + … + Z_n)₊ / n for independent Z of a known law, and a
law that is wider in the convex order is a law on the safe side. All laws end as one with three points.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

from lapwing.errors import BadParameter
from lapwing.exact import Number, exact, round_up, whole
from lapwing.privacy import Pure
from lapwing.privacy.loss import checked_epsilon
from lapwing.survey.shuffled.excess import excess, near_excess
from lapwing.survey.shuffled.laws import Law, general, mixture

__all__ = ["ASSUMES", "shuffled_epsilon"]

ASSUMES = (
    "An anonymising shuffler removes order, sender and time; only the unordered reports are seen; "
    "and at least this many reports are honest."
)
_MOST_REPORTS = 10**9  # more reports never reveal more, so beyond this they are not counted
_DIGITS = 10**9  # ε is rounded up to a whole number of these parts


class _HasRecipe(Protocol):
    @property
    def loss(self) -> Pure: ...

    def recipe(self) -> dict[str, Any]: ...


def shuffled_epsilon(
    epsilon0: Number,
    n: int,
    delta: Number,
    randomizer: _HasRecipe | Sequence[_HasRecipe] | None = None,
) -> Fraction:
    """An ε such that n honest reports, shuffled, are (ε, δ)-private for replacing one respondent's answers.

    Claim    holds for all ε₀-private randomizers; rounded up; never above ε₀.
    Because  docs/arguments/shuffle.md
    Test     tests/survey/test_shuffled.py::test_the_bound_is_never_below_the_truth_for_few_reports

    With the `randomizer` in use (several: the respondent draws one of them at random), its exact blanket
    may give less; whatever is not known to give less falls back to the general bound. A randomizer that
    loses more than ε₀ is refused: no bound here would hold for it.
    """
    local = checked_epsilon(epsilon0)
    reports = min(whole(n, "n", at_least=1), _MOST_REPORTS)
    allowed = exact(delta, "delta")
    if not 0 < allowed < 1:
        raise BadParameter("delta", "must lie strictly between 0 and 1")
    laws = [general(local)]
    if randomizer is not None:
        parts = list(randomizer) if isinstance(randomizer, Sequence) else [randomizer]
        if any(part.loss.epsilon > local for part in parts):
            raise BadParameter("randomizer", "loses more than epsilon0")
        own = mixture([part.recipe() for part in parts])
        laws += [own] if own is not None else []
    return min(_least_epsilon(law, local, reports, allowed) for law in laws)


def _least_epsilon(law: Law, local: Fraction, n: int, delta: Fraction) -> Fraction:
    low, high = 0.0, float(local)
    for _ in range(48):
        middle = (low + high) / 2
        if near_excess(law, middle, n, delta) > float(delta):
            low = middle
        else:
            high = middle
    step = Fraction(1, _DIGITS)
    found = Fraction(round_up(Fraction(high), _DIGITS), _DIGITS) + step
    while found < local:
        if excess(law, found, n, delta) <= delta:
            return found
        step *= 8
        found += step
    return local
