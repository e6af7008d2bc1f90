"""Beliefs about one person: how far releases of (ε, δ) move their odds, for `explain`, `show` and reports.

Claim    if somebody knows the data of all others, and all releases together are (ε, δ)-private, the odds
         of a belief change by at most e^(kε) either way, except with the probability (1 + e^ε + … +
         e^((k-1)ε)) δ of a step that tells everything. k is the number of neighbouring steps between the
         two cases that the belief tells apart. Under add/remove it is 1 between "took part" and "did not",
         and 2 between two facts of a person who took part (take the rows out, put others in). Under
         replace it is 1 between two facts.
Because  the posterior odds are the prior odds times the ratio of the probabilities of what was seen; k
         steps are (kε, …)-private; and a pair of laws that is (a, b)-private is made, by one random
         function, of "with probability b tell which, else randomized response at a".
Test     tests/core/test_beliefs.py::test_two_facts_of_a_person_are_two_steps_apart_and_reach_the_bound

docs/arguments/attacks.md has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from lapwing.core.chances import posterior
from lapwing.core.exact import Number, exact, exp_up
from lapwing.core.losses import Approximate, Relation
from lapwing.errors import BadParameter


class Belief(Enum):
    """A belief about one person: what it says."""

    TOOK_PART = "that you took part"
    FACT = "that something is true of you"


_STEPS = {
    (Belief.TOOK_PART, Relation.ADD_REMOVE): 1,
    (Belief.FACT, Relation.ADD_REMOVE): 2,
    (Belief.FACT, Relation.REPLACE): 1,
}


@dataclass(frozen=True, slots=True)
class BeliefBounds:
    """The most that releases can do to the odds of a belief."""

    steps: int  # neighbouring steps between the two cases
    epsilon: Fraction  # of that many steps
    delta: Fraction  # of that many steps, rounded up and at most 1
    factor: Fraction  # e^epsilon, rounded up

    def after(self, prior: Fraction) -> tuple[Fraction, Fraction]:
        """Return the least and the greatest belief afterwards, δ excepted, rounded outwards."""
        return posterior(prior, 1 / self.factor), posterior(prior, self.factor)


def beliefs_under(relation: Relation) -> tuple[Belief, ...]:
    """Return the beliefs that a neighbour relation bounds. Replacing a unit does not hide who took part."""
    return tuple(belief for belief, about in _STEPS if about is relation)


def belief_bounds(
    epsilon: Number, delta: Number, *, belief: Belief, relation: Relation = Relation.ADD_REMOVE
) -> BeliefBounds:
    """Return how far all releases together can move a belief of somebody who knows all other data.

    Args:
        epsilon: The ε of all releases about the person.
        delta: Their δ.
        belief: The belief.
        relation: The neighbour relation that ε and δ are about.

    Returns:
        The bounds.

    Raises:
        BadParameter: ε or δ is out of range, or the relation does not bound this belief.

    Example:
        >>> bounds = belief_bounds("0.1", 0, belief=Belief.FACT)
        >>> round(float(bounds.after(Fraction(1, 2))[1]), 3)
        0.55
    """
    if (belief, relation) not in _STEPS:
        raise BadParameter("belief", "who took part is public if neighbours replace a unit")
    steps = _STEPS[belief, relation]
    loss = Approximate(exact(epsilon, "epsilon"), exact(delta, "delta")).for_group(steps)
    return BeliefBounds(steps, loss.epsilon, loss.delta, exp_up(loss.epsilon))
