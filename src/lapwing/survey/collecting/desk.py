"""The desk: what the owner's server does for a respondent, whatever way the request came.

It checks everything that can be checked before anything is stored. What it answers depends on the survey,
the tokens and the form of a report, never on what a report says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from lapwing.errors import BadParameter, BadValue
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

    def sign(self, invitation: str, blinded: bytes) -> bytes | Verdict:
        """The signature of a blinded token for an invitation: one for ever, and durable before it leaves.

        OTHER if the invitation signed something else, UNKNOWN if there is no such invitation, CLOSED.
        """
        hashed, what = invitation_hash(invitation), blinded_hash(blinded)
        found = self.reports.signed(hashed)
        if found is Verdict.NEW:
            verdict = self._keeping.submit((hashed, what, self.key.sign(blinded))).result()
            if verdict in (Verdict.CLOSED, Verdict.UNKNOWN):
                return verdict
            found = self.reports.signed(hashed)  # of several at once, one was kept
        if isinstance(found, Verdict):
            return found
        return found[1] if found[0] == what else Verdict.OTHER

    def take(self, digest: str, prepared: bytes, signature: bytes, report: bytes) -> Future[Verdict]:
        """Store a report under its token. `BadValue` or `NotSigned` if it cannot be one."""
        if digest != self.digest:
            raise BadValue("this report is for another survey, or for this one before it was changed")
        if len(prepared) != PREPARED_BYTES:
            raise BadValue(f"a token has {PREPARED_BYTES} bytes")
        if len(report) != self.report_size:
            raise BadValue(f"a report has {self.report_size} bytes")
        self.check(report)
        if not self.key.public.verify(prepared, signature):
            raise NotSigned("signature", "is not one of this survey for this token")
        return self._accepting.submit((token_hash(prepared), report))

    def close(self) -> None:
        """Finish what waits, and let go of the database."""
        self._accepting.close()
        self._keeping.close()
        self.reports.close()

    def _accept(self, waiting: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        return self.reports.accept(waiting, self.rule, self.today())

    def _keep(self, waiting: Sequence[tuple[bytes, bytes, bytes]]) -> list[Verdict]:
        return self.reports.keep(waiting, self.rule, self.today())
