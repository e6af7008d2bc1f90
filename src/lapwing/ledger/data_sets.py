"""Data sets: which accounts they are charged to. `ledger.registry` compares data of different ledgers.

Claim    data about people whom the ledger knows is charged to the account that knows them, whatever the
         data is called now.
Because  a data set is known by its declared origin and by keyed hashes of its unit ids, which are
         compared with those of all others. Any overlap joins the old account, unless the curator signs
         that the people differ, which every statement then shows.
Test     tests/ledger/test_data_sets.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lapwing.config.values import checked_label
from lapwing.errors import BadParameter
from lapwing.ledger.accounts import Account, Slices
from lapwing.ledger.entry import CommittedName, encode, now
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.openings import ChangedMeanwhile, OpenedMeanwhile, PlannedData
from lapwing.ledger.schema import DATA_COLUMNS
from lapwing.ledger.store import Transaction
from lapwing.ledger.unit_ids import Ids, Sketch, tagged, untagged

NO_DIFFERENCE: tuple[str, ...] = ()
_REGISTERED = b'{"kind":"data",'  # how the entry of a new data set begins


@dataclass(frozen=True, slots=True)
class DataSet:
    """A registered data set: its accounts, and a public counter of its versions.

    Args:
        number: the data set's number in the ledger.
        name: the name, and the commitment to it that entries show.
        origin: the name of the place that the data comes from.
        rule: how the data's units are divided into blocks.
        accounts: the numbers of the accounts that its releases are charged to.
        version: a counter of its versions, from 1.

    Example:
        >>> from lapwing.ledger import register
        >>> data = register(ledger, "visits", origin="hospital", account="patients", units=["ann", "ben"])
        >>> data.label, data.version
        ('visits', 1)
    """

    number: int
    name: CommittedName
    origin: CommittedName
    rule: str
    accounts: tuple[int, ...]  # the first accounts of their families
    version: int

    @property
    def label(self) -> str:
        """The name that people use."""
        return self.name.label


def register(
    ledger: Ledger,
    label: str,
    *,
    origin: str,
    account: str,
    units: Ids | Sketch,
    rule: str = "",
    people_differ_from: Sequence[str] = NO_DIFFERENCE,
    curator: CuratorKey | None = None,
    at: str | None = None,
) -> DataSet:
    """Register data under an account, and under the accounts of all data about the same people.

    Args:
        ledger: the open ledger.
        label: the name of the data set.
        origin: where the data comes from. Data of one origin shares its accounts.
        account: the name of the account that its releases are charged to.
        units: the ids of the units in the data. They are hashed, not stored.
        rule: how the data's units are divided into blocks. Only data with the account's own rule can be
            charged by block.
        people_differ_from: names of accounts whose people are others, as the curator signs.
        curator: the curator's key, if `people_differ_from` names accounts.
        at: the time of the entry, if rows were read before this call; None for the time of the call.

    Returns:
        The registered data set, in version 1.

    Raises:
        BadParameter: if the name is taken, or the curator's key is missing.

    Example:
        >>> from lapwing.ledger import register
        >>> register(ledger, "visits", origin="hospital", account="patients", units=["ann", "ben"]).version
        1
    """
    own = ledger.opened_account(account)
    others = _differences(ledger, people_differ_from, curator)
    at = at or now()  # before units are read: how long that takes is private
    registration = _Registration.of(ledger, (label, origin, rule), _sketch(ledger, units), at)
    ledger.require_here()

    def work(tx: Transaction) -> DataSet:
        if registration.is_known(tx):
            raise BadParameter("data set", "there is one of this name: append to it")
        data = registration.data_set(tx, own, set(others))
        registration.write(tx, data, own, others, curator)
        return data

    ledger.openings.data.pop(label, None)
    return ledger.store.write(work)


def plan_register(
    ledger: Ledger, label: str, *, origin: str, account: str, units: Ids | Sketch, rule: str = "", at: str
) -> DataSet:
    """Plan to register data with its first charge, with its account if that is planned too.

    See `register`. Until then, only this open ledger knows the data.
    """
    registration = _Registration.of(ledger, (label, origin, rule), _sketch(ledger, units), at)
    planned = ledger.account(account)
    known = ledger.store.read(lambda tx: registration.data_set(tx, planned, set()))
    met = set(known.accounts) - {planned.number}

    def is_as_planned(data: DataSet, own: Account) -> bool:
        return (data.number, data.version, set(data.accounts) - {own.number}) == (known.number, 1, met)

    def write(tx: Transaction, own: Account) -> None:
        if registration.is_known(tx):
            raise OpenedMeanwhile
        data = registration.data_set(tx, own, set())
        if not is_as_planned(data, own):
            raise ChangedMeanwhile
        registration.write(tx, data, own, [], None)

    def is_known() -> bool:
        data_sets = ledger.store.read(_all)
        data = next((each for each in data_sets if each.label == registration.name.label), None)
        if data is not None and not is_as_planned(data, ledger.account(account)):
            raise ChangedMeanwhile
        return data is not None

    ledger.openings.data[registration.name.label] = _PlannedDataSet(
        account, at, write, is_known, replace(known, accounts=tuple(sorted(met))), registration.sketch
    )
    return known


@dataclass(frozen=True, slots=True)
class _PlannedDataSet(PlannedData):
    data: DataSet  # with the accounts of the same people, but not its own
    sketch: Sketch

    def now(self, ledger: Ledger) -> DataSet:
        accounts = {*self.data.accounts, ledger.account(self.own).number}
        return replace(self.data, accounts=tuple(sorted(accounts)))


@dataclass(frozen=True, slots=True)
class _Registration:
    """The registration of a data set that the ledger does not know."""

    ledger: Ledger
    name: CommittedName
    origin: CommittedName
    rule: str
    sketch: Sketch
    at: str

    @classmethod
    def of(cls, ledger: Ledger, said: tuple[str, str, str], sketch: Sketch, at: str) -> _Registration:
        label, origin, rule = said
        label, origin = checked_label(label, "data set"), checked_label(origin, "origin")
        rule = checked_label(rule, "rule") if rule else ""  # in the same form as the account's
        return cls(ledger, CommittedName.new(label), CommittedName.new(origin), rule, sketch, at)

    def is_known(self, tx: Transaction) -> bool:
        return bool(tx.rows("SELECT 1 FROM datasets WHERE label = ?", self.name.label))

    def data_set(self, tx: Transaction, own: Account, differ: set[int]) -> DataSet:
        """Return the data set in its first version, with all its accounts."""
        known = _all(tx)
        number = 1 + max((data.number for data in known), default=0)
        joined = {
            root for data in known if data.origin.label == self.origin.label for root in data.accounts
        }
        joined |= {own.number} | _overlapping_accounts(tx, self.ledger, self.sketch, known, differ)
        return DataSet(number, self.name, self.origin, self.rule, tuple(sorted(joined)), 1)

    def write(
        self, tx: Transaction, data: DataSet, own: Account, others: list[int], curator: CuratorKey | None
    ) -> None:
        name, origin = self.name, self.origin
        tx.run(
            f"INSERT INTO datasets ({DATA_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            data.number, name.id, name.label, name.salt, origin.id, origin.label, origin.salt, self.rule,
            json.dumps(data.accounts), 1,
        )  # fmt: skip
        _keep(tx, self.ledger, data, self.sketch)
        fields = _body(self.ledger, data, others, curator, at=self.at, own=own)
        tx.append(encode({"kind": "data", **fields, "origin": origin.id, "rule": self.rule}))


def append(
    ledger: Ledger,
    label: str,
    *,
    units: Ids | Sketch,
    people_differ_from: Sequence[str] = NO_DIFFERENCE,
    curator: CuratorKey | None = None,
    at: str | None = None,
) -> DataSet:
    """Register a new version of a data set, after every change of the data or new preparation.

    Args:
        ledger: the open ledger.
        label: the name of the data set.
        units: the ids of the units in the data now. They are hashed, not stored.
        people_differ_from: names of accounts whose people are others, as the curator signs.
        curator: the curator's key, if `people_differ_from` names accounts.
        at: the time of the entry, if rows were read before this call; None for the time of the call.

    Returns:
        The data set in its new version, with the accounts of everybody who is in it.

    Raises:
        BadParameter: if the ledger knows no such data set or account.

    Example:
        >>> from lapwing.ledger import append, register
        >>> data = register(ledger, "visits", origin="hospital", account="patients", units=["ann"])
        >>> append(ledger, "visits", units=["ben"]).version
        2
    """
    others = _differences(ledger, people_differ_from, curator)
    at = at or now()  # before units are read: how long that takes is private
    sketch = _sketch(ledger, units)
    ledger.require_here()

    def work(tx: Transaction) -> DataSet:
        known = _all(tx)
        data = _named(known, label)
        strangers = [other for other in known if other.number != data.number]
        joined = set(data.accounts) | _overlapping_accounts(tx, ledger, sketch, strangers, set(others))
        after = replace(data, accounts=tuple(sorted(joined)), version=data.version + 1)
        tx.run(
            "UPDATE datasets SET accounts = ?, version = ? WHERE data = ?",
            json.dumps(after.accounts), after.version, after.number,
        )  # fmt: skip
        _keep(tx, ledger, after, sketch)
        tx.append(encode({"kind": "version", **_body(ledger, after, others, curator, at=at)}))
        return after

    return ledger.store.write(work)


def has_data_sets(ledger: Ledger) -> bool:
    """Return whether any data set was ever registered."""
    return bool(ledger.store.rows("SELECT 1 FROM datasets LIMIT 1"))


def find_data_set(ledger: Ledger, label: str) -> DataSet:
    """Return the current version of the data set of this name, or the one that is planned."""
    planned = ledger.openings.data.get(label)
    if isinstance(planned, _PlannedDataSet):
        return planned.now(ledger)
    return _named(ledger.store.read(_all), label)


def data_sets_before(ledger: Ledger, position: int) -> list[DataSet]:
    """Return the data sets, in their current version, that were registered before an entry."""
    later = "SELECT body FROM entries WHERE seq > ? AND substr(body, 1, ?) = ?"

    def work(tx: Transaction) -> list[DataSet]:
        known = _all(tx)
        if len(known) == 1:  # nothing to tell apart, and history is long
            return known
        rows = tx.rows(later, position, len(_REGISTERED), _REGISTERED)
        after = {json.loads(bytes(body))["data"] for (body,) in rows}
        return [data for data in known if data.number not in after]

    return ledger.store.read(work)


def holds_all_units(ledger: Ledger, label: str, *, units: Ids) -> bool:
    """Return whether these units include all units of every version, as far as sketches can tell."""
    data, sketch = find_data_set(ledger, label), Sketch.of(units, ledger.keys.people)
    planned = ledger.openings.data.get(label)
    if isinstance(planned, _PlannedDataSet):
        return sketch.holds(planned.sketch)
    versions = range(1, data.version + 1)
    return all(sketch.holds(_kept(ledger, data, version)) for version in versions)  # one at a time


def knows_all_units(ledger: Ledger, data: DataSet, units: Sketch) -> bool:
    """Return whether a registered version includes all these units, as far as sketches can tell."""
    return _kept(ledger, data, data.version).holds(units)


def _kept(ledger: Ledger, data: DataSet, version: int) -> Sketch:
    sql = "SELECT bytes FROM sketches WHERE data = ? AND version = ?"
    [(content,)] = ledger.store.rows(sql, data.number, version)
    return untagged(bytes(content), ledger.keys.people, data.name.id, version)


def spends_by_block(data: DataSet, account: Account) -> bool:
    """Return whether releases may be charged to single blocks of the account; otherwise to everyone."""
    return account.slices is not Slices.NONE and account.rule == data.rule


def _differences(ledger: Ledger, labels: Sequence[str], curator: CuratorKey | None) -> list[int]:
    if isinstance(labels, str):
        raise BadParameter("people_differ_from", "must be several names, not one text")
    if labels and (curator is None or curator.public != ledger.curator):
        raise BadParameter("curator", "that people differ must be signed with the curator's key")
    return sorted({ledger.opened_account(label).number for label in labels})


def _overlapping_accounts(
    tx: Transaction, ledger: Ledger, sketch: Sketch, known: Iterable[DataSet], differ: set[int]
) -> set[int]:
    """Return the accounts of all data that overlaps the sketch, except those signed to be about others."""
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
    ledger: Ledger,
    data: DataSet,
    others: list[int],
    curator: CuratorKey | None,
    *,
    at: str,
    own: Account | None = None,
) -> dict[str, Any]:
    """Return the fields of an entry. `own` is an account that is opened in the same transaction."""
    accounts = [own if own and root == own.number else ledger.numbered(root) for root in data.accounts]
    signed = []
    for account in others:
        assert curator is not None
        signed.append([account, curator.sign(difference_message(ledger.id, data.name.id, account)).hex()])
    return {
        "at": at,
        "data": data.number,
        "name": data.name.id,
        "accounts": data.accounts,
        "same_rule": [spends_by_block(data, account) for account in accounts],
        "version": data.version,
        "differ": signed,
    }


def difference_message(ledger_id: str, data_name: str, account: int) -> bytes:
    """Return the message that the curator signs: this data has other people than that account."""
    return encode({"ledger": ledger_id, "data": data_name, "account": account, "people": "differ"})


def _sketch(ledger: Ledger, units: Ids | Sketch) -> Sketch:
    return units if isinstance(units, Sketch) else Sketch.of(units, ledger.keys.people)


def _keep(tx: Transaction, ledger: Ledger, data: DataSet, sketch: Sketch) -> None:
    """Store the sketch of a data set's version."""
    content = tagged(sketch, ledger.keys.people, data.name.id, data.version)
    sql = "INSERT INTO sketches (data, version, bytes) VALUES (?, ?, ?)"
    tx.run(sql, data.number, data.version, content)


def _all(tx: Transaction) -> list[DataSet]:
    rows = tx.rows(f"SELECT {DATA_COLUMNS} FROM datasets ORDER BY data")  # noqa: S608
    data_sets = []
    for number, name, label, salt, origin_name, origin, origin_salt, rule, accounts, version in rows:
        named = CommittedName(label, bytes(salt), name)
        source = CommittedName(origin, bytes(origin_salt), origin_name)
        data_sets.append(DataSet(number, named, source, rule, tuple(json.loads(accounts)), version))
    return data_sets


def _named(known: Iterable[DataSet], label: str) -> DataSet:
    wanted = checked_label(label, "data set")
    for data in known:
        if data.label == wanted:
            return data
    raise BadParameter("data set", "is not known to this ledger")
