"""Stored answers of the same question: found again by their shape, and numbered.

Answers of one *shape* (the data set, its version and the meaning of the question, but neither its price nor
the names of its columns) are numbered. Shape and number are the idempotency key of the charge. So the same
question finds its stored answer; the same question at another price finds the earlier answers to combine
with; a question that failed is found as well, and held. If the policy shares answers, all analysts have one
key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from lapwing.errors import BadParameter, Held, InProgress
from lapwing.ledger import DataSet, Receipt
from lapwing.ledger.request_status import RequestState
from lapwing.sql import policy_ledger
from lapwing.sql.answers import QueryRequest, answer_from_bytes
from lapwing.sql.meaning import query_digests
from lapwing.sql.noising import BudgetShares, NoisyGrouping, divide_budget
from lapwing.sql.plan import Plan
from lapwing.sql.truncated import registration

MOST_REPEATS = 10_000


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """A stored answer of the same shape."""

    request: QueryRequest
    noisy: list[NoisyGrouping]
    receipt: Receipt


def request_about(plan: Plan, data: DataSet) -> QueryRequest:
    """Return the request of a plan, with the version and the meaning that it has for a data set."""
    curator = plan.session.curator
    meaning, form = query_digests(curator.policy, plan.question, curator.public)
    return replace(plan.request, version=data.version, meaning=meaning, data=data.number, form=form)


def find_earlier(plan: Plan, request: QueryRequest) -> tuple[list[EarlierAnswer], str]:
    """Return the earlier answers of the same shape, and the key of the next one.

    An analyst with too many failures gets neither (`AllHeld`).
    """
    curator, analyst = plan.session.curator, plan.session.analyst
    policy_ledger.require_few_failures(curator.ledger, curator.policy, analyst)
    shares_answers = curator.policy.shares_answers
    if shares_answers:  # an analyst who may not ask may not read either
        policy_ledger.quota_of(curator.policy, analyst)
    old = replace(request, form="")
    found, _ = _stored(plan, replace(old, data=0), request.data)
    keys = []
    for shape, shared in ((old, False), (request, False), (request, True)):
        answers, key = _stored(plan, shape, request.data, shared=shared)
        found += answers
        keys.append(key)
    return sorted(found, key=lambda one: one.receipt.position), keys[1 + shares_answers]


def _stored(
    plan: Plan, request: QueryRequest, data: int, *, shared: bool = False
) -> tuple[list[EarlierAnswer], str]:
    """Return the stored answers of one shape, and the next free key; if `shared`, of all analysts.

    If the policy no longer shares answers, only the analyst who was charged sees them. Older entries do not
    name their data set. Their answer is used only if no other data set can have made it; one that failed or
    is under way stops every data set that may have asked it.
    """
    ledger, policy = plan.session.curator.ledger, plan.session.curator.policy
    shape = hashlib.sha256(request.shape.encode()).hexdigest()
    answers: list[EarlierAnswer] = []
    for repeat in range(MOST_REPEATS):
        key = f"{shape}:{repeat}"
        found = plan.session.gate.find(key, shared=shared)
        if found is None:
            return answers, key
        receipt = found.receipt
        is_own = receipt.record["by"] == ledger.principal(plan.session.analyst)
        if not is_own and not policy.shares_answers:
            continue
        possible = (
            {data} if request.data else policy_ledger.possible_data_sets(ledger, request.version, receipt)
        )
        if data not in possible:
            continue
        if found.state is RequestState.OPEN:
            raise InProgress
        if found.state is RequestState.ANSWERED:
            before, noisy = answer_from_bytes(found.answer)
            if len(possible) == 1:
                answers.append(EarlierAnswer(replace(before, data=data), noisy, receipt))
        elif receipt.position not in registration.cleared_holds(policy):
            raise Held(receipt.position)
    raise BadParameter("question", f"was asked {MOST_REPEATS:,} times: ask another one")


def readable_answers(plan: Plan, earlier: list[EarlierAnswer]) -> list[tuple[BudgetShares, EarlierAnswer]]:
    """Return the earlier answers whose mechanisms this code would choose again, with these mechanisms."""
    readable = []
    for one in earlier:
        request = one.request
        shares = divide_budget(
            plan.question, epsilon=request.epsilon, delta=request.delta, noise=request.noise
        )
        if shares.digest == request.mechanisms:
            readable.append((shares, one))
    return readable
