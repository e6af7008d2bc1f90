"""Every mechanism is argued, cited, registered with the auditor, and of the same shape."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from lapwing import mechanisms
from lapwing.audit import cases

ROOT = Path(__file__).parents[2]
ALL = [
    value
    for name in mechanisms.__all__
    if inspect.isclass(value := getattr(mechanisms, name)) and hasattr(value, "loss")
]


def test_there_are_twelve_mechanisms() -> None:
    assert len(ALL) == 12


@pytest.mark.parametrize("mechanism", ALL)
class TestEachMechanism:
    def test_states_claim_reason_and_a_test_that_exists(self, mechanism: type) -> None:
        text = inspect.getdoc(mechanism) or ""
        assert "Claim " in text
        assert "Because " in text
        cited = re.search(r"Test\s+(claims/\S+)::(\w+)", text)
        assert cited, "the docstring names its test"
        source = (ROOT / "tests" / cited[1]).read_text()
        assert f"def {cited[2]}(" in source

    def test_has_a_page_of_argument_that_is_linked(self, mechanism: type) -> None:
        page = re.sub("(?<!^)([A-Z])", r"_\1", mechanism.__name__).lower() + ".md"  # above_threshold.md
        text = (ROOT / "docs" / "arguments" / page).read_text()
        for part in ("Claim", "Proof", "Tested by"):
            assert re.search(rf"^(\*\*|## ){part}", text, re.MULTILINE), part
        assert f"({page})" in (ROOT / "docs" / "arguments" / "README.md").read_text()

    def test_is_in_the_registry_of_the_auditor(self, mechanism: type) -> None:
        assert mechanism in {covered for case in cases() for covered in case.covers}

    def test_has_a_sample_or_a_session_and_a_spread(self, mechanism: type) -> None:
        assert hasattr(mechanism, "sample") or hasattr(mechanism, "start")
        assert hasattr(mechanism, "spread")

    def test_is_frozen(self, mechanism: type) -> None:
        assert mechanism.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_R3_only_noise_draws_random_numbers() -> None:
    source = ROOT / "src" / "lapwing" / "core" / "random_stream.py"
    other_sources = re.compile(r"np\.random|import random\b|import secrets|os\.urandom|getrandom")
    for path in (ROOT / "src").rglob("*.py"):
        if path != source:
            assert not other_sources.search(path.read_text()), path
