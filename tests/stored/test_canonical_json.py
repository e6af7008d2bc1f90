"""Stored records, digests and signatures keep the bytes in which earlier versions wrote them."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.canonical_json import canonical_json
from lapwing.errors import BadParameter
from lapwing.parties.consortium import document_bytes
from support.cases import each

SOURCE = Path(__file__).parents[2] / "src" / "lapwing"
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(codec="utf-8")),
    lambda inside: st.lists(inside) | st.tuples(inside) | st.dictionaries(st.text(), inside),
    max_leaves=20,
)
COMPACT: dict[str, Any] = {"sort_keys": True, "separators": (",", ":")}


@given(PLAIN)
def test_values_have_the_bytes_that_earlier_versions_wrote(value: Any) -> None:
    def earlier(**form: Any) -> bytes:
        return json.dumps(value, **form).encode("utf-8", "surrogatepass")

    def now(**form: Any) -> bytes:
        return canonical_json(value, **form).encode("utf-8", "surrogatepass")

    # Bundles and their journals, answers of tables, results of searches, and surveys with ensure_ascii=True
    assert now() == earlier(**COMPACT) == earlier(**COMPACT, ensure_ascii=True)
    assert now() == earlier(**COMPACT, allow_nan=False)  # models of estimators, signed audits
    assert now(ascii_only=False) == earlier(**COMPACT, ensure_ascii=False, allow_nan=False)  # consortiums
    # Requests of fits, releases, pipelines and parties; attempts; checkpoints; composed losses
    assert now(spaces=True) == earlier(sort_keys=True) == earlier(sort_keys=True, allow_nan=False)
    assert now(spaces=True, other=str) == earlier(sort_keys=True, default=str)  # digests of pipelines


@given(st.lists(st.text() | st.integers() | st.lists(st.integers())))
def test_lists_keep_the_bytes_of_the_forms_that_did_not_sort_names(value: list[Any]) -> None:
    assert canonical_json(value) == json.dumps(value, separators=(",", ":"))


def test_each_form_is_the_text_that_was_written_down() -> None:
    value = {"ε": 0.1, "b": [1, 1e300, None, True], "a": {"y": "ø", "x": -0.0}}
    assert canonical_json(value) == (
        '{"a":{"x":-0.0,"y":"\\u00f8"},"b":[1,1e+300,null,true],"\\u03b5":0.1}'
    )
    assert canonical_json(value, ascii_only=False) == (
        '{"a":{"x":-0.0,"y":"ø"},"b":[1,1e+300,null,true],"ε":0.1}'
    )
    assert canonical_json(value, spaces=True) == (
        '{"a": {"x": -0.0, "y": "\\u00f8"}, "b": [1, 1e+300, null, true], "\\u03b5": 0.1}'
    )
    assert canonical_json({"of": Fraction(1, 3)}, other=str) == '{"of":"1/3"}'


@each("write", [canonical_json, lambda value: canonical_json(value, spaces=True, other=str)])
@each("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_refused(write: Callable[[Any], str], number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write({"a": [number]})
    with pytest.raises(BadParameter):
        document_bytes({"a": [number]})


def test_a_value_without_a_form_is_refused() -> None:
    with pytest.raises(TypeError):
        canonical_json({"a": Fraction(1, 3)})


def test_no_other_module_sorts_names_for_bytes() -> None:
    own = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = {word.arg for word in node.keywords} if isinstance(node, ast.Call) else set()
            if "sort_keys" in words and "indent" not in words:  # indented texts are for people
                own.append(path.relative_to(SOURCE).as_posix())
    assert own == ["canonical_json.py"]
