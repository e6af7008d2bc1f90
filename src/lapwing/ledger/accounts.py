"""Accounts and their blocks: whose budget it is, and what is left of it.

An account fixes once what is protected and for how much, for life. Its blocks are disjoint slices of
the units, each with the whole budget; the block `*` stands for everybody who is in no named block.
Raising opens a further account of the same *family*, into which all blocks move.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache

from lapwing.ledger.entry import Costs, Name
from lapwing.ledger.stores.schema import COSTS, MOVED, OPEN, columns
from lapwing.ledger.stores.transaction import Row
from lapwing.privacy import Loss, Relation, Repeated, Sum, Terms
from lapwing.privacy.charge import price

EVERYONE = "*"


class Unit(Enum):
    """What one neighbouring step adds, removes or replaces."""

    PERSON = "person"
    ROW = "row"
    PERSON_AND_PERIOD = "person and period"


class Slices(Enum):
    """What the blocks of an account are slices of.

    UNITS       a rule that reads only the unit's own data puts each unit in one block for ever.
    PERIODS     rows are sliced by time, so what is protected is a person *in one period*.
    IDENTITIES  who a unit is decides, not its data: an invitation, or a hash of its id.

    Where a unit is replaced, its data is, so a rule that reads data could move it from one block to
    another, and both would have paid for it. Then only the other two are possible.
    """

    NONE = "none"
    UNITS = "units"
    PERIODS = "periods"
    IDENTITIES = "identities"


@dataclass(frozen=True, slots=True)
class Account:
    """A lifetime budget, as it was opened."""

    number: int
    root: int
    name: Name
    unit: Unit
    relation: Relation
    terms: Terms
    slices: Slices
    rule: str
    everyone: int
    raises: int | None

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name.label

    @property
    def news(self) -> str:
        """The notice of a new account, for people."""
        epsilon, delta = float(self.terms.epsilon), float(self.terms.delta)
        return f'New account "{self.label}" with ε {epsilon:g} and δ {delta:g}, for life.'

    def spent(self, left: Costs) -> Costs:
        """What was spent, where this is left of the caps: at most cap + 1, which leaves -1."""
        return tuple([cap - rest for cap, rest in zip(self.terms.caps, left, strict=True)])

    def costs(self, loss: Loss) -> Costs:
        """The price of a loss here. What exceeds a filter anyway is written as its cap + 1."""
        return _costs(self.terms.orders, self.terms.caps, loss)

    def costs_of_steps(self, loss: Loss) -> Costs:
        """The price of a loss whose parts are charged one by one: each of them is rounded up."""
        match loss:
            case Repeated(each, count):
                costs = [count * cost for cost in self.costs_of_steps(each)]
            case Sum(parts) if parts:
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
    """An account from its row."""
    number, root, name, label, salt, unit, relation, *rest = row
    epsilon, delta, orders, slices, rule, everyone, raises = rest
    return Account(
        number=number,
        root=root,
        name=Name(label, bytes(salt), name),
        unit=Unit(unit),
        relation=Relation(relation),
        terms=Terms(Fraction(epsilon), Fraction(delta), tuple(json.loads(orders))),
        slices=Slices(slices),
        rule=rule,
        everyone=everyone,
        raises=raises,
    )


def row_of(account: Account) -> Row:
    """The row of an account, in the order of `ACCOUNT_COLUMNS`."""
    return (
        account.number, account.root, account.name.id, account.label, account.name.salt,
        account.unit.value, account.relation.value, str(account.terms.epsilon), str(account.terms.delta),
        json.dumps(account.terms.orders), account.slices.value, account.rule, account.everyone,
        account.raises,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """A slice of an account's units, and what was spent and is held there."""

    number: int
    account: int
    name: Name
    state: int
    spent: Costs
    held: Costs

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name.label

    @property
    def is_open(self) -> bool:
        """Whether anything may still be charged here."""
        return self.state == OPEN

    def taken(self, terms: Terms) -> Costs:
        """What new charges find: spent and held together, as far as the filters can tell."""
        return tuple(
            [min(s + h, cap + 1) for s, h, cap in zip(self.spent, self.held, terms.caps, strict=True)]
        )

    def left(self, terms: Terms) -> Fraction:
        """The greatest pure ε that would still be admitted."""
        return largest_pure(terms, self.taken(terms)) if self.is_open else Fraction(0)


@lru_cache(maxsize=4096)
def largest_pure(terms: Terms, taken: Costs) -> Fraction:
    """`Terms.largest_pure`, remembered: blocks that were charged alike are many."""
    return terms.largest_pure(taken)


# Of a family, by the number of its root: the blocks that did not move to a raised account.
CURRENT_BLOCKS = f"blocks JOIN budgets USING (block, account) WHERE root = ? AND state < {MOVED}"
BLOCK_COLUMNS = f"block, account, name, label, salt, state, {columns('left')}, {columns('held')}"


def block_of(row: Row, account: Account) -> Block:
    """A block of an account from its row, in the order of `BLOCK_COLUMNS`."""
    number, _, name, label, salt, state, *sums = row
    left, held = tuple(sums[: len(COSTS)]), tuple(sums[len(COSTS) :])
    return Block(number, account.number, Name(label, bytes(salt), name), state, account.spent(left), held)


def in_numbers(numbers: Sequence[int]) -> str:
    """A list of whole numbers for SQL. They are ours, and whole: nothing can be hidden in them."""
    return ", ".join(str(int(number)) for number in numbers)
