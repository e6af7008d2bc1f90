"""Accounts and blocks: their privacy unit and lifetime budget, and how they are written.

An account fixes its privacy unit and its budget once and for life. Its blocks are disjoint slices of the
units, each with the whole budget. The block `*` stands for all units that are in no named block. Raising a
budget opens a further account of the same *family*, into which all blocks move. Each change is one
transaction together with its entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any

from lapwing.config.values import checked_label
from lapwing.core.budget import Charge, Terms, price
from lapwing.core.exact import short
from lapwing.core.losses import Loss, Relation, Repeated, SequentialComposition
from lapwing.errors import BadParameter
from lapwing.ledger.entry import CommittedName, Costs, Ranges, encode, encode_signed, now, ranges_of
from lapwing.ledger.keys import CuratorKey
from lapwing.ledger.schema import COSTS, LOST, MOVED, OPEN, columns
from lapwing.ledger.store import Row, Transaction

EVERYONE = "*"
FEW = 500  # labels in one query
Read = Callable[..., list[Row]]  # the method `rows` of a store or transaction
AccountRanges = tuple[tuple[int, Ranges], ...]  # the block numbers in each account


class Unit(Enum):
    """The privacy unit: what two neighbouring data sets differ in.

    Example:
        >>> from lapwing.ledger import Unit
        >>> Unit.PERSON.value
        'person'
    """

    PERSON = "person"
    ROW = "row"
    PERSON_AND_PERIOD = "person and period"


class Slices(Enum):
    """The rule by which the units of an account are divided into blocks.

    UNITS       a rule that reads only the unit's own data puts each unit in one block for ever.
    PERIODS     rows are sliced by time, so what is protected is a person *in one period*.
    IDENTITIES  the identity of a unit decides, not its data: an invitation, or a hash of its id.

    If neighbours replace a unit, they replace its data. A rule that reads data could then move the unit
    from one block to another, and the unit would be charged to both. Then only the other two are possible.

    Example:
        >>> from lapwing.ledger import Slices
        >>> ledger.account("patients").slices is Slices.NONE
        True
    """

    NONE = "none"
    UNITS = "units"
    PERIODS = "periods"
    IDENTITIES = "identities"


@dataclass(frozen=True, slots=True)
class Account:
    """A lifetime budget, as it was opened.

    Args:
        number: the account's number in the ledger.
        root: the number of the account that this one raises; its own number if it raises none.
        name: the name, and the commitment to it that entries show.
        unit: the privacy unit.
        relation: the relation of neighbouring data sets.
        terms: the lifetime budget, and its shares.
        slices: the rule by which units are divided into blocks.
        rule: a description of that rule, for people.
        everyone: the number of the block that is charged for all units.
        raises: the number of the account that this one raises; None for a first account.

    Example:
        >>> account = ledger.account("patients")
        >>> account.label, float(account.terms.epsilon)
        ('patients', 1.0)
    """

    number: int
    root: int
    name: CommittedName
    unit: Unit
    relation: Relation
    terms: Terms
    slices: Slices
    rule: str
    everyone: int
    raises: int | None

    @property
    def label(self) -> str:
        """The name that people use."""
        return self.name.label

    @property
    def notice(self) -> str:
        """The notice of a new account, for people."""
        epsilon, delta = float(self.terms.epsilon), float(self.terms.delta)
        return f'New account "{self.label}" with ε {epsilon:g} and δ {short(delta)}, for life.'

    def spent(self, left: Costs) -> Costs:
        """Return the spent part of each cap, given the rest: at most cap + 1, which leaves -1."""
        return tuple([cap - rest for cap, rest in zip(self.terms.caps, left, strict=True)])

    def costs(self, loss: Loss) -> Costs:
        """Return the price of a loss in this account. A cost above its cap becomes cap + 1."""
        return _costs(self.terms.orders, self.terms.caps, loss)

    def costs_of_steps(self, loss: Loss) -> Costs:
        """Return the price of a loss whose parts are charged one by one: each part is rounded up."""
        match loss:
            case Repeated(each, count):
                costs = [count * cost for cost in self.costs_of_steps(each)]
            case SequentialComposition(parts) if parts:
                costs = [sum(column) for column in zip(*map(self.costs_of_steps, parts), strict=True)]
            case _:
                return self.costs(loss)
        return tuple([min(cost, cap + 1) for cost, cap in zip(costs, self.terms.caps, strict=True)])


@lru_cache(maxsize=4096)
def _costs(orders: tuple[int, ...], caps: Costs, loss: Loss) -> Costs:
    return tuple([min(cost, cap + 1) for cost, cap in zip(price(loss, orders).costs, caps, strict=True)])


ACCOUNT_COLUMNS = (
    "account, root, name, label, salt, unit, relation, "
    "epsilon, delta, orders, slices, rule, everyone, raises"
)


def account_of(row: Row) -> Account:
    """Return the account of a database row."""
    number, root, name, label, salt, unit, relation, *rest = row
    epsilon, delta, orders, slices, rule, everyone, raises = rest
    named = CommittedName(label, bytes(salt), name)
    terms = Terms(Fraction(epsilon), Fraction(delta), tuple(json.loads(orders)))
    return Account(
        number, root, named, Unit(unit), Relation(relation), terms, Slices(slices), rule, everyone, raises
    )


def accounts_where(tx: Transaction, condition: str = "true", *parameters: Any) -> list[Account]:
    """Return the accounts that meet an SQL condition, in the order of opening."""
    sql = f"SELECT {ACCOUNT_COLUMNS} FROM accounts WHERE {condition} ORDER BY account"  # noqa: S608
    return [account_of(row) for row in tx.rows(sql, *parameters)]


@dataclass(frozen=True, slots=True)
class Block:
    """A slice of an account's units, with what was spent and what is reserved there.

    Args:
        number: the block's number in the ledger.
        account: the number of its account.
        name: the name, and the commitment to it that entries show.
        state: whether the block is open.
        spent: the costs of all charges, one for each filter.
        held: the costs that are reserved for work that has not ended.

    Example:
        >>> [block] = ledger.blocks("patients")
        >>> float(block.left(ledger.account("patients").terms))
        1.0
    """

    number: int
    account: int
    name: CommittedName
    state: int
    spent: Costs
    held: Costs

    @property
    def label(self) -> str:
        """The name that people use."""
        return self.name.label

    @property
    def is_open(self) -> bool:
        """True if charges are still possible here."""
        return self.state == OPEN

    def taken(self, terms: Terms) -> Costs:
        """Return spent and reserved costs together, cut off above the caps.

        A new charge is added to them.
        """
        sums = zip(self.spent, self.held, terms.caps, strict=True)
        return tuple([min(spent + held, cap + 1) for spent, held, cap in sums])

    def left(self, terms: Terms) -> Fraction:
        """Return the largest pure ε that would still be admitted."""
        return largest_pure(terms, self.taken(terms)) if self.is_open else Fraction(0)


@lru_cache(maxsize=4096)
def largest_pure(terms: Terms, taken: Costs) -> Fraction:
    """Return `Terms.largest_pure`, cached: many blocks were charged alike."""
    return terms.largest_pure(taken)


BLOCK_COLUMNS = f"block, account, name, label, salt, state, {columns('left')}, {columns('held')}"


def current_blocks(read: Read, root: Account, names: str, labels: Sequence[str] = ()) -> list[Row]:
    """Return columns of a family's blocks, except of those that moved to a raised account.

    If the labels are few, only theirs.
    """
    few = labels if len(labels) <= FEW else ()
    among = f" AND label IN ({', '.join('?' * len(few))})" if few else ""
    sql = f"SELECT {names} FROM blocks JOIN budgets USING (block, account) WHERE root = ? "  # noqa: S608
    return read(f"{sql}AND state < {MOVED}{among} ORDER BY block", root.number, *few)


def block_of(row: Row, account: Account) -> Block:
    """Return the block of a database row, in the order of `BLOCK_COLUMNS`."""
    number, _, name, label, salt, state, *sums = row
    left, held = tuple(sums[: len(COSTS)]), tuple(sums[len(COSTS) :])
    named = CommittedName(label, bytes(salt), name)
    return Block(number, account.number, named, state, account.spent(left), held)


def look_at(
    read: Read, numbered: Callable[[int], Account], root: Account, labels: Sequence[str] = ()
) -> list[tuple[Account, Block]]:
    """Return the named current blocks of a family with their accounts; without names, all of them."""
    rows = current_blocks(read, root, BLOCK_COLUMNS, labels)
    wanted = set(labels)
    owned = [(numbered(row[1]), row) for row in rows if not wanted or row[3] in wanted]
    return [(account, block_of(row, account)) for account, row in owned]


def ranges_by_account(rows: Iterable[Row]) -> AccountRanges:
    """Return the block numbers of each account as ranges, given rows that begin with account and block."""
    blocks: dict[int, list[int]] = {}
    for account, block, *_ in rows:
        blocks.setdefault(account, []).append(block)
    return tuple([(account, ranges_of(numbers)) for account, numbers in sorted(blocks.items())])


def sql_list(numbers: Sequence[int]) -> str:
    """Return whole numbers as a list for SQL. `int` makes sure that nothing else can be in it."""
    return ", ".join(str(int(number)) for number in numbers)


_INSERT_BLOCK = "INSERT INTO blocks (block, account, root, name, label, salt) VALUES (?, ?, ?, ?, ?, ?)"
_INSERT_BUDGET = (
    f"INSERT INTO budgets (block, account, state, {columns('left')}, {columns('held')}) "  # noqa: S608
    f"VALUES ({', '.join('?' * (3 + 2 * len(COSTS)))})"
)


def _next(tx: Transaction, column: str, table: str) -> int:
    return int(tx.rows(f"SELECT coalesce(max({column}), 0) + 1 FROM {table}")[0][0])  # noqa: S608


def _insert_blocks(
    tx: Transaction, account: Account, first: int, names: Sequence[CommittedName], left: Costs
) -> None:
    """Insert open blocks with the numbers from `first` on, each with this much left."""
    numbered = list(enumerate(names, first))
    tx.run_many(
        _INSERT_BLOCK,
        [(block, account.number, account.root, name.id, name.label, name.salt) for block, name in numbered],
    )
    sums = (*left, *(0 for _ in COSTS))  # nothing is held
    tx.run_many(_INSERT_BUDGET, [(block, account.number, OPEN, *sums) for block, _ in numbered])


def drafted_account(
    label: str, terms: Terms, protects: tuple[Unit, Relation], slices: Slices, rule: str
) -> Account:
    """Return an account that gets its numbers when it is written."""
    unit, relation = protects
    label = checked_label(label, "account")
    for given, kind in ((unit, Unit), (relation, Relation), (slices, Slices)):
        if not isinstance(given, kind):
            raise BadParameter(kind.__name__.lower(), f"must be a {kind.__name__}")
    if slices is not Slices.NONE:
        rule = checked_label(rule, "rule")
    elif rule:
        raise BadParameter("rule", "an account without slices has no rule")
    if (unit is Unit.PERSON_AND_PERIOD) != (slices is Slices.PERIODS):
        raise BadParameter("unit", "must be PERSON_AND_PERIOD for slices by period, and only for them")
    if slices is Slices.UNITS and relation is Relation.REPLACE:
        raise BadParameter(
            "slices", "by the unit's data are impossible if neighbours replace a unit: use identities"
        )
    return Account(
        0, 0, CommittedName.new(label), unit, relation, terms, slices, rule, everyone=0, raises=None
    )


def require_same(planned: Account, opened: Account) -> Account:
    """Return the account that another process opened meanwhile, if it is as planned."""
    fields = ("unit", "relation", "terms", "slices", "rule")
    if any(getattr(planned, name) != getattr(opened, name) for name in fields):
        raise BadParameter("account", f'"{opened.label}" was opened on other terms meanwhile, for life')
    return opened


def new_account(tx: Transaction, draft: Account, at: str | None = None) -> Account:
    """Open the first account of a family: the draft, under fresh numbers. `at` is the entry's time."""
    number = _next(tx, "account", "accounts")
    account = replace(draft, number=number, root=number, everyone=_next(tx, "block", "blocks"))
    _insert(tx, account)
    tx.append(encode(_body(account) | {"at": at or now()}))
    return account


def _insert(tx: Transaction, account: Account) -> None:
    marks = ", ".join("?" * len(ACCOUNT_COLUMNS.split(",")))
    tx.run(
        f"INSERT INTO accounts ({ACCOUNT_COLUMNS}) VALUES ({marks})",  # noqa: S608
        account.number, account.root, account.name.id, account.label, account.name.salt,
        account.unit.value, account.relation.value, str(account.terms.epsilon), str(account.terms.delta),
        json.dumps(account.terms.orders), account.slices.value, account.rule, account.everyone,
        account.raises,
    )  # fmt: skip
    _insert_blocks(tx, account, account.everyone, [CommittedName.new(EVERYONE)], account.terms.caps)


def _body(account: Account, **more: Any) -> dict[str, Any]:
    terms = account.terms
    return {
        "kind": "account",
        "at": now(),
        "account": account.number,
        "name": account.name.id,
        "unit": account.unit.value,
        "relation": account.relation.value,
        "epsilon": str(terms.epsilon),
        "delta": str(terms.delta),
        "orders": terms.orders,
        "caps": terms.caps,
        "slices": account.slices.value,
        "rule": account.rule,
        "everyone": account.everyone,
        "raises": account.raises,
        "signature": None,
        **more,
    }


def raised_account(tx: Transaction, family: list[Account], terms: Terms, curator: CuratorKey) -> Account:
    """Open a further account of a family. All blocks move into it, and the old blocks are closed for ever.

    New requests go to one account after the other, never to both. What each account admits is (ε,
    δ)-private on its own, so together they are private for the sums. Requests that run during the raise are
    argued in docs/arguments/ledger.md, d.
    """
    root = family[0]
    numbers = sql_list([account.number for account in family])
    if tx.rows(f"SELECT 1 FROM reservations WHERE ended = 0 AND account IN ({numbers}) LIMIT 1"):  # noqa: S608
        raise BadParameter("account", "has open reservations: settle them before raising")
    number, block = _next(tx, "account", "accounts"), _next(tx, "block", "blocks")
    account = replace(root, number=number, terms=terms, everyone=block, raises=root.number)
    old = current_blocks(tx.rows, root, "block, name, label, salt")
    tx.lock([row[0] for row in old])
    of_family = "block IN (SELECT block FROM blocks WHERE root = ?)"
    tx.run(f"UPDATE budgets SET state = {MOVED} WHERE {of_family} AND state < {MOVED}", root.number)  # noqa: S608
    _insert(tx, account)
    moved = [row for row in old if row[2] != EVERYONE]
    pairs = [[row[0], block + 1 + k] for k, row in enumerate(moved)]
    names = [CommittedName(label, bytes(salt), name) for _, name, label, salt in moved]
    _insert_blocks(tx, account, block + 1, names, terms.caps)
    tx.append(encode_signed(_body(account, moved=pairs), curator.sign))
    return account


def insert_blocks(
    tx: Transaction, family: Sequence[Account], labels: Sequence[str], at: str | None = None
) -> None:
    """Open new blocks. Their units may have been charged as part of everyone, and stay charged."""
    newest = family[-1]
    tx.lock([newest.everyone])
    if any(_everyone(tx, newest, "held")):
        raise BadParameter("blocks", "a reservation holds for everyone: settle it before opening blocks")
    if tx.rows(f"SELECT 1 FROM budgets WHERE block = ? AND state = {LOST}", newest.everyone):  # noqa: S608
        raise BadParameter("blocks", "this ledger was recovered: raise the account first")
    account = _account_for_new_blocks(tx, family)
    for start in range(0, len(labels), FEW):
        some = labels[start : start + FEW]
        marks = ", ".join("?" * len(some))
        # A name that was ever opened is still current: blocks move with their names.
        sql = f"SELECT 1 FROM blocks WHERE root = ? AND label IN ({marks}) LIMIT 1"  # noqa: S608
        if tx.rows(sql, account.root, *some):
            raise BadParameter("blocks", "there is a block of this name; a block opens once")
    first = _next(tx, "block", "blocks")
    names = [CommittedName.new(label) for label in labels]
    _insert_blocks(tx, account, first, names, _everyone(tx, account, "left"))
    ids = [name.id for name in names]
    body = {"kind": "blocks", "at": at or now(), "account": account.number, "first": first, "names": ids}
    tx.append(encode(body))


def _account_for_new_blocks(tx: Transaction, family: Sequence[Account]) -> Account:
    """Return the account for new blocks: after a raise the first account again, otherwise the newest.

    If everyone was charged since the raise, it is the newest: the units of the new blocks have begun to
    spend from a raised account, and accounts are spent one after the other. It is also the newest if the
    first account was lost.
    """
    raised_spent = any(_everyone(tx, account, "left") != account.terms.caps for account in family[1:])
    first = family[0]
    free = Charge(first.terms.orders, first.terms.nothing_spent)
    usable = first.terms.after(first.spent(_everyone(tx, first, "left")), free) is not None
    return first if usable and not raised_spent else family[-1]


def _everyone(tx: Transaction, account: Account, prefix: str) -> Costs:
    """Return the costs that are left or reserved in the block of everyone."""
    sql = f"SELECT {columns(prefix)} FROM budgets WHERE block = ?"  # noqa: S608
    return tuple(tx.rows(sql, account.everyone)[0])
