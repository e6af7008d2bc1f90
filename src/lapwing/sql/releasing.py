"""The release of a plan: charge, compute, add noise, store, return; or return what was stored before.

Claim    an answer is charged before any private row is read for it, is stored before it is returned, and
         is computed from bounded tables of the version that the charge names.
Because  rows are read by `ChargedRead` only; errors of the source or the question are raised before the
         charge.
Test     tests/query/test_dataset.py, tests/query/test_releasing.py, tests/faults/test_query_faults.py

Answers of one *shape* (the data set, its version and the meaning of the question, but neither its price nor
the names of its columns) are numbered. Shape and number are the idempotency key of the charge. So the same
question finds its stored answer; the same question at another price finds the earlier answers to combine
with; a question that failed is found as well, and held. If the policy shares answers, all analysts have one
key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from fractions import Fraction

from lapwing.core.losses import Relation
from lapwing.errors import BadParameter, Held, InProgress, KeyReused, WorkEnded
from lapwing.ledger import ChargedRead, DataSet, Gate, Receipt, Spending
from lapwing.ledger.request_status import RequestState
from lapwing.sql import policy_ledger
from lapwing.sql.accuracy import AccuracyOrPrice
from lapwing.sql.answers import (
    Answer,
    QueryRequest,
    answer_from_bytes,
    answer_to_bytes,
    can_combine,
    combine_releases,
)
from lapwing.sql.binding.bind import query_digests
from lapwing.sql.bound_query import BoundQuery
from lapwing.sql.curator import Curator
from lapwing.sql.estimates import estimate
from lapwing.sql.noising import BudgetShares, ExactGrouping, NoisyGrouping, add_noise, divide_budget
from lapwing.sql.plan import Plan, TruncationAnswer, plan_question
from lapwing.sql.policy import Policy
from lapwing.sql.policy_ledger import require_few_failures
from lapwing.sql.preliminary_questions import ROWS_BEYOND, truncation_plan
from lapwing.sql.relation import needs_new_ranks, undo_where_first
from lapwing.sql.truncated import registration
from lapwing.sql.truncated.prepare import has_blocks_by_arrival
from lapwing.sql.truncated.reader import fake_reader

MOST_REPEATS = 10_000
SLOW_NOTE = "Slower than it could be: run `lapwing prepare` once."


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """A stored answer of the same shape."""

    request: QueryRequest
    noisy: list[NoisyGrouping]
    receipt: Receipt


def release(plan: Plan, *, fresh: bool = False) -> Answer:
    """Return the stored answer of a plan, or charge and make a new one. See `Plan.release`."""
    curator = plan.curator
    with curator.keeping_open():
        request = _request(plan, curator.data())
        gate = Gate(curator.ledger, principal=plan.analyst)
        earlier, key = _earlier(plan, gate, request)
        same = [one for one in earlier if one.request.price == request.price]
        if same and not fresh:
            return _answer(plan, same[-1].noisy, same[-1].receipt, plan.shares, is_replay=True)
        return _new_answer(plan, gate, request, key, earlier)


def release_with_policy(  # noqa: PLR0917 (as for plan_question)
    curator: Curator, analyst: str, policy: Policy, question: BoundQuery, name: str, price: AccuracyOrPrice
) -> tuple[Answer, BudgetShares]:
    """Release a question under a policy with other columns of the same tables, on the same ledger.

    No copy holds such columns, so the answer does not advise to prepare one.
    """
    with curator.with_policy(policy) as other:
        plan = plan_question(other, analyst, question, name, price)
        answer = release(plan)
    return replace(answer, notes=tuple(note for note in answer.notes if note != SLOW_NOTE)), plan.shares


def charged_read(plan: Plan, gate: Gate, request: QueryRequest, key: str) -> ChargedRead:
    """Return the charged read that releases a plan under a key."""
    curator = plan.curator
    spending = Spending(
        targets=curator.targets(plan.analyst, plan.question),
        loss=plan.shares.loss,
        unit=policy_ledger.unit_of(curator.policy),
        relation=Relation.ADD_REMOVE,
        mechanism="private SQL",
        parameters={
            "noise": plan.shares.noise,
            "epsilon": str(plan.shares.epsilon),
            "delta": str(plan.cost.delta),
            "rows of a unit": plan.question.rows,
            "releases": len(plan.steps),
        },
        request=answer_to_bytes(request, ()),
        keeps_request=True,
    )
    return ChargedRead(
        gate=gate,
        spending=spending,
        key=key,
        shared=curator.policy.shares_answers,
        version=request.version,
        current_version=curator.version,
    )


def _new_answer(
    plan: Plan, gate: Gate, request: QueryRequest, key: str, earlier: list[EarlierAnswer]
) -> Answer:
    curator, question = plan.curator, plan.question
    # Errors of the source or the question are raised before a charge. A stored answer needs neither.
    is_prepared = curator.require_answerable(
        request.version, lambda reader: reader.require_plan(question), question
    )
    charged = charged_read(plan, gate, request, key)

    def read() -> list[ExactGrouping]:
        with curator.reading(question) as reader:
            return reader.exact(question)

    def finish(exact: list[ExactGrouping]) -> bytes:
        return answer_to_bytes(request, add_noise(plan.shares, exact, record=curator.record))

    def require_few(position: int) -> None:
        require_few_failures(curator.ledger, curator.policy, plan.analyst, besides=position)

    try:
        done = charged.release(read, finish)
    except KeyReused:  # asked at another price, or in other words, since we looked
        raise InProgress from None
    except WorkEnded:
        found = charged.find()
        position = found.receipt.position if found else 0
        require_few(position)
        raise Held(position) from None
    require_few(done.receipt.position)  # others may have failed while this was under way
    _, noisy = answer_from_bytes(done.answer)
    answer = _answer(plan, noisy, done.receipt, plan.shares, is_replay=done.is_replay)
    if not (done.is_replay or is_prepared or needs_new_ranks(question.source)):
        answer = replace(answer, notes=(*answer.notes, SLOW_NOTE))
    return _beside(plan, answer, earlier, noisy)


def _beside(plan: Plan, answer: Answer, earlier: list[EarlierAnswer], noisy: list[NoisyGrouping]) -> Answer:
    """Combine an answer with earlier ones if that is possible; else put these at its side."""
    readable = _readable(plan, earlier)
    if not readable:
        return answer
    if can_combine(plan.question) and not plan.sampling:
        releases = [*((shares, one.noisy[0]) for shares, one in readable), (plan.shares, noisy[0])]
        rows = combine_releases(releases, answer.rows, plan.confidence)
        return replace(answer, rows=rows, of=len(releases))
    beside = [_answer(plan, one.noisy, one.receipt, shares, is_replay=True) for shares, one in readable]
    return replace(answer, earlier=tuple(beside))


def stored_answer(plan: Plan, data: DataSet) -> Answer | None:
    """Return the last answer of a plan's shape about `data`, or None. Ignore changes of the source."""
    try:
        gate = Gate(plan.curator.ledger, principal=plan.analyst)
        earlier, _ = _earlier(plan, gate, _request(plan, data))
    except (InProgress, Held):  # an answer that is under way or failed must not hide other plans
        return None
    readable = _readable(plan, earlier)
    if not readable:
        return None
    shares, last = readable[-1]
    return _answer(plan, last.noisy, last.receipt, shares, is_replay=True)


def find_truncation(
    curator: Curator, analyst: str, table: str, rows: int | None, confidence: Fraction
) -> TruncationAnswer | None:
    """Return the analyst's last answer about truncated rows of the data as they are now. Costs nothing."""
    if not curator.has_ledger:
        return None
    data = policy_ledger.find_data_set(curator.ledger, curator.policy)
    if data is None or not registration.is_current(curator.policy, data.version):
        return None

    def stored(beyond: int | None) -> list[TruncationAnswer]:
        plan = truncation_plan(curator, analyst, table, 1, rows, beyond, confidence)
        answer = stored_answer(plan, data)
        return [] if answer is None else [TruncationAnswer(answer, beyond)]

    of_rows = (
        []
        if has_blocks_by_arrival(curator.policy)
        else [one for most in ROWS_BEYOND for one in stored(most)]
    )
    return max(of_rows or stored(None), key=lambda one: one.position, default=None)


def dry_run(plan: Plan) -> Answer:
    """Return an answer of a plan from generated rows. See `Plan.dry_run`."""
    reader = fake_reader(plan.curator.policy, plan.curator.public)
    try:
        question = replace(plan.question, source=undo_where_first(plan.question.source))
        noisy = add_noise(plan.shares, reader.exact(question))
    finally:
        reader.close()
    rows = estimate(plan.shares, noisy, confidence=plan.confidence, sampling=plan.sampling)
    about, level = tuple(plan.bounds), float(plan.confidence)
    return Answer(rows, str(plan.cost), level, None, is_fake=True, truncation=about)


def _request(plan: Plan, data: DataSet) -> QueryRequest:
    curator = plan.curator
    meaning, form = query_digests(curator.policy, plan.question, curator.public)
    return replace(plan.request, version=data.version, meaning=meaning, data=data.number, form=form)


def _earlier(plan: Plan, gate: Gate, request: QueryRequest) -> tuple[list[EarlierAnswer], str]:
    """Return the earlier answers of the same shape, and the key of the next one.

    An analyst with too many failures gets neither (`AllHeld`).
    """
    curator = plan.curator
    require_few_failures(curator.ledger, curator.policy, plan.analyst)
    shares_answers = curator.policy.shares_answers
    if shares_answers:
        policy_ledger.quota_of(
            curator.policy, plan.analyst
        )  # an analyst who may not ask may not read either
    old = replace(request, form="")
    found, _ = _stored(plan, gate, replace(old, data=0), request.data)
    keys = []
    for shape, shared in ((old, False), (request, False), (request, True)):
        answers, key = _stored(plan, gate, shape, request.data, shared=shared)
        found += answers
        keys.append(key)
    return sorted(found, key=lambda one: one.receipt.position), keys[1 + shares_answers]


def _stored(
    plan: Plan, gate: Gate, request: QueryRequest, data: int, *, shared: bool = False
) -> tuple[list[EarlierAnswer], str]:
    """Return the stored answers of one shape, and the next free key; if `shared`, of all analysts.

    If the policy no longer shares answers, only the analyst who was charged sees them. Older entries do not
    name their data set. Their answer is used only if no other data set can have made it; one that failed or
    is under way stops every data set that may have asked it.
    """
    curator = plan.curator
    ledger, policy = curator.ledger, curator.policy
    shape = hashlib.sha256(request.shape.encode()).hexdigest()
    answers: list[EarlierAnswer] = []
    for repeat in range(MOST_REPEATS):
        key = f"{shape}:{repeat}"
        found = gate.find(key, shared=shared)
        if found is None:
            return answers, key
        receipt = found.receipt
        is_own = receipt.record["by"] == ledger.principal(plan.analyst)
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


def _readable(plan: Plan, earlier: list[EarlierAnswer]) -> list[tuple[BudgetShares, EarlierAnswer]]:
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


def _answer(
    plan: Plan, noisy: list[NoisyGrouping], receipt: Receipt, shares: BudgetShares, *, is_replay: bool
) -> Answer:
    curator = plan.curator
    return Answer(
        estimate(shares, noisy, confidence=plan.confidence, sampling=plan.sampling),
        str(replace(plan, shares=shares).cost),
        float(plan.confidence),
        receipt,
        is_replay,
        left=policy_ledger.budget_left(curator.ledger, curator.policy, plan.analyst),
        notes=curator.take_notices(),
        truncation=tuple(plan.bounds),
    )
