"""The release of a plan: charge, compute, add noise, store, return; or return what was stored before.

Claim    an answer is charged before any private row is read for it, is stored before it is returned, and
         is computed from bounded tables of the version that the charge names.
Because  rows are read by `ChargedRead` only; errors of the source or the question are raised before the
         charge.
Test     tests/sql/test_dataset.py, tests/sql/test_releasing.py, tests/faults/test_query_faults.py

A `Plan` holds values alone, and so do all functions that price, print or store one. Analysts get a
`SessionPlan`: these values, and beside them the session that releases them, which no comparison sees and
any other session can stand in for. It is a plan, not the owner of one: an owner would forward each of the
dozen attributes that people read of a plan, and every function that shows plans would have to take both.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeVar

from lapwing.errors import BadParameter, Held, InProgress, KeyReused, WorkEnded
from lapwing.ledger import ChargedRead, DataSet, Gate, Receipt, Release, Spending
from lapwing.ledger.readiness import newest_position
from lapwing.ledger.request_status import RequestState, status_at
from lapwing.sql import policy_ledger
from lapwing.sql.answering import estimates
from lapwing.sql.answering.answers import Answer, AnswerCharge
from lapwing.sql.answering.combining import combine_releases
from lapwing.sql.answering.noisy_numbers import NoisyGrouping, add_noise
from lapwing.sql.answering.stored_answers import answer_from_bytes, answer_to_bytes, requests_in
from lapwing.sql.answering.truncation import truncation_sentences
from lapwing.sql.curator import Curator
from lapwing.sql.earlier_answers import EarlierAnswer, EarlierAnswers, ReadableAnswer, readable_answers
from lapwing.sql.policy.policy import CheckedPolicy, account_label
from lapwing.sql.pricing.combined_widths import can_combine
from lapwing.sql.pricing.cost import BudgetLeft
from lapwing.sql.pricing.noise_shares import BudgetShares
from lapwing.sql.pricing.plan import Plan, costs_enough, too_little
from lapwing.sql.pricing.request import QueryRequest
from lapwing.sql.question import meaning
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.reading import generated_rows
from lapwing.sql.reading.exact_numbers import ExactGrouping

SLOW_NOTE = "Slower than it could be: run `lapwing prepare` once."
P = TypeVar("P", bound=Plan)


def require_version(asked: int, current: int) -> None:
    """Refuse to charge for another version of the data than the one that was asked."""
    if asked != current:
        raise BadParameter(
            "plan",
            f"was made for version {asked} of the data, and now there is version {current}. Plan the "
            "question again. Nothing was charged",
        )


class FoundAnswers(NamedTuple):
    """What an analyst may see of a question: its request, the key of a next answer, and earlier answers."""

    request: QueryRequest
    key: str
    earlier: list[EarlierAnswer]
    answer: Answer | None = None  # the stored answer at the price of the request


@dataclass(frozen=True, slots=True)
class ReleaseSession:
    """The releases of one analyst."""

    curator: Curator
    analyst: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "analyst", policy_ledger.checked_analyst(self.analyst))

    @property
    def gate(self) -> Gate:
        """The gate of this analyst, to look up earlier requests."""
        return Gate(self.curator.ledger, principal=self.analyst)

    @contextmanager
    def with_policy(self, policy: CheckedPolicy) -> Iterator[ReleaseSession]:
        """Lend a session under a policy with other columns of the same tables, on the same ledger."""
        with self.curator.with_policy(policy) as other:
            yield ReleaseSession(other, self.analyst)

    def release(
        self, plan: Plan, *, fresh: bool = False, since: float = math.inf, version: int | None = None
    ) -> Answer:
        """Return the stored answer of a plan, or charge and make a new one. See `Plan.release`.

        This session's analyst is charged, and this session's stored answers are looked up, whoever planned.

        Args:
            plan: The plan.
            fresh: Whether earlier answers do not count.
            since: The ledger's position from which on an answer counts as the fresh one. With it, a fresh
                release can be repeated: it is charged once.
            version: The version of the data that is asked. If there is a later one, only a stored answer
                is given. None: the current one.
        """
        with self.curator.keeping_open():
            self.require_same_data(plan)
            current = self.curator.data(plan.question)
            data = current if version is None else replace(current, version=version)
            plan, found = self.look_up(plan, data, since=since if fresh else None)
            if found.answer is not None:
                return found.answer
            require_version(data.version, current.version)
            return self._new_answer(plan, found)

    def look_up(self, plan: P, data: DataSet, *, since: float | None = None) -> tuple[P, FoundAnswers]:
        """Return a plan with what this analyst knows now, and the earlier answers about it. Costs nothing.

        Plans may be old, and who planned may know more. `since`: only answers with a later receipt count as
        the stored one.
        """
        look = self.look()
        plan = replace(plan, bounds=self.bounds(plan.question, plan.confidence, look))
        request, *others = look.requests_about(plan.question, plan.request, data)
        earlier, key = look.find(request)
        asked = request.price[:3]  # an answer of older code has the mechanisms of its time
        for question, stored in ((plan.question, earlier), *look.only_repeated(plan, others, data)):
            readable = readable_answers(question, stored)
            counts = [one for one in readable if since is None or one[1].receipt.position > since]
            same = [one for one in counts if one[1].request.price[:3] == asked]
            if same:
                shares, last = same[-1]
                own = replace(plan, question=question, shares=shares)
                answer = self._answer(own, last.noisy, last.receipt, is_replay=True)
                return plan, FoundAnswers(request, key, earlier, self._combined(own, answer, readable))
        return plan, FoundAnswers(request, key, earlier)

    @property
    def position(self) -> int:
        """The number of the ledger's newest entry: answers that are released later have greater ones."""
        if not self.curator.has_ledger:
            return 0
        return newest_position(self.curator.ledger)

    def stored(self, position: int, confidence: Fraction, *, place: int = 0) -> tuple[str, Answer] | None:
        """Return the question and the stored answer of a receipt; None if this analyst may see none there.

        The receipt of a batch has several: `place` is that of the question, from 0. An answer that was
        combined with earlier ones is combined with the same ones again. Nothing is charged. Answers that
        were given under another policy are not found.
        """
        curator = self.curator
        data = policy_ledger.find_data_set(curator.ledger, curator.policy) if curator.has_ledger else None
        status = None if data is None else status_at(curator.ledger, position)
        if data is None or status is None or status.state is not RequestState.ANSWERED:
            return None
        if not self._may_see(status.receipt):  # at once: the time tells nothing about others' questions
            return None
        try:
            asked = requests_in(status.answer)[place]
        except (ValueError, KeyError, TypeError, IndexError):  # of a model, a publication or a protocol
            return None
        look, of_version = self.look(), replace(data, version=asked.version)
        for where_first in (False, True):
            try:
                (_, question), *_ = curator.bind(asked.sql, asked.rows, where_first=where_first)
            except BadParameter:
                return None
            for request in look.requests_about(question, asked, of_version):
                readable = readable_answers(question, look.find(request)[0])
                wanted = position, asked.price  # a batch may have several prices of one question
                places = [(one.receipt.position, one.request.price) for _, one in readable]
                if wanted in places:
                    readable = readable[: places.index(wanted) + 1]
                    shares, last = readable[-1]
                    bounds = self.bounds(question, confidence, look)
                    plan = Plan(last.request, question, shares, confidence, bounds=bounds)
                    answer = self._answer(plan, last.noisy, last.receipt, is_replay=True)
                    return asked.sql, self._combined(plan, answer, readable)
        return None

    def _may_see(self, receipt: Receipt) -> bool:
        """Return whether a charge is for these data, and this analyst's unless answers are shared."""
        ledger, policy = self.curator.ledger, self.curator.policy
        charged = {ledger.numbered(debit[0]).label for debit in receipt.record["debits"]}
        is_own = receipt.principal == self.analyst
        return account_label(policy) in charged and (is_own or policy.shares_answers)

    def data_digest(self, question: BoundQuery) -> str:
        """Return a digest of the policy, and of the public rows that a question reads."""
        curator = self.curator
        rows = meaning.public_rows_digest(question.source, curator.public)
        return hashlib.sha256(f"{curator.policy_digest}{rows}".encode()).hexdigest()

    def require_same_data(self, plan: Plan) -> None:
        """Refuse a plan that was made for another policy, or with other public rows."""
        if plan.data_digest != self.data_digest(plan.question):
            raise BadParameter(
                "plan",
                f'was made for other data than "{self.curator.policy.name}" as it is declared here: plan '
                "the question in this session",
            )

    def look(self) -> EarlierAnswers:
        """Return the earlier answers that this analyst may see, for one plan or one release."""
        return EarlierAnswers(self.curator, self.analyst)

    def bounds(self, question: BoundQuery, confidence: Fraction, look: EarlierAnswers) -> tuple[str, ...]:
        """Return sentences on how many rows of a person are used, and what is known about the others."""
        find = partial(look.truncation, confidence=confidence)
        return tuple(truncation_sentences(self.curator.policy, question, find))

    def spending(self, plan: Plan, request: QueryRequest) -> Spending:
        """Return the price of a plan, with the accounts that pay it."""
        return Spending(
            targets=self.curator.targets(self.analyst, plan.question),
            loss=plan.shares.loss,
            unit=self.curator.unit,
            relation=policy_ledger.RELATION,
            mechanism="private SQL",
            parameters={
                "noise": plan.shares.noise,
                "epsilon": str(plan.shares.epsilon),
                "delta": str(Fraction(plan.cost.delta)),
                "rows of a unit": plan.question.rows,
                "releases": len(plan.steps),
            },
            request=answer_to_bytes(request, ()),
            keeps_request=True,
        )

    def _new_answer(self, plan: Plan, asked: FoundAnswers) -> Answer:
        request = asked.request
        curator, question = self.curator, plan.question
        if not costs_enough(plan.shares, curator.policy):  # a stored answer was repeated before
            raise too_little(plan.shares, curator.policy)
        # Errors of the source or the question are raised before a charge. A stored answer needs neither.
        spending = self.spending(plan, request)
        is_fast = curator.require_answerable(
            request.version, lambda reader: reader.require_plan(question), question, spending
        )
        charged = ChargedRead(
            gate=curator.gate(self.analyst, question),
            spending=spending,
            key=asked.key,
            shared=curator.policy.shares_answers,
            version=request.version,
            current_version=curator.version,
        )
        noisy: list[NoisyGrouping] = []

        def read() -> list[ExactGrouping]:
            with curator.reading(question) as reader:
                return reader.exact(question)

        def finish(exact: list[ExactGrouping]) -> bytes:
            noisy.extend(add_noise(plan.shares, exact))
            return answer_to_bytes(request, noisy)

        try:
            done = charged.release(read, finish)
        except KeyReused:  # asked at another price, or in other words, since we looked
            raise InProgress from None
        except WorkEnded:
            status = charged.find()
            position = status.receipt.position if status else 0
            self.require_few_failures(position)
            raise Held(position) from None
        self.require_few_failures(done.receipt.position)  # others may have failed meanwhile
        if done.is_replay:
            _, noisy = answer_from_bytes(done.answer)
        return self.new_answer(plan, asked, noisy, done, is_fast=is_fast)

    def new_answer(
        self, plan: Plan, asked: FoundAnswers, noisy: list[NoisyGrouping], done: Release, *, is_fast: bool
    ) -> Answer:
        """Return the answer of a charged release, with those that it is combined with or stands beside."""
        answer = self._answer(plan, noisy, done.receipt, is_replay=done.is_replay)
        if not (done.is_replay or is_fast):
            answer = replace(answer, notes=(*answer.notes, SLOW_NOTE))
        readable = readable_answers(plan.question, asked.earlier)
        if can_combine(plan.question) and not plan.sampling:
            return self._combined(plan, answer, readable, (plan.shares, noisy[0]))
        beside = [
            self._answer(
                replace(plan, shares=shares), earlier_answer.noisy, earlier_answer.receipt, is_replay=True
            )
            for shares, earlier_answer in readable
        ]
        return replace(answer, earlier=tuple(beside))

    def require_few_failures(self, position: int) -> None:
        """Raise `AllHeld` if too many questions of this analyst failed, not counting one receipt."""
        policy_ledger.require_few_failures(
            self.curator.ledger, self.curator.policy, self.analyst, besides=position
        )

    def _combined(
        self,
        plan: Plan,
        answer: Answer,
        readable: list[ReadableAnswer],
        *newest: tuple[BudgetShares, NoisyGrouping],
    ) -> Answer:
        """Return an answer with the narrowest intervals that all releases give, if they can be combined."""
        if len(readable) + len(newest) < 2 or plan.sampling or not can_combine(plan.question):
            return answer
        releases = [*((shares, earlier_answer.noisy[0]) for shares, earlier_answer in readable), *newest]
        rows = combine_releases(releases, answer.rows, plan.confidence)
        return replace(answer, rows=rows, of=len(releases))

    def has_answer(self, plan: Plan) -> bool:
        """Return whether a plan has a stored answer at its price. Costs nothing."""
        look = self.look()
        if look.current_data is None:
            return False
        request, *others = look.requests_about(plan.question, plan.request, look.current_data)
        try:
            earlier = look.find(request)[0]
            repeated = look.only_repeated(plan, others, look.current_data)
            earlier += [answer for _, answers in repeated for answer in answers]
        except (InProgress, Held):
            return False
        return any(stored.request.price == request.price for stored in earlier)

    def is_held(self, plan: Plan) -> bool:
        """Return whether a question waits for the curator, or all of this analyst do. Costs nothing."""
        look = self.look()
        if look.current_data is None:
            return False
        try:
            look.find(look.requests_about(plan.question, plan.request, look.current_data)[0])
        except InProgress:
            return False
        except Held:
            return True
        return False

    def left(self) -> BudgetLeft:
        """Return what is left of the budget, and of the analyst's quota if there is one."""
        return policy_ledger.budget_left(self.curator.ledger, self.curator.policy, self.analyst)

    def dry_run(self, plan: Plan) -> Answer:
        """Return an answer of a plan from generated rows. See `Plan.dry_run`."""
        self.require_same_data(plan)
        curator = self.curator
        exact = generated_rows.generated_numbers(curator.policy, curator.public, plan.question)
        noisy = add_noise(plan.shares, exact)
        rows = estimates.estimate(plan.shares, noisy, confidence=plan.confidence, sampling=plan.sampling)
        return Answer(rows, float(plan.confidence), is_fake=True, truncation=plan.bounds)

    def _answer(
        self, plan: Plan, noisy: list[NoisyGrouping], receipt: Receipt, *, is_replay: bool
    ) -> Answer:
        return Answer(
            estimates.estimate(plan.shares, noisy, confidence=plan.confidence, sampling=plan.sampling),
            float(plan.confidence),
            AnswerCharge(plan.cost, receipt, self.left()),
            is_replay,
            notes=self.curator.take_notices(),
            truncation=plan.bounds,
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class SessionPlan(Plan):
    """A plan with the session of the analyst who made it, which can release it.

    Args:
        session: The session. Another one can release the same plan, and is then the one that is charged.

    Example:
        >>> plan = dataset.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
        >>> answer = plan.release()
    """

    session: ReleaseSession = field(compare=False)

    @property
    def statements(self) -> tuple[str, ...]:
        """The SQL statements that will run."""
        return self.session.curator.statements(self.question)

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
        """Return the whole plan as plain values for JSON, with its SQL. The cost is rounded up.

        Returns:
            The cost, the columns with their errors, the mechanisms, the bounds and the SQL.

        Example:
            >>> plan.to_json()["cost"]
            {'epsilon': 0.5, 'delta': 0.0}
        """
        return {**super().to_json(), "statements": list(self.statements)}
