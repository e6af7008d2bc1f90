"""A release, bound to the tables of its policy: everything that can be refused is refused here.

Claim    whether a release is refused depends on its file, the policy and public tables, never on private
         rows. A synthetic table that is bound can be run: its rules leave some row, and its model, its
         workload and its noise are within limits.
Because  the question is bound like SQL; cells follow from declared kinds; facts come from the file and from
         public tables. No private row is read here.
Test     tests/publish/test_bound_release.py, tests/publish/census/test_census_release.py

`SyntheticPrice` divides the ρ of a synthetic table, and tells whether it is enough for its steps.

Claim    a ρ that is too small for the method or for its check is refused before anything is reserved.
Because  the least noise of every first step follows from ρ, the number of columns and K.
Test     tests/publish/test_bound_release_price.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.canonical_json import canonical_json
from lapwing.core.exact import least_from
from lapwing.core.losses import Concentrated, Loss
from lapwing.errors import BadParameter
from lapwing.ledger.spending import Spending, Target, refusal
from lapwing.publish import methods
from lapwing.publish.measured.published_column import (
    PublishedColumn,
    coded_rows,
    domain_of,
    published_column,
)
from lapwing.publish.models.domain import Clique, Domain, tree_cells
from lapwing.publish.models.graphical_model import BeliefPropagation
from lapwing.publish.release_file import CENSUS, MOST_COLUMNS, MOST_RHO, ReleasePlanFile
from lapwing.sql import policy_ledger, row_questions
from lapwing.sql.dataset import Dataset

STEPS_AT_MOST = 4096  # of one release; each is rounded up in the ledger
LEDGER_UNIT = Fraction(1, 10**9)
LEAST_RHO = 2 * STEPS_AT_MOST * LEDGER_UNIT
CHECKED_MARGINALS = 10


@dataclass(frozen=True, slots=True)
class SyntheticPrice:
    """The ρ of a release, the ρ of its method, and the ρ of its check.

    Ledgers round each step up by at most one unit. That much is kept aside.
    """

    rho: Fraction
    method: Fraction
    check: Fraction

    @classmethod
    def of(cls, file: ReleasePlanFile, domain: Domain, rows_per_unit: int, rho: Fraction) -> SyntheticPrice:
        """Divide ρ. Raises BadParameter if it, or the share of the check, is too small."""
        if rho <= LEAST_RHO:
            raise BadParameter(
                "epsilon",
                f"is too small: it gives ρ {float(rho):.3g}, and a synthetic table needs more than "
                f"{float(LEAST_RHO):g}",
            )
        usable = rho - STEPS_AT_MOST * LEDGER_UNIT
        price = cls(rho, usable * (1 - file.check), usable * file.check)
        first = methods.first_sigma(file.method, price.method, len(domain.columns), rows_per_unit)
        sigmas = {"epsilon": first}
        if price.check:
            each = price.check * (1 - methods.SPARE) / len(checkable(domain)[:CHECKED_MARGINALS])
            sigmas["check"] = methods.smallest_sigma(each, rows_per_unit)
        for name, sigma in sigmas.items():
            if sigma > methods.MOST_SIGMA:
                raise BadParameter(
                    name,
                    f"is too small: with {rows_per_unit:,} rows of a person, each count would have a noise "
                    f"of {float(sigma):.2g} rows. Give a larger one, or lower rows_per_unit in the policy",
                )
        return price


def first_error(bound: BoundRelease, rho: Fraction) -> float:
    """Return the expected error of a count of a single column, which a synthetic table measures first."""
    price = SyntheticPrice.of(bound.file, bound.domain, bound.rows_per_unit, rho)
    sigma = methods.first_sigma(bound.file.method, price.method, len(bound.columns), bound.rows_per_unit)
    return methods.MEAN_OF_NOISE * float(sigma)


def checkable(domain: Domain) -> list[Clique]:
    """Return the marginals that a check may measure: all pairs, or the only column."""
    return [*combinations(domain.columns, 2)] or [domain.columns]


FORM = "lapwing release 1"
RHO_UNITS = 10**9
MOST_IMPOSSIBLE_CELLS = 1 << 20
MOST_CENSUS_CELLS = 1 << 25  # of the model of a census' impossible cells


@dataclass(frozen=True, slots=True, eq=False)
class BoundRelease:
    """A release that can be run: its question, its published columns, and its impossible cells."""

    file: ReleasePlanFile
    dataset: Dataset
    question: row_questions.RowQuestion
    columns: tuple[PublishedColumn, ...]
    impossible: Mapping[Clique, NDArray[np.bool_]]

    @property
    def domain(self) -> Domain:
        """The columns and their sizes."""
        return domain_of(self.columns)

    @property
    def rows_per_unit(self) -> int:
        """The contribution bound K: how many rows of a person count."""
        return self.question.rows

    @property
    def key(self) -> str:
        """The idempotency key: a release of one name is made once for a data set."""
        return f"publish {self.file.name} of {self.dataset.policy.name}"

    def cells(self, rows: row_questions.PrivateRows) -> NDArray[np.int64]:
        """Return the cells of each row, without rows that miss a value that must be known. Private."""
        return coded_rows(self.columns, rows)

    def targets(self) -> tuple[Target, ...]:
        """Return the accounts that pay."""
        return row_questions.targets(self.dataset, self.question)

    def spending(self, rho: Fraction, version: int) -> Spending:
        """Return the price of the release, and what is asked."""
        facts: dict[str, str | int] = {
            "form": FORM,
            "name": self.file.name,
            "file": self.file.digest,
            "rows": row_questions.meaning_digest(self.dataset, self.question),
            "method": self.file.method,
        }
        return Spending(
            targets=self.targets(),
            loss=Concentrated(rho),
            unit=policy_ledger.unit_of(self.dataset.policy),
            relation=policy_ledger.RELATION,
            mechanism="census tables" if self.file.method == CENSUS else "synthetic table",
            parameters={**facts, "rows of a unit": self.rows_per_unit, "rho": str(rho)},
            request=canonical_json({**facts, "version": version, "rho": str(rho)}, spaces=True).encode(),
        )

    def rho_that_fits(self) -> Fraction:
        """Return the largest ρ that the accounts still admit, rounded down. It makes no ledger.

        An account has room for less than the ρ of its own (ε, δ), since its filters share δ.
        """
        curator, policy = self.dataset.curator, self.dataset.policy
        is_known = (
            curator.has_ledger and policy_ledger.find_data_set(self.dataset.ledger, policy) is not None
        )
        admits = self._admitted_by_ledger() if is_known else self._admitted_by_policy()

        def is_refused(units: int) -> bool:
            return units > MOST_RHO * RHO_UNITS or not admits(Concentrated(Fraction(units, RHO_UNITS)))

        return Fraction(least_from(is_refused, start=RHO_UNITS) - 1, RHO_UNITS)

    def _admitted_by_ledger(self) -> Callable[[Loss], bool]:
        ledger, targets = self.dataset.ledger, self.targets()
        return lambda loss: (
            refusal(ledger, targets, loss, lambda account: account.costs_of_steps(loss)) is None
        )

    def _admitted_by_policy(self) -> Callable[[Loss], bool]:
        """Return a function that tells whether new accounts with the policy's terms admit a loss."""
        declared = policy_ledger.declared_terms(self.dataset.policy, self.dataset.analyst)
        return lambda loss: all(
            terms.after(terms.nothing_spent, terms.price(loss)) is not None for terms in declared
        )


def bind_release(file: ReleasePlanFile, dataset: Dataset) -> BoundRelease:
    """Bind a release to its data set. Raises BadParameter, with the key of the file that is wrong."""
    question = row_questions.row_question(dataset, file.sql)
    area = file.census.area if file.census is not None else None
    if area is not None and area not in question.columns:
        raise BadParameter("census.area", f'"{area}" is not a column of `rows`')
    for name in file.columns:
        if name not in question.columns or name == area:
            raise BadParameter("columns", f'"{name}" is not a published column of `rows`')
    columns = tuple(
        published_column(
            name, kind,
            bins=file.columns[name].bins if name in file.columns else None,
            has_unknown=name not in file.columns or file.columns[name].unknown,
        )
        for name, kind in question.columns.items()
        if name != area
    )  # fmt: skip
    if not columns:
        raise BadParameter("rows", "must select at least one column to publish")
    is_census, domain = file.method == CENSUS, domain_of(columns)
    if not is_census:
        if len(columns) > MOST_COLUMNS:
            raise BadParameter(
                "rows", f"selects {len(columns)} columns, and at most {MOST_COLUMNS} are possible"
            )
        methods.require_small_candidates(domain, file.method, file.workload, file.model_bytes)
        if file.rho is not None:
            SyntheticPrice.of(file, domain, question.rows, file.rho)
    cells = MOST_CENSUS_CELLS if is_census else file.model_bytes // methods.BYTES_OF_A_CELL
    impossible = impossible_cells(columns, file.impossible, model_cells=cells)
    return BoundRelease(file, dataset, question, columns, impossible)


def impossible_cells(
    columns: tuple[PublishedColumn, ...], rules: tuple[Mapping[str, Any], ...], *, model_cells: int
) -> dict[Clique, NDArray[np.bool_]]:
    """Return the cells that no row may have, by clique, from rules of values that do not go together.

    Claim    some row follows all rules, and a model of them alone has at most `model_cells` cells.
    Because  the sum over all rows, by belief propagation over the rules' cliques, is above 0.
    Test     tests/publish/test_bound_release.py
    """
    domain, by_name = domain_of(columns), {column.name: column for column in columns}
    for number, rule in enumerate(rules, 1):
        for name in rule:
            if name not in by_name:
                raise BadParameter(f"impossible {number}", f'"{name}" is not a published column')
        if domain.cells(rule) > MOST_IMPOSSIBLE_CELLS:
            raise BadParameter(f"impossible {number}", "names columns with too many cells together")
    if not rules:
        return {}
    needed = tree_cells(domain, [domain.clique(rule) for rule in rules])
    if needed > model_cells:
        raise BadParameter(
            "impossible",
            f"connects columns to a model of {needed:.3g} cells, and at most {model_cells:,} are possible. "
            "Use fewer rules, fewer bins, or model_megabytes under [synthetic]",
        )
    masks: dict[Clique, NDArray[np.bool_]] = {}
    for number, rule in enumerate(rules, 1):
        clique = domain.clique(rule)
        mask = masks.setdefault(clique, np.zeros(domain.shape(clique), np.bool_))
        mask[tuple(by_name[name].cell_of(rule[name], f"impossible {number}") for name in clique)] = True
    if not BeliefPropagation(domain, [], masks).is_possible():
        raise BadParameter("impossible", "leaves no row: every row would have something impossible")
    return masks
