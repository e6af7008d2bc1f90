"""A data set under a policy: plan questions for nothing, release answers for a price.

Claim    an answer is charged before any private row is read for it, is stored before it is returned, and
         is computed from bounded tables of the version that the charge names.
Because  all spending goes through the gate; the engine is asked inside `run`, which the gate calls after
         the charge is on disk; and the source is compared with the one that the ledger knows before the
         charge, and again after it was read. Threads may share a data set: each reads with a connection of
         its own, and closing waits for answers that are paid for.
Test     tests/query/test_dataset.py, tests/query/test_threads.py, tests/faults/test_query_faults.py
"""

from __future__ import annotations

import getpass
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lapwing.core.exact import Number
from lapwing.core.spread import checked_confidence
from lapwing.engines.engine import EngineFailed, ReportProgress
from lapwing.errors import BadParameter
from lapwing.ledger import DataSet, Ledger, data_sets
from lapwing.ledger.entry import checked_label
from lapwing.ledger.request_status import has_ended
from lapwing.sql import policy_ledger
from lapwing.sql.accuracy import AccuracyOrPrice, checked_count
from lapwing.sql.answers import Answer, QueryRequest
from lapwing.sql.binding.bind import bind
from lapwing.sql.binding.parse import normal_form, sql_text
from lapwing.sql.binding.public_tables import PublicTable
from lapwing.sql.binding.scope import Catalog
from lapwing.sql.bound_query import BoundQuery
from lapwing.sql.estimates import estimate
from lapwing.sql.noising import BudgetShares, RecordInput, add_noise
from lapwing.sql.plan import Plan, TruncationAnswer
from lapwing.sql.policy import Policy
from lapwing.sql.policy_file import load_policy
from lapwing.sql.preliminary_questions import (
    ROWS_BEYOND,
    SIZES_PREFIX,
    bounds_question,
    checked_beyond,
    least_size,
    policy_with_searched_column,
    read_bounds,
    sizes_question,
    truncated_people_question,
    truncated_rows_question,
)
from lapwing.sql.relation import Scan, needs_new_ranks, undo_where_first
from lapwing.sql.relation import where_first as with_where_first
from lapwing.sql.releasing import SLOW_NOTE, Releasing
from lapwing.sql.truncated import open_sources, prepared_copy, registration
from lapwing.sql.truncated.open_sources import private_tables
from lapwing.sql.truncated.prepare import has_blocks_by_arrival, has_readable_copy, ledger_people, prepare
from lapwing.sql.truncated.reader import (
    Reader,
    ReaderPool,
    fake_reader,
    read_public_tables,
    row_key,
    shown_statements,
    unit_ids,
)
from lapwing.sql.truncated.render import Statements


def open(path: str | Path, *, analyst: str | None = None, threads: int | None = None) -> Dataset:  # noqa: A001
    """The data set of a policy file, for one analyst (else: the user of this computer)."""
    return Dataset(load_policy(Path(path)), analyst=analyst or getpass.getuser(), threads=threads)


class Dataset:
    """Everything that one analyst may ask of a policy's tables. Threads may share it."""

    def __init__(
        self, policy: Policy, *, analyst: str, threads: int | None = None, record: RecordInput | None = None
    ) -> None:
        self.policy = policy
        self.analyst = checked_label(analyst, "analyst")  # as quotas are named
        self._threads = threads
        self.record = record  # told what reaches each mechanism: for tests that replay neighbours
        self.notices: list[str] = []  # what was made for life, until an answer tells it
        self.tell: policy_ledger.Notify = self.notices.append
        self._ledger: Ledger | None = None
        self._readers = ReaderPool()
        self.is_prepared = False  # whether the last answer came from a copy
        self._public: dict[str, PublicTable] | None = None
        self._opening = threading.RLock()
        self._releases, self._ended = 0, threading.Condition()

    # Planning

    def plan(
        self,
        question: Any,
        *,
        epsilon: Number | None = None,
        within: Number | None = None,
        confidence: Number = "0.95",
        delta: Number | None = None,
        noise: str = "auto",
        rows: int | None = None,
        n: int | None = None,
        sampling: bool = False,
        where_first: bool = False,
    ) -> Plan:
        """What a question would give, and cost. Ask with ε, or with the width that answers must have.

        `rows` lowers how many rows of a person count; with `where_first` they are chosen among those that
        WHERE keeps, from the source. `n` is a public or released size, for averages.
        """
        sql, bound = self._bound(question, rows, where_first=where_first)
        size = checked_count(n, "n") if n is not None else self._declared_size(bound)
        wish = AccuracyOrPrice(epsilon, within, checked_confidence(confidence), delta, noise, size)
        return self._planned(bound, normal_form(sql), wish, rows=rows, sampling=sampling)

    def _bound(self, question: Any, rows: int | None, *, where_first: bool) -> tuple[str, BoundQuery]:
        sql = sql_text(question)
        bound = bind(sql, Catalog(self.policy, self.public, checked_count(rows, "rows")))
        return sql, replace(bound, source=with_where_first(bound.source)) if where_first else bound

    def _planned(
        self,
        question: BoundQuery,
        name: str,
        wish: AccuracyOrPrice,
        *,
        rows: int | None = None,
        sampling: bool = False,
    ) -> Plan:
        shares = wish.shares(question, self.policy.delta_per_query)
        asked = QueryRequest(name, 0, shares.epsilon, shares.delta, shares.noise, rows, shares.digest)
        return Plan(self, asked, question, shares, wish.confidence, wish.n, sampling, wish.why)

    def two_stage(
        self,
        question: Any,
        *,
        within: Number,
        first: Number = "0.05",
        confidence: Number = "0.95",
        delta: Number | None = None,
        noise: str = "auto",
        rows: int | None = None,
        sampling: bool = False,
        where_first: bool = False,
    ) -> tuple[Plan, Answer]:
        """Buy a count for `first`, then plan the question for the size that it shows."""
        sql, bound = self._bound(question, rows, where_first=where_first)
        level = checked_confidence(confidence)
        wish = AccuracyOrPrice(first, None, level, delta, "laplace", None)
        counted = self._planned(
            sizes_question(bound), f"{SIZES_PREFIX} {normal_form(sql)}", wish, rows=rows
        ).release()
        size = least_size(counted)
        return self.plan(
            question, within=within, confidence=level, delta=delta, noise=noise, rows=rows, n=size,
            sampling=sampling, where_first=where_first,
        ), counted  # fmt: skip

    def search_bounds(
        self, table: str, column: str, *, epsilon: Number, step: Number
    ) -> tuple[float, float, Answer]:
        """Bounds of a column that the policy does not declare, bought like any other answer."""
        policy = policy_with_searched_column(self.policy, table, column, step)
        wish = AccuracyOrPrice(epsilon, None, checked_confidence("0.95"), None, "laplace", None)
        question = bounds_question(policy, table, column)
        name = f"bounds of {table}.{column} in steps of {step}"
        answer, shares = self._released_under(policy, question, name, wish)
        low, high = read_bounds(answer, shares, policy.tables[table].columns[column].kind)
        return low, high, answer

    def released_under(
        self, policy: Policy, question: BoundQuery, name: str, wish: AccuracyOrPrice
    ) -> Answer:
        """An answer under a policy that declares other columns of the same tables, from the same ledger."""
        return self._released_under(policy, question, name, wish)[0]

    def _released_under(
        self, policy: Policy, question: BoundQuery, name: str, wish: AccuracyOrPrice
    ) -> tuple[Answer, BudgetShares]:
        other = Dataset(policy, analyst=self.analyst, threads=self._threads, record=self.record)
        with self._keeping_open():
            other._ledger = self.ledger
            try:
                plan = other._planned(question, name, wish)
                answer = plan.release()
                notes = tuple(
                    note for note in answer.notes if note != SLOW_NOTE
                )  # no copy holds these columns
                return replace(answer, notes=notes), plan.shares
            finally:
                other._ledger = None
                other.close()

    def dropped(
        self, table: str, *, epsilon: Number, rows: int | None = None, beyond: int | None = None
    ) -> Answer:
        """Estimate how many people have more rows than count; with `beyond` also how many rows that are.

        `rows` is a lower bound than the policy's, as in `plan`. Of each person at most `beyond` rows more
        are counted: one of lapwing.sql.preliminary_questions.ROWS_BEYOND.
        """
        return self._dropped(table, epsilon, rows, beyond).release()

    def _dropped(
        self, table: str, epsilon: Number, rows: int | None, beyond: int | None,
        confidence: Number = "0.95",
    ) -> Plan:  # fmt: skip
        wish = AccuracyOrPrice(epsilon, None, checked_confidence(confidence), None, "laplace", None)
        own = self.policy.tables.get(table)
        lowered = rows if checked_count(rows, "rows") and own and (rows or 0) < own.rows_per_unit else None
        if beyond is None:
            question = truncated_people_question(self.policy, table, lowered)
            return self._planned(question, f"people with more rows in {table}", wish, rows=lowered)
        if has_blocks_by_arrival(self.policy):
            raise BadParameter("beyond", "reads the source, and only the copy knows who arrived when")
        question = truncated_rows_question(self.policy, table, checked_beyond(beyond), lowered)
        name = f"rows left out of {table}, at most {beyond} of a person"
        return self._planned(question, name, wish, rows=lowered)

    def truncated_before(
        self, table: str, *, rows: int | None = None, confidence: Number = "0.95"
    ) -> TruncationAnswer | None:
        """What `dropped` last told this analyst of the data as they are now. It costs nothing."""
        if self._ledger is None and not policy_ledger.has_ledger(self.policy):
            return None
        known = policy_ledger.find_data_set(self.ledger, self.policy)
        if known is None or not registration.is_current(self.policy, known.version):
            return None
        found: list[TruncationAnswer] = []
        for beyond in () if has_blocks_by_arrival(self.policy) else ROWS_BEYOND:
            found += self._bought(known, table, rows, beyond, confidence)
        found = found or self._bought(known, table, rows, None, confidence)
        return max(found, key=lambda one: one.position, default=None)

    def _bought(
        self, data: DataSet, table: str, rows: int | None, beyond: int | None, confidence: Number
    ) -> list[TruncationAnswer]:
        answer = Releasing(self, self._dropped(table, 1, rows, beyond, confidence)).stored(data)
        return [] if answer is None else [TruncationAnswer(answer, beyond)]

    def ask(self, question: Any, *, fresh: bool = False, **options: Any) -> Answer:
        """Plan and release in one step."""
        return self.plan(question, **options).release(fresh=fresh)

    @property
    def public(self) -> dict[str, PublicTable]:
        """The rows of the public tables."""
        if self._public is None:
            with self._opening:
                self._public = self._public or read_public_tables(self.policy)
        return self._public

    def _declared_size(self, question: BoundQuery) -> int | None:
        """The public size of the table, where it is the whole table that is asked about."""
        scan = question.source
        if isinstance(scan, Scan) and not question.keys:
            return self.policy.tables[scan.table].rows
        return None

    # The ledger and the copy

    @property
    def ledger(self) -> Ledger:
        """The policy's ledger, made at its first use."""
        ledger = self._ledger
        if ledger is None:
            with self._opening:
                ledger = self._ledger = self._ledger or policy_ledger.open_ledger(self.policy, self.tell)
        ledger.require_here()  # and not in a child that was forked
        return ledger

    def all_blocks(self) -> list[str]:
        """The names of all blocks there are now."""
        if self._ledger is None and not policy_ledger.has_ledger(self.policy):
            return []
        label = policy_ledger.account_label(self.policy)
        return [block.label for block in self.ledger.blocks(label) if block.label != "*"]

    def statements(self, question: BoundQuery) -> Statements:
        """The SQL of a question. Looking at a plan makes no ledger."""
        if self._ledger is None and not policy_ledger.has_ledger(self.policy):
            return shown_statements(self.policy, question)
        with self.reading(question) as reader:
            return reader.statements(question)

    @contextmanager
    def reading(self, question: BoundQuery | None = None) -> Iterator[Reader]:
        """The bounded tables, of the copy or the source as it is now: another process may prepare."""
        key, anew = row_key(self.ledger), question is not None and needs_new_ranks(question.source)
        now = (
            None if anew else prepared_copy.current_copy(self.policy, key),
            prepared_copy.files_of(self.policy),
        )
        public, threads = self.public, self._threads

        def opened() -> Reader:
            try:
                return Reader.open(self.policy, key, public, threads=threads, from_source=anew)
            except EngineFailed:  # `prepare` may have removed the copy that was current a moment ago
                return Reader.open(self.policy, key, public, threads=threads, from_source=anew)

        with self._readers.lent(now, opened) as reader:
            self.is_prepared = reader.is_prepared
            yield reader

    def prepare(
        self, progress: ReportProgress | None = None, *, today: date | None = None, again: bool = False
    ) -> bool:
        """Store the rank of every row, so that answers are fast, and register who is in that copy.

        Gives whether that is a new version. Files to which nobody has written since the last one keep it,
        and stored answers with it, unless `again`: whose copy is sound is then not even read.
        """
        today = today or datetime.now(UTC).date()  # one day for both: who arrives is in an open block
        policy_ledger.open_arrival_block(self.ledger, self.policy, today)
        self._readers.close()
        kept, is_new, key = 0, False, row_key(self.ledger)

        def is_done() -> bool:
            nonlocal kept
            kept = 0 if again else self._untouched(key)
            return kept > 0 and has_readable_copy(self.policy, key)

        def then(copy: prepared_copy.PreparedCopy) -> None:
            nonlocal is_new
            is_new = not kept or copy.has_arrivals
            if is_new:
                self._registered(copy)
            else:
                registration.save_registration(self.policy, kept, copy.files, copy.seen)

        try:
            prepare(
                self.policy, key, known=lambda: ledger_people(self.ledger, self.policy), then=then,
                is_done=is_done, progress=progress, today=today, threads=self._threads,
            )  # fmt: skip
        except EngineFailed as error:  # the curator, and nobody else, is told where
            raise open_sources.first_unreadable(self.policy, threads=self._threads) or error from None
        return is_new

    @property
    def has_files(self) -> bool:
        """Whether all private tables are read from files, to which one sees that somebody wrote."""
        tables = private_tables(self.policy)
        return all(table.source.engine == "duckdb" for table in tables)

    def _untouched(self, key: bytes) -> int:
        """The version that the ledger knows, if nobody has written to its files, nor changed how they are
        read; else 0."""
        known, copy = (
            policy_ledger.find_data_set(self.ledger, self.policy),
            prepared_copy.last_copy(self.policy),
        )
        if known is None or not registration.is_untouched(self.policy, known.version):
            return 0
        is_alike = copy is None or (
            copy.digest == prepared_copy.copy_digest(self.policy, key)
            and prepared_copy.has_current_units(self.policy, copy)
        )
        return known.version if is_alike else 0

    def register(self, *, again: bool = True) -> int:
        """Tell the ledger who is in the data now: one version more, or (not `again`) the first."""
        if has_blocks_by_arrival(self.policy):
            raise BadParameter("blocks.every", "needs a prepared copy. Run `lapwing prepare` first")
        registration.make_folder(self.policy)
        with prepared_copy.exclusive_lock(prepared_copy.prepared_folder(self.policy)):
            known = None if again else policy_ledger.find_data_set(self.ledger, self.policy)
            try:
                return self._registered(None) if known is None else known.version  # while we waited
            except EngineFailed:
                raise open_sources.unreadable_error() from None

    def _registered(self, copy: prepared_copy.PreparedCopy | None) -> int:
        seen = prepared_copy.settled_identities(self.policy) if copy is None else copy.seen
        files = prepared_copy.files_of(self.policy) if copy is None else copy.files
        version = policy_ledger.register_version(
            self.ledger, self.policy, unit_ids(self.policy, copy)
        ).version
        registration.save_registration(self.policy, version, files, seen)
        return version

    def require_readable(self, version: int) -> None:
        """Refuse, before a charge, a source without a copy in which some value cannot be read."""
        key = row_key(self.ledger)
        digest = prepared_copy.copy_digest(self.policy, key)
        if registration.was_read(self.policy, version, digest) or prepared_copy.current_copy(
            self.policy, key
        ):
            return
        open_sources.require_readable(self.policy, threads=self._threads)
        registration.note_read(self.policy, version, digest)

    def version(self) -> int:
        """The version that will be asked."""
        return self.data().version

    def data(self) -> DataSet:
        """The data set as it will be asked. Data that the ledger has never seen is registered first."""
        found = policy_ledger.find_data_set(self.ledger, self.policy)
        if found is None:
            self.register(again=False)
        elif registration.is_behind(self.policy, found.version):
            with prepared_copy.exclusive_lock(prepared_copy.prepared_folder(self.policy)):
                pass  # another thread or process tells the ledger just now, and then notes it
        else:
            return self._known(found)
        return self._known(data_sets.find_data_set(self.ledger, self.policy.name))

    def _known(self, found: DataSet) -> DataSet:
        if not prepared_copy.prepared_folder(self.policy).exists():
            raise BadParameter(
                "dataset.name",
                "the ledger knows data of this name by another policy file. If these are the same, run "
                "`lapwing prepare` (the curator does); else give them a name of their own",
            )
        if not registration.is_current(self.policy, found.version):
            raise BadParameter(
                "source", "changed since the ledger last saw it. Run `lapwing prepare` (the curator does)"
            )
        return found

    def looked(self, *positions: int) -> None:
        """Let questions be asked again that were charged and failed: the curator's decision. They do not
        count any more as failures of whoever asked them."""
        has_ledger = policy_ledger.has_ledger(self.policy)
        if not positions or not has_ledger or not all(has_ended(self.ledger, one) for one in positions):
            raise BadParameter("receipt", "is none of a question that was charged and failed")
        registration.make_folder(self.policy)
        registration.clear_holds(self.policy, *positions)

    def left(self) -> str:
        """What is left of the account, and of the analyst's quota if there is one, in words."""
        data = self._left(policy_ledger.account_label(self.policy))
        quota = None
        with suppress(BadParameter):  # who has none any more still sees what they were told
            quota = policy_ledger.quota_of(self.policy, self.analyst)
        if quota is not None:
            data = f"{self._left(quota)} of the analyst's quota, {data} of the data's budget,"
        return f"{data} for one more answer without δ"

    def _left(self, label: str) -> str:
        blocks = [block for block in self.ledger.blocks(label) if block.is_open]
        terms = [self.ledger.numbered(block.account).terms for block in blocks]  # as raised, if it was
        left = [(block.left(own), own.epsilon) for block, own in zip(blocks, terms, strict=True)]
        least, most = min(left, default=(Fraction(0), self.ledger.account(label).terms.epsilon))
        return f"ε {float(least):.6g} of {float(most):g}"

    # Releasing: called by plans

    def release(self, plan: Plan, *, fresh: bool) -> Answer:
        """Charge, compute, add noise, store, return."""
        with self._keeping_open():
            return Releasing(self, plan).release(fresh=fresh)

    @contextmanager
    def _keeping_open(self) -> Iterator[None]:
        """Closing waits for whoever is within: what is paid for must be stored."""
        with self._ended:
            self._releases += 1
        try:
            yield
        finally:
            with self._ended:
                self._releases -= 1
                self._ended.notify_all()

    def dry_run(self, plan: Plan) -> Answer:
        """An answer from generated rows."""
        reader = fake_reader(self.policy, self.public)
        try:
            question = replace(plan.question, source=undo_where_first(plan.question.source))
            noisy = add_noise(plan.shares, reader.exact(question))
        finally:
            reader.close()
        rows = estimate(plan.shares, noisy, confidence=plan.confidence, agree=True, sampling=plan.sampling)
        about, level = tuple(plan.bounds), float(plan.confidence)
        return Answer(rows, str(plan.cost), level, None, is_fake=True, truncation=about)

    def close(self) -> None:
        """Let go of the engine and the ledger, once other threads have the answers they paid for."""
        with self._ended:
            is_forked = self._ledger is not None and not self._ledger.is_here  # without those threads
            self._ended.wait_for(lambda: is_forked or not self._releases)
            self._readers.close()
            with self._opening:
                ledger, self._ledger = self._ledger, None
            if ledger is not None:
                ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
