"""The desk: what the owner's server does for a respondent, whatever way the request came.

It checks everything that can be checked before anything is stored. What it answers depends on the survey,
the tokens and the form of a report, never on what a report says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from lapwing.errors import BadParameter, BadValue, Unavailable
from lapwing.survey.collecting.batches import Batches
from lapwing.survey.collecting.store import (
    Rule,
    Store,
    Verdict,
    blinded_hash,
    invitation_hash,
    token_hash,
)
from lapwing.survey.credentials import PREPARED_BYTES, SigningKey


def _today() -> date:
    return datetime.now(UTC).date()


class NotSigned(BadParameter):
    """The credential of a report is not one of this survey."""


@dataclass(eq=False)
class Desk:
    """A survey that is open for respondents.

    `check` raises `BadValue` for a report that no respondent can have sent.
    """

    reports: Store
    key: SigningKey
    digest: str
    report_size: int
    check: Callable[[bytes], None]
    rule: Rule = field(default_factory=Rule)
    today: Callable[[], date] = _today

    def __post_init__(self) -> None:
        self._accepting = Batches(self._accept, "survey reports")
        self._keeping = Batches(self._keep, "survey signatures")
        self._may_have_order = True  # also of a run that was killed

    def sign(self, invitation: str, blinded: bytes) -> bytes | Verdict:
        """The signature of a blinded token for an invitation, which signs nothing else for ever after.

        That is durable before the signature leaves. A value has one signature, so it need not be kept.
        OTHER if the invitation signed something else, UNKNOWN if there is no such invitation, CLOSED.
        """
        hashed, what = invitation_hash(invitation), blinded_hash(blinded)
        found = self.reports.signed(hashed)
        if isinstance(found, bytes):
            return self.key.sign(blinded) if found == what else Verdict.OTHER
        if found is not Verdict.NEW:
            return found
        signature = self.key.sign(blinded)  # refuses what is no blinded value, before it is kept
        verdict = self._keeping.submit((hashed, what)).result()
        return signature if verdict in (Verdict.NEW, Verdict.AGAIN) else verdict

    def take(self, digest: str, prepared: bytes, signature: bytes, report: bytes) -> Future[Verdict]:
        """Store a report under its token. `BadValue` or `NotSigned` if it cannot be one."""
        if digest != self.digest:
            raise BadValue("this report is for another survey, or for this one before it was changed")
        if len(prepared) != PREPARED_BYTES:
            raise BadValue(f"a token has {PREPARED_BYTES} bytes")
        if len(report) != self.report_size:
            raise BadValue(f"a report has {self.report_size} bytes")
        if not self.key.public.verify(prepared, signature):
            raise NotSigned("signature", "is not one of this survey for this token")
        self.check(report)  # last: only who was invited learns what reports can be, and costs that time
        return self._accepting.submit((token_hash(prepared), report))

    def close(self) -> None:
        """Finish what waits, leave no order behind, and let go of the database."""
        self._accepting.close()
        self._keeping.close()
        self._forget_order()
        self.reports.close()

    def _accept(self, waiting: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        return self._noted(self.reports.accept(waiting, self.rule, self.today()))

    def _keep(self, waiting: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        return self._noted(self.reports.keep(waiting, self.rule, self.today()))

    def _noted(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Once the survey is over, nothing comes any more: its order is forgotten then."""
        if Verdict.NEW in verdicts:
            self._may_have_order = True
        if Verdict.CLOSED in verdicts:
            self._forget_order()
        return verdicts

    def _forget_order(self) -> None:
        if not self._may_have_order:
            return
        with suppress(Unavailable):  # the reports are safe; the next who asks tries again
            self.reports.forget_order()
            self._may_have_order = False
