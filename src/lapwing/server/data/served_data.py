"""The data sets of a server: a curator for each policy file of its folder, which is kept open.

Claim    a person reaches a data set only with a role for it, and sees no difference between a data set
         without such a role and one that never was.
Because  `require` is the only way from a name to a data set, and asks for the roles first.
Test     tests/server/data/test_served_data.py
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from lapwing.core.exact import short_down, short_up
from lapwing.errors import BadParameter
from lapwing.ledger import DataSet
from lapwing.server.people.person import NotFound, Requester, Role
from lapwing.sql import policy_ledger
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.pricing.cost import BudgetLeft
from lapwing.sql.question.policy_schema import schema_json
from lapwing.sql.reading import generated_rows, registration

DIGITS = 18  # of numbers in replies
EVERY_ROLE = tuple(Role)
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def price_text(value: Fraction) -> str:
    """Return an ε or δ that is paid or promised as decimal text, rounded up."""
    return short_up(Fraction(value), DIGITS)


def left_text(value: Fraction) -> str:
    """Return an ε or δ that is left as decimal text, rounded down."""
    return short_down(Fraction(value), DIGITS)


class ServedData:
    """One data set, with its curator. Threads may share it.

    Args:
        curator: The curator, which this object closes.
    """

    def __init__(self, curator: Curator) -> None:
        self.curator = curator
        self.name = self.title = curator.policy.name
        self.notices: list[str] = []  # what was made for life, for stewards: it names places of files
        curator.notify = self.notices.append

    def schema(self) -> dict[str, Any]:
        """Return tables, columns, bounds and units, as the policy declares them. All of it is public."""
        declared, policy = schema_json(self.curator.policy), self.curator.policy
        exact = {
            "epsilon": policy.epsilon,
            "delta": policy.delta,
            "delta_per_query": policy.delta_per_query,
            "least_epsilon": policy.least_epsilon,
        }
        return {**declared, "budget": {name: price_text(value) for name, value in exact.items()}}

    def example_rows(self, table: str, rows: int) -> pa.Table:
        """Return generated rows of a table, from the policy alone, to write code for."""
        return generated_rows.example_rows(self.curator.policy, table, rows)

    def session(self, person: Requester) -> Dataset:
        """Return the session of an analyst, under whose name charges are made."""
        return Dataset(self.curator, analyst=person.name)

    def registered(self) -> DataSet | None:
        """Return the data as the ledger knows it, or None. Its source may have changed since."""
        curator = self.curator
        return policy_ledger.find_data_set(curator.ledger, curator.policy) if curator.has_ledger else None

    def booking_key(self, name: str) -> str:
        """Return the key under which a token books the price of a plan.

        After a hold was cleared, the ledger may charge a plan a second time, so that it is booked again.
        """
        cleared = len(registration.cleared_holds(self.curator.policy))
        return f"{name}.{cleared}" if cleared else name

    def require_allowed(self, person: Requester) -> None:
        """Refuse an analyst who may not read answers now: too many failed, or the quota is gone.

        Raises:
            AllHeld: If too many questions of the analyst failed.
            BadParameter: If answers are shared, and the analyst has no quota any more.
        """
        policy = self.curator.policy
        policy_ledger.require_few_failures(self.curator.ledger, policy, person.name)
        if policy.shares_answers:
            policy_ledger.quota_of(policy, person.name)

    def left(self, person: Requester) -> BudgetLeft:
        """Return what is left of the budget, and of the person's quota if there is one."""
        return self.session(person).left()

    def warm(self) -> None:
        """Load what the first question needs. No private row is read, and no ledger is made."""
        policy = self.curator.policy
        table = policy.private_tables[0].name
        if self.curator.has_ledger:
            _ = self.curator.ledger
        with suppress(BadParameter):  # such as: analysts have quotas, and this is none of them
            plan = Dataset(self.curator, analyst="server").plan(
                f"SELECT COUNT(*) FROM {table}",  # noqa: S608 (a name that the policy declares)
                epsilon=max(policy.least_epsilon, Fraction(1, 100)),
            )
            plan.to_json()

    def close(self) -> None:
        """Close the curator, after the answers that are paid for are stored."""
        self.curator.close()


class ServedDataSets:
    """All data sets of a server, by name.

    Args:
        curators: A curator for each data set.

    Raises:
        BadParameter: If two data sets have one name, or a name cannot be in an address.
    """

    def __init__(self, curators: Iterable[Curator]) -> None:
        self._sets: dict[str, ServedData] = {}
        for curator in curators:
            name = curator.policy.name
            if not _NAME.fullmatch(name):
                raise BadParameter(
                    "dataset.name", f'"{name}" cannot be served: use letters, digits, - and _ alone'
                )
            if name in self._sets:
                raise BadParameter("dataset.name", f'"{name}" is the name of two policies: rename one')
            self._sets[name] = ServedData(curator)

    @classmethod
    def open(cls, folder: Path, *, threads: int | None = None) -> Self:
        """Open every policy of a folder. Other files that end in .toml are left alone.

        Raises:
            BadFile: If a policy has mistakes.
            BadParameter: If there is no policy.
        """
        paths = [path for path in sorted(folder.glob("*.toml")) if is_policy(path)]
        if not paths:
            raise BadParameter("folder", f"{folder} has no policy: a file NAME.toml with [dataset] in it")
        return cls(Curator(load_policy(path), threads=threads) for path in paths)

    def names(self) -> list[str]:
        """Return the names of all data sets."""
        return list(self._sets)

    def __iter__(self) -> Iterator[ServedData]:
        return iter(self._sets.values())

    def visible_to(self, person: Requester) -> list[ServedData]:
        """Return the data sets for which a person has a role."""
        return [data for data in self if person.roles_for(data.name)]

    def require(self, person: Requester, name: str, *roles: Role) -> ServedData:
        """Return a data set for which a person has one of the roles; any role if none is named.

        Raises:
            NotFound: If there is no such data set, or the person has no role for it.
            NotAllowed: If the person has other roles for it.
        """
        data = self._sets.get(name)
        if data is None:
            raise NotFound(name)
        person.require(name, *(roles or EVERY_ROLE))
        return data

    def close(self) -> None:
        """Close all curators."""
        for data in self:
            data.close()


def is_policy(path: Path) -> bool:
    """Return whether a TOML file is a policy. A file that cannot be read is none."""
    try:
        return "dataset" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
