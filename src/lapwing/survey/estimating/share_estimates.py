"""Shares from counts of supporting reports, and frequent words.

Frequent words are found by their beginnings first, then by the letters that follow, each level from other
respondents.

Claim    with the confidence that was asked for, no word is shown that nobody wrote; and, with the same
         confidence, all shown intervals hold together.
Because  the candidates depend on the reports of earlier levels only, and every report belongs to one
         level. At the last level each of m candidates is tested with a risk of (1 - confidence) / m, by
         the exact binomial law of a word that nobody wrote; and the intervals are those of all m
         candidates together (Bonferroni), whichever are shown, from exact tails: docs/arguments/survey.md.
Test     survey/estimating/test_share_estimates_words.py::test_words_that_nobody_wrote_are_hardly_ever_shown
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter
from lapwing.survey.designing import RandomizedQuestion
from lapwing.survey.estimating.intervals import SupportChance, least_count, support_chance_of
from lapwing.survey.estimating.results import EstimatedValue, EstimateTable, Interval
from lapwing.survey.estimating.scores import (
    AnswerFunctions,
    EstimationTerms,
    Floats,
    QuestionCollector,
    ScoreLimits,
    ScorePair,
    ScoreSums,
    question_functions,
    score_extremes,
    share_functions,
)
from lapwing.survey.questionnaire import ALPHABET, LETTER_BITS, NO_ANSWER, OneOf, Ranked, spell
from lapwing.survey.randomizers import FrequencyOracle, HadamardResponse, PrefixResponse
from lapwing.survey.randomizers.index_oracles import walsh_transform
from lapwing.survey.randomizers.prefixes import InnerRandomizer
from lapwing.survey.randomizers.randomizer import Messages


def nearest_shares(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest possible shares: none negative, and together 1 (Euclidean distance).

    All shares are lowered by one number, and negative ones become 0.
    """
    falling = np.sort(shares)[::-1]
    sums = (np.cumsum(falling) - 1) / np.arange(1, len(shares) + 1)
    last = int(np.flatnonzero(falling > sums)[-1])
    nearest: NDArray[np.float64] = np.maximum(shares - sums[last], 0.0)
    return nearest


def estimated_shares(
    coin: SupportChance,
    counts: NDArray[np.int64],
    n: int,
    labels: Sequence[str],
    terms: EstimationTerms,
    *,
    whole: bool = False,
) -> tuple[EstimatedValue, ...]:
    """Return unbiased shares with their intervals, from the number of reports, of n, that support each.

    `terms.total` is the number of respondents. Where it is more than n, their devices drew who answers this
    question, and the interval for all of them includes that drawing. `whole`: the shares together are 1.
    """
    level, shift = terms.level, terms.shift.share(coin)
    shares = coin.share(counts, n)
    fitted = nearest_shares(shares) if whole else np.clip(shares, 0.0, 1.0)
    there = (*coin.for_population(counts, n, level), np.sqrt(coin.variance(shares, n)))
    noise = np.sqrt(coin.noise_variance(shares, n, total=terms.total))
    here = (*coin.for_respondents(counts, n, level, total=terms.total), noise)
    respondents, population = (
        [Interval(*ends) for ends in np.stack(bounds, axis=1).tolist()] for bounds in (here, there)
    )
    columns = zip(labels, shares.tolist(), fitted.tolist(), respondents, population, strict=True)
    return tuple(EstimatedValue(*column, shift) for column in columns)


MOST_RATIO_OPTIONS = 64  # options whose shares among those who answered are computed


def as_oracle(part: RandomizedQuestion) -> FrequencyOracle:
    """Return the frequency oracle of a question. Raise `BadParameter` if it has none."""
    if not isinstance(part.randomizer, FrequencyOracle):
        raise BadParameter("by", f'"{part.question.name}" has no options to group by')
    return part.randomizer


class FunctionCollector(QuestionCollector):
    """The collector of functions of the answers.

    `weight` has the scores of being in a group. Without it, everybody is in.
    """

    def __init__(self, part: RandomizedQuestion, functions: Sequence[AnswerFunctions]) -> None:
        self._oracle = as_oracle(part)
        self._sums = [(group, ScoreSums(len(group.labels))) for group in functions]

    def add(self, messages: Messages, weight: Floats | None = None) -> None:
        """Add a block of messages."""
        for functions, sums in self._sums:
            sums.add(functions.scores(self._oracle, messages).times(weight))

    def tables(self, terms: EstimationTerms, weight: ScorePair | None = None) -> tuple[EstimateTable, ...]:
        """Return a table of each function's means."""
        return tuple(function_table(self._oracle, f, sums, terms, weight=weight) for f, sums in self._sums)


class ShareCollector(FunctionCollector):
    """The collector of choices, ratings, rankings and sets."""

    def __init__(self, part: RandomizedQuestion) -> None:
        functions = list(question_functions(part.question))
        few = part.question.counts_options and as_oracle(part).options <= MOST_RATIO_OPTIONS
        if few and part.question.no_answer:
            functions.append(share_functions(part.question, of="answered"))
        super().__init__(part, functions)
        self._question = part.question
        self._counts = np.zeros(self._oracle.options, dtype=np.int64)
        self._n = 0

    def add(self, messages: Messages, weight: Floats | None = None) -> None:
        """Add a block of messages."""
        super().add(messages, weight)
        self._n += len(messages)
        self._counts += self._oracle.counts(messages)

    def tables(self, terms: EstimationTerms, weight: ScorePair | None = None) -> tuple[EstimateTable, ...]:
        """Return the shares, and the tables of the question's functions."""
        tables = super().tables(terms, weight)
        coding = self._question.coding
        if self._question.counts_options:
            return self._shares(self._question.labels, self._counts, terms), *tables
        if isinstance(coding, Ranked) and coding.no_answer:
            return self._shares((NO_ANSWER,), self._counts[-1:], terms), *tables
        return tables

    def _shares(
        self, labels: tuple[str, ...], counts: NDArray[np.int64], terms: EstimationTerms
    ) -> EstimateTable:
        coin, whole = support_chance_of(self._oracle), isinstance(self._question.coding, OneOf)
        shares = estimated_shares(coin, counts, self._n, labels, terms, whole=whole)
        return EstimateTable("share", "share", shares)


def function_table(
    oracle: FrequencyOracle,
    functions: AnswerFunctions,
    sums: ScoreSums,
    terms: EstimationTerms,
    *,
    weight: ScorePair | None = None,
    of_all: bool = False,
) -> EstimateTable:
    """Return the means of functions of the answers, over those in a group or, with `of_all`, over all.

    `weight` is the least and the greatest score of being in the group; None: everybody is in.
    """
    least, most = score_extremes(oracle, functions.values)
    bottom = (1.0, 1.0) if of_all else _products(_bottom(oracle, functions), weight)
    estimates = []
    for column, label in enumerate(functions.labels):
        ends = _products((float(least[column]), float(most[column])), weight)
        if bottom == (1.0, 1.0):
            shift = terms.shift.mean(ends, (functions.low, functions.high))
        else:
            now = sums.moments(column)
            true = [(functions.low, 1.0), (functions.high, 1.0), (0.0, 0.0)]
            shift = terms.shift.ratio((now.top, now.bottom), [(t, b) for t in ends for b in bottom], true)
        limits = ScoreLimits(functions.low, functions.high, ends[1] - ends[0], bottom[1] - bottom[0])
        estimates.append(sums.estimate(column, label, terms, limits, shift))
    return EstimateTable(functions.title, functions.unit, tuple(estimates), functions.note)


def _bottom(oracle: FrequencyOracle, functions: AnswerFunctions) -> ScorePair:
    """Return the least and greatest score of having answered."""
    if functions.of == "all" or functions.none is None:
        return 1.0, 1.0
    scores = support_chance_of(oracle).scores
    return 1 - scores[1], 1 - scores[0]


def _products(ends: ScorePair, weight: ScorePair | None) -> ScorePair:
    if weight is None:
        return ends
    products = [a * b for a in ends for b in weight]
    return min(products), max(products)


MOST_KEPT_PREFIXES = 64  # beginnings that are followed
KEPT_STANDARD_ERRORS = 2.0  # standard errors
LOW_BITS = 10
MOST_SUPPORT_CHECKS = 1 << 28  # supports looked at in one level

WordNumbers = NDArray[np.int64]


def frequent_word_tables(
    randomizer: PrefixResponse, messages: NDArray[np.uint8], terms: EstimationTerms
) -> tuple[EstimateTable, ...]:
    """Return the words found, the most frequent first, and the share of "no answer".

    Shares are of all respondents, whose devices drew which of them report at the last level.
    """
    last = len(randomizer.levels) - 1
    reports = randomizer.messages_of(messages, last)
    if not len(reports):
        return ()
    inner, n = randomizer.inner[last], len(reports)
    coin = support_chance_of(inner)
    terms = replace(terms, shift=terms.shift.of(len(randomizer.levels)))
    candidates = candidate_words(randomizer, messages)
    tested = candidates[candidates > 0]
    counts = support_counts(inner, reports, tested)
    enough = least_count(n, coin.outside, float(1 - terms.level.confidence) / max(len(tested), 1))
    order = np.argsort(-counts, kind="stable")
    shown = order[counts[order] >= enough]
    words = [spell(int(word), randomizer.letters) for word in tested[shown]]
    together = replace(terms, level=terms.level.split(max(len(tested), 1)))
    shares = estimated_shares(coin, counts[shown], n, words, together)
    note = (
        f"{len(tested):,} candidates were tested on the {n:,} reports of the last level, which had no part "
        f"in choosing them. With {float(terms.level.confidence):.4g} confidence all intervals hold "
        "together, and with the same confidence somebody wrote each word shown."
    )
    none = support_counts(inner, reports, np.array([0]))
    silent = estimated_shares(coin, none, n, [NO_ANSWER], terms)
    return EstimateTable("words", "share", shares, note), EstimateTable("share", "share", silent)


def candidate_words(randomizer: PrefixResponse, messages: NDArray[np.uint8]) -> WordNumbers:
    """Return all words that continue frequent prefixes, found from all levels but the last."""
    levels = randomizer.levels
    kept: WordNumbers = np.zeros(1, dtype=np.int64)
    before = 0
    for place, letters in enumerate(levels):
        prefixes = extend_prefixes(kept, before, letters - before)
        if place == len(levels) - 1:
            return prefixes
        reports, inner = randomizer.messages_of(messages, place), randomizer.inner[place]
        follow = len(word_endings(levels[place + 1] - letters))
        later = int((messages[:, 0] == place + 1).sum())
        most = max(min(MOST_KEPT_PREFIXES, MOST_SUPPORT_CHECKS // max(follow * later, 1)), 4)
        kept, before = frequent_prefixes(inner, reports, prefixes, most), letters
    raise AssertionError("there is at least one level")


def frequent_prefixes(
    inner: InnerRandomizer, reports: Messages, among: WordNumbers, most: int
) -> WordNumbers:
    """Return the prefixes with more support than chance gives, the most supported first."""
    if not len(reports):
        return among[:0]
    counts = support_counts(inner, reports, among)
    outside = float(inner.outside)
    mean, error = len(reports) * outside, math.sqrt(len(reports) * outside * (1 - outside))
    order = np.argsort(-counts, kind="stable")[:most]
    return among[order[counts[order] > mean + KEPT_STANDARD_ERRORS * error]]


def word_endings(letters: int) -> WordNumbers:
    """Return all continuations of a word by `letters` letters. After its end there is no letter."""
    going, ended = [0], list[int]()
    for _ in range(letters):
        ended = [number << LETTER_BITS for number in (*ended, *going)]
        going = [number << LETTER_BITS | letter for number in going for letter in range(1, len(ALPHABET))]
    return np.array(ended + going, dtype=np.int64)


def extend_prefixes(prefixes: WordNumbers, length: int, letters: int) -> WordNumbers:
    """Return all continuations of these prefixes. A word that has ended stays ended."""
    on = word_endings(letters)
    ended = (prefixes & 31 == 0) if length else np.zeros(len(prefixes), dtype=bool)
    going = (prefixes[~ended, None] << (LETTER_BITS * letters)) | on
    return np.concatenate([prefixes[ended] << (LETTER_BITS * letters), going.ravel()])


def support_counts(inner: InnerRandomizer, reports: Messages, among: WordNumbers) -> WordNumbers:
    """Count the reports that support each candidate."""
    if not len(among):
        return np.zeros(0, dtype=np.int64)
    match inner:
        case HadamardResponse():
            return _by_parity(reports, among)
        case _:
            return inner.counts_of(reports, among)


def _by_parity(reports: NDArray[np.int64], among: WordNumbers) -> WordNumbers:
    """Count as `counts_of` does, for all candidates with the same first letters at once.

    Parity of y & (v + 1) splits into that of the first letters and that of the last ten bits; so with signs
    by the first, the last are one Walsh transform. (v + 1 carries into the first letters only from two last
    letters 31, which no word has.)
    """
    high, place = np.unique(among >> LOW_BITS, return_inverse=True)
    low = (among & (1 << LOW_BITS) - 1) + 1
    counted = np.empty(len(among), dtype=np.int64)
    last = reports & (1 << LOW_BITS) - 1
    for number, first in enumerate(high.tolist()):
        signs = 1 - 2 * (np.bitwise_count(reports >> LOW_BITS & first) & 1).astype(np.float64)
        signed = np.bincount(last, weights=signs, minlength=1 << LOW_BITS)
        sums = walsh_transform(signed.astype(np.float64))
        mine = place == number
        counted[mine] = (len(reports) + sums[low[mine]].round().astype(np.int64)) // 2
    return counted


class WordCollector(QuestionCollector):
    """The collector of frequent words. It keeps all messages: the candidates are known only at the end."""

    def __init__(self, randomizer: PrefixResponse) -> None:
        self._randomizer = randomizer
        self._messages: list[Messages] = []

    def add(self, messages: Messages, weight: Floats | None = None) -> None:
        """Add a block of messages. Words have no groups."""
        self._messages.append(messages.copy())

    def tables(self, terms: EstimationTerms, weight: ScorePair | None = None) -> tuple[EstimateTable, ...]:
        """Return the frequent words, and the share of "no answer"."""
        return frequent_word_tables(self._randomizer, np.concatenate(self._messages), terms)
