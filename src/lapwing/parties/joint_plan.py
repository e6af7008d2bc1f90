"""The plan of a joint computation: protocol, guarantee, error and traffic, from public facts alone.

A plan is chosen and priced before anything runs.

Claim    if a coalition of a given size combines all that its members see, all stages together reveal at
         most `epsilon_for_coalition` (at the plan's δ, with Gaussian noise) of a person's rows at the other
         members.
Because  the coalition knows its own shares of the noise, so that only the others' shares hide a sum,
         less those of the planned losses. A coalition that can open single pieces (Shamir shares, seeds of
         masks) opens every member's number by itself, with one share in it. A sum with fewer shares than
         `of` has the loss of `LaplaceShares.loss_with`, or the ρ of that number of Gaussian shares. Losses
         of blocks and stages add up, and so do those of members that have rows of the same person.
Test     tests/parties/test_joint_plan_together.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.losses import Loss
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import BadParameter
from lapwing.mechanisms import GaussianShares, LaplaceShares, SummedGaussian, SummedLaplace
from lapwing.parties import joint_noise
from lapwing.parties.joint_noise import member_loss
from lapwing.parties.posts import SALT_BYTES, Envelope, Parcel, sealed_size
from lapwing.parties.protocols.protocol import Protocol
from lapwing.parties.protocols.registry import ADDITIVE, LOCAL, MASKED, NAMES, OWN_NOISE, PROTOCOLS, SHAMIR
from lapwing.parties.requirements import JointRequirements, ProtocolFit, protocol_fit, protocol_setting
from lapwing.parties.statistics.statistic import MOST_CELLS, CellBlock
from lapwing.sql.pricing.noise_shares import GAUSSIAN_GAIN

MOST_STAGES = 64
_MOST_SHOWN = 3  # sizes of coalitions that are shown after the planned one, before the last

# The guarantee in words. Consortia are signed with these words: they must not change.

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
    """Return six digits of a rational."""
    return f"{float(value):.6g}"


def budget_text(epsilon: Fraction, delta: Fraction) -> str:
    """Return a budget in words, such as "ε 1" or "ε 1 and δ 1e-06"."""
    return f"ε {six_digits(epsilon)}" + (f" and δ {six_digits(delta)}" if delta else "")


def guarantee_of(needs: JointRequirements, letter: str, *, is_pure: bool) -> str:
    """Return the guarantee of a protocol in words, with its assumptions."""
    some = f"up to {needs.coalition} of the {needs.members} members and " if needs.coalition else ""
    delta = Fraction(0) if is_pure else needs.delta
    whose = (
        "a person's rows at any honest member"
        if needs.people_at == 1
        else f"a person's rows at up to {needs.people_at} members"
    )
    lost = f"{needs.losses} more may fail before they have shared. " if needs.losses else ""
    return (
        f"Whoever holds {some}the relay, and reads all that is published, learns about {whose} at most "
        f"{budget_text(needs.epsilon, delta)}. {lost}It holds against: {AGAINST[letter]}. {NOT_PROMISED}"
    )


# Traffic


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """The traffic if no member is lost, without TLS. `sent` and `received` are one member's bytes."""

    rounds: int
    messages: int
    sent: int
    received: int
    in_all: int  # bytes through the relay, in both directions


def network_cost(needs: JointRequirements, letter: str, length: int, stages: int) -> NetworkCost:
    """Return the traffic of a protocol, from the sizes of its messages, envelopes and boxes."""
    m = needs.members
    posts = PROTOCOLS[letter].traffic(protocol_setting(needs, length))
    sent = received = messages = 0
    for post in posts:
        envelope = Envelope.size(post.public, post.recipients)
        box = sealed_size(SALT_BYTES + post.private)
        sent += Parcel.size(envelope, box, post.recipients)
        received += m * envelope + post.recipients * box  # all envelopes, and the boxes for this member
        messages += m * (1 + post.recipients)
    return NetworkCost(
        rounds=stages * len(posts),
        messages=stages * messages,
        sent=stages * sent,
        received=stages * received,
        in_all=stages * m * (sent + received),
    )


# The plan


@dataclass(frozen=True, slots=True)
class ProtocolAlternative:
    """A protocol in comparison with the chosen one, or why it cannot serve (`why_not`, else empty)."""

    letter: str
    why_not: str
    error: float | None = None  # relative to the chosen protocol's
    survives: int = 0
    cost: NetworkCost | None = None

    @property
    def name(self) -> str:
        """The protocol's name for people."""
        return NAMES[self.letter]


@dataclass(frozen=True, slots=True)
class JointPlan:
    """A protocol and its noise for given requirements, with its guarantee, error and traffic.

    `parts` is the loss of a person by each block of one stage: ε with Laplace noise, ρ with Gaussian noise.
    Every plan keeps its requirements: a plan that is read from a file is checked here. All words about it
    follow from these fields, so that the writer of a file cannot choose them.
    """

    requirements: JointRequirements
    blocks: tuple[CellBlock, ...]
    stages: int
    protocol: str
    noise: str
    parts: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        _check_form(self.blocks, self.stages)
        needs = self.requirements
        if self.protocol not in NAMES:
            raise BadParameter("protocol", f"must be one of {', '.join(NAMES)}")
        if needs.protocol not in ("auto", self.protocol):
            raise BadParameter("protocol", "is not the one that was asked for")
        if self.fit.why_not:
            raise BadParameter("protocol", f"{NAMES[self.protocol]}: {self.fit.why_not}")
        if self.noise not in ("laplace", "gaussian") or needs.noise not in ("auto", self.noise):
            raise BadParameter("noise", "is not the one that was asked for")
        if len(self.parts) != len(self.blocks) or any(part <= 0 for part in self.parts):
            raise BadParameter("parts", "must be one above 0 for each block")
        whole = self.stages * sum(self.parts, Fraction(0))
        if self.noise == "gaussian" and not needs.delta:
            raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")
        reached = zcdp_to_epsilon(whole, needs.delta) if self.noise == "gaussian" else whole
        if reached > needs.epsilon:
            raise BadParameter("parts", "add up to more than epsilon")

    @property
    def fit(self) -> ProtocolFit:
        """The numbers of members that the protocol needs and survives."""
        return protocol_fit(self.protocol, self.requirements, self.blocks, self.stages)

    @property
    def is_local(self) -> bool:
        """True if every row is randomized by itself (protocol L)."""
        return self.protocol == LOCAL

    @property
    def protocol_class(self) -> type[Protocol]:
        """The class of the protocol's members."""
        return PROTOCOLS[self.protocol]

    @property
    def honest(self) -> int:
        """The least number of honest members' noise shares in every opened sum."""
        return self.fit.honest

    @property
    def threshold(self) -> int:
        """The number of members that can open a sum."""
        return self.fit.threshold

    @property
    def least(self) -> int:
        """The least number of members in a sum. With fewer nothing is opened."""
        return self.requirements.members - self.requirements.losses

    @property
    def length(self) -> int:
        """The number of cells of one stage's sum."""
        return sum(block.length for block in self.blocks)

    @property
    def shares(self) -> tuple[joint_noise.NoiseShares, ...]:
        """The noise that each member adds to each block, in every stage. Empty in the local model."""
        if self.is_local:
            return ()
        alone, honest = self.protocol == OWN_NOISE, self.honest
        return joint_noise.noise_shares(
            self.requirements, self.blocks, self.parts, noise=self.noise, honest=honest, alone=alone
        )

    @property
    def row_randomizer(self) -> RandomizedResponse:
        """The randomizer of every row in the local model."""
        return joint_noise.row_randomizer(self.requirements, self.blocks[0])

    @property
    def loss(self) -> Loss:
        """The loss that one member charges for its own rows, for all stages together."""
        if self.is_local:
            return joint_noise.local_loss(self.requirements)
        return member_loss(self.shares, self.stages)

    @property
    def why(self) -> str:
        """The reason for the choice of the noise."""
        if self.is_local:
            return "every row randomizes itself"
        if self.requirements.noise != "auto":
            return "as asked"
        if not self.requirements.delta:
            return "Gaussian noise needs δ"
        other = "laplace" if self.noise == "gaussian" else "gaussian"
        try:
            theirs = _made(self.requirements, self.blocks, self.stages, self.protocol, other).relative_error
        except BadParameter:  # the shares would be so narrow that their sum is not nearly Gaussian
            return f"{other.capitalize()} shares would be too narrow"
        return f"expected error {self.relative_error:.3g} against {theirs:.3g} with {other.capitalize()}"

    @property
    def guarantee(self) -> str:
        """The guarantee against the adversary, in words that members sign."""
        return guarantee_of(self.requirements, self.protocol, is_pure=self.noise == "laplace")

    @property
    def deviations(self) -> tuple[float, ...]:
        """The standard deviation of the noise in each block's opened sums, with all members in them."""
        if self.is_local:
            return (joint_noise.local_deviation(self.requirements, self.blocks[0]),)
        return tuple(noise.deviation for noise in self.noises(self.requirements.members))

    @property
    def relative_error(self) -> float:
        """The error of all blocks together, by which plans are compared."""
        return joint_noise.relative_error(self.blocks, self.deviations)

    def noises(self, contributors: int) -> list[SummedLaplace | SummedGaussian]:
        """Return the noise in each block of an opened sum of this number of members."""
        return [share.total(contributors) for share in self.shares]

    def widths(self, confidence: Fraction) -> tuple[int, ...]:
        """Return each block's half width: its noise stays within it with this confidence."""
        return tuple(noise.spread(confidence) for noise in self.noises(self.requirements.members))

    @property
    def cost(self) -> NetworkCost:
        """The traffic of all stages."""
        return network_cost(self.requirements, self.protocol, self.length, self.stages)

    @property
    def notes(self) -> tuple[str, ...]:
        """Further facts that members should know before they sign."""
        needs = self.requirements
        sentences = []
        if needs.coalition and needs.coalition == needs.members - 1:
            sentences.append(BUYS_NOTHING)
        if needs.people_at > 1:
            sentences.append(
                f"A person may be at {needs.people_at} members: the noise is sized so that all these "
                "together lose ε; each member charges its part."
            )
        sentences += self._agreement_notes()
        if self.is_local:
            sentences.append(
                "The expected error is for 10,000 rows in all; it grows like their square root."
            )
        return tuple(sentences)

    def _agreement_notes(self) -> list[str]:
        """Return how many members must agree on a set, where two opened sums would reveal more than one."""
        needs = self.requirements
        if self.protocol in (OWN_NOISE, LOCAL) or not needs.losses:
            return []
        quorum = self.protocol_class.agreeing(protocol_setting(needs, self.length))
        rule = f"{quorum} of {needs.members} members must agree on who is in the sum"
        if needs.members - quorum <= needs.most_losses:
            return [
                f"{rule}: then no two sums are opened, even if the coalition signs two agreements. At "
                f"most {needs.members - quorum} may fail between sharing and agreeing."
            ]
        alone = epsilon_with_honest_shares(self, 1)
        if alone <= needs.epsilon:
            return []
        return [
            f"{rule}. Members of the coalition who signed two agreements, with a relay that lies, could "
            f"isolate a member: ε {six_digits(alone)} instead of {six_digits(needs.epsilon)}. "
            f'quorum = "honest" prevents that, where at most {needs.most_losses} losses are planned.'
        ]

    def alternatives(self, *, why_not_local: str = "") -> tuple[ProtocolAlternative, ...]:
        """Return a comparison with every protocol.

        `why_not_local` is the statistic's reason against the local model, or empty: the blocks alone do not
        show everything about rows.
        """
        others = [_alternative(letter, self) for letter in NAMES if letter != LOCAL or not why_not_local]
        return (*others, ProtocolAlternative(LOCAL, why_not_local)) if why_not_local else tuple(others)

    def to_json(self, *, why_not_local: str = "") -> dict[str, Any]:
        """Return the whole plan as plain values, for programs."""
        cost, needs = self.cost, self.requirements
        return {
            "protocol": self.protocol,
            "protocol_name": NAMES[self.protocol],
            "noise": self.noise,
            "why": self.why,
            "wish": {**needs.to_json(), "epsilon": float(needs.epsilon), "delta": float(needs.delta)},
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
                    "protocol": alternative.letter,
                    "protocol_name": alternative.name,
                    "why_not": alternative.why_not,
                    "relative_error": alternative.error,
                    "survives": alternative.survives,
                    "bytes_sent_by_a_member": alternative.cost and alternative.cost.sent,
                }
                for alternative in self.alternatives(why_not_local=why_not_local)
            ],
        }


def plan_jointly(needs: JointRequirements, blocks: Sequence[CellBlock], stages: int = 1) -> JointPlan:
    """Choose the protocol with the least error, then the most losses survived, then the fewest bytes.

    Args:
        needs: the privacy requirements of all members.
        blocks: the cells that are summed up, by the scale of their noise.
        stages: the number of sums that are opened one after another.

    Returns:
        The plan: its protocol, noise, errors, bytes and guarantee.

    Raises:
        BadParameter: if no protocol serves these requirements.

    Example:
        >>> from lapwing.parties import CellBlock, plan_jointly
        >>> plan = plan_jointly(needs, [CellBlock("visits", length=10, l1=1, l2_squared=1)])
        >>> plan.protocol, round(plan.deviations[0], 2)
        ('C', 1.66)
    """
    cells = tuple(blocks)
    _check_form(cells, stages)
    if needs.protocol != "auto":
        return _with_noise(needs, cells, stages, needs.protocol)
    letters = [letter for letter in NAMES if letter != LOCAL]
    serving = [letter for letter in letters if not protocol_fit(letter, needs, cells, stages).why_not]
    if not serving:
        raise BadParameter("losses", protocol_fit(OWN_NOISE, needs, cells, stages).why_not)
    return min((_with_noise(needs, cells, stages, letter) for letter in serving), key=_rank)


def _rank(plan: JointPlan) -> tuple[float, int, int, str]:
    error = float(f"{plan.relative_error:.9g}")  # equal distributions give equal digits
    return error, -plan.fit.survives, plan.cost.in_all, plan.protocol


def _with_noise(
    needs: JointRequirements, blocks: tuple[CellBlock, ...], stages: int, letter: str
) -> JointPlan:
    """Return a plan with Gaussian noise if that was asked for, or if it is smaller by at least 5 %."""
    if letter != LOCAL and needs.noise != "auto":
        return _made(needs, blocks, stages, letter, needs.noise)
    laplace = _made(needs, blocks, stages, letter, "laplace")
    if letter == LOCAL or not needs.delta:
        return laplace
    try:
        gaussian = _made(needs, blocks, stages, letter, "gaussian")
        is_smaller = gaussian.relative_error <= GAUSSIAN_GAIN * laplace.relative_error
    except BadParameter:  # the shares would be so narrow that their sum is not nearly Gaussian
        return laplace
    return gaussian if is_smaller else laplace


def _made(
    needs: JointRequirements, blocks: tuple[CellBlock, ...], stages: int, letter: str, noise: str
) -> JointPlan:
    parts = joint_noise.split_budget(needs, blocks, stages, noise)
    return JointPlan(needs, blocks, stages, letter, noise, parts)


def _alternative(letter: str, plan: JointPlan) -> ProtocolAlternative:
    needs, blocks, stages = plan.requirements, plan.blocks, plan.stages
    fit = protocol_fit(letter, needs, blocks, stages)
    if fit.why_not:
        return ProtocolAlternative(letter, fit.why_not)
    if letter == plan.protocol:
        return ProtocolAlternative(letter, "", 1.0, fit.survives, plan.cost)
    noise = "laplace" if letter == LOCAL else plan.noise
    parts = joint_noise.split_budget(needs, blocks, stages, noise)
    try:
        other = JointPlan(replace(needs, protocol=letter), blocks, stages, letter, plan.noise, parts)
        error = other.relative_error / plan.relative_error
    except BadParameter as refusal:
        return ProtocolAlternative(letter, refusal.why)
    return ProtocolAlternative(letter, "", error, fit.survives, other.cost)


def _check_form(blocks: tuple[CellBlock, ...], stages: int) -> None:
    if not blocks:
        raise BadParameter("blocks", "must have at least one")
    if not 1 <= stages <= MOST_STAGES:
        raise BadParameter("stages", f"must be 1 to {MOST_STAGES}")
    if sum(block.length for block in blocks) > MOST_CELLS:
        raise BadParameter("blocks", f"must have at most {MOST_CELLS:,} numbers together")


# Larger coalitions than planned


def epsilon_for_coalition(plan: JointPlan, together: int) -> Fraction:
    """Return the ε of a person's rows against a coalition of `together` members. Raises `BadParameter`."""
    needs = plan.requirements
    if not 0 < together < needs.members:
        raise BadParameter("together", f"must be 1 to {needs.members - 1}: of all others nothing is hidden")
    if plan.protocol in (SHAMIR, MASKED) and together >= plan.threshold:
        return epsilon_with_honest_shares(plan, 1)
    return epsilon_with_honest_shares(plan, max(needs.members - together - needs.losses, 1))


def epsilon_with_honest_shares(plan: JointPlan, present: int) -> Fraction:
    """Return the ε of a person's rows if only `present` honest members' shares hide them."""
    needs = plan.requirements
    if plan.protocol == LOCAL:
        return needs.epsilon
    h, pure, rho = needs.people_at, Fraction(0), Fraction(0)
    for share in plan.shares:
        if isinstance(share, LaplaceShares):
            pure += h * share.loss_with(present)
        else:
            rho += (h if plan.protocol == OWN_NOISE else h * h) * _rho(share, min(present, share.of))
    if plan.noise == "gaussian":
        return zcdp_to_epsilon(plan.stages * rho, needs.delta)
    return plan.stages * pure


def _rho(share: GaussianShares, present: int) -> Fraction:
    try:
        return GaussianShares(share.sigma, share.l2_squared, share.dimension, present).loss.rho
    except BadParameter:  # the sum of few shares is not nearly Gaussian; one share is, and more hide more
        return GaussianShares(share.sigma, share.l2_squared, share.dimension, 1).loss.rho


def largest_protected_coalition(plan: JointPlan) -> int:
    """Return the size of the largest coalition that learns no more than the planned ε."""
    needs = plan.requirements
    size = needs.coalition
    while size + 1 < needs.members and epsilon_for_coalition(plan, size + 1) <= needs.epsilon:
        size += 1
    return size


def epsilon_by_coalition(plan: JointPlan) -> dict[int, Fraction]:
    """Return ε by the size of the coalition: as planned, a few more members, and all but one."""
    t, m = plan.requirements.coalition, plan.requirements.members
    sizes = {size for size in (t, *range(t + 1, t + 1 + _MOST_SHOWN), m - 1) if 0 < size < m}
    return {size: epsilon_for_coalition(plan, size) for size in sorted(sizes)}
