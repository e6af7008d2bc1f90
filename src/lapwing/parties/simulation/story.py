"""One made-up run, told round by round: what everybody posts, what is opened, and why losses stop it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter
from lapwing.mechanisms import LaplaceShares
from lapwing.parties.planning import JointPlan, JointWish, plan_jointly
from lapwing.parties.planning.rules import LOCAL, setting_of
from lapwing.parties.protocols import PROTOCOLS, Stop
from lapwing.parties.protocols.rehearsal import RehearsedRound, rehearse
from lapwing.parties.statistics import Block

CONFIDENCE = Fraction(95, 100)
LARGEST_COUNT = 10**12


@dataclass(frozen=True, slots=True)
class Step:
    """One round: who posted in it, how much everybody can read, and how much one other member can."""

    name: str
    posted: tuple[str, ...]
    missing: tuple[str, ...]
    public: int  # bytes, of one post
    private: int  # bytes, to each other member


@dataclass(frozen=True, slots=True)
class Simulation:
    """What happened. `noised` is private in all protocols but A: it is shown because it is made up."""

    plan: JointPlan
    names: tuple[str, ...]
    counts: tuple[int, ...]
    noised: tuple[int, ...]
    steps: tuple[Step, ...]
    opened: int | None
    contributors: tuple[str, ...]
    stopped: str
    lessons: tuple[tuple[int, float], ...]  # so many honest shares in the sum, and the ε that it would have

    @property
    def truth(self) -> int:
        """The sum of those who are in it."""
        return sum(c for c, name in zip(self.counts, self.names, strict=True) if name in self.contributors)

    @property
    def width(self) -> int:
        """Within which the opened sum is, with 95 % confidence."""
        [share] = self.plan.shares
        return share.total(len(self.contributors)).spread(CONFIDENCE)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "plan": self.plan.to_json(),
            "members": [
                {"name": name, "count": count, "noised": noised}
                for name, count, noised in zip(self.names, self.counts, self.noised, strict=True)
            ],
            "rounds": [
                {"round": step.name, "posted": list(step.posted), "missing": list(step.missing),
                 "public_bytes": step.public, "private_bytes": step.private}
                for step in self.steps
            ],
            "opened": self.opened,
            "contributors": list(self.contributors),
            "truth": self.truth if self.opened is not None else None,
            "within_95_percent": self.width if self.opened is not None else None,
            "stopped": self.stopped,
            "epsilon_with_fewer_honest_shares": {str(g): epsilon for g, epsilon in self.lessons},
        }  # fmt: skip


def simulate(
    wish: JointWish, counts: Sequence[int], names: Sequence[str], *, lose: Mapping[str, str]
) -> Simulation:
    """Run it with made-up counts. `lose` says for a member from which round on it posts nothing."""
    if wish.protocol == LOCAL:
        raise BadParameter(
            "protocol", "simulate shows sums; see `lapwing party compare` for the local model"
        )
    if len(counts) != wish.members or len(names) != wish.members or len(set(names)) != wish.members:
        raise BadParameter("counts", f"must be {wish.members}, one for each member")
    if not all(0 <= count <= LARGEST_COUNT for count in counts):
        raise BadParameter("counts", f"must be 0 to {LARGEST_COUNT:,}")
    plan = plan_jointly(wish, [Block("count", 1, 1, 1)], 1)
    [share] = plan.shares
    noised = [share.sample([count]) for count in counts]
    rounds = PROTOCOLS[plan.protocol].rounds
    losses = {_member(name, names): _round(name, where, rounds) for name, where in lose.items()}
    steps: list[Step] = []
    before = set(range(wish.members))

    def told(spoken: RehearsedRound) -> None:
        nonlocal before
        steps.append(_step(spoken, before, names))
        before = set(spoken.posts)

    done = rehearse(plan.protocol, setting_of(wish, 1), noised, losses=losses, on_round=told)
    try:
        opened = done.opened
        total, inside, stopped = int(opened.values[0]), tuple(names[i] for i in opened.contributors), ""
    except Stop:
        total, inside, stopped = None, (), _why(done.outcomes, losses, names)
    while len(steps) > 1 and not steps[-1].posted:  # nobody was left to post
        steps.pop()
    return Simulation(
        plan=plan,
        names=tuple(names),
        counts=tuple(counts),
        noised=tuple(int(one[0]) for one in noised),
        steps=tuple(steps),
        opened=total,
        contributors=inside,
        stopped=stopped,
        lessons=lessons_of(plan),
    )


def lessons_of(plan: JointPlan) -> tuple[tuple[int, float], ...]:
    """What a sum would reveal if it were opened with fewer honest shares than it was planned for."""
    [share] = plan.shares
    if not isinstance(share, LaplaceShares):
        return ()
    fewer = sorted({max(plan.honest // 2, 1), *range(max(plan.honest - 3, 1), plan.honest + 1)})
    return tuple((present, float(share.loss_with(present))) for present in fewer)


def _step(spoken: RehearsedRound, before: set[int], names: Sequence[str]) -> Step:
    posts = list(spoken.posts.values())
    private = [len(part) for post in posts for part in (post.private or {}).values()]
    return Step(
        name=spoken.name,
        posted=tuple(names[i] for i in sorted(spoken.posts)),
        missing=tuple(names[i] for i in sorted(before - set(spoken.posts))),
        public=max((len(post.public) for post in posts), default=0),
        private=max(private, default=0),
    )


def _why(outcomes: Sequence[object], losses: Mapping[int, int], names: Sequence[str]) -> str:
    """What those who were not lost themselves were told."""
    told = [one for i, one in enumerate(outcomes) if isinstance(one, Stop) and i not in losses]
    if not told:
        return "all members were lost"
    missing = ", ".join(names[i] for i in told[0].members)
    return f"{told[0].why} ({missing})" if missing else told[0].why


def _member(name: str, names: Sequence[str]) -> int:
    if name not in names:
        raise BadParameter("lose", f"there is no member {name[:40]}. Members are {', '.join(names)}")
    return names.index(name)


def _round(name: str, where: str, rounds: Sequence[str]) -> int:
    if where not in rounds:
        raise BadParameter("lose", f"{name[:40]}:ROUND needs one of the rounds {', '.join(rounds)}")
    return rounds.index(where)
