"""Exact laws of the best of a random number of independent runs.

If F is the probability that a run's output is at most y, and f the generating function of the number of
runs, then the best output is at most y with probability f(F). No run at all is the outcome None.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from decimal import Decimal

from lapwing.audit.laws.decimals import Law, Rational, dec, ln, precise


@precise
def best_of_negative_binomial(run: Law, eta: Rational, gamma: Rational) -> Law:
    """Return the law of the best of K runs, where P[K = k] ~ (1-γ)^k Π (l + η)/(l + 1), from K = 1 on."""
    kept, shape = 1 - dec(gamma), dec(eta)

    def generating(x: Decimal) -> Decimal:
        if not shape:
            return (1 - kept * x).ln() / ln(gamma)
        return ((1 - kept * x) ** -shape - 1) / (dec(gamma) ** -shape - 1)

    return _best(run, generating)


@precise
def best_of_poisson(run: Law, mean: Rational) -> Law:
    """Return the law of the best of a Poisson number of runs."""
    return _best(run, lambda x: (dec(mean) * (x - 1)).exp())


def _best(run: Law, generating: Callable[[Decimal], Decimal]) -> Law:
    """Return the law of the greatest output. Outputs are compared by their own order."""
    below, at_most = generating(Decimal(0)), Decimal(0)
    law: dict[Hashable, Decimal] = {None: below} if below else {}
    for output in sorted(run):
        at_most += run[output]
        reached = generating(at_most)
        law[output], below = reached - below, reached
    return law
