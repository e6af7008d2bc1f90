"""Receipts that somebody mailed: genuine, unknown and tampered differ by a sign and words."""

from __future__ import annotations

import json
import re

from support.served import OFFICER, asked

from .conftest import ConsoleDoor


def _receipt(console: ConsoleDoor) -> dict[str, object]:
    with console.ann() as client:
        answer = console.release(client, epsilon="0.15")
    position = int(answer["id"].rpartition(".")[2])
    return console.services.records.receipt(OFFICER, "visits", position)


def test_a_mailed_receipt_is_genuine_unknown_or_tampered(console: ConsoleDoor) -> None:
    told, officer = _receipt(console), console.browser("olga")

    def said(record: object) -> str:
        text = record if isinstance(record, str) else json.dumps(record)
        return officer.post("/d/visits/ledger/verify", data={"text": text}).text

    assert "✓ genuine" in said(told)
    assert "△ tampered" in said({**told, "principal": "somebody else"})
    assert "? unknown" in said({**told, "ledger": "0" * 32})
    assert "is no receipt" in said("good morning")
    assert officer.post("/d/visits/ledger/verify", data={"text": " "}).status_code == 422


def test_a_proof_and_a_statement_can_be_downloaded_and_verified(console: ConsoleDoor) -> None:
    told, officer = _receipt(console), console.browser("olga")
    proof = officer.get(f"/d/visits/ledger/{told['position']}/proof")
    assert "attachment" in proof.headers["content-disposition"]
    assert "✓ genuine" in officer.post("/d/visits/ledger/verify", data={"text": proof.text}).text
    statement = officer.get("/d/visits/ledger/statement")
    assert statement.status_code == 200
    assert "✓ genuine" in officer.post("/d/visits/ledger/verify", data={"text": statement.text}).text


def test_officers_check_the_whole_ledger_and_analysts_do_not(console: ConsoleDoor) -> None:
    _receipt(console)
    page = console.browser("olga").post("/d/visits/ledger/check")
    assert "The ledger is whole" in page.text
    assert console.browser("ann").post("/d/visits/ledger/check").status_code == 403
    assert console.browser("ann").get("/d/visits/ledger/statement").status_code == 403


def test_officers_see_no_words_of_questions(console: ConsoleDoor) -> None:
    _receipt(console)
    page = console.browser("olga").get("/d/visits/ledger").text
    assert "SELECT" not in page
    assert asked().sql not in page
    assert "a question, private SQL" in page
    assert "SELECT" in console.browser("sue").get("/d/visits/history").text


def test_officers_see_what_is_new_since_their_last_signature(console: ConsoleDoor) -> None:
    _receipt(console)
    officer = console.browser("olga")
    first = officer.get("/d/visits/ledger").text
    assert "You have not noted a signature here yet." in first
    newest = re.search(r'name="entry" value="(\d+)"', first)
    assert newest is not None
    assert officer.post("/d/visits/ledger/signed", data={"entry": newest[1]}).status_code == 303
    assert "New since your last signature: nothing" in officer.get("/d/visits/ledger").text
    with console.ann() as client:
        console.release(client, epsilon="0.07")
    page = officer.get("/d/visits/ledger").text
    assert "New since your last signature: 2\N{NO-BREAK SPACE}entries, ε\N{NO-BREAK SPACE}0.07" in page
    assert 'class="count">2<' in page
    assert page.count("Proof of entry") == 1
    assert officer.get("/d/visits/ledger?all=1").text.count("Proof of entry") > 1
    assert "2\N{NO-BREAK SPACE}entries new since your last signature." in officer.get("/").text
    assert officer.post("/d/visits/ledger/signed", data={"entry": "x"}).status_code == 422
    assert console.browser("sue").post("/d/visits/ledger/signed", data={"entry": "1"}).status_code == 403
