"""A price that is too small for its steps is refused before anything is reserved."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter
from lapwing.publish.bound_release import LEAST_RHO, SyntheticPrice, checkable
from lapwing.publish.models.domain import Domain
from lapwing.publish.release_file import load_release

DOMAIN = Domain(("a", "b", "c"), (2, 3, 4))
RELEASE = """[release]
name = "visits-2026"
policy = "visits.toml"
rows = "SELECT ward FROM visits"
method = "tree"
rho = 0.5
delta = 1e-9
check = CHECK
"""


def price(folder: Path, rho: Fraction, *, check: str = "0", rows_per_unit: int = 1) -> SyntheticPrice:
    (folder / "release.toml").write_text(RELEASE.replace("CHECK", check))
    return SyntheticPrice.of(load_release(folder / "release.toml"), DOMAIN, rows_per_unit, rho)


def test_the_shares_are_within_the_price(tmp_path: Path) -> None:
    found = price(tmp_path, Fraction(1, 2), check="0.25")
    assert found.method + found.check < found.rho == Fraction(1, 2)
    assert found.check == found.method / 3


@pytest.mark.parametrize(
    ("rho", "check", "rows_per_unit", "why"),
    [
        (LEAST_RHO, "0", 1, "epsilon: is too small: it gives ρ 8.19e-06"),
        (Fraction(1, 2), "1e-40", 1, "check: is too small"),
        (Fraction(1, 1000), "0", 10**9, r"epsilon: is too small: with 1,000,000,000 rows of a person"),
    ],
)
def test_a_price_that_is_too_small_is_refused(
    tmp_path: Path, rho: Fraction, check: str, rows_per_unit: int, why: str
) -> None:
    with pytest.raises(BadParameter, match=why):
        price(tmp_path, rho, check=check, rows_per_unit=rows_per_unit)


def test_pairs_are_checked_or_the_only_column() -> None:
    assert checkable(DOMAIN) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert checkable(Domain(("a",), (2,))) == [("a",)]
