"""All messages are listed, and classes of messages give the same distances."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.audit.message_laws import ListedMessages, all_messages, message_count, message_pairs
from lapwing.survey.randomizers import KaryResponse
from support.randomizers import SMALL


@pytest.mark.parametrize("name", SMALL)
def test_exactly_the_possible_messages_are_listed(name: str) -> None:
    """All are accepted, no two are the same, and together they have all of the probability."""
    rows = all_messages(SMALL[name])
    SMALL[name].decode(rows)
    listed = {bytes(row) for row in rows}
    assert len(listed) == len(rows) == message_count(SMALL[name])
    assert sum(SMALL[name].probability(0, message) for message in listed) == 1


@pytest.mark.parametrize("name", SMALL)
def test_classes_reach_the_same_ratio_as_all_messages(name: str) -> None:
    [classes] = message_pairs(SMALL[name], name, most=1)
    assert "by classes" in classes.description
    worst = max(classes.first[o] / classes.second[o] for o in classes.first)
    assert abs(Fraction(worst) - SMALL[name].ratio) < Fraction(1, 10**20)


def test_messages_of_the_same_probabilities_are_gathered() -> None:
    cells = ListedMessages(KaryResponse.for_epsilon(1, options=5)).cells(0, 3)
    assert len(cells) == 3
    assert sum(p for p, _ in cells.values()) == sum(q for _, q in cells.values()) == 1
