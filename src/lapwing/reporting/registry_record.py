"""The record of the public registry of differential privacy deployments, as YAML.

The fields are those of `schemas/deployments-schema.yaml` in github.com/opendp/deployments-registry-data. A
copy of the schema is in the tests, and records are validated against it there. Texts are written as JSON
strings, which YAML reads as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lapwing.core.exact import float_up
from lapwing.reporting.officer_file import NOT_ANSWERED
from lapwing.reporting.privacy_report import CENTRAL, LOCAL, PrivacyReport, ReportSubject, total_of


def registry_record(
    report: PrivacyReport, subject: ReportSubject, answers: Mapping[str, str]
) -> dict[str, Any]:
    """Return the record. Questions that the officer has not answered are told as such."""

    def answer(name: str) -> str:
        return answers.get(name, NOT_ANSWERED)

    accounts = report.ledger["accounts"] if report.ledger else []
    epsilon, delta = map(float_up, total_of(accounts) if accounts else (subject.epsilon, subject.delta))
    charged = [account["first_charge"][:10] for account in accounts if account["first_charge"]]
    published = answers.get("deployment.published") or min(charged, default=report.date)
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", subject.name.lower()).strip("-") or "deployment",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": answers.get("deployment.title", subject.name),
                "data_curators": [answer("deployment.curator")],
                "intended_use": answer("deployment.intended_use"),
                "data_product_type": subject.product,
                "data_product_region": answer("deployment.region"),
                "description": answer("deployment.description"),
                "publication_date": published,
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if delta else "Pure DP",
                "unprotected_quantities": _texts(report, "not_protected"),
            },
            "privacy_loss": {
                "privacy_unit": subject.unit,
                "privacy_unit_details": f"Neighbours {subject.neighbours}. {_texts(report, 'unit')}",
                "privacy_parameters": {"epsilon": epsilon, "delta": delta}
                if delta
                else {"epsilon": epsilon},
                "privacy_parameters_details": _texts(report, "parameters"),
            },
            "deployment_model": {
                "model_name": subject.model,
                "actors": _texts(report, "trust"),
                "release_type": "One release" if subject.kind in ("bundle", "release") else "Many releases",
                "release_type_details": "The budget is for life: it is never reset.",
                "data_source_type": "Dynamic" if subject.kind in ("pipeline", "survey") else "Static",
                "access_type": "Interactive" if subject.is_interactive else "Non-interactive",
                "access_type_details": _texts(report, "access") or NOT_ANSWERED,
            },
            "accounting": {
                "post_processing": "Whatever is computed from released answers costs nothing more."
                if subject.model in (CENTRAL, LOCAL)
                else "Sums of the members' shares are published as they are.",
                "composition": _texts(report, "definition"),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": answer("choice.bounds"),
                "mechanisms": f"Lapwing {report.version}. {_texts(report, 'mechanisms')} "
                f"{_texts(report, 'side_channels')}",
                "justification": answer("choice.epsilon"),
            },
            "administrative": {
                "notes": f"Written by `lapwing report` on {report.date}.",
                "registry_authors": [answer("deployment.author")],
            },
        },
    }


def _texts(report: PrivacyReport, key: str) -> str:
    """Return the facts of a section, without questions that are not answered."""
    facts = [fact.text for section in report.sections if section.key == key for fact in section.facts]
    return " ".join(text for text in facts if not text.endswith(f"{NOT_ANSWERED}."))


def yaml_text(record: Mapping[str, Any]) -> str:
    """Return plain values as YAML."""
    return "\n".join(_lines(record, "")) + "\n"


def _lines(values: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _lines(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_scalar(item)}" for item in value)
        else:
            yield f"{indent}{key}: {_scalar(value)}"


def _scalar(value: str | float) -> str:
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")  # YAML 1.1 reads 1e-6 as a text
    return json.dumps(value, ensure_ascii=False)
