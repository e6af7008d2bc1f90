"""Signed reports verify in an empty folder, and every change is refused."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from lapwing.errors import BadParameter
from lapwing.ledger.keys import SigningKey
from lapwing.reporting import signed_report
from lapwing.reporting.signed_report import signed_bytes, verify_report
from lapwing.reporting.writing import FORMS, MadeReport
from support.cases import each


def key_of(made: MadeReport) -> str:
    assert made.evidence is not None
    return made.evidence.signing.public.hex()


@each("form", FORMS)
def test_it_verifies_elsewhere_and_with_its_key_alone(form: str, made: MadeReport, tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes(made.bytes_of(form))
    found = verify_report(path, key=key_of(made))
    assert found.findings == ()
    assert (found.form, found.title, found.date) == (form, "policy visits", "2026-01-31")
    assert found.head is not None
    assert found.entries == found.head.size
    other = SigningKey(bytes(32)).public.hex()
    assert "another key" in verify_report(path, key=other).findings[0]
    with pytest.raises(BadParameter, match="hexadecimal"):
        verify_report(path, key="abc")


@each("form", FORMS)
def test_every_flipped_bit_of_a_sample_is_refused(form: str, made: MadeReport, tmp_path: Path) -> None:
    """A refusal is a finding, or, where it no longer says that it is a report, an error."""
    content, path, chance = made.bytes_of(form), tmp_path / "report", random.Random(20_260_131)
    places = [*range(60), *chance.sample(range(len(content)), 60), *range(len(content) - 20, len(content))]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        try:
            assert verify_report(path).findings, place
        except BadParameter:
            continue
    for cut in (content[:-1], content + b" ", content + content, content[1:]):
        path.write_bytes(cut)
        try:
            assert verify_report(path).findings
        except BadParameter:
            continue


def test_numbers_that_the_ledger_does_not_show_are_refused_even_if_signed(
    made: MadeReport, tmp_path: Path
) -> None:
    """Whoever has the key can sign anything. Numbers must still follow from the statement."""
    path = tmp_path / "report.json"
    assert made.report.ledger is not None
    account = {**made.report.ledger["accounts"][0], "epsilon": 0.5}
    lied = replace(made.report, ledger={**made.report.ledger, "accounts": [account]})
    path.write_bytes(signed_bytes(lied, made.evidence, form="json"))
    assert verify_report(path).findings == ("the numbers of the ledger do not follow from the statement",)
    first = made.report.sections[0]
    fact = replace(first.facts[0], values={"accounts.0.epsilon": 0.5})
    section = replace(first, facts=(fact, *first.facts[1:]))
    lied = replace(made.report, sections=(section, *made.report.sections[1:]))
    path.write_bytes(signed_bytes(lied, made.evidence, form="json"))
    assert verify_report(path).findings == (
        "section summary: accounts.0.epsilon is not what the ledger says",
    )
    assert made.evidence is not None
    name = replace(made.evidence.names[0], label="others")
    path.write_bytes(signed_bytes(made.report, replace(made.evidence, names=[name]), form="json"))
    assert "a name in the report" in verify_report(path).findings[0]
    cut = replace(made.evidence, statement=made.evidence.statement[:-200])
    path.write_bytes(signed_bytes(made.report, cut, form="json"))
    assert "the statement: " in verify_report(path).findings[0]


def test_a_page_cannot_be_exchanged_for_another_signed_one(made: MadeReport, tmp_path: Path) -> None:
    page, other = made.bytes_of("html"), made.bytes_of("markdown")
    mark = b"<!-- lapwing report\n"
    path = tmp_path / "report.html"
    path.write_bytes(page[: page.rfind(mark)] + other[other.rfind(mark) :])
    assert "some byte of it was changed" in verify_report(path).findings[0]


def test_texts_cannot_end_the_comment(made: MadeReport, tmp_path: Path) -> None:
    nasty = replace(made.report, name="x --> <script>alert(1)</script> <!-- lapwing report\n --!> -")
    path = tmp_path / "report.html"
    content = signed_bytes(nasty, made.evidence, form="html", page=b"<p>page</p>\n")
    path.write_bytes(content)
    assert verify_report(path).findings == ()
    assert content.count(b"-->") == 1


def test_a_long_statement_lies_beside_the_report(
    made: MadeReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed_report, "LARGEST_ENCLOSED", 10)
    path, beside = tmp_path / "report.json", tmp_path / "statement"
    path.write_bytes(made.bytes_of("json"))
    assert json.loads(path.read_text())["statement"] == []
    assert "give the statement" in verify_report(path).findings[0]
    assert made.evidence is not None
    beside.write_bytes(made.evidence.statement)
    assert verify_report(path, statement=beside).findings == ()
    beside.write_bytes(made.evidence.statement + b"\n")
    assert "not the one" in verify_report(path, statement=beside).findings[0]


def test_an_unsigned_report_says_so(made: MadeReport, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    path.write_bytes(signed_bytes(made.report, None, form="markdown", page=b"# page\n"))
    assert "unsigned" in verify_report(path).findings[0]


def test_a_signature_in_capital_letters_is_refused(made: MadeReport, tmp_path: Path) -> None:
    """They stand for the same bytes, but they are not what was written."""
    path = tmp_path / "report.json"
    text = made.bytes_of("json").decode()
    signature = json.loads(text)["signature"]
    path.write_text(text.replace(signature, signature.upper()))
    assert "malformed" in verify_report(path).findings[0]


def test_a_signed_json_report_is_no_evidence_for_a_page(made: MadeReport, tmp_path: Path) -> None:
    """Its signature covers no page. So nobody can put its fields at the end of a page of their own."""
    fields = json.loads(made.bytes_of("json"))
    path = tmp_path / "report.html"
    for page in (b"<p>All is well</p>\n", b""):
        path.write_bytes(page + signed_report._comment(fields))
        assert "not those of a report" in verify_report(path, key=key_of(made)).findings[0]
    path.write_text(json.dumps({**fields, "form": "html"}, indent=2, ensure_ascii=False) + "\n")
    assert verify_report(path).findings


def test_other_files_than_plain_ones_are_refused(made: MadeReport, tmp_path: Path) -> None:
    path, pipe = tmp_path / "report.json", tmp_path / "pipe"
    path.write_bytes(made.bytes_of("json"))
    os.mkfifo(pipe)
    for statement in (pipe, tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BadParameter, match="there is none"):  # and it does not wait for a writer
            verify_report(path, statement=statement)
