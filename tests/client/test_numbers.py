"""A number is sent as it was meant."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.client.numbers import decimal_text
from lapwing.core.exact import exact
from lapwing.errors import BadParameter
from support.cases import each
from support.raised import named

MEANT: list[tuple[Any, str]] = [
    (0.1, "0.1"),
    (1, "1"),
    (1e-6, "0.000001"),
    (Fraction(1, 8), "0.125"),
    (Decimal("1E-9"), "0.000000001"),
    (np.float64(0.3), "0.3"),
    (np.int64(2), "2"),
    (" 0.5 ", "0.5"),
]


@each(("value", "text"), MEANT)
def test_a_number_is_the_one_that_a_person_means(value: Any, text: str) -> None:
    assert decimal_text(value, "epsilon") == text


@given(st.decimals(0, 1000, allow_nan=False, places=9), st.floats(1e-9, 1e9))
def test_the_server_reads_what_the_library_would(decimal: Decimal, number: float) -> None:
    for value in (decimal, number):
        assert Fraction(decimal_text(value, "epsilon")) == exact(value)


@each("value", [Fraction(1, 3), float("nan"), float("inf"), True, None, [1], Decimal("NaN"), 1e300, 1j])
def test_what_has_no_decimal_form_is_refused(value: Any) -> None:
    with pytest.raises(BadParameter, check=named("epsilon")):
        decimal_text(value, "epsilon")
