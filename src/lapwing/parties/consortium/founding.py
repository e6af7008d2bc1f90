"""A consortium from a wish, the members' cards, and what the statistic means in one member's policy."""

from __future__ import annotations

from collections.abc import Sequence

from lapwing.errors import BadFile, BadParameter
from lapwing.parties.consortium.consortium import Consortium
from lapwing.parties.consortium.wish_file import WishFile
from lapwing.parties.identity import Card
from lapwing.parties.planning import JointPlan, plan_jointly
from lapwing.parties.planning.together import protected_against
from lapwing.parties.statistics import Statistic


def plan_for(file: WishFile, members: int, statistic: Statistic) -> JointPlan:
    """What so many members would run."""
    wish = file.wish(members)
    if wish.protocol == "L" and statistic.why_not_local:
        raise BadParameter("protocol", f"local model: {statistic.why_not_local}")
    return plan_jointly(wish, statistic.blocks, statistic.stages)


def found(
    file: WishFile, cards: Sequence[Card], statistic: Statistic, *, relay: Card | None = None
) -> Consortium:
    """The consortium that these members are invited to; nobody has signed it yet."""
    members = tuple(sorted(cards, key=lambda card: card.name))
    names = [card.name for card in members]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadParameter("cards", f"several are called {twice[0]}. Members need different names")
    known = {card.name: card for card in members}
    host = relay if relay is not None else known.get(file.host)
    if host is None or host.name != file.host:
        raise BadFile(
            [
                f"{file.path}: relay.host: {file.host} is none of {', '.join(names)}. Name a member, or "
                "give the card of another host with --relay-card"
            ]
        )
    return Consortium(
        name=file.name,
        cards=members,
        host=host,
        address=file.address,
        statistic=statistic.spec,
        meaning=statistic.meaning,
        plan=plan_for(file, len(members), statistic),
        lobby_seconds=file.lobby_seconds,
        round_seconds=file.round_seconds,
    )


def require_coalition(consortium: Consortium, least: int) -> None:
    """This member's policy may demand that so many others may belong together, and learn no more."""
    held, members = protected_against(consortium.plan), len(consortium.cards)
    if held < least:
        possible = "" if least < members else f", which no consortium of {members} members can"
        raise BadParameter(
            "coalition",
            f"this plan protects against {held} member{'s' if held > 1 else ''} who belong together, and "
            f"your policy demands parties.least_coalition = {least}{possible}. Ask for a consortium with "
            f"coalition = {least}, or change what you demand",
        )


def require_same_meaning(consortium: Consortium, statistic: Statistic) -> None:
    """This member's policy must mean the same by the statistic as everybody's does."""
    if statistic.meaning != consortium.meaning:
        raise BadParameter(
            "policy",
            "does not mean the same by this statistic as the consortium does. Columns' bounds, declared "
            "values and rows per unit must be alike at all members: compare the policies",
        )
    if statistic.blocks != consortium.plan.blocks or statistic.stages != consortium.plan.stages:
        raise BadParameter("consortium", "has other blocks than this statistic: it was changed or is old")
    if consortium.plan.is_local and statistic.why_not_local:  # blocks alone do not tell everything
        raise BadParameter("protocol", f"local model: {statistic.why_not_local}")
