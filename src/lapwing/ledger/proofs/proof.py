"""Proofs that one entry is in a sealed ledger, for whoever holds its receipt, without the other entries."""

from __future__ import annotations

import hashlib
from typing import Any

from lapwing.errors import BadParameter
from lapwing.ledger.accountant.balance import Findings
from lapwing.ledger.accountant.forms import Malformed, is_hex, read, whole
from lapwing.ledger.accountant.guarantee import Report
from lapwing.ledger.entry import digest_of, encode
from lapwing.ledger.keys import good_signature
from lapwing.ledger.proofs.statement import Source, head_of, seal_digest, seal_fields
from lapwing.ledger.proofs.tree import check_inclusion, inclusion_proof

VERSION = 1
_PROOF = b"lapwing proof\x00"
_FIELDS = ("lapwing", "version", "ledger", "key", "entry", "index", "body", "path", "seal", "signature")


def prove(source: Source, seq: int) -> dict[str, Any]:
    """A proof that entry `seq` is in the ledger, up to its last seal."""
    place = body = None
    for index, (number, content, _) in enumerate(source.entries()):
        if number == seq:
            place, body = index, content
            break
    head = None
    for head in source.heads():  # noqa: B007 (the last one)
        pass
    if place is None or body is None or head is None or place >= head.size:
        raise BadParameter("entry", "there is no sealed entry of this number")
    path = inclusion_proof((digest for _, _, digest in source.entries()), place, head.size)
    proof: dict[str, Any] = {
        "lapwing": "proof",
        "version": VERSION,
        "ledger": source.ledger_id.hex(),
        "key": source.key.hex(),
        "entry": seq,
        "index": place,
        "body": body.decode("ascii"),
        "path": [digest.hex() for digest in path],
        "seal": seal_fields(head),
    }
    return proof | {"signature": source.sign_statement(_message(proof)).hex()}


def _message(proof: dict[str, Any]) -> bytes:
    """All of the proof but its signature: the number of the entry is in no digest."""
    said = {name: proof[name] for name in _FIELDS[:-1]}
    return _PROOF + hashlib.sha256(encode(said)).digest()


def verify_proof(proof: dict[str, Any], *, key: bytes | None) -> Report:
    """Check a proof. `key` is the ledger's public key, from somewhere else (as for statements)."""
    findings = Findings()
    head = None
    try:
        _check_form(proof)
        head = head_of(proof["seal"])
        ledger_id, own = bytes.fromhex(proof["ledger"]), bytes.fromhex(proof["key"])
        body = proof["body"].encode("ascii")
        path = [bytes.fromhex(digest) for digest in proof["path"]]
        read(body)
    except (Malformed, UnicodeEncodeError) as error:
        findings.add(
            f"the proof {error}" if isinstance(error, Malformed) else "the proof is not plain text"
        )
        return Report("", "", 0, findings.all())
    problems = {
        "the proof is signed with another key than the one that was given": key in (None, own),
        "the proof has a wrong signature": good_signature(
            own, _message(proof), bytes.fromhex(proof["signature"])
        ),
        "the seal has a wrong signature": good_signature(own, seal_digest(ledger_id, head), head.signature),
        "the entry is not in the sealed tree": check_inclusion(
            digest_of(body), proof["index"], head.size, path, head.root
        ),
        "the entry has a number after the seal's last": proof["entry"] <= head.last,
    }
    for problem, is_good in problems.items():
        if not is_good:
            findings.add(problem)
    return Report(ledger_id.hex(), own.hex(), 1, findings.all(), head=head)


def _check_form(proof: Any) -> None:
    if not isinstance(proof, dict) or set(proof) != set(_FIELDS):
        raise Malformed("has other fields than a proof has")
    if proof["lapwing"] != "proof" or type(proof["version"]) is not int or proof["version"] != VERSION:
        raise Malformed(f"is not of version {VERSION}")
    if not (is_hex(proof["ledger"], 32) and is_hex(proof["key"], 64) and is_hex(proof["signature"], 128)):
        raise Malformed("has a bad ledger, key or signature")
    if not (whole(proof["entry"]) and whole(proof["index"]) and isinstance(proof["body"], str)):
        raise Malformed("has a bad entry, index or body")
    if not isinstance(proof["path"], list) or not all(is_hex(digest, 64) for digest in proof["path"]):
        raise Malformed("has a bad path")
