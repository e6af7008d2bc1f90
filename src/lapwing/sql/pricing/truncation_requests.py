"""The requests about truncated rows of a table, as their answers are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.pricing.request import QueryRequest
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.meaning import query_digests_by_ranks
from lapwing.sql.question.relation import needs_new_ranks
from lapwing.sql.question.truncation_questions import possible_beyond, truncation_question


@dataclass(frozen=True, slots=True)
class TruncationRequest:
    """A question about truncated rows, with its request about one version of the data.

    Args:
        beyond: How many truncated rows of a person it counts at most; None if it counts only people.
        question: The bound question.
        requests: Its request; and that of answers from rows that were chosen by the other rule, if that is
            another one.
        keys: The keys of their first answers, and whether they are shared.
    """

    beyond: int | None
    question: BoundQuery
    requests: tuple[QueryRequest, ...]
    keys: tuple[tuple[str, bool], ...]


def truncation_requests(
    policy: CheckedPolicy, table: str, rows: int, *, version: int, data: int, earlier_ranks: bool
) -> tuple[TruncationRequest, ...]:
    """Return all requests about truncated rows of a table at a contribution bound.

    Args:
        policy: The policy.
        table: A private table.
        rows: The contribution bound.
        version: The version of the data.
        data: The ledger's number of the data set.
        earlier_ranks: Whether equal rows of a unit were not yet numbered in the prepared copy.
    """
    asked = []
    for beyond in (*possible_beyond(policy), None):
        question, name, lowered = truncation_question(policy, table, rows, beyond)
        blank = QueryRequest(name, version, Fraction(0), Fraction(0), "", lowered, "", data=data)
        earlier = earlier_ranks and not needs_new_ranks(question.source)
        both = query_digests_by_ranks(policy, question, {})
        own_first = dict.fromkeys((both[earlier], both[not earlier]))
        requests = tuple(replace(blank, meaning=named, form=form) for named, form in own_first)
        keys = tuple(key for request in requests for key in request.first_keys)
        asked.append(TruncationRequest(beyond, question, requests, keys))
    return tuple(asked)
