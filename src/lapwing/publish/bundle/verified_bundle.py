"""Verify a bundle: signature, files, proofs, the loss, and that the tables follow from the measurements.

Claim    a bundle that passes was signed by the holder of the ledger's key. Its measurements, its dictionary
         and its areas are those of the ledger's stored answer to a request for which ρ was reserved or
         charged, and that ρ covers every σ and ε in them. Tables add up and keep the public facts; census
         tables are those that follow from the measurements (whole numbers but for ties, which processors
         decide differently), and invented rows fit the measured marginals within a stated bound. The pages
         privacy.md, dictionary.md and README.md follow from the other files.
Because  the proofs show both entries in the sealed ledger; ρ is derived again from σ, ε and K; estimates,
         intervals, sums and whole numbers are computed again, without the program that wrote them.
Test     tests/publish/bundle/test_verified_bundle.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from lapwing.core import conversions, loss_records, losses
from lapwing.errors import BadFile, BadParameter
from lapwing.ledger.keys import public_key
from lapwing.ledger.statement import verify_proof
from lapwing.publish.bundle import bundle_contents as files
from lapwing.publish.bundle.manifest import (
    OLD_FORM,
    changed_files,
    privacy_numbers,
    read_manifest,
    signature_findings,
)
from lapwing.publish.census import census_release
from lapwing.publish.census.estimate_widths import sub_gaussian_deviations
from lapwing.publish.census.least_squares import Spine, SpineEstimate, Wholes, estimate_spine, spine_of
from lapwing.publish.census.whole_tables import SpineFacts, whole_tables
from lapwing.publish.measured.private_marginals import exact_text
from lapwing.publish.measured.published_column import ColumnCells, columns_of, dictionary_text
from lapwing.publish.models.graphical_model import NoisyMarginal, estimated_total, row_count
from lapwing.publish.release_file import CENSUS, ReleasePlanFile, load_release

REQUIRED = {
    files.MEASUREMENTS, files.DICTIONARY, files.RELEASE_FILE, files.CHARGE_PROOF, files.ANSWER_PROOF,
    "dictionary.md", "privacy.md", "report.html", "README.md",
}  # fmt: skip
STATED = ("unit", "neighbours", "rows_per_unit", "rho", "epsilon", "delta", "facts")  # in this order
MOST_TABLE_ROWS = 60_000_000
LARGEST_HEADERS = 1 << 20  # bytes of a Parquet file beside its values
MOST_MISFIT = 6.0
FREE_MISFIT = 30  # so many squares more than there are may be missing: few cells have more chance in them
TIES = Fraction(2, 1000)  # the share of rows that whole tables may place differently on another processor
_LEVEL = re.compile(rf"{files.TABLES}/[A-Za-z_][A-Za-z0-9_]*\.(csv|parquet)")
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?(e-?[0-9]{1,2})?")
_MALFORMED = (
    BadFile, BadParameter, LookupError, TypeError, ValueError, ArithmeticError, AssertionError,
    AttributeError, RecursionError, MemoryError, OSError, pa.ArrowException,
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
        """Return plain values with stable names. A bundle that passes has its ρ, ε and δ as numbers."""
        return {
            "good": not self.findings,
            "findings": list(self.findings),
            "folder": self.folder,
            "name": self.name,
            "method": self.method,
            "ledger": self.ledger,
            "key": self.key,
            "key_was_given": self.key_was_given,
            "privacy": dict(self.privacy) if self.findings else privacy_numbers(self.privacy),
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
    findings = list(signature_findings(manifest, wanted))
    if not findings:
        findings += changed_files(place, manifest)
        findings += _other_files(manifest)
    counted = _Counted()
    if not findings:  # else nothing in it can be believed
        findings += _told("the proofs", lambda: _proofs(place, manifest))
        findings += _told("the privacy loss", lambda: _loss(place, manifest))
        findings += _told("the pages", lambda: _pages(place, manifest))
    if not findings:  # tables are decoded only if all that says how large they may be is right
        check = _census if manifest["method"] == CENSUS else _synthetic
        findings += _told("the tables", lambda: check(_Contents.of(place), counted))
    return BundleReport(
        str(folder), manifest["name"], manifest["method"], manifest["ledger"], manifest["key"],
        key is not None, manifest["privacy"], counted.rows, tuple(findings),
    )  # fmt: skip


@dataclass(slots=True)
class _Counted:
    """The number of invented rows; None if there are none, or they could not be counted."""

    rows: int | None = None


def _other_files(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each file that a bundle of this method must have or cannot have."""
    names = set(manifest["files"])
    data = (files.SPINE, files.MICRODATA) if manifest["method"] == CENSUS else (files.ROWS,)
    allowed = {*REQUIRED, *(f"{name}{end}" for name in data for end in (".csv", ".parquet"))}
    if manifest["method"] == CENSUS:
        allowed |= {name for name in names if _LEVEL.fullmatch(name)}
    else:
        allowed.add(files.BOUNDS)
    yield from (f"{name} is missing" for name in sorted(REQUIRED - names))
    yield from (f"{name} does not belong to a bundle" for name in sorted(names - allowed))


def _is_plain(type_: pa.DataType) -> bool:
    """Return whether a value of this type has at most 8 bytes, or is a text."""
    return bool(pa.types.is_string(type_) or (pa.types.is_primitive(type_) and type_.bit_width <= 64))


def _is_same(text: pa.ChunkedArray, stored: pa.ChunkedArray) -> bool:
    """Return whether two columns are equal, where the second one may have each text once."""
    if not pa.types.is_dictionary(stored.type):
        return bool(text.equals(stored))
    coded = text.dictionary_encode().unify_dictionaries()
    stored = stored.unify_dictionaries()
    mine, theirs = (column.combine_chunks() for column in (coded, stored))
    places = {value: k for k, value in enumerate(theirs.dictionary.to_pylist())}
    moved = np.array([*(places.get(value, -1) for value in mine.dictionary.to_pylist()), -1], np.int64)
    known, other = (np.asarray(column.indices.fill_null(-1), np.int64) for column in (mine, theirs))
    return bool((np.where(known < 0, -2, moved[known]) == np.where(other < 0, -2, other)).all())


def _told(what: str, check: Callable[[], Iterator[str]]) -> list[str]:
    """Return what a check finds, or that its files are not of their form."""
    try:
        return list(check())
    except _MALFORMED as error:
        return [f"{what} cannot be checked: {type(error).__name__}: {error}"]


def _json(place: Path, name: str) -> Any:
    return json.loads((place / name).read_bytes())


def _proofs(place: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    charge, answer = _json(place, files.CHARGE_PROOF), _json(place, files.ANSWER_PROOF)
    for name, proof in (("charge", charge), ("answer", answer)):
        for finding in verify_proof(proof, key=bytes.fromhex(manifest["key"])).findings:
            yield f"{name}: {finding}"
        if proof["ledger"] != manifest["ledger"] or proof["entry"] != manifest[name]:
            yield f"the proof of the {name} is about another entry"
    paid, stored = json.loads(charge["body"]), json.loads(answer["body"])
    rho = exact_text(manifest["privacy"]["rho"])
    said = {
        "name": manifest["name"],
        "method": manifest["method"],
        "file": sha256((place / files.RELEASE_FILE).read_bytes()).hexdigest(),
        "rows of a unit": manifest["privacy"]["rows_per_unit"],
        "rho": str(rho),
    }
    for name, value in said.items():
        if paid["parameters"].get(name) != value:
            yield f"the ledger was charged for a release with another {name}"
    if paid["loss"] != loss_records.describe(losses.Concentrated(rho)):
        yield "the ledger was charged for another loss"
    if stored["kind"] != "answer" or stored["charge"] != manifest["charge"]:
        yield "the proven answer belongs to another charge"
    if stored["digest"] != sha256((place / files.MEASUREMENTS).read_bytes()).hexdigest():
        yield "the measurements are not the ledger's answer"


def _loss(place: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    answer, privacy = _json(place, files.MEASUREMENTS), manifest["privacy"]
    rho, delta = exact_text(privacy["rho"]), exact_text(privacy["delta"])
    file = load_release(place / files.RELEASE_FILE)
    if tuple(privacy) != STATED or privacy["neighbours"] != files.NEIGHBOURS.format(unit=privacy["unit"]):
        yield "the bundle states its privacy with other fields or other words than a bundle does"
    if delta != file.delta or privacy["facts"] != file.facts:
        yield "the δ or the public facts that the bundle states are not those of the release file"
    if answer["rows_per_unit"] != privacy["rows_per_unit"] or exact_text(answer["rho"]) != rho:
        yield "the measurements have another contribution bound or another ρ than the bundle says"
    if sha256((place / files.DICTIONARY).read_bytes()).hexdigest() != answer["dictionary"]:
        yield "the dictionary is not the one of the measured columns"
    spent = sum((step.rho for step in files.steps_of(answer)), Fraction(0))
    if spent > rho:
        yield (
            f"the noise of the measurements costs ρ {float(spent):.6g}, more than the ρ {float(rho):.6g} "
            "charged"
        )
    stated = privacy["epsilon"] if _DECIMAL.fullmatch(privacy["epsilon"]) else "0"
    if conversions.zcdp_to_epsilon(rho, delta) > Fraction(stated):
        yield "the stated ε is too small for this ρ and δ"


def _pages(place: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the pages for people that do not say what the checked files say."""
    if manifest["form"] == OLD_FORM:  # written in other words, which are signed
        return
    file, answer = load_release(place / files.RELEASE_FILE), _json(place, files.MEASUREMENTS)
    is_timed = files.has_own_time(_json(place, files.CHARGE_PROOF), _json(place, files.ANSWER_PROOF))
    made = {
        "privacy.md": files.privacy_text(file, answer, manifest, is_timed=is_timed),
        "dictionary.md": dictionary_text(_json(place, files.DICTIONARY)),
        "README.md": files.readme_text(manifest["name"], manifest["files"]),
    }
    for name, text in made.items():
        if (place / name).read_bytes() != text.encode():
            yield f"{name} does not say what the other files of the bundle say"


@dataclass(frozen=True, slots=True, eq=False)
class _Contents:
    """The release file, the measurements and the columns that are in a bundle."""

    place: Path
    file: ReleasePlanFile
    answer: Mapping[str, Any]
    columns: tuple[ColumnCells, ...]

    @classmethod
    def of(cls, place: Path) -> _Contents:
        columns = columns_of(_json(place, files.DICTIONARY))
        return cls(
            place, load_release(place / files.RELEASE_FILE), _json(place, files.MEASUREMENTS), columns
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(column.size for column in self.columns)

    def has(self, name: str) -> bool:
        return (self.place / f"{name}.parquet").exists()

    def table(self, name: str) -> tuple[pa.Table, list[str]]:
        """Return a table, and what is wrong with its Parquet file.

        The CSV file is read first: it is as large as its table. A Parquet file of a kilobyte can decode to
        gigabytes. So it is decoded only if it says that it has the same rows, in plain types and not many
        more bytes, and repeated texts stay one text.
        """
        path = self.place / f"{name}.parquet"
        about, schema = pyarrow.parquet.read_metadata(path), pyarrow.parquet.read_schema(path)
        if about.num_rows > MOST_TABLE_ROWS:
            raise ValueError(f"{name} has more than {MOST_TABLE_ROWS:,} rows")
        if any(not _is_plain(field.type) for field in schema):
            raise ValueError(f"{name}.parquet has a column of a type that no table has")
        types = pyarrow.csv.ConvertOptions(
            column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        lines = pyarrow.csv.ParseOptions(ignore_empty_lines=False)
        text = pyarrow.csv.read_csv(self.place / f"{name}.csv", parse_options=lines, convert_options=types)
        declared = sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups))
        most = LARGEST_HEADERS + 2 * text.nbytes
        if about.num_rows != text.num_rows or text.schema.names != schema.names or declared > most:
            return text, [f"{name}.csv and {name}.parquet differ"]
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        table = pyarrow.parquet.read_table(path, read_dictionary=texts)
        same = all(_is_same(text.column(k), table.column(k)) for k in range(text.num_columns))
        return text, [] if same else [f"{name}.csv and {name}.parquet differ"]

    def coded(self, table: pa.Table) -> Wholes:
        return np.column_stack([column.cells(table.column(column.name)) for column in self.columns])

    def impossible(self, cells: Wholes) -> NDArray[np.bool_]:
        """Return which rows have a combination that the release file calls impossible."""
        places = {column.name: place for place, column in enumerate(self.columns)}
        is_impossible = np.zeros(len(cells), np.bool_)
        for rule in self.file.impossible:
            here = np.ones(len(cells), np.bool_)
            for name, value in rule.items():
                here &= cells[:, places[name]] == self.columns[places[name]].cell_of(value)
            is_impossible |= here
        return is_impossible

    def all_cells(self) -> Wholes:
        """Return every combination of cells, one in a row, in the order of tables."""
        return np.indices(self.sizes).reshape(len(self.sizes), -1).T


def _synthetic(contents: _Contents, counted: _Counted) -> Iterator[str]:
    names = [column.name for column in contents.columns]
    table, differ = contents.table(files.ROWS)
    yield from differ
    if table.column_names != names:
        yield "the rows have other columns than the dictionary"
        return
    cells = contents.coded(table)
    counted.rows = len(cells)
    if contents.impossible(cells).any():
        yield "some rows are impossible by the release file"
    measured = _marginals(contents)
    if len(cells) != row_count(estimated_total(measured), len(names)):
        yield "the number of rows does not follow from the measurements"
    elif _misfit(contents, cells, measured) > MOST_MISFIT:
        yield "the rows do not fit the measurements that they should be made of"


def _marginals(contents: _Contents) -> list[NoisyMarginal]:
    return [
        NoisyMarginal(
            tuple(step["step"]["measure"]),
            np.array(step["result"]["counts"], float),
            float(exact_text(step["step"]["sigma"])),
        )
        for step in contents.answer["steps"]
        if step["result"] and "measure" in step["step"]
    ]


def _misfit(contents: _Contents, cells: Wholes, measured: Sequence[NoisyMarginal]) -> float:
    """Return the mean square of differences between rows and measurements, in units of their chance.

    Claim    rows that were drawn from a model fitted to the measurements have about 1 or less, far below
             `MOST_MISFIT`.
    Because  the fit has the least sum of squares among all tables, so no more than the truth has, whose
             differences are the noise: 1 on average, if each is divided by σ². Drawing rows adds at most
             the variance of a count. Marginals with a column of an `impossible` combination are left out:
             if what was declared is not so, the truth is not among the tables.
    Test     tests/publish/bundle/test_verified_bundle.py::test_rows_fit_their_measurements
    """
    places = {column.name: place for place, column in enumerate(contents.columns)}
    ruled = {name for rule in contents.file.impossible for name in rule}
    scale = estimated_total(measured) / len(cells)  # above 1 if memory limits the rows
    total, number = 0.0, 0
    for marginal in measured:
        if ruled & set(marginal.clique):
            continue
        sizes = tuple(contents.sizes[places[name]] for name in marginal.clique)
        flat = np.ravel_multi_index(tuple(cells[:, places[name]] for name in marginal.clique), sizes)
        rows = np.bincount(flat, minlength=marginal.counts.size) * scale
        chance = marginal.sigma**2 + scale * np.maximum(rows, scale)
        total += float(((rows - marginal.counts.ravel()) ** 2 / chance).sum())
        number += marginal.counts.size
    return total / (number + FREE_MISFIT) if number else 0.0


def _census(contents: _Contents, counted: _Counted) -> Iterator[str]:
    settings = contents.file.census
    assert settings is not None
    nodes, differ = contents.table(files.SPINE)
    yield from differ
    spine = spine_of({level: nodes.column(level).to_pylist() for level in settings.levels})
    is_empty = dict(
        zip(nodes.column(spine.levels[-1]).to_pylist(), nodes.column("empty").to_pylist(), strict=True)
    )
    empty = np.array([is_empty[name] for name in spine.leaves], np.bool_)
    if census_release.spine_digest(spine, empty) != contents.answer["spine"]:
        yield "the areas, or those that are empty by a public fact, are not those that were measured"
        return
    wholes = _whole_numbers(contents, spine)
    if wholes[-1].min() < 0:
        yield "a whole number is negative"
    impossible = contents.impossible(contents.all_cells())
    if wholes[-1][:, impossible].any():
        yield "some rows are impossible by the release file"
    if contents.has(files.MICRODATA):
        yield from _microdata(contents, spine, wholes[-1], counted)
    totals = census_release.public_totals(settings, spine)
    for level, known in enumerate(totals):
        if (wholes[level].sum(axis=1) != known)[known >= 0].any():
            yield f"a public total of level {spine.levels[level]} is not kept"
    if wholes[-1].sum(axis=1)[empty].any():
        yield "an area that is empty by a public fact has rows"
    names = [column.name for column in contents.columns]
    measured = census_release.read_levels(contents.answer, names, contents.sizes)
    estimate = estimate_spine(spine, contents.sizes, measured, census_release.known_totals(totals))
    asked = {
        census_release.query_of(name, names)
        for shares in settings.shares.values()
        for name, share in shares.items()
        if share
    }
    queries = files.shown_queries(len(names), asked)
    facts = SpineFacts(census_release.empty_nodes(spine, empty), tuple(totals), impossible)
    yield from _wholes_follow(spine, estimate, facts, wholes[-1])
    for level, name in enumerate(spine.levels):
        table, differ = contents.table(f"{files.TABLES}/{name}")
        yield from differ
        make = partial(files.level_table, spine, level, contents.columns, queries)
        made = partial(make, estimate=estimate, wholes=wholes[level])
        differences = list(_compared(table, made(), name))
        # Older bundles have wider intervals.
        older = differences and list(_compared(table, made(deviations=sub_gaussian_deviations()), name))
        yield from min(differences, older, key=len)


def _microdata(contents: _Contents, spine: Spine, leaves: Wholes, counted: _Counted) -> Iterator[str]:
    people, differ = contents.table(files.MICRODATA)
    yield from differ
    counted.rows = people.num_rows
    if people.column_names != [spine.levels[-1], *(column.name for column in contents.columns)]:
        yield "the microdata have other columns than the dictionary"
    elif not (_tabulated(contents, spine, people) == leaves).all():
        yield "the microdata do not add up to the whole numbers"


def _wholes_follow(
    spine: Spine, estimate: SpineEstimate, facts: SpineFacts, leaves: Wholes
) -> Iterator[str]:
    """Make whole tables again, and compare those of the smallest areas: they may differ by ties alone."""
    flat = [table.reshape(len(table), -1) for table in estimate.tables]
    moved = int(np.abs(whole_tables(spine, flat, facts)[-1] - leaves).sum())
    if moved > 20 + TIES * int(leaves.sum()):
        yield "the whole numbers are not those that follow from the measurements"


def _whole_numbers(contents: _Contents, spine: Spine) -> list[Wholes]:
    """Return the whole cells of every level: those of the smallest areas as published, others as sums."""
    table, _ = contents.table(f"{files.TABLES}/{spine.levels[-1]}")
    shape = len(spine.leaves), int(np.prod(contents.sizes))
    cells = np.asarray(table.column(census_release.NUMBERS[-1]), np.int64)
    return spine.sums(cells[-shape[0] * shape[1] :].reshape(shape))  # all cells come last


def _tabulated(contents: _Contents, spine: Spine, people: pa.Table) -> Wholes:
    """Return the number of rows in every cell of every smallest area."""
    place, width = {name: k for k, name in enumerate(spine.leaves)}, int(np.prod(contents.sizes))
    cells = contents.coded(people)
    leaf = np.array([place[name] for name in people.column(spine.levels[-1]).to_pylist()], np.int64)
    flat = np.ravel_multi_index(tuple(cells.T), contents.sizes) if len(cells) else np.zeros(0, np.int64)
    return np.bincount(leaf * width + flat, minlength=len(place) * width).reshape(len(place), width)


def _compared(table: pa.Table, made: pa.Table, level: str) -> Iterator[str]:
    if table.column_names != made.column_names or table.num_rows != made.num_rows:
        yield f"the table of {level} has other rows or columns than follow from the measurements"
        return
    for name in made.column_names:
        if name in census_release.NUMBERS[:-1]:
            mine, theirs = (np.asarray(arrow_table.column(name), float) for arrow_table in (made, table))
            if not np.allclose(mine, theirs, rtol=1e-9, atol=1.01 * 10.0**-files.DIGITS):
                yield f"{name} in the table of {level} does not follow from the measurements"
        elif not made.column(name).equals(table.column(name)):
            yield f"{name} in the table of {level} does not agree with the smallest areas"
