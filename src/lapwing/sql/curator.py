"""The curator of a policy's data: one ledger and one pool of engine connections for all analysts.

Claim    a question reads bounded tables of a version that the ledger was told of. Threads and sessions may
         share a curator: each reads with a connection of its own, and closing waits for answers that are
         paid for.
Because  the source is compared with the registered one before it is asked; readers are lent to one thread
         at a time; releases are counted, and closing waits until none is under way.
Test     tests/sql/test_dataset.py, tests/sql/test_curator_threads.py, tests/sql/test_curator.py

Claim    a charged read meets rows beyond the contribution bound only if its time is padded.
Because  a prepared copy has none of them, and the first question makes one, before anything is charged. A
         read of the source itself is always padded, before a charge, too.
Test     tests/sql/test_curator_first_question.py
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Self

from lapwing.config.values import checked_count
from lapwing.engines.engine import Engine, EngineFailed, ReportProgress
from lapwing.errors import BadParameter
from lapwing.ledger import DataSet, Gate, Ledger, Spending, Target, Unit, data_sets
from lapwing.ledger.entry import now
from lapwing.ledger.padding import NO_LADDER, Ladder
from lapwing.ledger.spending import require_room
from lapwing.sql import policy_ledger
from lapwing.sql.answering.kept_answers import KeptAnswers
from lapwing.sql.policy import policy_file, policy_in_code
from lapwing.sql.policy.policy import CheckedPolicy, account_label, block_labels, has_blocks_by_arrival
from lapwing.sql.pricing.truncation_requests import TruncationRequest, truncation_requests
from lapwing.sql.question import bind, public_tables, scope
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.sql.question.relation import Relation, blocks_of, needs_new_ranks
from lapwing.sql.reading import open_sources, prepare, prepared_copy, reader, registration

MOST_KEPT = 256  # requests about truncated rows, by table and contribution bound


class _NeedsNewVersion(Exception):
    """A copy of known data cannot be made without a new version, which takes stored answers away."""


class Curator:
    """The policy, ledger and engine connections that the sessions of all analysts share.

    Threads may share a curator and its sessions. Nothing is opened before it is needed.

    Args:
        policy: The policy (`lapwing.Policy`), or the path of its file.
        threads: How many threads an engine may use for one question. None: as the policy says.

    Raises:
        BadParameter: If the policy file is not valid.

    Example:
        >>> from lapwing import Curator, Dataset
        >>> with Curator("visits.toml") as curator:
        ...     ann = Dataset(curator, analyst="ann")
        ...     answer = ann.ask("SELECT COUNT(*) FROM visits", epsilon="0.1")
    """

    def __init__(
        self, policy: policy_in_code.Policy | CheckedPolicy | str | Path, *, threads: int | None = None
    ) -> None:
        if isinstance(policy, policy_in_code.Policy):
            policy = policy.with_stored_rows()
        self.policy = policy if isinstance(policy, CheckedPolicy) else policy_file.load_policy(Path(policy))
        self.threads = threads
        self.notices: list[str] = []  # sentences about accounts made for life, until an answer shows them
        self.notify: policy_ledger.Notify = self.notices.append
        self.prepares = True  # whether the first question makes a prepared copy
        self.pads = self.policy.pads  # whether all charged reads are padded, and reads before a charge
        self.kept = KeptAnswers()
        self._ledger: Ledger | None = None
        self._readers = reader.ReaderPool()
        has_public = any(table.is_public for table in self.policy.tables.values())
        self._public: dict[str, public_tables.PublicTable] | None = None if has_public else {}
        self._opening = threading.RLock()
        self._releases, self._ended = 0, threading.Condition()

    @cached_property
    def policy_digest(self) -> str:
        """A digest of the whole policy, to recognise plans that were made for another one."""
        return hashlib.sha256(repr(self.policy).encode()).hexdigest()

    @cached_property
    def truncation_requests(self) -> Callable[..., tuple[TruncationRequest, ...]]:
        """The requests about truncated rows of a table, of which the last ones are kept."""
        return lru_cache(MOST_KEPT)(partial(truncation_requests, self.policy))

    # The ledger

    @property
    def unit(self) -> Unit:
        """The privacy unit."""
        return policy_ledger.unit_of(self.policy)

    @property
    def has_ledger(self) -> bool:
        """True if a ledger is open, or was made before."""
        return self._ledger is not None or policy_ledger.has_ledger(self.policy)

    @property
    def ledger(self) -> Ledger:
        """The policy's ledger. It is made at its first use."""
        ledger = self._ledger
        if ledger is None:
            with self._opening:
                ledger = self._ledger = self._ledger or policy_ledger.open_ledger(self.policy, self.notify)
        ledger.require_here()  # and not in a child that was forked
        return ledger

    def take_notices(self) -> tuple[str, ...]:
        """Return the sentences that no answer has shown yet, once."""
        with self._opening:
            taken, self.notices[:] = tuple(self.notices), ()
        return taken

    def all_blocks(self) -> list[str]:
        """Return the names of all blocks that exist now.

        Returns:
            The names, in the order in which the blocks were opened. Empty before there is a ledger.

        Example:
            >>> curator.all_blocks()
            ['0', '1', '2', '3', '4', '5', '6', '7']
        """
        if not self.has_ledger:
            return []
        label = account_label(self.policy)
        return [block.label for block in self.ledger.blocks(label) if block.label != "*"]

    def blocks_reached(self, relation: Relation) -> list[str] | None:
        """Return the blocks whose units a relation can read; None if the policy has no blocks."""
        declared = self.policy.blocks
        if declared is None:
            return None
        if has_blocks_by_arrival(self.policy):
            return self.all_blocks()
        return block_labels(declared, blocks_of(relation))

    def clear_hold(self, *receipts: int) -> None:
        """Let questions be asked again that were charged and failed.

        They no longer count as failures of the analyst who asked them. The curator decides this, after
        a look at what went wrong.

        Args:
            receipts: The receipt numbers of the failed questions.

        Raises:
            BadParameter: If one of them is not the receipt of a question that was charged and failed.

        Example:
            >>> curator.clear_hold(failed)
        """
        ledger = self.ledger if policy_ledger.has_ledger(self.policy) else None
        policy_ledger.clear_hold(ledger, self.policy, receipts)

    # Reading

    @property
    def public(self) -> dict[str, public_tables.PublicTable]:
        """The rows of the public tables, by table."""
        if self._public is None:
            with self._opening:
                self._public = self._public or open_sources.read_public_tables(self.policy)
        return self._public

    def catalog(self, rows: int | None = None) -> scope.Catalog:
        """Return the tables that questions are bound to. `rows` lowers their contribution bounds."""
        lowered = None if rows is None else checked_count(rows, "rows")
        return scope.Catalog(self.policy, self.public, lowered)

    def bind(
        self, question: Any, rows: int | None = None, *, where_first: bool = False
    ) -> tuple[bind.NamedQuery, ...]:
        """Return what `bind_with_earlier` does for these tables. Only public tables are read."""
        return bind.bind_with_earlier(question, self.catalog(rows), where_first=where_first)

    def statements(self, question: BoundQuery) -> tuple[str, ...]:
        """Return the SQL that a question will run. Makes no ledger."""
        if not self.has_ledger:
            return reader.shown_statements(self.policy, question)
        with self.reading(question, plans=True) as lent:
            return lent.statements(question).all

    @contextmanager
    def reading(
        self, question: BoundQuery | None = None, *, plans: bool = False
    ) -> Iterator[reader.Reader]:
        """Lend a reader of the bounded tables as they are now, from the copy or else from the source.

        Another process may prepare a copy at any time: the state is looked up. `plans`: no row is read.
        """
        key = policy_ledger.row_key(self.ledger)
        from_source = question is not None and needs_new_ranks(question.source)
        copy = None if from_source else prepared_copy.current_copy(self.policy, key)
        own = (self.policy, key, self.public)
        make = partial(reader.Reader.open, *own, threads=self.threads, from_source=from_source)
        files = prepared_copy.files_of(self.policy)
        with self._readers.lent((copy, files), make, plans=plans) as lent:
            yield lent

    def reads_source(self, question: BoundQuery | None = None) -> bool:
        """Return whether a question reads the source: its rows are ranked anew, or there is no copy."""
        if question is not None and needs_new_ranks(question.source):
            return True
        return prepared_copy.current_copy(self.policy, policy_ledger.row_key(self.ledger)) is None

    def gate(self, analyst: str, question: BoundQuery | None = None) -> Gate:
        """Return the gate for one question of an analyst.

        It pads if the policy says so, and always if the source itself is read: its rows beyond the
        contribution bound take time.
        """
        return Gate(self.ledger, principal=analyst, pads=self.pads or self.reads_source(question))

    def copy_has_earlier_ranks(self) -> bool:
        """Return whether equal rows of a unit were not yet numbered in the current copy."""
        key = policy_ledger.row_key(self.ledger)
        copy = prepared_copy.last_copy(self.policy)
        is_earlier = copy is not None and prepared_copy.has_earlier_ranks(self.policy, key, copy)
        return is_earlier and prepared_copy.current_copy(self.policy, key) is not None

    def require_answerable(
        self,
        version: int,
        check: Callable[[reader.Reader], None],
        question: BoundQuery | None = None,
        spending: Spending | None = None,
    ) -> bool:
        """Refuse, before a charge, an unreadable source or a question that the engine cannot plan.

        Claim    the source is read before a charge only if the charge fits, and padded.
        Because  the filters of all accounts are asked first, and the wait does not depend on the policy.
        Test     tests/sql/test_curator_first_question.py

        Args:
            version: The version of the data that will be charged.
            check: Raises `Refused` if the engine of a reader cannot plan what will be read.
            question: The question, if rows may be ranked anew for it.
            spending: The charge; `OverBudget` is raised if it does not fit. None: it is not known yet.

        Returns:
            Whether no prepared copy could be faster.
        """
        self._require_untouched(version)
        if spending is not None and self.reads_source(question):
            require_room(self.ledger, spending)
        ranks_anew = question is not None and needs_new_ranks(question.source)
        if not ranks_anew:
            self.ensure_prepared()
        key = policy_ledger.row_key(self.ledger)
        digest = prepared_copy.copy_digest(self.policy, key)
        was_read = registration.was_read(self.policy, version, digest)
        if not was_read and not prepared_copy.current_copy(self.policy, key):
            with Ladder():
                open_sources.require_readable(self.policy, threads=self.threads)
            registration.note_read(self.policy, version, digest)
        with self.reading(question, plans=True) as lent:
            check(lent)
            return lent.is_prepared or ranks_anew or not self.prepares

    def checked_version(
        self, analyst: str, check: Callable[[reader.Reader], None], question: BoundQuery | None = None
    ) -> int:
        """Return the version of the data to charge, or refuse a source or question that cannot be read.

        `check` and `question` are those of `require_answerable`. Raises `AllHeld` if too many questions of
        the analyst have failed.
        """
        version = self.data(question).version
        policy_ledger.require_few_failures(self.ledger, self.policy, analyst)
        self.require_answerable(version, check, question)
        return version

    def targets(self, analyst: str, question: BoundQuery) -> tuple[Target, ...]:
        """Return the accounts to charge: the data's, in the blocks that are reached, and the quota."""
        blocks = self.blocks_reached(question.source)
        if blocks == []:
            raise BadParameter("WHERE", "reaches no block: there is nothing to ask about")
        return self.targets_of_blocks(analyst, blocks)

    def targets_of_blocks(self, analyst: str, blocks: Sequence[str] | None) -> tuple[Target, ...]:
        """Return the accounts to charge for some blocks (None: there are none), and the quota."""
        return policy_ledger.targets_of(self.ledger, self.policy, analyst, blocks or ())

    @contextmanager
    def with_policy(self, policy: CheckedPolicy) -> Iterator[Curator]:
        """Lend a curator of a policy with other columns of the same tables, which uses this ledger."""
        with self.keeping_open():
            other = Curator(policy, threads=self.threads)
            other._ledger, other.pads = self.ledger, self.pads
            other.prepares = False  # the copy has the columns of our own policy
            try:
                yield other
            finally:
                other._ledger = None
                other.close()

    # Versions of the data

    def version(self) -> int:
        """Return the version of the data that will be asked.

        Returns:
            The ledger's number of the version. Data that the ledger does not know is registered first.

        Raises:
            BadParameter: If the source changed since the ledger last saw it.

        Example:
            >>> curator.version()
            1
        """
        version = self.data().version
        self._require_untouched(version)
        return version

    def current_data(self) -> DataSet | None:
        """Return the registered data set if the source is still the same, or None. Makes no ledger."""
        known = policy_ledger.find_data_set(self.ledger, self.policy) if self.has_ledger else None
        return known if known is not None and registration.is_current(self.policy, known.version) else None

    def data(self, question: BoundQuery | None = None) -> DataSet:
        """Return the data set as it will be asked, and register it if the ledger does not know it.

        It is prepared then, unless the first question reads the source itself. Stored answers may be given
        for it. Before a charge, `version` looks more closely at its files.
        """
        known = policy_ledger.find_data_set(self.ledger, self.policy)
        if known is None:
            is_first = not (question is not None and needs_new_ranks(question.source))
            if not (is_first and self.ensure_prepared()):
                self.register(again=False)
        elif registration.is_behind(self.policy, known.version):
            with prepared_copy.exclusive_lock(prepared_copy.prepared_folder(self.policy)):
                pass  # wait for the thread or process that registers now
        else:
            return self._require_registered(known)
        return self._require_registered(data_sets.find_data_set(self.ledger, self.policy.name))

    def _require_registered(self, registered: DataSet) -> DataSet:
        if not prepared_copy.prepared_folder(self.policy).exists():
            raise BadParameter(
                "dataset.name",
                "the ledger knows data of this name by another policy file. If these are the same, run "
                "`lapwing prepare` (the curator does); else give them a name of their own",
            )
        if not registration.is_current(self.policy, registered.version):
            raise BadParameter(
                "source", "changed since the ledger last saw it. Run `lapwing prepare` (the curator does)"
            )
        return registered

    def _require_untouched(self, version: int) -> None:
        """Require the files of the version (not others with size and time put back), and known people."""
        if not registration.has_same_files(self.policy, version):
            raise BadParameter(
                "source",
                "was written to, copied or restored since the ledger last saw it (stored answers are still "
                "given). Run `lapwing prepare` (the curator does)",
            )
        if not policy_ledger.are_people_known(self.ledger, self.policy):
            raise BadParameter(
                "registry",
                "is a new one, and does not know the people of these data yet (stored answers are still "
                "given). Run `lapwing prepare` (the curator does)",
            )

    def ensure_prepared(self) -> bool:
        """Make a prepared copy if there is none, before anything is charged or timed.

        Known data keeps its version; a copy that would need a new one is left to the curator, and so are
        blocks that open as people arrive. If no copy can be written, the source will be read.

        Returns:
            Whether there is a current copy now.
        """
        if not self.prepares or has_blocks_by_arrival(self.policy):
            return False
        if policy_ledger.find_data_set(self.ledger, self.policy) is not None:
            if not self.reads_source():
                return True
            key = policy_ledger.row_key(self.ledger)
            if not policy_ledger.untouched_version(self.ledger, self.policy, key):
                return False
        ladder = self._ladder()
        try:
            self._prepare(ladder=ladder)
        except _NeedsNewVersion:
            return False
        except EngineFailed:
            ladder.wait()
            self.prepares = False
            self.register(again=False)  # says so if the source itself cannot be read
            self.notify(prepare.UNPREPARED_NOTE)
            return False
        return True

    @property
    def has_files(self) -> bool:
        """True if all private tables are read from files, whose changes are visible from outside."""
        return all(table.source.engine == "duckdb" for table in self.policy.private_tables)

    def register(self, *, again: bool = True) -> int:
        """Tell the ledger which people are in the data now.

        Args:
            again: False registers only data that the ledger does not know yet.

        Returns:
            The version of the data: one more than before, or the first.

        Raises:
            BadParameter: If blocks are periods of arrival: then only `prepare` can register.

        Example:
            >>> curator.register()
            2
        """
        if has_blocks_by_arrival(self.policy):
            raise BadParameter("blocks.every", "needs a prepared copy. Run `lapwing prepare` first")
        registration.make_folder(self.policy)
        with prepared_copy.exclusive_lock(prepared_copy.prepared_folder(self.policy)):
            known = None if again else policy_ledger.find_data_set(self.ledger, self.policy)
            if known is not None:  # registered by another thread while we waited
                return known.version
            ladder = NO_LADDER if again else self._ladder()
            try:
                return self._register_version(None, now(), ladder, with_charge=not again)
            except EngineFailed:
                ladder.wait()
                raise open_sources.unreadable_error() from None

    def _ladder(self) -> Ladder:  # of a first question, which reads all people before a charge
        return Ladder() if self.pads else NO_LADDER

    def _register_version(
        self, copy: prepared_copy.PreparedCopy | None, at: str, ladder: Ladder, *, with_charge: bool
    ) -> int:
        seen = prepared_copy.settled_identities(self.policy) if copy is None else copy.seen
        files = prepared_copy.files_of(self.policy) if copy is None else copy.files
        keep = None if copy is None else partial(self._keep, copy)
        people = prepare.unit_ids(self.policy, copy, threads=self.threads, keep=keep)
        ladder.wait()  # the position of the entry is public
        version = policy_ledger.register_version(
            self.ledger, self.policy, people, at, with_charge=with_charge
        ).version
        registration.save_registration(self.policy, version, files, seen)
        return version

    def _keep(self, copy: prepared_copy.PreparedCopy, engine: Engine) -> None:
        """Keep the engine that read a copy's ids for the next question: to open another takes 10 ms."""
        if self._public is None:  # public tables are read when a question is bound to them, not now
            return engine.close()
        key, files = policy_ledger.row_key(self.ledger), prepared_copy.files_of(self.policy)
        made = reader.Reader.of_copy(self.policy, key, self._public, copy, engine)
        return self._readers.keep((copy, files), made)

    def _ledger_people(self) -> prepare.LedgerPeople | None:
        """Return the people that the ledger knows in the policy's data, or None if the data are unknown."""
        ledger, name = self.ledger, self.policy.name
        try:
            data = data_sets.find_data_set(ledger, name)
        except BadParameter:
            return None
        return prepare.LedgerPeople(
            data.version, lambda ids: data_sets.holds_all_units(ledger, name, units=ids)
        )

    def prepare(
        self, progress: ReportProgress | None = None, *, today: date | None = None, again: bool = False
    ) -> bool:
        """Store a copy with the rank of every row, so that answers are fast, and register its people.

        Files that nobody has written to keep their version, and stored answers stay valid with it.

        Args:
            progress: Called with the progress of the work. None: nobody is told.
            today: The day on which new people arrive. None: today, in UTC.
            again: Make a new version even if nobody has written to the files.

        Returns:
            Whether the data has a new version.

        Raises:
            BadParameter: If the source cannot be read; the error says where.
            MissingRight: If the role of a server may not store the copy. Nothing was done.

        Example:
            >>> curator.prepare(again=True)
            True
        """
        prepare.require_place(self.policy)
        policy_ledger.forget_planned_data(self.ledger, self.policy)
        try:
            return self._prepare(progress, today=today, again=again)
        except EngineFailed as error:  # only the curator is told where
            unreadable = open_sources.first_unreadable(self.policy, threads=self.threads)
            raise unreadable or open_sources.preparing_error(error) from None

    def _prepare(
        self, progress: ReportProgress | None = None, *, today: date | None = None, again: bool = False,
        ladder: Ladder | None = None,
    ) -> bool:  # fmt: skip
        """Prepare. `ladder`: for the first question, without a new version of data that is known."""
        today = today or datetime.now(UTC).date()  # one day for the blocks and for the copy
        policy_ledger.open_arrival_block(self.ledger, self.policy, today)
        self._readers.close()
        kept, is_new, key, at = 0, False, policy_ledger.row_key(self.ledger), now()

        def is_done() -> bool:
            nonlocal kept
            kept = 0 if again else policy_ledger.untouched_version(self.ledger, self.policy, key)
            if ladder is not None and self._is_prepared_first(key, at, kept):
                return True
            if not kept or not prepare.has_readable_copy(self.policy, key):
                return False
            copy = prepared_copy.last_copy(self.policy)
            if copy is not None and prepared_copy.has_earlier_ranks(self.policy, key, copy):
                self.notify(prepare.EARLIER_RANKS)
            return True

        def then(copy: prepared_copy.PreparedCopy) -> None:
            nonlocal is_new
            is_new = not kept or copy.has_arrivals
            if is_new:
                self._register_version(copy, at, ladder or NO_LADDER, with_charge=ladder is not None)
            else:
                (ladder or NO_LADDER).wait()
                registration.save_registration(self.policy, kept, copy.files, copy.seen)
            if ladder is not None:
                self.notify(prepare.PREPARED_NOTE.format(copy.folder.name))

        prepare.prepare(
            self.policy, key, known=self._ledger_people, then=then, is_done=is_done,
            progress=progress, today=today, threads=self.threads,
        )  # fmt: skip
        return is_new

    def _is_prepared_first(self, key: bytes, at: str, kept: int) -> bool:
        """Return whether another first question made the copy, now or before it was refused."""
        if policy_ledger.find_data_set(self.ledger, self.policy) is not None:
            is_current = prepared_copy.current_copy(self.policy, key) is not None
            if not is_current and not kept:
                raise _NeedsNewVersion
            return is_current
        copy = prepared_copy.last_copy(self.policy)
        is_ours = copy is not None and not prepared_copy.has_earlier_ranks(self.policy, key, copy)
        if is_ours and prepare.has_readable_copy(self.policy, key):
            self._register_version(copy, at, NO_LADDER, with_charge=True)
            return True
        return False

    # Closing

    @contextmanager
    def keeping_open(self) -> Iterator[None]:
        """Let closing wait until this context ends: an answer that is paid for must be stored."""
        with self._ended:
            self._releases += 1
        try:
            yield
        finally:
            with self._ended:
                self._releases -= 1
                self._ended.notify_all()

    def close(self) -> None:
        """Close the engine connections and the ledger, after other threads have the answers they paid for.

        Example:
            >>> curator.close()
        """
        with self._ended:
            is_forked = self._ledger is not None and not self._ledger.is_here  # without those threads
            self._ended.wait_for(lambda: is_forked or not self._releases)
            self._readers.close()
            with self._opening:
                ledger, self._ledger = self._ledger, None
                self.kept = KeptAnswers()  # another ledger may lie there when this curator is used again
            if ledger is not None:
                ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
