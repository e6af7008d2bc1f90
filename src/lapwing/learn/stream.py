"""A stream: a policy with blocks, into which data keeps arriving, and from which pipelines learn.

Claim    every block's loss stays within the policy's (ε, δ), whatever is appended, trained and chosen;
         hence the loss of every protected unit does. docs/arguments/growing.md.
Because  appending changes no block that is there, and whoever reads a block is charged in it first, by the
         ledger, whose caps never change.
Test     tests/learn/growing/test_stream.py

Growing data: a stream takes in new data, opens blocks, and knows which of them can still pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

from lapwing.core.losses import Loss
from lapwing.engines.engine import ReportProgress
from lapwing.errors import BadParameter
from lapwing.learn import new_files, stream_blocks
from lapwing.learn.budget_sharing import (
    PipelineShare,
    SharingRule,
    find_share,
    load_sharing_rule,
    open_share,
)
from lapwing.learn.stream_blocks import (
    ArrivalNote,
    BlockStatus,
    StreamStatus,
    arrived_periods,
    blocks_able_to_pay,
    blocks_text,
    budget_left_by_block,
    untouched_blocks,
)
from lapwing.ledger import DataSet, Ledger
from lapwing.ledger.accountant.guarantee import guarantee_in_periods_text
from lapwing.ledger.spending import Target
from lapwing.sql import policy_ledger, row_questions
from lapwing.sql.dataset import Dataset
from lapwing.sql.dataset import open as open_dataset
from lapwing.sql.policy import BlockRule, Policy, block_labels
from lapwing.sql.truncated import registration
from lapwing.sql.truncated.prepared_copy import exclusive_lock

FIRST_LOOK = 50  # blocks at first


@dataclass(frozen=True, slots=True)
class AppendResult:
    """What an append did: the new version, where the file lies now, and which blocks came in with it."""

    version: int
    file: Path | None
    blocks: tuple[str, ...]


class Stream:
    """A growing data set, for one analyst."""

    def __init__(self, dataset: Dataset, sharing: SharingRule | None = None) -> None:
        if dataset.policy.blocks is None:
            raise BadParameter("blocks", "a stream needs blocks: write [blocks] into the policy")
        self.dataset = dataset
        self.sharing = load_sharing_rule(dataset.policy) if sharing is None else sharing

    @classmethod
    def open(cls, path: str | Path, *, analyst: str | None = None, threads: int | None = None) -> Stream:
        """The stream of a policy file, for one analyst (else: the user of this computer)."""
        dataset = open_dataset(path, analyst=analyst, threads=threads)
        try:
            return cls(dataset)
        except BaseException:
            dataset.close()
            raise

    @property
    def policy(self) -> Policy:
        """Whose stream it is."""
        return self.dataset.policy

    @property
    def ledger(self) -> Ledger:
        """Who is charged."""
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
        """Take a file in (or what was put into the source by other ways), and open blocks.

        `through` says up to which block of time there is data now, else the calendar does. After a crash,
        the same again goes on: a file is taken once.
        """
        policy, day = self.policy, today or datetime.now(UTC).date()
        to = new_files.table_for_file(policy, table) if file is not None or table is not None else None
        registration.make_folder(policy)
        stream_blocks.stream_folder(policy).mkdir(mode=0o700, exist_ok=True)
        with exclusive_lock(stream_blocks.stream_folder(policy)):
            note, known = stream_blocks.read_arrival_note(policy), self._known()
            reached = stream_blocks.checked_through(self._blocks, through, note, is_known=known is not None)
            new_files.require_unchanged_files(policy, 0 if known is None else known.version)
            place = new_files.take_file(to, Path(file)) if to is not None and file is not None else None
            new_files.require_readable_files(policy)
            self.dataset.prepare(progress, today=day, again=True)  # also an empty append counts
            by_time = self._blocks.by == "row"
            labels = arrived_periods(self._blocks, reached, day) if by_time else self.blocks()
            new = stream_blocks.record_arrivals(policy, note, labels, through=reached, today=day)
            return AppendResult(self.dataset.version(), place, tuple(new))

    def _known(self) -> DataSet | None:
        """The data set, if it was taken in. Looking makes no ledger."""
        return (
            policy_ledger.find_data_set(self.ledger, self.policy)
            if policy_ledger.has_ledger(self.policy)
            else None
        )

    def _opened(self) -> list[str]:
        """The blocks of units; periods of rows are all declared, and the ledger need not be asked."""
        return self.dataset.all_blocks() if self._blocks.by == "unit" else block_labels(self._blocks)

    # Looking

    def blocks(self) -> list[str]:
        """The blocks that have come in by now, oldest first. Whether they can pay is another question."""
        if self._blocks.by == "unit":
            return [] if self._known() is None else stream_blocks.sort_by_age(self._blocks, self._opened())
        note = stream_blocks.read_arrival_note(self.policy)
        return [] if note is None else stream_blocks.sort_by_age(self._blocks, list(note.born))

    def status(self, *, pipeline: str | None = None) -> StreamStatus:
        """What is left of every block; with a pipeline, for that one. Nothing is written."""
        policy, known = self.policy, self._known()
        several = guarantee_in_periods_text(*self._for_life()) if self._blocks.by == "row" else ""
        version = None if known is None else known.version

        def found(blocks: tuple[BlockStatus, ...]) -> StreamStatus:
            return StreamStatus(policy.name, policy.protects, version, str(self.sharing), blocks, several)

        if not policy_ledger.has_ledger(policy):
            return found(untouched_blocks(policy.epsilon, policy.delta, block_labels(self._blocks)))
        labels = self._opened()
        if not labels:
            return found(())
        own = (Target(policy_ledger.account_label(policy), tuple(labels)),)
        return found(
            budget_left_by_block(
                self.ledger,
                own if known is None else self._targets(labels),
                labels,
                arrived=set() if known is None else set(self.blocks()),
                unlocked=self._unlocked(labels),
                share=None if pipeline is None else self._share(pipeline),
            )
        )

    def _for_life(self) -> tuple[Fraction, Fraction]:
        """(ε, δ) of a block; of an account that was raised, the sum."""
        if not policy_ledger.has_ledger(self.policy):
            return self.policy.epsilon, self.policy.delta
        root = self.ledger.account(policy_ledger.account_label(self.policy)).number
        terms = [account.terms for account in self.ledger.accounts() if account.root == root]
        none = Fraction(0)
        return sum((one.epsilon for one in terms), none), sum((one.delta for one in terms), none)

    def _unlocked(self, labels: Sequence[str]) -> dict[str, Fraction]:
        note = stream_blocks.read_arrival_note(self.policy) or ArrivalNote()
        now = note.appends
        return {label: self.sharing.unlocked(now, note.born.get(label, now)) for label in labels}

    # Choosing and charging

    def choose_blocks(self, n: int, *, loss: Loss, pipeline: str) -> list[str]:
        """The newest blocks that have come in and can pay, newest first; fewer than n if there are fewer.

        Choosing spends and writes nothing. If another spends first, the charge is refused: choose again.
        """
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise BadParameter("n", "must be a whole number of at least 1")
        newest = self.blocks()[::-1]
        share, found = self._share(pipeline), list[str]()
        at, size = 0, max(2 * n, FIRST_LOOK)
        while len(found) < n and at < len(newest):  # most often the newest can pay: few are looked at
            labels = newest[at : at + size]
            unlocked = self._unlocked(labels) if self.sharing.versions else None
            able = blocks_able_to_pay(self.ledger, self._targets(labels), loss, unlocked, share)
            found += [label for label in labels if label in able]
            at, size = at + size, 4 * size
        return found[:n]

    def targets(
        self, question: row_questions.RowQuestion, blocks: Sequence[str], *, pipeline: str
    ) -> tuple[Target, ...]:
        """Whom reading these blocks is charged to: as for any question, and the pipeline's share."""
        found = row_questions.targets(self.dataset, question, blocks)
        reached = row_questions.blocks_to_charge(self.dataset, question, blocks)
        share = open_share(self.ledger, self.policy, self.sharing, pipeline)
        return found if share is None else (*found, Target(share, tuple(reached or ())))

    def _targets(self, labels: Sequence[str]) -> tuple[Target, ...]:
        own = self.dataset
        return policy_ledger.targets_of(own.ledger, own.policy, own.analyst, labels)

    def _share(self, pipeline: str) -> PipelineShare | None:
        return find_share(self.ledger, self.policy, self.sharing, pipeline)

    def close(self) -> None:
        """Let go of the data set and its ledger."""
        self.dataset.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


__all__ = ["AppendResult", "BlockStatus", "SharingRule", "StreamStatus", "Stream", "blocks_text"]
