"""Several questions as one release: priced together, charged once, answered all or none.

Claim    all answers of a batch together have the batch's loss, and that is charged before a row is read.
Because  the questions and their mechanisms are fixed before any answer; so the loss of all mechanisms is
         the sum of their bounds, as for the aggregates of one question. It is one charge in the ledger,
         and one stored answer. A block that any question reaches pays the whole.
Test     tests/sql/test_batches.py, tests/faults/test_query_faults.py; docs/arguments/query-noise.md

Claim    a batch costs at most the sum of its questions' prices. A question that was released before at its
         price, alone or in a batch, costs nothing again.
Because  bounds are added exactly and rounded up once; answers are looked up before a charge, and a batch
         that would charge more than its plan says is refused.
Test     tests/sql/test_batches.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import takewhile
from typing import Any

from lapwing.config.values import shortened_list
from lapwing.core import loss_curves
from lapwing.core.exact import Number, float_up, positive
from lapwing.core.losses import Loss, SequentialComposition, checked_delta
from lapwing.errors import BadParameter, Held, KeyReused, WorkEnded
from lapwing.ledger import ChargedRead, DataSet, Release, Spending
from lapwing.ledger.entry import request_digest
from lapwing.ledger.request_status import RequestState
from lapwing.sql import policy_ledger
from lapwing.sql.answering.answers import Answer
from lapwing.sql.answering.noisy_numbers import NoisyGrouping, add_noise
from lapwing.sql.answering.stored_answers import batch_from_bytes, batch_to_bytes
from lapwing.sql.earlier_answers import EarlierAnswer
from lapwing.sql.planning import plan_in_words
from lapwing.sql.pricing.cost import Cost
from lapwing.sql.pricing.plan import Plan, costs_enough, too_little
from lapwing.sql.pricing.request import batch_key
from lapwing.sql.question import meaning
from lapwing.sql.question.relation import needs_new_ranks
from lapwing.sql.reading.exact_numbers import ExactGrouping
from lapwing.sql.reading.reader import Reader
from lapwing.sql.releasing import FoundAnswers, ReleaseSession, SessionPlan, require_version

MOST_QUESTIONS = 100
MOST_BATCHES = 10_000  # of one version of the data
Question = Any  # SQL, or an object that can be turned into SQL; with options, a pair of both
_Asked = tuple[SessionPlan, FoundAnswers]
_Identity = tuple[Any, ...]


@dataclass(frozen=True, repr=False)
class BatchPlan:
    """Several planned questions with one price. Print it to see the price, or release it.

    Args:
        plans: The plan of each question, in the order in which they were asked.
        session: The session that planned them.
        charged: The places of the plans that will be charged: neither stored nor repeated.

    Example:
        >>> count, average = "SELECT COUNT(*) FROM visits", "SELECT AVG(stay) FROM visits"
        >>> batch = dataset.batch([count, average], epsilon=1)
        >>> print(batch.cost)
        ε 1
        >>> counted, average = batch.release()
    """

    plans: tuple[SessionPlan, ...]
    session: ReleaseSession = field(compare=False)
    charged: tuple[int, ...]

    @property
    def loss(self) -> Loss:
        """The privacy loss of all questions that will be charged, together."""
        return _loss([self.plans[place] for place in self.charged])

    @property
    def cost(self) -> Cost:
        """The price of the batch. ε is the sum of the single ones, or less if their δ together allow it."""
        return _cost([self.plans[place] for place in self.charged])

    @property
    def blocks(self) -> tuple[str, ...] | None:
        """The blocks that will be charged, each with the whole price; None if the policy has no blocks."""
        reached = [self.plans[place].blocks for place in self.charged]
        if any(blocks is None for blocks in reached):
            return None
        return tuple(dict.fromkeys(block for blocks in reached for block in blocks or ()))

    def release(self, *, version: int | None = None) -> list[Answer]:
        """Charge the batch once, compute all answers, store them together and return them.

        Args:
            version: The version of the data that is asked. If there is a later one, only stored answers are
                given. None: the current one.

        Returns:
            The answers, in the order of the questions. They have one receipt, but those of questions that
            were released before keep theirs. The same batch again costs nothing.

        Raises:
            OverBudget: If an account has too little left. Nothing is charged.
            BadParameter: If the source changed, or the batch would charge more than it says.
            Held: If the batch was charged and failed. It waits until the curator clears the hold.
            InProgress: If the same batch is being answered elsewhere.

        Example:
            >>> answers = batch.release()
        """
        return _release(self, version)

    def dry_run(self) -> list[Answer]:
        """Return answers from generated rows, in the form of the release. They cost and mean nothing.

        Returns:
            Answers with `is_fake` set, in the order of the questions.

        Example:
            >>> batch.dry_run()[0].is_fake
            True
        """
        return [plan.dry_run() for plan in self.plans]

    def to_json(self) -> dict[str, Any]:
        """Return the batch as plain values for JSON. The price is rounded up.

        Returns:
            The price of the batch, the blocks that pay it, and each plan.

        Example:
            >>> batch.to_json()["cost"]
            {'epsilon': 1.0, 'delta': 0.0}
        """
        return {
            "cost": {"epsilon": float_up(self.cost.epsilon), "delta": float_up(self.cost.delta)},
            "charged": list(self.charged),
            "blocks": None if self.blocks is None else list(self.blocks),
            "plans": [plan.to_json() for plan in self.plans],
        }

    def __str__(self) -> str:
        free = len(self.plans) - len(self.charged)
        some = f" {free} of them cost nothing: they are stored, or stand here twice." if free else ""
        lines = [f"{len(self.plans)} questions cost {self.cost} together, as one charge.{some}"]
        if self.blocks is not None:
            lines.append(f"Charged blocks: {shortened_list(list(self.blocks))}")
        return "\n".join([*lines, *(f"\n{plan.request.sql}\n{plan}" for plan in self.plans)])

    __repr__ = __str__


def plan_batch(
    session: ReleaseSession,
    questions: Iterable[Question],
    *,
    epsilon: Number | None,
    delta: Number | None,
    weights: Sequence[Number] | None,
) -> BatchPlan:
    """Plan several questions as one release. See `Dataset.batch`."""
    asked = [_with_options(one) for one in questions]
    if not 1 <= len(asked) <= MOST_QUESTIONS:
        raise BadParameter("questions", f"must be 1 to {MOST_QUESTIONS}, and are {len(asked)}")
    prices: list[dict[str, Any]] = [{} for _ in asked]
    if epsilon is not None:
        shares = _shares(weights, len(asked))
        prices = [{"epsilon": positive(epsilon, "epsilon") * share} for share in shares]
        if delta is not None:
            for price, share in zip(prices, shares, strict=True):
                price["delta"] = checked_delta(delta) * share
    elif weights is not None or delta is not None:
        raise BadParameter("epsilon", "must be given with weights and delta: it is what they divide")
    plans = []
    for (question, options), price in zip(asked, prices, strict=True):
        if both := sorted(price.keys() & options.keys()):
            raise BadParameter(both[0], "is given for the batch and for a question: give it in one place")
        plans.append(plan_in_words(session, question, **options, **price))
    return BatchPlan(tuple(plans), session, _charged(session, plans))


def _with_options(question: Question) -> tuple[Any, Mapping[str, Any]]:
    if not isinstance(question, tuple):
        return question, {}
    if len(question) != 2 or not isinstance(question[1], Mapping):
        raise BadParameter("questions", "must be SQL, or pairs of SQL and its options by name")
    known = (
        "epsilon", "within", "confidence", "delta", "noise", "rows", "n", "sampling", "where_first",
    )  # fmt: skip
    if unknown := [name for name in question[1] if name not in known]:
        raise BadParameter("questions", f"have no option {unknown[0]!r}. Options: {', '.join(known)}")
    return question[0], question[1]


def _shares(weights: Sequence[Number] | None, size: int) -> list[Fraction]:
    exact = [positive(weight, "weights") for weight in (weights if weights is not None else [1] * size)]
    if len(exact) != size:
        raise BadParameter("weights", f"must be one for each question: {size}")
    return [weight / sum(exact) for weight in exact]


def _charged(session: ReleaseSession, plans: Sequence[SessionPlan]) -> tuple[int, ...]:
    """Return the places of the plans that a release would charge."""
    known: set[_Identity] = set()
    places = []
    for place, plan in enumerate(plans):
        what = _identity(session, plan)
        if what not in known and not session.has_answer(plan):
            places.append(place)
        known.add(what)
    return tuple(places)


def _identity(session: ReleaseSession, plan: SessionPlan) -> _Identity:
    """Return what makes two questions one: what is computed, by any column names, and the price."""
    curator = session.curator
    form = meaning.query_digests(curator.policy, plan.question, curator.public)[1]
    return form, plan.request.rows, plan.request.price


def _loss(plans: Sequence[SessionPlan]) -> Loss:
    """Return the loss of plans that are fixed before any of them is released."""
    losses = tuple(plan.shares.loss for plan in plans)
    return losses[0] if len(losses) == 1 else SequentialComposition(losses)


def _cost(plans: Sequence[SessionPlan]) -> Cost:
    epsilon = sum((plan.cost.epsilon for plan in plans), Fraction(0))
    delta = sum((plan.cost.delta for plan in plans), Fraction(0))
    together = loss_curves.epsilon_of(_loss(plans), delta) if len(plans) > 1 and delta else None
    return Cost(epsilon if together is None else min(epsilon, together), delta)


def _release(batch: BatchPlan, version: int | None) -> list[Answer]:
    session, curator = batch.session, batch.session.curator
    with curator.keeping_open():
        for plan in batch.plans:
            session.require_same_data(plan)
        first = min(
            (plan.question for plan in batch.plans), key=lambda question: needs_new_ranks(question.source)
        )
        current = curator.data(first)
        data = current if version is None else replace(current, version=version)
        looked_up = [session.look_up(plan, data) for plan in batch.plans]
        wanted: dict[_Identity, _Asked] = {}
        for plan, asked in looked_up:
            if asked.answer is None:
                wanted.setdefault(_identity(session, plan), (plan, asked))
        if not wanted.keys() <= {_identity(session, batch.plans[place]) for place in batch.charged}:
            raise BadParameter(
                "batch",
                "would charge more than was planned: an answer that was stored then is not stored for the "
                "data as they are now. Plan it again. Nothing was charged",
            )
        if wanted:
            require_version(data.version, current.version)
        new = _charge(session, wanted, data) if wanted else None
        answers = []
        for plan, asked in looked_up:
            answer = asked.answer
            if answer is None:
                assert new is not None
                what = _identity(session, plan)
                # One that stands there twice has column names of its own.
                answer = session.new_answer(
                    plan, new.known(what, asked), new.answers[what].noisy, new.release, is_fast=new.is_fast
                )
            answers.append(answer)
        return answers


@dataclass(frozen=True, slots=True)
class _Done:
    """A batch that was charged: the answer to each question, in the order in which they are stored."""

    release: Release
    answers: dict[_Identity, EarlierAnswer]
    is_fast: bool

    def known(self, what: _Identity, asked: FoundAnswers) -> FoundAnswers:
        """Return what is known of a question, with the answers of its shape that stand before it here."""
        before = takewhile(lambda other: other != what, self.answers)
        alike = [self.answers[other] for other in before]
        alike = [plan for plan in alike if plan.request.shape == asked.request.shape]
        return asked._replace(earlier=[*asked.earlier, *alike])


def _charge(session: ReleaseSession, asked_by: Mapping[_Identity, _Asked], data: DataSet) -> _Done:
    """Charge questions as one release, and return their numbers."""
    wanted = list(asked_by.values())
    curator, questions = session.curator, [plan.question for plan, _ in wanted]
    for plan, _ in wanted:
        if not costs_enough(plan.shares, curator.policy):  # a stored answer was repeated before
            raise too_little(plan.shares, curator.policy)
    spending = _spending(session, wanted)
    is_fast = True
    for question in questions:
        is_fast &= curator.require_answerable(
            data.version, partial(Reader.require_plan, query=question), question, spending
        )
    slowest = max(questions, key=lambda question: needs_new_ranks(question.source))
    noisy: list[list[NoisyGrouping]] = []

    def read() -> list[list[ExactGrouping]]:
        exact = []
        for question in questions:
            with curator.reading(question) as reader:
                exact.append(reader.exact(question))
        return exact

    def finish(exact: list[list[ExactGrouping]]) -> bytes:
        noisy.extend(add_noise_to_each([plan for plan, _ in wanted], exact))
        return batch_to_bytes(
            [(asked.request, numbers) for (_, asked), numbers in zip(wanted, noisy, strict=True)]
        )

    done = _released(
        session,
        lambda number: ChargedRead(
            gate=curator.gate(session.analyst, slowest),
            spending=spending,
            key=batch_key(data.number, data.version, number),
            shared=curator.policy.shares_answers,
            version=data.version,
            current_version=curator.version,
        ),
        read,
        finish,
    )
    session.require_few_failures(done.receipt.position)  # others may have failed meanwhile
    numbers = [stored for _, stored in batch_from_bytes(done.answer)] if done.is_replay else noisy
    answers = {
        what: EarlierAnswer(asked.request, numbers_of_it, done.receipt)
        for (what, (_, asked)), numbers_of_it in zip(asked_by.items(), numbers, strict=True)
    }
    return _Done(done, answers, is_fast)


def add_noise_to_each(
    plans: Iterable[Plan], exact: Iterable[list[ExactGrouping]]
) -> list[list[NoisyGrouping]]:
    """Return the noisy numbers of each question of a batch. The auditor replays this function."""
    return [add_noise(plan.shares, numbers) for plan, numbers in zip(plans, exact, strict=True)]


def _released(session: ReleaseSession, charged_read: Any, read: Any, finish: Any) -> Release:
    """Release under the first number that no other batch has. Raises `Held` if this batch failed before."""
    for number in range(MOST_BATCHES):
        charged: ChargedRead = charged_read(number)
        status = charged.find()
        if status is not None:
            mine = request_digest(str(charged.key), charged.spending.digest)
            is_cleared = status.state not in (RequestState.ANSWERED, RequestState.OPEN) and not (
                policy_ledger.is_held(session.curator.policy, status.receipt.position)
            )
            if status.receipt.request != mine or is_cleared:
                continue
        try:
            return charged.release(read, finish)
        except KeyReused:  # another batch took this number meanwhile
            continue
        except WorkEnded:
            ended = charged.find()
            position = ended.receipt.position if ended else 0
            session.require_few_failures(position)
            raise Held(position) from None
    raise BadParameter("batch", f"is one of more than {MOST_BATCHES:,}: ask another one")


def _spending(session: ReleaseSession, wanted: Sequence[_Asked]) -> Spending:
    curator, plans = session.curator, [plan for plan, _ in wanted]
    reached = [curator.blocks_reached(plan.question.source) for plan in plans]
    if [] in reached:
        raise BadParameter("WHERE", "reaches no block: there is nothing to ask about")
    blocks = (
        None if None in reached else list(dict.fromkeys(label for some in reached for label in some or ()))
    )
    cost = _cost(plans)
    return Spending(
        targets=curator.targets_of_blocks(session.analyst, blocks),
        loss=_loss(plans),
        unit=curator.unit,
        relation=policy_ledger.RELATION,
        mechanism="private SQL",
        parameters={
            "questions": len(plans),
            "epsilon": str(Fraction(cost.epsilon)),
            "delta": str(Fraction(cost.delta)),
            "rows of a unit": max(plan.question.rows for plan in plans),
            "releases": sum(len(plan.steps) for plan in plans),
        },
        request=batch_to_bytes([(asked.request, ()) for _, asked in wanted]),
        keeps_request=True,
    )
