"""The cases of all survey randomizers: each message under all pairs of answers, and draws.

Exact laws come from `Randomizer.probability`, message by message. The code that devices run must have
these laws: its coins are enumerated, in Python (`device_coins`) and in the page's script (`page_script`).
The draws are messages as devices send them, and as simulations draw them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, Stage, StageBudget
from lapwing.audit.device_coins import Named, device_messages, with_device_code
from lapwing.audit.message_laws import message_pairs
from lapwing.audit.page_script import page_case
from lapwing.audit.stages.exact import ExactPair, exact_stage
from lapwing.audit.stages.sampled import Draw, SampledPair, sampled_stage
from lapwing.survey.randomizers import (
    BitwiseResponse,
    DuchiResponse,
    FrequencyOracle,
    HadamardResponse,
    HybridResponse,
    KaryResponse,
    PrefixResponse,
    ProjectiveResponse,
    Randomizer,
    SquareWave,
    SubsetSelection,
    UnaryEncoding,
    WindowResponse,
)

ONE = Fraction(1)
EPSILONS = tuple(Fraction(text) for text in ("1", "4", "1/5", "2", "8"))
QUICK = 1  # ε of an audit that is not thorough
_PROBABILITIES, _QUICK_PROBABILITIES = 20_000, 2_000  # computed for each randomizer
_Make = Callable[[Fraction], list[Randomizer]]


def _case(name: str, make: _Make, example: Randomizer, *draws: SampledPair) -> AuditCase:
    """Return the case of one kind of randomizer: `make` gives those of an ε, `example` is the case's."""
    claimed = example.loss.epsilon

    def listed(budget: StageBudget) -> Iterator[Named]:
        yield name, example
        for epsilon in EPSILONS if budget.is_thorough else EPSILONS[:QUICK]:
            for randomizer in make(epsilon):
                yield f"{name}, ε = {epsilon}", randomizer

    def pairs(budget: StageBudget) -> Iterator[ExactPair]:
        most = _PROBABILITIES if budget.is_thorough else _QUICK_PROBABILITIES
        for text, randomizer in listed(budget):
            yield from message_pairs(randomizer, text, most=most)

    stages = {
        Stage.EXACT: with_device_code(exact_stage(pairs, epsilon=claimed), listed),
        Stage.SAMPLED: sampled_stage(draws, claimed, Fraction(0)),
    }
    return AuditCase(name, Family.RANDOMIZER, (type(example),), claimed, Fraction(0), stages)


def _messages(randomizer: Randomizer, answer: int) -> Draw:
    """Return draws of messages as they are sent, a row of bytes each."""
    return lambda size: randomizer.encode(randomizer.sample(np.full(size, answer))).astype(np.int64)


def _words(randomizer: PrefixResponse, word: int, suspected: int = 0) -> Draw:
    """Return draws of whether each message supports the suspected word, and its level.

    There are too many messages to see one of them twice.
    """

    def draw(size: int) -> NDArray[np.int64]:
        rows = randomizer.sample(np.full(size, word))
        seen = rows[:, 0].astype(np.int64) * 2
        for place, inner in enumerate(randomizer.inner):
            prefix = int(randomizer.part_answers(np.array([suspected]), place)[0])
            oracle: FrequencyOracle = inner
            seen[rows[:, 0] == place] += oracle.membership(randomizer.messages_of(rows, place), prefix)
        return seen

    return draw


def _sent(name: str, make: _Make, example: Randomizer, first: int, second: int) -> AuditCase:
    simulated = SampledPair(
        f"simulated, answers {first} and {second}", _messages(example, first), _messages(example, second)
    )
    sent = SampledPair(
        f"by the device's code, answers {first} and {second}",
        device_messages(example, first), device_messages(example, second),
    )  # fmt: skip
    return _case(name, make, example, simulated, sent)


class _WithOptions(Protocol):
    """A kind of randomizer that is made for a number of options."""

    def for_epsilon(self, epsilon: Fraction | int, /, *, options: int) -> Randomizer:
        """Return the randomizer for these options."""


def _sized(name: str, kind: _WithOptions, options: tuple[int, ...], sampled: int, other: int) -> AuditCase:
    """Return a case with these numbers of options. Answers 0 and `other` of `sampled` ones are drawn."""
    example = kind.for_epsilon(1, options=sampled)
    return _sent(name, lambda e: [kind.for_epsilon(e, options=k) for k in options], example, 0, other)


def _none(epsilon: Fraction) -> list[Randomizer]:
    del epsilon
    return []


def _prefix_examples(epsilon: Fraction) -> list[Randomizer]:
    return [
        PrefixResponse(2, (1,), (HadamardResponse.for_epsilon(epsilon, options=32),)),
        PrefixResponse(1, (1,), (ProjectiveResponse.for_epsilon(epsilon, options=32),)),
        PrefixResponse.for_epsilon(epsilon, letters=4),
    ]


def _windows(epsilon: Fraction) -> list[Randomizer]:
    return [
        SquareWave.for_epsilon(epsilon, steps=12, none=True),
        WindowResponse.with_width(epsilon, steps=3, stride=5, width=9, none=False),
        WindowResponse.with_width(epsilon, steps=4, stride=2, width=5, none=True),
    ]


def _hybrid(epsilon: Fraction, steps: int, *, none: bool, odds: int) -> HybridResponse:
    window = WindowResponse.with_width(epsilon, steps=steps, stride=2, width=5, none=none)
    return HybridResponse(odds, window, DuchiResponse.for_epsilon(epsilon, steps=steps, none=none))


def _on_the_page(budget: StageBudget) -> list[Named]:
    """Return small randomizers of each kind, which take each branch of the page's script."""
    epsilons = EPSILONS if budget.is_thorough else EPSILONS[:QUICK]
    return [
        (f"{randomizer.kind}, ε = {epsilon}", randomizer)
        for epsilon in epsilons
        for randomizer in _of_every_kind(epsilon)
    ]


def _of_every_kind(epsilon: Fraction) -> list[Randomizer]:
    return [
        *(KaryResponse.for_epsilon(epsilon, options=k) for k in (2, 3, 9, 300)),  # also two bytes
        *(SubsetSelection.for_epsilon(epsilon, options=k) for k in (3, 9)),
        *(UnaryEncoding.for_epsilon(epsilon, options=k) for k in (2, 5)),
        *(HadamardResponse.for_epsilon(epsilon, options=k) for k in (3, 20)),
        ProjectiveResponse.for_epsilon(epsilon, options=6),
        *(BitwiseResponse.for_epsilon(epsilon, options=k) for k in (1, 4)),
        *_windows(epsilon),
        *(DuchiResponse.for_epsilon(epsilon, steps=9, none=none) for none in (False, True)),
        _hybrid(epsilon, 3, none=True, odds=3 << 46),
        *_prefix_examples(epsilon)[:2],
    ]


def randomizer_cases() -> list[AuditCase]:
    """Return the cases of all survey randomizers: any two answers of one respondent."""
    words = PrefixResponse.for_epsilon(1, letters=2, levels=(1, 2))
    drawn_words = SampledPair("words 0 and 1023", _words(words, 0), _words(words, 1023))
    return [
        _sent("survey: two coins", _none, KaryResponse.two_coins(), 0, 1),
        _sized("survey: one of several", KaryResponse, (2, 3, 20, 300), 5, 3),
        _sized("survey: subset", SubsetSelection, (3, 9, 40), 6, 5),
        _sized("survey: unary", UnaryEncoding, (2, 6, 50), 4, 3),
        _sized("survey: Hadamard", HadamardResponse, (3, 20, 1000), 7, 6),
        _sized("survey: projective", ProjectiveResponse, (6, 40, 1000), 13, 12),
        _sized("survey: bits", BitwiseResponse, (1, 4, 30), 3, 7),
        _sent("survey: square wave", _windows, SquareWave.for_epsilon(1, steps=6, none=False), 0, 6),
        _sent(
            "survey: no answer",
            _none,
            WindowResponse.with_width(1, steps=4, stride=2, width=5, none=True), 5, 0,
        ),
        _sent(
            "survey: Duchi",
            lambda e: [DuchiResponse.for_epsilon(e, steps=9, none=none) for none in (False, True)],
            DuchiResponse.for_epsilon(1, steps=4, none=False), 0, 4,
        ),
        _sent(
            "survey: hybrid",
            lambda e: [_hybrid(e, 3, none=True, odds=3 << 46), _hybrid(e, 2, none=False, odds=1 << 46)],
            _hybrid(ONE, 4, none=False, odds=1 << 47), 0, 4,
        ),
        _case("survey: prefixes", _prefix_examples, words, drawn_words),
        page_case(
            "survey: the page's script", _on_the_page, SubsetSelection.for_epsilon(1, options=6),
            covers=tuple({type(randomizer): None for randomizer in _of_every_kind(ONE)}),
        ),
    ]  # fmt: skip
