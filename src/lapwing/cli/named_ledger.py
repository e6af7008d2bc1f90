"""The ledger that a person names: by its own place, or by a file whose ledger it is.

A policy and a survey file say where their ledger is, with its keys and anchor. A pipeline and a release
file name a policy. So every command that needs a ledger takes such a file as well.

With such a file the variables LAPWING_KEYS and LAPWING_ANCHOR do not count, as they do not for `lapwing
ask`. The options --keys and --anchor count where the file names no place, and are refused where it names
another one: no option is ignored. An option with the value of its variable counts as the variable.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.sql.policy.policy import CheckedPolicy
    from lapwing.survey.questionnaire import Questionnaire

VARIABLES = {"keys": "LAPWING_KEYS", "anchor": "LAPWING_ANCHOR"}  # by option
_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True, slots=True)
class NamedLedger:
    """The place of a ledger. `file` and `account` are those of the file that names it, or empty."""

    where: str
    keys: Path | None
    anchor: str | None
    file: str = ""
    account: str = ""
    registry: str = ""

    def require(self) -> None:
        """Raise BadParameter if there is no ledger to open, or no key file where one was named."""
        from lapwing.config.values import is_postgres

        if self.keys is not None and (not self.keys.exists() or self.keys.is_dir()):
            raise BadParameter("keys", f"there is no file {self.keys}")
        if not is_postgres(self.where) and not Path(self.where).is_file():
            yet = f" yet: the first charge of {self.file} makes it" if self.file else ""
            raise BadParameter("ledger", f"there is no ledger at {self.where}{yet}")


def named_ledger(where: str, keys: Path | None, anchor: str | None) -> NamedLedger:
    """Return the ledger at a place, or the one of a .toml file.

    Raises:
        BadParameter: If an option names other keys or another anchor than the file does.
    """
    if not where.endswith(".toml") or _is_no_toml(Path(where)):
        return NamedLedger(where, keys, anchor)
    of, account = _owner(Path(where))
    given = None if keys is None else str(keys)
    own_keys = _own_place("keys", of.ledger_keys, given, file=where, ledger=of.ledger)
    own_anchor = _own_place("anchor", of.ledger_anchor, anchor, file=where, ledger=of.ledger)
    return NamedLedger(
        of.ledger,
        Path(own_keys) if own_keys else None,
        own_anchor,
        file=where,
        account=account,
        registry=of.ledger_registry,
    )


def _own_place(option: str, own: str, given: str | None, *, file: str, ledger: str) -> str | None:
    """Return the place that a file names, or else the one of an option. `given` can be the variable's."""
    if given is None or given == os.environ.get(VARIABLES[option]):
        return own or None
    if own and own != given and Path(own) != Path(given).absolute():
        raise BadParameter(
            option,
            f"{file} names its own: {own}. Leave out --{option}, or name the ledger itself, {ledger}, "
            f"together with --{option}",
        )
    return own or given


def _is_no_toml(path: Path) -> bool:
    """Return whether a file is a ledger, a statement or a proof, although its name ends in .toml."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)).startswith((_SQLITE, b"{"))


def _owner(path: Path) -> tuple[CheckedPolicy | Questionnaire, str]:
    """Return the policy or survey of a file, and the name of its account."""
    tables = _tables(path)
    if "survey" in tables:
        from lapwing.survey import load
        from lapwing.survey.invitations import RESPONDENTS_ACCOUNT

        return load(path), RESPONDENTS_ACCOUNT
    from lapwing.sql.policy.policy import account_label
    from lapwing.sql.policy.policy_file import load_policy

    if "pipeline" in tables:
        from lapwing.learn import load_pipeline

        path = load_pipeline(path).stream
    elif "release" in tables:
        from lapwing.publish import load_release

        path = load_release(path).policy
    policy = load_policy(path)
    return policy, account_label(policy)


def _tables(path: Path) -> frozenset[str]:
    """Return the names of the file's tables; none if it cannot be read, which `load_policy` reports."""
    try:
        return frozenset(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return frozenset()
