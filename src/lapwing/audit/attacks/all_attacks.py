"""All attacks by name, and the picture of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lapwing.audit.attacks.attack_result import AttackResult, AttackSettings
from lapwing.audit.attacks.averaging import averaging
from lapwing.audit.attacks.differencing import differencing
from lapwing.audit.attacks.linkage import linkage
from lapwing.audit.attacks.longitudinal import longitudinal
from lapwing.audit.attacks.membership import membership
from lapwing.audit.attacks.reconstruction import reconstruction
from lapwing.audit.attacks.refill import refill
from lapwing.config.toml_text import quoted
from lapwing.config.values import did_you_mean
from lapwing.errors import BadParameter
from lapwing.plots.attacks import attack_over_time, attack_success

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "all"
OVERVIEW = "Without protection, attackers guess right. A lifetime budget limits them"


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack: its name, the title of its picture, and the function that runs it."""

    name: str
    headline: str
    run: Callable[[AttackSettings], tuple[AttackResult, ...]]


ATTACKS: Mapping[str, Attack] = {
    each.name: each
    for each in (
        Attack("linkage", "Rows without names still identify people", linkage),
        Attack("differencing", "The difference of two counts exposes one person", differencing),
        Attack("averaging", "The mean of many noisy answers tells the truth", averaging),
        Attack("reconstruction", "Many rounded sums reveal nearly everybody's data", reconstruction),
        Attack("membership", "A model or a synthetic table reveals who was in the data", membership),
        Attack("refill", "A budget that refills every day exposes the person", refill),
        Attack(
            "longitudinal", "An answer that is randomized anew every day exposes the person", longitudinal
        ),
    )
}


def attacks_named(name: str) -> list[Attack]:
    """Return the attack of this name, or all of them.

    Raises:
        BadParameter: If there is no such attack. The error names a similar one.
    """
    if name == ALL:
        return list(ATTACKS.values())
    if name not in ATTACKS:
        names = [*ATTACKS, ALL]
        raise BadParameter("attack", f"there is no {quoted(name)}. {did_you_mean(name, names)}")
    return [ATTACKS[name]]


def attack_picture(results: Sequence[AttackResult]) -> Figure:
    """Draw the results of an attack: over time if it takes time, else side by side.

    Results of several attacks are drawn side by side.
    """
    names = {result.attack for result in results}
    headline = ATTACKS[names.pop()].headline if len(names) == 1 else OVERVIEW
    if len(results) == 1 and results[0].over_time:
        return attack_over_time(headline, results[0])
    return attack_success(headline, results)
