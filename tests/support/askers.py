"""Processes that ask questions of a data set, or die while they do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lapwing.errors import InProgress
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.sql.reading.reader import Reader


def ask(policy: Path, sql: str, price: str, out: Any, analyst: str = "ann") -> None:
    """Put the first number of the answer, or None if another process is being answered."""
    with Dataset(load_policy(policy), analyst=analyst) as own:
        try:
            out.put(int(own.ask(sql, epsilon=price).columns[0].values[0]))
        except InProgress:
            out.put(None)


def die(policy: Path, sql: str, price: str) -> None:
    """Be charged, and be gone before rows are read."""
    Reader.exact = lambda *_: os._exit(9)  # type: ignore[method-assign]
    Dataset(load_policy(policy), analyst="ann").ask(sql, epsilon=price)


def count_truncated(policy: Path, price: str, analyst: str = "ann") -> None:
    """Buy an answer about truncated people."""
    with Dataset(load_policy(policy), analyst=analyst) as own:
        own.truncated("visits", epsilon=price)


def die_in_a_batch(policy: Path, questions: list[str], price: str) -> None:
    """Be charged for a batch, and be gone after the rows of its first question were read."""
    exact, read = Reader.exact, []

    def dying(self: Reader, question: Any) -> Any:
        read.append(question)
        return exact(self, question) if len(read) == 1 else os._exit(9)

    Reader.exact = dying  # type: ignore[method-assign, assignment]
    Dataset(load_policy(policy), analyst="ann").batch(questions, epsilon=price).release()
