"""The core of Lapwing: exact arithmetic, noise, privacy losses and mechanisms.

The modules build on one another in this order, and each imports only earlier ones:

exact               rationals, balls and safe rounding
process_bound       objects that cannot be copied or forked
random_stream       the only source of random bits
exact_sampling      exact decisions and table lookups, from which all samplers are built
laplace_sampler     geometric and discrete Laplace draws
gaussian_sampler    discrete Gaussian draws
noise               all draws, with checked parameters (public as `lapwing.noise`)
renyi_curves        Rényi divergences of the basic mechanisms
losses              the privacy loss of one release, and of several
conversions         from losses to (ε, δ) and back
fixed_run           the loss of a run whose steps are fixed beforehand
loss_records        losses as JSON records
budget              charges, lifetime budgets and the privacy filter
loss_curves         what follows from a loss: ε, δ, ρ, the trade-off curve
input_metric        the distance of inputs that a mechanism's loss is about
composition         the loss of several releases (public as `lapwing.losses`)
dp_events           events of dp-accounting as losses
experiment_budget   a budget in memory (public as `lapwing.Budget`)
values, spread      inputs of mechanisms, and widths of their noise
sensitivity         sensitivities of the textbook statistics
laplace, gaussian, selection, order_statistics, partition_selection, randomized_response
                    the mechanisms (public as `lapwing.mechanisms`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapwing.lazy import lazy_names

if TYPE_CHECKING:
    from lapwing.core.budget import PrivacyFilter, Terms
    from lapwing.core.fixed_run import FixedRun
    from lapwing.core.losses import GaussianNoise, LaplaceNoise, Pure, Relation, Repeated, SampledGaussian

__all__ = [
    "FixedRun",
    "GaussianNoise",
    "LaplaceNoise",
    "PrivacyFilter",
    "Pure",
    "Relation",
    "Repeated",
    "SampledGaussian",
    "Terms",
]
_ELSEWHERE = {"FixedRun": "fixed_run", "PrivacyFilter": "budget", "Terms": "budget"}
__getattr__ = lazy_names(__name__, dict.fromkeys(__all__, "losses") | _ELSEWHERE)
