"""The local model beside the others: every row randomizes which group it is in, before it is counted."""

from __future__ import annotations

from lapwing.mechanisms import RandomizedResponse
from lapwing.parties.planning.wish import JointWish
from lapwing.parties.statistics import Block
from lapwing.privacy import Pure

ROWS = 10_000  # for which errors are shown: they grow like √rows


def randomizer_of(wish: JointWish, block: Block) -> RandomizedResponse:
    """What every row does. A person's rows may be at several members, which lose ε together."""
    return RandomizedResponse.for_epsilon(wish.epsilon / wish.people_at, options=max(block.length, 2))


def local_loss(wish: JointWish) -> Pure:
    """What one row loses at one member."""
    return Pure(wish.epsilon / wish.people_at)


def local_deviation(wish: JointWish, block: Block) -> float:
    """Of an estimated count among `ROWS` rows."""
    randomizer = randomizer_of(wish, block)
    return ROWS * randomizer.standard_error(ROWS, share=1 / randomizer.options)
