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
from lapwing.plots.attacks import attack_course, attack_success

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "all"


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack: what it does, in one sentence, and the function that runs it."""

    name: str
    summary: str
    run: Callable[[AttackSettings], tuple[AttackResult, ...]]


ATTACKS: Mapping[str, Attack] = {
    each.name: each
    for each in (
        Attack("linkage", "Rows without names are joined with a public list of names", linkage),
        Attack("differencing", "Two questions differ by one person", differencing),
        Attack("averaging", "The same question is asked until the noise cancels out", averaging),
        Attack("reconstruction", "Random sums are solved like equations", reconstruction),
        Attack("membership", "Was this person in the data of a model or of an invented table?", membership),
        Attack("refill", "A budget that refills every day is spent every day", refill),
        Attack("longitudinal", "The same local answer is randomized anew every day", longitudinal),
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
    if len(results) == 1 and results[0].course:
        return attack_course(results[0])
    return attack_success(results)
