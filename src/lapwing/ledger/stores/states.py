"""Signed states: the books up to a seal, so that opening need not begin at the first entry.

Claim    opening from a state accepts the same tables, and the same entries after it, as a replay of all of
         history, if the entries up to its seal are those that were sealed.
Because  a state is written only from the one before (or from a replay of everything, or from nothing) and
         the entries since, which must have the root that its seal signs; it is never taken from the
         tables. It is signed together with the digest of that seal.
Test     tests/ledger/test_states.py, tests/faults/test_ledger_tampering.py
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.accountant.state import OtherForm, books_of, replay_from
from lapwing.ledger.keys import SigningKey, good_signature
from lapwing.ledger.proofs.seal import Seal
from lapwing.ledger.proofs.tree import Tree
from lapwing.ledger.stores.transaction import SEAL_COLUMNS, Transaction, seal_of


@dataclass(slots=True)
class State:
    """The books after the leaves of a tree, and the seal that signed its root, if they come from one."""

    replay: Replay = field(default_factory=Replay)
    tree: Tree = field(default_factory=Tree)
    seal: Seal | None = None


def _message(seal: Seal, books: bytes) -> bytes:
    return b"lapwing state\x00" + seal.digest + hashlib.sha256(books).digest()


def read_state(tx: Transaction, public: bytes) -> State | None:
    """The newest signed state, or None if there is none of this form.

    Raises `Tampered` if it is not what was signed.
    """
    rows = tx.rows(
        f"SELECT {SEAL_COLUMNS}, books, state_signature FROM states JOIN seals USING (number)"  # noqa: S608
    )
    if not rows:
        return None
    *sealed, content, signature = rows[0]
    seal, books = seal_of(tuple(sealed)), bytes(content)
    wrong = Tampered([f"the state at seal {seal.number} is not the one that was signed"])
    if not good_signature(public, _message(seal, books), bytes(signature)):
        raise wrong
    try:
        state = State(replay_from(books), Tree.restore(seal.size, seal.frontier), seal)
    except BadParameter:
        raise wrong from None
    except OtherForm:
        return None
    if (
        not seal.is_signed_by(public, bytes.fromhex(state.replay.ledger))
        or state.tree.root != seal.root
        or (state.replay.last, state.replay.entries) != (seal.last, seal.size)
    ):
        raise wrong
    return state


def keep_state(tx: Transaction, seal: Seal, signing: SigningKey, state: State | None = None) -> None:
    """Sign the state at a seal: the newest one, or what was just replayed, and all entries since.

    Where that leads nowhere (entries that do not follow, books that are too large) there is no state any
    more, and the next opening replays everything.
    """
    if tx.rows("SELECT 1 FROM states JOIN seals USING (number) WHERE number = ?", seal.number):
        return
    try:
        state = state or read_state(tx, signing.public)
    except Tampered:
        return  # the next opening says so
    if state is None or state.replay.last > seal.last:
        return
    further = "SELECT seq, body, digest FROM entries WHERE seq > ? AND seq <= ? ORDER BY seq"
    rows = [
        (seq, bytes(body), bytes(digest))
        for seq, body, digest in tx.rows(further, state.replay.last, seal.last)
    ]
    state.replay.feed(rows)
    state.tree.extend([digest for _, _, digest in rows])
    is_sealed = (state.tree.size, state.tree.root) == (seal.size, seal.root)
    books = books_of(state.replay) if is_sealed and not state.replay.finish() else None
    tx.run("DELETE FROM states")
    if books is not None:
        tx.run(
            "INSERT INTO states (number, books, state_signature) VALUES (?, ?, ?)",
            seal.number, books, signing.sign(_message(seal, books)),
        )  # fmt: skip


def is_as_sealed(tx: Transaction, entry: int, public: bytes, ledger_id: bytes) -> bool:
    """Tell whether an entry is the one that some seal signed; one that is not sealed yet passes.

    Seals are few hundred entries apart: their leaves and what the seal before left give the signed root.
    """
    [(newest,)] = tx.rows("SELECT coalesce(max(number), 0) FROM seals")
    low, high = 1, int(newest) + 1  # the first seal that covers the entry, or `high`
    while low < high:
        middle = (low + high) // 2
        covers = bool(tx.rows("SELECT 1 FROM seals WHERE number = ? AND last >= ?", middle, entry))
        low, high = (low, middle) if covers else (middle + 1, high)
    if low > newest:
        return True
    rows = tx.rows(
        f"SELECT {SEAL_COLUMNS} FROM seals WHERE number IN (?, ?) ORDER BY number",  # noqa: S608
        low - 1, low,
    )  # fmt: skip
    *before, seal = [seal_of(row) for row in rows]
    last, tree = 0, Tree()
    try:
        if before:
            last, tree = before[0].last, Tree.restore(before[0].size, before[0].frontier)
        leaves = tx.rows(
            "SELECT digest FROM entries WHERE seq > ? AND seq <= ? ORDER BY seq", last, seal.last
        )
        tree.extend([bytes(digest) for (digest,) in leaves])
    except BadParameter:
        return False
    is_root = (tree.size, tree.root) == (seal.size, seal.root)
    return is_root and last < entry <= seal.last and seal.is_signed_by(public, ledger_id)
