"""The overview of a ledger as plain values, with stable names, for JSON."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from lapwing.ledger.budget_history import FamilyOverview, LedgerOverview


def overview_json(found: LedgerOverview) -> dict[str, Any]:
    """Return plain values with stable names. Promises are rounded up, budgets left are rounded down."""
    accounts = len(found.families) + len(found.not_shown)
    return {
        "ledger": found.ledger,
        "accounts": [_family(family) for family in found.families],
        "accounts_not_shown": list(found.not_shown),
        "losses_add": accounts > 1,
        "data_sets": [
            {"name": data.label, "version": data.version, "accounts": list(data.accounts)}
            for data in found.data_sets
        ],
        "signed_by_curator": [
            {
                "entry": line.number,
                "time": line.time,
                "kind": line.kind,
                "accounts": list(line.accounts),
                "what": line.what,
            }
            for line in found.declared
            if line.kind != "policy"
        ],
        "changed_after_check": [
            {"entry": line.number, "time": line.time, "accounts": list(line.accounts)}
            for line in found.declared
            if line.kind == "policy"
        ],
    }


def _family(family: FamilyOverview) -> dict[str, Any]:
    epsilon, delta = family.total
    return {
        "account": family.label,
        "unit": family.unit,
        "relation": family.relation,
        "slices": family.slices,
        "rule": family.rule,
        "epsilon": float_up(epsilon),
        "delta": float_up(delta),
        "delta_set_aside": {
            "answers_that_may_fail": float_up(family.set_aside.failures),
            "runs_priced_as_one": float_up(family.set_aside.whole_runs),
            "renyi_filters": float_up(family.set_aside.filters),
        },
        "is_raised": len(family.accounts) > 1,
        "parts": [
            {"number": n, "epsilon": float_up(e), "delta": float_up(d)} for n, e, d in family.accounts
        ],
        "worst_cases": [
            {"periods": n, "epsilon": float_up(e), "delta": float_up(d)} for n, e, d in family.in_periods
        ],
        "open_reservations": list(family.reservations),
        "blocks": [
            {
                "block": block.label,
                "part": block.account,
                "is_open": block.is_open,
                "epsilon_left": float_down(block.epsilon),
                "delta_left": float_down(block.delta),
                "epsilon_left_after_lapse": float_down(block.epsilon_after_lapse),
                "epsilon_at_first": float_down(block.epsilon_at_first),
                "delta_at_first": float_down(block.delta_at_first),
            }
            for block in family.blocks
        ],
    }


def float_up(value: Fraction) -> float:
    """Return the least float whose text is not below the value."""
    near = float(value)
    return near if Fraction(repr(near)) >= value else math.nextafter(near, math.inf)


def float_down(value: Fraction) -> float:
    """Return the greatest float whose text is not above the value."""
    near = float(value)  # people read its text, so the text is compared
    return near if Fraction(repr(near)) <= value else math.nextafter(near, 0.0)
