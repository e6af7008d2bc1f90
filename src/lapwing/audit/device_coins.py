"""The exact law of the code that devices run: every way in which the coins of `randomize` can fall.

Claim    `law_of` is the exact law of the messages that a device sends, if its coins follow their own laws.
Because  a device draws by "true with T chances in 2^48" and "uniform below N" alone. A tree of all outcomes
         runs the code once for each path, and multiplies exact chances. Where a round may be drawn again
         for ever, rounds are alike (`rounds_are_alike` compares them), so a message's share of the
         accepted rounds is its probability.
Test     tests/audit/test_device_coins.py

`coin_mistake` compares the coins themselves (`ByteCoins`) with their laws, byte by byte.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, product
from math import inf, log, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import RunStage, StageBudget, StageResult, Witness
from lapwing.audit.message_laws import chosen_answers
from lapwing.errors import BadValue
from lapwing.survey.randomize import ByteCoins, CoinSource
from lapwing.survey.randomizers import ODDS, ProjectiveResponse, Randomizer
from lapwing.survey.randomizers.randomizer import PartedRandomizer

Step = tuple[str, int, int]  # ("odds", T, 0 or 1) or ("below", N, the outcome)
Leaf = tuple[list[Step], bytes | None]  # None: the path was cut, as its round is drawn again
MessageLaw = dict[bytes, Fraction]
Named = tuple[str, Randomizer]
MOST_PATHS, QUICK_PATHS = 20_000, 3_000  # of one randomizer, over all its answers that are tried
_ANSWERS = 12  # of which all are tried; else so many of them
BYTE_BOUNDS = (*range(1, 18), 31, 32, 33, 100, 127, 128, 129, 200, 255, 256)
_LONG_BOUNDS = (257, 1000, 65_535, 65_536)


class _Cut(Exception):
    """A path draws more than one round."""


class CoinTree:
    """Coins that fall as they are told to, and the first way where they are not."""

    def __init__(self, told: Sequence[int], most: int | None) -> None:
        self._told, self._most = told, most
        self.path: list[Step] = []
        self._round = 0  # draws of numbers since the last coin

    def odds(self, of: int) -> bool:
        """Return the planned outcome of a coin."""
        self._round = 0
        return bool(self._next("odds", int(of)))

    def below(self, bound: int) -> int:
        """Return the planned outcome of a uniform number."""
        if self._round == self._most:
            raise _Cut
        self._round += 1
        return self._next("below", int(bound))

    def _next(self, kind: str, size: int) -> int:
        at = len(self.path)
        fell = self._told[at] if at < len(self._told) else 0
        self.path.append((kind, size, fell))
        return fell


def leaves(
    play: Callable[[CoinSource], bytes], most: int | None, told: Sequence[int] = ()
) -> Iterator[Leaf]:
    """Yield every path of coins with its message, beginning with the outcomes `told`.

    A path is cut where it draws more than `most` numbers after its last coin (None: never).
    """
    fixed, following = len(told), list(told)
    while True:
        tree = CoinTree(following, most)
        try:
            message: bytes | None = play(tree)
        except _Cut:
            message = None
        yield tree.path, message
        fell = [each for _, _, each in tree.path]
        places = [at for at in range(fixed, len(fell)) if fell[at] + 1 < _outcomes(tree.path[at])]
        if not places:
            return
        following = [*fell[: places[-1]], fell[places[-1]] + 1]


def _outcomes(step: Step) -> int:
    return 2 if step[0] == "odds" else step[1]


def weight(path: Iterable[Step]) -> Fraction:
    """Return the probability that coins fall like this."""
    chances = [
        Fraction(1, size) if kind == "below" else Fraction(size if fell else ODDS - size, ODDS)
        for kind, size, fell in path
    ]
    return prod(chances, start=Fraction(1))


def law_of(leaves: Iterable[Leaf]) -> MessageLaw:
    """Return the law of the messages. Rounds that are drawn again begin after a path's last coin."""
    accepted: dict[tuple[Step, ...], dict[bytes, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    cut: set[tuple[Step, ...]] = set()
    for path, message in leaves:
        coins = [place for place, step in enumerate(path) if step[0] == "odds"]
        start = coins[-1] + 1 if coins else 0
        begun = tuple(path[:start])
        if message is None:
            cut.add(begun)
            accepted[begun]
        else:
            accepted[begun][message] += weight(path[start:])
    law: MessageLaw = defaultdict(Fraction)
    for begun, each in accepted.items():
        whole = sum(each.values(), Fraction(0)) if begun in cut else Fraction(1)
        for message, share in each.items():
            law[message] += weight(begun) * share / whole
    return dict(law)


def rounds_are_alike(play: Callable[[CoinSource], bytes], most: int, first_round: Iterable[Leaf]) -> bool:
    """Return whether a second round has the law of the first, after one rejected round of each start."""
    seen: set[tuple[Step, ...]] = set()
    listed = list(first_round)
    for path, message in listed:
        if message is not None or len(path) < most:
            continue
        begun = tuple(path[: len(path) - most])
        if begun in seen:
            continue
        seen.add(begun)
        first = law_of((rest, sent) for rest, sent in _after(listed, begun))
        told = [fell for _, _, fell in path]
        again = law_of((rest[len(told) :], sent) for rest, sent in leaves(play, 2 * most, told))
        if again != first:
            return False
    return True


def _after(leaves: Iterable[Leaf], begun: tuple[Step, ...]) -> Iterator[Leaf]:
    for path, message in leaves:
        if tuple(path[: len(begun)]) == begun:
            yield path[len(begun) :], message


def round_size(randomizer: Randomizer) -> int | None:
    """Return the most numbers of a round that may be drawn again; None if nothing is drawn again."""
    if isinstance(randomizer, PartedRandomizer):
        sizes = [round_size(part) for part in randomizer.parts.values()]
        return max((size for size in sizes if size is not None), default=None)
    return randomizer.dimension if isinstance(randomizer, ProjectiveResponse) else None


def path_count(randomizer: Randomizer) -> int:
    """Return about how many paths the coins of one answer have."""
    most = round_size(randomizer)
    if isinstance(randomizer, PartedRandomizer):
        return sum(path_count(part) for part in randomizer.parts.values())
    tree = CoinTree((), most)
    try:
        randomizer.randomize(0, tree)
    except _Cut:
        pass
    except Exception:  # the walk meets it again, and reports it
        return 1
    return prod(map(_outcomes, tree.path))


def tried_answers(randomizer: Randomizer, paths: int) -> list[int]:
    """Return the answers whose coins are listed: none if there are more than `paths` for two of them."""
    most = min(paths // path_count(randomizer), _ANSWERS)
    return chosen_answers(randomizer.inputs, most) if most >= min(2, randomizer.inputs) else []


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """A comparison of device code with the stated law: the answers tried, paths, and what is wrong."""

    answers: int = 0
    paths: int = 0
    witness: Witness | None = None


def check_device(randomizer: Randomizer, name: str, paths: int) -> DeviceCheck:
    """Compare the law of `randomize`, by all ways in which coins fall, with the stated law."""
    mistake = coin_mistake(ByteCoins)
    if mistake:
        return DeviceCheck(witness=Witness(name, f"the coins of a device: {mistake}", {}))
    answers = tried_answers(randomizer, paths)
    most = round_size(randomizer)

    def leaves_of(answer: int) -> list[Leaf]:
        def play(source: CoinSource) -> bytes:
            return randomizer.randomize(answer, source)

        listed = []
        for leaf in leaves(play, most):
            listed.append(leaf)
            if len(listed) > 4 * max(paths, 1):
                raise BadValue("the coins fall in far more ways than in the first one")
        is_parted = isinstance(randomizer, PartedRandomizer)
        if most is not None and not is_parted and not rounds_are_alike(play, most, listed):
            raise BadValue("a round that is drawn again has another law than the first")
        return listed

    return compare_device(randomizer, name, answers, leaves_of)


def compare_device(
    randomizer: Randomizer, name: str, answers: Sequence[int], leaves_of: Callable[[int], list[Leaf]]
) -> DeviceCheck:
    """Compare the leaves of each answer with the stated law. An error of the device's code is a finding."""
    laws: dict[int, MessageLaw] = {}
    paths = 0
    for answer in answers:
        try:
            listed = leaves_of(answer)
            paths += len(listed)
            laws[answer] = law_of(listed)
            wrong = _difference(randomizer, answer, laws[answer])
        except Exception as error:
            wrong = f"it failed with {type(error).__name__}: {error}", {}
        if wrong is not None:
            for other in answers:  # so that the true ε can be told
                if other not in laws:
                    try:
                        laws[other] = law_of(leaves_of(other))
                    except Exception:  # noqa: S112 (one finding is enough)
                        continue
            event, numbers = wrong
            shown = _epsilon(laws)
            return DeviceCheck(
                len(laws),
                paths,
                Witness(f"{name}, answer {answer}, as a device sends it", event, numbers, shown),
            )
    return DeviceCheck(len(answers), paths)


def _difference(randomizer: Randomizer, answer: int, law: MessageLaw) -> tuple[str, dict[str, Any]] | None:
    total = sum(law.values(), Fraction(0))
    for message, chance in law.items():
        stated = randomizer.probability(answer, message)
        if chance != stated:
            event = f"the message {message.hex()} has another probability than the stated one"
            return event, {"stated": float(stated), "of the device": float(chance)}
    if total != 1:
        return "messages that are stated are never sent", {"probability of those sent": float(total)}
    return None


def _epsilon(laws: dict[int, MessageLaw]) -> float | None:
    """Return the true ε of all answers that were listed; None if there is only one."""
    worst = 0.0
    for first, second in combinations(laws.values(), 2):
        for p, q in ((first, second), (second, first)):
            for message, chance in p.items():
                beside = q.get(message, Fraction(0))
                worst = max(worst, log(chance / beside) if beside else inf) if chance else worst
    return worst if len(laws) > 1 else None


def with_device_code(stage: RunStage, named: Callable[[StageBudget], Iterable[Named]]) -> RunStage:
    """Return an exact stage that also compares the code that devices run, for these randomizers."""

    def run(budget: StageBudget) -> StageResult:
        result = stage(budget)
        if not result.holds:
            return result
        paths = MOST_PATHS if budget.is_thorough else QUICK_PATHS
        counts, too_many = DeviceCheck(), []
        for name, randomizer in named(budget):
            check = check_device(randomizer, name, paths)
            counts = DeviceCheck(counts.answers + check.answers, counts.paths + check.paths)
            if check.witness is not None:
                return replace(
                    result, checks=result.checks + counts.paths, measured=check.witness.at_least,
                    witness=check.witness, notes=(),
                )  # fmt: skip
            if not check.answers:
                too_many.append(name)
        ways = f"{counts.paths:,} ways in which coins fall, of {counts.answers} answers"
        notes = [f"the code that devices run: {ways}"]
        if too_many:
            notes.append(f"too many ways to list them (only drawn): {', '.join(too_many)}")
        return replace(result, checks=result.checks + counts.paths, notes=(*result.notes, *notes))

    return run


def device_messages(randomizer: Randomizer, answer: int) -> Callable[[int], NDArray[np.int64]]:
    """Return draws of messages as a device sends them, with its own coins."""

    def draw(size: int) -> NDArray[np.int64]:
        coins = ByteCoins()
        sent = b"".join(randomizer.randomize(answer, coins) for _ in range(size))
        return np.frombuffer(sent, dtype=np.uint8).reshape(size, randomizer.size).astype(np.int64)

    return draw


class _Bytes:
    """Bytes that were fixed before. A second round ends the run."""

    def __init__(self, given: bytes) -> None:
        self._left = given

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if size > len(self._left):
            raise _Cut
        piece, self._left = self._left[:size], self._left[size:]
        return piece


@lru_cache(maxsize=8)
def coin_mistake(kind: type[ByteCoins]) -> str:
    """Return what is wrong with coins that are made of bytes; empty if their law is exact."""
    for bound in (*BYTE_BOUNDS, *_LONG_BOUNDS):
        size = -(-(bound - 1).bit_length() // 8)
        counts: dict[int, int] = defaultdict(int)
        for given in product(range(256), repeat=size):
            try:
                counts[kind(_Bytes(bytes(given)).take).below(bound)] += 1
            except _Cut:
                continue
        if sorted(counts) != list(range(bound)) or len(set(counts.values())) != 1:
            return f"numbers below {bound} are not equally likely"
    for of in coin_thresholds():
        for number in numbers_near(of):
            if kind(_Bytes(number.to_bytes(6, "big")).take).odds(of) != (number < of):
                return f"a coin with {of} chances in 2^48 falls wrongly for the number {number}"
    return ""


def coin_thresholds() -> list[int]:
    """Return numbers of chances whose coins are tried."""
    return [1, 2, 255, 256, 1 << 24, (1 << 47) - 1, 1 << 47, 3 << 46, 0x123456789ABC, ODDS - 1]


def numbers_near(of: int) -> list[int]:
    """Return 48-bit numbers at, below and above a threshold, by each of its bytes."""
    steps = [0, *(sign << (8 * place) for place in range(6) for sign in (1, -1))]
    return sorted({number for step in steps for number in (of + step, 0, ODDS - 1) if 0 <= number < ODDS})
