"""The mechanisms on a small invented data set, all paid from one ledger, which is then attacked.

Every step is charged, on disk, before its data is read. The data, data/clinic.csv, is made by
tests/cli/make_clinic.py: nobody in it exists, and only therefore are true values shown. The ledger is a
real file in a temporary folder, and nothing of it is left behind: keys, anchors and copies are in the
same folder.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from lapwing.core import Pure, Relation, Terms
from lapwing.core.exact import short
from lapwing.core.losses import Loss
from lapwing.errors import OverBudget, Tampered
from lapwing.examples.visits import example_text
from lapwing.ledger import ChargedRelease, Gate, Ledger, Release, Spending, Target, Unit
from lapwing.mechanisms import Exponential, Grid, Laplace, PartitionSelection, Quantile, RandomizedResponse
from lapwing.mechanisms import sensitivity as moves

ACCOUNT = "patients"
PRINCIPAL = "the demo"
STATE = "LAPWING_STATE"
RELATION = Relation.REPLACE  # neighbours: one patient is replaced by another


@dataclass(frozen=True, slots=True)
class LedgerEnding:
    """What the ledger says once it was closed, opened again, and attacked."""

    again: bytes  # the first answer, asked for with the same key
    first: bytes
    left: Fraction  # after that; the same as before
    entries: int
    findings: tuple[str, ...]  # of the ledger itself: none
    edited: str  # why a copy in which the sums were set to 0 is not opened
    older: str  # why a copy from before the first question is not opened


class ClinicLedger:
    """A ledger that one analyst spends from."""

    def __init__(self, folder: Path, terms: Terms) -> None:
        self._path = folder / "clinic.ledger"
        self._older = folder / "older.ledger"
        self._ledger = Ledger.create(self._path)
        self._ledger.open_account(
            ACCOUNT, epsilon=terms.epsilon, delta=terms.delta, unit=Unit.PERSON, relation=RELATION
        )
        self.reopen(copy_to=self._older)

    @property
    def left(self) -> Fraction:
        """The greatest pure ε that would still be admitted."""
        [block] = self._ledger.blocks(ACCOUNT)
        return block.left(self._ledger.account(ACCOUNT).terms)

    def release(self, question: str, mechanism: str, loss: Loss, run: Callable[[], bytes]) -> Release:
        """Charge, run, store. The question is the key: asked again, it has the same answer."""
        spending = Spending(
            targets=(Target(ACCOUNT),),
            loss=loss,
            unit=Unit.PERSON,
            relation=RELATION,
            mechanism=mechanism,
            parameters={},
            request=question.encode(),
        )
        return Gate(self._ledger, principal=PRINCIPAL).release(ChargedRelease(spending, run), key=question)

    def reopen(self, *, copy_to: Path | None = None) -> None:
        """Close the ledger, perhaps copy its file, and open it again, as a later process would."""
        self._ledger.close()
        if copy_to is not None:
            shutil.copy(self._path, copy_to)
        self._ledger = Ledger.open(self._path)

    def end(self, first: Release, ask_again: Callable[[], Release]) -> LedgerEnding:
        """Ask the first question again, verify everything, and try two copies that must not be opened."""
        edited = self._path.with_name("edited.ledger")
        self.reopen(copy_to=edited)
        again = ask_again()
        with closing(sqlite3.connect(edited)) as database:
            listed = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            guards = database.execute(listed).fetchall()
            for guard, _ in guards:  # they would refuse, but an attacker can remove them
                database.execute(f'DROP TRIGGER "{guard}"')
            database.execute("UPDATE budgets SET left_1 = left_1 + 1000000000")
            for _, again_there in guards:  # else their absence alone would be found
                database.execute(again_there)
            database.commit()
        report = self._ledger.verify()
        return LedgerEnding(
            again=again.answer,
            first=first.answer,
            left=self.left,
            entries=report.replay.entries,
            findings=report.findings,
            edited=self._refused(edited),
            older=self._refused(self._older),
        )

    def _refused(self, copy: Path) -> str:
        """Return the first difference that was found, without the name of the folder."""
        self._ledger.close()  # two copies are never open at once
        try:
            Ledger.open(copy, keys=Path(f"{self._path}.keys"), anchor=f"{self._path}.anchor").close()
        except Tampered as tampered:
            return tampered.found[0].replace(f"{os.path.realpath(self._path.parent)}{os.sep}", "")
        finally:
            self._ledger = Ledger.open(self._path)
        raise AssertionError("a copy that says something else than the anchor must not be opened")

    def close(self) -> None:
        """Close the ledger."""
        self._ledger.close()


@contextmanager
def temporary_ledger(terms: Terms) -> Iterator[ClinicLedger]:
    """Open a ledger in a folder that is removed afterwards."""
    with (
        TemporaryDirectory(prefix="lapwing-demo-") as folder,
        state_in(Path(folder, "state")),
        closing(ClinicLedger(Path(folder), terms)) as ledger,
    ):
        yield ledger


@contextmanager
def state_in(folder: Path) -> Iterator[None]:
    """Keep second anchors in this folder instead of the user's own, for ledgers that are soon gone."""
    before = os.environ.get(STATE)
    os.environ[STATE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[STATE]
        else:
            os.environ[STATE] = before


# All of this is public: decided before anybody looked at the data.
PATIENTS = 400
VISITS_AT_MOST = 5
WARDS = ("children", "eyes", "heart", "lungs", "maternity", "surgery")
COSTS = Grid.of(low=0, high=2000, step=10)
OLDEST = 110
CONFIDENCE = Fraction(95, 100)


@dataclass(frozen=True, slots=True)
class Clinic:
    """The visits, one entry per row; ages and costs may be missing (NaN)."""

    patient: NDArray[np.int64]
    town: list[str]
    ward: list[str]
    age: NDArray[np.float64]
    cost: NDArray[np.float64]
    skipped: NDArray[np.bool_]

    def rows(self, *, per_patient: int) -> NDArray[np.int64]:
        """Return the first rows of each patient, at most `per_patient`: the bound is enforced here."""
        seen: dict[int, int] = {}
        kept = []
        for row, patient in enumerate(self.patient.tolist()):
            seen[patient] = seen.get(patient, 0) + 1
            if seen[patient] <= per_patient:
                kept.append(row)
        return np.array(kept, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result of a step, and the truth to compare it with."""

    answer: str
    interval: str
    truth: str  # shown only because the data is invented


@dataclass(frozen=True, slots=True)
class DemoStep(DemoResult):
    """One question: its price, its answer, and the budget left."""

    question: str
    mechanism: str
    loss: Loss
    left: Fraction

    @property
    def price(self) -> str:
        """The ε, and the δ where there is one."""
        if not self.loss.pure:
            return "free"
        delta = f", δ {short(float(self.loss.delta0))}" if self.loss.delta0 else ""
        return f"ε {float(self.loss.pure):.4g}{delta}"


@dataclass(frozen=True, slots=True)
class WardBar:
    """One bar of the histogram."""

    ward: str
    patients: int
    truth: int


@dataclass(frozen=True, slots=True)
class DemoStory:
    """Everything that the demo shows of the mechanisms."""

    terms: Terms
    steps: tuple[DemoStep, ...]
    bars: tuple[WardBar, ...]
    refused: str
    left_after_refusal: Fraction
    asked_twice: DemoStep
    ending: LedgerEnding


class DemoAnalyst:
    """One analyst, one data set, one ledger."""

    def __init__(self, clinic: Clinic, ledger: ClinicLedger) -> None:
        self.clinic = clinic
        self.ledger = ledger
        self.steps: list[DemoStep] = []
        self.bars: tuple[WardBar, ...] = ()
        self.bounded = clinic.rows(per_patient=VISITS_AT_MOST)
        self.first = clinic.rows(per_patient=1)

    def ask(self, question: str, mechanism: str, loss: Loss, compute: Callable[[], DemoResult]) -> Release:
        """Charge first; only an admitted question is computed. Its answer is stored, then shown."""
        computed: list[DemoResult] = []

        def run() -> bytes:
            computed.append(compute())
            first = computed[0]
            return f"{first.answer} ({first.interval})".encode()  # never the truth

        release = self.ledger.release(question, mechanism, loss, run)
        for released in computed:  # empty if it was answered before
            self.steps.append(
                DemoStep(
                    **asdict(released),
                    question=question,
                    mechanism=mechanism,
                    loss=loss,
                    left=self.ledger.left,
                )
            )
        return release

    def elderly(self) -> Release:
        """Ask for a count: one patient changes it by at most 1."""
        noise = Laplace.for_epsilon("0.1", l1=moves.count(rows=1).l1)

        def compute() -> DemoResult:
            truth = int((self.clinic.age[self.first] >= 65).sum())
            answer, width = int(noise.sample(truth)[0]), noise.spread(CONFIDENCE)
            return DemoResult(f"{answer:,}", f"± {width}", f"{truth:,}")

        return self.ask("How many patients are 65 or older?", "Laplace, Δ = 1", noise.loss, compute)

    def costs(self) -> None:
        """Ask for a sum on a public grid and a count, from which a mean follows at no further price."""
        reach = moves.total(low=0, high=COSTS.high, relation=RELATION, rows=VISITS_AT_MOST)
        sums = Laplace.for_epsilon("0.3", l1=reach.in_steps(COSTS.step).l1)
        counts = Laplace.for_epsilon("0.15", l1=moves.count(rows=VISITS_AT_MOST).l1)
        released: list[int] = []

        def total() -> DemoResult:
            steps = COSTS.place(self.clinic.cost[self.bounded], missing=0)
            released.append(int(sums.sample(int(steps.sum()))[0]))
            answer, width = (float(COSTS.value(k)) for k in (released[0], sums.spread(CONFIDENCE)))
            return DemoResult(f"{answer:,.0f}", f"± {width:,.0f}", f"{np.nansum(self.clinic.cost):,.0f}")

        def visits() -> DemoResult:
            released.append(int(counts.sample(len(self.bounded))[0]))
            width = counts.spread(CONFIDENCE)
            return DemoResult(f"{released[1]:,}", f"± {width}", f"{len(self.clinic.patient):,}")

        def mean() -> DemoResult:
            money, visits = float(COSTS.value(released[0])), max(released[1], 1)
            # Both noises keep within these widths together.
            wide = float(COSTS.value(sums.spread(CONFIDENCE, answers=2)))
            many = counts.spread(CONFIDENCE, answers=2)
            low = max(money - wide, 0.0) / (visits + many)
            high = min((money + wide) / max(visits - many, 1), float(COSTS.high))
            truth = float(np.nanmean(self.clinic.cost))
            return DemoResult(f"{money / visits:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{truth:,.0f}")

        self.ask("What did all visits cost?", f"Laplace on a grid, Δ = {int(reach.l1):,}", sums.loss, total)
        self.ask("How many visits were there?", f"Laplace, Δ = {VISITS_AT_MOST}", counts.loss, visits)
        self.ask("What does a visit cost?", "from the two above", Pure(Fraction(0)), mean)

    def wards(self) -> None:
        """Ask for a histogram: a replaced patient leaves one bar and enters another."""
        noise = Laplace.for_epsilon("0.25", l1=moves.histogram(relation=RELATION, rows=1).l1)

        def compute() -> DemoResult:
            truths = self._by_ward(self.first)
            noisy = noise.sample(truths)
            self.bars = tuple(map(WardBar, WARDS, noisy.tolist(), truths.tolist()))
            width = noise.spread(CONFIDENCE, answers=len(WARDS))
            return DemoResult(f"{len(WARDS)} bars, below", f"± {width}, all at once", "below")

        self.ask("Which wards do patients come to first?", "Laplace histogram, Δ = 2", noise.loss, compute)

    def age(self) -> None:
        """Ask for a median: chosen among all ages, likelier the nearer it is to the middle rank."""
        ages = Grid.of(low=0, high=OLDEST, step=1)
        middle = Quantile.for_epsilon(
            "0.2", fraction="0.5", first=0, last=OLDEST, relation=RELATION, rows=1
        )

        def compute() -> DemoResult:
            own = self.clinic.age[self.first]
            answer = middle.sample(ages.place(own, missing=0))
            ranks = math.ceil(middle.spread(CONFIDENCE))
            return DemoResult(
                f"{answer}", f"within {ranks} ranks (of {PATIENTS})", f"{np.nanmedian(own):.0f}"
            )

        self.ask("What is the median age?", "quantile", middle.loss, compute)

    def busiest(self) -> None:
        """Ask for a choice: noise on the name of a ward would make no sense."""
        choice = Exponential.for_epsilon("0.25", sensitivity=VISITS_AT_MOST)

        def compute() -> DemoResult:
            chosen = WARDS[choice.sample(self._by_ward(self.bounded))]
            gap = int(choice.spread(CONFIDENCE, candidates=len(WARDS)))
            truth = WARDS[int(np.argmax(self._by_ward(np.arange(len(self.clinic.ward)))))]
            return DemoResult(chosen, f"within {gap} visits of the best", truth)

        self.ask("Which ward has most visits?", "exponential", choice.loss, compute)

    def towns(self) -> None:
        """Ask for keys that nobody declared: a town is told only if enough patients live there."""
        # A replaced patient may leave one town and enter another, hence two keys.
        shown = PartitionSelection.for_budget("0.5", "5e-8", keys=2)

        def compute() -> DemoResult:
            homes = [self.clinic.town[row] for row in self.first]
            told = ", ".join(shown.sample(Counter(homes)))
            least = shown.spread(CONFIDENCE)
            return DemoResult(
                told or "none", f"those with {least} patients or more", f"{len(set(homes))} towns"
            )

        self.ask("Which towns do patients come from?", "partition selection", shown.loss, compute)

    def survey(self) -> None:
        """Ask by two coins: each patient answers at random half of the time, so no answer is proof."""
        coins = RandomizedResponse.two_coins()

        def compute() -> DemoResult:
            secret = self.clinic.skipped[self.first]
            share = float(coins.estimate(coins.sample(secret))[1])
            width = coins.spread(CONFIDENCE, n=PATIENTS)
            return DemoResult(
                f"{100 * share:.0f} %", f"± {100 * width:.0f} %", f"{100 * secret.mean():.0f} %"
            )

        self.ask("Which share skipped a prescribed medicine?", "two-coin survey", coins.loss, compute)

    def one_too_many(self) -> str:
        """Ask a question that the budget does not cover: nothing is computed or charged."""
        noise = Laplace.for_epsilon("0.5", l1=1)
        try:
            self.ask("How many are younger?", "Laplace, Δ = 1", noise.loss, lambda: DemoResult("", "", ""))
        except OverBudget as refusal:
            return str(refusal)
        raise AssertionError("the demo's prices are public and add up to more than its budget")

    def _by_ward(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count rows by declared ward; an undeclared ward is not counted."""
        wards = [self.clinic.ward[row] for row in rows]
        return np.array([wards.count(ward) for ward in WARDS], dtype=np.int64)


def load_clinic() -> Clinic:
    """Read the invented clinic."""
    rows = list(csv.DictReader(example_text("clinic.csv").splitlines()))
    return Clinic(
        patient=np.array([int(row["patient"]) for row in rows], dtype=np.int64),
        town=[row["town"] for row in rows],
        ward=[row["ward"] for row in rows],
        age=np.array([float(row["age"] or "nan") for row in rows]),
        cost=np.array([float(row["cost"] or "nan") for row in rows]),
        skipped=np.array([row["skipped"] == "yes" for row in rows]),
    )


def run_demo() -> DemoStory:
    """Ask everything once, with fresh noise, on a budget of (3, 1e-6); then attack the ledger."""
    terms = Terms.of(3, "1e-6")
    with temporary_ledger(terms) as ledger:
        analyst = DemoAnalyst(load_clinic(), ledger)
        first = analyst.elderly()
        analyst.costs()
        analyst.wards()
        analyst.age()
        analyst.busiest()
        analyst.towns()
        analyst.survey()
        refused = analyst.one_too_many()
        left = ledger.left
        ending = ledger.end(first, analyst.elderly)
        steps = tuple(analyst.steps)
        return DemoStory(terms, steps, analyst.bars, refused, left, steps[0], ending)
