"""A plan: what a question would compute, by which mechanisms, at which price and error. It is free.

A plan is data: it can be stored, sent and compared, and holds no session. `lapwing.sql.releasing` acts on
it. All that a plan says comes from the question, the policy and released values.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from lapwing.config.values import shortened_list
from lapwing.core.budget import Terms, text_up
from lapwing.core.exact import float_up, grouped, short
from lapwing.core.losses import LaplaceNoise, Loss
from lapwing.errors import BadParameter
from lapwing.html_views import html_view
from lapwing.mechanisms import Gaussian, Laplace, PartitionSelection
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.pricing import accuracy
from lapwing.sql.pricing.cost import Cost
from lapwing.sql.pricing.noise_shares import BudgetShares
from lapwing.sql.pricing.request import QueryRequest
from lapwing.sql.question.bind import NamedQuery
from lapwing.sql.question.bound_query import BoundQuery

CONFIDENCE_OF_THRESHOLD = Fraction(95, 100)
_FINE = 10**6  # steps of a sum: as good as real numbers


@dataclass(frozen=True)
class PlanStep:
    """One mechanism of a plan, in words. `share` is its share of ε or ρ."""

    what: str
    mechanism: str
    share: str
    error: str


@dataclass(frozen=True, repr=False)
class Plan:
    """A question with its mechanisms and price, as values. Any session of the same data can release it.

    Print a plan to see its cost, the error of each column, and how many rows of a person are used.

    Args:
        request: The request, as it is stored with the answer.
        question: The bound question.
        shares: How ε and δ are divided among the mechanisms.
        confidence: The probability with which each interval holds.
        n: The number of rows of a group, if it is known. Errors of averages depend on it.
        sampling: Whether intervals include the error of a sample of rows.
        why: How ε was found, if the analyst gave an accuracy instead.
        before: The mechanisms of the earlier releases that the answer will be combined with.
        blocks: The blocks that will be charged, or None if the policy has no blocks.
        bounds: Sentences on how many rows of a person are used, and on what is known about the others.
        data_digest: A digest of the policy and of the public rows that the plan was made for.
        earlier_forms: What earlier versions made of the same question, with its text. Their stored answers
            are given again; nothing else is done with them.

    Example:
        >>> plan = dataset.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
        >>> print(plan)
        >>> plan.cost.epsilon
        0.5
    """

    request: QueryRequest
    question: BoundQuery
    shares: BudgetShares
    confidence: Fraction
    n: int | None = None
    sampling: bool = False
    why: str = ""
    before: tuple[BudgetShares, ...] = ()
    blocks: tuple[str, ...] | None = None
    bounds: tuple[str, ...] = ()
    data_digest: str = ""
    earlier_forms: tuple[NamedQuery, ...] = ()

    @property
    def cost(self) -> Cost:
        """The price that the release will be charged."""
        needs_delta = self.shares.noise == "gaussian" or bool(self.shares.selected)
        return Cost(self.shares.epsilon, self.shares.delta if needs_delta else Fraction(0))

    @cached_property
    def spread(self) -> dict[str, accuracy.Spread]:
        """The error of each column at the plan's confidence, with what was released before."""
        *before, last = self.before if self.is_stored else (*self.before, self.shares)
        return accuracy.spread(self.question, last, self.confidence, n=self.n, before=before)

    @property
    def is_stored(self) -> bool:
        """True if counts or sums were released at this price before: releasing the plan costs nothing."""
        return any(
            (shares.epsilon, shares.delta, shares.noise, shares.digest) == self.request.price
            for shares in self.before
        )

    @property
    def headline(self) -> str:
        """The price in a sentence."""
        why = f" ({self.why})" if self.why else ""
        if self.is_stored:
            return f"Released before at {self.cost}{why}: its answer costs nothing."
        return f"Costs {self.cost}{why}; nothing is charged by looking."

    @property
    def block_names(self) -> str | None:
        """The names of the first blocks that will be charged, or None if the policy has no blocks."""
        return None if self.blocks is None else shortened_list(list(self.blocks))

    @property
    def steps(self) -> list[PlanStep]:
        """Every mechanism with its share of the price and its expected error."""
        question, shares = self.question, self.shares
        steps = []
        for selected in shares.selected:
            mechanism = selected.mechanism
            share = f"ε {float(mechanism.epsilon):.4g}, δ {short(float(mechanism.delta))}"
            what = f"which keys are shown{question.grouping_in_words(selected.grouping)}"
            steps.append(PlanStep(what, "partition selection", share, describe_selection(mechanism)))
        for added in shares.added:
            part = question.parts[added.part]
            moved = "both together" if len(part.numbers) > 1 else "it"
            steps.append(
                PlanStep(
                    f"{part.label}{question.grouping_in_words(added.grouping)}",
                    *_describe_noise(added.mechanism),
                    f"one person moves {moved} by up to {part.l1:,}",
                )
            )
        for chosen in shares.chosen:
            label = question.spectra[chosen.wanted.spectrum].label
            ranks = float(chosen.mechanism.spread(self.confidence))
            steps.append(
                PlanStep(
                    f"{chosen.wanted.function} of {label}{question.grouping_in_words(chosen.grouping)}",
                    "exponential choice",
                    f"ε {float(chosen.mechanism.epsilon):.4g}",
                    f"rank within ±{grouped(ranks, 4)}",
                )
            )
        return steps

    def to_json(self) -> dict[str, Any]:
        """Return the whole plan as plain values for JSON. The cost is rounded up.

        Returns:
            The cost, the columns with their errors, the mechanisms and the bounds.

        Example:
            >>> plan.to_json()["cost"]
            {'epsilon': 0.5, 'delta': 0.0}
        """
        return {
            "sql": self.request.sql,
            "cost": {"epsilon": float_up(self.cost.epsilon), "delta": float_up(self.cost.delta)},
            "why": self.why,
            "noise": self.shares.noise,
            "reason": self.shares.reason,
            "is_stored": self.is_stored,
            "releases_before": len(self.before),
            "confidence": float(self.confidence),
            "columns": {
                name: {"half": spread.half, "formula": _plain(spread.formula), "ranks": spread.ranks}
                for name, spread in self.spread.items()
            },
            "steps": [vars(step) for step in self.steps],
            "bounds": list(self.bounds),
            "blocks": None if self.blocks is None else list(self.blocks),
            "rows_of_a_person": self.question.rows,
        }

    def __str__(self) -> str:
        lines = [self.headline]
        described = {name: describe_spread(spread) for name, spread in self.spread.items()}
        lines += [f"{name}: {words}" for name, words in described.items() if words]
        lines += [f"- {s.what}: {s.mechanism}, {s.share}; {s.error}" for s in self.steps]
        lines += [self.shares.reason] if self.shares.reason else []
        lines += self.bounds
        blocks = self.block_names
        lines += [] if blocks is None else [f"Charged blocks: {blocks}"]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_view(self)


@lru_cache(maxsize=64)
def _most_questions(epsilon: Fraction, delta: Fraction, least: Fraction) -> tuple[Terms, Fraction]:
    """Return the terms of a budget, and how many sums at the least ε they admit, with rounding."""
    terms = Terms.of(epsilon, delta)
    noise = LaplaceNoise(_FINE / least, _FINE)
    return terms, terms.how_many(terms.price(noise)) * Fraction(101, 100)


@lru_cache(maxsize=256)  # a plan and its release, and questions at the same price, ask again
def _how_many(terms: Terms, loss: Loss) -> int:
    return terms.how_many(terms.price(loss))


def costs_enough(shares: BudgetShares, policy: CheckedPolicy) -> bool:
    """Return whether a question costs as much as the least that the policy sells."""
    return is_enough(shares.epsilon, shares.loss, policy)


def is_enough(epsilon: Fraction, loss: Loss, policy: CheckedPolicy) -> bool:
    """Return whether a release with this ε and loss costs as much as the least that the policy sells.

    Claim    a budget buys no more such questions than sums with Laplace noise at `least_epsilon`, but for a
             hundredth, which covers the rounding of scales and charges.
    Because  ε is not below it, and the filters of the budget are asked how many charges of each they admit:
             Gaussian noise with a tiny δ, or many aggregates that share ε, cost less than their ε.
    Test     tests/sql/test_planning_least_epsilon.py
    """
    if not policy.least_epsilon:
        return True
    terms, most = _most_questions(policy.epsilon, policy.delta, policy.least_epsilon)
    return epsilon >= policy.least_epsilon and _how_many(terms, loss) <= most


def too_little(shares: BudgetShares, policy: CheckedPolicy, enough: Fraction | None = None) -> BadParameter:
    """Return the error of a question that costs less than the policy's least. `enough` is an ε for it."""
    return not_enough(shares.epsilon, policy, enough)


def not_enough(epsilon: Fraction, policy: CheckedPolicy, enough: Fraction | None = None) -> BadParameter:
    """Return the error of a release that costs less than the policy's least. `enough` is an ε for it."""
    least = text_up(policy.least_epsilon)
    now = "more" if enough is None else f"ε {text_up(enough)} or more"
    why = ""
    if epsilon >= policy.least_epsilon:
        why = "; Gaussian noise and several aggregates cost less than their ε"
    return BadParameter(
        "epsilon",
        f"asked ε {float(epsilon):.6g}, but one question costs at least ε {least} here{why}. Ask "
        f"with {now}, or let the curator write a smaller budget.least_epsilon",
    )


def describe_spread(spread: accuracy.Spread) -> str:
    """Return a spread in words, or "" if it makes no statement."""
    if spread.half is not None:
        return f"± {grouped(spread.half)}"
    if spread.formula is not None:
        return f"± {spread.formula}, n being the rows of the group"
    return f"rank within ±{grouped(spread.ranks, 4)}" if spread.ranks is not None else ""


def _plain(formula: str | None) -> str | None:
    """Return a formula for programs: without separators of thousands."""
    return None if formula is None else formula.replace(",", "")


def describe_selection(mechanism: PartitionSelection) -> str:
    """Return in words how many people a key needs to be shown."""
    return f"a key of {mechanism.spread(CONFIDENCE_OF_THRESHOLD):,} people is shown with 95 % probability"


def _describe_noise(mechanism: Laplace | Gaussian) -> tuple[str, str]:
    """Return the noise of a part and its share of the price, in words."""
    if isinstance(mechanism, Laplace):
        share = f"ε {float(mechanism.l1 / mechanism.scale):.4g}"
        return f"Laplace noise, scale {grouped(float(mechanism.scale))}", share
    share = f"ρ {float(mechanism.loss.concentrated.rho):.4g}"
    return f"Gaussian noise, σ {grouped(float(mechanism.sigma))}", share
