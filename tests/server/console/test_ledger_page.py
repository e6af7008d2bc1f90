"""Receipts that somebody mailed: genuine, unknown and tampered differ by a sign and words."""

from __future__ import annotations

import json

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
