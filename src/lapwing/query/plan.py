"""A plan: what would be computed, by which mechanisms, at which price and error. Looking at it is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lapwing.mechanisms import Gaussian, Laplace, PartitionSelection
from lapwing.query.answering.estimate_spread import Spread, spread
from lapwing.query.answering.shares import Shares
from lapwing.query.answering.stored import Asked
from lapwing.query.language.question import Part, Question
from lapwing.query.language.relation import blocks_of
from lapwing.query.policies.blocks import block_labels, codes_of_blocks
from lapwing.query.truncation import Bought, truncation

if TYPE_CHECKING:
    from lapwing.query.answering.answer import Answer
    from lapwing.query.dataset import Dataset

CONFIDENCE_OF_THRESHOLD = Fraction(95, 100)


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of a release."""

    epsilon: Fraction
    delta: Fraction

    def __str__(self) -> str:
        delta = f", δ {float(self.delta):.3g}" if self.delta else ""
        return f"ε {float(self.epsilon):.6g}{delta}"


@dataclass(frozen=True)
class Step:
    """One mechanism of a plan."""

    what: str
    mechanism: str
    share: str  # of ε, or ρ
    error: str


@dataclass(frozen=True, repr=False)
class Plan:
    """A question with its shares. `release` is the only thing that costs."""

    dataset: Dataset
    asked: Asked
    question: Question
    shares: Shares
    confidence: Fraction
    n: int | None = None
    sampling: bool = False
    why: str = ""  # how ε was found, if it was not given

    @property
    def cost(self) -> Cost:
        """What the release will be charged for."""
        needs_delta = self.shares.noise == "gaussian" or bool(self.shares.selected)
        return Cost(self.shares.epsilon, self.shares.delta if needs_delta else Fraction(0))

    @property
    def spread(self) -> dict[str, Spread]:
        """How far off each column may be, at the plan's confidence."""
        return spread(self.question, self.shares, self.confidence, n=self.n)

    @property
    def blocks(self) -> list[str] | None:
        """The blocks that will be charged; None: there are no blocks."""
        return blocks_reached(self.dataset, self.question)

    @property
    def statements(self) -> tuple[str, ...]:
        """The SQL that will run."""
        found = self.dataset.statements(self.question)
        return found.sums + tuple(one for several in found.spectra for one in several)

    @property
    def steps(self) -> list[Step]:
        """Every mechanism, its share, and its expected error."""
        found = [
            Step(
                f"which keys are shown{_of(self, one.grouping)}", "partition selection",
                f"ε {float(one.mechanism.epsilon):.4g}, δ {float(one.mechanism.delta):.3g}",
                threshold(one.mechanism),
            )
            for one in self.shares.selected
        ]  # fmt: skip
        for added in self.shares.added:
            part = self.question.parts[added.part]
            found.append(
                Step(
                    f"{part.label}{_of(self, added.grouping)}", _noise(added.mechanism),
                    _share(added.mechanism), _moved(part),
                )
            )  # fmt: skip
        for chosen in self.shares.chosen:
            label = self.question.spectra[chosen.wanted.spectrum].label
            ranks = float(chosen.mechanism.spread(self.confidence))
            found.append(
                Step(
                    f"{chosen.wanted.function} of {label}{_of(self, chosen.grouping)}",
                    "exponential choice",
                    f"ε {float(chosen.mechanism.epsilon):.4g}", f"rank within ±{ranks:.4g}",
                )
            )  # fmt: skip
        return found

    @property
    def bounds(self) -> list[str]:
        """How many rows of a person count in each table, and what was bought about the others."""

        def bought(table: str, rows: int) -> Bought | None:
            return self.dataset.dropped_before(table, rows=rows, confidence=self.confidence)

        return truncation(self.dataset.policy, self.question, bought)

    def release(self, *, fresh: bool = False) -> Answer:
        """Charge, compute, add noise, store, return. The same question again gives the stored answer."""
        return self.dataset.release(self, fresh=fresh)

    def dry_run(self) -> Answer:
        """An answer from generated rows of the same schema. It costs nothing and means nothing."""
        return self.dataset.dry_run(self)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "sql": self.asked.sql,
            "cost": {"epsilon": str(self.cost.epsilon), "delta": str(self.cost.delta)},
            "why": self.why,
            "noise": self.shares.noise,
            "reason": self.shares.reason,
            "confidence": float(self.confidence),
            "columns": {
                name: {"half": one.half, "formula": one.formula, "ranks": one.ranks}
                for name, one in self.spread.items()
            },
            "steps": [vars(step) for step in self.steps],
            "bounds": self.bounds,
            "blocks": self.blocks,
            "rows_of_a_person": self.question.rows,
            "statements": list(self.statements),
        }

    def __str__(self) -> str:
        lines = [f"Costs {self.cost}{f' ({self.why})' if self.why else ''}; nothing is charged by looking."]
        lines += [f"{name}: {described(one)}" for name, one in self.spread.items() if described(one)]
        lines += [f"- {s.what}: {s.mechanism}, {s.share}; {s.error}" for s in self.steps]
        lines += [self.shares.reason] if self.shares.reason else []
        lines += self.bounds
        if self.blocks is not None:
            lines.append(f"Charged blocks: {listed(self.blocks)}")
        return "\n".join(lines)

    __repr__ = __str__


def blocks_reached(dataset: Dataset, question: Question) -> list[str] | None:
    """The blocks whose units a question can reach; None: there are no blocks."""
    declared = dataset.policy.blocks
    if declared is None:
        return None
    reached, known = blocks_of(question.source), codes_of_blocks(declared)
    if not known:  # they open as people arrive
        return dataset.all_blocks()
    return block_labels(declared, [code for code in known if reached is None or code in reached])


def listed(names: Sequence[str], most: int = 8) -> str:
    """Some names, and how many more."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def described(one: Spread) -> str:
    """A spread in words."""
    if one.half is not None:
        return f"± {one.half:,.6g}"
    if one.formula is not None:
        return f"± {one.formula}, n being the rows of the group"
    return f"rank within ±{one.ranks:,.4g}" if one.ranks is not None else ""


def threshold(mechanism: PartitionSelection) -> str:
    """From how many people on a key is shown."""
    return f"a key of {mechanism.spread(CONFIDENCE_OF_THRESHOLD):,} people is shown with 95 % probability"


def _of(plan: Plan, grouping: int) -> str:
    if len(plan.question.sets) == 1:
        return ""
    names = [plan.question.keys[key].name for key in plan.question.sets[grouping]]
    return f" by {', '.join(names)}" if names else " in total"


def _noise(mechanism: Laplace | Gaussian) -> str:
    if isinstance(mechanism, Laplace):
        return f"Laplace noise, scale {float(mechanism.scale):,.6g}"
    return f"Gaussian noise, σ {float(mechanism.sigma):,.6g}"


def _moved(part: Part) -> str:
    what = "both together" if len(part.numbers) > 1 else "it"
    return f"one person moves {what} by up to {part.l1:,}"


def _share(mechanism: Laplace | Gaussian) -> str:
    if isinstance(mechanism, Laplace):
        return f"ε {float(mechanism.l1 / mechanism.scale):.4g}"
    return f"ρ {float(mechanism.loss.concentrated.rho):.4g}"
