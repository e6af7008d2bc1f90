"""Planning: a bound question becomes a plan, at a price or for an accuracy. Nothing is read or charged.

Claim    planning reads no private row.
Because  a plan is made of the question's text, the policy, and what was released before.
Test     tests/sql/pricing/test_plan.py, tests/sql/test_planning_truncation.py
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from lapwing.config.values import checked_count
from lapwing.core.budget import EPSILON_UNIT
from lapwing.core.exact import Number, round_up
from lapwing.core.spread import checked_confidence
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.pricing import accuracy
from lapwing.sql.pricing.noise_shares import BudgetShares, divide_budget
from lapwing.sql.pricing.plan import (
    costs_enough,
    too_little,
)
from lapwing.sql.pricing.request import QueryRequest
from lapwing.sql.question import analysis, truncation_questions
from lapwing.sql.question.bind import NamedQuery
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.priced_text import priced_text
from lapwing.sql.question.refusal import Refused
from lapwing.sql.releasing import ReleaseSession, SessionPlan

_STEP = Fraction(5, 4)  # from one ε that is tried to the next


def plan_in_words(session: ReleaseSession, question: Any, **given: Any) -> SessionPlan:
    """Plan a question in words, whose SQL may hold options. `given` are those of `Dataset.plan`."""
    options = {name: value for name, value in given.items() if value is not None}
    text = priced_text(question)
    if text is not None:
        question, options = text.question, text.with_given(options)
    where_first, rows = options.pop("where_first", False), options.get("rows")
    (name, bound), *earlier = session.curator.bind(question, rows, where_first=where_first)
    if text is not None:
        text.require_meant(session.curator.policy, bound)
    return plan_question(session, bound, name, earlier_forms=earlier, **{"noise": "auto", **options})


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
    earlier_forms: Iterable[NamedQuery] = (),
) -> SessionPlan:
    """Plan a bound question at a price or for an accuracy. The options are those of `Dataset.plan`.

    `name` stands for it in stored answers: its SQL in normal form. `rows` is the lower contribution bound
    that the analyst asked for; None is the policy's. `alone` leaves out what was released before.
    `earlier_forms` are those of `Plan`.
    """
    policy, level, why = session.curator.policy, checked_confidence(confidence), ""
    delta = policy.delta_per_query if delta is None else delta
    look = session.look()
    n = accuracy.declared_size(policy, question) if n is None else checked_count(n, "n")

    def released() -> tuple[BudgetShares, ...]:
        return () if alone or sampling else look.released(question, name, rows)

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

    def planned(shares: BudgetShares, why: str) -> SessionPlan:
        request = QueryRequest(name, 0, shares.epsilon, shares.delta, shares.noise, rows, shares.digest)
        return SessionPlan(
            request, question, shares, level, n, sampling, why, before, blocks, bounds,
            session.data_digest(question), tuple(earlier_forms), session=session,
        )  # fmt: skip

    reached = session.curator.blocks_reached(question.source)
    blocks, bounds = None if reached is None else tuple(reached), session.bounds(question, level, look)
    plan = planned(shares, why)
    is_known = not analysis.is_possible(question)
    if (not is_known and costs_enough(shares, policy)) or session.has_answer(plan):
        return plan
    if is_known:
        why = "no row can meet WHERE, by what the policy declares about the columns: the answer is known"
        raise Refused(why, "Nothing is charged for that. Ask about declared values")
    least = least_shares(question, policy, delta, noise)
    if within is None:
        raise too_little(shares, policy, least.epsilon)
    why = f"the least for one question; ± {within} at {float(level):g} confidence needs less"
    return planned(least, why)


def least_shares(question: BoundQuery, policy: CheckedPolicy, delta: Number, noise: str) -> BudgetShares:
    """Return shares that cost enough, at the least ε or a few steps above it."""
    epsilon = policy.least_epsilon
    while True:
        shares = divide_budget(question, epsilon=epsilon, delta=delta, noise=noise)
        if costs_enough(shares, policy):
            return shares
        epsilon = Fraction(round_up(epsilon * _STEP, EPSILON_UNIT), EPSILON_UNIT)


def plan_truncation(  # noqa: PLR0917 (as for Dataset.truncated)
    session: ReleaseSession,
    table: str,
    epsilon: Number,
    rows: int | None,
    beyond: int | None,
    confidence: Number = "0.95",
    *,
    alone: bool = False,
) -> SessionPlan:
    """Plan the question of `Dataset.truncated`. `alone` is that of `plan_question`."""
    question, name, lowered = truncation_questions.truncation_question(
        session.curator.policy, table, rows, beyond
    )
    return plan_question(
        session, question, name, epsilon=epsilon, confidence=confidence, rows=lowered, alone=alone
    )
