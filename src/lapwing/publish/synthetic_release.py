"""A synthetic table: reserve ρ, measure in charged steps, fit a model, and invent rows.

Claim    the release loses at most the reserved ρ of any privacy unit, also if it is killed and resumed at
         any point; after the measurements, everything is post-processing.
Because  ρ is reserved once under the release's key, and each step is charged before it begins; results are
         in the journal, or lost, and never drawn again; the stored answer has all results, and rows are
         made from it alone.
Test     tests/publish/test_synthetic_release.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.noise import permutation
from lapwing.errors import BadParameter
from lapwing.ledger.gate import Gate, Release, Work
from lapwing.publish import methods
from lapwing.publish.bound_release import BoundRelease
from lapwing.publish.measured.journal import Journal, JournalStep
from lapwing.publish.measured.private_marginals import PrivateMarginals, Record, noisy_marginal
from lapwing.publish.measured.published_column import coded_rows
from lapwing.publish.methods import Measured, Progress, fit_measured, smallest_sigma
from lapwing.publish.models.domain import Clique
from lapwing.publish.models.fitting import NoisyMarginal
from lapwing.publish.models.graphical_model import GraphicalModel
from lapwing.publish.models.marginal_source import MarginalSource
from lapwing.publish.models.row_sampler import sample_rows
from lapwing.sql import row_questions

ANSWER_FORM = "lapwing synthetic table 1"
STEPS_AT_MOST = 4096  # of one release; each is rounded up in the ledger
LEDGER_UNIT = Fraction(1, 10**9)
CHECKED_MARGINALS = 10
Wholes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTable:
    """Invented rows, the model and the measurements behind them, and marginals that only check them.

    `bounds` has the greatest L1 errors of marginals that were not measured, at 95 % confidence. Only the run
    that measured knows them.
    """

    rows: Wholes
    model: GraphicalModel
    measured: tuple[NoisyMarginal, ...]
    checked: tuple[NoisyMarginal, ...]
    bounds: Mapping[Clique, float]
    release: Release


def publish_table(
    bound: BoundRelease,
    rho: Fraction,
    journal: Path,
    *,
    progress: Progress | None = None,
    record: Record | None = None,
) -> SyntheticTable:
    """Measure, or read what was measured before under this name, and invent rows.

    Args:
        bound: The release.
        rho: The ρ that is reserved.
        journal: The file of the steps. After a crash, the same file continues.
        progress: Called after each step.
        record: Called with the input of every mechanism. Only tests that replay neighbours use it.

    Raises:
        OverBudget: If the accounts have less. Nothing is charged.
        KeyReused: If the name was used for another release.
        BadParameter: If the source changed, or ρ is too small for the steps.
    """
    dataset = bound.dataset
    with dataset.curator.keeping_open():
        version = row_questions.checked_version(dataset, bound.question)
        gate = Gate(dataset.ledger, principal=dataset.analyst)
        work = gate.reserve(bound.spending(rho, version), key=bound.key)
        release, done = work.answered, None
        if release is None:
            release, done = _measure(
                bound, rho, version, work=work, path=journal, progress=progress, record=record
            )
            work.settle(stopping_was_decided_from_released_values=True)
    return table_from_answer(bound, release, done, progress)


def _measure(
    bound: BoundRelease,
    rho: Fraction,
    version: int,
    *,
    work: Work,
    path: Path,
    progress: Progress | None,
    record: Record | None,
) -> tuple[Release, Measured]:
    dataset, table = bound.dataset, list[Wholes]()

    def read() -> Wholes:
        if not table:
            table.append(coded_rows(bound.columns, row_questions.read_rows(dataset, bound.question)))
            if dataset.version() != version:
                raise BadParameter("source", "changed while it was read")
        return table[0]

    def source(name: str, budget: Fraction) -> PrivateMarginals:
        journal = Journal(
            path.with_name(f"{path.name}{name}"), f"{bound.key}{name}: {work.receipt.entry!r}"
        )
        return PrivateMarginals(
            bound.domain, read, rows_per_unit=bound.rows_per_unit, budget=budget, charge=work.step,
            journal=journal, record=record,
        )  # fmt: skip

    measured, checked = _split(bound, rho)
    main, beside = source("", measured), source(".check", checked)
    done = _run(bound, main, progress)
    if checked:
        _check(bound, beside)
    answer = _answer(bound, rho, main.steps, beside.steps)
    return work.finish(lambda: answer), done if main.agrees else replace(done, last=None)


def _split(bound: BoundRelease, rho: Fraction) -> tuple[Fraction, Fraction]:
    """Return the ρ of the method and of the check. Ledgers round each step up by at most one unit."""
    usable = rho - STEPS_AT_MOST * LEDGER_UNIT
    if usable <= rho / 2:
        raise BadParameter(
            "epsilon", f"is too small: ρ must be above {float(2 * STEPS_AT_MOST * LEDGER_UNIT):g}"
        )
    return usable * (1 - bound.file.check), usable * bound.file.check


def _run(bound: BoundRelease, source: MarginalSource, progress: Progress | None) -> Measured:
    file = bound.file
    if file.method == "adaptive":
        return methods.adaptive(
            source, workload=file.workload, model_bytes=file.model_bytes,
            impossible=bound.impossible, progress=progress,
        )  # fmt: skip
    method = methods.tree if file.method == "tree" else methods.independent
    return method(source, impossible=bound.impossible, progress=progress)


def _check(bound: BoundRelease, source: MarginalSource) -> None:
    """Measure random marginals of up to two columns, which the fit never sees."""
    names = bound.domain.columns
    possible: list[Clique] = [*combinations(names, 2)] or [(names[0],)]
    chosen = [possible[k] for k in permutation(len(possible))[:CHECKED_MARGINALS]]
    sigma = smallest_sigma(source.budget / len(chosen), bound.rows_per_unit)
    for clique in chosen:
        source.measure(clique, sigma)


def _answer(
    bound: BoundRelease, rho: Fraction, steps: Sequence[JournalStep], checked: Sequence[JournalStep]
) -> bytes:
    def written(one: JournalStep) -> dict[str, Any]:
        return {"step": one.step, "rho": str(one.rho), "result": one.result}

    said = {
        "form": ANSWER_FORM,
        "name": bound.file.name,
        "method": bound.file.method,
        "rows_per_unit": bound.rows_per_unit,
        "rho": str(rho),
        "columns": {column.name: column.size for column in bound.columns},
        "steps": [written(one) for one in steps],
        "check": [written(one) for one in checked],
    }
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def read_steps(answer: dict[str, Any], name: str) -> list[JournalStep]:
    """Return the steps of a stored answer."""
    return [JournalStep(one["step"], Fraction(one["rho"]), one["result"]) for one in answer[name]]


def table_from_answer(
    bound: BoundRelease, release: Release, done: Measured | None, progress: Progress | None = None
) -> SyntheticTable:
    """Return invented rows from a stored answer. No private data is read.

    `done` is from the run that measured, if this is the same process: its model is near already.
    """
    answer, domain = json.loads(release.answer), bound.domain
    measured, checked = (
        tuple(
            noisy_marginal(domain, one)
            for one in read_steps(answer, name)
            if one.result and "measure" in one.step
        )
        for name in ("steps", "check")
    )
    start = {} if done is None else done.start
    model = fit_measured(domain, Measured(measured, start), bound.impossible, progress)
    rows = sample_rows(model, max(1, round(model.total)))
    bounds = {} if done is None or done.last is None else done.last.bounds(model)
    return SyntheticTable(rows, model, measured, checked, bounds, release)
