"""The survey service: the owner's side of a request, however it came. It signs tokens and stores reports.

It checks everything that can be checked before anything is stored. Its replies depend on the survey, the
tokens and the form of a report, never on the content of a report. Requests that wait share one commit.
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

from lapwing.config.values import is_postgres
from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.survey.credentials import PREPARED_BYTES, BlindSigningKey
from lapwing.survey.report_store import (
    IntakeResult,
    ReportStore,
    SqliteReportStore,
    StoppingRule,
    blinded_hash,
    invitation_hash,
    token_hash,
)

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
MOST_IN_BATCH = 512


class CommitBatches(Generic[Item, Outcome]):
    """A thread that commits all waiting items together, and gives each its outcome afterwards.

    A future with a result stands for something durable. If `commit` raises, the whole batch failed as far
    as its callers know. A caller that submits the same item again learns its outcome.
    """

    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Outcome]], name: str) -> None:
        self._commit = commit
        self._waiting: list[tuple[Item, Future[Outcome]]] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> Future[Outcome]:
        """Add an item to the next commit. Return a future of its outcome."""
        future: Future[Outcome] = Future()
        with self._changed:
            if self._is_closed:
                raise Unavailable("the survey's server is stopping; ask again later")
            self._waiting.append((item, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """Commit all waiting items, and end the thread."""
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
            # A caller that hung up is served all the same: the item was sent, and may come again.
            for _, future in batch:
                future.set_running_or_notify_cancel()
            try:
                outcomes = self._commit([item for item, _ in batch])
                for (_, future), outcome in zip(batch, outcomes, strict=True):
                    if not future.cancelled():
                        future.set_result(outcome)
            except Exception as error:  # of any kind: no caller may be left waiting
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)


def _today() -> date:
    return datetime.now(UTC).date()


class InvalidCredential(BadParameter):
    """The credential of a report is not one of this survey."""

    code = "invalid-credential"


@dataclass(eq=False)
class SurveyService:
    """A survey that is open for respondents.

    `check` raises `BadValue` for an impossible report.
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
        self._may_have_order = True  # also after a run that was killed

    def sign(self, invitation: str, blinded: bytes) -> bytes | IntakeResult:
        """Sign a blinded token for an invitation. The invitation signs nothing else from then on.

        This is durable before the signature is returned. A value has one signature, so it is not stored.
        Returns OTHER if the invitation signed something else, UNKNOWN if there is no such invitation, and
        CLOSED if the survey is over.
        """
        hashed, what = invitation_hash(invitation), blinded_hash(blinded)
        signed = self.reports.signed(hashed)
        if isinstance(signed, bytes):
            return self.key.sign(blinded) if signed == what else IntakeResult.OTHER
        if signed is not IntakeResult.NEW:
            return signed
        signature = self.key.sign(blinded)  # refuses an impossible value before it is stored
        verdict = self._keeping.submit((hashed, what)).result()
        return signature if verdict in (IntakeResult.NEW, IntakeResult.AGAIN) else verdict

    def take(self, digest: str, prepared: bytes, signature: bytes, report: bytes) -> Future[IntakeResult]:
        """Store a report under its token. Raise `BadValue` or `InvalidCredential` if it is impossible."""
        if digest != self.digest:
            raise BadValue("this report is for another survey, or for this one before it was changed")
        if len(prepared) != PREPARED_BYTES:
            raise BadValue(f"a token has {PREPARED_BYTES} bytes")
        if len(report) != self.report_size:
            raise BadValue(f"a report has {self.report_size} bytes")
        if not self.key.public.verify(prepared, signature):
            raise InvalidCredential("signature", "is not one of this survey for this token")
        self.check(report)  # last, since it takes time: only invited clients get this far
        return self._accepting.submit((token_hash(prepared), report))

    def close(self) -> None:
        """Finish waiting requests, remove every trace of their order, and close the database."""
        self._accepting.close()
        self._keeping.close()
        self._forget_order()
        self.reports.close()

    def _accept(self, waiting: Sequence[tuple[bytes, bytes]]) -> list[IntakeResult]:
        return self._noted(self.reports.accept(waiting, self.rule, self.today()))

    def _keep(self, waiting: Sequence[tuple[bytes, bytes]]) -> list[IntakeResult]:
        return self._noted(self.reports.keep(waiting, self.rule, self.today()))

    def _noted(self, verdicts: list[IntakeResult]) -> list[IntakeResult]:
        """Remember whether there is an order to forget. Forget it once the survey is over."""
        if IntakeResult.NEW in verdicts:
            self._may_have_order = True
        if IntakeResult.CLOSED in verdicts:
            self._forget_order()
        return verdicts

    def _forget_order(self) -> None:
        if not self._may_have_order:
            return
        with suppress(Unavailable):  # the reports are safe; the next request tries again
            self.reports.forget_order()
            self._may_have_order = False


def open_report_store(where: str, *, digest: str, report_size: int) -> ReportStore:
    """Open the report store of the survey with this digest. It is made at the first use."""
    if is_postgres(where):
        # psycopg is an extra that only PostgreSQL stores need.
        from lapwing.survey.postgres_reports import PostgresReportStore  # noqa: PLC0415

        return PostgresReportStore(where, digest=digest, report_size=report_size)
    return SqliteReportStore(Path(where), digest=digest, report_size=report_size)


def open_signing_key(ledger: str, ledger_keys: str, *, name: str, digest: str) -> BlindSigningKey:
    """Open the survey's signing key, beside the ledger's keys. It is made at the first use.

    Each survey has a key of its own, so that a token of one survey is invalid in another.
    """
    path = _key_file(ledger, ledger_keys, name, digest)
    return BlindSigningKey.load(path) if path.exists() else BlindSigningKey.create(path)


def existing_signing_key(
    ledger: str, ledger_keys: str, *, name: str, digest: str
) -> BlindSigningKey | None:
    """Return the survey's signing key, or None if it was not made yet."""
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
