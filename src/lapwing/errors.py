"""Errors that Lapwing raises on purpose, each with a stable code.

LapwingError
├── BadParameter       a public parameter (ε, δ, scale, bound …) is not acceptable
│   ├── BadFile        a file that a person wrote has mistakes
│   ├── Refused        a query cannot be answered privately (lapwing.sql.question.refusal)
│   └── InvalidCredential  a credential is not one of this survey (lapwing.survey.service)
├── BadValue           data handed to a mechanism is not of the promised form
├── NoEntropy          the operating system gave no randomness; nothing was drawn
├── Undecided          a random comparison stayed open beyond the documented bound
├── OverBudget         a charge does not fit what is left
├── KeyReused          an idempotency key came again with another request
├── InProgress         a request with this key is still being worked on
├── WorkEnded          a request was charged, but its work ended without an answer
├── ClassNotSeen       a fit was charged, and its rows have other classes than the declared ones
├── Held               a query failed after its charge and is held for the curator
│   └── AllHeld        several did, and all queries of the analyst are held
├── Aborted            a joint computation ended early; charges stay
├── ProtocolStopped    a member's protocol cannot continue (lapwing.parties.protocols.protocol)
├── Tampered           a ledger or statement was edited, truncated or restored
├── Unavailable        a ledger could not be reached or written
│   ├── EngineFailed   an engine gave no answer (lapwing.engines.engine)
│   │   └── TimedOut   the engine was stopped at its time limit
│   └── MissingRight   a server's role may not write where it should (lapwing.engines.engine)
├── SessionOver        an interactive mechanism has ended, or it or a budget was copied or revived
├── TokenSpent         a charge would bring a token of a server above its most ε
├── TooManyRequests    too many requests came to a server
├── MissingExtra       an optional dependency is not installed
└── DoesNotFit, KeyTaken   internal to the ledger (lapwing.ledger.store)

`docs/reference/errors.md` lists the codes. A code keeps its meaning for ever; wording may change.
Messages may show public parameters. They never show data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar


class LapwingError(Exception):
    """Base of all errors that Lapwing raises on purpose. All attributes survive pickling.

    `code` names the kind of error for programs: it stays the same where wording changes.

    Example:
        >>> import lapwing
        >>> try:
        ...     lapwing.explain("-1", "1e-6", 100)
        ... except lapwing.LapwingError as error:
        ...     print(error)
        epsilon: must be above 0
    """

    code: ClassVar[str] = "lapwing-error"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self.args), self.__dict__


def _unpickle(kind: type[LapwingError], args: tuple[Any, ...]) -> LapwingError:
    """Rebuild an error without `__init__`, whose arguments differ from `args`."""
    return kind.__new__(kind, *args)


class BadParameter(LapwingError, ValueError):
    """A public parameter is not acceptable. Raised before any data is read or noise drawn.

    `name` is the parameter, `why` the reason.
    """

    code = "bad-parameter"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


class BadFile(BadParameter):
    """A file that a person wrote, such as a policy, has mistakes.

    `mistakes` has one text for each: file, line, key, and the correction.
    """

    code = "bad-file"

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("file", "; ".join(mistakes))
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        return "\n".join(self.mistakes)


class BadValue(LapwingError, ValueError):
    """Data is not of the promised form. The message names the form, never the data."""

    code = "bad-value"


class NoEntropy(LapwingError, RuntimeError):
    """The operating system gave no usable randomness. There is no fallback."""

    code = "no-entropy"


class Undecided(LapwingError, RuntimeError):
    """A comparison with a random number stayed open for more than 1,088 random bits.

    With working hardware this has probability below 2^-1000 per draw. Failing is the safe side.
    """

    code = "undecided"


class OverBudget(LapwingError):
    """A charge exceeds the budget that is left, and was not made.

    `asked` and `left` are losses in words, `where` the account, `what_now` advice.

    Example:
        >>> import lapwing
        >>> try:
        ...     dataset.ask("SELECT COUNT(*) FROM visits", epsilon=20)
        ... except lapwing.OverBudget as error:
        ...     print(error.left)
        ε 2.8 of 3
    """

    code = "over-budget"

    def __init__(self, asked: str, left: str, what_now: str, *, where: str = "") -> None:
        super().__init__(f"asked {asked}, but {left} is left{where and f' on {where}'}. {what_now}")
        self.asked = asked
        self.left = left
        self.what_now = what_now
        self.where = where


class KeyReused(LapwingError):
    """The same idempotency key came with a different request. Nothing was charged."""

    code = "key-reused"

    def __init__(self, words: str = "this key was used for another request. Ask with a new key") -> None:
        super().__init__(words)


class InProgress(LapwingError):
    """A request with this key was charged and is still being worked on. Nothing was charged now."""

    code = "in-progress"

    def __init__(self) -> None:
        super().__init__(
            "the same request is being worked on, and nothing was charged now. Ask again in a moment (with "
            "the same key, if you gave one)"
        )


class WorkEnded(LapwingError):
    """A request with this key was charged, but failed or crashed before its answer was stored.

    Noise is drawn once: the work is never repeated under the same charge.
    """

    code = "work-ended"

    def __init__(self, words: str = "") -> None:
        super().__init__(
            words
            or "a request with this key was charged, but its work ended without an answer. "
            "The charge stays; ask with a new key to pay again"
        )


class ClassNotSeen(LapwingError, ValueError):
    """A fit was charged, and its noisy counts say that rows have other classes than the declared ones.

    `classes` are the declared classes that were not seen, as texts; `share` is about the share of rows that
    have none of the declared classes. Both were released under the charge, which stays.
    """

    code = "class-not-seen"

    def __init__(self, classes: Sequence[str], share: float) -> None:
        super().__init__(
            f"classes: no row of {', '.join(classes)} was seen, and about {share:.0%} of the rows have "
            "none of the declared classes (noisy counts; the charge stays). Write classes as the rows have "
            "them, upper and lower case too, or leave out rows of other classes. Then fit again"
        )
        self.classes = tuple(classes)
        self.share = share


class Held(LapwingError):
    """A query failed after it was charged. It is held until the curator clears it.

    The text is the same for every cause: the cause may depend on one person's rows.
    """

    code = "held"

    def __init__(self, position: int) -> None:
        super().__init__(
            f"this query was charged, but could not be answered (receipt {position}). The charge stays, "
            f"and the query is held until the curator clears it: lapwing clear-hold POLICY {position}"
        )
        self.position = position


class AllHeld(Held):
    """Several queries of one analyst failed after they were charged. All queries of the analyst are held.

    A failure may itself reveal something about one person's rows, and no charge covers that.
    """

    code = "all-held"

    def __init__(self, positions: Sequence[int]) -> None:
        receipts = " ".join(map(str, positions))
        LapwingError.__init__(
            self,
            f"{len(positions)} queries of this analyst were charged, but could not be answered. All "
            "queries of the analyst are held until the curator clears these: "
            f"lapwing clear-hold POLICY {receipts}",
        )
        self.position = positions[-1]
        self.positions = tuple(positions)


class Aborted(LapwingError):
    """A joint computation ended before all sums were opened. Charges stay.

    `missing` names the members that were missing or sent an impossible message. `was_charged` is false if
    the run ended before this member was charged. `opened` is the number of stages whose sums were opened.
    `goes_on` is true if the others continue the run without this member, which was not charged.
    """

    code = "aborted"

    def __init__(
        self,
        why: str,
        missing: Sequence[str] = (),
        *,
        was_charged: bool = True,
        opened: int = 0,
        goes_on: bool = False,
    ) -> None:
        names = f" ({', '.join(missing)})" if missing else ""
        if goes_on:
            was_charged = False
            rest = "The others may open the sums; this member has no part in them, and was not charged"
        elif not was_charged:
            rest = "Nothing was opened, and nothing was charged"
        else:
            sums = f"Sums that were opened before: {opened}" if opened else "Nothing was opened"
            rest = f"{sums}; what was charged stays charged"
        super().__init__(f"{why}{names}. {rest}")
        self.why = why
        self.missing = tuple(missing)
        self.was_charged = was_charged
        self.opened = opened
        self.goes_on = goes_on


class Tampered(LapwingError):
    """A ledger, an anchor or a statement was changed. `found` lists the differences."""

    code = "tampered"

    def __init__(self, found: Sequence[str]) -> None:
        super().__init__("; ".join(found))
        self.found = tuple(found)


class Unavailable(LapwingError):
    """A ledger or its anchor could not be reached, read or written.

    A charge whose outcome is unknown counts as spent.
    """

    code = "unavailable"


class SessionOver(LapwingError):
    """An interactive mechanism has given its last answer, or it or a budget was copied or revived."""

    code = "session-over"


class TokenSpent(LapwingError):
    """A charge would bring a token above its most ε, and was not made.

    `asked` and `left` are decimal texts or fractions, `what_now` is advice.
    """

    code = "token-spent"

    def __init__(self, asked: Fraction, left: Fraction, most: Fraction) -> None:
        self.asked, self.left = f"ε {float(asked):.6g}", f"ε {float(left):.6g} of {float(most):.6g}"
        self.what_now = "Ask for less, or with another token, or sign in."
        super().__init__(f"asked {self.asked}, but {self.left} is left for this token. {self.what_now}")


class TooManyRequests(LapwingError):
    """Too many requests came. `retry_after` says after how many seconds to try again."""

    code = "too-many"

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"too many requests. Try again in {retry_after} s")
        self.retry_after = retry_after


class MissingExtra(LapwingError, ImportError):
    """An optional dependency is not installed."""

    code = "missing-extra"

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(f"{needed_for} needs an extra: pip install 'lapwing[{extra}]'")
        self.extra = extra


def fields_of(error: LapwingError) -> dict[str, Any]:
    """Return the public fields of an error as plain values, as commands and the server print them in JSON.

    Args:
        error: The error.

    Returns:
        The fields by name. A field of another kind than texts, numbers and lists of them is left out.

    Example:
        >>> from lapwing.errors import BadParameter, fields_of
        >>> fields_of(BadParameter("epsilon", "must be above 0"))
        {'name': 'epsilon', 'why': 'must be above 0'}
    """
    found = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")}
    return {name: value for name, value in found.items() if value is not NotImplemented}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Fraction):
        return float(value) if math.isfinite(value) else NotImplemented
    if isinstance(value, list | tuple):
        parts = [_plain(part) for part in value]
        return NotImplemented if NotImplemented in parts else parts
    return NotImplemented
