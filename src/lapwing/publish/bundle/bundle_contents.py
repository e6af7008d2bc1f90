"""The files of a bundle, made from a finished release."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.exact import short_up
from lapwing.ledger.gate import Release
from lapwing.ledger.publishing import answer_position, prove_entry
from lapwing.publish.bound_release import BoundRelease
from lapwing.publish.bundle.data_tables import (
    files_of,
    level_table,
    microdata_table,
    rows_table,
    shown_queries,
    spine_table,
)
from lapwing.publish.bundle.manifest import write_bundle
from lapwing.publish.bundle.privacy_page import NEIGHBOURS, fact_lines, privacy_text, unit_name
from lapwing.publish.bundle.utility_report import census_report, synthetic_report
from lapwing.publish.census.census_release import BoundCensus, CensusTables
from lapwing.publish.data_dictionary import columns_of, dictionary_bytes, dictionary_of, dictionary_text
from lapwing.publish.synthetic_release import SyntheticTable

MEASUREMENTS, DICTIONARY, RELEASE_FILE, SPINE, BOUNDS = (
    "measurements.json", "dictionary.json", "release.toml", "spine", "bounds.json",
)  # fmt: skip
MOST_MICRODATA = 20_000_000  # rows; of a larger census only the tables are written
CHARGE_PROOF, ANSWER_PROOF = "charge.proof.json", "answer.proof.json"
ROWS, MICRODATA, TABLES = "rows", "microdata", "tables"


def write_synthetic_bundle(folder: Path, bound: BoundRelease, table: SyntheticTable) -> dict[str, Any]:
    """Write the bundle of a synthetic table. Return its manifest."""
    files = files_of(ROWS, rows_table(bound.columns, table.rows))
    files["report.html"] = synthetic_report(bound.file.name, bound.columns, table)
    if table.bounds:
        bounds = [{"columns": list(clique), "l1": bound} for clique, bound in sorted(table.bounds.items())]
        files[BOUNDS] = _json({"confidence": 0.95, "bounds": bounds})
    return _write(folder, bound, table.release, files)


def write_census_bundle(folder: Path, census: BoundCensus, tables: CensusTables) -> dict[str, Any]:
    """Write the bundle of a census. Return its manifest."""
    bound, rho = census.release, Fraction(json.loads(tables.release.answer)["rho"])
    columns = columns_of(dictionary_of(bound.columns, bound.rows_per_unit))
    queries = shown_queries(len(columns), {query for level in census.shares for query in level})
    files: dict[str, bytes] = {}
    if tables.wholes[-1].sum() <= MOST_MICRODATA:
        files |= files_of(MICRODATA, microdata_table(census.spine, bound.columns, tables.wholes[-1]))
    for number, level in enumerate(census.spine.levels):
        made = level_table(
            census.spine, number, columns, queries, estimate=tables.estimate, wholes=tables.wholes[number]
        )
        files |= files_of(f"{TABLES}/{level}", made)
    spine = spine_table(census.spine).append_column("empty", pa.array(census.facts.empty[-1]))
    files |= files_of(SPINE, spine)
    files["report.html"] = census_report(bound.file.name, census, tables, rho)
    return _write(folder, bound, tables.release, files)


def _write(folder: Path, bound: BoundRelease, release: Release, files: dict[str, bytes]) -> dict[str, Any]:
    ledger, policy, answer = bound.dataset.ledger, bound.dataset.policy, json.loads(release.answer)
    unit, rho = unit_name(policy.protects), Fraction(answer["rho"])
    charge = release.receipt.position
    about: dict[str, Any] = {
        "name": bound.file.name,
        "method": bound.file.method,
        "ledger": ledger.id,
        "key": ledger.keys.signing.public.hex(),
        "charge": charge,
        "answer": answer_position(ledger, charge),
        "privacy": {
            "unit": unit,
            "neighbours": NEIGHBOURS.format(unit=unit),
            "rows_per_unit": bound.rows_per_unit,
            "rho": str(rho),
            "epsilon": short_up(zcdp_to_epsilon(rho, bound.file.delta), 9),
            "delta": str(bound.file.delta),
            "facts": fact_lines(bound.file),
        },
    }
    files[DICTIONARY] = dictionary_bytes(bound.columns, bound.rows_per_unit)
    files["dictionary.md"] = dictionary_text(json.loads(files[DICTIONARY])).encode()
    files[MEASUREMENTS] = release.answer
    files["privacy.md"] = privacy_text(bound, answer, unit, about).encode()
    files[RELEASE_FILE] = bound.file.text
    files[CHARGE_PROOF] = _json(prove_entry(ledger, charge))
    files[ANSWER_PROOF] = _json(prove_entry(ledger, about["answer"]))
    files["README.md"] = _readme(about, files).encode()
    return write_bundle(folder, files, about, ledger.keys.signing.sign)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _readme(about: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    described = {
        "rows.csv": "invented rows (also rows.parquet)",
        "microdata.csv": "invented rows that add up to the whole numbers exactly",
        "spine.csv": "the areas of all levels",
        "report.html": "how good the numbers are, and what they are not good for",
        "privacy.md": "who is protected, how much, and what is not protected",
        "dictionary.md": "the columns and their values (also dictionary.json)",
        MEASUREMENTS: "all noisy numbers, with their noise: everything here follows from them",
        BOUNDS: "bounds on the error of marginals that were not chosen in the last round",
        RELEASE_FILE: "the release file",
        CHARGE_PROOF: "a proof that the ledger was charged",
        ANSWER_PROOF: "a proof that these measurements are the ledger's answer",
    }
    tables = [name for name in sorted(files) if name.startswith(f"{TABLES}/") and name.endswith(".csv")]
    lines = [f"# {about['name']}", "", "| file | what it is |", "|---|---|"]
    lines += [f"| {name} | all tables of this level: estimate, interval, whole number |" for name in tables]
    lines += [f"| {name} | {what} |" for name, what in described.items() if name in files]
    key = about["key"]
    lines += ["", "To check this folder, with the ledger's public key from a source that you trust:", ""]
    return "\n".join([*lines, f"    lapwing publish verify . --key {key}", ""])
