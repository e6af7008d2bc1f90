"""A stream: a policy with blocks, into which data keeps arriving, and from which pipelines learn.

Claim    every block's loss stays within the policy's (ε, δ), whatever is appended, trained and chosen;
         hence the loss of every protected unit does. docs/arguments/growing.md.
Because  appending changes no block that is there, and whoever reads a block is charged in it first, by the
         ledger, whose caps never change.
Test     tests/learn/growing/test_stream.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

from lapwing.engines.engine import Progress
from lapwing.errors import BadParameter
from lapwing.gate import Target
from lapwing.learn.growing import arrived, taking
from lapwing.learn.growing.arrived import Arrived, blocks_so_far
from lapwing.learn.growing.choosing import able_to_pay
from lapwing.learn.growing.sharing import Sharing, load_sharing, share_of
from lapwing.learn.growing.status import Status, blocks_left, untouched
from lapwing.ledger import Ledger
from lapwing.privacy import Loss
from lapwing.query import custody, rows
from lapwing.query.bounded import registered
from lapwing.query.bounded.prepared import alone
from lapwing.query.dataset import Dataset
from lapwing.query.dataset import open as open_dataset
from lapwing.query.policies.blocks import block_labels
from lapwing.query.policies.policy import Blocks, Policy

LOOKED_AT = 50  # blocks at first


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did: the new version, where the file lies now, and which blocks came in with it."""

    version: int
    file: Path | None
    blocks: tuple[str, ...]


class Stream:
    """A growing data set, for one analyst."""

    def __init__(self, dataset: Dataset, sharing: Sharing | None = None) -> None:
        if dataset.policy.blocks is None:
            raise BadParameter("blocks", "a stream needs blocks: write [blocks] into the policy")
        self.dataset = dataset
        self.sharing = load_sharing(dataset.policy) if sharing is None else sharing

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
    def _blocks(self) -> Blocks:
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
        progress: Progress | None = None,
    ) -> Appended:
        """Take a file in (or what was put into the source by other ways), and open blocks.

        `through` says up to which block of time there is data now, else the calendar does. After a crash,
        the same again goes on: a file is taken once.
        """
        policy = self.policy
        to = taking.table_of(policy, table) if file is not None or table is not None else None
        registered.make_folder(policy)
        arrived.folder_of_stream(policy).mkdir(mode=0o700, exist_ok=True)
        with alone(arrived.folder_of_stream(policy)):
            note = arrived.note_of(policy)
            reached = arrived.checked_through(self._blocks, through, note.through)
            taking.require_unchanged(policy)
            place = taking.take(to, Path(file)) if to is not None and file is not None else None
            self.dataset.prepare(progress, today=today)
            version = self.dataset.version()
            labels = blocks_so_far(self._blocks, self._opened(), reached, today)
            new = arrived.remember(policy, Arrived(reached, note.born), labels, version)
        return Appended(version, place, tuple(new))

    def _opened(self) -> list[str]:
        """The blocks of units; periods of rows are all declared, and the ledger need not be asked."""
        return self.dataset.all_blocks() if self._blocks.by == "unit" else block_labels(self._blocks)

    # Looking

    def blocks(self) -> list[str]:
        """The blocks that may have data by now, oldest first."""
        opened = self._opened() if self._blocks.by == "unit" else ()
        return blocks_so_far(self._blocks, opened, arrived.note_of(self.policy).through)

    def status(self, *, pipeline: str | None = None) -> Status:
        """What is left of every block; with a pipeline, for that one."""
        policy = self.policy
        if not custody.has_ledger(policy):  # looking makes none
            fresh = untouched(policy.epsilon, policy.delta, block_labels(self._blocks))
            return Status(policy.name, policy.protects, None, str(self.sharing), fresh)
        known, labels = custody.find_data(self.ledger, policy), self._opened()
        version = None if known is None else known.version
        if not labels:
            return Status(policy.name, policy.protects, version, str(self.sharing), ())
        own = (Target(custody.account_label(policy), tuple(labels)),)
        left = blocks_left(
            self.ledger,
            own if known is None else self._targets(labels, pipeline),
            labels,
            arrived=set() if known is None else set(self.blocks()),
            unlocked=self._unlocked(labels, version or 1),
        )
        return Status(policy.name, policy.protects, version, str(self.sharing), left)

    def _unlocked(self, labels: Sequence[str], version: int) -> dict[str, Fraction]:
        born = arrived.note_of(self.policy).born
        return {label: self.sharing.unlocked(version, born.get(label, version)) for label in labels}

    # Choosing and charging

    def choose_blocks(self, n: int, *, loss: Loss, pipeline: str) -> list[str]:
        """The newest blocks that can pay the loss, newest first; fewer than n if there are fewer.

        Choosing spends nothing. If another spends first, the charge is refused: choose again.
        """
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise BadParameter("n", "must be a whole number of at least 1")
        newest = self.blocks()[::-1]
        version = self.dataset.version() if self.sharing.versions else 0
        found: list[str] = []
        at, size = 0, max(2 * n, LOOKED_AT)
        while len(found) < n and at < len(newest):  # most often the newest can pay: few are looked at
            labels = newest[at : at + size]
            unlocked = self._unlocked(labels, version) if self.sharing.versions else None
            able = able_to_pay(self.ledger, self._targets(labels, pipeline), loss, unlocked)
            found += [label for label in labels if label in able]
            at, size = at + size, 4 * size
        return found[:n]

    def targets(
        self, question: rows.RowQuestion, blocks: Sequence[str], *, pipeline: str
    ) -> tuple[Target, ...]:
        """Whom reading these blocks is charged to: as for any question, and the pipeline's share."""
        found = rows.targets(self.dataset, question, blocks)
        reached = rows.reached(self.dataset, question, blocks)
        return (*found, *self._share(reached or (), pipeline))

    def _targets(self, labels: Sequence[str], pipeline: str | None) -> tuple[Target, ...]:
        own = self.dataset
        found = custody.targets_of(own.ledger, own.policy, own.analyst, labels)
        return found if pipeline is None else (*found, *self._share(labels, pipeline))

    def _share(self, labels: Sequence[str], pipeline: str) -> tuple[Target, ...]:
        share = share_of(self.ledger, self.policy, self.sharing, pipeline)
        return () if share is None else (Target(share, tuple(labels)),)

    def close(self) -> None:
        """Let go of the data set and its ledger."""
        self.dataset.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
