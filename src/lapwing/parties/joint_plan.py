"""Plans of joint computations: which protocol, which guarantee, which error, how many bytes.

The plan of a joint computation: chosen and priced before anything runs, from public facts alone.

What the view of an adversary is promised to hide, in words that can be printed and signed.

What a person loses if more members belong together than a plan is for.

Claim    if so many members put together what they see, all stages together reveal at most this ε (at the
         wish's δ, with Gaussian noise) of a person's rows at the other members.
Because  their own shares of the noise count for nothing, so that a sum has only the others' shares in it,
         less those of the planned losses; and where they are as many as can open a part (Shamir shares,
         seeds of masks), they open every member's number by itself, with one share in it. A sum with fewer
         shares than `of` has the loss that `LaplaceShares.loss_with` says, or the ρ of so many Gaussian
         shares. Blocks and stages add up, and so do the members that have rows of the same person.
Test     tests/parties/planning/test_together.py

How much travels: posts, and bytes with everything around them, but for TLS itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.core.losses import Loss
from lapwing.errors import BadParameter
from lapwing.parties.joint_noise import (
    NoiseShares,
    local_deviation,
    local_loss,
    member_loss,
    noise_shares,
    relative_error,
    split_budget,
)
from lapwing.parties.posts import SALT_BYTES, Envelope, Parcel, sealed_size
from lapwing.parties.protocols.masked_sum import MaskedSum
from lapwing.parties.protocols.registry import NAMES, PROTOCOLS
from lapwing.parties.requirements import (
    ADDITIVE,
    LOCAL,
    MASKED,
    OWN_NOISE,
    SHAMIR,
    JointRequirements,
    ProtocolFit,
    protocol_fit,
    protocol_setting,
)
from lapwing.parties.statistics import CellBlock
from lapwing.parties.statistics.statistic import MOST_CELLS
from lapwing.sql.noising import GAUSSIAN_GAIN

_SHARED = (
    "unbounded coalition, computational network: shares travel in sealed boxes over TLS, and are hidden "
    "from the relay as long as nobody can break those"
)
AGAINST = {
    OWN_NOISE: "unbounded, over any network: nothing that is sent needs to be kept secret",
    ADDITIVE: _SHARED,
    SHAMIR: _SHARED,
    MASKED: "computational: the masks hide values as long as nobody can break X25519, HKDF-SHA256 and "
    "AES-256-CTR",
    LOCAL: "unbounded, over any network: a member randomizes every one of its rows before it counts them, "
    "so that neither the relay nor all other members together have to be trusted. Neighbours replace a "
    "row: what it says is hidden, and how many rows a member has is public",
}
NOT_PROMISED = (
    "Members follow the protocol and draw their noise (passive adversary); nobody can check that they did."
)
BUYS_NOTHING = (
    "With all but one in the coalition, cryptography buys nothing: the coalition can subtract its own "
    "values and noise from any sum, so that the one honest member has to hide alone."
)


def six_digits(value: Fraction) -> str:
    """Six digits of a rational."""
    return f"{float(value):.6g}"


def budget_text(epsilon: Fraction, delta: Fraction) -> str:
    """ε 1, or ε 1 and δ 1e-06."""
    return f"ε {six_digits(epsilon)}" + (f" and δ {six_digits(delta)}" if delta else "")


def guarantee_of(wish: JointRequirements, letter: str, *, is_pure: bool) -> str:
    """Who learns at most what about whom, and what that rests on."""
    some = f"up to {wish.coalition} of the {wish.members} members and " if wish.coalition else ""
    delta = Fraction(0) if is_pure else wish.delta
    whose = (
        "a person's rows at any honest member"
        if wish.people_at == 1
        else f"a person's rows at up to {wish.people_at} members"
    )
    lost = f"{wish.losses} more may fail before they have shared. " if wish.losses else ""
    return (
        f"Whoever holds {some}the relay, and reads all that is published, learns about {whose} at most "
        f"{budget_text(wish.epsilon, delta)}. {lost}It holds against: {AGAINST[letter]}. {NOT_PROMISED}"
    )


_MOST_SHOWN = 3  # sizes after the planned one, before the last


def epsilon_for_coalition(plan: JointPlan, together: int) -> Fraction:
    """If so many members belong together."""
    wish = plan.requirements
    if not 0 < together < wish.members:
        raise BadParameter("together", f"must be 1 to {wish.members - 1}: of all others nothing is hidden")
    if plan.protocol in (SHAMIR, MASKED) and together >= plan.threshold:
        return epsilon_with_honest_shares(plan, 1)
    return epsilon_with_honest_shares(plan, max(wish.members - together - wish.losses, 1))


def epsilon_with_honest_shares(plan: JointPlan, present: int) -> Fraction:
    """If only so many honest members' shares are in what is seen."""
    if plan.protocol == LOCAL:
        return plan.requirements.epsilon
    h, pure, rho = plan.requirements.people_at, Fraction(0), Fraction(0)
    for share in plan.shares:
        if isinstance(share, LaplaceShares):
            pure += h * share.loss_with(present)
        else:
            rho += (h if plan.protocol == OWN_NOISE else h * h) * _rho(share, min(present, share.of))
    if plan.noise == "gaussian":
        return zcdp_to_epsilon(plan.stages * rho, plan.requirements.delta)
    return plan.stages * pure


def _rho(share: GaussianShares, present: int) -> Fraction:
    try:
        return GaussianShares(share.sigma, share.l2_squared, share.dimension, present).loss.rho
    except BadParameter:  # so few are not nearly Gaussian; one is, and more of them hide more
        return GaussianShares(share.sigma, share.l2_squared, share.dimension, 1).loss.rho


def largest_protected_coalition(plan: JointPlan) -> int:
    """The largest coalition that learns no more than the wish's ε."""
    most = plan.requirements.coalition
    while (
        most + 1 < plan.requirements.members
        and epsilon_for_coalition(plan, most + 1) <= plan.requirements.epsilon
    ):
        most += 1
    return most


def epsilon_by_coalition(plan: JointPlan) -> dict[int, Fraction]:
    """ε by how many belong together: as planned, some more, and all but one."""
    t, m = plan.requirements.coalition, plan.requirements.members
    sizes = {size for size in (t, *range(t + 1, t + 1 + _MOST_SHOWN), m - 1) if 0 < size < m}
    return {size: epsilon_for_coalition(plan, size) for size in sorted(sizes)}


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """What travels when nobody is lost. A member's bytes are those it sends and those it gets."""

    rounds: int
    messages: int
    sent: int
    received: int
    in_all: int  # through the relay, both ways


def network_cost(wish: JointRequirements, letter: str, length: int, stages: int) -> NetworkCost:
    """By the protocol's own sizes and those of envelopes and boxes."""
    m = wish.members
    posts = PROTOCOLS[letter].traffic(protocol_setting(wish, length))
    sent = received = messages = 0
    for post in posts:
        envelope = Envelope.size(post.public, post.recipients)
        box = sealed_size(SALT_BYTES + post.private)
        sent += Parcel.size(envelope, box, post.recipients)
        received += m * envelope + post.recipients * box  # everybody's envelopes, and the boxes for it
        messages += m * (1 + post.recipients)
    return NetworkCost(
        rounds=stages * len(posts),
        messages=stages * messages,
        sent=stages * sent,
        received=stages * received,
        in_all=stages * m * (sent + received),
    )


MOST_STAGES = 64


@dataclass(frozen=True, slots=True)
class ProtocolAlternative:
    """A protocol beside the chosen one: what it would give, or why it does not serve."""

    letter: str
    why_not: str
    error: float | None = None  # relative to the chosen protocol's
    survives: int = 0
    cost: NetworkCost | None = None

    @property
    def name(self) -> str:
        """As people call it."""
        return NAMES[self.letter]


@dataclass(frozen=True, slots=True)
class JointPlan:
    """What will be run, what it promises, how far off it will be and what travels.

    `parts` is what a person may lose by each block of one stage: ε with Laplace noise, ρ with Gaussian.
    A plan that exists keeps to its wish: anybody who reads one from a file has checked it. All that is said
    about it in words follows from these fields: whoever writes a plan cannot write what is shown of it.
    """

    requirements: JointRequirements
    blocks: tuple[CellBlock, ...]
    stages: int
    protocol: str
    noise: str
    parts: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        _check_form(self.blocks, self.stages)
        if self.protocol not in NAMES:
            raise BadParameter("protocol", f"must be one of {', '.join(NAMES)}")
        if self.requirements.protocol not in ("auto", self.protocol):
            raise BadParameter("protocol", "is not the one that was wished for")
        if self.fit.why_not:
            raise BadParameter("protocol", f"{NAMES[self.protocol]}: {self.fit.why_not}")
        if self.noise not in ("laplace", "gaussian") or self.requirements.noise not in ("auto", self.noise):
            raise BadParameter("noise", "is not the one that was wished for")
        if len(self.parts) != len(self.blocks) or any(part <= 0 for part in self.parts):
            raise BadParameter("parts", "must be one above 0 for each block")
        whole = self.stages * sum(self.parts, Fraction(0))
        if self.noise == "gaussian" and not self.requirements.delta:
            raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")
        reached = zcdp_to_epsilon(whole, self.requirements.delta) if self.noise == "gaussian" else whole
        if reached > self.requirements.epsilon:
            raise BadParameter("parts", "add up to more than epsilon")

    @property
    def fit(self) -> ProtocolFit:
        """What the protocol needs and gives."""
        return protocol_fit(self.protocol, self.requirements, self.blocks, self.stages)

    @property
    def is_local(self) -> bool:
        """Whether every row randomizes itself."""
        return self.protocol == LOCAL

    @property
    def honest(self) -> int:
        """How many honest members' noise is in every sum that is opened, at least."""
        return self.fit.honest

    @property
    def threshold(self) -> int:
        """How many members can open a sum."""
        return self.fit.threshold

    @property
    def least(self) -> int:
        """How many members must be in a sum; with fewer nothing is opened."""
        return self.requirements.members - self.requirements.losses

    @property
    def length(self) -> int:
        """How many numbers are summed in one stage."""
        return sum(block.length for block in self.blocks)

    @property
    def shares(self) -> tuple[NoiseShares, ...]:
        """The noise that each member adds to each block, in every stage; none in the local model."""
        if self.is_local:
            return ()
        return noise_shares(
            self.requirements,
            self.blocks,
            self.parts,
            noise=self.noise,
            honest=self.honest,
            alone=self.protocol == OWN_NOISE,
        )

    @property
    def loss(self) -> Loss:
        """What one member charges for its own rows, for all stages together."""
        return local_loss(self.requirements) if self.is_local else member_loss(self.shares, self.stages)

    @property
    def why(self) -> str:
        """What speaks for this noise."""
        if self.is_local:
            return "every row randomizes itself"
        if self.requirements.noise != "auto":
            return "as asked"
        if not self.requirements.delta:
            return "Gaussian noise needs δ"
        other = "laplace" if self.noise == "gaussian" else "gaussian"
        try:
            theirs = _made(self.requirements, self.blocks, self.stages, self.protocol, other).relative_error
        except BadParameter:  # shares so narrow that their sum is no Gaussian any more
            return f"{other.capitalize()} shares would be too narrow"
        return f"expected error {self.relative_error:.3g} against {theirs:.3g} with {other.capitalize()}"

    @property
    def guarantee(self) -> str:
        """What the adversary's view is promised to hide."""
        return guarantee_of(self.requirements, self.protocol, is_pure=self.noise == "laplace")

    @property
    def deviations(self) -> tuple[float, ...]:
        """The standard deviation of the noise in each block's opened sums, with all members in them."""
        if self.is_local:
            return (local_deviation(self.requirements, self.blocks[0]),)
        return tuple(share.total(self.requirements.members).deviation for share in self.shares)

    @property
    def relative_error(self) -> float:
        """Of all blocks together, by which plans are compared."""
        return relative_error(self.blocks, self.deviations)

    def widths(self, confidence: Fraction) -> tuple[int, ...]:
        """Within which every number of a block lies at this confidence, noise alone."""
        totals = [share.total(self.requirements.members) for share in self.shares]
        return tuple(total.spread(confidence) for total in totals)

    @property
    def cost(self) -> NetworkCost:
        """What travels."""
        return network_cost(self.requirements, self.protocol, self.length, self.stages)

    @property
    def notes(self) -> tuple[str, ...]:
        """What else members should know before they sign."""
        m, t = self.requirements.members, self.requirements.coalition
        found = []
        if t and t == m - 1:
            found.append(BUYS_NOTHING)
        if self.requirements.people_at > 1:
            found.append(
                f"A person may be at {self.requirements.people_at} members: the noise is sized so that all these "
                "together lose ε; each member charges its part."
            )
        found += self._on_agreeing()
        if self.is_local:
            found.append("The expected error is for 10,000 rows in all; it grows like their square root.")
        return tuple(found)

    def _on_agreeing(self) -> list[str]:
        """How many must agree on who is in a sum, where sets can differ and two sums would tell more."""
        wish = self.requirements
        if self.protocol in (OWN_NOISE, LOCAL) or not wish.losses:
            return []
        setting = protocol_setting(wish, self.length)
        quorum = {ADDITIVE: max(setting.quorum, self.least), MASKED: MaskedSum.agreeing(setting)}.get(
            self.protocol, setting.quorum
        )
        found = f"{quorum} of {wish.members} members must agree on who is in the sum"
        if wish.members - quorum <= wish.most_losses:
            return [
                f"{found}: then no two sums are opened, even if the coalition signs two agreements. At "
                f"most {wish.members - quorum} may fail between sharing and agreeing."
            ]
        alone = epsilon_with_honest_shares(self, 1)
        if alone <= wish.epsilon:
            return []
        return [
            f"{found}. Members of the coalition who signed two agreements, with a relay that lies, could "
            f'isolate a member: ε {six_digits(alone)} instead of {six_digits(wish.epsilon)}. quorum = "honest" '
            f"prevents that, where at most {wish.most_losses} losses are planned."
        ]

    def alternatives(self, *, why_not_local: str = "") -> tuple[ProtocolAlternative, ...]:
        """Every protocol: what it would give, or why it does not serve.

        `why_not_local` is what the statistic says; blocks alone do not tell everything about rows.
        """
        found = [_alternative(letter, self) for letter in NAMES if letter != LOCAL or not why_not_local]
        return (*found, ProtocolAlternative(LOCAL, why_not_local)) if why_not_local else tuple(found)

    def to_json(self, *, why_not_local: str = "") -> dict[str, Any]:
        """Everything, for programs."""
        cost = self.cost
        return {
            "protocol": self.protocol,
            "protocol_name": NAMES[self.protocol],
            "noise": self.noise,
            "why": self.why,
            "wish": self.requirements.to_json(),
            "honest": self.honest,
            "threshold": self.threshold,
            "least_members": self.least,
            "guarantee": self.guarantee,
            "notes": list(self.notes),
            "epsilon_if_so_many_belong_together": {
                str(size): float(epsilon) for size, epsilon in epsilon_by_coalition(self).items()
            },
            "stages": self.stages,
            "blocks": [
                {"label": block.label, "numbers": block.length, "deviation": deviation}
                for block, deviation in zip(self.blocks, self.deviations, strict=True)
            ],
            "rounds": cost.rounds,
            "messages": cost.messages,
            "bytes_sent_by_a_member": cost.sent,
            "bytes_received_by_a_member": cost.received,
            "bytes_in_all": cost.in_all,
            "alternatives": [
                {
                    "protocol": one.letter,
                    "protocol_name": one.name,
                    "why_not": one.why_not,
                    "relative_error": one.error,
                    "survives": one.survives,
                    "bytes_sent_by_a_member": one.cost and one.cost.sent,
                }
                for one in self.alternatives(why_not_local=why_not_local)
            ],
        }


def plan_jointly(wish: JointRequirements, blocks: Sequence[CellBlock], stages: int = 1) -> JointPlan:
    """The protocol with the least error, then the most losses survived, then the fewest bytes."""
    cells = tuple(blocks)
    _check_form(cells, stages)
    if wish.protocol != "auto":
        return _with_noise(wish, cells, stages, wish.protocol)
    found = [letter for letter in NAMES if letter != LOCAL]
    serving = [letter for letter in found if not protocol_fit(letter, wish, cells, stages).why_not]
    if not serving:
        raise BadParameter("losses", protocol_fit(OWN_NOISE, wish, cells, stages).why_not)
    plans = [_with_noise(wish, cells, stages, letter) for letter in serving]
    return min(plans, key=_merit)


def _merit(plan: JointPlan) -> tuple[float, int, int, str]:
    error = float(f"{plan.relative_error:.9g}")  # equal laws give equal digits
    return error, -plan.fit.survives, plan.cost.in_all, plan.protocol


def _with_noise(
    wish: JointRequirements, blocks: tuple[CellBlock, ...], stages: int, letter: str
) -> JointPlan:
    """Gaussian noise where it is wished for, or where it is smaller by at least 5 %."""
    if letter != LOCAL and wish.noise != "auto":
        return _made(wish, blocks, stages, letter, wish.noise)
    laplace = _made(wish, blocks, stages, letter, "laplace")
    if letter == LOCAL or not wish.delta:
        return laplace
    try:
        gaussian = _made(wish, blocks, stages, letter, "gaussian")
        is_smaller = gaussian.relative_error <= GAUSSIAN_GAIN * laplace.relative_error
    except BadParameter:  # shares so narrow that their sum is no Gaussian any more
        return laplace
    return gaussian if is_smaller else laplace


def _made(
    wish: JointRequirements, blocks: tuple[CellBlock, ...], stages: int, letter: str, noise: str
) -> JointPlan:
    return JointPlan(wish, blocks, stages, letter, noise, split_budget(wish, blocks, stages, noise))


def _alternative(letter: str, plan: JointPlan) -> ProtocolAlternative:
    wish, blocks, stages = plan.requirements, plan.blocks, plan.stages
    found = protocol_fit(letter, wish, blocks, stages)
    if found.why_not:
        return ProtocolAlternative(letter, found.why_not)
    if letter == plan.protocol:
        return ProtocolAlternative(letter, "", 1.0, found.survives, plan.cost)
    parts = split_budget(wish, blocks, stages, "laplace" if letter == LOCAL else plan.noise)
    try:
        other = JointPlan(replace(wish, protocol=letter), blocks, stages, letter, plan.noise, parts)
        error = other.relative_error / plan.relative_error
    except BadParameter as refusal:
        return ProtocolAlternative(letter, refusal.why)
    return ProtocolAlternative(letter, "", error, found.survives, other.cost)


def _check_form(blocks: tuple[CellBlock, ...], stages: int) -> None:
    if not blocks:
        raise BadParameter("blocks", "must have at least one")
    if not 1 <= stages <= MOST_STAGES:
        raise BadParameter("stages", f"must be 1 to {MOST_STAGES}")
    if sum(block.length for block in blocks) > MOST_CELLS:
        raise BadParameter("blocks", f"must have at most {MOST_CELLS:,} numbers together")


__all__ = ["ProtocolAlternative", "ProtocolFit", "JointPlan", "JointRequirements", "plan_jointly"]
