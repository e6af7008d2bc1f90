"""Exact losses of protocols: the views of all coalitions, over losses, late posts and lies of the relay.

Claim    if `view_stage` finds no violation, then in each run that it tried no coalition of up to t members,
         together with the relay, learns more about one honest member's value than the claimed ε.
Because  messages are linear in values and uniform coins, so a view tells exactly the combinations of values
         without coins (`coalition_views`). With noise on the values, their law is a finite sum, in balls.
         Noise is taken modulo a small prime, which tells less than whole numbers would; so the true ε of
         whole numbers is that of the noise shares, which is compared beside it.
Test     tests/audit/test_protocol_views.py, tests/parties/protocols/test_protocols_views.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product

from flint import arb

from lapwing.audit import coalition_views as views
from lapwing.audit import laws
from lapwing.audit.case import RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.stages.exact import ExactPair, compare_exactly
from lapwing.core.exact import lower, precision, upper
from lapwing.mechanisms import LaplaceShares, RandomizedResponse
from lapwing.parties.protocols.own_noise import LocalModel
from lapwing.parties.protocols.protocol import Protocol, Setting

CLAIM = Fraction(1)  # views are computed for noise shares at ε = 1


@dataclass(frozen=True, slots=True)
class ViewedSetting:
    """A protocol with members, t and losses, for which all views are computed.

    Args:
        protocol: The protocol.
        members: The number of members.
        coalition: The number t of members that the adversary controls.
        losses: The number of members that may be lost.
        modulus: The prime for which values are computed.
        shares: The noise shares that make one whole noise; None: as many as the protocol plans.
        honest_quorum: Whether two sets of members that agree must have an honest one in common.
        signs_twice: Whether the views are those of members that sign two agreements; else of members that
            follow the protocol.
    """

    protocol: type[Protocol]
    members: int
    coalition: int
    losses: int
    modulus: int
    shares: int | None = None
    honest_quorum: bool = False
    signs_twice: bool = False

    @property
    def setting(self) -> Setting:
        """The parameters of the protocol."""
        return Setting(
            members=self.members,
            coalition=self.coalition,
            losses=self.losses,
            length=1,
            modulus=self.modulus,
            honest_quorum=self.honest_quorum,
        )


def some_schedules(viewed: ViewedSetting, *, thorough: bool) -> Iterator[views.Schedule]:
    """Yield schedules: all stay; then each member lost or late in each round; if thorough, two of them.

    Then the relay shows one member the posts of all but one other, in each round. Where members sign twice,
    all schedules are those of `split_agreements`.
    """
    if viewed.signs_twice:
        yield from split_agreements(viewed)
        return
    yield views.NOTHING_LOST
    rounds, members = range(len(viewed.protocol.rounds)), range(viewed.members)
    fates = [(kind, i, at) for kind in ("lost", "late") for i in members for at in rounds]
    chosen: list[tuple[tuple[str, int, int], ...]] = [(fate,) for fate in fates]
    if thorough:
        chosen += [(first, second) for first, second in combinations(fates, 2) if first[1] != second[1]]
    for some in chosen:
        lost = {i: at for kind, i, at in some if kind == "lost"}
        yield views.Schedule(lost, {i: at for kind, i, at in some if kind == "late"}, views.HONEST_RELAY)
    if thorough:
        for at, shown, hidden in product(rounds, members, members):
            if shown != hidden:
                yield views.Schedule({}, {}, {(at, shown): {i for i in members if i != hidden}})


def split_agreements(viewed: ViewedSetting) -> Iterator[views.Schedule]:
    """Yield schedules in which the relay shows two groups of honest members two sets, before they agree.

    One group sees all posts, the other lacks those of one member of the first. The first t members sign
    whatever anybody needs to go on. If both sets are opened, the difference of the sums is the noised value
    of one member.
    """
    at = viewed.protocol.rounds.index("agree") - 1
    liars = frozenset(range(viewed.coalition))
    honest = range(viewed.coalition, viewed.members)
    for size in range(1, len(honest)):
        alone, group = honest[0], honest[-size:]
        kept = {i for i in range(viewed.members) if i != alone}
        if alone not in group:
            yield views.Schedule({}, {}, {(at, i): kept for i in group}, liars)


def _views(
    viewed: ViewedSetting, schedules: Iterable[views.Schedule]
) -> Iterator[tuple[views.Schedule, frozenset[int], arb]]:
    """Yield the greatest loss by the view of each coalition, in each schedule."""
    setting = viewed.setting
    shares = viewed.shares or viewed.protocol.honest(setting)
    for schedule in schedules:
        world = views.Basis(setting)
        rehearsal = world.run(viewed.protocol, setting, schedule)
        for coalition in views.coalitions(setting):
            rows = views.leaked(world, rehearsal, coalition)
            yield schedule, coalition, views.worst_loss(rows, viewed.modulus, shares)


def share_pairs(viewed: ViewedSetting) -> Iterator[ExactPair]:
    """Yield the law of the least honest noise in a sum of whole numbers, at ε = 1, beside the claim."""
    if issubclass(viewed.protocol, LocalModel):
        response = RandomizedResponse.for_epsilon(CLAIM, options=2)
        truth = laws.certain(response.truth_probability()(views.BITS))
        first, second = (laws.randomized_response(answer, 2, truth) for answer in (0, 1))
        yield ExactPair("one row that is 0 or 1", first, second, response.loss, CLAIM)
    honest = viewed.protocol.honest(viewed.setting)
    of = viewed.shares or honest
    shares = LaplaceShares.for_epsilon(CLAIM, l1=1, of=of)
    first, second = laws.shifted_pair(laws.laplace_shares(shares.scale, of, honest), 1)
    name = f"the noise of {honest} honest members, {of} shares a noise: sums of 0 and 1"
    yield ExactPair(name, first, second, shares.loss, CLAIM)


def view_stage(settings: Callable[[StageBudget], Sequence[ViewedSetting]]) -> RunStage:
    """Return the exact stage of a protocol, at ε = 1: all views, and the noise that they leave."""

    def run(budget: StageBudget) -> StageResult:
        checks, measured = 0, Fraction(0)
        chosen = settings(budget)
        for viewed in chosen:
            name = f"{viewed.protocol.name}, {viewed.members} members, t = {viewed.coalition}"
            budget.progress(f"exact: views of {name}")
            noise = compare_exactly(share_pairs(viewed), budget, epsilon=CLAIM)
            checks += noise.checks
            if noise.witness is not None:
                return StageResult(Stage.EXACT, checks, 1.0, noise.measured, 1.0, noise.witness)
            schedules = some_schedules(viewed, thorough=budget.is_thorough)
            for schedule, coalition, loss in _views(viewed, schedules):
                checks += 1
                with precision(views.BITS):
                    least, most = lower(loss), upper(loss)
                measured = max(measured, least)
                if most > CLAIM:
                    witness = _witness(name, viewed, schedule, coalition, float(least))
                    return StageResult(Stage.EXACT, checks, 1.0, float(measured), 1.0, witness)
        notes = (
            f"{len(chosen)} settings, all coalitions of up to t members; views modulo a small prime, which "
            "tells less than whole numbers; the noise itself is compared in whole numbers",
        )
        return StageResult(Stage.EXACT, checks, 1.0, float(measured), 1.0, notes=notes)

    return run


def _witness(
    name: str, viewed: ViewedSetting, schedule: views.Schedule, coalition: frozenset[int], loss: float
) -> Witness:
    return Witness(
        pair=f"{name}: the value of one honest member, and the same plus 1 (modulo {viewed.modulus})",
        event=f"the view of the coalition {sorted(coalition)} and the relay; lost {dict(schedule.losses)}, "
        f"late {dict(schedule.late)}, shown {dict(schedule.shown)}",
        numbers={"true ε of the view": loss, "claimed ε": 1.0},
        at_least=loss,
    )
