"""Data sets: which accounts they spend from, and which version of them is asked about.

Claim    data about people whom the ledger knows spends from the account that knows them, whatever the
         data is called now.
Because  a data set is known by its declared origin and by keyed hashes of its unit ids, which are
         compared with those of all others; any overlap joins the old account, unless the curator signs
         that the people differ, which every statement then shows.
Test     tests/ledger/test_data.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lapwing.errors import BadParameter
from lapwing.ledger.accounts import Account, Slices
from lapwing.ledger.entry import Name, checked_label, encode, now
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.people import Ids, Sketch, tagged, untagged
from lapwing.ledger.stores.transaction import Transaction

NO_DIFFERENCE: tuple[str, ...] = ()
_REGISTERED = b'{"kind":"data",'  # how the entry of a new data set begins


@dataclass(frozen=True, slots=True)
class DataSet:
    """Registered data: its accounts, and a public counter of its versions."""

    number: int
    name: Name
    origin: Name
    rule: str
    accounts: tuple[int, ...]  # the first accounts of their families
    version: int

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name.label


def register(
    ledger: Ledger,
    label: str,
    *,
    origin: str,
    account: str,
    units: Ids,
    rule: str = "",
    people_differ_from: Sequence[str] = NO_DIFFERENCE,
    curator: CuratorKey | None = None,
) -> DataSet:
    """Register data under an account. It also joins the accounts of all data about the same people.

    `rule` says how the data's units are sliced into blocks; only data with the account's own rule can
    be charged by block. `people_differ_from` names accounts whose people the curator signs to be others.
    """
    label, origin = checked_label(label, "data set"), checked_label(origin, "origin")
    rule = checked_label(rule, "rule") if rule else ""  # in the same form as the account's
    own = ledger.account(account)
    others = _differences(ledger, people_differ_from, curator)
    sketch = Sketch.of(units, ledger.keys.people)
    ledger.require_here()

    def work(tx: Transaction) -> DataSet:
        known = _all(tx)
        if any(data.label == label for data in known):
            raise BadParameter("data set", "there is one of this name: append to it")
        number = 1 + max((data.number for data in known), default=0)
        joined = {own.number} | {
            root for data in known if data.origin.label == origin for root in data.accounts
        }
        joined |= _meets(tx, ledger, sketch, known, set(others))
        name, origin_name = Name.new(label), Name.new(origin)
        data = DataSet(number, name, origin_name, rule, tuple(sorted(joined)), 1)
        tx.run(
            "INSERT INTO datasets (data, name, label, salt, origin_name, origin, origin_salt, rule, "
            "accounts, version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            number, name.id, label, name.salt, origin_name.id, origin, origin_name.salt, rule,
            json.dumps(data.accounts), 1,
        )  # fmt: skip
        _keep(tx, ledger, data, sketch)
        tx.append(
            encode(
                {
                    "kind": "data",
                    **_body(ledger, data, others, curator),
                    "origin": origin_name.id,
                    "rule": rule,
                }
            )
        )
        return data

    return ledger.store.write(work)


def append(
    ledger: Ledger,
    label: str,
    *,
    units: Ids,
    people_differ_from: Sequence[str] = NO_DIFFERENCE,
    curator: CuratorKey | None = None,
) -> DataSet:
    """A new version: after every append or new preparation, also an empty one."""
    others = _differences(ledger, people_differ_from, curator)
    sketch = Sketch.of(units, ledger.keys.people)
    ledger.require_here()

    def work(tx: Transaction) -> DataSet:
        known = _all(tx)
        data = _named(known, label)
        strangers = [other for other in known if other.number != data.number]
        joined = set(data.accounts) | _meets(tx, ledger, sketch, strangers, set(others))
        after = replace(data, accounts=tuple(sorted(joined)), version=data.version + 1)
        tx.run(
            "UPDATE datasets SET accounts = ?, version = ? WHERE data = ?",
            json.dumps(after.accounts), after.version, after.number,
        )  # fmt: skip
        _keep(tx, ledger, after, sketch)
        tx.append(encode({"kind": "version", **_body(ledger, after, others, curator)}))
        return after

    return ledger.store.write(work)


def find(ledger: Ledger, label: str) -> DataSet:
    """The data set of this name, as it is now."""
    return _named(ledger.store.read(_all), label)


def known_before(ledger: Ledger, position: int) -> list[DataSet]:
    """The data sets, as they are now, that were registered before an entry."""
    later = "SELECT body FROM entries WHERE seq > ? AND substr(body, 1, ?) = ?"

    def work(tx: Transaction) -> list[DataSet]:
        known = _all(tx)
        if len(known) == 1:  # nothing to tell apart, and history is long
            return known
        rows = tx.rows(later, position, len(_REGISTERED), _REGISTERED)
        after = {json.loads(bytes(body))["data"] for (body,) in rows}
        return [data for data in known if data.number not in after]

    return ledger.store.read(work)


def has_everybody(ledger: Ledger, label: str, *, units: Ids) -> bool:
    """Whether these units hold all whom any version of the data set had, as far as sketches tell."""
    data, sketch = find(ledger, label), Sketch.of(units, ledger.keys.people)
    sql = "SELECT bytes FROM sketches WHERE data = ? AND version = ?"

    def known(version: int) -> Sketch:
        [(content,)] = ledger.store.read(lambda tx: tx.rows(sql, data.number, version))
        return untagged(bytes(content), ledger.keys.people, data.name.id, version)

    return all(sketch.holds(known(version)) for version in range(1, data.version + 1))  # one at a time


def spends_by_block(data: DataSet, account: Account) -> bool:
    """Whether its releases may be charged to single blocks of the account; otherwise to everyone."""
    return account.slices is not Slices.NONE and account.rule == data.rule


def _differences(ledger: Ledger, labels: Sequence[str], curator: CuratorKey | None) -> list[int]:
    if isinstance(labels, str):
        raise BadParameter("people_differ_from", "must be several names, not one text")
    if labels and (curator is None or curator.public != ledger.curator):
        raise BadParameter("curator", "that people differ must be signed with the curator's key")
    return sorted({ledger.account(label).number for label in labels})


def _meets(
    tx: Transaction, ledger: Ledger, sketch: Sketch, known: Iterable[DataSet], differ: set[int]
) -> set[int]:
    """The accounts of all data about people of this sketch, but those signed to be about others."""
    met: set[int] = set()
    for data in known:
        if not set(data.accounts) - differ - met:
            continue
        for version, content in tx.rows("SELECT version, bytes FROM sketches WHERE data = ?", data.number):
            kept = untagged(bytes(content), ledger.keys.people, data.name.id, version)
            if kept.overlaps(sketch):
                met |= set(data.accounts) - differ
                break
    return met


def _body(
    ledger: Ledger, data: DataSet, others: list[int], curator: CuratorKey | None
) -> dict[str, object]:
    signed = []
    for account in others:
        assert curator is not None
        signed.append([account, curator.sign(difference(ledger.id, data.name.id, account)).hex()])
    return {
        "at": now(),
        "data": data.number,
        "name": data.name.id,
        "accounts": data.accounts,
        "same_rule": [spends_by_block(data, ledger.numbered(root)) for root in data.accounts],
        "version": data.version,
        "differ": signed,
    }


def difference(ledger_id: str, data_name: str, account: int) -> bytes:
    """What the curator signs: the people of this data are not those of that account."""
    return encode({"ledger": ledger_id, "data": data_name, "account": account, "people": "differ"})


def _keep(tx: Transaction, ledger: Ledger, data: DataSet, sketch: Sketch) -> None:
    content = tagged(sketch, ledger.keys.people, data.name.id, data.version)
    tx.run(
        "INSERT INTO sketches (data, version, bytes) VALUES (?, ?, ?)", data.number, data.version, content
    )


def _all(tx: Transaction) -> list[DataSet]:
    rows = tx.rows(
        "SELECT data, name, label, salt, origin_name, origin, origin_salt, rule, accounts, version "
        "FROM datasets ORDER BY data"
    )
    return [
        DataSet(
            number, Name(label, bytes(salt), name), Name(origin, bytes(origin_salt), origin_name), rule,
            tuple(json.loads(accounts)), version,
        )
        for number, name, label, salt, origin_name, origin, origin_salt, rule, accounts, version in rows
    ]  # fmt: skip


def _named(known: Iterable[DataSet], label: str) -> DataSet:
    wanted = checked_label(label, "data set")
    for data in known:
        if data.label == wanted:
            return data
    raise BadParameter("data set", "is not known to this ledger")
