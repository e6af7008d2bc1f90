"""The case of shuffled reports: the exact law of the number of each message, beside the stated ε.

Claim    for few reports the law of the unordered reports is listed whole, whatever the others answered: all
         of them alike, or half and half. At the stated ε its excess must be at most δ.
Because  a multiset of reports is the number of each message. docs/arguments/shuffle.md has the bound.
Test     tests/audit/registry/test_shuffled_reports.py

For two options the bound is nearly exact, so that a small mistake in it is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from lapwing.audit import laws
from lapwing.audit.case import AuditCase, Family, Stage, StageBudget
from lapwing.audit.message_laws import all_messages
from lapwing.audit.stages.exact import ExactPair, exact_stage
from lapwing.core.losses import Approximate
from lapwing.survey.randomizers import KaryResponse, Randomizer, SubsetSelection, UnaryEncoding
from lapwing.survey.shuffled import shuffled_epsilon

ONE = Fraction(1)
DELTA = Fraction(1, 100)
# ε₀, reports and δ, with two options. In the first and last the bound equals the truth to six digits.
_SETTINGS = (
    (Fraction(2), 20, Fraction(1, 100)),
    (Fraction(1, 2), 60, Fraction(1, 100)),
    (ONE, 100, Fraction(1, 100)),
    (ONE, 20, Fraction(1, 10_000)),
)


def shuffled_case() -> AuditCase:
    """Return the case of shuffled reports."""
    stages = {Stage.EXACT: exact_stage(_pairs, epsilon=ONE, delta=DELTA)}
    name, covers = "survey: shuffled reports", (KaryResponse, SubsetSelection, UnaryEncoding)
    return AuditCase(name, Family.RANDOMIZER, covers, ONE, DELTA, stages)


def _pairs(budget: StageBudget) -> Iterator[ExactPair]:
    for local, reports, delta in _SETTINGS:
        coin = KaryResponse.for_epsilon(local, options=2)
        yield from _shuffled(f"ε₀ = {local}, two options", local, reports, delta, [coin])
        yield from _shuffled(f"ε₀ = {local}, any randomizer", local, reports, delta, [coin], is_named=False)
    if not budget.is_thorough:
        return
    for local in (ONE, Fraction(3)):
        three = KaryResponse.for_epsilon(local, options=3)
        for name, reports, randomizers in (
            ("three options", 12, [three]),
            ("subsets of four options", 5, [SubsetSelection.for_epsilon(local, options=4)]),
            ("unary, two options", 8, [UnaryEncoding.for_epsilon(local, options=2)]),
            ("two or three options, by chance", 6, [KaryResponse.for_epsilon(local, options=2), three]),
        ):
            yield from _shuffled(f"ε₀ = {local}, {name}", local, reports, DELTA, randomizers)


def _shuffled(
    name: str,
    local: Fraction,
    reports: int,
    delta: Fraction,
    randomizers: Sequence[Randomizer],
    *,
    is_named: bool = True,
) -> Iterator[ExactPair]:
    """Yield the laws of all reports, for two answers of one respondent, beside each kind of company."""
    epsilon = shuffled_epsilon(local, reports, delta, randomizers if is_named else None)
    loss = Approximate(epsilon, delta)
    zeros, ones = (_report(randomizers, answer) for answer in (0, 1))
    others = reports - 1
    for ones_besides in sorted({0, others // 2, others}):
        company = [zeros] * (others - ones_besides) + [ones] * ones_besides
        besides = _unordered(company, len(zeros))
        first, second = (_with_report(besides, own) for own in (zeros, ones))
        text = f"{name}: {reports} reports, {ones_besides} of the others answered 1; answers 0 and 1"
        yield ExactPair(text, first, second, loss, epsilon, delta)


@laws.precise
def _report(randomizers: Sequence[Randomizer], answer: int) -> list[Decimal]:
    """Return the probability of each message, of one of the randomizers by chance. It is seen which."""
    chance = Fraction(1, len(randomizers))
    return [
        laws.dec(chance * randomizer.probability(answer, bytes(message)))
        for randomizer in randomizers
        for message in all_messages(randomizer)
    ]


_Counts = dict[tuple[int, ...], Decimal]


def _unordered(reports: Sequence[list[Decimal]], messages: int) -> _Counts:
    """Return the law of the number of each message among independent reports."""
    law: _Counts = {(0,) * messages: Decimal(1)}
    for report in reports:
        law = _with_report(law, report)
    return law


@laws.precise
def _with_report(law: _Counts, report: Sequence[Decimal]) -> _Counts:
    longer: _Counts = {}
    for counts, p in law.items():
        for message, q in enumerate(report):
            more = (*counts[:message], counts[message] + 1, *counts[message + 1 :])
            longer[more] = longer.get(more, Decimal(0)) + p * q
    return longer
