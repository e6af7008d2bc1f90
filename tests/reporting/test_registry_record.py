"""The record for the public registry is valid by the registry's own schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from lapwing.reporting.registry_record import registry_record, yaml_text
from lapwing.reporting.writing import MadeReport, make_report
from support.cases import each

SCHEMA = json.loads(Path(__file__).with_name("deployments_schema.json").read_text())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)


def read(text: str) -> Any:
    found = yaml.safe_load(text)
    assert [error.message for error in VALIDATOR.iter_errors(found)] == []
    return found


def test_a_record_without_answers_is_valid_and_says_so(made: MadeReport) -> None:
    record = registry_record(made.report, made.subject, {})
    found = read(yaml_text(record))
    assert found == record
    parameters = found["deployment"]["privacy_loss"]["privacy_parameters"]
    assert parameters == {"epsilon": 4.0, "delta": 1.1e-6}
    assert found["deployment"]["basic"]["intended_use"] == "Not answered yet"


def test_answers_of_the_officer_are_in_it(made: MadeReport) -> None:
    answers = {
        "deployment.title": 'Visits: "all" of them # and more',
        "deployment.curator": "Town hospital",
        "deployment.published": "2025-12-24",
        "choice.epsilon": "Because\n- a board decided: yes",
    }
    found = read(yaml_text(registry_record(made.report, made.subject, answers)))
    basic = found["deployment"]["basic"]
    assert basic["name"] == answers["deployment.title"]
    assert basic["data_curators"] == ["Town hospital"]
    assert basic["publication_date"] == "2025-12-24"
    assert found["deployment"]["implementation"]["justification"] == answers["choice.epsilon"]


def test_the_schema_refuses_what_it_should(made: MadeReport) -> None:
    record = registry_record(made.report, made.subject, {})
    for wrong in (
        {**record, "tier": 4},
        {**record, "more": 1},
        {name: value for name, value in record.items() if name != "status"},
        registry_record(made.report, made.subject, {"deployment.published": "1/2/2026"}),
    ):
        assert list(VALIDATOR.iter_errors(wrong))


@each("number", [1.0, 1e-6, 1.1e-6, 1e-18, 3.5, 1e300, 0.1])
def test_numbers_stay_numbers(number: float) -> None:
    assert yaml.safe_load(yaml_text({"delta": number})) == {"delta": number}


def test_a_survey_is_pure_and_local(tmp_path: Path) -> None:
    path = tmp_path / "tea.toml"
    path.write_text(
        '[survey]\nname = "tea"\nepsilon = 1.0\nstop_after = 100\n[[questions]]\nname = "tea"\n'
        'text = "Tea?"\nkind = "yes_no"\n'
    )
    made = make_report(path, date="2026-01-31")
    found = read(yaml_text(registry_record(made.report, made.subject, made.answers)))
    assert found["deployment"]["dp_variant"]["variant_name"] == "Pure DP"
    assert found["deployment"]["deployment_model"]["model_name"] == "Local"
    assert found["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0}
