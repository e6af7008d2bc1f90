"""What a release would cost, and whom: values that planners make and the gate spends."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from lapwing.errors import BadParameter
from lapwing.ledger.accounts import EVERYONE, Account, Unit
from lapwing.ledger.entry import KEPT_NAME, KEPT_VALUE, Costs, checked_label, text_of
from lapwing.privacy import Loss, Relation, SampledGaussian, Worst
from lapwing.privacy.describe import describe, parts

REQUEST_AT_MOST = 1 << 20
PARAMETERS_AT_MOST = 1 << 14


@dataclass(frozen=True, slots=True)
class Target:
    """Blocks of one account, by name. An account without slices has none to name.

    `everyone` charges all blocks, and those that will be opened later: for data whose units are not
    sliced by the account's rule.
    """

    account: str
    blocks: Sequence[str] = ()
    everyone: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "account", checked_label(self.account, "account"))
        if isinstance(self.blocks, str):
            raise BadParameter("blocks", "must be several names, not one text")
        object.__setattr__(self, "blocks", tuple([checked_label(name, "block") for name in self.blocks]))
        if not isinstance(self.everyone, bool):
            raise BadParameter("everyone", "must be True or False")
        if self.everyone and self.blocks:
            raise BadParameter("blocks", "everyone is charged in all blocks: name none")
        if EVERYONE in self.blocks:  # who is in no block may be in one by the time that data is read
            raise BadParameter("blocks", '"*" is charged with everyone, not by itself')
        if len(set(self.blocks)) < len(self.blocks):
            raise BadParameter("blocks", "must name each block once")


@dataclass(frozen=True, slots=True)
class Spending:
    """What a release would cost, and whom: fixed before data is read."""

    targets: Sequence[Target]
    loss: Loss
    unit: Unit
    relation: Relation
    mechanism: str
    parameters: Mapping[str, str | int]
    request: bytes
    keeps_request: bool = field(
        default=False, compare=False
    )  # whether it can be read again beside its entry
    asked: bytes = field(init=False, repr=False, compare=False)  # what the digest is of
    digest: str = field(init=False)  # the same for the same request only: what, of whom, at which price
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
            raise BadParameter("loss", "holds only where neighbours add or remove a unit")
        if not isinstance(self.request, bytes) or len(self.request) > REQUEST_AT_MOST:
            raise BadParameter("request", "must be at most 1 MiB of bytes")
        parameters = self._parameters()
        mechanism = text_of(self.mechanism)
        public = f'"loss":{_described(self.loss)},"mechanism":{mechanism},"parameters":{parameters}'
        whom = [[target.account, list(target.blocks), target.everyone] for target in self.targets]
        asked = text_of([whom, self.unit.value, self.relation.value, public])
        object.__setattr__(self, "asked", asked.encode("ascii") + b"\n" + self.request)
        digest = hashlib.sha256(self.asked).hexdigest()
        object.__setattr__(self, "public", public)
        object.__setattr__(self, "everyone", any(target.everyone for target in self.targets))
        object.__setattr__(self, "digest", digest)

    def _parameters(self) -> str:
        """As they stand in an entry."""
        if not isinstance(self.parameters, Mapping):
            raise BadParameter("parameters", "must be texts and whole numbers by name")
        for name, value in self.parameters.items():
            if not isinstance(name, str) or not isinstance(value, str | int):
                raise BadParameter("parameters", "must be texts and whole numbers by name")
        try:
            by_name = {"".join(name): value for name, value in self.parameters.items()}  # plain texts
            if by_name.get(KEPT_NAME) == KEPT_VALUE:
                raise BadParameter("parameters", "say by themselves whether the request is kept")
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
        """Its price in an account. What was priced to plan it is not priced again to charge it."""
        known = self._prices.get(account.number)
        if known is None or known[0] is not account:
            known = self._prices[account.number] = account, account.costs(self.loss)
        return known[1]

    def _check_targets(self) -> None:
        object.__setattr__(self, "targets", tuple(self.targets))
        if not self.targets or not all(isinstance(target, Target) for target in self.targets):
            raise BadParameter("targets", "must name at least one account")
        if len({target.account for target in self.targets}) < len(self.targets):
            raise BadParameter("targets", "must name each account once")
        if not isinstance(self.unit, Unit) or not isinstance(self.relation, Relation):
            raise BadParameter("relation", "must be a Relation, and the unit a Unit")


@lru_cache(maxsize=4096)
def only_add_remove(loss: Loss) -> bool:
    """Whether the loss is smaller than it would be where a unit is replaced."""
    return any(isinstance(part, Worst | SampledGaussian) for part in parts(loss))


@lru_cache(maxsize=4096)
def _described(loss: Loss) -> str:
    return text_of(describe(loss))
