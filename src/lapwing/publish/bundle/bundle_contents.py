"""The files of a bundle, made from a finished release: tables, the privacy page, proofs and a README.

Tables are CSV and Parquet files: invented rows, census tables by level, and microdata. The privacy page
says what is protected, the price of each step, and the limits.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.exact import short, short_up
from lapwing.ledger.gate import Release
from lapwing.ledger.publishing import answer_position, prove_entry
from lapwing.publish.bound_release import BoundRelease
from lapwing.publish.bundle.manifest import write_bundle
from lapwing.publish.bundle.utility_report import census_report, synthetic_report
from lapwing.publish.census.census_release import ALL, NUMBERS, BoundCensus, CensusTables, area_notes
from lapwing.publish.census.estimate_widths import half_widths
from lapwing.publish.census.least_squares import Query, Spine, SpineEstimate, Wholes, subsets
from lapwing.publish.measured import private_marginals, published_column
from lapwing.publish.release_file import ReleasePlanFile
from lapwing.publish.synthetic_release import SyntheticTable

DIGITS = 3  # of estimates; intervals are rounded outwards


def files_of(name: str, table: pa.Table) -> dict[str, bytes]:
    """Return a table as a CSV file and as a Parquet file."""
    text, binary = io.BytesIO(), io.BytesIO()
    pyarrow.csv.write_csv(table, text)
    pyarrow.parquet.write_table(table, binary)
    return {f"{name}.csv": text.getvalue(), f"{name}.parquet": binary.getvalue()}


def rows_table(columns: Sequence[published_column.PublishedColumn], rows: Wholes) -> pa.Table:
    """Return rows of cells as a table of values; within a bin, each value has the same chance."""
    return pa.table(
        {
            column.name: pa.array(column.values(rows[:, place]), _arrow_type(column))
            for place, column in enumerate(columns)
        }
    )


def _arrow_type(column: published_column.PublishedColumn) -> pa.DataType:
    values = [value for cell in range(column.bins) for value in column.ends(cell)]
    return pa.array(values).type


def spine_table(spine: Spine) -> pa.Table:
    """Return the nodes of all levels, one row for each smallest area."""
    return pa.table(
        {
            level: pa.array([spine.nodes[number][k] for k in spine.ancestors(number)])
            for number, level in enumerate(spine.levels)
        }
    )


def shown_queries(columns: int, measured: Iterable[Query]) -> list[Query]:
    """Return the queries that tables show: totals, each column, all cells, and all that were measured."""
    places = tuple(range(columns))
    shown = {(), places, *((place,) for place in places), *measured}
    return [query for query in subsets(places) if query in shown]


def level_table(
    spine: Spine,
    level: int,
    columns: Sequence[published_column.ColumnCells],
    queries: Sequence[Query],
    *,
    estimate: SpineEstimate,
    wholes: Wholes,
    deviations: float | None = None,
) -> pa.Table:
    """Return every number of a level: the area, the cell, the estimate, its interval, the whole number.

    `deviations` is the half width of intervals; None: as many as hold 95 %.
    """
    nodes, sizes = np.array(spine.nodes[level], object), estimate.sizes
    whole, scale = wholes.reshape(len(nodes), *sizes), 10**DIGITS
    parts = []
    for query in queries:
        axes = tuple(k + 1 for k in range(len(sizes)) if k not in query)
        middle = estimate.tables[level].sum(axis=axes).reshape(len(nodes), -1)
        width = half_widths(estimate, level, query, deviations=deviations)[:, None]
        shape = tuple(sizes[k] for k in query)
        cells = np.indices(shape).reshape(len(shape), -1) if shape else np.zeros((0, 1), np.int64)
        arrays = {spine.levels[level]: pa.array(np.repeat(nodes, cells.shape[1]))}
        for place, column in enumerate(columns):
            own = cells[query.index(place)] if place in query else []
            labels = [column.labels[int(cell)] for cell in own] or [ALL] * cells.shape[1]
            arrays[column.name] = pa.array(labels * len(nodes))
        numbers = (
            np.round(middle, DIGITS),
            np.floor((middle - width) * scale) / scale,
            np.ceil((middle + width) * scale) / scale,
            whole.sum(axis=axes),
        )
        arrays |= {name: pa.array(values.ravel()) for name, values in zip(NUMBERS, numbers, strict=True)}
        parts.append(pa.table(arrays))
    return pa.concat_tables(parts)


def microdata_table(
    spine: Spine, columns: Sequence[published_column.PublishedColumn], wholes: Wholes
) -> pa.Table:
    """Return one row for each counted row of the smallest areas' whole tables."""
    counts, sizes = wholes.ravel(), tuple(column.size for column in columns)
    cell_of_row = np.repeat(np.arange(counts.size), counts)
    leaf, cell = np.divmod(cell_of_row, math.prod(sizes))
    cells = np.column_stack(np.unravel_index(cell, sizes)).astype(np.int64)
    areas = pa.array(np.array(spine.leaves, object)[leaf], pa.string())
    return rows_table(columns, cells).add_column(0, spine.levels[-1], areas)


NEIGHBOURS = "data sets in which one {unit} more or less has its rows"


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step of a release, and the ρ that it cost."""

    what: str
    noise: str
    rho: Fraction


def steps_of(answer: Mapping[str, Any]) -> list[StepCost]:
    """Return the steps of a stored answer, with the ρ that follows from σ, ε and K. Lost steps count."""
    rows = int(answer["rows_per_unit"])
    if "levels" in answer:
        queries = [(level["level"], query) for level in answer["levels"] for query in level["queries"]]
        return [_measured(f"{level}: {query['query']}", query["sigma"], rows) for level, query in queries]
    uses = {"steps": "", "check": " (to check the rows)"}
    return [_step(step, rows, use) for name, use in uses.items() for step in answer[name]]


def _measured(what: str, sigma: str, rows: int) -> StepCost:
    cost = private_marginals.measuring_cost(private_marginals.exact_text(sigma), rows)
    return StepCost(what, f"σ {_short(sigma)}", cost)


def _step(record: Mapping[str, Any], rows: int, use: str) -> StepCost:
    step, lost = record["step"], "" if record["result"] else ", lost in a crash"
    if "measure" in step:
        return _measured(f"measure {' × '.join(step['measure'])}{use}{lost}", step["sigma"], rows)
    what = f"choose one of {step['choose']:,} marginals{lost}"
    cost = private_marginals.choosing_cost(private_marginals.exact_text(step["epsilon"]))
    return StepCost(what, f"ε {_short(step['epsilon'])}", cost)


def _short(number: str) -> str:
    return f"{float(Fraction(number)):.4g}"


def note_lines(bound: BoundRelease) -> list[str]:
    """Return what a reader of the tables must know about the data."""
    census = bound.file.census
    if census is None:
        return ["Several rows of one person are invented independently of each other"]
    return area_notes(bound.question, census.area)


def has_own_time(charge: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Return whether the proven answer has another time than its charge, as in earlier versions."""
    return bool(json.loads(charge["body"])["at"] != json.loads(answer["body"])["at"])


def privacy_text(
    file: ReleasePlanFile, answer: Mapping[str, Any], about: Mapping[str, Any], *, is_timed: bool
) -> str:
    """Return the page in Markdown.

    It follows from the release file, the measurements, the manifest and the proofs (`has_own_time`).
    """
    unit, rows, delta = about["privacy"]["unit"], about["privacy"]["rows_per_unit"], file.delta
    rho, steps, facts = Fraction(answer["rho"]), steps_of(answer), file.facts
    spent = sum((step.rho for step in steps), Fraction(0))
    lines = [
        f"# Privacy of {file.name}",
        "",
        f"- Protected: one {unit} with everything about it in the data. At most {rows:,} of its rows "
        f"{'was' if rows == 1 else 'were'} used.",
        f"- Neighbours: {NEIGHBOURS.format(unit=unit)}.",
        f"- Loss: ρ {_rho(rho)} (zero-concentrated differential privacy), which is ε "
        f"{short_up(zcdp_to_epsilon(rho, delta))} at δ {short(float(delta))}. The steps below used ρ "
        f"{_rho(spent)}.",
        f"- Noise: discrete Gaussian, drawn exactly. K rows of one {unit} (here {rows:,}) move a table "
        "of counts by at most K in L2 norm, so measuring it costs K²/2σ²; choosing a table costs ε²/8.",
        f"- Charged before the rows were counted: entry {about['charge']} of ledger {about['ledger']}, "
        f"with the answer in entry {about['answer']}. The proofs are in this folder.",
        "- Everything else here is computed from the noisy numbers in measurements.json, and costs "
        "nothing more.",
        f"- {_TIMED.format(unit=unit) if is_timed else _UNTIMED}",
        "",
        "## Public facts, which are not protected",
        "",
        *([f"- {line}." for line in facts] or ["None."]),
    ]
    if facts:
        lines += ["", "The promise holds between populations that agree on these facts."]
    if file.census is not None and file.census.totals:
        lines[-1] += (
            f" Where a total is a fact, nobody can be added alone: replacing the rows of one {unit} "
            f"costs at most 2ρ, which is ε {short_up(zcdp_to_epsilon(2 * rho, delta))} at δ "
            f"{short(float(delta))}."
        )
    lines += [
        "",
        "## Not protected, and not promised",
        "",
        "- What is true of many: tables may show that a group earns more or is ill more often, also of "
        f"a {unit} who is not in the data.",
        "- The names, values and bounds of columns, and what the release file says: they are public.",
    ]
    lines += [f"- {line}." for line in about["notes"]]
    lines += ["", "## Steps", "", "| step | noise | ρ | share |", "|---|---|---|---|"]
    lines += [
        f"| {cost.what} | {cost.noise} | {_rho(cost.rho)} | {float(cost.rho / rho):.2%} |" for cost in steps
    ]
    return "\n".join(lines) + "\n"


_UNTIMED = (
    "Time: both proofs have the time of the charge, before rows were read. The answer was stored after a "
    "random number of seconds, or twice, four times, … that number, whichever came first after the work, "
    "so its place in the ledger shows little of how long the work took."
)
_TIMED = (
    "Time is not protected: the proofs have the times of the charge and of the answer, and what lies "
    "between them may show that one {unit} has very many rows."
)


def _rho(rho: Fraction) -> str:
    return f"{float(rho):.6g}"


def unit_name(protects: str) -> str:
    """Return a privacy unit in words."""
    return {"person": "person", "row": "row", "person-period": "person in one period"}[protects]


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
    described = published_column.dictionary_of(bound.columns, bound.rows_per_unit)
    columns = published_column.columns_of(described)
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
        "notes": note_lines(bound),
        "privacy": {
            "unit": unit,
            "neighbours": NEIGHBOURS.format(unit=unit),
            "rows_per_unit": bound.rows_per_unit,
            "rho": str(rho),
            "epsilon": short_up(zcdp_to_epsilon(rho, bound.file.delta), 9),
            "delta": str(bound.file.delta),
            "facts": bound.file.facts,
        },
    }
    files[DICTIONARY] = published_column.dictionary_bytes(bound.columns, bound.rows_per_unit)
    files["dictionary.md"] = published_column.dictionary_text(json.loads(files[DICTIONARY])).encode()
    files[MEASUREMENTS] = release.answer
    proofs = {CHARGE_PROOF: prove_entry(ledger, charge), ANSWER_PROOF: prove_entry(ledger, about["answer"])}
    is_timed = has_own_time(proofs[CHARGE_PROOF], proofs[ANSWER_PROOF])
    files["privacy.md"] = privacy_text(bound.file, answer, about, is_timed=is_timed).encode()
    files[RELEASE_FILE] = bound.file.text
    files |= {name: _json(proof) for name, proof in proofs.items()}
    files["README.md"] = readme_text(about["name"], files).encode()
    return write_bundle(folder, files, about, ledger.keys.signing.sign)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def readme_text(name: str, files: Collection[str]) -> str:
    """Return the README of a bundle with these files."""
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
    tables = [file for file in sorted(files) if file.startswith(f"{TABLES}/") and file.endswith(".csv")]
    lines = [f"# {name}", "", "| file | what it is |", "|---|---|"]
    lines += [f"| {file} | all tables of this level: estimate, interval, whole number |" for file in tables]
    lines += [f"| {file} | {what} |" for file, what in described.items() if file in files]
    lines += [
        "", "To check this folder, take the ledger's public key from a source that you trust, such as the",
        "publisher's own pages. A key in this folder proves nothing: a forger would put theirs here.",
        "", "    lapwing publish verify . --key KEY", "",
    ]  # fmt: skip
    return "\n".join(lines)
