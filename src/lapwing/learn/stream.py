"""Streams: policies with blocks, to which data keeps arriving, and from which pipelines learn.

Claim    the loss of every block stays within the policy's (ε, δ), whatever is appended, trained and chosen.
         Hence so does the loss of every privacy unit. docs/arguments/growing.md.
Because  an append changes no existing block, and reading a block is charged to it first, by the ledger,
         whose caps never change.
Test     tests/learn/test_stream.py
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path

from lapwing.core.losses import Loss
from lapwing.engines.engine import ReportProgress
from lapwing.errors import BadParameter
from lapwing.learn import arrivals, stream_blocks
from lapwing.ledger import DataSet, Ledger
from lapwing.ledger.accountant.guarantee import guarantee_in_periods_text
from lapwing.ledger.spending import Target
from lapwing.sql import policy_ledger, row_questions
from lapwing.sql.dataset import Dataset
from lapwing.sql.opening import open as open_dataset
from lapwing.sql.policy.policy import BlockRule, CheckedPolicy, account_label, block_labels

FIRST_LOOK = 50  # blocks at first


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The version of the data after an append, the place of the new file, and the blocks that arrived.

    `file` is None if no file was given.
    """

    version: int
    file: Path | None
    blocks: tuple[str, ...]


class Stream(AbstractContextManager["Stream"]):
    """A growing data set, opened by one analyst.

    Data arrives by `append`. Pipelines learn from its blocks with `lapwing.learn.train`, and each block
    pays from its own budget. Use it in a `with` statement, or call `close`.

    Args:
        dataset: The data set of a policy with a `[blocks]` section.
        sharing: The rule by which pipelines share the blocks' budgets; None reads it from the stream file
            beside the policy, and without such a file the first pipeline to ask is served first.

    Raises:
        BadParameter: If the policy has no blocks.

    Example:
        With the files that `lapwing train example` writes:

        ```python
        from lapwing.learn import Stream

        with Stream.open("rides.toml") as stream:
            stream.append(through="2026-01")
            print(stream.status().usable)
        ```
    """

    def __init__(self, dataset: Dataset, sharing: stream_blocks.SharingRule | None = None) -> None:
        if dataset.policy.blocks is None:
            raise BadParameter("blocks", "a stream needs blocks: write [blocks] into the policy")
        self.dataset = dataset
        self.sharing = stream_blocks.load_sharing_rule(dataset.policy) if sharing is None else sharing

    @classmethod
    def open(cls, path: str | Path, *, analyst: str | None = None, threads: int | None = None) -> Stream:
        """Open the stream of a policy file.

        Args:
            path: The policy file (TOML), which has a `[blocks]` section.
            analyst: The analyst whose quota is charged; None stands for the user of this computer.
            threads: The number of threads of the engine; None lets the engine decide.

        Returns:
            The stream, which must be closed.

        Raises:
            BadFile: If the policy file has mistakes.
            BadParameter: If the policy has no blocks.
        """
        dataset = open_dataset(path, analyst=analyst, threads=threads)
        try:
            return cls(dataset)
        except BaseException:
            dataset.close()
            raise

    @property
    def policy(self) -> CheckedPolicy:
        """The policy of the stream."""
        return self.dataset.policy

    @property
    def ledger(self) -> Ledger:
        """The ledger that is charged."""
        return self.dataset.ledger

    @property
    def _blocks(self) -> BlockRule:
        assert self.policy.blocks is not None
        return self.policy.blocks

    # Taking data in

    def append(
        self,
        file: str | Path | None = None,
        *,
        table: str | None = None,
        through: str | None = None,
        today: date | None = None,
        progress: ReportProgress | None = None,
    ) -> AppendResult:
        """Add a file, or register data that reached the source by other ways, and open new blocks.

        After a crash, call it again with the same arguments: a file is added once.

        Args:
            file: The new file; None if the data is in the source already.
            table: The private table that the file belongs to; needed if there are several.
            through: The newest block of time that has data now; None lets the calendar decide.
            today: The date of the append; None stands for today.
            progress: A callback that is told how much is done.

        Returns:
            The new version, the place of the file, and the blocks that arrived.

        Raises:
            BadParameter: If an old file has changed, if the file does not fit the source, or if `through`
                goes back.
        """
        policy, day = self.policy, today or datetime.now(UTC).date()
        to = arrivals.table_for_file(policy, table) if file is not None or table is not None else None
        with arrivals.append_lock(policy):
            note, known = arrivals.read_arrival_note(policy), self._known()
            reached = arrivals.checked_through(self._blocks, through, note, is_known=known is not None)
            arrivals.require_unchanged_files(policy, 0 if known is None else known.version)
            place = arrivals.take_file(to, Path(file)) if to is not None and file is not None else None
            arrivals.require_readable_files(policy)
            self.dataset.prepare(progress, today=day, again=True)  # an empty append counts, too
            by_time = self._blocks.by == "row"
            labels = arrivals.arrived_periods(self._blocks, reached, day) if by_time else self.blocks()
            new = arrivals.record_arrivals(policy, note, labels, through=reached, today=day)
            return AppendResult(self.dataset.version(), place, tuple(new))

    def _known(self) -> DataSet | None:
        """Return the data set if the ledger knows it. Looking creates no ledger."""
        if not policy_ledger.has_ledger(self.policy):
            return None
        return policy_ledger.find_data_set(self.ledger, self.policy)

    def _opened(self) -> list[str]:
        """Return all blocks of units in the ledger.

        Periods of rows are all declared: the ledger is not asked.
        """
        return (
            self.dataset.curator.all_blocks() if self._blocks.by == "unit" else block_labels(self._blocks)
        )

    # Looking

    def blocks(self) -> list[str]:
        """Return the blocks that have arrived, oldest first, whether or not they can pay."""
        if self._blocks.by == "unit":
            return [] if self._known() is None else arrivals.sort_by_age(self._blocks, self._opened())
        note = arrivals.read_arrival_note(self.policy)
        return [] if note is None else arrivals.sort_by_age(self._blocks, list(note.born))

    def status(self, *, pipeline: str | None = None) -> stream_blocks.StreamStatus:
        """Return the budget left of every block. Nothing is written.

        Args:
            pipeline: The pipeline whose share counts; None looks at the stream's own account.

        Returns:
            The public status of the stream.

        Raises:
            BadParameter: If the pipeline has no share of this stream.
        """
        policy, known = self.policy, self._known()
        several = guarantee_in_periods_text(*self.budget_for_life) if self._blocks.by == "row" else ""
        blocks: tuple[stream_blocks.BlockStatus, ...] = ()
        if not policy_ledger.has_ledger(policy):
            labels = block_labels(self._blocks)
            blocks = stream_blocks.untouched_blocks(policy.epsilon, policy.delta, labels)
        elif labels := self._opened():
            own = (Target(account_label(policy), tuple(labels)),)
            targets, arrived = (own, []) if known is None else (self._targets(labels), self.blocks())
            unlocked, share = self._unlocked(labels), None if pipeline is None else self._share(pipeline)
            blocks = stream_blocks.budget_left_by_block(
                self.ledger, targets, labels, arrived=set(arrived), unlocked=unlocked, share=share
            )
        version, sharing = None if known is None else known.version, str(self.sharing)
        return stream_blocks.StreamStatus(policy.name, policy.protects, version, sharing, blocks, several)

    @property
    def budget_for_life(self) -> tuple[Fraction, Fraction]:
        """The total (ε, δ) of a block, summed over its account and all raises of it."""
        if not policy_ledger.has_ledger(self.policy):
            return self.policy.epsilon, self.policy.delta
        first = self.ledger.account(account_label(self.policy))
        raised = [
            account for account in self.ledger.accounts() if account.raises and account.root == first.number
        ]
        terms = [account.terms for account in (first, *raised)]
        none = Fraction(0)
        return sum((term.epsilon for term in terms), none), sum((term.delta for term in terms), none)

    def _unlocked(self, labels: Sequence[str]) -> dict[str, Fraction]:
        """Return the part of each block's budget that may be used now."""
        note = arrivals.read_arrival_note(self.policy) or arrivals.ArrivalNote()
        now = note.appends
        return {label: self.sharing.unlocked(now, note.born.get(label, now)) for label in labels}

    # Choosing and charging

    def choose_blocks(self, n: int, *, loss: Loss, pipeline: str) -> list[str]:
        """Return the newest blocks that have arrived and can pay, newest first.

        Choosing spends and writes nothing. If somebody else spends first, the charge is refused: choose
        again.

        Args:
            n: The number of blocks wanted. The result has fewer if fewer can pay.
            loss: The privacy loss that each block must be able to pay.
            pipeline: The name of the pipeline that asks.

        Returns:
            The labels of the blocks.

        Raises:
            BadParameter: If n is no whole number of at least 1, or the pipeline has no share.
        """
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise BadParameter("n", "must be a whole number of at least 1")
        newest = self.blocks()[::-1]
        share, chosen = self._share(pipeline), list[str]()
        at, size = 0, max(2 * n, FIRST_LOOK)
        while len(chosen) < n and at < len(newest):  # usually the newest can pay, so that few are looked up
            labels = newest[at : at + size]
            unlocked = self._unlocked(labels) if self.sharing.versions else None
            targets = self._targets(labels)
            able = stream_blocks.blocks_able_to_pay(self.ledger, targets, loss, unlocked, share)
            chosen += [label for label in labels if label in able]
            at, size = at + size, 4 * size
        return chosen[:n]

    def targets(
        self, question: row_questions.RowQuestion, blocks: Sequence[str], *, pipeline: str
    ) -> tuple[Target, ...]:
        """Return the ledger targets that pay for reading these blocks, the pipeline's share included."""
        targets = row_questions.targets(self.dataset, question, blocks)
        reached = row_questions.blocks_to_charge(self.dataset, question, blocks)
        share = stream_blocks.open_share(self.ledger, self.policy, self.sharing, pipeline)
        return targets if share is None else (*targets, Target(share, tuple(reached or ())))

    def _targets(self, labels: Sequence[str]) -> tuple[Target, ...]:
        own = self.dataset
        return policy_ledger.targets_of(own.ledger, own.policy, own.analyst, labels)

    def _share(self, pipeline: str) -> stream_blocks.PipelineShare | None:
        return stream_blocks.find_share(self.ledger, self.policy, self.sharing, pipeline)

    def close(self) -> None:
        """Close the data set and its ledger."""
        self.dataset.close()

    def __exit__(self, *_: object) -> None:
        self.close()
