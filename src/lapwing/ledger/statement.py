"""Statements and proofs, which a third party checks without the ledger.

A statement is a whole ledger in one file. Every line is JSON, in this order:

    {"lapwing":"statement","version":1,"ledger":…,"key":…,"curator":…}
    [17,{…}]                        entry 17: from the comma to the last bracket, the bytes of its body
    {"seal":[number,last,size,root,previous,signature]}          after the entry `last`
    {"name":id,"salt":…,"label":…}  if wanted: the label that an id stands for
    {"end":digest,"signature":…}    the digest of all lines before, signed by the ledger

A proof shows the holder of a receipt that one entry is in a sealed ledger, without the other entries.

Claim    a statement that passes is, to the byte, one that the ledger signed. It ends at a seal, so it can
         be compared with the lines of anchors. Its history passes the independent accountant.
Test     tests/ledger/test_statement.py
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from lapwing.errors import BadParameter
from lapwing.ledger import seals
from lapwing.ledger.accountant.balance import Findings
from lapwing.ledger.accountant.forms import MalformedEntry, is_hex, is_whole, parsed, read
from lapwing.ledger.accountant.guarantee import StatementReport
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.anchors import Head
from lapwing.ledger.entry import SALT_BYTES, CommittedName, RawEntry, commitment, digest_of, encode
from lapwing.ledger.keys import SigningKey, good_signature
from lapwing.storage.private_file import new_private_file


class StatementLabels:
    """A check of the names in a statement: each when it is read, all together at the end.

    It needs 32 bytes for each name.
    """

    def __init__(self, replay: Replay, findings: Findings) -> None:
        self._replay, self._findings = replay, findings
        self._ids, self._labels = bytearray(), bytearray()
        self.count = 0

    def add(self, name: Any, salt: Any, label: Any) -> None:
        """Check one name."""
        if not is_hex(name, 32) or not is_hex(salt, 2 * SALT_BYTES) or not isinstance(label, str):
            raise MalformedEntry("is not a name")
        try:
            is_its = commitment(label, bytes.fromhex(salt)) == name
        except UnicodeEncodeError:
            raise MalformedEntry("is not a name") from None
        if not is_its:
            self._findings.add(f"the id {name} was not made from the label beside it")
        self.count += 1
        self._ids += bytes.fromhex(name)
        self._labels += sha256(label.encode()).digest()[:16]

    def finish(self) -> None:
        """Check all names together.

        Every id must stand in an entry and have one name, which its family has once.
        """
        if not self.count:
            return
        ids, labels = _texts(self._ids), _texts(self._labels)
        books = self._replay.balances
        known = np.ascontiguousarray(books.ids.rows).view("S16").reshape(-1)
        order = np.argsort(known)
        places = np.minimum(np.searchsorted(known, ids, sorter=order), max(len(known) - 1, 0))
        is_block = known[order[places]] == ids if len(known) else np.zeros(len(ids), bool)
        names = self._replay.registers.names
        for k in np.flatnonzero(~is_block):
            name = self._ids[16 * k : 16 * k + 16].hex()
            if name.encode() not in names:
                self._findings.add(f"the id {name} stands in no entry")
        if len(np.unique(ids)) < len(ids):
            self._findings.add("some id is named twice")
        roots = np.zeros(len(self._replay.accounts) + 1, np.int64)
        for account in self._replay.accounts.values():
            if account.place < len(roots):
                roots[account.place] = account.root
        rows = order[places[is_block]]
        owners = books.owners.rows[rows]
        pairs = np.empty(len(rows), [("root", np.int64), ("label", "S16")])
        pairs["root"], pairs["label"] = roots[np.minimum(owners, len(roots) - 1)], labels[is_block]
        if len(np.unique(pairs)) < len(pairs):
            self._findings.add("two blocks of one account have the same name")


def _texts(digests: bytearray) -> np.ndarray[tuple[int], np.dtype[np.bytes_]]:
    """Return digests of 16 bytes as an array. NumPy drops zeros at the end, which keeps them distinct."""
    return np.frombuffer(bytes(digests), "S16")


STATEMENT_VERSION = 1
BATCH = 4096
_END = b"lapwing statement\x00"
_ENTRY = re.compile(rb"\[(0|[1-9][0-9]{0,17}),(\{.*\})\]\n")


class StatementSource(Protocol):
    """The source of a statement: one snapshot of a ledger, best just after a seal."""

    ledger_id: bytes
    signing: SigningKey  # of the ledger
    curator_key: bytes  # the public one

    def entries(self) -> Iterable[RawEntry]:
        """Yield (number, body, digest) in order."""

    def heads(self) -> Iterable[Head]:
        """Yield the heads of all seals in order. Entries after the last one are left out."""

    def names(self) -> Iterable[CommittedName]:
        """Yield the names whose ids stand in entries; the block of everyone has none."""


# Writing


def write_statement(path: str | Path, source: StatementSource, *, names: bool) -> None:
    """Write a statement to a new file, up to the last seal. `names` adds the labels of ids."""
    with new_private_file(path, mode=0o666) as file:
        digest = hashlib.sha256()
        for line in _lines(source, names=names):
            digest.update(line)
            file.write(line)
        signature = source.signing.sign(_end_message(source.ledger_id, digest.digest()))
        file.write(_line({"end": digest.hexdigest(), "signature": signature.hex()}))


def _lines(source: StatementSource, *, names: bool) -> Iterator[bytes]:
    header = {"lapwing": "statement", "version": STATEMENT_VERSION, "ledger": source.ledger_id.hex()}
    keys = {"key": source.signing.public.hex(), "curator": source.curator_key.hex()}
    yield _line(header | keys)
    heads = iter(source.heads())
    head = next(heads, None)
    if head is None:
        raise BadParameter("source", "must have a seal")
    for seq, body, _ in source.entries():
        yield b"[%d,%b]\n" % (seq, body)
        if seq == head.last:
            yield _line({"seal": seal_fields(head)})
            head = next(heads, None)
            if head is None:
                break
    if head is not None:
        raise BadParameter("source", "has a seal of entries that it does not have")
    if names:
        for name in source.names():
            yield _line({"name": name.id, "salt": name.salt.hex(), "label": name.label})


def _line(record: dict[str, Any]) -> bytes:
    return encode(record) + b"\n"


def _end_message(ledger_id: bytes, digest: bytes) -> bytes:
    return _END + ledger_id + digest


# Checking


def verify_statement(path: str | Path, *, key: bytes | None) -> StatementReport:
    """Check a statement: every byte, signature, sum, price and cap.

    Args:
        path: the file of the statement.
        key: the ledger's public key, from another source. Without it, anybody could invent a history and
            sign it with a key of their own.

    Returns:
        A report with the findings, and the guarantee that the history gives.
    """
    with open(path, "rb") as file:
        return check_statement(file, key=key)


def check_statement(file: BinaryIO, *, key: bytes | None) -> StatementReport:
    """Check the statement in an open file (see `verify_statement`)."""
    return _Reader(key).read(file)


class _Reader:
    """A reader of the lines in order. Apart from the accountant, its memory grows with their logarithm."""

    def __init__(self, key: bytes | None) -> None:
        self.findings = Findings()
        self.replay, self.tree = Replay(), seals.MerkleTree()
        self.labels = StatementLabels(self.replay, self.findings)
        self.wanted_key = key
        self.ledger_id, self.key, self.curator = b"", b"", b""
        self.previous = seals.NOTHING_BEFORE
        self.head: Head | None = None
        self.batch: list[RawEntry] = []

    def read(self, file: BinaryIO) -> StatementReport:
        digest = hashlib.sha256()
        has_ended, number = False, 0
        for number, line in enumerate(file, 1):
            if has_ended:
                self.findings.add(f"line {number}: comes after the end")
                break
            try:
                entry = _ENTRY.fullmatch(line)
                if entry and number > 1:
                    self._entry(int(entry[1]), entry[2])
                elif number == 1:
                    self._header(_record(line))
                else:
                    has_ended = self._other(number, line, digest.digest())
            except MalformedEntry as malformed:
                self.findings.add(f"line {number}: {malformed}")
                if not entry:
                    break  # nothing after it can be trusted to be where it was
            digest.update(line)
        if not has_ended:
            self.findings.add(f"line {number}: the statement is not whole: its signed end is missing")
        return self._report()

    def _header(self, record: dict[str, Any]) -> None:
        if record.get("lapwing") != "statement" or record.get("version") != STATEMENT_VERSION:
            raise MalformedEntry(f"is not a statement of version {STATEMENT_VERSION}")
        fields = (("ledger", 32), ("key", 64), ("curator", 64))
        if set(record) != {"lapwing", "version", *(name for name, _ in fields)} or not all(
            is_hex(record[name], letters) for name, letters in fields
        ):
            raise MalformedEntry("is not the header of a statement")
        self.ledger_id, self.key, self.curator = (bytes.fromhex(record[name]) for name, _ in fields)
        if self.wanted_key is not None and self.key != self.wanted_key:
            self.findings.add("the statement is signed with another key than the one that was given")

    def _entry(self, seq: int, body: bytes) -> None:
        if self.labels.count:
            raise MalformedEntry("is an entry after names")
        self.batch.append((seq, body, digest_of(body)))
        if len(self.batch) >= BATCH:
            self._feed()

    def _feed(self) -> None:
        self.replay.feed(self.batch)
        self.tree.extend([digest for _, _, digest in self.batch])
        self.batch.clear()

    def _other(self, number: int, line: bytes, digest: bytes) -> bool:
        """Read a seal, a name or the end. Return whether it is the end."""
        record = _record(line)
        self._feed()
        if set(record) == {"seal"}:
            self._seal(number, head_of(record["seal"]))
        elif set(record) == {"name", "salt", "label"}:
            if self.head is None or self.head.size != self.tree.size:
                raise MalformedEntry("is a name before the last seal")
            self.labels.add(record["name"], record["salt"], record["label"])
        elif set(record) == {"end", "signature"}:
            self._end(record, digest)
            return True
        else:
            raise MalformedEntry("is of no known form")
        return False

    def _seal(self, number: int, head: Head) -> None:
        if self.labels.count:
            raise MalformedEntry("is a seal after names")
        before = self.head.number if self.head else 0
        signed = seals.digest_of_seal(self.ledger_id, head)
        follows = (head.number, head.previous) == (before + 1, self.previous)
        sealed = (head.last, head.size, head.root) == (self.replay.last, self.tree.size, self.tree.root)
        problems = {
            "does not follow the seal before it": follows,
            "does not seal the entries before it": sealed,
            "has a wrong signature": good_signature(self.key, signed, head.signature),
        }
        for problem, is_good in problems.items():
            if not is_good:
                self.findings.add(f"line {number}: seal {head.number} {problem}")
        self.head, self.previous = head, signed

    def _end(self, record: dict[str, Any], digest: bytes) -> None:
        signature = record["signature"]
        if not is_hex(signature, 128) or record["end"] != digest.hex():
            self.findings.add("the statement is not what was signed: some byte before its end was changed")
        elif not good_signature(self.key, _end_message(self.ledger_id, digest), bytes.fromhex(signature)):
            self.findings.add("the end of the statement has a wrong signature")
        if self.head is None or self.head.size != self.tree.size:
            self.findings.add("the statement does not end at a seal")

    def _report(self) -> StatementReport:
        self._feed()
        replay = self.replay
        for difference in replay.finish():
            self.findings.add(difference)
        said = (self.ledger_id.hex(), self.key, self.curator)
        if said != (replay.ledger, replay.key, replay.curator):
            self.findings.add("the first entry names another ledger or other keys than the header")
        self.labels.finish()
        findings = self.findings.all()
        return StatementReport.of(replay, self.ledger_id.hex(), self.key.hex(), findings, self.head)


def _record(line: bytes) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise MalformedEntry("does not end")
    record = parsed(line[:-1])
    if not isinstance(record, dict):
        raise MalformedEntry("is of no known form")
    return record


def seal_fields(head: Head) -> list[int | str]:
    """Return a head as it stands in statements and proofs."""
    return [head.number, head.last, head.size, head.root.hex(), head.previous.hex(), head.signature.hex()]


def head_of(fields: Any) -> Head:
    """Return the head of the fields of a seal."""
    if not isinstance(fields, list) or len(fields) != 6:
        raise MalformedEntry("is not a seal")
    number, last, size, root, previous, signature = fields
    numbers = all(map(is_whole, (number, last, size)))
    if not numbers or not (is_hex(root, 64) and is_hex(previous, 64) and is_hex(signature, 128)):
        raise MalformedEntry("is not a seal")
    return Head(number, last, size, bytes.fromhex(root), bytes.fromhex(previous), bytes.fromhex(signature))


PROOF_VERSION = 1
_PROOF = b"lapwing proof\x00"
_FIELDS = ("lapwing", "version", "ledger", "key", "entry", "index", "body", "path", "seal", "signature")


def make_proof(source: StatementSource, seq: int) -> dict[str, Any]:
    """Return a proof that entry `seq` is in the ledger, up to its last seal."""
    numbered = enumerate(source.entries())
    place, body = next(((index, body) for index, (number, body, _) in numbered if number == seq), (0, None))
    *_, head = (None, *source.heads())  # the last one, if there is one
    if body is None or head is None or place >= head.size:
        raise BadParameter("entry", "there is no sealed entry of this number")
    path = seals.inclusion_proof((digest for _, _, digest in source.entries()), place, head.size)
    proof: dict[str, Any] = {
        "lapwing": "proof",
        "version": PROOF_VERSION,
        "ledger": source.ledger_id.hex(),
        "key": source.signing.public.hex(),
        "entry": seq,
        "index": place,
        "body": body.decode("ascii"),
        "path": [digest.hex() for digest in path],
        "seal": seal_fields(head),
    }
    return proof | {"signature": source.signing.sign(_message(proof)).hex()}


def _message(proof: dict[str, Any]) -> bytes:
    """Return the signed message: all of the proof but its signature.

    No digest covers the entry's number.
    """
    said = {name: proof[name] for name in _FIELDS[:-1]}
    return _PROOF + hashlib.sha256(encode(said)).digest()


def verify_proof(proof: dict[str, Any], *, key: bytes | None) -> StatementReport:
    """Check a proof. `key` is the ledger's public key, from another source (as for statements)."""
    findings = Findings()
    head = None
    try:
        _check_form(proof)
        head = head_of(proof["seal"])
        ledger_id, own = bytes.fromhex(proof["ledger"]), bytes.fromhex(proof["key"])
        body = proof["body"].encode("ascii")
        path = [bytes.fromhex(digest) for digest in proof["path"]]
        read(body)
    except (MalformedEntry, UnicodeEncodeError) as error:
        is_form = isinstance(error, MalformedEntry)
        findings.add(f"the proof {error}" if is_form else "the proof is not plain text")
        return StatementReport("", "", 0, findings.all())
    signature, sealed = bytes.fromhex(proof["signature"]), seals.digest_of_seal(ledger_id, head)
    is_included = seals.check_inclusion(digest_of(body), proof["index"], head.size, path, head.root)
    problems = {
        "the proof is signed with another key than the one that was given": key in (None, own),
        "the proof has a wrong signature": good_signature(own, _message(proof), signature),
        "the seal has a wrong signature": good_signature(own, sealed, head.signature),
        "the entry is not in the sealed tree": is_included,
        "the entry has a number after the seal's last": proof["entry"] <= head.last,
    }
    for problem, is_good in problems.items():
        if not is_good:
            findings.add(problem)
    return StatementReport(ledger_id.hex(), own.hex(), 1, findings.all(), head=head)


def _check_form(proof: Any) -> None:
    if not isinstance(proof, dict) or set(proof) != set(_FIELDS):
        raise MalformedEntry("has other fields than a proof has")
    version = proof["version"]
    if proof["lapwing"] != "proof" or type(version) is not int or version != PROOF_VERSION:
        raise MalformedEntry(f"is not of version {PROOF_VERSION}")
    if not (is_hex(proof["ledger"], 32) and is_hex(proof["key"], 64) and is_hex(proof["signature"], 128)):
        raise MalformedEntry("has a bad ledger, key or signature")
    if not (is_whole(proof["entry"]) and is_whole(proof["index"]) and isinstance(proof["body"], str)):
        raise MalformedEntry("has a bad entry, index or body")
    if not isinstance(proof["path"], list) or not all(is_hex(digest, 64) for digest in proof["path"]):
        raise MalformedEntry("has a bad path")
