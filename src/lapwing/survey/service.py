"""The desk: what the owner's server does for a respondent, whatever way the request came.

It checks everything that can be checked before anything is stored. What it answers depends on the survey,
the tokens and the form of a report, never on what a report says.

Many who wait share one commit: whatever comes while the disk is busy goes into the next one.

Where a survey's reports and its signing key lie.

The owner's side: signing tokens, taking reports, keeping them without account, position or time.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Generic, TypeVar

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.ledger.ledger import is_postgres
from lapwing.survey.credentials import PREPARED_BYTES, BlindSigningKey
from lapwing.survey.report_store import (
    IntakeResult,
    ReportStore,
    StoppingRule,
    blinded_hash,
    invitation_hash,
    read_all_reports,
    token_hash,
)
from lapwing.survey.sqlite_reports import SqliteReportStore

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
MOST_IN_BATCH = 512


class CommitBatches(Generic[Item, Outcome]):
    """A thread that hands everything that waits to `commit`, and each its outcome once that returns.

    A future that has a result stands for something durable. If `commit` raises, nobody of the batch
    knows more than that it failed; whoever asks again with the same learns what became of it.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Outcome]], name: str) -> None:
        self._commit = commit
        self._waiting: list[tuple[Item, Future[Outcome]]] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> Future[Outcome]:
        """Wait for the next commit."""
        future: Future[Outcome] = Future()
        with self._changed:
            if self._is_closed:
                raise Unavailable("the survey's server is stopping; ask again later")
            self._waiting.append((item, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Commit what waits, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                batch, self._waiting = self._waiting[:MOST_IN_BATCH], self._waiting[MOST_IN_BATCH:]
            if not batch:
                return
            for (
                _,
                future,
            ) in batch:  # whoever hung up is stored all the same: it was sent, and may come again
                future.set_running_or_notify_cancel()
            try:
                outcomes = self._commit([item for item, _ in batch])
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if not future.cancelled():
                        future.set_result(outcome)
            except Exception as error:  # also one that nobody foresaw: no caller may be left waiting
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)


def _today() -> date:
    return datetime.now(UTC).date()


class InvalidCredential(BadParameter):
    """The credential of a report is not one of this survey."""


@dataclass(eq=False)
class SurveyService:
    """A survey that is open for respondents.

    `check` raises `BadValue` for a report that no respondent can have sent.
    """

    reports: ReportStore
    key: BlindSigningKey
    digest: str
    report_size: int
    check: Callable[[bytes], None]
    rule: StoppingRule = field(default_factory=StoppingRule)
    today: Callable[[], date] = _today

    def __post_init__(self) -> None:
        self._accepting = CommitBatches(self._accept, "survey reports")
        self._keeping = CommitBatches(self._keep, "survey signatures")
        self._may_have_order = True  # also of a run that was killed

    def sign(self, invitation: str, blinded: bytes) -> bytes | IntakeResult:
        """The signature of a blinded token for an invitation, which signs nothing else for ever after.

        That is durable before the signature leaves. A value has one signature, so it need not be kept.
        OTHER if the invitation signed something else, UNKNOWN if there is no such invitation, CLOSED.
        """
        hashed, what = invitation_hash(invitation), blinded_hash(blinded)
        found = self.reports.signed(hashed)
        if isinstance(found, bytes):
            return self.key.sign(blinded) if found == what else IntakeResult.OTHER
        if found is not IntakeResult.NEW:
            return found
        signature = self.key.sign(blinded)  # refuses what is no blinded value, before it is kept
        verdict = self._keeping.submit((hashed, what)).result()
        return signature if verdict in (IntakeResult.NEW, IntakeResult.AGAIN) else verdict

    def take(self, digest: str, prepared: bytes, signature: bytes, report: bytes) -> Future[IntakeResult]:
        """Store a report under its token. `BadValue` or `InvalidCredential` if it cannot be one."""
        if digest != self.digest:
            raise BadValue("this report is for another survey, or for this one before it was changed")
        if len(prepared) != PREPARED_BYTES:
            raise BadValue(f"a token has {PREPARED_BYTES} bytes")
        if len(report) != self.report_size:
            raise BadValue(f"a report has {self.report_size} bytes")
        if not self.key.public.verify(prepared, signature):
            raise InvalidCredential("signature", "is not one of this survey for this token")
        self.check(report)  # last: only who was invited learns what reports can be, and costs that time
        return self._accepting.submit((token_hash(prepared), report))

    def close(self) -> None:
        """Finish what waits, leave no order behind, and let go of the database."""
        self._accepting.close()
        self._keeping.close()
        self._forget_order()
        self.reports.close()

    def _accept(self, waiting: Sequence[tuple[bytes, bytes]]) -> list[IntakeResult]:
        return self._noted(self.reports.accept(waiting, self.rule, self.today()))

    def _keep(self, waiting: Sequence[tuple[bytes, bytes]]) -> list[IntakeResult]:
        return self._noted(self.reports.keep(waiting, self.rule, self.today()))

    def _noted(self, verdicts: list[IntakeResult]) -> list[IntakeResult]:
        """Once the survey is over, nothing comes any more: its order is forgotten then."""
        if IntakeResult.NEW in verdicts:
            self._may_have_order = True
        if IntakeResult.CLOSED in verdicts:
            self._forget_order()
        return verdicts

    def _forget_order(self) -> None:
        if not self._may_have_order:
            return
        with suppress(Unavailable):  # the reports are safe; the next who asks tries again
            self.reports.forget_order()
            self._may_have_order = False


def open_report_store(where: str, *, digest: str, report_size: int) -> ReportStore:
    """The reports of the survey with this digest, made at the first use."""
    if is_postgres(where):
        # psycopg is an extra: only who collects there needs it.
        from lapwing.survey.postgres_reports import PostgresReportStore  # noqa: PLC0415

        return PostgresReportStore(where, digest=digest, report_size=report_size)
    return SqliteReportStore(Path(where), digest=digest, report_size=report_size)


def open_signing_key(ledger: str, ledger_keys: str, *, name: str, digest: str) -> BlindSigningKey:
    """The survey's own key, beside the ledger's keys; made at the first use.

    Each survey has its own, so that a token of one is worth nothing in another.
    """
    path = _key_file(ledger, ledger_keys, name, digest)
    return BlindSigningKey.load(path) if path.exists() else BlindSigningKey.create(path)


def existing_signing_key(
    ledger: str, ledger_keys: str, *, name: str, digest: str
) -> BlindSigningKey | None:
    """The survey's own key, if it was made."""
    if not ledger_keys and is_postgres(ledger):
        return None
    path = _key_file(ledger, ledger_keys, name, digest)
    return BlindSigningKey.load(path) if path.exists() else None


def _key_file(ledger: str, ledger_keys: str, name: str, digest: str) -> Path:
    if not ledger_keys and is_postgres(ledger):
        raise BadParameter("ledger", "in PostgreSQL needs to be told where its keys lie: keys = …")
    beside = Path(ledger_keys or f"{ledger}.keys")
    mark = hashlib.sha256(f"{name}\n{digest}".encode()).hexdigest()[:16]
    return beside.with_name(f"{beside.name}.{mark}.signing")


__all__ = [
    "SurveyService",
    "StoppingRule",
    "ReportStore",
    "IntakeResult",
    "existing_signing_key",
    "open_report_store",
    "read_all_reports",
    "open_signing_key",
]
