"""A plan: what a question would compute, by which mechanisms, at which price and error. It is free.

A plan is data. `lapwing.sql.releasing` acts on it. All that a plan says comes from the question, the policy
and released values: nothing here reads a private row.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from lapwing.config.values import checked_count, shortened_list
from lapwing.core.budget import EPSILON_UNIT, Terms
from lapwing.core.exact import Number, float_up, grouped, round_up, short
from lapwing.core.losses import LaplaceNoise
from lapwing.core.spread import checked_confidence
from lapwing.errors import BadParameter
from lapwing.mechanisms import Gaussian, Laplace, PartitionSelection
from lapwing.sql import accuracy, truncation
from lapwing.sql.answers import Answer, QueryRequest
from lapwing.sql.binding import analysis
from lapwing.sql.binding.refusal import Refused
from lapwing.sql.bound_query import BoundQuery
from lapwing.sql.noising import BudgetShares, divide_budget
from lapwing.sql.policy import Policy

if TYPE_CHECKING:
    from lapwing.sql.releasing import ReleaseSession

CONFIDENCE_OF_THRESHOLD = Fraction(95, 100)

_FINE = 10**6  # steps of a sum: as good as real numbers
_STEP = Fraction(5, 4)  # from one ε that is tried to the next


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of a release."""

    epsilon: Fraction
    delta: Fraction

    def __str__(self) -> str:
        delta = f", δ {short(float(self.delta))}" if self.delta else ""
        return f"ε {float(self.epsilon):.6g}{delta}"


@dataclass(frozen=True)
class PlanStep:
    """One mechanism of a plan, in words. `share` is its share of ε or ρ."""

    what: str
    mechanism: str
    share: str
    error: str


@dataclass(frozen=True, repr=False)
class Plan:
    """A question with its mechanisms and price. Only `release` charges anything.

    Print a plan to see its cost, the error of each column, and how many rows of a person are used.

    Args:
        session: The session of the analyst who planned. `release` uses it; any session of the same data
            can release the plan instead, and is then the one that is charged.
        request: The request, as it is stored with the answer.
        question: The bound question.
        shares: How ε and δ are divided among the mechanisms.
        confidence: The probability with which each interval holds.
        n: The number of rows of a group, if it is known. Errors of averages depend on it.
        sampling: Whether intervals include the error of a sample of rows.
        why: How ε was found, if the analyst gave an accuracy instead.
        before: The mechanisms of the earlier releases that the answer will be combined with.

    Example:
        >>> plan = dataset.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
        >>> print(plan)
        >>> answer = plan.release()
    """

    session: ReleaseSession
    request: QueryRequest
    question: BoundQuery
    shares: BudgetShares
    confidence: Fraction
    n: int | None = None
    sampling: bool = False
    why: str = ""
    before: tuple[BudgetShares, ...] = ()

    @property
    def cost(self) -> Cost:
        """The price that the release will be charged."""
        needs_delta = self.shares.noise == "gaussian" or bool(self.shares.selected)
        return Cost(self.shares.epsilon, self.shares.delta if needs_delta else Fraction(0))

    @property
    def spread(self) -> dict[str, accuracy.Spread]:
        """The error of each column at the plan's confidence, with what was released before."""
        *before, last = self.before if self.is_stored else (*self.before, self.shares)
        return accuracy.spread(self.question, last, self.confidence, n=self.n, before=before)

    @property
    def is_stored(self) -> bool:
        """True if counts or sums were released at this price before: releasing the plan costs nothing."""
        return any(
            (one.epsilon, one.delta, one.noise, one.digest) == self.request.price for one in self.before
        )

    @property
    def headline(self) -> str:
        """The price in a sentence."""
        why = f" ({self.why})" if self.why else ""
        if self.is_stored:
            return f"Released before at {self.cost}{why}: its answer costs nothing."
        return f"Costs {self.cost}{why}; nothing is charged by looking."

    @property
    def blocks(self) -> list[str] | None:
        """The blocks that will be charged, or None if the policy has no blocks."""
        return self.session.curator.blocks_reached(self.question.source)

    @property
    def block_names(self) -> str | None:
        """The names of the first blocks that will be charged, or None if the policy has no blocks."""
        blocks = self.blocks
        return None if blocks is None else shortened_list(blocks)

    @property
    def statements(self) -> tuple[str, ...]:
        """The SQL statements that will run."""
        return self.session.curator.statements(self.question)

    @property
    def bounds(self) -> list[str]:
        """Sentences on how many rows of a person are used, and on what is known about the others."""
        find = partial(find_truncation, self.session, confidence=self.confidence)
        return truncation.truncation_sentences(self.session.curator.policy, self.question, find)

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

    def release(self, *, fresh: bool = False) -> Answer:
        """Charge the cost, compute, add noise, store and return the answer.

        Args:
            fresh: Release a new answer even if the same question has a stored one.

        Returns:
            The answer. The same question at the same price gives the stored answer, at no cost.

        Raises:
            OverBudget: If an account has too little left. Nothing is charged.
            BadParameter: If the source changed or cannot be read. Nothing is charged.
            Held: If the question was charged and failed. It waits until the curator clears the hold.
            InProgress: If the same question is being answered elsewhere.

        Example:
            >>> answer = plan.release()
        """
        return self.session.release(self, fresh=fresh)

    def dry_run(self) -> Answer:
        """Return an answer from generated rows of the same schema. It costs nothing and means nothing.

        Returns:
            An answer with `is_fake` set, in the form that the release will have.

        Example:
            >>> print(plan.dry_run())
        """
        return self.session.dry_run(self)

    def to_json(self) -> dict[str, Any]:
        """Return the whole plan as plain values for JSON. The cost is rounded up.

        Returns:
            The cost, the columns with their errors, the mechanisms, the bounds and the SQL.

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
                name: {"half": one.half, "formula": _plain(one.formula), "ranks": one.ranks}
                for name, one in self.spread.items()
            },
            "steps": [vars(step) for step in self.steps],
            "bounds": self.bounds,
            "blocks": self.blocks,
            "rows_of_a_person": self.question.rows,
            "statements": list(self.statements),
        }

    def __str__(self) -> str:
        lines = [self.headline]
        described = {name: describe_spread(one) for name, one in self.spread.items()}
        lines += [f"{name}: {words}" for name, words in described.items() if words]
        lines += [f"- {s.what}: {s.mechanism}, {s.share}; {s.error}" for s in self.steps]
        lines += [self.shares.reason] if self.shares.reason else []
        lines += self.bounds
        blocks = self.block_names
        lines += [] if blocks is None else [f"Charged blocks: {blocks}"]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from lapwing.sql.html_view import plan_html  # noqa: PLC0415 (it knows plans)

        return plan_html(self)


def plan_question(
    session: ReleaseSession,
    question: BoundQuery,
    name: str,
    *,
    epsilon: Number | None = None,
    within: Number | None = None,
    confidence: Number = "0.95",
    delta: Number | None = None,
    noise: str = "laplace",
    rows: int | None = None,
    n: int | None = None,
    sampling: bool = False,
    alone: bool = False,
) -> Plan:
    """Plan a bound question at a price or for an accuracy. The options are those of `Dataset.plan`.

    `name` stands for it in stored answers: its SQL in normal form. `rows` is the lower contribution bound
    that the analyst asked for; None is the policy's. `alone` leaves out what was released before.
    """
    policy, level, why = session.curator.policy, checked_confidence(confidence), ""
    delta = policy.delta_per_query if delta is None else delta
    n = accuracy.declared_size(policy, question) if n is None else checked_count(n, "n")

    def released() -> tuple[BudgetShares, ...]:
        return () if alone or sampling else session.released_before(question, name, rows)

    if epsilon is not None and within is None:
        shares = divide_budget(question, epsilon=epsilon, delta=delta, noise=noise)
        before = released()
    elif within is not None and epsilon is None:
        before = released()
        shares = accuracy.shares_for_width(
            question, within=within, confidence=level, delta=delta, noise=noise, n=n, before=before
        )
        is_enough = before and shares is before[-1]
        why = f"{'within' if is_enough else 'the least for'} ± {within} at {float(level):g} confidence"
    else:
        raise accuracy.not_one_given()

    def planned(shares: BudgetShares, why: str) -> Plan:
        request = QueryRequest(name, 0, shares.epsilon, shares.delta, shares.noise, rows, shares.digest)
        return Plan(session, request, question, shares, level, n, sampling, why, before)

    plan = planned(shares, why)
    is_known = not analysis.is_possible(question)
    if (not is_known and costs_enough(shares, policy)) or session.has_answer(plan):
        return plan
    if is_known:
        why = "no row can meet WHERE, by what the policy declares about the columns: the answer is known"
        raise Refused(why, "Nothing is charged for that. Ask about declared values")
    least = _least_shares(question, policy, delta, noise)
    if within is None:
        raise too_little(shares, policy, least.epsilon)
    why = f"the least for one question; ± {within} at {float(level):g} confidence needs less"
    return planned(least, why)


@lru_cache(maxsize=64)
def _most_questions(epsilon: Fraction, delta: Fraction, least: Fraction) -> tuple[Terms, Fraction]:
    """Return the terms of a budget, and how many sums at the least ε they admit, with rounding."""
    terms = Terms.of(epsilon, delta)
    one = LaplaceNoise(_FINE / least, _FINE)
    return terms, terms.how_many(terms.price(one)) * Fraction(101, 100)


def costs_enough(shares: BudgetShares, policy: Policy) -> bool:
    """Return whether a question costs as much as the least that the policy sells.

    Claim    a budget buys no more such questions than sums with Laplace noise at `least_epsilon`, but for a
             hundredth, which covers the rounding of scales and charges.
    Because  ε is not below it, and the filters of the budget are asked how many charges of each they admit:
             Gaussian noise with a tiny δ, or many aggregates that share ε, cost less than their ε.
    Test     tests/sql/test_plan_least_epsilon.py
    """
    if not policy.least_epsilon:
        return True
    terms, most = _most_questions(policy.epsilon, policy.delta, policy.least_epsilon)
    return shares.epsilon >= policy.least_epsilon and terms.how_many(terms.price(shares.loss)) <= most


def _least_shares(question: BoundQuery, policy: Policy, delta: Number, noise: str) -> BudgetShares:
    """Return shares that cost enough, at the least ε or a few steps above it."""
    epsilon = policy.least_epsilon
    while True:
        shares = divide_budget(question, epsilon=epsilon, delta=delta, noise=noise)
        if costs_enough(shares, policy):
            return shares
        epsilon = Fraction(round_up(epsilon * _STEP, EPSILON_UNIT), EPSILON_UNIT)


def too_little(shares: BudgetShares, policy: Policy, enough: Fraction | None = None) -> BadParameter:
    """Return the error of a question that costs less than the policy's least. `enough` is an ε for it."""
    least = f"{float_up(policy.least_epsilon):.10g}"
    now = "more" if enough is None else f"ε {float_up(enough):.10g} or more"
    why = ""
    if shares.epsilon >= policy.least_epsilon:
        why = "; Gaussian noise and several aggregates cost less than their ε"
    return BadParameter(
        "epsilon",
        f"asked ε {float(shares.epsilon):.6g}, but one question costs at least ε {least} here{why}. Ask "
        f"with {now}, or let the curator write a smaller budget.least_epsilon",
    )


def plan_truncation(  # noqa: PLR0917 (as for Dataset.truncated)
    session: ReleaseSession,
    table: str,
    epsilon: Number,
    rows: int | None,
    beyond: int | None,
    confidence: Number = "0.95",
    *,
    alone: bool = False,
) -> Plan:
    """Plan the question of `Dataset.truncated`. `alone` is that of `plan_question`."""
    question, name, lowered = truncation.truncation_question(session.curator.policy, table, rows, beyond)
    return plan_question(
        session, question, name, epsilon=epsilon, confidence=confidence, rows=lowered, alone=alone
    )


def find_truncation(
    session: ReleaseSession, table: str, rows: int | None, confidence: Fraction
) -> truncation.TruncationAnswer | None:
    """Return the last answer about truncated rows of the data as they are now. Costs nothing."""
    data = session.curator.current_data()
    if data is None:
        return None

    def stored(beyond: int | None) -> list[truncation.TruncationAnswer]:
        price = max(Fraction(1), session.curator.policy.least_epsilon)  # any: it is not asked
        plan = plan_truncation(session, table, price, rows, beyond, confidence, alone=True)
        return [truncation.TruncationAnswer(one, beyond) for one in session.last_answers(plan, data)]

    of_rows = [one for most in truncation.possible_beyond(session.curator.policy) for one in stored(most)]
    return max(of_rows or stored(None), key=lambda one: one.position, default=None)


def describe_spread(one: accuracy.Spread) -> str:
    """Return a spread in words, or "" if it makes no statement."""
    if one.half is not None:
        return f"± {grouped(one.half)}"
    if one.formula is not None:
        return f"± {one.formula}, n being the rows of the group"
    return f"rank within ±{grouped(one.ranks, 4)}" if one.ranks is not None else ""


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
