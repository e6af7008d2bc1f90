"""Runs with all members in one process, through the same protocols: to teach, to test and to measure.

`run_in_memory` runs one protocol, with losses, late posts and a dishonest relay. It takes signatures for
granted: no member posts in another's name, and a post reaches only members that received the same rounds
before (between machines, the digests that are signed with posts ensure that).

`simulate` runs a made-up count, and reports every round. `compare_trust_models` measures the lectures'
comparison of trust models: one curator, several members, one member per person, the local model. Each of
its numbers comes from runs of the protocols with fresh noise and coins. A vector has one cell for each
repetition, so that one run measures many; cells are independent, as each has its own noise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number, whole
from lapwing.core.laplace import LaplaceShares
from lapwing.core.losses import checked_epsilon
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import BadParameter
from lapwing.parties.joint_plan import JointPlan, plan_jointly
from lapwing.parties.protocols import protocol as rules
from lapwing.parties.protocols import secret_sharing
from lapwing.parties.protocols.protocol import Heard, OpenedSum, Post, Protocol, Publics, Setting
from lapwing.parties.protocols.registry import LOCAL, PROTOCOLS
from lapwing.parties.requirements import JointRequirements, protocol_setting
from lapwing.parties.statistics import CellBlock
from lapwing.plots.accuracy import MeasuredErrors

_NOBODY: Mapping[int, int] = MappingProxyType({})
_NO_LIES: Mapping[tuple[int, int], Collection[int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SimulatedRound:
    """All posts of one round, also late ones, and the members that were in time."""

    name: str
    posts: Mapping[int, Post]
    closed: frozenset[int]

    @property
    def publics(self) -> Publics:
        """The public parts that all members receive if the relay is honest."""
        return {i: self.posts[i].public for i in sorted(self.closed)}


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """The outcome for each member, and all posts."""

    outcomes: tuple[OpenedSum | rules.ProtocolStopped, ...]
    rounds: tuple[SimulatedRound, ...]

    @property
    def opened(self) -> OpenedSum:
        """The sum of the first successful member. Raises the first `ProtocolStopped` if there is none."""
        for outcome in self.outcomes:
            if isinstance(outcome, OpenedSum):
                return outcome
        raise next(outcome for outcome in self.outcomes if isinstance(outcome, rules.ProtocolStopped))


@dataclass(frozen=True, slots=True)
class _Member:
    protocol: Protocol
    heard: bytes = bytes(32)  # the digest of all rounds that it has received


def run_in_memory(
    protocol: str | type[Protocol],
    setting: Setting,
    values: Sequence[rules.Ints],
    *,
    losses: Mapping[int, int] = _NOBODY,
    late: Mapping[int, int] = _NOBODY,
    shown: Mapping[tuple[int, int], Collection[int]] = _NO_LIES,
    coins: Sequence[secret_sharing.ProtocolCoins] | None = None,
    twice: Collection[int] = (),
) -> SimulatedRun:
    """Run all members through one sum. `protocol` is its letter or its class.

    A member with losses[i] = r posts nothing from round r on. With late[i] = r its post of that round
    reaches the relay, but not the other members. A dishonest relay shows member i only the posts of
    shown[r, i] in round r, late or not. Dishonest members in `twice` sign their posts for all members, even
    if these received different rounds.
    """
    if len(values) != setting.members:
        raise BadParameter("values", f"must be {setting.members}, one for each member")
    kind = PROTOCOLS[protocol] if isinstance(protocol, str) else protocol
    drawn = coins if coins is not None else [secret_sharing.FreshCoins() for _ in values]
    members = {i: _Member(kind(setting, i, values[i], drawn[i])) for i in range(setting.members)}
    outcomes: dict[int, OpenedSum | rules.ProtocolStopped] = {}
    rounds: list[SimulatedRound] = []
    for number, name in enumerate(kind.rounds):
        for i in [i for i in members if losses.get(i, len(kind.rounds)) <= number]:
            outcomes[i] = rules.ProtocolStopped("this member was lost", (i,))
            del members[i]
        posts = {i: member.protocol.post(number) for i, member in members.items()}
        held = SimulatedRound(name, posts, frozenset(i for i in posts if late.get(i) != number))
        rounds.append(held)
        members = _heard(number, held, members, outcomes, shown=shown, twice=twice)
    outcomes |= {i: _opened(member.protocol) for i, member in members.items()}
    return SimulatedRun(tuple(outcomes[i] for i in range(setting.members)), tuple(rounds))


def _heard(
    number: int,
    held: SimulatedRound,
    members: Mapping[int, _Member],
    outcomes: dict[int, OpenedSum | rules.ProtocolStopped],
    *,
    shown: Mapping[tuple[int, int], Collection[int]],
    twice: Collection[int],
) -> dict[int, _Member]:
    """Deliver a round to all members. Return those that continue; the others get an outcome."""
    left = {}
    for i, member in members.items():
        among = shown.get((number, i), held.closed)
        senders = [j for j in held.posts if j in among and (j in twice or members[j].heard == member.heard)]
        posts = {j: held.posts[j] for j in senders}
        heard = {j: Heard(post.public, (post.private or {}).get(i)) for j, post in posts.items()}
        try:
            member.protocol.hear(number, heard)
        except rules.ProtocolStopped as stop:
            outcomes[i] = stop
        else:
            left[i] = _Member(member.protocol, _digest(member.heard, member.protocol.heard[-1]))
    return left


def _digest(before: bytes, publics: Publics) -> bytes:
    parts = (i.to_bytes(4, "big") + sha256(public).digest() for i, public in sorted(publics.items()))
    return sha256(before + b"".join(parts)).digest()


def _opened(protocol: Protocol) -> OpenedSum | rules.ProtocolStopped:
    try:
        return protocol.opened
    except rules.ProtocolStopped as stop:
        return stop


CONFIDENCE = Fraction(95, 100)
LARGEST_COUNT = 10**12


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """One round: the members that posted, the missing ones, and the sizes of a post."""

    name: str
    posted: tuple[str, ...]
    missing: tuple[str, ...]
    public: int  # bytes, of one post
    private: int  # bytes, to each other member


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated run. `noised` is private in all protocols but A: it is shown as the data is made up.

    `opened` is None if the run stopped; then `stopped` tells why.
    """

    plan: JointPlan
    names: tuple[str, ...]
    counts: tuple[int, ...]
    noised: tuple[int, ...]
    steps: tuple[RoundSummary, ...]
    opened: int | None
    contributors: tuple[str, ...]
    stopped: str
    lessons: tuple[tuple[int, float], ...]  # numbers of honest shares in the sum, and the ε of each

    @property
    def truth(self) -> int:
        """The exact sum of the contributors' counts."""
        return sum(c for c, name in zip(self.counts, self.names, strict=True) if name in self.contributors)

    @property
    def width(self) -> int:
        """The half width of the noise, with 95 % confidence."""
        [share] = self.plan.shares
        return share.total(len(self.contributors)).spread(CONFIDENCE)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
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
    needs: JointRequirements, counts: Sequence[int], names: Sequence[str], *, lose: Mapping[str, str]
) -> Simulation:
    """Run a count with made-up data. `lose` is the first round without a post, by member.

    Args:
        needs: the privacy requirements of all members.
        counts: the made-up count of each member.
        names: the names of the members.
        lose: the first round without a post, by the name of each member that fails.

    Returns:
        The steps of the run, and its opened sum if there is one.

    Raises:
        BadParameter: if the numbers do not fit the requirements, or the protocol opens no sum.

    Example:
        >>> from lapwing.parties import simulate
        >>> done = simulate(needs, (120, 45, 230), ("north", "south", "east"), lose={})
        >>> done.truth
        395
    """
    if needs.protocol == LOCAL:
        raise BadParameter(
            "protocol", "simulate shows sums; see `lapwing party compare` for the local model"
        )
    if len(counts) != needs.members or len(names) != needs.members or len(set(names)) != needs.members:
        raise BadParameter("counts", f"must be {needs.members}, one for each member")
    if not all(0 <= count <= LARGEST_COUNT for count in counts):
        raise BadParameter("counts", f"must be 0 to {LARGEST_COUNT:,}")
    plan = plan_jointly(needs, [CellBlock("count", 1, 1, 1)], 1)
    [share] = plan.shares
    noised = [share.sample([count]) for count in counts]
    rounds = plan.protocol_class.rounds
    losses = {_member(name, names): _round(name, where, rounds) for name, where in lose.items()}
    done = run_in_memory(plan.protocol, protocol_setting(needs, 1), noised, losses=losses)
    before = [set(range(needs.members)), *(set(held.posts) for held in done.rounds)]
    steps = [_step(held, there, names) for held, there in zip(done.rounds, before, strict=False)]
    try:
        opened = done.opened
        total, inside, stopped = int(opened.values[0]), tuple(names[i] for i in opened.contributors), ""
    except rules.ProtocolStopped:
        total, inside, stopped = None, (), _why(done.outcomes, losses, names)
    while len(steps) > 1 and not steps[-1].posted:  # nobody was left to post
        steps.pop()
    return Simulation(
        plan=plan,
        names=tuple(names),
        counts=tuple(counts),
        noised=tuple(int(values[0]) for values in noised),
        steps=tuple(steps),
        opened=total,
        contributors=inside,
        stopped=stopped,
        lessons=epsilon_by_honest_shares(plan),
    )


def epsilon_by_honest_shares(plan: JointPlan) -> tuple[tuple[int, float], ...]:
    """Return the ε of a sum with fewer honest shares than planned. Empty for Gaussian noise."""
    [share] = plan.shares
    if not isinstance(share, LaplaceShares):
        return ()
    fewer = sorted({max(plan.honest // 2, 1), *range(max(plan.honest - 3, 1), plan.honest + 1)})
    return tuple((present, float(share.loss_with(present))) for present in fewer)


def _step(held: SimulatedRound, before: set[int], names: Sequence[str]) -> RoundSummary:
    posts = list(held.posts.values())
    private = [len(part) for post in posts for part in (post.private or {}).values()]
    return RoundSummary(
        name=held.name,
        posted=tuple(names[i] for i in sorted(held.posts)),
        missing=tuple(names[i] for i in sorted(before - set(held.posts))),
        public=max((len(post.public) for post in posts), default=0),
        private=max(private, default=0),
    )


def _why(outcomes: Sequence[object], losses: Mapping[int, int], names: Sequence[str]) -> str:
    """Return why the run stopped for members that were not lost themselves."""
    told = [
        outcome
        for i, outcome in enumerate(outcomes)
        if isinstance(outcome, rules.ProtocolStopped) and i not in losses
    ]
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


SIZES = (10, 32, 100, 316, 1000, 10_000, 100_000)
PEOPLE = 1000
MEMBERS = (2, 3, 5, 10, 30, 100)
EVERYBODY_AT_MOST = 316  # as members of one run
REPORTS_AT_MOST = 4_000_000  # coins thrown for one point of the local model
FEWEST = 30


def compare_trust_models(
    epsilon: Number,
    *,
    repetitions: int = 200,
    sizes: Sequence[int] = SIZES,
    people: int = PEOPLE,
    members: Sequence[int] = MEMBERS,
    tell: Callable[[int, int], None] = lambda _, __: None,
) -> MeasuredErrors:
    """Measure root mean square errors of the share of yes answers, which half of n people give.

    `tell` is called with the numbers of finished and of all measurements. Raises `BadParameter`.
    """
    e, runs = checked_epsilon(epsilon), whole(repetitions, "repetitions", at_least=2)
    if any(n < 10 for n in (*sizes, people)) or any(not 2 <= m <= people for m in members):
        raise BadParameter("sizes", "must be at least 10 people, and 2 to n members")

    def shared(n: int, m: int, t: int) -> float:
        return member_error(e, n, members=m, coalition=t, repetitions=runs)

    jobs: list[tuple[str, str, int, Callable[[], float]]] = []
    for n in sizes:
        jobs += [
            ("size", "curator", n, partial(shared, n, 1, 0)),
            ("size", "shared", n, partial(shared, n, 3, 1)),
            ("size", "alone", n, partial(shared, n, 10, 9)),
        ]
        if n <= EVERYBODY_AT_MOST:
            jobs.append(("size", "everybody", n, partial(shared, n, n, n - 1)))
        if n * min(runs, FEWEST) <= REPORTS_AT_MOST:
            jobs.append(("size", "local", n, partial(local_model_error, e, n, repetitions=runs)))
    for m in members:
        if m > 2:  # of two members, a coalition of one is no minority
            jobs.append(("members", "shared", m, partial(shared, people, m, (m - 1) // 2)))
        jobs.append(("members", "alone", m, partial(shared, people, m, m - 1)))
    errors: dict[str, dict[str, list[tuple[int, float]]]] = {"size": {}, "members": {}}
    for done, (what, name, x, measure) in enumerate(jobs):
        tell(done, len(jobs))
        errors[what].setdefault(name, []).append((x, measure()))
    tell(len(jobs), len(jobs))
    return MeasuredErrors(e, people, errors["size"], errors["members"])


def member_error(epsilon: Fraction, n: int, *, members: int, coalition: int, repetitions: int) -> float:
    """Measure the error of a share of n people, divided among the members, by protocol C, or else A."""
    letter = "C" if 2 * coalition < members and members > 1 else "A"
    setting = Setting(members=members, coalition=coalition, losses=0, length=repetitions)
    share = LaplaceShares.for_epsilon(epsilon, l1=1, of=PROTOCOLS[letter].honest(setting))
    answers = np.arange(n) % 2
    counts = [int(part.sum()) for part in np.array_split(answers, members)]
    values = [share.sample(np.full(repetitions, count)) for count in counts]
    opened = run_in_memory(letter, setting, values).opened
    return _rms(opened.values / n - answers.mean())


def local_model_error(epsilon: Fraction, n: int, *, repetitions: int) -> float:
    """Measure the error of a share of n people who randomize their own answers; three members count."""
    runs = max(min(repetitions, REPORTS_AT_MOST // n), 2)
    coins = RandomizedResponse.for_epsilon(epsilon)
    answers = np.arange(n) % 2
    parts = np.array_split(answers, 3)
    tallies = [
        np.array([int(coins.sample(part).sum()) for _ in range(runs)], dtype=np.int64) for part in parts
    ]
    setting = Setting(members=3, coalition=2, losses=0, length=runs)
    yes = run_in_memory("L", setting, tallies).opened.values / n
    truth = coins.truth_probability()(64)
    other = 1 - float(truth)
    return _rms((yes - other) / (1 - 2 * other) - answers.mean())


def _rms(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt((errors**2).mean()))
