"""The cell magic of notebooks: SQL in a cell, with its price first.

`%load_ext lapwing` makes `%%lapwing` known. A cell shows its plan and its price, and charges nothing. Only
with `--release` is it charged and answered.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lapwing.client.address import is_address
from lapwing.client.remote_dataset import RemoteDataset
from lapwing.errors import LapwingError, MissingExtra
from lapwing.sql.dataset import Dataset
from lapwing.sql.opening import open as open_policy

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from lapwing.client.remote_answer import RemoteAnswer
    from lapwing.client.remote_plan import RemotePlan
    from lapwing.sql.answering.answers import Answer
    from lapwing.sql.pricing.plan import Plan

USAGE = "%%lapwing visits.toml --epsilon 0.5 [--release]"  # or https://HOST/NAME


class CellArguments(argparse.ArgumentParser):
    """The options after `%%lapwing`. Mistakes are errors of the cell and do not end the program."""

    def __init__(self) -> None:
        super().__init__("%%lapwing", description=__doc__, add_help=False, allow_abbrev=False)
        self.add_argument("source")
        for text in ("--epsilon", "--within", "--delta", "--confidence", "--analyst", "--into"):
            self.add_argument(text)
        self.add_argument("--rows", type=int)
        self.add_argument("--release", action="store_true")

    def error(self, message: str) -> NoReturn:
        """Raise the error of a cell."""
        raise _cell_error(f"{message}. Write {USAGE}; options: --epsilon or --within, --delta, "
                          "--confidence, --rows, --analyst, --into NAME, --release")  # fmt: skip


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Make `%%lapwing` known to a notebook. `%load_ext lapwing` calls this.

    Args:
        shell: The shell of the notebook.
    """

    def run(line: str, cell: str) -> Plan | Answer | RemotePlan | RemoteAnswer:
        return run_cell(line, cell, shell.user_ns)

    shell.magics_manager.register_function(run, magic_kind="cell", magic_name="lapwing")


def run_cell(line: str, cell: str, names: dict[str, Any]) -> Plan | Answer | RemotePlan | RemoteAnswer:
    """Plan the SQL of a cell, and release it if the line says so.

    Args:
        line: The text after `%%lapwing`: a policy file, the address of a data set of a server, or the name
            of a variable that holds a data set; and options.
        cell: The SQL.
        names: The names of the notebook. `--into` stores the result in them.

    Returns:
        The plan; with `--release`, the answer.

    Raises:
        UsageError: With the words of the error. Nothing was charged, unless they say so.
    """
    try:
        words = shlex.split(line)
    except ValueError:
        raise _cell_error(f"a quote is not closed. Write {USAGE}") from None
    given = CellArguments().parse_args(words)
    into = given.into
    if into is not None and (not into.isidentifier() or iskeyword(into)):
        raise _cell_error("--into must be the name of a variable, such as answer")
    try:
        with _opened(given, names) as dataset:
            plan = dataset.plan(
                cell.strip(), epsilon=given.epsilon, within=given.within, delta=given.delta,
                confidence=given.confidence, rows=given.rows,
            )  # fmt: skip
            result: Plan | Answer | RemotePlan | RemoteAnswer = plan
            if given.release:
                print(f"Costs {plan.cost}, or nothing if released before. Budget left: {dataset.left()}.")
                result = plan.release()
            else:
                print(f"Nothing was charged. Add --release to be charged {plan.cost} and see the answer.")
    except LapwingError as error:
        raise _cell_error(str(error)) from None
    if into is not None:
        names[into] = result
    return result


@contextmanager
def _opened(given: argparse.Namespace, names: dict[str, Any]) -> Iterator[Dataset | RemoteDataset]:
    """Lend the data set of that name, or one of the policy file, which is closed afterwards."""
    known = names.get(given.source)
    if isinstance(known, RemoteDataset):
        yield known
        return
    if isinstance(known, Dataset):
        if given.analyst not in (None, known.analyst):
            raise _cell_error(f"{given.source} is asked by {known.analyst}. Leave out --analyst")
        yield known
        return
    if is_address(given.source):
        if given.analyst is not None:
            raise _cell_error("A server knows who asks by the token. Leave out --analyst")
        from lapwing.client.connecting import connect  # noqa: PLC0415 (an extra)

        yield connect(given.source)  # stays open: plans and answers of the cell ask the server
        return
    if not Path(given.source).exists():
        raise _cell_error(f"{given.source} is neither a policy file nor a data set. Write {USAGE}")
    with open_policy(given.source, analyst=given.analyst) as dataset:
        yield dataset


def _cell_error(text: str) -> Exception:
    """Return an error that a notebook shows as one sentence, without a traceback."""
    try:
        from IPython.core.error import UsageError  # noqa: PLC0415 (an extra)
    except ImportError:
        raise MissingExtra("notebook", "IPython") from None
    return UsageError(text)
