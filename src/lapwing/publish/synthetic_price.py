"""The price of a synthetic table: how ρ is divided, and whether it is enough for its steps.

Claim    a ρ that is too small for the method or for its check is refused before anything is reserved.
Because  the least noise of every first step follows from ρ, the number of columns and K.
Test     tests/publish/test_synthetic_price.py
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from lapwing.errors import BadParameter
from lapwing.publish.methods import MOST_SIGMA, SPARE, first_sigma, smallest_sigma
from lapwing.publish.models.domain import Clique, Domain
from lapwing.publish.release_file import ReleasePlanFile

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
        sigmas = {"epsilon": first_sigma(file.method, price.method, len(domain.columns), rows_per_unit)}
        if price.check:
            each = price.check * (1 - SPARE) / len(checkable(domain)[:CHECKED_MARGINALS])
            sigmas["check"] = smallest_sigma(each, rows_per_unit)
        for name, sigma in sigmas.items():
            if sigma > MOST_SIGMA:
                raise BadParameter(
                    name,
                    f"is too small: with {rows_per_unit:,} rows of a person, each count would have a noise "
                    f"of {float(sigma):.2g} rows. Give a larger one, or lower rows_per_unit in the policy",
                )
        return price


def checkable(domain: Domain) -> list[Clique]:
    """Return the marginals that a check may measure: all pairs, or the only column."""
    return [*combinations(domain.columns, 2)] or [domain.columns]
