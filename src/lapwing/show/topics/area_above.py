"""δ as an area: what lies above e^ε, for Laplace and for Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial

from lapwing.audit.laws.decimals import SLACK
from lapwing.audit.laws.distances import Direction
from lapwing.audit.laws.noise_laws import gaussian, laplace
from lapwing.core.exact import short
from lapwing.mechanisms import Gaussian, Laplace
from lapwing.plots.loss import gaussian_curve, privacy_loss
from lapwing.show.topic import NumberTable, Progress, Shown

_PARTS = tuple(Fraction(k, 4) for k in (0, 1, 2, 3, 4, 5, 6, 8))
_SIGMAS = 17  # less than 1e-60 of the outcomes lies beyond


def delta_area(values: Mapping[str, Fraction], _full: bool, _progress: Progress) -> Shown:
    """Compute the area above e^ε of both noises, for several ε, from all probabilities."""
    epsilon, delta = values["epsilon"], values["delta"]
    noise = Gaussian.for_budget(epsilon, delta, l2_squared=1, dimension=1)
    by_laplace, by_gauss = laplace_pair(epsilon), gaussian_pair(noise.sigma)
    area = float(by_gauss.excess(epsilon))
    drawn = gaussian_curve(float(noise.sigma)).mass_above(math.exp(epsilon))
    every = [part * epsilon for part in _PARTS]
    rows = [(float(e), _area(by_laplace, e), float(by_gauss.excess(e))) for e in every]
    return Shown(
        headline=f"Gaussian noise with σ = {short(float(noise.sigma))} passes e^ε = "
        f"{short(math.exp(epsilon))} in rare outcomes; what lies above it adds up to δ = {short(area)}",
        sentences=(
            "Take each possible answer of a noisy count: how much likelier it is with your data, and how "
            "probable it is without them. Drawn as steps, all of them have area 1.",
            "The area above the line e^ε is the δ that the noise needs. For Laplace noise at this ε it "
            f"is 0; for Gaussian noise it is never 0, and here {short(area)}, as computed from all "
            f"probabilities (and {short(drawn)} in the picture).",
            "δ is not the probability that your data become known. It limits everything that may lie above "
            "e^ε. Under Gaussian noise, most of that lies only a little above it.",
            "But δ alone allows very bad releases: to publish one row, chosen at random among n, needs "
            "only δ = 1/n. So δ should be far below 1/n.",
            "One noise has many pairs (ε, δ): the table shows them.",
        ),
        tables=(
            NumberTable(
                "The area above e^ε: the least δ at each ε",
                ("ε", "Laplace noise", "Gaussian noise"),
                tuple(rows),
            ),
        ),
        picture=partial(privacy_loss, epsilon, delta),
    )


def _area(pair: Direction, epsilon: Fraction) -> float:
    """Return the area above e^ε, without what 60 digits leave of an area of 0."""
    area = pair.excess(epsilon)
    return float(area) if area > SLACK else 0.0


def laplace_pair(epsilon: Fraction) -> Direction:
    """Return the distances between the laws of a count with you and without you, under Laplace noise."""
    scale = Laplace.for_epsilon(epsilon, l1=1).scale
    return Direction(laplace(scale, 1, 0, 1), laplace(scale, 0, 0, 1))


def gaussian_pair(sigma: Fraction) -> Direction:
    """Return the same distances under Gaussian noise."""
    reach = math.ceil(_SIGMAS * sigma) + 2
    return Direction(gaussian(sigma, 1, -reach, reach), gaussian(sigma, 0, -reach, reach))
