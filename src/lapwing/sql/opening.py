"""Opening data for one analyst: of a policy file, a policy in code, or a data frame.

Claim    a policy in code spends from the ledger, and follows the rules of identity, that its file would.
Because  both are the same checked policy at a path; rows in memory are stored beside it before anything is
         planned, under the name of their version.
Test     tests/sql/test_opening.py
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lapwing.config.toml_text import quoted
from lapwing.core.exact import Number
from lapwing.errors import BadParameter
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy import policy_in_code


def open(  # noqa: A001
    source: Any,
    *,
    analyst: str | None = None,
    threads: int | None = None,
    tables: Mapping[str, Any] | None = None,
    version: str | None = None,
    ledger: str | os.PathLike[str] | None = None,
    name: str | None = None,
    unit: str | None = None,
    rows_per_unit: int | None = None,
    columns: Mapping[str, Any] | None = None,
    epsilon: Number | None = None,
    delta: Number | None = None,
) -> Dataset:
    """Open the data of a policy for one analyst: of a policy file, a policy in code, or a data frame.

    Rows of data frames are stored beside the policy file, in a file that only its owner can read. Later
    sessions read that file. Whoever gives them is the curator. For a policy in code they are stored beside
    its ledger: in the folder where the policy was made, unless `ledger` names another one.

    Args:
        source: The path of a policy file; a `lapwing.Policy`; or a data frame (or the path of a data file),
            which needs `unit`, `columns` and `epsilon`.
        analyst: The name of the analyst. None: the user of this computer.
        threads: How many threads an engine may use for one question. None: as the policy says.
        tables: Rows by table, where the policy's source is "frame": pandas or Polars data frames, or Arrow
            tables.
        version: The name of the rows, needed where data frames give them. Under the same name stored
            answers cost nothing. A new name is new data, also if the rows are the same. A single data frame
            keeps the name that is stored; its first one is "1".
        ledger: The ledger of a policy in code: a folder, a file, or the URL of a PostgreSQL database.
        name: For a data frame: the name of the data and of its table. None: "data".
        unit: For a data frame: the column that says which person a row belongs to.
        rows_per_unit: For a data frame: how many rows of one person may count. None: 1.
        columns: For a data frame: what is public about its columns, as in `lapwing.Table`.
        epsilon: For a data frame: the lifetime budget in ε.
        delta: For a data frame: the lifetime budget in δ. None: 0.

    Returns:
        A session with a curator of its own, which closes with it.

    Raises:
        BadParameter: If the policy or a name is not valid, or other rows have this version.

    Example:
        >>> import lapwing
        >>> with lapwing.open("visits.toml", analyst="ann") as dataset:
        ...     print(dataset.ask("SELECT COUNT(*) FROM visits", epsilon="0.1"))
    """
    analyst = analyst or getpass.getuser()
    of_rows: dict[str, Any] = {
        "name": name, "unit": unit, "rows_per_unit": rows_per_unit, "columns": columns, "epsilon": epsilon,
        "delta": delta,
    }  # fmt: skip
    of_rows = {word: value for word, value in of_rows.items() if value is not None}
    if isinstance(source, policy_in_code.Policy):
        policy = source
    elif of_rows or not isinstance(source, str | os.PathLike):
        policy = policy_in_code.policy_of_rows(source, **of_rows)
    else:
        if ledger is not None:
            raise BadParameter("ledger", "is what the policy file says in [ledger]. Do not give it here")
        return _open_file(Path(source), tables, version, analyst=analyst, threads=threads)
    if policy is source and of_rows:
        raise BadParameter(next(iter(of_rows)), "is what the policy says. Do not give it here")
    if ledger is not None:
        policy = policy.spending_from(ledger)
    frames = _all_frames(policy, tables)
    if frames is None and version is None:
        return Dataset(policy, analyst=analyst, threads=threads)
    from lapwing.sql.policy.given_frames import stored_frames  # noqa: PLC0415 (Parquet is slow to load)

    declared = policy.name, policy.sources
    with stored_frames(policy.path, frames, version, declared=declared, keeps_version=policy is not source):
        return _prepared(Curator(policy.checked(), threads=threads), analyst)


def _open_file(
    path: Path,
    tables: Mapping[str, Any] | None,
    version: str | None,
    *,
    analyst: str,
    threads: int | None,
) -> Dataset:
    if tables is None and version is None:
        return Dataset(Curator(path, threads=threads), analyst=analyst, closes=True)
    from lapwing.sql.policy.given_frames import stored_frames  # noqa: PLC0415 (Parquet is slow to load)

    with stored_frames(path, tables, version):
        return _prepared(Curator(path, threads=threads), analyst)


def _all_frames(
    policy: policy_in_code.Policy, tables: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Return the rows that the policy holds and those that were given; None if there are none."""
    for name in policy.frames if tables else ():
        if tables and name in tables:
            raise BadParameter("tables", f"the policy has rows of {quoted(name)} already. Give them once")
    return {**policy.frames, **(tables or {})} or None


def _prepared(curator: Curator, analyst: str) -> Dataset:
    dataset = Dataset(curator, analyst=analyst, closes=True)
    try:
        dataset.prepare()  # has nothing to do where no rows were written
    except BaseException:
        dataset.close()
        raise
    return dataset
