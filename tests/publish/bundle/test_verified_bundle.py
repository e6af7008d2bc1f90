"""A bundle that was changed anywhere is refused; one that was not passes with nothing but the key."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from lapwing.core.exact import short_up
from lapwing.errors import BadParameter
from lapwing.examples.town import TOWN_CENSUS, TOWN_ROWS, write_town
from lapwing.ledger.keys import LedgerKeys
from lapwing.publish import Publication, verify_bundle
from lapwing.publish.bundle import bundle_contents, verified_bundle
from lapwing.publish.bundle.bundle_contents import files_of
from lapwing.publish.bundle.manifest import MANIFEST, OLD_FORM, signed_message
from lapwing.publish.measured.private_marginals import exact_text
from lapwing.publish.release_file import load_release
from support.published import BUNDLES, copied_bundle, town


def manifest_of(bundle: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle / MANIFEST).read_text())
    return found


def write_manifest(bundle: Path, manifest: dict[str, Any]) -> None:
    (bundle / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def signed_again(bundle: Path, change: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Sign what is there with the ledger's own key: a publisher who cheats."""
    keys, manifest = LedgerKeys.load(town() / "lapwing.ledger.keys"), manifest_of(bundle)
    there = [path for path in bundle.rglob("*") if path.is_file() and path.name != MANIFEST]
    manifest["files"] = {
        path.relative_to(bundle).as_posix(): sha256(path.read_bytes()).hexdigest() for path in sorted(there)
    }
    if change is not None:
        change(manifest)
    manifest["signature"] = keys.signing.sign(signed_message(manifest)).hex()
    write_manifest(bundle, manifest)


def findings(bundle: Path) -> str:
    return "; ".join(verify_bundle(bundle, key=manifest_of(town() / "rows")["key"]).findings)


def in_new_process(bundle: Path) -> tuple[str, int]:
    """Return the findings, and the most bytes that Arrow held, of a process that held none before."""
    code = (
        "import sys, pyarrow; from pathlib import Path; from lapwing.publish import verify_bundle; "
        "print(*verify_bundle(Path(sys.argv[1]), key=sys.argv[2]).findings, sep='; '); "
        "print(pyarrow.default_memory_pool().max_memory())"
    )
    key = manifest_of(town() / "rows")["key"]
    done = subprocess.run(
        [sys.executable, "-c", code, bundle, key], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told, most = done.stdout.splitlines()
    return told, int(most)


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_passes_in_another_place(name: str, tmp_path: Path) -> None:
    report = verify_bundle(copied_bundle(name, tmp_path), key=manifest_of(town() / name)["key"])
    assert report.findings == ()
    assert report.rows is not None
    assert report.rows > 4000
    assert report.to_json()["good"]


@pytest.mark.parametrize("name", BUNDLES)
def test_each_file_is_covered(name: str, tmp_path: Path) -> None:
    bundle = copied_bundle(name, tmp_path)
    for file in manifest_of(bundle)["files"]:
        path = bundle / file
        before = path.read_bytes()
        path.write_bytes(before + b" ")
        assert f"{file} was changed" in findings(bundle)
        path.unlink()
        assert f"{file} is missing" in findings(bundle)
        path.write_bytes(before)
    assert findings(bundle) == ""
    (bundle / "more.csv").write_text("1")
    assert "more.csv does not belong to the bundle" in findings(bundle)


def test_a_link_is_no_file_of_a_bundle(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    os.replace(bundle / "rows.csv", tmp_path / "elsewhere.csv")
    (bundle / "rows.csv").symlink_to(tmp_path / "elsewhere.csv")
    assert "rows.csv is not a plain file" in findings(bundle)


def test_a_manifest_that_was_edited_or_signed_by_another_key_is_refused(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    manifest = manifest_of(bundle)
    manifest["privacy"]["epsilon"] = "0.1"
    write_manifest(bundle, manifest)
    assert "the signature does not fit" in findings(bundle)
    assert "another key" in "".join(verify_bundle(bundle, key="00" * 32).findings)
    with pytest.raises(BadParameter, match="hexadecimal"):
        verify_bundle(bundle, key="00")


@pytest.mark.parametrize(
    ("content", "words"),
    [("[]", "form"), ("{", "not JSON"), ('{"form": "lapwing bundle 1"}', "name is"), (None, "no bundle")],
)
def test_a_folder_that_is_no_bundle_is_refused(content: str | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(BadParameter, match=words):
        verify_bundle(tmp_path)


# A publisher who signs it all again is still caught, by the ledger's proofs and by the sums.


def test_other_measurements_are_not_the_ledgers_answer(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    answer = json.loads((bundle / "measurements.json").read_text())
    answer["steps"][0]["result"]["counts"][0] += 1
    (bundle / "measurements.json").write_text(json.dumps(answer))
    signed_again(bundle)
    assert "the measurements are not the ledger's answer" in findings(bundle)


def test_less_noise_than_was_charged_is_found(tmp_path: Path) -> None:
    for name, change in (("rows", _noise_in_rows), ("census", _noise_in_census)):
        bundle = copied_bundle(name, tmp_path)
        answer = json.loads((bundle / "measurements.json").read_text())
        change(answer, "1/2")
        (bundle / "measurements.json").write_text(json.dumps(answer))
        signed_again(bundle)
        assert "more than the ρ" in findings(bundle)


def _noise_in_rows(answer: dict[str, Any], sigma: object) -> None:
    answer["steps"][0]["step"]["sigma"] = sigma


def _noise_in_census(answer: dict[str, Any], sigma: object) -> None:
    answer["levels"][0]["queries"][0]["sigma"] = sigma


def test_a_smaller_epsilon_or_bound_than_was_paid_is_found(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    signed_again(bundle, lambda said: said["privacy"].update(epsilon="1"))
    assert "the stated ε is too small" in findings(bundle)
    signed_again(bundle, lambda said: said["privacy"].update(epsilon="2", rows_per_unit=2))
    assert "another rows of a unit" in findings(bundle)
    signed_again(bundle, lambda said: said["privacy"].update(rho=str(Fraction(1, 100)), rows_per_unit=1))
    assert "another loss" in findings(bundle)


def test_proofs_of_another_release_are_found(tmp_path: Path) -> None:
    bundle, other = copied_bundle("rows", tmp_path), town() / "census"
    for name in ("charge.proof.json", "answer.proof.json"):
        (bundle / name).write_bytes((other / name).read_bytes())
    signed_again(bundle)
    assert "the proof of the charge is about another entry" in findings(bundle)


def replace_table(bundle: Path, name: str, table: pa.Table) -> None:
    for file, content in files_of(name, table).items():
        (bundle / file).write_bytes(content)
    signed_again(bundle)


def changed(table: pa.Table, name: str, row: int, value: Any) -> pa.Table:
    values = table.column(name).to_pylist()
    values[row] = value
    return table.set_column(table.column_names.index(name), name, pa.array(values, table.column(name).type))


def test_rows_beyond_the_dictionary_or_impossible_or_missing_are_found(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    rows = pyarrow.parquet.read_table(bundle / "rows.parquet")
    replace_table(bundle, "rows", changed(rows, "work", 0, "pirate"))
    assert "has no such value" in findings(bundle)
    replace_table(bundle, "rows", rows.append_column("name", pa.array(["x"] * len(rows))))
    assert "other columns than the dictionary" in findings(bundle)
    replace_table(bundle, "rows", changed(changed(rows, "work", 0, "school"), "age", 0, 98))
    assert "impossible" in findings(bundle)
    replace_table(bundle, "rows", rows.slice(1))
    assert "the number of rows" in findings(bundle)
    (bundle / "rows.csv").write_bytes(files_of("rows", rows)["rows.csv"])
    signed_again(bundle)
    assert "differ" in findings(bundle)


def test_census_tables_that_do_not_add_up_are_found(tmp_path: Path) -> None:
    bundle = copied_bundle("census", tmp_path)
    for level, column in (("district", "whole_number"), ("block", "estimate"), ("town", "high")):
        name = f"tables/{level}"
        table = pyarrow.parquet.read_table(bundle / f"{name}.parquet")
        replace_table(bundle, name, changed(table, column, 2, table.column(column)[2].as_py() + 1))
        assert f"{column} in the table of {level}" in findings(bundle)
        replace_table(bundle, name, table)
    assert findings(bundle) == ""
    people = pyarrow.parquet.read_table(bundle / "microdata.parquet")
    replace_table(bundle, "microdata", people.slice(1))
    assert "do not add up to the whole numbers" in findings(bundle)


def test_an_area_that_is_empty_by_a_fact_has_nobody(tmp_path: Path) -> None:
    bundle = copied_bundle("census", tmp_path)
    spine = pyarrow.parquet.read_table(bundle / "spine.parquet")
    where = spine.column("empty").to_pylist().index(False)
    replace_table(bundle, "spine", changed(spine, "empty", where, True))
    assert "are not those that were measured" in findings(bundle)
    areas = spine.column("block").to_pylist()
    replace_table(bundle, "spine", changed(spine, "block", 0, f"{areas[0]}x"))
    assert "the areas, or those" in findings(bundle)


def test_a_census_too_large_for_microdata_is_verified_by_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_contents, "MOST_MICRODATA", 100)
    write_town(tmp_path)
    with Publication.open(tmp_path / TOWN_CENSUS) as release:
        release.dataset.curator.notify = lambda _: None
        manifest = release.run(tmp_path / "census")
    assert "microdata.csv" not in manifest["files"]
    report = verify_bundle(tmp_path / "census", key=manifest["key"])
    assert (report.findings, report.rows) == ((), None)


def test_whole_numbers_that_do_not_follow_are_found(tmp_path: Path) -> None:
    """A publisher adds people to one block, in all tables and in the microdata, and signs again."""
    bundle = copied_bundle("census", tmp_path)
    people = pyarrow.parquet.read_table(bundle / "microdata.parquet")
    more = people.slice(0, 1).take(pa.array([0] * 60))
    replace_table(bundle, "microdata", pa.concat_tables([people, more]))
    area, *cell = (column.as_py() for column in more.slice(0, 1).columns for column in column)
    district = f"district {int(area) // 100}"
    for level, name in (("town", "town"), ("district", district), ("block", area)):
        table = pyarrow.parquet.read_table(bundle / "tables" / f"{level}.parquet")
        values = table.column("whole_number").to_pylist()
        for row, here in enumerate(table.to_pylist()):
            fits = all(here[key] in {"all", one} for key, one in zip(("sex", "life"), cell, strict=True))
            values[row] += 60 * (here[level] == name and fits)
        place = table.column_names.index("whole_number")
        replace_table(bundle, f"tables/{level}", table.set_column(place, "whole_number", pa.array(values)))
    assert findings(bundle) == "the whole numbers are not those that follow from the measurements"


def test_a_renamed_value_and_a_stated_delta_or_fact_of_its_own_are_found(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    text = (bundle / "dictionary.json").read_text()
    (bundle / "dictionary.json").write_text(text.replace('"bicycle"', '"motor"'))
    signed_again(bundle)
    assert "the dictionary is not the one of the measured columns" in findings(bundle)
    (bundle / "dictionary.json").write_text(text)
    changes: tuple[dict[str, Any], ...] = ({"delta": "9/10", "epsilon": "1"}, {"facts": []})
    for change in changes:
        signed_again(bundle, lambda said, change=change: said["privacy"].update(change))  # type: ignore[misc]
        assert "are not those of the release file" in findings(bundle)
        signed_again(bundle, lambda said: said.update(privacy=manifest_of(town() / "rows")["privacy"]))
    assert findings(bundle) == ""
    signed_again(bundle, lambda said: said["privacy"].update(more=1))
    assert "other fields" in findings(bundle)


def test_files_of_another_kind_are_refused_though_they_are_signed(tmp_path: Path) -> None:
    bundle = copied_bundle("census", tmp_path)
    (bundle / "raw_people.csv").write_text("x")
    (bundle / "privacy.md").unlink()
    signed_again(bundle)
    assert "raw_people.csv does not belong to a bundle" in findings(bundle)
    assert "privacy.md is missing" in findings(bundle)


def test_a_field_cannot_be_written_twice(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    text = (bundle / MANIFEST).read_text()
    (bundle / MANIFEST).write_text(text.replace('"epsilon"', '"epsilon": "0.001",\n    "epsilon"'))
    with pytest.raises(BadParameter, match="its bytes are not those of a bundle"):
        verify_bundle(bundle)


def test_a_manifest_has_no_number_that_json_lacks(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    text = (bundle / MANIFEST).read_text()
    (bundle / MANIFEST).write_text(text.replace('"charge": ', '"charge": NaN, "old": ', 1))
    with pytest.raises(BadParameter, match="is not JSON"):
        verify_bundle(bundle)


@pytest.mark.parametrize("value", ["1/0", "1e999999999", "-1", "0", "nan", ["1"], "9" * 10**6])
def test_hostile_numbers_are_findings(value: object, tmp_path: Path) -> None:
    for name in ("rho", "delta", "epsilon"):
        bundle = copied_bundle("rows", tmp_path / name)
        signed_again(bundle, lambda said, name=name: said["privacy"].update({name: value}))  # type: ignore[misc]
        assert findings(bundle)
    for name, change in (("rows", _noise_in_rows), ("census", _noise_in_census)):
        bundle = copied_bundle(name, tmp_path / f"sigma of {name}")
        answer = json.loads((bundle / "measurements.json").read_text())
        change(answer, value)
        (bundle / "measurements.json").write_text(json.dumps(answer))
        signed_again(bundle)
        assert findings(bundle)


def test_hostile_files_are_findings(tmp_path: Path) -> None:
    for name in ("measurements.json", "dictionary.json", "charge.proof.json", "rows.parquet", "rows.csv"):
        for content in (b"[" * 100_000, b"{}", b"null", b""):
            bundle = copied_bundle("rows", tmp_path / f"{name}{len(content)}")
            (bundle / name).write_bytes(content)
            signed_again(bundle)
            assert findings(bundle)
    bundle = copied_bundle("rows", tmp_path)
    signed_again(bundle, lambda said: said.update(method="census"))
    assert findings(bundle)
    (bundle / MANIFEST).write_text("[" * 100_000)
    with pytest.raises(BadParameter, match="not JSON"):
        verify_bundle(bundle)


def test_one_column_with_missing_values_is_the_same_in_both_files(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array(["a", None, "b", None])})
    for name, content in files_of("rows", table).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "release.toml").write_bytes((town() / "rows" / "release.toml").read_bytes())
    contents = verified_bundle._Contents(tmp_path, load_release(tmp_path / "release.toml"), {}, ())
    assert contents.table("rows") == (table, [])


def test_small_numbers_of_an_honest_bundle_are_read() -> None:
    """A δ of 1e-70 and an ε with an exponent are no reason to refuse a bundle."""
    assert exact_text(f"1/{10**70}") == Fraction(1, 10**70)
    assert verified_bundle._DECIMAL.fullmatch(short_up(Fraction(123456, 10**12), 9))
    with pytest.raises(ValueError, match="short positive fraction"):
        exact_text("0")


def test_the_manifest_has_one_spelling(tmp_path: Path) -> None:
    """Neither capital letters in the signature nor another order of the fields are what was written."""
    bundle = copied_bundle("rows", tmp_path)
    path = bundle / MANIFEST
    good = json.loads(path.read_text())

    def write(manifest: dict[str, Any]) -> None:
        path.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

    write({**good, "signature": good["signature"].upper()})
    assert "not of its form" in verify_bundle(bundle).findings[0]
    turned = {**good, "files": dict(reversed(good["files"].items()))}
    for other in (dict(sorted(good.items())), turned):
        write(other)
        with pytest.raises(BadParameter, match="another order"):
            verify_bundle(bundle)
    write({**good, "privacy": dict(reversed(good["privacy"].items()))})
    assert "other fields" in verify_bundle(bundle).findings[0]
    write(good)
    assert verify_bundle(bundle).findings == ()


@pytest.mark.parametrize("name", BUNDLES)
def test_pages_that_say_other_things_than_the_checked_files_are_refused(name: str, tmp_path: Path) -> None:
    for page in ("privacy.md", "dictionary.md", "README.md"):
        bundle = copied_bundle(name, tmp_path / page)
        path = bundle / page
        path.write_text(path.read_text().replace("a", "e", 1))
        signed_again(bundle)
        assert findings(bundle) == f"{page} does not say what the other files of the bundle say"


def test_a_bundle_of_the_first_form_passes_with_pages_of_its_time(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    (bundle / "privacy.md").write_text("older words")

    def old(manifest: dict[str, Any]) -> None:
        manifest["form"] = OLD_FORM
        del manifest["notes"]

    signed_again(bundle, old)
    assert findings(bundle) == ""


# Rows and measurements


def _write_rows(bundle: Path, table: pa.Table) -> None:
    for file, content in files_of("rows", table).items():
        (bundle / file).write_bytes(content)
    signed_again(bundle)


def test_a_table_that_repeats_one_row_is_refused(tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    table = pyarrow.parquet.read_table(bundle / "rows.parquet")
    _write_rows(bundle, table.take([7] * table.num_rows))
    assert findings(bundle) == "the rows do not fit the measurements that they should be made of"
    shifted = table.set_column(0, "sex", pa.array(["f"] * table.num_rows))
    _write_rows(bundle, shifted)
    assert findings(bundle) == "the rows do not fit the measurements that they should be made of"
    _write_rows(bundle, table.take(list(reversed(range(table.num_rows)))))
    assert findings(bundle) == ""


@pytest.mark.parametrize("method", ["independent", "tree"])
@pytest.mark.parametrize("epsilon", ["0.02", "1", "20"])
def test_rows_fit_their_measurements(method: str, epsilon: str, tmp_path: Path) -> None:
    """Honest rows are far below the bound of 6. False alarms (a chi-square beyond 2 (n + 30)): < 1e-9."""
    write_town(tmp_path)
    policy, file = tmp_path / "town.toml", tmp_path / TOWN_ROWS
    policy.write_text(re.sub(r"(?m)^epsilon = .*", "epsilon = 50", policy.read_text()))
    text = re.sub(r"(?m)^method = .*", f'method = "{method}"', file.read_text())
    file.write_text(re.sub(r"(?m)^epsilon = .*", f"epsilon = {epsilon}", text))
    with Publication.open(file) as release:
        release.dataset.curator.notify = lambda _: None
        manifest = release.run(tmp_path / "out")
    found = verified_bundle._Contents.of(tmp_path / "out")
    table, _ = found.table("rows")
    assert verified_bundle._misfit(found, found.coded(table), verified_bundle._marginals(found)) < 2
    assert verify_bundle(tmp_path / "out", key=manifest["key"]).findings == ()


def test_a_report_says_that_it_shows_the_first_values_and_adds_up_the_others(tmp_path: Path) -> None:
    write_town(tmp_path)
    file = tmp_path / TOWN_ROWS
    text = re.sub(r"(?m)^method = .*", 'method = "independent"', file.read_text())
    file.write_text(re.sub(r"(?m)^bins = \d+", "bins = 50", text))
    with Publication.open(file) as release:
        release.dataset.curator.notify = lambda _: None
        release.run(tmp_path / "out")
    found = verified_bundle._Contents.of(tmp_path / "out")
    table, _ = found.table("rows")
    place = next(k for k, column in enumerate(found.columns) if column.name == "age")
    ages, size = found.coded(table)[:, place], found.columns[place].size
    page = (tmp_path / "out" / "report.html").read_text()
    assert size > 40
    assert f"The first 40 of {size} values." in page
    row = re.search(rf"all {size - 40} other values</td>\s*<td[^>]*>([0-9,]+)<", page)
    assert row is not None
    assert int(row[1].replace(",", "")) == (ages >= 40).sum()


# Parquet files that are small and decode to much


def test_a_file_that_decodes_to_much_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = copied_bundle("rows", tmp_path)
    table = pyarrow.parquet.read_table(bundle / "rows.parquet")
    one, rows = table.slice(0, 1), table.num_rows
    many = one.take(pa.repeat(0, 5_000_000))
    texts = pa.DictionaryArray.from_arrays(pa.repeat(0, rows).cast(pa.int32()), ["f" * 100_000])
    long = table.set_column(0, "sex", texts)
    nested = table.set_column(0, "sex", pa.array([[1]] * rows))

    def decoded(*_: object, **__: object) -> Any:
        raise AssertionError("decoded")

    for other, words in ((many, "differ"), (nested, "of a type that no table has")):
        pyarrow.parquet.write_table(other, bundle / "rows.parquet", compression="zstd")
        assert (bundle / "rows.parquet").stat().st_size < 100_000
        signed_again(bundle)
        with monkeypatch.context() as patched:
            patched.setattr(pyarrow.parquet, "read_table", decoded)
            assert words in findings(bundle)
    # Half a gigabyte of texts, each the same: it stays one text.
    pyarrow.parquet.write_table(long, bundle / "rows.parquet", compression="zstd", store_schema=False)
    signed_again(bundle)
    told, most = in_new_process(bundle)
    assert "rows.csv and rows.parquet differ" in told
    assert 0 < most < 50_000_000


def test_tables_are_not_decoded_if_a_proof_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = copied_bundle("rows", tmp_path)
    other = copied_bundle("census", tmp_path)
    (bundle / "answer.proof.json").write_bytes((other / "answer.proof.json").read_bytes())
    signed_again(bundle)
    monkeypatch.setattr(verified_bundle._Contents, "table", None)
    assert "the proof of the answer is about another entry" in findings(bundle)
