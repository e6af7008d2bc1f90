"""The division of ε and δ among blocks and stages, and the noise shares that follow.

Claim    all stages together are (ε, δ)-private for a person whose rows are at `people_at` members (h), if
         `of` honest shares are in every sum; with Laplace noise purely ε. Each member charges what its own
         rows lose: ε / h, or ρ / h².
Because  losses of blocks and stages add up, also where earlier sums choose later stages. A person at h
         members moves the sum by h times the bound of one: h times in L1, h² times in L2². If each member's
         noise hides its value alone, h Gaussian losses add up instead, and each may be ρ / h.
Test     tests/parties/test_joint_noise.py

In the local model every row is randomized by itself before it is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from lapwing.core.gaussian import GaussianShares
from lapwing.core.laplace import LaplaceShares
from lapwing.core.laplace_sampler import LARGEST_SCALE
from lapwing.core.losses import Approximate, Concentrated, Loss, Pure, Repeated, SequentialComposition
from lapwing.core.randomized_response import RandomizedResponse
from lapwing.errors import BadParameter
from lapwing.parties.requirements import JointRequirements
from lapwing.parties.statistics import CellBlock
from lapwing.sql.pricing.noise_shares import largest_rho, proportions

NoiseShares = LaplaceShares | GaussianShares


def split_budget(
    needs: JointRequirements, blocks: Sequence[CellBlock], stages: int, noise: str
) -> tuple[Fraction, ...]:
    """Return the loss of a person by each block of one stage: ε with Laplace noise, ρ with Gaussian.

    The sum of squared relative errors is least for ε_i ∝ weight^(2/3), or ρ_i ∝ weight · l2 / l1.
    """
    if noise == "gaussian":
        whole = largest_rho(needs.epsilon, needs.delta)
        powers = proportions([float(b.weight) * math.sqrt(b.l2_squared) / b.l1 for b in blocks])
    else:
        whole = needs.epsilon
        powers = proportions([float(b.weight) ** (2 / 3) for b in blocks])
    unit = whole / (stages * sum(powers))
    return tuple(power * unit for power in powers)


def noise_shares(
    needs: JointRequirements,
    blocks: Sequence[CellBlock],
    parts: Sequence[Fraction],
    *,
    noise: str,
    honest: int,
    alone: bool,
) -> tuple[NoiseShares, ...]:
    """Return the noise that each member adds to each block, in every stage.

    `alone` tells whether each member's own value is opened. Raises `BadParameter` if noise is too large.
    """
    h = needs.people_at
    made: list[NoiseShares] = []
    for block, part in zip(blocks, parts, strict=True):
        if noise == "gaussian":
            rho = part / h if alone else part / h**2
            if block.l2_squared > 2 * rho * (LARGEST_SCALE - 1) ** 2:
                raise too_much_noise(block)
            made.append(
                GaussianShares.for_rho(rho, l2_squared=block.l2_squared, dimension=block.length, of=honest)
            )
        else:
            if block.l1 * h / part > LARGEST_SCALE:
                raise too_much_noise(block)
            made.append(LaplaceShares.for_epsilon(part / h, l1=block.l1, of=honest))
    return tuple(made)


def member_loss(shares: Sequence[NoiseShares], stages: int) -> Loss:
    """Return the loss of one member's rows by all blocks of all stages."""
    losses = tuple(share.loss for share in shares)
    once = losses[0] if len(losses) == 1 else SequentialComposition(losses)
    return once if stages == 1 else Repeated(once, stages)


def covers(charged: Loss, revealed: Loss) -> bool:
    """Return whether a charged loss is at least the revealed loss.

    Claim    every bound of a charge that covers a loss holds for that loss.
    Because  it is the same; or ρ-zCDP with no less ρ; or (ε, δ) with no less of either, and nothing more is
             claimed. A larger ε alone would not do: Laplace noise, for example, has smaller Rényi bounds
             than other losses of its ε. No ε covers Gaussian noise, which is not purely private.
    Test     tests/parties/test_joint_noise.py
    """
    if charged == revealed:
        return True
    most, least = _rho(charged), _rho(revealed)
    if most is not None and least is not None:
        return most >= least
    if not isinstance(charged, Pure | Approximate) or revealed.pure is None:
        return False
    return charged.pure >= revealed.pure and charged.delta0 >= revealed.delta0


def _rho(loss: Loss) -> Fraction | None:
    """Return the ρ of a loss that consists of zCDP losses, or None."""
    match loss:
        case Concentrated(rho):
            return rho
        case SequentialComposition(parts):
            rhos = [_rho(part) for part in parts]
            return (
                None if None in rhos else sum((known for known in rhos if known is not None), Fraction(0))
            )
        case Repeated(each, count):
            once = _rho(each)
            return None if once is None else count * once
        case _:
            return None


def relative_error(blocks: Sequence[CellBlock], deviations: Sequence[float]) -> float:
    """Return the root mean square of all blocks' expected errors, relative to their ranges."""
    squares = [(float(b.weight) * d / b.l1) ** 2 for b, d in zip(blocks, deviations, strict=True)]
    return math.sqrt(sum(squares) / len(squares))


def too_much_noise(block: CellBlock) -> BadParameter:
    """Return the error for noise that does not fit 64-bit numbers."""
    why = f'is so small that the noise of "{block.label}" would not fit 64-bit integers; ask for more, or '
    return BadParameter("epsilon", why + "declare narrower bounds or a coarser step")


LOCAL_MODEL_ROWS = 10_000  # errors are shown for this number of rows: they grow like √rows


def row_randomizer(needs: JointRequirements, block: CellBlock) -> RandomizedResponse:
    """Return the randomizer of every row. A person's rows at several members lose ε together."""
    return RandomizedResponse.for_epsilon(needs.epsilon / needs.people_at, options=max(block.length, 2))


def local_loss(needs: JointRequirements) -> Pure:
    """Return the loss of one row at one member."""
    return Pure(needs.epsilon / needs.people_at)


def local_deviation(needs: JointRequirements, block: CellBlock) -> float:
    """Return the standard deviation of an estimated count among `LOCAL_MODEL_ROWS` rows."""
    randomizer = row_randomizer(needs, block)
    return LOCAL_MODEL_ROWS * randomizer.standard_error(LOCAL_MODEL_ROWS, share=1 / randomizer.options)
