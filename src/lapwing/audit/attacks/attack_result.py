"""The result of an attack: how often it succeeded without protection, and how often against Lapwing.

Claim    a release that keeps its promise is called a violation with probability at most VIOLATION_ERROR.
Because  the guesses succeed independently, each with probability at most the limit, so the exact
         (Clopper-Pearson) lower bound at VIOLATION_ERROR is above the limit no more often than that.
Test     tests/audit/attacks/test_attack_result.py::test_a_violation_needs_more_than_bad_luck

Claim    a result whose number of guesses is too small to show any violation says so.
Because  the lower bound is greatest if all guesses are right, and `could_show` compares that bound with
         the limit.
Test     tests/audit/attacks/test_attack_result.py::test_too_few_runs_say_that_they_could_show_nothing
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass, field
from fractions import Fraction
from itertools import count
from typing import Any

from lapwing.audit.stages.proportions import proportion_at_least, proportion_at_most
from lapwing.core.chances import percent, percent_down, percent_up
from lapwing.core.exact import Number, exact, set_fields, short, whole
from lapwing.errors import BadParameter

CONFIDENCE = 0.95  # of the intervals that are shown
VIOLATION_ERROR = 1e-7  # the probability of a false alarm of one attack
LEAST_EPSILON, GREATEST_EPSILON = Fraction(1, 20), Fraction(8)
EPSILON_PARTS = 10**9  # a ledger counts ε in billionths
MOST_RUNS = 100_000
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class AttackSettings:
    """The settings of an attack.

    Args:
        epsilon: The lifetime budget of every person that is attacked, 0.05 to 8. It is rounded down to nine
            decimals, the unit of a ledger. There is no δ unless the attack needs one.
        runs: The number of people to attack, each with one guess. None: as the attack says.
        progress: Called with the work that is done and all work.

    Raises:
        BadParameter: If ε or the number of runs is out of range.
    """

    epsilon: Fraction
    runs: int | None = None
    progress: Progress = field(default=lambda _, __: None)

    def __post_init__(self) -> None:
        epsilon = exact(self.epsilon, "epsilon")
        if not LEAST_EPSILON <= epsilon <= GREATEST_EPSILON:
            raise BadParameter(
                "epsilon",
                f"must lie between {short(float(LEAST_EPSILON))} and {short(float(GREATEST_EPSILON))}. "
                "With less, answers are noise alone; with more, nothing is hidden",
            )
        set_fields(self, epsilon=Fraction(epsilon * EPSILON_PARTS // 1, EPSILON_PARTS))
        if self.runs is not None and whole(self.runs, "runs", at_least=1) > MOST_RUNS:
            raise BadParameter("runs", f"must be at most {MOST_RUNS:,}")

    @classmethod
    def of(
        cls, epsilon: Number, runs: int | None = None, progress: Progress = lambda _, __: None
    ) -> AttackSettings:
        """Return the settings with an ε in any form."""
        return cls(exact(epsilon, "epsilon"), runs, progress)

    def batches(self, default: int, at_once: int) -> Iterator[int]:
        """Yield the size of each batch of people, until all are attacked, and report progress.

        Args:
            default: The number of runs if the settings have none.
            at_once: The greatest size of a batch.
        """
        runs = self.runs or default
        for done in range(0, runs, at_once):
            self.progress(done, runs)
            yield min(at_once, runs - done)
        self.progress(runs, runs)


@dataclass(frozen=True, slots=True)
class SuccessCount:
    """The number of right guesses, and of all guesses."""

    right: int
    trials: int

    def __post_init__(self) -> None:
        if not 0 <= whole(self.right, "right") <= whole(self.trials, "trials", at_least=1):
            raise BadParameter("right", "must be at most as many as trials")

    @property
    def rate(self) -> float:
        """The share of right guesses."""
        return self.right / self.trials

    @property
    def low(self) -> float:
        """The lower end of the Clopper-Pearson interval."""
        return proportion_at_least(self.right, self.trials, (1 - CONFIDENCE) / 2)

    @property
    def high(self) -> float:
        """The upper end of the Clopper-Pearson interval."""
        return proportion_at_most(self.right, self.trials, (1 - CONFIDENCE) / 2)

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable names."""
        return {**asdict(self), "rate": self.rate, "low": self.low, "high": self.high}


def total(counts: Iterable[SuccessCount]) -> SuccessCount:
    """Return the sums of right guesses and of all guesses."""
    each = list(counts)
    return SuccessCount(sum(count.right for count in each), sum(count.trials for count in each))


@dataclass(frozen=True, slots=True)
class SuccessAfter:
    """The success of an attack after some answers or days."""

    after: int
    unprotected: SuccessCount
    protected: SuccessCount


@dataclass(frozen=True, slots=True)
class AttackResult:
    """One attack, against a release without protection and against Lapwing's.

    Args:
        attack: The name of the attack on the command line.
        title: What is attacked, such as "a hospital table and a voter list".
        knows: What the attacker knows beforehand, a sentence.
        guesses: What the attacker guesses, a sentence.
        without: The unprotected release, in a few words.
        through: Lapwing's release, in a few words.
        unprotected: The success without protection.
        protected: The success against Lapwing.
        epsilon: The budget of a person's life.
        delta: The δ of that budget.
        chance: The probability of a right guess without any release.
        limit: The greatest probability of a right guess for any attacker.
        formula: How the limit follows from ε, δ and the number of values.
        over_time: The success over time, if the attack takes time.
        steps: The unit of that time, such as "days".
        notes: Further observations, such as refusals.
        broken: A rule of the gate that did not hold, such as an answer beyond the budget; or that the
            attack received no answer at all. Else empty.
    """

    attack: str
    title: str
    _: KW_ONLY
    knows: str
    guesses: str
    without: str
    through: str
    unprotected: SuccessCount
    protected: SuccessCount
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    chance: Fraction
    limit: Fraction
    formula: str
    over_time: tuple[SuccessAfter, ...] = ()
    steps: str = ""
    notes: tuple[str, ...] = ()
    broken: str = ""

    @property
    def at_least(self) -> float:
        """A lower bound on the success against Lapwing, wrong with probability at most VIOLATION_ERROR."""
        return proportion_at_least(self.protected.right, self.protected.trials, VIOLATION_ERROR)

    @property
    def is_violation(self) -> bool:
        """True if the attack succeeded more often than the promise allows, or the gate broke a rule."""
        return bool(self.broken) or self._exceeds(self.protected.right, self.protected.trials)

    @property
    def could_show(self) -> bool:
        """True if this number of guesses would show a violation if all of them were right."""
        return self._exceeds(self.protected.trials, self.protected.trials)

    @property
    def least_right(self) -> int | None:
        """The smallest number of right guesses that is a violation. None if no number is."""
        trials = self.protected.trials
        if not self.could_show:
            return None
        return bisect_left(range(trials), True, key=lambda right: self._exceeds(right, trials))

    @property
    def least_runs(self) -> int | None:
        """The smallest number of runs that can show a violation. None if no number can."""
        if self.limit >= 1:
            return None
        near = max(math.floor(math.log(VIOLATION_ERROR) / math.log(self.limit)), 1)
        return next(runs for runs in count(near) if self._exceeds(runs, runs))

    def _exceeds(self, right: int, trials: int) -> bool:
        """Return whether this number of right guesses is more than the limit explains."""
        return Fraction(proportion_at_least(right, trials, VIOLATION_ERROR)) > self.limit

    @property
    def weakness(self) -> str:
        """A sentence that says that these runs could show no violation. Empty if they could or did."""
        if self.could_show or self.broken:
            return ""
        trials, needed = self.protected.trials, self.least_runs
        advice = (
            f"Use at least {needed:,} runs (--runs {needed})"
            if needed is not None and needed <= MOST_RUNS
            else "Use a smaller ε"
        )
        return (
            f"With {trials:,} run{'s' * (trials != 1)}, this attack could not have shown a violation: at "
            f"ε {short(float(self.epsilon))}, it may be chance that all guesses are right. "
            f"{advice}."
        )

    @property
    def sentence(self) -> str:
        """The outcome in plain words."""
        shown, safe = self.unprotected, self.protected
        if self.broken:
            return f"VIOLATION: {self.broken}."
        if self.is_violation:
            return (
                f"VIOLATION: the attacker is right about {safe.right} of {safe.trials} people, so with "
                f"probability at least {percent_down(self.at_least)} (error {short(VIOLATION_ERROR)}). The "
                f"promise of ε {short(float(self.epsilon))} allows {percent_up(self.limit_up)}."
            )
        return (
            f"Without protection, the attacker is right about {shown.right:,} of {shown.trials:,} people. "
            f"Against Lapwing, the same attacker is right about {safe.right:,} of {safe.trials:,} "
            f"({100 * safe.rate:.1f} %; interval of 95 %: {100 * safe.low:.1f} to "
            f"{100 * safe.high:.1f} %). In the long run, a blind guess is right in {percent(self.chance)} "
            f"of the cases, and no attacker in more than {percent_up(self.limit_up)}."
        )

    @property
    def limit_up(self) -> float:
        """The limit as a float, rounded up."""
        near = float(self.limit)
        return near if Fraction(near) >= self.limit else math.nextafter(near, 2.0)

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable names."""
        return {
            "attack": self.attack,
            "title": self.title,
            "attacker_knows": self.knows,
            "attacker_guesses": self.guesses,
            "unprotected_release": self.without,
            "protected_release": self.through,
            "unprotected": self.unprotected.to_json(),
            "protected": self.protected.to_json(),
            "confidence": CONFIDENCE,
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "chance": float(self.chance),
            "limit": self.limit_up,
            "limit_formula": self.formula,
            "success_at_least": self.at_least,
            "error_probability": VIOLATION_ERROR,
            "violation": self.is_violation,
            "could_show_violation": self.could_show,
            "violation_needs_right": self.least_right,
            "violation_needs_runs": self.least_runs,
            "over_time": [
                {
                    self.steps: point.after,
                    "unprotected": point.unprotected.to_json(),
                    "protected": point.protected.to_json(),
                }
                for point in self.over_time
            ],
            "notes": list(self.notes),
            "sentence": f"{self.sentence} {self.weakness}".strip(),
        }
