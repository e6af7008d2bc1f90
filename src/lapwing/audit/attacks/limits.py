"""Limits: how often the best possible attacker can be right, whatever is released and known.

Claim    from even odds, whether somebody is in the data is guessed right with probability at most
         (e^ε + δ) / (1 + e^ε).
Because  half of P[says in | in] + P[says out | out] is at most that, if both errors obey (ε, δ).
Test     tests/audit/attacks/test_limits.py::test_no_decision_rule_of_a_tight_release_beats_the_limit

Claim    one of k equally likely values is guessed right, from a pure ε, with probability at most
         e^ε / (e^ε + k - 1) if neighbours replace a unit, and e^2ε / (e^2ε + k - 1) if they add or remove
         one. The second limit is never reached: min(e^ε / k, 1 - e^-ε (k - 1) / k) is the exact one.
Because  two values are one step or two steps apart, so their likelihoods differ by e^ε or e^2ε. Under
         add/remove all values are one step away from "absent", which gives the exact limit.
Test     tests/audit/attacks/test_limits.py::test_the_exact_limit_is_reached_and_below_the_two_step_limit

docs/arguments/attacks.md has the proofs. All limits are rounded up.
"""

from __future__ import annotations

from fractions import Fraction

from lapwing.core.exact import Number, ball, precision, upper, whole
from lapwing.core.losses import Relation, checked_delta, checked_epsilon

BITS = 128


def membership_limit(epsilon: Number, delta: Number = 0) -> Fraction:
    """Return how often whether somebody is in the data is guessed right at most, from even odds.

    Args:
        epsilon: The ε of all releases together, for adding or removing this person.
        delta: Their δ.

    Returns:
        (e^ε + δ) / (1 + e^ε), rounded up, and at most 1.

    Raises:
        BadParameter: If ε or δ is out of range.

    Example:
        >>> round(float(membership_limit(1)), 4)
        0.7311
    """
    loss, miss = checked_epsilon(epsilon), checked_delta(delta)
    with precision(BITS):
        return min(upper((1 + ball(miss) * ball(-loss).exp()) / (1 + ball(-loss).exp())), Fraction(1))


def value_limit(epsilon: Number, values: int, relation: Relation) -> Fraction:
    """Return how often one of several equally likely values is guessed right at most: the exact limit.

    Args:
        epsilon: The pure ε of all releases together.
        values: The number of values, at least 2.
        relation: The neighbour relation that ε is about.

    Returns:
        The limit, rounded up.

    Raises:
        BadParameter: If ε or the number of values is out of range.

    Example:
        >>> from lapwing.core.losses import Relation
        >>> round(float(value_limit(1, 8, Relation.ADD_REMOVE)), 4)
        0.3398
    """
    loss, k = checked_epsilon(epsilon), whole(values, "values", at_least=2)
    with precision(BITS):
        if relation is Relation.REPLACE:
            return upper(1 / (1 + (k - 1) * ball(-loss).exp()))
        return min(upper(ball(loss).exp() / k), upper(1 - ball(-loss).exp() * (k - 1) / k))


def two_step_limit(epsilon: Number, values: int) -> Fraction:
    """Return the simpler, larger limit under add/remove: e^2ε / (e^2ε + k - 1), rounded up.

    It bounds the belief after every single outcome, where `value_limit` bounds the average over outcomes.

    Args:
        epsilon: The pure ε of all releases together, for adding or removing a unit.
        values: The number of values, at least 2.

    Returns:
        The limit.

    Raises:
        BadParameter: If ε or the number of values is out of range.

    Example:
        >>> round(float(two_step_limit(1, 8)), 4)
        0.5135
    """
    return value_limit(2 * checked_epsilon(epsilon), values, Relation.REPLACE)
