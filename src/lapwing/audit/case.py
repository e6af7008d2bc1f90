"""Cases: a claim, and the inputs of each stage that tries to break it.

A stage is one way to attack a claim:

- replay: run on neighbouring data, and compare what reaches each mechanism with its declared sensitivity.
- exact: compare all probabilities under both inputs with what is charged.
- sampled: draw outputs, and count an event that distinguishes the inputs.
- canaries: train once, and guess which canaries were in the data.

Each stage is a function that takes a `StageBudget` and returns a `StageResult`. A case lists its stages,
cheapest first. If only sampling applies, `reason` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any


class Family(Enum):
    """The kinds of things that make a privacy claim."""

    MECHANISM = "mechanism"
    RANDOMIZER = "survey randomizer"
    AGGREGATE = "SQL aggregate"
    PROTOCOL = "protocol"
    TRAINER = "trainer"
    VALIDATOR = "validator"
    SELECTION = "selection"
    PUBLISHING = "publishing method"
    LEDGER = "ledger"
    FUNCTION = "function of somebody else's"


class Stage(Enum):
    """The stages of an audit, cheapest first.

    Example:
        >>> from lapwing.audit import Stage
        >>> [stage.value for stage in Stage]
        ['replay', 'exact', 'sampled', 'canaries']
    """

    REPLAY = "replay"
    EXACT = "exact"
    SAMPLED = "sampled"
    CANARIES = "canaries"


class CannotGenerate(Exception):
    """The auditor could not make its own inputs. It says nothing about the code that is audited."""


@dataclass(frozen=True, slots=True)
class StageBudget:
    """The limits of a stage.

    Args:
        seconds: The time for sampling.
        error: The greatest probability of a false alarm of the whole stage.
        is_thorough: Whether to try all settings. If not, the stage takes a few that are quick.
        progress: A function that is called with a text from time to time.

    Example:
        >>> from lapwing.audit import StageBudget
        >>> StageBudget(seconds=5, is_thorough=False).error
        1e-06
    """

    seconds: float = 60.0
    error: float = 1e-6
    is_thorough: bool = True
    progress: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Witness:
    """Evidence of a violation.

    Args:
        pair: The two neighbouring inputs, in words.
        event: The event or the comparison that shows it, in words.
        numbers: Counts, probabilities and bounds, by name.
        at_least: A lower bound on the true ε; None if the violation is not about ε.
    """

    pair: str
    event: str
    numbers: Mapping[str, float | int | str]
    at_least: float | None = None


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of one stage.

    Args:
        stage: The stage.
        checks: The number of comparisons that were made. 0 if the stage could not run.
        claimed: The claimed ε (at the claimed δ).
        measured: The largest ε that was found: exact, or a lower bound. None if nothing was measured.
        could_show: The smallest true ε that this stage would have shown. None if it cannot be said.
        witness: The violation; None if there was none.
        unable: Why the stage could not run; empty if it ran.
        notes: What a reader should know: bounds at several δ, times, divisions of errors.

    Example:
        >>> from lapwing.audit import Stage, StageBudget, cases
        >>> laplace = cases()[0]
        >>> result = laplace.stages[Stage.EXACT](StageBudget(is_thorough=False))
        >>> result.holds, result.claimed
        (True, 1.0)
    """

    stage: Stage
    checks: int
    claimed: float
    measured: float | None = None
    could_show: float | None = None
    witness: Witness | None = None
    unable: str = ""
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True if the stage ran and found no violation."""
        return self.witness is None and not self.unable


RunStage = Callable[[StageBudget], StageResult]


@dataclass(frozen=True, slots=True)
class AuditCase:
    """A claim of (ε, δ), what it is about, and the stages that try to break it.

    Args:
        name: A short name, unique in the registry.
        family: The kind of thing that makes the claim.
        covers: The exported objects (classes, functions, names) that this case is about.
        epsilon: The claimed ε.
        delta: The claimed δ.
        stages: A function for each stage that applies.
        reason: Why a stage that one would expect is missing; empty if none is.

    Example:
        >>> from lapwing.audit import cases
        >>> laplace = cases()[0]
        >>> laplace.name, laplace.family.value, float(laplace.epsilon)
        ('Laplace', 'mechanism', 1.0)
    """

    name: str
    family: Family
    covers: tuple[Any, ...]
    epsilon: Fraction
    delta: Fraction
    stages: Mapping[Stage, RunStage] = field(default_factory=dict)
    reason: str = ""
