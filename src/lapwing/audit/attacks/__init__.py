"""Attacks that anybody can run: on generated data, without protection first, then through the real gate.

Each module has one attack. Names are imported at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapwing.lazy import lazy_names

if TYPE_CHECKING:
    from lapwing.audit.attacks.all_attacks import ATTACKS, Attack, attack_picture, attacks_named
    from lapwing.audit.attacks.attack_result import AttackResult, AttackSettings
    from lapwing.audit.attacks.limits import membership_limit, two_step_limit, value_limit

_HOMES = {
    "ATTACKS": "all_attacks",
    "Attack": "all_attacks",
    "AttackResult": "attack_result",
    "AttackSettings": "attack_result",
    "attack_picture": "all_attacks",
    "attacks_named": "all_attacks",
    "membership_limit": "limits",
    "two_step_limit": "limits",
    "value_limit": "limits",
}
__all__ = [
    "ATTACKS", "Attack", "AttackResult", "AttackSettings", "attack_picture", "attacks_named",
    "membership_limit", "two_step_limit", "value_limit",
]  # fmt: skip
__getattr__ = lazy_names(__name__, _HOMES)
