"""The plan of a joint computation: chosen and priced before anything runs, from public facts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter
from lapwing.parties.planning.guarantee import BUYS_NOTHING, digits, guarantee_of
from lapwing.parties.planning.local import local_deviation, local_loss
from lapwing.parties.planning.noises import Shares, loss_of, relative_error, shares_of, split
from lapwing.parties.planning.rules import (
    ADDITIVE,
    LOCAL,
    MASKED,
    OWN_NOISE,
    Footing,
    footing,
    setting_of,
)
from lapwing.parties.planning.together import epsilon_with, losses_together
from lapwing.parties.planning.traffic import Cost, cost_of
from lapwing.parties.planning.wish import JointWish
from lapwing.parties.protocols import NAMES
from lapwing.parties.protocols.masked import Masked
from lapwing.parties.statistics import Block
from lapwing.parties.statistics.statistic import MOST_CELLS
from lapwing.privacy import Loss
from lapwing.privacy.convert import zcdp_to_epsilon
from lapwing.query.answering.shares import GAIN

MOST_STAGES = 64


@dataclass(frozen=True, slots=True)
class Alternative:
    """A protocol beside the chosen one: what it would give, or why it does not serve."""

    letter: str
    why_not: str
    error: float | None = None  # relative to the chosen protocol's
    survives: int = 0
    cost: Cost | None = None

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

    wish: JointWish
    blocks: tuple[Block, ...]
    stages: int
    protocol: str
    noise: str
    parts: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        _check_form(self.blocks, self.stages)
        if self.protocol not in NAMES:
            raise BadParameter("protocol", f"must be one of {', '.join(NAMES)}")
        if self.wish.protocol not in ("auto", self.protocol):
            raise BadParameter("protocol", "is not the one that was wished for")
        if self.footing.why_not:
            raise BadParameter("protocol", f"{NAMES[self.protocol]}: {self.footing.why_not}")
        if self.noise not in ("laplace", "gaussian") or self.wish.noise not in ("auto", self.noise):
            raise BadParameter("noise", "is not the one that was wished for")
        if len(self.parts) != len(self.blocks) or any(part <= 0 for part in self.parts):
            raise BadParameter("parts", "must be one above 0 for each block")
        whole = self.stages * sum(self.parts, Fraction(0))
        if self.noise == "gaussian" and not self.wish.delta:
            raise BadParameter("delta", "must be above 0: Gaussian noise is never purely private")
        reached = zcdp_to_epsilon(whole, self.wish.delta) if self.noise == "gaussian" else whole
        if reached > self.wish.epsilon:
            raise BadParameter("parts", "add up to more than epsilon")

    @property
    def footing(self) -> Footing:
        """What the protocol needs and gives."""
        return footing(self.protocol, self.wish, self.blocks, self.stages)

    @property
    def is_local(self) -> bool:
        """Whether every row randomizes itself."""
        return self.protocol == LOCAL

    @property
    def honest(self) -> int:
        """How many honest members' noise is in every sum that is opened, at least."""
        return self.footing.honest

    @property
    def threshold(self) -> int:
        """How many members can open a sum."""
        return self.footing.threshold

    @property
    def least(self) -> int:
        """How many members must be in a sum; with fewer nothing is opened."""
        return self.wish.members - self.wish.losses

    @property
    def length(self) -> int:
        """How many numbers are summed in one stage."""
        return sum(block.length for block in self.blocks)

    @property
    def shares(self) -> tuple[Shares, ...]:
        """The noise that each member adds to each block, in every stage; none in the local model."""
        if self.is_local:
            return ()
        return shares_of(
            self.wish,
            self.blocks,
            self.parts,
            noise=self.noise,
            honest=self.honest,
            alone=self.protocol == OWN_NOISE,
        )

    @property
    def loss(self) -> Loss:
        """What one member charges for its own rows, for all stages together."""
        return local_loss(self.wish) if self.is_local else loss_of(self.shares, self.stages)

    @property
    def why(self) -> str:
        """What speaks for this noise."""
        if self.is_local:
            return "every row randomizes itself"
        if self.wish.noise != "auto":
            return "as asked"
        if not self.wish.delta:
            return "Gaussian noise needs δ"
        other = "laplace" if self.noise == "gaussian" else "gaussian"
        try:
            theirs = _made(self.wish, self.blocks, self.stages, self.protocol, other).relative_error
        except BadParameter:  # shares so narrow that their sum is no Gaussian any more
            return f"{other.capitalize()} shares would be too narrow"
        return f"expected error {self.relative_error:.3g} against {theirs:.3g} with {other.capitalize()}"

    @property
    def guarantee(self) -> str:
        """What the adversary's view is promised to hide."""
        return guarantee_of(self.wish, self.protocol, is_pure=self.noise == "laplace")

    @property
    def deviations(self) -> tuple[float, ...]:
        """The standard deviation of the noise in each block's opened sums, with all members in them."""
        if self.is_local:
            return (local_deviation(self.wish, self.blocks[0]),)
        return tuple(share.total(self.wish.members).deviation for share in self.shares)

    @property
    def relative_error(self) -> float:
        """Of all blocks together, by which plans are compared."""
        return relative_error(self.blocks, self.deviations)

    def widths(self, confidence: Fraction) -> tuple[int, ...]:
        """Within which every number of a block lies at this confidence, noise alone."""
        totals = [share.total(self.wish.members) for share in self.shares]
        return tuple(total.spread(confidence) for total in totals)

    @property
    def cost(self) -> Cost:
        """What travels."""
        return cost_of(self.wish, self.protocol, self.length, self.stages)

    @property
    def notes(self) -> tuple[str, ...]:
        """What else members should know before they sign."""
        m, t = self.wish.members, self.wish.coalition
        found = []
        if t and t == m - 1:
            found.append(BUYS_NOTHING)
        if self.wish.people_at > 1:
            found.append(
                f"A person may be at {self.wish.people_at} members: the noise is sized so that all these "
                "together lose ε; each member charges its part."
            )
        found += self._on_agreeing()
        if self.is_local:
            found.append("The expected error is for 10,000 rows in all; it grows like their square root.")
        return tuple(found)

    def _on_agreeing(self) -> list[str]:
        """How many must agree on who is in a sum, where sets can differ and two sums would tell more."""
        wish = self.wish
        if self.protocol in (OWN_NOISE, LOCAL) or not wish.losses:
            return []
        setting = setting_of(wish, self.length)
        quorum = {ADDITIVE: max(setting.quorum, self.least), MASKED: Masked.agreeing(setting)}.get(
            self.protocol, setting.quorum
        )
        found = f"{quorum} of {wish.members} members must agree on who is in the sum"
        if wish.members - quorum <= wish.most_losses:
            return [
                f"{found}: then no two sums are opened, even if the coalition signs two agreements. At "
                f"most {wish.members - quorum} may fail between sharing and agreeing."
            ]
        alone = epsilon_with(self, 1)
        if alone <= wish.epsilon:
            return []
        return [
            f"{found}. Members of the coalition who signed two agreements, with a relay that lies, could "
            f'isolate a member: ε {digits(alone)} instead of {digits(wish.epsilon)}. quorum = "honest" '
            f"prevents that, where at most {wish.most_losses} losses are planned."
        ]

    def alternatives(self, *, why_not_local: str = "") -> tuple[Alternative, ...]:
        """Every protocol: what it would give, or why it does not serve.

        `why_not_local` is what the statistic says; blocks alone do not tell everything about rows.
        """
        found = [_alternative(letter, self) for letter in NAMES if letter != LOCAL or not why_not_local]
        return (*found, Alternative(LOCAL, why_not_local)) if why_not_local else tuple(found)

    def to_json(self, *, why_not_local: str = "") -> dict[str, Any]:
        """Everything, for programs."""
        cost = self.cost
        return {
            "protocol": self.protocol,
            "protocol_name": NAMES[self.protocol],
            "noise": self.noise,
            "why": self.why,
            "wish": self.wish.to_json(),
            "honest": self.honest,
            "threshold": self.threshold,
            "least_members": self.least,
            "guarantee": self.guarantee,
            "notes": list(self.notes),
            "epsilon_if_so_many_belong_together": {
                str(size): float(epsilon) for size, epsilon in losses_together(self).items()
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


def plan_jointly(wish: JointWish, blocks: Sequence[Block], stages: int = 1) -> JointPlan:
    """The protocol with the least error, then the most losses survived, then the fewest bytes."""
    cells = tuple(blocks)
    _check_form(cells, stages)
    if wish.protocol != "auto":
        return _with_noise(wish, cells, stages, wish.protocol)
    found = [letter for letter in NAMES if letter != LOCAL]
    serving = [letter for letter in found if not footing(letter, wish, cells, stages).why_not]
    if not serving:
        raise BadParameter("losses", footing(OWN_NOISE, wish, cells, stages).why_not)
    plans = [_with_noise(wish, cells, stages, letter) for letter in serving]
    return min(plans, key=_merit)


def _merit(plan: JointPlan) -> tuple[float, int, int, str]:
    error = float(f"{plan.relative_error:.9g}")  # equal laws give equal digits
    return error, -plan.footing.survives, plan.cost.in_all, plan.protocol


def _with_noise(wish: JointWish, blocks: tuple[Block, ...], stages: int, letter: str) -> JointPlan:
    """Gaussian noise where it is wished for, or where it is smaller by at least 5 %."""
    if letter != LOCAL and wish.noise != "auto":
        return _made(wish, blocks, stages, letter, wish.noise)
    laplace = _made(wish, blocks, stages, letter, "laplace")
    if letter == LOCAL or not wish.delta:
        return laplace
    try:
        gaussian = _made(wish, blocks, stages, letter, "gaussian")
        is_smaller = gaussian.relative_error <= GAIN * laplace.relative_error
    except BadParameter:  # shares so narrow that their sum is no Gaussian any more
        return laplace
    return gaussian if is_smaller else laplace


def _made(wish: JointWish, blocks: tuple[Block, ...], stages: int, letter: str, noise: str) -> JointPlan:
    return JointPlan(wish, blocks, stages, letter, noise, split(wish, blocks, stages, noise))


def _alternative(letter: str, plan: JointPlan) -> Alternative:
    wish, blocks, stages = plan.wish, plan.blocks, plan.stages
    found = footing(letter, wish, blocks, stages)
    if found.why_not:
        return Alternative(letter, found.why_not)
    if letter == plan.protocol:
        return Alternative(letter, "", 1.0, found.survives, plan.cost)
    parts = split(wish, blocks, stages, "laplace" if letter == LOCAL else plan.noise)
    try:
        other = JointPlan(replace(wish, protocol=letter), blocks, stages, letter, plan.noise, parts)
        error = other.relative_error / plan.relative_error
    except BadParameter as refusal:
        return Alternative(letter, refusal.why)
    return Alternative(letter, "", error, found.survives, other.cost)


def _check_form(blocks: tuple[Block, ...], stages: int) -> None:
    if not blocks:
        raise BadParameter("blocks", "must have at least one")
    if not 1 <= stages <= MOST_STAGES:
        raise BadParameter("stages", f"must be 1 to {MOST_STAGES}")
    if sum(block.length for block in blocks) > MOST_CELLS:
        raise BadParameter("blocks", f"must have at most {MOST_CELLS:,} numbers together")
