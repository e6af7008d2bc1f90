"""A synthetic table: reserve ρ, measure in charged steps, fit a model, and invent rows.

Claim    the release loses at most the reserved ρ of any privacy unit, also if it is killed and resumed at
         any point; after the measurements, everything is post-processing.
Because  ρ is reserved once under the release's key, and each step is charged before it begins; results are
         in the journal, or lost, and never drawn again; one run at a time has the journal, and goes on only
         if its steps are those of the ledger; the stored answer has all results, and rows are made from it
         alone.
Test     tests/publish/test_synthetic_release.py

Claim    mistakes that can be known before are refused before anything is reserved. A failure that private
         rows may have caused ends the release with one error, and is counted.
Because  `bind_release` and `SyntheticPrice` check everything that depends on the file, the policy and ρ; a
         step's failure goes through `Work.fail`.
Test     tests/publish/test_synthetic_release.py, tests/publish/test_bound_release.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.canonical_json import canonical_json
from lapwing.core.noise import permutation
from lapwing.errors import BadParameter
from lapwing.ledger.gate import Gate, Release, Work
from lapwing.ledger.padding import Ladder
from lapwing.ledger.request_status import RequestState
from lapwing.publish import methods
from lapwing.publish.bound_release import CHECKED_MARGINALS, BoundRelease, SyntheticPrice, checkable
from lapwing.publish.measured.journal import Journal, JournalStep, held
from lapwing.publish.measured.private_marginals import (
    Charge,
    MarginalSource,
    PrivateMarginals,
    noisy_marginal,
    step_loss,
)
from lapwing.publish.measured.published_column import dictionary_digest
from lapwing.publish.models import graphical_model
from lapwing.publish.models.domain import Clique, Domain
from lapwing.sql import row_questions

ANSWER_FORM = "lapwing synthetic table 1"
Wholes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTable:
    """Invented rows, the model and the measurements behind them, and marginals that only check them.

    `bounds` has the greatest L1 errors of marginals that were not chosen in the last round, at 95 %
    confidence. Only the run that measured knows them. `note` is a sentence if there are fewer rows than the
    model estimates, else empty.
    """

    rows: Wholes
    model: graphical_model.GraphicalModel
    measured: tuple[graphical_model.NoisyMarginal, ...]
    checked: tuple[graphical_model.NoisyMarginal, ...]
    bounds: Mapping[Clique, float]
    release: Release
    note: str = ""

    def marginal(self, clique: Clique) -> graphical_model.Floats:
        """Return the rows' counts of some columns, scaled if there are fewer rows than estimated."""
        domain = self.model.domain
        shape = domain.shape(clique)
        cells = np.ravel_multi_index([self.rows[:, domain.place(name)] for name in clique], shape)
        counts: graphical_model.Floats = (
            np.bincount(cells, minlength=domain.cells(clique)).reshape(shape).astype(np.float64)
        )
        return counts * float(self.model.total / len(self.rows)) if self.note else counts


def publish_table(
    bound: BoundRelease, rho: Fraction, journal: Path, *, progress: methods.Progress | None = None
) -> SyntheticTable:
    """Measure, or read what was measured before under this name, and invent rows.

    Args:
        bound: The release.
        rho: The ρ that is reserved.
        journal: The file of the steps. After a crash, the same file continues.
        progress: Called after each step.

    Raises:
        OverBudget: If the accounts have less. Nothing is charged.
        KeyReused: If the name was used for another release.
        InProgress: If another run of this release is under way. It charges nothing.
        WorkEnded: If reading rows failed, now or before under this name. What was reserved counts as spent.
        BadParameter: If ρ is too small for the steps, or the journal is lost or was changed.
    """
    dataset = bound.dataset
    price = SyntheticPrice.of(bound.file, bound.domain, bound.rows_per_unit, rho)
    with dataset.curator.keeping_open():
        version = row_questions.version_under(dataset, bound.question, bound.key)
        gate = Gate(dataset.ledger, principal=dataset.analyst, pads=True)
        spending = bound.spending(rho, version)
        work, done = gate.reserve(spending, key=bound.key), None
        if work.answered is None:
            try:
                require_journal(work, journal)
                with held(journal):
                    earlier = gate.find(bound.key)
                    if earlier is not None and earlier.state is RequestState.ANSWERED:
                        work = gate.reserve(spending, key=bound.key)  # another run finished meanwhile
                    else:
                        done = _measure(bound, price, version, work=work, path=journal, progress=progress)
            except BaseException:
                work.leave()
                raise
        release = work.answered
        assert release is not None
        _settle(work)
    return table_from_answer(bound, release, done, progress)


def require_journal(work: Work, path: Path) -> None:
    """Refuse to go on without the journal of steps that were charged: they would be paid a second time."""
    if work.charged and not path.exists():
        raise BadParameter(
            "journal",
            f"{path} is not there, and {work.charged} steps of this release were charged before. Put it "
            "back to go on, or publish under another name: what is reserved under this name stays reserved",
        )


def _settle(work: Work) -> None:
    """Let the rest lapse: that the method ended was decided from released numbers. Twice is once."""
    try:
        if not work.is_settled:
            work.settle(stopping_was_decided_from_released_values=True)
    except BadParameter:
        if not work.is_settled:  # else another run did it at the same time
            raise


def _measure(
    bound: BoundRelease,
    price: SyntheticPrice,
    version: int,
    *,
    work: Work,
    path: Path,
    progress: methods.Progress | None,
) -> methods.Measured:
    dataset, table = bound.dataset, list[Wholes]()

    def read() -> Wholes:
        if not table:
            with Ladder():  # the next steps are entries, too: their positions show when rows were read
                table.append(bound.cells(row_questions.read_rows(dataset, bound.question)))
                if dataset.version() != version:
                    raise BadParameter("source", "changed while it was read")
        return table[0]

    def journal(name: str) -> Journal:
        return Journal(path.with_name(f"{path.name}{name}"), f"{bound.key}{name}: {work.receipt.entry!r}")

    journals = [journal(name) for name in (("", ".check") if price.check else ("",))]
    _agree(bound, work, journals)
    done, answer = measured_answer(
        bound, price, read, journals, charge=work.step, fail=work.fail, progress=progress
    )
    work.finish(lambda: answer)
    return done


def measured_answer(
    bound: BoundRelease,
    price: SyntheticPrice,
    read: Callable[[], Wholes],
    journals: Sequence[Journal],
    *,
    charge: Charge,
    fail: Callable[[], None],
    progress: methods.Progress | None = None,
    shuffle: Callable[[int], Wholes] = permutation,
) -> tuple[methods.Measured, bytes]:
    """Take all steps of a release, and return what was measured and the answer to be stored.

    Args:
        bound: The release.
        price: Its price.
        read: Reads the private cells. It is called after the first charge.
        journals: The journal of the method, and that of the check if there is one.
        charge: Charges the loss of a step before it begins.
        fail: Ends the release after a failure that private rows may have caused.
        progress: Called after each step.
        shuffle: Returns the numbers below n in random order: they decide what is checked.
    """

    def source(steps: Journal, budget: Fraction) -> PrivateMarginals:
        return PrivateMarginals(
            bound.domain, read, rows_per_unit=bound.rows_per_unit, budget=budget, charge=charge,
            fail=fail, journal=steps,
        )  # fmt: skip

    main = source(journals[0], price.method)
    done = _run(bound, main, progress)
    if price.check:
        check_marginals(source(journals[1], price.check), shuffle)
    answer = _answer(bound, price.rho, main.steps, journals[1].steps if price.check else ())
    return (done if main.agrees else replace(done, last=None)), answer


def _agree(bound: BoundRelease, work: Work, journals: Sequence[Journal]) -> None:
    """Refuse journals whose steps are not those that the ledger charged: their number, and their losses.

    A process that died between writing a step and charging it leaves a step that was not charged. That one
    is dropped.
    """
    current = next((journal for journal in reversed(journals) if journal.steps), journals[0])
    if (
        sum(len(journal.steps) for journal in journals) == work.charged + 1
        and current.steps[-1].result is None
    ):
        current.drop()
    try:
        losses = [
            step_loss(bound.domain, bound.rows_per_unit, step)
            for journal in journals
            for step in journal.steps
        ]
    except ValueError:
        raise current.was_changed() from None
    if not work.are_charged(losses):
        raise current.was_changed()


def _run(
    bound: BoundRelease, source: MarginalSource, progress: methods.Progress | None
) -> methods.Measured:
    file = bound.file
    if file.method == "adaptive":
        return methods.adaptive(
            source, workload=file.workload, model_bytes=file.model_bytes,
            impossible=bound.impossible, progress=progress,
        )  # fmt: skip
    method = methods.tree if file.method == "tree" else methods.independent
    return method(source, impossible=bound.impossible, progress=progress)


def check_marginals(source: PrivateMarginals, shuffle: Callable[[int], Wholes] = permutation) -> None:
    """Measure random marginals of two columns, which the fit never sees.

    Each choice is in the journal before it is charged. After a crash, marginals with a result are kept, and
    others are drawn in the place of those that were lost.
    """
    possible = checkable(source.domain)
    wanted = min(CHECKED_MARGINALS, len(possible))
    for step in source.steps:
        if step.result is not None:
            clique = source.domain.clique(step.step["measure"])
            source.measure(clique, Fraction(step.step["sigma"]))
            possible = [candidate for candidate in possible if candidate != clique]
            wanted -= 1
    chosen = [possible[k] for k in shuffle(len(possible))[:wanted]] if wanted > 0 else []
    for number, clique in enumerate(chosen):
        rho = methods.affordable(source) / (wanted - number)
        source.measure(clique, methods.smallest_sigma(rho, source.rows_per_unit))


def _answer(
    bound: BoundRelease, rho: Fraction, steps: Sequence[JournalStep], checked: Sequence[JournalStep]
) -> bytes:
    def written(step: JournalStep) -> dict[str, Any]:
        return {"step": step.step, "rho": str(step.rho), "result": step.result}

    said = {
        "form": ANSWER_FORM,
        "name": bound.file.name,
        "method": bound.file.method,
        "rows_per_unit": bound.rows_per_unit,
        "rho": str(rho),
        "columns": {column.name: column.size for column in bound.columns},
        "dictionary": dictionary_digest(bound.columns, bound.rows_per_unit),
        "steps": [written(step) for step in steps],
        "check": [written(step) for step in checked],
    }
    return canonical_json(said).encode()


def _measured(
    domain: Domain, answer: dict[str, Any], name: str
) -> tuple[graphical_model.NoisyMarginal, ...]:
    """Return the noisy marginals of a stored answer."""
    steps = [JournalStep(step["step"], Fraction(step["rho"]), step["result"]) for step in answer[name]]
    return tuple(noisy_marginal(domain, step) for step in steps if step.result and "measure" in step.step)


def table_from_answer(
    bound: BoundRelease,
    release: Release,
    done: methods.Measured | None,
    progress: methods.Progress | None = None,
) -> SyntheticTable:
    """Return invented rows from a stored answer. No private data is read.

    `done` is from the run that measured, if this is the same process: its model is near already.
    """
    answer, domain = json.loads(release.answer), bound.domain
    measured, checked = (_measured(domain, answer, name) for name in ("steps", "check"))
    start = {} if done is None else done.start
    model = methods.fit_measured(domain, methods.Measured(measured, start), bound.impossible, progress)
    estimated, most_values = max(1, round(model.total)), graphical_model.MOST_VALUES
    count, note = graphical_model.row_count(model.total, len(domain.columns)), ""
    if count < estimated:
        note = (
            f"There are {count:,} rows for an estimated {estimated:,}: a table has at most "
            f"{graphical_model.MOST_ROWS:,} rows and {most_values:,} values. Shares are those of all rows."
        )
    rows = graphical_model.sample_rows(model, count)
    table = SyntheticTable(rows, model, measured, checked, {}, release, note)
    last = None if done is None else done.last
    return table if last is None else replace(table, bounds=last.bounds(table.marginal))
