"""Nothing is released by code that the auditor does not attack, or that states no claim."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from lapwing.audit.case import Stage
from lapwing.parties.protocols.registry import PROTOCOLS
from lapwing.survey import randomizers
from support.audit_cases import audit_cases

TESTS = Path(__file__).parents[3]
PACKAGE = Path(randomizers.__file__).parent
ALL = [
    value
    for name in randomizers.__all__
    if inspect.isclass(value := getattr(randomizers, name))
    and hasattr(value, "sample")
    and not inspect.isabstract(value)
]


def test_there_are_ten_randomizers() -> None:
    assert len(ALL) == len(randomizers.KINDS) == 10


def test_no_randomizer_is_hidden_in_a_file_of_its_own() -> None:
    """Every class that has a kind of its own is exported, so that the tests below see it."""
    made = re.compile(r"^class (\w+)(?:(?!^class ).)*?kind: ClassVar\[str\] = ", re.MULTILINE | re.DOTALL)
    names = {name for path in PACKAGE.glob("*.py") for name in made.findall(path.read_text())}
    assert names == {kind.__name__ for kind in ALL}


@pytest.mark.parametrize("kind", ALL)
class TestEachRandomizer:
    def test_is_attacked_by_the_auditor(self, kind: type) -> None:
        assert kind in {covered for case in audit_cases() for covered in case.covers}

    def test_states_claim_reason_and_a_test_that_exists(self, kind: type) -> None:
        text = inspect.getdoc(kind) or ""
        assert "Claim " in text
        assert "Because " in text
        cited = re.findall(r"(tests/\S+?)::(\w+)", text)
        assert cited
        for path, name in cited:
            assert f"def {name}(" in (TESTS / path).read_text()

    def test_is_frozen(self, kind: type) -> None:
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


@pytest.mark.parametrize("protocol", PROTOCOLS.values())
def test_each_protocol_is_attacked_by_the_auditor(protocol: type) -> None:
    assert protocol in {covered for case in audit_cases() for covered in case.covers}


def test_each_case_has_a_stage_beyond_sampling_or_a_reason() -> None:
    for case in audit_cases():
        assert set(case.stages) - {Stage.SAMPLED} or case.reason, case.name


def test_cases_have_different_names() -> None:
    names = [case.name for case in audit_cases()]
    assert len(names) == len(set(names))
