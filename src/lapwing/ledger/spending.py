"""The price of a planned release, fixed before data is read; and why a release is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lapwing.config.values import checked_label
from lapwing.core.budget import DELTA, DELTA0, EPSILON, EPSILON_UNIT, FIRST_ORDER, Charge, pure_text
from lapwing.core.exact import least_from, set_fields
from lapwing.core.loss_records import describe, only_add_remove
from lapwing.core.losses import Loss, Pure, Relation
from lapwing.errors import BadParameter, OverBudget
from lapwing.ledger.accounts import EVERYONE, Account, Block, Slices, Unit
from lapwing.ledger.entry import KEPT_NAME, KEPT_VALUE, Costs, text_of

if TYPE_CHECKING:
    from lapwing.ledger.ledger import Ledger


REQUEST_AT_MOST = 1 << 20
PARAMETERS_AT_MOST = 1 << 14


@dataclass(frozen=True, slots=True)
class Target:
    """Blocks of one account, by name. An account without slices has no blocks to name.

    `everyone` charges all blocks, and those that are opened later. It is for data whose units are not
    divided by the account's rule.

    Args:
        account: the name of the account.
        blocks: the names of the blocks that are charged.
        everyone: whether all blocks are charged.

    Raises:
        BadParameter: if a name is not valid, a block is named twice, or blocks besides `everyone`.

    Example:
        >>> from lapwing.ledger import Target
        >>> Target("patients", ["2026-01", "2026-02"]).blocks
        ('2026-01', '2026-02')
    """

    account: str
    blocks: Sequence[str] = ()
    everyone: bool = False

    def __post_init__(self) -> None:
        set_fields(self, account=checked_label(self.account, "account"))
        if isinstance(self.blocks, str):
            raise BadParameter("blocks", "must be several names, not one text")
        set_fields(self, blocks=tuple([checked_label(name, "block") for name in self.blocks]))
        if not isinstance(self.everyone, bool):
            raise BadParameter("everyone", "must be True or False")
        if self.everyone and self.blocks:
            raise BadParameter("blocks", "everyone is charged in all blocks: name none")
        if EVERYONE in self.blocks:  # its units may be in a block by the time the data is read
            raise BadParameter("blocks", '"*" is charged with everyone, not by itself')
        if len(set(self.blocks)) < len(self.blocks):
            raise BadParameter("blocks", "must name each block once")


@dataclass(frozen=True, slots=True)
class Spending:
    """The price of a release and the accounts that pay it, fixed before data is read.

    Args:
        targets: the accounts, and their blocks, that are charged.
        loss: the privacy loss of the release.
        unit: the privacy unit that the loss is about; it must be that of the accounts.
        relation: the relation of neighbours that the loss is about.
        mechanism: the name of the mechanism, for the entry.
        parameters: its public parameters, for the entry.
        request: the bytes of the request. Entries show only their digest.
        keeps_request: whether the request is stored beside the entry.

    Raises:
        BadParameter: if a part is not valid, or the loss does not hold for the relation.

    Example:
        >>> from fractions import Fraction
        >>> from lapwing.core import Pure, Relation
        >>> from lapwing.ledger import Spending, Target, Unit
        >>> loss, person = Pure(Fraction(1, 2)), (Unit.PERSON, Relation.ADD_REMOVE)
        >>> price = Spending([Target("patients")], loss, *person, "example", {}, b"how many?")
        >>> len(price.digest)
        64
    """

    targets: Sequence[Target]
    loss: Loss
    unit: Unit
    relation: Relation
    mechanism: str
    parameters: Mapping[str, str | int]
    request: bytes
    keeps_request: bool = field(default=False, compare=False)  # to be read again beside its entry
    asked: bytes = field(init=False, repr=False, compare=False)  # the bytes that `digest` is taken of
    digest: str = field(init=False)  # of targets, unit, relation, price and request
    public: str = field(init=False, repr=False)  # how it stands in an entry
    everyone: bool = field(init=False, repr=False)  # whether some target is everyone
    _prices: dict[int, tuple[Account, Costs]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self._check_targets()
        checked_label(self.mechanism, "mechanism")
        if not isinstance(self.loss, Loss):
            raise BadParameter("loss", "must be a loss")
        if self.relation is not Relation.ADD_REMOVE and only_add_remove(self.loss):
            raise BadParameter("loss", "holds only if neighbours add or remove a unit")
        if not isinstance(self.request, bytes) or len(self.request) > REQUEST_AT_MOST:
            raise BadParameter("request", "must be at most 1 MiB of bytes")
        parameters = self._parameters()
        mechanism = text_of(self.mechanism)
        public = f'"loss":{_described(self.loss)},"mechanism":{mechanism},"parameters":{parameters}'
        whom = [[target.account, list(target.blocks), target.everyone] for target in self.targets]
        asked = text_of([whom, self.unit.value, self.relation.value, public])
        content = asked.encode("ascii") + b"\n" + self.request
        everyone = any(target.everyone for target in self.targets)
        digest = hashlib.sha256(content).hexdigest()
        set_fields(self, asked=content, digest=digest, public=public, everyone=everyone)

    def _parameters(self) -> str:
        """Return the parameters as they stand in an entry."""
        if not isinstance(self.parameters, Mapping):
            raise BadParameter("parameters", "must be texts and whole numbers by name")
        for name, value in self.parameters.items():
            if not isinstance(name, str) or not isinstance(value, str | int):
                raise BadParameter("parameters", "must be texts and whole numbers by name")
        try:
            by_name = {"".join(name): value for name, value in self.parameters.items()}  # plain texts
            if by_name.get(KEPT_NAME) == KEPT_VALUE:
                raise BadParameter("parameters", "must not say that the request is kept: Lapwing adds that")
            parameters = text_of(by_name)
        except ValueError:  # more digits than Python writes
            raise BadParameter("parameters", "must be at most 16 KiB") from None
        if len(by_name) < len(self.parameters):  # texts that say they differ, and are written alike
            raise BadParameter("parameters", "must name each parameter once")
        if self.keeps_request:
            parameters = text_of({**by_name, KEPT_NAME: KEPT_VALUE})
        if len(parameters) > PARAMETERS_AT_MOST:
            raise BadParameter("parameters", "must be at most 16 KiB")
        return parameters

    def costs(self, account: Account) -> Costs:
        """Return the price in an account. It is computed once for planning and charging."""
        known = self._prices.get(account.number)
        if known is None or known[0] is not account:
            known = self._prices[account.number] = account, account.costs(self.loss)
        return known[1]

    def _check_targets(self) -> None:
        set_fields(self, targets=tuple(self.targets))
        if not self.targets or not all(isinstance(target, Target) for target in self.targets):
            raise BadParameter("targets", "must name at least one account")
        if len({target.account for target in self.targets}) < len(self.targets):
            raise BadParameter("targets", "must name each account once")
        if not isinstance(self.unit, Unit) or not isinstance(self.relation, Relation):
            raise BadParameter("relation", "must be a Relation, and the unit a Unit")


@lru_cache(maxsize=4096)
def _described(loss: Loss) -> str:
    return text_of(describe(loss))


def require_room(ledger: Ledger, spending: Spending) -> None:
    """Raise `OverBudget` if a charge does not fit now. Charges nothing."""
    error = refusal(ledger, spending.targets, spending.loss, spending.costs)
    if error is not None:
        raise error


def how_many_more(ledger: Ledger, spending: Spending) -> int:
    """Return how many charges of this price would fit now, one after another. Charges nothing."""
    return how_many_fit(ledger, spending.targets, spending.costs)


def how_many_fit(ledger: Ledger, targets: Sequence[Target], costs: Callable[[Account], Costs]) -> int:
    """Return how many charges would fit now, one after another. Charges nothing.

    Claim    as many are admitted if nobody else spends meanwhile, and one more is refused.
    Because  each block is asked with its own terms and sums, by the filter that decides a charge; a charge
             is admitted if all blocks admit it.
    Test     tests/sql/test_next_prices.py

    `costs` returns what a charge costs in an account.
    """
    fitting = []
    for target in targets:
        root = ledger.account(target.account)
        ledger.forget_blocks(root)
        for account, block in ledger.look_at(root, target.blocks):
            charge = Charge(account.terms.orders, costs(account))
            fitting.append(
                account.terms.how_many(charge, block.taken(account.terms)) if block.is_open else 0
            )
    return min(fitting, default=0)


def refusal(
    ledger: Ledger, targets: Sequence[Target], loss: Loss, costs: Callable[[Account], Costs]
) -> OverBudget | None:
    """Return the refusal of a charge; None if it would fit by now.

    Blocks may have moved, or a reservation lapsed.

    `costs` returns what the loss costs in an account; it is more if the steps are rounded up one by one.
    """
    groups: list[_AccountBlocks] = []
    chosen: list[_AccountBlocks] = []  # of targets that name blocks
    for target in targets:
        root = ledger.account(target.account)
        ledger.forget_blocks(root)
        mine = _by_account(ledger.look_at(root, target.blocks))
        groups.extend(mine)
        if target.blocks:
            chosen.extend(mine)
    if all(group.fits(costs(group.account)).all() for group in groups):
        return None
    largest = _largest(lambda epsilon: all(group.fits_pure(epsilon).all() for group in groups))
    # Of those that do not fit, one that would be the first to refuse a smaller request.
    account, block = min(
        (refusing for group in groups if (refusing := group.first_refusing(costs(group.account), largest))),
        key=lambda refusing: refusing[0],
    )[1:]
    asked = tuple(map(max, account.terms.price(loss).costs, costs(account)))
    error = account.terms.refusal(block.taken(account.terms), Charge(account.terms.orders, asked))
    where = f'"{account.label}"' + ("" if account.slices is Slices.NONE else f', block "{block.label}"')
    if not block.is_open:
        lost = "It was closed when a lost ledger was recovered."
        return OverBudget(error.asked, "nothing", lost, where=where)
    fixed = [group for group in groups if group not in chosen]
    what_now = error.what_now + _fewer_blocks(fixed, chosen, largest)
    return OverBudget(error.asked, error.left, what_now, where=where)


@dataclass(frozen=True, eq=False)
class _AccountBlocks:
    """Blocks of one account with the spent and reserved costs of each, as arrays."""

    account: Account
    blocks: list[Block] = field(default_factory=list)

    @cached_property
    def taken(self) -> NDArray[np.int64]:
        return np.array([block.taken(self.account.terms) for block in self.blocks], np.int64)

    @cached_property
    def is_open(self) -> NDArray[np.bool_]:
        return np.array([block.is_open for block in self.blocks])

    def fits(self, costs: Costs) -> NDArray[np.bool_]:
        """Return whether each block admits the costs. It must decide as `Terms.after` does."""
        caps = np.array(self.account.terms.caps, np.int64)
        within = self.taken + np.array(costs, np.int64) <= caps
        pair, orders = within[:, EPSILON] & within[:, DELTA], within[:, FIRST_ORDER:]
        admits: NDArray[np.bool_] = pair | orders.any(axis=1)
        return self.is_open & within[:, DELTA0] & admits

    def fits_pure(self, units: int) -> NDArray[np.bool_]:
        """Return whether each block admits a pure ε, given in ledger units."""
        return self.fits(self.account.costs(Pure(Fraction(units, EPSILON_UNIT))))

    def first_refusing(self, costs: Costs, largest: int) -> tuple[int, Account, Block] | None:
        """Return a block that does not fit, preferring one that also refuses the next larger pure ε.

        The first value is 0 if it refuses that ε, otherwise 1. None means that all blocks fit.
        """
        refused = ~self.fits(costs)
        if not refused.any():
            return None
        tight = refused & ~self.fits_pure(largest + 1)
        chosen = np.flatnonzero(tight if tight.any() else refused)[0]
        return int(not tight.any()), self.account, self.blocks[chosen]


def _by_account(pairs: Sequence[tuple[Account, Block]]) -> list[_AccountBlocks]:
    by_account: dict[int, _AccountBlocks] = {}
    for account, block in pairs:
        by_account.setdefault(account.number, _AccountBlocks(account)).blocks.append(block)
    return list(by_account.values())


def _largest(fits: Callable[[int], bool]) -> int:
    """Return the largest whole number that fits, if all smaller ones fit too; 0 if none does."""
    return least_from(lambda number: not fits(number)) - 1


def _fewer_blocks(fixed: list[_AccountBlocks], chosen: list[_AccountBlocks], largest: int) -> str:
    """Return the advice to name one block that alone would admit more in every account, or nothing.

    A block of everyone cannot be named. And `fixed`, the blocks of accounts without named blocks (a quota,
    or data with another rule), must admit more as they are.
    """
    labels = sorted({block.label for group in chosen for block in group.blocks})
    if len(labels) < 2:
        return ""
    places = {label: place for place, label in enumerate(labels)}
    rows = [np.array([places[block.label] for block in group.blocks]) for group in chosen]

    def alone(epsilon: int) -> NDArray[np.bool_]:
        """Return whether each label admits a pure ε in all accounts that have it."""
        admits = np.full(len(labels), all(group.fits_pure(epsilon).all() for group in fixed))
        for group, mine in zip(chosen, rows, strict=True):
            np.logical_and.at(admits, mine, group.fits_pure(epsilon))
        return admits

    most = _largest(lambda epsilon: bool(alone(epsilon).any()))
    if most <= largest:
        return ""
    label, left = labels[int(np.argmax(alone(most)))], pure_text(Fraction(most, EPSILON_UNIT))
    return f' Or name fewer blocks: "{label}" alone has ε {left} left.'
