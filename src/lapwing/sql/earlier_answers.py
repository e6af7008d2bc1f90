"""Earlier answers: those that the ledger keeps for an analyst, by the shape of their question.

Answers of one *shape* (the data set, its version and the meaning of the question, but neither its price nor
the names of its columns) are numbered. Shape and number are the idempotency key of the charge. So the same
question finds its stored answer; the same question at another price finds the earlier answers to combine
with; a question that failed is found as well, and held. If the policy shares answers, all analysts have one
key. A batch has a key of its own: those of one version are numbered, and a look-up reads them in turn.

Claim    a look-up shows an analyst the own answers, and those of others only where the policy shares them.
         It is right whatever other threads and processes stored before it.
Because  nothing is kept between two look-ups but the keys to look for. The ledger says in one statement
         which of them were used, and only these are read: by the ids of the analyst, or of everybody.
Test     tests/sql/test_earlier_answers.py, tests/sql/test_releasing_sharing.py
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial

from lapwing.core.order_statistics import STEEPNESS
from lapwing.errors import BadParameter, Held, InProgress
from lapwing.ledger import DataSet, Gate, Receipt
from lapwing.ledger.request_status import RequestState, RequestStatus
from lapwing.sql import policy_ledger
from lapwing.sql.answering import estimates
from lapwing.sql.answering.combining import combine_releases
from lapwing.sql.answering.kept_answers import LARGEST_BATCH, LARGEST_KEPT
from lapwing.sql.answering.noisy_numbers import NoisyGrouping
from lapwing.sql.answering.stored_answers import answer_from_bytes, batch_from_bytes
from lapwing.sql.answering.truncation import TruncationAnswer
from lapwing.sql.curator import Curator
from lapwing.sql.pricing.combined_widths import can_combine
from lapwing.sql.pricing.noise_shares import BudgetShares, divide_budget
from lapwing.sql.pricing.plan import Plan
from lapwing.sql.pricing.request import QueryRequest, batch_key
from lapwing.sql.pricing.truncation_requests import TruncationRequest
from lapwing.sql.question import meaning
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.relation import needs_new_ranks

MOST_REPEATS = 10_000
UsedKeys = Collection[tuple[str, bool]]


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """A stored answer of the same shape."""

    request: QueryRequest
    noisy: list[NoisyGrouping]
    receipt: Receipt


ReadableAnswer = tuple[BudgetShares, EarlierAnswer]


class EarlierAnswers:
    """The stored answers that one analyst may see, for one plan or one release.

    Make a new one for each: the state of the copy, and whether the analyst may see anything, are looked up
    once.
    """

    def __init__(self, curator: Curator, analyst: str) -> None:
        self._curator, self._analyst = curator, analyst
        self._is_allowed = False

    @cached_property
    def _gate(self) -> Gate:
        return Gate(self._curator.ledger, principal=self._analyst)

    @cached_property
    def current_data(self) -> DataSet | None:
        """The registered data set, or None if there is none, or its source changed."""
        return self._curator.current_data()

    @cached_property
    def _copy_has_earlier_ranks(self) -> bool:
        return self._curator.copy_has_earlier_ranks()

    def _require_allowed(self) -> None:
        """Refuse an analyst with too many failures (`AllHeld`). Who may not ask may not read either."""
        if not self._is_allowed:
            policy = self._curator.policy
            policy_ledger.require_few_failures(self._curator.ledger, policy, self._analyst)
            if policy.shares_answers:
                policy_ledger.quota_of(policy, self._analyst)
            self._is_allowed = True

    def requests_about(
        self, question: BoundQuery, request: QueryRequest, data: DataSet
    ) -> tuple[QueryRequest, ...]:
        """Return a request about a question, with the version and the meaning that it has for a data set.

        Where it differs, the request of answers from rows that were chosen by the other rule follows:
        before equal rows of a unit were numbered, or since then.
        """
        earlier = self._copy_has_earlier_ranks and not needs_new_ranks(question.source)
        both = meaning.query_digests_by_ranks(self._curator.policy, question, self._curator.public)
        return tuple(
            replace(request, version=data.version, meaning=named, data=data.number, form=form)
            for named, form in dict.fromkeys((both[earlier], both[not earlier]))
        )

    def find(self, request: QueryRequest, used: UsedKeys | None = None) -> tuple[list[EarlierAnswer], str]:
        """Return the earlier answers of the same shape, and the key of the next one.

        An analyst with too many failures gets neither (`AllHeld`).

        Args:
            request: The request. Its price does not count.
            used: The first keys that were used, if that was looked up.
        """
        self._require_allowed()
        keys, answers = [], []
        if used is None:
            batches = [(batch_key(request.data, request.version, 0), shared) for shared in (False, True)]
            used = self._gate.used_keys([*request.first_keys, *batches])
            for first, shared in batches:
                answers += self._in_batches(request, shared=shared) if (first, shared) in used else []
        for shape, shared in request.stored_forms:
            stored, key = self._stored(shape, request.data, used, shared=shared)
            answers += stored
            keys.append(key)
        wanted = keys[-1] if self._curator.policy.shares_answers else keys[-2]
        return sorted(answers, key=lambda answer: answer.receipt.position), wanted

    def only_repeated(
        self, plan: Plan, others: Sequence[QueryRequest], data: DataSet
    ) -> Iterator[tuple[BoundQuery, list[EarlierAnswer]]]:
        """Yield the stored answers that are given again, at no charge, and with which nothing is combined.

        These are answers from rows that were chosen by the other rule (the requests `others`): their
        expected values differ. And those to what earlier versions made of the same question, which is
        yielded with them: it says what the stored numbers are.
        """
        yield plan.question, [answer for request in others for answer in self.find(request)[0]]
        for text, question in plan.earlier_forms:
            requests = self.requests_about(question, replace(plan.request, sql=text), data)
            yield question, [answer for request in requests for answer in self.find(request)[0]]

    def released(self, question: BoundQuery, name: str, rows: int | None) -> tuple[BudgetShares, ...]:
        """Return the mechanisms of the earlier releases that a new one is combined with. Costs nothing."""
        data = self.current_data if can_combine(question) else None
        if data is None:
            return ()
        blank = QueryRequest(name, 0, Fraction(0), Fraction(0), "", rows, "")
        try:
            earlier, _ = self.find(self.requests_about(question, blank, data)[0])
        except (InProgress, Held, BadParameter):  # the release will say so
            return ()
        return tuple(shares for shares, _ in readable_answers(question, earlier))

    def truncation(self, table: str, rows: int, *, confidence: Fraction) -> TruncationAnswer | None:
        """Return the last answer about truncated rows of the data as they are now. Costs nothing."""
        data = self.current_data
        if data is None:
            return None
        asked = self._curator.truncation_requests(
            table, rows, version=data.version, data=data.number, earlier_ranks=self._copy_has_earlier_ranks
        )
        try:
            self._require_allowed()
        except Held:
            return None
        used = self._gate.used_keys([key for request in asked for key in request.keys])
        possible = [
            self._truncation(request, used, confidence)
            for request in asked
            if used.intersection(request.keys)
        ]
        stored = [answer for answer in possible if answer is not None]
        of_rows = [answer for answer in stored if answer.beyond is not None]
        return max(of_rows or stored, key=lambda answer: answer.position, default=None)

    def _truncation(
        self, asked: TruncationRequest, used: UsedKeys, confidence: Fraction
    ) -> TruncationAnswer | None:
        try:
            earlier: list[EarlierAnswer] = []
            for request in asked.requests:
                earlier = earlier or self.find(request, used)[0]
        except (InProgress, Held):  # such a request must not hide the answers of others
            return None
        made_of = asked.keys, confidence, tuple(answer.receipt.position for answer in earlier)
        estimate = partial(truncation_answer, asked, earlier, confidence)
        return self._curator.kept.truncation(made_of, estimate)

    def _status(self, key: str, *, shared: bool, largest: int = LARGEST_KEPT) -> RequestStatus | None:
        look_up = partial(self._gate.find, key, shared=shared)
        return self._curator.kept.status((self._analyst, key, shared), look_up, largest=largest)

    def _in_batches(self, request: QueryRequest, *, shared: bool) -> list[EarlierAnswer]:
        """Return the stored answers of one shape that were released in batches; if `shared`, of everybody.

        Batches that are under way or failed are left out: `lapwing.sql.batches` holds them.
        """
        earlier: list[EarlierAnswer] = []
        for number in range(MOST_REPEATS):
            key = batch_key(request.data, request.version, number)
            status = self._status(key, shared=shared, largest=LARGEST_BATCH)
            if status is None:
                break
            if status.state is RequestState.ANSWERED and self._may_see(status.receipt):
                earlier += [
                    EarlierAnswer(asked, noisy, status.receipt)
                    for asked, noisy in batch_from_bytes(status.answer)
                    if asked.shape == request.shape
                ]
        return earlier

    def _may_see(self, receipt: Receipt) -> bool:
        """Return whether the analyst was charged, or the policy shares answers."""
        is_own = receipt.record["by"] == self._curator.ledger.find_principal(self._analyst)
        return bool(is_own or self._curator.policy.shares_answers)

    def _stored(
        self, request: QueryRequest, data: int, used: UsedKeys, *, shared: bool
    ) -> tuple[list[EarlierAnswer], str]:
        """Return the stored answers of one shape, and the next free key; if `shared`, of all analysts.

        If the policy no longer shares answers, only the analyst who was charged sees them. Older entries do
        not name their data set. Their answer is used only if no other data set can have made it; one that
        failed or is under way stops every data set that may have asked it.
        """
        key = request.key(0)
        if (key, shared) not in used:
            return [], key
        ledger, policy = self._curator.ledger, self._curator.policy
        earlier: list[EarlierAnswer] = []
        for repeat in range(MOST_REPEATS):
            key = request.key(repeat)
            status = self._status(key, shared=shared)
            if status is None:
                return earlier, key
            receipt = status.receipt
            if not self._may_see(receipt):
                continue
            possible = (
                {data}
                if request.data
                else policy_ledger.possible_data_sets(ledger, request.version, receipt)
            )
            if data not in possible:
                continue
            if status.state is RequestState.OPEN:
                raise InProgress
            if status.state is RequestState.ANSWERED:
                before, noisy = answer_from_bytes(status.answer)
                if len(possible) == 1:
                    earlier.append(EarlierAnswer(replace(before, data=data), noisy, receipt))
            elif policy_ledger.is_held(policy, receipt.position):
                raise Held(receipt.position)
        raise BadParameter("question", f"was asked {MOST_REPEATS:,} times: ask another one")


def readable_answers(question: BoundQuery, earlier: list[EarlierAnswer]) -> list[ReadableAnswer]:
    """Return the earlier answers whose mechanisms this code knows, with these mechanisms."""
    readable = []
    for answer in earlier:
        epsilon, delta, noise, mechanisms = answer.request.price
        for steepness in (STEEPNESS, 1):  # MIN and MAX once had 1
            shares = divide_budget(question, epsilon=epsilon, delta=delta, noise=noise, steepness=steepness)
            if shares.digest == mechanisms:
                readable.append((shares, answer))
                break
    return readable


def truncation_answer(
    asked: TruncationRequest, earlier: list[EarlierAnswer], confidence: Fraction
) -> TruncationAnswer | None:
    """Return the numbers about truncated rows that earlier answers to a request give together."""
    question = asked.question
    readable = readable_answers(question, earlier)
    if not readable:
        return None
    shares, last = readable[-1]
    released = estimates.estimate(shares, last.noisy, confidence=confidence)
    if len(readable) > 1 and can_combine(question):
        both = [(its_shares, answer.noisy[0]) for its_shares, answer in readable]
        released = combine_releases(both, released, confidence)
    return TruncationAnswer(released, asked.beyond, last.receipt.position)
