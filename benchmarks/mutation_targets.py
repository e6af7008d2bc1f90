"""What the mutation run changes, what it leaves out, and what a person judged."""

from __future__ import annotations

_ACCURACY = "tells only how accurate an answer is"
_CHECK = "checks arguments"
_GROUP = "the loss of a group of units: no release is charged by it"
_FORM = "the form of an answer, not its noise"

# Functions that decide scales, rates, sensitivities, probabilities, losses and divisions of a budget.
TARGETS: dict[str, tuple[str, ...]] = {
    "core/laplace.py": (
        "Laplace.for_epsilon", "Laplace.sample", "LaplaceShares.for_epsilon", "LaplaceShares.loss_with",
        "LaplaceShares.sample",
    ),
    "core/gaussian.py": (
        "_GaussianTerms.sample", "Gaussian.for_rho", "GaussianShares.for_rho", "GaussianShares.for_budget",
        "GaussianShares.loss", "GaussianShares.delta", "GaussianShares._paid",
    ),
    "core/selection.py": (
        "ScoredChoice.rate", "PermuteAndFlip.sample", "NoisyMax.scale", "NoisyMax.sample",
        "AboveThreshold.threshold_epsilon", "AboveThreshold.threshold_scale",
        "AboveThreshold.question_scale", "AboveThresholdSession.__init__", "AboveThresholdSession.is_over",
        "AboveThresholdSession._is_above",
    ),
    "core/order_statistics.py": (
        "RankRuns.of", "RankRuns.choose", "_counted", "Quantile.sensitivity", "Quantile.sample_counts",
        "Extreme.sample_counts",
    ),
    "core/partition_selection.py": (
        "PartitionSelection._each", "PartitionSelection._rise", "PartitionSelection._turns",
        "PartitionSelection._rising", "PartitionSelection.keep_probability", "PartitionSelection.decide",
        "PartitionSelection._approximate",
    ),
    "core/randomized_response.py": (
        "RandomizedResponse.two_coins", "RandomizedResponse.loss", "RandomizedResponse.truth_probability",
        "RandomizedResponse.sample",
    ),
    "core/sensitivity.py": (
        "Sensitivity.in_steps", "_scalar", "total", "proportion", "mean", "variance", "deviation",
        "histogram", "vector",
    ),
    "core/losses.py": (
        "Loss.renyi_units", "Concentrated.renyi", "Concentrated.renyi_units", "BoundedRange.renyi_units",
        "LaplaceNoise.pure", "LaplaceNoise.pair_units", "GaussianNoise.concentrated",
        "GaussianNoise.renyi_units", "_Composition.renyi", "_larger", "Repeated.delta0", "Repeated.pure",
        "Repeated.pair", "Repeated.renyi",
    ),
    "sql/pricing/noise_shares.py": ("BudgetShares.loss", "divide_budget", "_split", "_gaussian", "_choice"),
    "sql/question/aggregates.py": (
        "AggregateCollector.count_rows", "AggregateCollector.count_units",
        "AggregateCollector.count_distinct", "AggregateCollector.total", "AggregateCollector._centred",
        "AggregateCollector._pair", "AggregateCollector._product", "AggregateCollector._part", "_reach",
    ),
}  # fmt: skip

LEFT_OUT: dict[str, dict[str, str]] = {
    "core/laplace.py": {
        "_LaplaceTerms.__post_init__": _CHECK,
        **dict.fromkeys(
            ("noise_width", "Laplace.for_width", "SummedLaplace.deviation", "upper_tail", "_saddle",
             "_summed_width", "_next_width", "_guess_width", "_legendre", "_log_tail"),
            _ACCURACY,
        ),
    },
    "core/gaussian.py": {
        **dict.fromkeys(
            ("Gaussian.for_width", "Gaussian.spread", "SummedGaussian.deviation", "_summed_width"),
            _ACCURACY,
        ),
        "GaussianShares._wide_enough": _CHECK,
        "_least_sigma": "a search: only what `loss` or `delta` accept is returned",
        "unevenness": "a bound below 1e-8 at every σ that shares may have: no stage compares so many "
        "digits of a bound that is not tight; tests/claims/test_noise_shares.py does",
    },
    "core/selection.py": dict.fromkeys(
        ("NoisyMax.spread", "NoisyMax._overtakes", "AboveThreshold.spread"), _ACCURACY
    ),
    "core/order_statistics.py": {
        "_RankChoice.spread": _ACCURACY,
        "_rank": "the wanted rank is public: any one is private",
        "Extreme.rank": "the wanted rank is public: any one is private",
    },
    "core/partition_selection.py": {
        "PartitionSelection.__post_init__": _CHECK, "PartitionSelection.spread": _ACCURACY,
    },
    "core/randomized_response.py": dict.fromkeys(
        ("RandomizedResponse._probabilities", "RandomizedResponse.estimate",
         "RandomizedResponse.standard_error", "RandomizedResponse.spread"),
        _ACCURACY,
    ),
    "core/losses.py": dict.fromkeys(
        ("_PureBound.for_group", "Approximate.for_group", "Concentrated.for_group",
         "LaplaceNoise.for_group", "GaussianNoise.for_group"),
        _GROUP,
    ),
    "sql/pricing/noise_shares.py": {
        **dict.fromkeys(("_error", "deviation"), _ACCURACY),
        "proportions": "weights of a division, all of them public: any are private",
        "largest_rho": "a search: only a ρ that `zcdp_to_epsilon` accepts is returned",
        "_short": "a guess of that search",
        **dict.fromkeys(("_too_much_noise",), _CHECK),
        **dict.fromkeys(("_grouping", "_rank", "_sample", "_by_group"), _FORM),
    },
    "sql/question/aggregates.py": dict.fromkeys(
        ("AggregateCollector._known", "AggregateCollector._add", "_combination",
         "AggregateBinder.statistic",
         "AggregateBinder._of_one", "AggregateBinder._count", "with_average_pairs"),
        _FORM,
    ),
}  # fmt: skip

# Functions that draw: their mutants also meet 20,000 draws.
SAMPLERS: dict[str, tuple[str, ...]] = {
    "core/laplace.py": ("Laplace.sample", "LaplaceShares.sample"),
    "core/gaussian.py": ("_GaussianTerms.sample",),
    "core/selection.py": (
        "PermuteAndFlip.sample", "NoisyMax.sample", "AboveThresholdSession.__init__",
        "AboveThresholdSession._is_above",
    ),
    "core/order_statistics.py": (
        "RankRuns.of", "RankRuns.choose", "_counted", "Quantile.sample_counts", "Extreme.sample_counts",
    ),
    "core/partition_selection.py": ("PartitionSelection.decide", "PartitionSelection._approximate"),
    "core/randomized_response.py": ("RandomizedResponse.sample",),
}  # fmt: skip

# What a person judged about survivors: the beginning of the mutant's name, and why it does no harm.
_SYMMETRIC = "the noise is symmetric about 0: the law is the same"
_SEARCH = "the start of a search: only a σ whose loss or δ is within the claim is accepted"
_SHARES_DELTA = "core/gaussian.py: GaussianShares.delta"
_LARGER = "the continuous bound becomes larger, so the zCDP bound, which holds alone, is taken: more noise"
_UNEVEN = "η is below 1e-8: no stage compares so many digits; tests/claims/test_noise_shares.py does"
_FEWER = "a part of the score does not depend on rows any more: it moves by no more"
_RESPONSE = "core/randomized_response.py: RandomizedResponse"
_NOISE_SHARES = "sql/pricing/noise_shares.py"
_KEYS_IN_FLOATS = "core/partition_selection.py: PartitionSelection._approximate"
_EXACTLY = "a larger bound on the error of floats: more draws are decided by the exact probability"
EXPLAINED: dict[str, str] = {
    "core/laplace.py: Laplace.sample: checked + ": _SYMMETRIC,
    "core/laplace.py: LaplaceShares.sample: checked + ": _SYMMETRIC,
    "core/gaussian.py: _GaussianTerms.sample: checked + ": _SYMMETRIC,
    "core/selection.py: NoisyMax.sample: checked + ": _SYMMETRIC,
    "core/selection.py: AboveThresholdSession.__init__: threshold + ": _SYMMETRIC,
    "core/selection.py: AboveThresholdSession._is_above: value + ": _SYMMETRIC,
    "core/selection.py: AboveThreshold.threshold_epsilon: ": "another division of ε: the rest goes to the "
    "questions, so any two positive parts are private",
    "core/gaussian.py: Gaussian.for_rho: math.ceil(scaled) - 1 -> math.ceil(scaled) + 1": "σ is rounded up "
    "by at most 1e-6 more",
    "core/partition_selection.py: PartitionSelection.decide: 1 -> 2": "counts above the last one are all "
    "shown with certainty",
    f"{_KEYS_IN_FLOATS}: (1 + c) * 2.0 ** (-38) -> 1 + c": _EXACTLY,
    f"{_KEYS_IN_FLOATS}: 2.0 ** (-38) -> 2.0": _EXACTLY,
    f"{_KEYS_IN_FLOATS}: 38 -> 37": _EXACTLY,
    f"{_KEYS_IN_FLOATS}: 38 -> 39": "the error of the floats is below 2^-42, so the bound still holds",
    "core/randomized_response.py: RandomizedResponse.sample: true + others": "the other options are "
    "uniform in either direction",
    "core/gaussian.py: GaussianShares._paid: ": _UNEVEN,
    f"{_NOISE_SHARES}: divide_budget: GAUSSIAN_GAIN": "chooses one of two kinds of noise, both paid: "
    "only the accuracy depends on it",
    f"{_SHARES_DELTA}: self.of * self.sigma ** 2 -> self.of /": _LARGER,
    f"{_SHARES_DELTA}: self.dimension * unevenness(self.sigma, self.of) -> self.dimension": _LARGER,
    f"{_SHARES_DELTA}: (law.paid + uneven).exp() * continuous_delta(left, law.ratio) -> "
    "(law.paid + uneven).exp()": _LARGER,
    f"{_SHARES_DELTA}: 1 / sqrt_up(1 / (self.of * self.sigma ** 2)) -> 1": _LARGER,
    f"{_SHARES_DELTA}: 1 / (self.of * self.sigma ** 2) -> 1": _LARGER,
    f"{_SHARES_DELTA}: 2 * uneven -> 2": _LARGER,
    f"{_SHARES_DELTA}: 0 -> 1": _LARGER,
    f"{_SHARES_DELTA}: ball(e) - law.paid - 2 * uneven -> ball(e) - law.paid + 2 * uneven": _UNEVEN,
    f"{_SHARES_DELTA}: 2 -> 1": _UNEVEN,
    "core/order_statistics.py: Quantile.sample_counts: f * (runs.equal + runs.above) -> f": _FEWER,
    "core/order_statistics.py: Quantile.sample_counts: g * (runs.below + runs.equal) -> g": _FEWER,
    f"{_KEYS_IN_FLOATS}: 1 + c -> 1 - c": "c is far below 1, and the error below 2^-42",
    f"{_RESPONSE}.two_coins: ": "another probability, whose loss follows",
    f"{_RESPONSE}.loss: self.options - 1 -> self.options + 1": "charges more",
    "core/sensitivity.py: variance: 1 -> 2": "one more step for rounding",
    "core/losses.py: LaplaceNoise.pair_units: 0 -> 1": "charges one unit of δ more",
    "core/selection.py: NoisyMax.scale: 2 -> 3": "half as much noise again",
    "core/selection.py: AboveThresholdSession._is_above: 1 -> 2": "draws two numbers, and takes the first",
    "core/order_statistics.py: RankRuns.of: 0 -> 1": "max(rows below, 1) in place of rows below: a row "
    "moves it by no more",
    "core/order_statistics.py: RankRuns.of: 1 -> 2": "one more public candidate, above the last one",
    "core/order_statistics.py: RankRuns.choose: 1 -> 2": "draws two numbers, and takes the first",
    "core/partition_selection.py: PartitionSelection.keep_probability: 1 -> 2": "certain in either case",
    "core/sensitivity.py: Sensitivity.in_steps: 2 -> 3": "a distance of at least 1 can only grow",
    "core/losses.py: GaussianNoise.renyi_units: 2 * squared.denominator -> 2": "charges more, if the "
    "squared distance is a fraction",
    f"{_NOISE_SHARES}: _split: 0 -> 1": "the ε of a choice, in a question without choices: nobody reads it",
    f"{_NOISE_SHARES}: _gaussian: dimension * len(part.numbers) -> dimension": "ρ does not depend on the "
    "dimension, and the sampler counts its values itself",
    f"{_NOISE_SHARES}: _choice: max(last, first + 1)": "other candidates, which are public: any are"
    " private",
    "sql/question/aggregates.py: AggregateCollector._pair: 0 -> 1": "whether there is a pair of sums, by "
    "public bounds: only the accuracy depends on it",
    "sql/question/aggregates.py: _reach: 1 -> 2": "a larger sensitivity, of columns with one value or two",
    "core/gaussian.py: GaussianShares.for_rho: ": _SEARCH,
    "core/gaussian.py: GaussianShares.for_budget: ": _SEARCH,
}
