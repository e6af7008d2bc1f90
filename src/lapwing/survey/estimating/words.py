"""Frequent words: beginnings first, then what follows them, each level from other respondents.

Claim    with the confidence that was asked for, no word is shown that nobody wrote; and, with the same
         confidence, all shown intervals hold together.
Because  which words are candidates depends on the reports of earlier levels only, and every report belongs
         to one level. At the last level each of m candidates is tested with a risk of (1 - confidence) / m,
         by the exact binomial law of a word that nobody wrote; and the intervals are those of all m
         candidates together (Bonferroni), whichever are shown, from exact tails: docs/arguments/survey.md.
Test     tests/survey/estimating/test_words.py::test_words_that_nobody_wrote_are_hardly_ever_shown
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lapwing.survey.estimating.binomial import least_count
from lapwing.survey.estimating.intervals import Level, coin_of
from lapwing.survey.estimating.lies import Liars
from lapwing.survey.estimating.results import Table
from lapwing.survey.estimating.shares import Counted
from lapwing.survey.questionnaire.coding import NO_ANSWER
from lapwing.survey.questionnaire.words import LETTER_BITS, LETTERS, spelled
from lapwing.survey.randomizers import Hadamard, Prefixes
from lapwing.survey.randomizers.prefixes import Inner
from lapwing.survey.randomizers.randomizer import Messages

KEPT_AT_MOST = 64  # beginnings that are followed
KEPT_ABOVE = 2.0  # standard errors
LOW_BITS = 10
WORK = 1 << 28  # supports looked at in one level

Numbers = NDArray[np.int64]


def word_tables(
    randomizer: Prefixes, messages: NDArray[np.uint8], level: Level, liars: Liars, total: int
) -> tuple[Table, ...]:
    """The words found, the most frequent first, and the share of no answer: of `total` respondents.

    Their devices drew which of them report at the last level.
    """
    last = len(randomizer.levels) - 1
    reports = randomizer.of_level(messages, last)
    if not len(reports):
        return ()
    inner, n = randomizer.inner[last], len(reports)
    coin = coin_of(inner)
    lies = liars.of(len(randomizer.levels)).share(coin)
    candidates = candidates_of(randomizer, messages)
    tested = candidates[candidates > 0]
    counts = supports(inner, reports, tested)
    enough = least_count(n, coin.outside, float(1 - level.confidence) / max(len(tested), 1))
    order = np.argsort(-counts, kind="stable")
    shown = order[counts[order] >= enough]
    words = [spelled(int(word), randomizer.letters) for word in tested[shown]]
    together = level.split(max(len(tested), 1))
    found = Counted(counts[shown], n, coin, total).estimates(words, together, lies, whole=False)
    note = (
        f"{len(tested):,} candidates were tested on the {n:,} reports of the last level, which had no part "
        f"in choosing them. With {float(level.confidence):.4g} confidence all intervals hold together, and "
        "with the same confidence somebody wrote each word shown."
    )
    none = supports(inner, reports, np.array([0]))
    silent = Counted(none, n, coin, total).estimates([NO_ANSWER], level, lies, whole=False)
    return Table("words", "share", found, note), Table("share", "share", silent)


def candidates_of(randomizer: Prefixes, messages: NDArray[np.uint8]) -> Numbers:
    """The words that begin as often as not with frequent beginnings, from all levels but the last."""
    levels = randomizer.levels
    kept: Numbers = np.zeros(1, dtype=np.int64)
    before = 0
    for place, letters in enumerate(levels):
        found = extended(kept, before, letters - before)
        if place == len(levels) - 1:
            return found
        reports, inner = randomizer.of_level(messages, place), randomizer.inner[place]
        follow = len(endings(levels[place + 1] - letters))
        later = int((messages[:, 0] == place + 1).sum())
        most = max(min(KEPT_AT_MOST, WORK // max(follow * later, 1)), 4)
        kept, before = frequent(inner, reports, found, most), letters
    raise AssertionError("there is at least one level")


def frequent(inner: Inner, reports: Messages, among: Numbers, most: int) -> Numbers:
    """Those that more reports support than chance would, the most supported first."""
    if not len(reports):
        return among[:0]
    counts = supports(inner, reports, among)
    outside = float(inner.outside)
    mean, error = len(reports) * outside, math.sqrt(len(reports) * outside * (1 - outside))
    order = np.argsort(-counts, kind="stable")[:most]
    return among[order[counts[order] > mean + KEPT_ABOVE * error]]


def endings(letters: int) -> Numbers:
    """All ways in which a word goes on for so many letters: after its end there is nothing."""
    going, ended = [0], list[int]()
    for _ in range(letters):
        ended = [number << LETTER_BITS for number in (*ended, *going)]
        going = [number << LETTER_BITS | letter for number in going for letter in range(1, len(LETTERS))]
    return np.array(ended + going, dtype=np.int64)


def extended(prefixes: Numbers, length: int, letters: int) -> Numbers:
    """All ways in which these prefixes go on. What has ended stays ended."""
    on = endings(letters)
    ended = (prefixes & 31 == 0) if length else np.zeros(len(prefixes), dtype=bool)
    going = (prefixes[~ended, None] << (LETTER_BITS * letters)) | on
    return np.concatenate([prefixes[ended] << (LETTER_BITS * letters), going.ravel()])


def supports(inner: Inner, reports: Messages, among: Numbers) -> Numbers:
    """For each candidate, how many reports support it."""
    if not len(among):
        return np.zeros(0, dtype=np.int64)
    match inner:
        case Hadamard():
            return _by_parity(reports, among)
        case _:
            return inner.counts_of(reports, among)


def _by_parity(reports: NDArray[np.int64], among: Numbers) -> Numbers:
    """The same as `counts_of`, for all candidates with the same first letters at once.

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
        sums = walsh(signed.astype(np.float64))
        mine = place == number
        counted[mine] = (len(reports) + sums[low[mine]].round().astype(np.int64)) // 2
    return counted


def walsh(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ values(y) (-1)^parity(y & v) for every v; the length is a power of 2."""
    found, half = values.copy(), 1
    while half < len(found):
        pairs = found.reshape(-1, 2, half)
        found = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return found
