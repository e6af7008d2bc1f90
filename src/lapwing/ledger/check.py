"""The check of a ledger: all tables against the entries, and the entries against the anchors.

Claim    a ledger whose state was edited, or that was truncated or restored from an older copy, is not
         opened. Edits to older entries, keys and answers are found by `verify`, and when they are read.
Because  the digests of the entries are the leaves of the sealed tree, and the anchors have its newest head
         and the marks after it. All other tables must say exactly what the entries say. Opening continues
         from the newest signed state (store.py); verifying begins at the first entry.
Test     tests/faults/test_ledger_tampering.py
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from operator import itemgetter, sub

from lapwing.errors import Tampered
from lapwing.ledger.accountant.balance import Findings
from lapwing.ledger.accountant.replay import FAILED, Replay, state_bytes
from lapwing.ledger.accounts import ACCOUNT_COLUMNS, EVERYONE
from lapwing.ledger.anchors import Anchor, Head, Mark
from lapwing.ledger.entry import KEPT, commitment, is_outcome, request_of
from lapwing.ledger.schema import DATA_COLUMNS, columns
from lapwing.ledger.seals import NOTHING_BEFORE, MerkleTree, Seal, digest_of_seal
from lapwing.ledger.store import Catalogue, Row, SignedState, Store, Transaction, differing, seals_where
from lapwing.ledger.unit_ids import untagged

AT_ONCE = 1 << 14
BELOW_ALL = -(1 << 62)  # a seal that an editor numbered 0 is read, too
AnchorContent = tuple[str, tuple[Mark | Head, ...]]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of a check, and the accountant's state that it rebuilt."""

    findings: tuple[str, ...]
    replay: Replay
    anchors: tuple[str, ...]
    whole: SignedState | None  # the state after a replay from the first entry; else None


def check(
    store: Store, public: bytes, anchors: Sequence[Anchor], *, thorough: bool, people: bytes | None = None
) -> CheckReport:
    """Check a ledger from its newest signed state on; all of it without such a state, or if `thorough`.

    `thorough` adds every seal's signature and every stored answer. With the key `people`, the stored
    sketches of unit ids are checked too.
    """
    findings = Findings()
    # The anchors are read before the database: it must have all marked entries, and may have more.
    known = _read(anchors, findings)
    made = store.catalogue_as_made()
    if made is None and thorough:
        findings.add("its tables cannot be compared with what they should be: grant CREATE on the database")
    state, after = SignedState(), 0
    not_signed: list[str] = []

    def work(tx: Transaction) -> None:
        nonlocal state, after
        if made is not None:
            _compare_catalogue(made, store.catalogue(tx), findings)
        signed = _signed_state(tx, public, not_signed)
        if signed is not None and not thorough:
            state, after = signed, signed.replay.last
        _history(tx, state, findings, thorough=thorough)
        for anchor in known:
            _compare_anchor(tx, anchor, state.replay, findings)
        _compare_tables(tx, state.replay, findings, after)
        if thorough:
            _compare_answers(tx, findings)
            _compare_state(tx, signed, state.replay, findings)
        if people is not None:
            _compare_people(tx, state.replay, people, findings)

    try:
        store.read(work)
    except (ValueError, TypeError, OverflowError) as error:  # an editor's values fit no form
        findings.add(f"some values do not have the form that Lapwing writes ({type(error).__name__})")
    replay = state.replay
    for text in not_signed if replay.key == public else ["the ledger belongs to other keys"]:
        findings.add(text)
    differences = (*findings.all(), *replay.finish())
    return CheckReport(differences, replay, tuple(where for where, _ in known), None if after else state)


def _read(anchors: Sequence[Anchor], findings: Findings) -> list[AnchorContent]:
    known: list[AnchorContent] = []
    for place, anchor in enumerate(anchors):
        if anchor.exists():
            known.append((anchor.where, anchor.read()))
            if place == 0 and not known[0][1]:  # a witness may have been made a moment before a crash
                findings.add(f"the anchor {anchor.where} is empty")
        else:
            findings.add(f"the anchor {anchor.where} is missing")
    return known


def _signed_state(tx: Transaction, public: bytes, not_signed: list[str]) -> SignedState | None:
    try:
        return SignedState.read(tx, public)
    except Tampered as tampered:
        not_signed.extend(tampered.found)
        return None


def _history(tx: Transaction, state: SignedState, findings: Findings, *, thorough: bool) -> None:
    """Replay all entries after the state, and compare the seals."""
    replay, tree, last = state.replay, state.tree, state.seal
    number, previous = (last.number, last.digest) if last else (0, NOTHING_BEFORE)
    seals = iter(seals_where(tx, "number > ? ORDER BY number", number if last else BELOW_ALL))
    seal = next(seals, None)
    entries = tx.history(replay.last)
    while some := list(islice(entries, AT_ONCE)):
        replay.feed(some)
        start = 0
        while seal is not None and seal.last <= some[-1][0]:
            end = bisect_right(some, seal.last, lo=start, key=itemgetter(0))  # numbers have gaps
            tree.extend([digest for _, _, digest in some[start:end]])
            number += 1
            _compare_seal(seal, tree, replay, findings, number=number, previous=previous)
            if thorough and not seal.is_signed_by(replay.key, bytes.fromhex(replay.ledger)):
                findings.add(f"seal {seal.number} is not signed by this ledger")
            start, previous, last, seal = end, seal.digest, seal, next(seals, None)
        tree.extend([digest for _, _, digest in some[start:]])
    if seal is not None:
        findings.add(f"entries up to number {seal.last} were sealed, but the last one is {replay.last}")
    if last is None and replay.entries > 1:  # the first entry is sealed before there is a second
        findings.add("nothing of it is sealed")
    if last is not None and not last.is_signed_by(replay.key, bytes.fromhex(replay.ledger)):
        findings.add("the last seal is not signed by this ledger")


def _compare_seal(
    seal: Seal, tree: MerkleTree, replay: Replay, findings: Findings, *, number: int, previous: bytes
) -> None:
    if (seal.number, seal.size, seal.root, seal.frontier) != (number, tree.size, tree.root, tree.frontier):
        findings.add(f"the entries up to number {seal.last} are not those that were sealed")
    if seal.previous != previous:
        findings.add(f"seal {seal.number} does not follow the one before it")
    if seal.digest != digest_of_seal(bytes.fromhex(replay.ledger), seal):
        findings.add(f"seal {seal.number} is not what its digest says")


def _compare_anchor(tx: Transaction, anchor: AnchorContent, replay: Replay, findings: Findings) -> None:
    """Compare an anchor: it may know less than the ledger, but nothing else and nothing more."""
    where, lines = anchor
    for line in differing(tx, lines, replay.lost_up_to):
        if line.last > replay.last:
            findings.add(
                f"the anchor {where} knows entry {line.last}, but the ledger ends at {replay.last}: "
                "this is an older copy, or entries were removed"
            )
        else:
            findings.add(f"the anchor {where} knows another entry {line.last} than the ledger")


def _compare_catalogue(made: Catalogue, stored: Catalogue, findings: Findings) -> None:
    """Compare the definitions of tables and triggers: without its triggers the database guards nothing."""
    tables = {table for table, _ in made}
    for table, part in sorted(made.keys() | stored.keys()):
        of = f" of {table}" if table else ""
        if (table, part) not in stored:
            findings.add(f"the {part}{of} is missing")
        elif (table, part) not in made:
            if table in tables:
                findings.add(f"the {part}{of} is none of the ledger's")
        elif stored[table, part] != made[table, part]:
            findings.add(f"the {part}{of} is not as it was made")


def _compare_state(tx: Transaction, signed: SignedState | None, replay: Replay, findings: Findings) -> None:
    """Compare the state that continues from the signed one with the state from the whole history."""
    if signed is not None:
        signed.replay.feed(tx.history(signed.replay.last))
        if state_bytes(signed.replay) != state_bytes(replay):
            findings.add("the signed state is not what the entries say")


# The other tables follow from the entries


def _compare_tables(tx: Transaction, replay: Replay, findings: Findings, after: int) -> None:
    """Compare all tables; if the replay began after an entry, only those that decide later charges."""
    _compare_blocks(tx, replay, findings)
    _compare("account", _accounts(replay), tx.rows(f"SELECT {ACCOUNT_COLUMNS} FROM accounts"), findings)  # noqa: S608
    reserved = [
        (number, account, json.dumps(ranges), int(is_fixed), int(has_ended), steps, *total, *used)
        for number, account, ranges, is_fixed, has_ended, steps, total, used in replay.reservations
        if not (after and has_ended)
    ]
    names = f"reservation, account, ranges, fixed, ended, steps, {columns('total')}, {columns('used')}"
    which = " WHERE ended = 0" if after else ""
    _compare("reservation", reserved, tx.rows(f"SELECT {names} FROM reservations{which}"), findings)  # noqa: S608
    _compare_data(tx, replay, findings)
    if not after:
        _compare_principals(tx, replay, findings)
        _compare_requests(tx, findings)
    _compare_keys(tx, replay, findings, after)


def _compare_blocks(tx: Transaction, replay: Replay, findings: Findings) -> None:
    blocks = tx.stream("SELECT block, account, root, name, label, salt FROM blocks ORDER BY block")
    budgets = tx.stream(
        f"SELECT block, account, state, {columns('left')}, {columns('held')} FROM budgets ORDER BY block"  # noqa: S608
    )
    for mine, name, row, budget in zip_longest(replay.blocks(), replay.balances.names(), blocks, budgets):
        if mine is None or row is None or budget is None:
            findings.add(f"block {(mine or row or budget)[0]} is not as the entries say")
            continue
        number, account, state, spent, held = mine
        owner = replay.accounts[account]
        left = map(sub, owner.caps, spent)
        if (number, account, owner.root) != row[:3] or (number, account, state, *left, *held) != budget:
            findings.add(f"block {number} is not as the entries say")
        # Everyone has one label in all accounts, and so none of its own in the entries.
        named = row[4] == EVERYONE if number == owner.everyone else row[3] == name
        if not named or commitment(row[4], bytes(row[5])) != row[3]:
            findings.add(f"block {number} was renamed")


def _compare_principals(tx: Transaction, replay: Replay, findings: Findings) -> None:
    unknown = {name.decode() for name in replay.registers.names}
    unknown -= {opened.name for opened in replay.accounts.values()}
    for data in replay.registers.datasets.values():
        unknown -= {data.name, data.origin}
    for name, label, salt in tx.stream("SELECT name, label, salt FROM principals"):
        unknown.discard(name)
        if commitment(label, bytes(salt)) != name:
            findings.add(f"principal {name} was renamed")
    for name in sorted(unknown):
        findings.add(f"principal {name} is missing")


def _compare_keys(tx: Transaction, replay: Replay, findings: Findings, after: int) -> None:
    """Compare the keys by which requests are found again, and the outcomes of charges."""
    keys = tx.stream(f"SELECT seq, key FROM entries WHERE seq > {after} AND key IS NOT NULL ORDER BY seq")  # noqa: S608
    number = _first_difference(replay.outcomes.keys(), ((seq, bytes(key)) for seq, key in keys))
    if number is not None:
        findings.add(f"the key of entry {number} is not the one that it says")
    sql = f"SELECT charge, entry, bytes IS NULL FROM answers WHERE charge > {after} ORDER BY charge"  # noqa: S608
    stored = ((charge, entry, bool(failed)) for charge, entry, failed in tx.stream(sql))
    number = _first_difference(replay.outcomes.ended_charges(), stored)
    if number is not None:
        findings.add(f"the outcome of charge {number} is not as the entries say")
    sql = "SELECT entry, bytes IS NULL FROM answers WHERE charge = ?"
    for entry, charge, outcome in replay.outcomes.later_outcomes:
        if tx.rows(sql, charge) != [(entry, outcome == FAILED)]:
            findings.add(f"the outcome of charge {charge} is not as the entries say")


def _first_difference(mine: Iterator[Row], stored: Iterator[Row]) -> int | None:
    """Return the least number, which comes first in a row, where two lists of rows differ."""
    for expected, actual in zip_longest(mine, stored):
        if expected != actual:
            return int(min(row[0] for row in (expected, actual) if row))
    return None


def _accounts(replay: Replay) -> Iterator[Row]:
    for opened in replay.accounts.values():
        yield (
            opened.number, opened.root, opened.name, opened.unit, opened.relation, str(opened.epsilon),
            str(opened.delta), json.dumps(opened.orders), opened.slices, opened.rule, opened.everyone,
            opened.raises,
        )  # fmt: skip


def _compare(what: str, expected: Iterable[Row], rows: Iterable[Row], findings: Findings) -> None:
    """Compare rows by their first two columns. Label and salt of an account must give its name."""
    mine = {row[:2]: row for row in expected}
    for row in rows:
        compared = row
        if what == "account":
            name, label, salt = row[2:5]
            compared = (*row[:3], *row[5:])
            if commitment(label, bytes(salt)) != name:
                findings.add(f"account {row[0]} was renamed")
        if mine.pop(row[:2], None) != compared:
            findings.add(f"{what} {row[0]} is not as the entries say")
    for key in mine:
        findings.add(f"{what} {key[0]} is missing")


def _compare_data(tx: Transaction, replay: Replay, findings: Findings) -> None:
    known = dict(replay.registers.datasets)
    for row in tx.rows(f"SELECT {DATA_COLUMNS} FROM datasets"):  # noqa: S608
        number, name, label, salt, origin_name, origin, origin_salt, rule, accounts, version = row
        mine = known.pop(number, None)
        if mine is None or (mine.name, mine.origin, mine.rule, json.dumps(mine.accounts), mine.version) != (
            name, origin_name, rule, accounts, version,
        ):  # fmt: skip
            findings.add(f"data set {number} is not as the entries say")
        if (commitment(label, bytes(salt)), commitment(origin, bytes(origin_salt))) != (name, origin_name):
            findings.add(f"data set {number} was renamed")
    for number in known:
        findings.add(f"data set {number} is missing")
    sketches = set(tx.rows("SELECT data, version FROM sketches"))
    for data in replay.registers.datasets.values():
        wanted = {(data.number, version + 1) for version in range(data.version)}
        if not wanted <= sketches:
            findings.add(f"the people of data set {data.number} are not all known any more")
        sketches -= wanted
    for number, version in sorted(sketches):
        findings.add(f"data set {number} has people of a version {version} that it never had")


def _compare_people(tx: Transaction, replay: Replay, key: bytes, findings: Findings) -> None:
    for number, version, content in tx.stream("SELECT data, version, bytes FROM sketches"):
        data = replay.registers.datasets.get(number)
        try:
            untagged(bytes(content), key, data.name if data else "", version)
        except Tampered:
            findings.add(f"what is known of the people of data set {number} was changed")


def _compare_requests(tx: Transaction, findings: Findings) -> None:
    """Compare every stored request with the digest in its entry, and find missing ones."""
    kept = set()
    sql = "SELECT charge, requests.key, asked, body FROM requests LEFT JOIN entries ON seq = charge"
    for charge, key, asked, body in tx.stream(sql):
        kept.add(charge)
        try:
            request_of(key, bytes(asked), json.loads(bytes(body)) if body is not None else {})
        except Tampered:
            findings.add(f"what charge {charge} was for is not what was asked")
    for seq, body in tx.stream("SELECT seq, body FROM entries"):
        if KEPT in bytes(body) and seq not in kept:
            findings.add(f"what charge {seq} was for is missing")


def _compare_answers(tx: Transaction, findings: Findings) -> None:
    """Compare every stored answer with the digest in its entry."""
    sql = "SELECT charge, bytes, body FROM answers LEFT JOIN entries ON seq = entry"
    for charge, answer, body in tx.stream(sql):
        record = json.loads(bytes(body)) if body is not None else {}
        if not is_outcome(record, charge, answer):
            findings.add(f"the answer to charge {charge} is not the one that was stored")
