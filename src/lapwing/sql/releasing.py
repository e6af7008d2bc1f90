"""The release of one plan: charge, compute, add noise, store, return; or what was stored before.

Answers of one *shape* (data set and its version, what the question means; not the price, nor what it calls
its columns) are numbered, and the number is the idempotency key of its charge. So the same question finds
its stored answer, another price finds the earlier ones to combine with, and one that failed is found, too,
and held. Where the policy shares answers, the key is one for all analysts: all of this holds for whoever
asks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lapwing.core.losses import Relation
from lapwing.errors import BadParameter, Held, InProgress, KeyReused, WorkEnded
from lapwing.ledger import DataSet, Receipt
from lapwing.ledger import gate as gates
from lapwing.ledger.gate import Gate
from lapwing.ledger.request_status import RequestState
from lapwing.sql import policy_ledger
from lapwing.sql.answers import (
    Answer,
    QueryRequest,
    answer_from_bytes,
    answer_to_bytes,
    can_combine,
    combine_releases,
)
from lapwing.sql.binding.bind import query_digests
from lapwing.sql.estimates import estimate
from lapwing.sql.noising import BudgetShares, NoisyGrouping, add_noise, divide_budget
from lapwing.sql.plan import Plan
from lapwing.sql.policy_ledger import require_few_failures
from lapwing.sql.relation import needs_new_ranks
from lapwing.sql.truncated import registration

if TYPE_CHECKING:
    from lapwing.sql.dataset import Dataset


MOST_REPEATS = 10_000
SLOW_NOTE = "Slower than it could be: run `lapwing prepare` once."


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """An earlier answer of the same shape."""

    asked: QueryRequest
    noisy: list[NoisyGrouping]
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Releasing:
    """One plan on its way."""

    dataset: Dataset
    plan: Plan

    def release(self, *, fresh: bool) -> Answer:
        """The stored answer, or a new one."""
        dataset, plan, asked = self.dataset, self.plan, self._asked(self.dataset.data())
        gate = Gate(dataset.ledger, principal=dataset.analyst)
        earlier, key = self._earlier(gate, asked)
        same = [one for one in earlier if one.asked.price == asked.price]
        if same and not fresh:
            return self._answer(same[-1].noisy, same[-1].receipt, plan.shares, is_replay=True)
        # What is wrong with source or question is told before a charge; a stored answer needs neither.
        dataset.require_readable(asked.version)
        with dataset.reading(plan.question) as reader:
            reader.require_plan(plan.question)
        try:
            work = gates.ChargedRelease(self._spending(asked), self._run(asked))
            done = gate.release(work, key=key, shared=dataset.policy.shares_answers)
        except KeyReused:  # at another price, or in other words, since we looked
            raise InProgress from None
        except WorkEnded:
            found = gate.find(key, shared=dataset.policy.shares_answers)
            position = found.receipt.position if found else 0
            require_few_failures(dataset, besides=position)
            raise Held(position) from None
        require_few_failures(dataset, besides=done.receipt.position)  # it was under way when others failed
        _, noisy = answer_from_bytes(done.answer)
        answer = self._answer(noisy, done.receipt, plan.shares, is_replay=done.is_replay)
        return self._beside(answer, earlier, noisy)

    def stored(self, data: DataSet) -> Answer | None:
        """Find the last answer of this shape about `data`, or None. A change of the source is no error."""
        dataset = self.dataset
        try:
            gate = Gate(dataset.ledger, principal=dataset.analyst)
            earlier, _ = self._earlier(gate, self._asked(data))
        except (InProgress, Held):  # one that is under way or failed must not keep other plans from view
            return None
        found = [(own, one) for one in earlier if (own := self._shares(one.asked)) is not None]
        if not found:
            return None
        shares, last = found[-1]
        return self._answer(last.noisy, last.receipt, shares, is_replay=True)

    def _asked(self, data: DataSet) -> QueryRequest:
        dataset, plan = self.dataset, self.plan
        meaning, form = query_digests(dataset.policy, plan.question, dataset.public)
        return replace(plan.asked, version=data.version, meaning=meaning, data=data.number, form=form)

    def _beside(self, answer: Answer, earlier: list[EarlierAnswer], noisy: list[NoisyGrouping]) -> Answer:
        """Combined with earlier answers where that is possible, else with them at its side."""
        found = [(own, one) for one in earlier if (own := self._shares(one.asked)) is not None]
        if not found:
            return answer
        if can_combine(self.plan.question) and not self.plan.sampling:
            releases = [*((own, one.noisy[0]) for own, one in found), (self.plan.shares, noisy[0])]
            rows = combine_releases(releases, answer.rows, self.plan.confidence)
            return replace(answer, rows=rows, of=len(releases))
        beside = [self._answer(one.noisy, one.receipt, own, is_replay=True) for own, one in found]
        return replace(answer, earlier=tuple(beside))

    def _spending(self, asked: QueryRequest) -> gates.Spending:
        dataset, plan = self.dataset, self.plan
        blocks = plan.blocks
        if blocks == []:
            raise BadParameter("WHERE", "reaches no block: there is nothing to ask about")
        return gates.Spending(
            targets=policy_ledger.targets_of(dataset.ledger, dataset.policy, dataset.analyst, blocks or ()),
            loss=plan.shares.loss,
            unit=policy_ledger.unit_of(dataset.policy),
            relation=Relation.ADD_REMOVE,
            mechanism="private SQL",
            parameters={
                "noise": plan.shares.noise,
                "epsilon": str(plan.shares.epsilon),
                "delta": str(plan.cost.delta),
                "rows of a unit": plan.question.rows,
                "releases": len(plan.steps),
            },
            request=answer_to_bytes(asked, ()),
            keeps_request=True,
        )

    def _run(self, asked: QueryRequest) -> Callable[[], bytes]:
        def run() -> bytes:
            with self.dataset.reading(self.plan.question) as reader:
                exact = reader.exact(self.plan.question)
            if self.dataset.version() != asked.version:  # it may be about people who were not charged
                raise BadParameter("source", "changed while it was read")
            return answer_to_bytes(asked, add_noise(self.plan.shares, exact, record=self.dataset.record))

        return run

    def _earlier(self, gate: Gate, asked: QueryRequest) -> tuple[list[EarlierAnswer], str]:
        """Earlier answers of the same shape, and the key of the next one. Who is held gets neither."""
        require_few_failures(self.dataset)
        policy = self.dataset.policy
        if policy.shares_answers:
            policy_ledger.quota_of(policy, self.dataset.analyst)  # who may not ask may not read either
        old = replace(asked, form="")
        found, _ = self._stored(gate, replace(old, data=0), asked.data)
        keys = []
        for shape, shared in ((old, False), (asked, False), (asked, True)):
            answers, key = self._stored(gate, shape, asked.data, shared=shared)
            found += answers
            keys.append(key)
        return sorted(found, key=lambda one: one.receipt.position), keys[1 + policy.shares_answers]

    def _stored(
        self, gate: Gate, asked: QueryRequest, data: int, *, shared: bool = False
    ) -> tuple[list[EarlierAnswer], str]:
        """Find the stored answers of one shape, and the next free key; if `shared`, of all analysts.

        A policy that shares no more leaves shared answers to those who were charged. Older entries do not
        name their data set. Their answer is used only if no other data set can have made it; one that
        failed or is under way stops every data set that may have asked it.
        """
        shape = hashlib.sha256(asked.shape.encode()).hexdigest()
        answers: list[EarlierAnswer] = []
        for repeat in range(MOST_REPEATS):
            key = f"{shape}:{repeat}"
            found = gate.find(key, shared=shared)
            if found is None:
                return answers, key
            ledger, receipt = self.dataset.ledger, found.receipt
            is_own = receipt.record["by"] == ledger.principal(self.dataset.analyst)
            if not is_own and not self.dataset.policy.shares_answers:
                continue
            makers = (
                {data} if asked.data else policy_ledger.possible_data_sets(ledger, asked.version, receipt)
            )
            if data not in makers:
                continue
            if found.state is RequestState.OPEN:
                raise InProgress
            if found.state is RequestState.ANSWERED:
                before, noisy = answer_from_bytes(found.answer)
                if len(makers) == 1:
                    answers.append(EarlierAnswer(replace(before, data=data), noisy, receipt))
            elif receipt.position not in registration.cleared_holds(self.dataset.policy):
                raise Held(receipt.position)
        raise BadParameter("question", f"was asked {MOST_REPEATS:,} times: ask another one")

    def _shares(self, asked: QueryRequest) -> BudgetShares | None:
        """The mechanisms of an earlier answer; None if this code would take others."""
        found = divide_budget(
            self.plan.question, epsilon=asked.epsilon, delta=asked.delta, noise=asked.noise
        )
        return found if found.digest == asked.mechanisms else None

    def _notes(self, *, is_replay: bool) -> tuple[str, ...]:
        own = self.dataset
        made, own.notices[:] = tuple(own.notices), ()
        slow = not is_replay and not own.is_prepared and not needs_new_ranks(self.plan.question.source)
        return (*made, SLOW_NOTE) if slow else made

    def _answer(
        self, noisy: list[NoisyGrouping], receipt: Receipt, shares: BudgetShares, *, is_replay: bool
    ) -> Answer:
        plan = self.plan
        rows = estimate(shares, noisy, confidence=plan.confidence, agree=True, sampling=plan.sampling)
        return Answer(
            rows,
            str(replace(plan, shares=shares).cost),
            float(plan.confidence),
            receipt,
            is_replay,
            left=self.dataset.left(),
            notes=self._notes(is_replay=is_replay),
            truncation=tuple(plan.bounds),
        )
