"""Verify a bundle: signature, files, proofs, the loss, and that the tables follow from the measurements.

Claim    a bundle that passes was signed by the holder of the ledger's key. Its measurements are the
         ledger's stored answer to a charge of ρ, which covers every σ and ε in them. Its tables add up,
         keep the public facts, and census tables are those that follow from the measurements.
Because  the proofs show both entries in the sealed ledger; ρ is derived again from σ, ε and K; estimates,
         intervals and sums are computed again, without the program that wrote them.
Test     tests/publish/bundle/test_verified_bundle.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.loss_records import describe
from lapwing.core.losses import Concentrated
from lapwing.errors import BadFile, BadParameter
from lapwing.ledger.keys import good_signature, public_key
from lapwing.ledger.statement import verify_proof
from lapwing.publish.bundle.bundle_contents import (
    ANSWER_PROOF,
    CHARGE_PROOF,
    DICTIONARY,
    MEASUREMENTS,
    MICRODATA,
    RELEASE_FILE,
    ROWS,
    SPINE,
    TABLES,
)
from lapwing.publish.bundle.data_dictionary import ColumnCells, columns_of
from lapwing.publish.bundle.data_tables import DIGITS, level_table, shown_queries
from lapwing.publish.bundle.manifest import changed_files, read_manifest, signed_message
from lapwing.publish.bundle.privacy_page import steps_of
from lapwing.publish.census.census_release import (
    NUMBERS,
    known_totals,
    public_totals,
    query_of,
    read_levels,
    spine_digest,
)
from lapwing.publish.census.least_squares import estimate_spine
from lapwing.publish.census.spine import Spine, spine_of
from lapwing.publish.models.fitting import NoisyMarginal, estimated_total
from lapwing.publish.release_file import CENSUS, ReleasePlanFile, load_release
from lapwing.publish.synthetic_release import row_count

Wholes = NDArray[np.int64]
_MALFORMED = (
    BadFile, BadParameter, KeyError, TypeError, ValueError, IndexError, OSError, pa.ArrowException,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BundleReport:
    """The result of a check of a bundle. `findings` is empty if nothing is wrong."""

    folder: str
    name: str
    method: str
    ledger: str
    key: str
    key_was_given: bool
    privacy: Mapping[str, Any]
    rows: int | None  # None if a census is too large for microdata
    findings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable names."""
        return {
            "good": not self.findings,
            "findings": list(self.findings),
            "folder": self.folder,
            "name": self.name,
            "method": self.method,
            "ledger": self.ledger,
            "key": self.key,
            "key_was_given": self.key_was_given,
            "privacy": dict(self.privacy),
            "rows": self.rows,
        }


def verify_bundle(folder: str | Path, *, key: str | None = None) -> BundleReport:
    """Check a bundle. It needs the folder and the ledger's public key, and nothing else.

    Args:
        folder: The bundle.
        key: The ledger's public key in hexadecimal digits, known from elsewhere; None if it is not known.

    Returns:
        What was checked, and what was found.

    Raises:
        BadParameter: If the folder is no bundle, or the key is not of the right form.

    Example:
        >>> from lapwing.publish import verify_bundle
        >>> verify_bundle("published").findings
        ()
    """
    place = Path(folder)
    wanted = None if key is None else public_key(key).hex()
    manifest = read_manifest(place)
    found, rows = list(_signature(manifest, wanted)), None
    if not found:
        found += changed_files(place, manifest)
    if not found:  # else nothing in it can be believed
        found += _told("the proofs", lambda: _proofs(place, manifest))
        found += _told("the privacy loss", lambda: _loss(place, manifest))
        check = _census if manifest["method"] == CENSUS else _synthetic
        found += _told("the tables", lambda: check(_Contents.of(place)))
        counted = place / f"{MICRODATA if manifest['method'] == CENSUS else ROWS}.parquet"
        rows = pyarrow.parquet.read_metadata(counted).num_rows if counted.exists() else None
    return BundleReport(
        str(folder), manifest["name"], manifest["method"], manifest["ledger"], manifest["key"],
        key is not None, manifest["privacy"], rows, tuple(found),
    )  # fmt: skip


def _told(what: str, check: Callable[[], Iterator[str]]) -> list[str]:
    """Return what a check finds, or that its files are not of their form."""
    try:
        return list(check())
    except _MALFORMED as error:
        return [f"{what} cannot be checked: {type(error).__name__}: {error}"]


def _signature(manifest: Mapping[str, Any], wanted: str | None) -> Iterator[str]:
    if wanted is not None and manifest["key"] != wanted:
        yield "the bundle is signed with another key than the one that was given"
        return
    try:
        own, signature = bytes.fromhex(manifest["key"]), bytes.fromhex(manifest["signature"])
    except ValueError:
        yield "the key or the signature of the bundle is not of its form"
        return
    if not good_signature(own, signed_message(manifest), signature):
        yield "the signature does not fit: bundle.json was changed after it was signed"


def _json(place: Path, name: str) -> Any:
    return json.loads((place / name).read_bytes())


def _proofs(place: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    charge, answer = _json(place, CHARGE_PROOF), _json(place, ANSWER_PROOF)
    for name, proof in (("charge", charge), ("answer", answer)):
        for finding in verify_proof(proof, key=bytes.fromhex(manifest["key"])).findings:
            yield f"{name}: {finding}"
        if proof["ledger"] != manifest["ledger"] or proof["entry"] != manifest[name]:
            yield f"the proof of the {name} is about another entry"
    paid, stored = json.loads(charge["body"]), json.loads(answer["body"])
    rho = Fraction(manifest["privacy"]["rho"])
    said = {
        "name": manifest["name"],
        "method": manifest["method"],
        "file": sha256((place / RELEASE_FILE).read_bytes()).hexdigest(),
        "rows of a unit": manifest["privacy"]["rows_per_unit"],
        "rho": str(rho),
    }
    for name, value in said.items():
        if paid["parameters"].get(name) != value:
            yield f"the ledger was charged for a release with another {name}"
    if paid["loss"] != describe(Concentrated(rho)):
        yield "the ledger was charged for another loss"
    if stored["kind"] != "answer" or stored["charge"] != manifest["charge"]:
        yield "the proven answer belongs to another charge"
    if stored["digest"] != sha256((place / MEASUREMENTS).read_bytes()).hexdigest():
        yield "the measurements are not the ledger's answer"


def _loss(place: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    answer, privacy = _json(place, MEASUREMENTS), manifest["privacy"]
    rho, delta = Fraction(privacy["rho"]), Fraction(privacy["delta"])
    if answer["rows_per_unit"] != privacy["rows_per_unit"] or Fraction(answer["rho"]) != rho:
        yield "the measurements have another contribution bound or another ρ than the bundle says"
    spent = sum((step.rho for step in steps_of(answer)), Fraction(0))
    if spent > rho:
        yield (
            f"the noise of the measurements costs ρ {float(spent):.6g}, more than the ρ {float(rho):.6g} "
            "charged"
        )
    if zcdp_to_epsilon(rho, delta) > Fraction(privacy["epsilon"]):
        yield "the stated ε is too small for this ρ and δ"


@dataclass(frozen=True, slots=True, eq=False)
class _Contents:
    """What the files of a bundle say."""

    place: Path
    file: ReleasePlanFile
    answer: Mapping[str, Any]
    columns: tuple[ColumnCells, ...]

    @classmethod
    def of(cls, place: Path) -> _Contents:
        columns = columns_of(_json(place, DICTIONARY))
        return cls(place, load_release(place / RELEASE_FILE), _json(place, MEASUREMENTS), columns)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(column.size for column in self.columns)

    def has(self, name: str) -> bool:
        return (self.place / f"{name}.parquet").exists()

    def table(self, name: str) -> tuple[pa.Table, list[str]]:
        """Return a table, and what is wrong with its CSV file."""
        table = pyarrow.parquet.read_table(self.place / f"{name}.parquet")
        types = pyarrow.csv.ConvertOptions(
            column_types=table.schema, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        text = pyarrow.csv.read_csv(self.place / f"{name}.csv", convert_options=types)
        return table, [] if text.equals(table) else [f"{name}.csv and {name}.parquet differ"]

    def coded(self, table: pa.Table) -> Wholes:
        return np.column_stack([column.cells(table.column(column.name)) for column in self.columns])

    def impossible(self, cells: Wholes) -> bool:
        """Return whether some row has a combination that the release file calls impossible."""
        places = {column.name: place for place, column in enumerate(self.columns)}
        for rule in self.file.impossible:
            here = np.ones(len(cells), np.bool_)
            for name, value in rule.items():
                here &= cells[:, places[name]] == self.columns[places[name]].cell_of(value)
            if here.any():
                return True
        return False


def _synthetic(found: _Contents) -> Iterator[str]:
    names = [column.name for column in found.columns]
    if found.answer["columns"] != dict(zip(names, found.sizes, strict=True)):
        yield "the dictionary has other columns than were measured"
        return
    table, differ = found.table(ROWS)
    yield from differ
    if table.column_names != names:
        yield "the rows have other columns than the dictionary"
        return
    cells = found.coded(table)
    if found.impossible(cells):
        yield "some rows are impossible by the release file"
    measured = [
        NoisyMarginal(
            tuple(one["step"]["measure"]),
            np.array(one["result"]["counts"], float),
            float(Fraction(one["step"]["sigma"])),
        )
        for one in found.answer["steps"]
        if one["result"] and "measure" in one["step"]
    ]
    if len(cells) != row_count(estimated_total(measured), len(names)):
        yield "the number of rows does not follow from the measurements"


def _census(found: _Contents) -> Iterator[str]:
    settings = found.file.census
    assert settings is not None
    nodes, differ = found.table(SPINE)
    yield from differ
    spine = spine_of({level: nodes.column(level).to_pylist() for level in settings.levels})
    if spine_digest(spine) != found.answer["spine"]:
        yield "the areas are not those that were measured"
        return
    wholes = _whole_numbers(found, spine)
    if wholes[-1].min() < 0:
        yield "a whole number is negative"
    used = np.flatnonzero(wholes[-1].sum(axis=0))
    if found.impossible(np.column_stack(np.unravel_index(used, found.sizes))):
        yield "some rows are impossible by the release file"
    if found.has(MICRODATA):
        people, differ = found.table(MICRODATA)
        yield from differ
        if not (_tabulated(found, spine, people) == wholes[-1]).all():
            yield "the microdata do not add up to the whole numbers"
    totals = public_totals(settings, spine)
    for level, known in enumerate(totals):
        if (wholes[level].sum(axis=1) != known)[known >= 0].any():
            yield f"a public total of level {spine.levels[level]} is not kept"
    empty = dict(
        zip(nodes.column(spine.levels[-1]).to_pylist(), nodes.column("empty").to_pylist(), strict=True)
    )
    if wholes[-1].sum(axis=1)[[empty[name] for name in spine.leaves]].any():
        yield "an area that is empty by a public fact has rows"
    names = [column.name for column in found.columns]
    measured = read_levels(found.answer, names, found.sizes)
    estimate = estimate_spine(spine, found.sizes, measured, known_totals(totals))
    asked = {
        query_of(name, names)
        for shares in settings.shares.values()
        for name, share in shares.items()
        if share
    }
    queries = shown_queries(len(names), asked)
    for level, name in enumerate(spine.levels):
        table, differ = found.table(f"{TABLES}/{name}")
        yield from differ
        made = level_table(spine, level, found.columns, queries, estimate=estimate, wholes=wholes[level])
        yield from _compared(table, made, name)


def _whole_numbers(found: _Contents, spine: Spine) -> list[Wholes]:
    """Return the whole cells of every level: those of the smallest areas as published, others as sums."""
    table, _ = found.table(f"{TABLES}/{spine.levels[-1]}")
    shape = len(spine.leaves), int(np.prod(found.sizes))
    cells = np.asarray(table.column(NUMBERS[-1]), np.int64)[-shape[0] * shape[1] :]  # all cells come last
    leaves, sums = cells.reshape(shape), []
    for level, nodes in enumerate(spine.nodes):
        of_level = np.zeros((len(nodes), shape[1]), np.int64)
        np.add.at(of_level, spine.ancestors(level), leaves)
        sums.append(of_level)
    return sums


def _tabulated(found: _Contents, spine: Spine, people: pa.Table) -> Wholes:
    """Return the number of rows in every cell of every smallest area."""
    place, width = {name: k for k, name in enumerate(spine.leaves)}, int(np.prod(found.sizes))
    cells = found.coded(people)
    leaf = np.array([place[name] for name in people.column(spine.levels[-1]).to_pylist()], np.int64)
    flat = np.ravel_multi_index(tuple(cells.T), found.sizes) if len(cells) else np.zeros(0, np.int64)
    return np.bincount(leaf * width + flat, minlength=len(place) * width).reshape(len(place), width)


def _compared(table: pa.Table, made: pa.Table, level: str) -> Iterator[str]:
    if table.column_names != made.column_names or table.num_rows != made.num_rows:
        yield f"the table of {level} has other rows or columns than follow from the measurements"
        return
    for name in made.column_names:
        if name in NUMBERS[:-1]:
            mine, theirs = (np.asarray(one.column(name), float) for one in (made, table))
            if not np.allclose(mine, theirs, rtol=1e-9, atol=2 * 10.0**-DIGITS):
                yield f"{name} in the table of {level} does not follow from the measurements"
        elif not made.column(name).equals(table.column(name)):
            yield f"{name} in the table of {level} does not agree with the smallest areas"
