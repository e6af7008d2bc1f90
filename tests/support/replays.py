"""What tests ask a replay about single blocks and charges."""

from __future__ import annotations

from lapwing.ledger.accountant.balance import Costs
from lapwing.ledger.accountant.replay import ANSWERED, FAILED, NOTHING, Replay


def spent_of(replay: Replay, block: int) -> Costs:
    """Return what a block has spent, at most cap + 1 for each cost."""
    row = row_of(replay, block)
    caps = replay.balances.caps_of(row)
    return tuple([min(total, cap + 1) for total, cap in zip(replay.balances.spent(row), caps, strict=True)])


def held_of(replay: Replay, block: int) -> Costs:
    """Return what a block has reserved."""
    return replay.balances.held(row_of(replay, block))


def outcome_of(replay: Replay, charge: int) -> int:
    """Return NOTHING, ANSWERED or FAILED."""
    replay.bring_up_to_date()
    found = {
        number: FAILED if failed else ANSWERED for number, _, failed in replay.outcomes.ended_charges()
    }
    return found.get(charge, NOTHING)


def row_of(replay: Replay, block: int) -> int:
    replay.bring_up_to_date()
    row = replay.balances.row(block)
    assert row >= 0, f"there is no block {block}"
    return row
