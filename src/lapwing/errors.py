"""Every error that Lapwing raises on purpose.

LapwingError
├── BadParameter       a public parameter (ε, δ, scale, bound …) is not acceptable
│   ├── BadFile        a file that a person wrote has mistakes
│   └── Refused        a question cannot be answered privately (lapwing.sql.binding.refusal)
├── BadValue           data handed to a mechanism is not of the promised form
├── NoEntropy          the operating system gave no randomness; nothing was drawn
├── Undecided          a random comparison stayed open beyond the documented bound
├── OverBudget         a charge does not fit what is left
├── KeyReused          an idempotency key came again with another request
├── InProgress         a request with this key is still being worked on
├── WorkEnded          a request was charged, but its work ended without an answer
├── Held               a question failed after its charge, and waits for the curator
│   └── AllHeld        several did, and all questions of the analyst wait
├── Aborted            a joint computation ended before all was opened; what was charged stays charged
├── Tampered           a ledger or statement is not what it was: edited, truncated or restored
├── Unavailable        a ledger could not be reached or written
│   └── EngineFailed   an engine gave no answer (lapwing.engines.engine)
├── SessionOver        an interactive mechanism has ended, or it or a budget was copied or revived
└── MissingExtra       an optional dependency is not installed

Messages may show public parameters. They never show data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class LapwingError(Exception):
    """Base of all errors raised on purpose by Lapwing. It comes whole out of a worker process.

    Example:
        >>> import lapwing
        >>> try:
        ...     lapwing.explain("-1", "1e-6", 100)
        ... except lapwing.LapwingError as error:
        ...     print(error)
        epsilon: must be above 0
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[LapwingError], args: tuple[Any, ...]) -> LapwingError:
    """Without `__init__`, which would want what the message was made of."""
    return kind.__new__(kind, *args)


class BadParameter(LapwingError, ValueError):
    """A public parameter is not acceptable. Raised before any data is read or noise drawn."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


class BadFile(BadParameter):
    """A file that a person wrote, such as a policy, has mistakes.

    `mistakes` has one line for each: file, line, key, what to write.
    """

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("file", "; ".join(mistakes))
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        return "\n".join(self.mistakes)


class BadValue(LapwingError, ValueError):
    """Data is not of the promised form. The message names the form, never the data."""


class NoEntropy(LapwingError, RuntimeError):
    """The operating system gave no usable randomness. There is no fallback."""


class Undecided(LapwingError, RuntimeError):
    """A comparison with a random number stayed open for more than 1,088 random bits.

    With working hardware this has probability below 2^-1000 per draw. Failing is the safe side.
    """


class OverBudget(LapwingError):
    """A charge does not fit: what was asked, what is left, what to do now.

    Example:
        >>> import lapwing
        >>> try:
        ...     dataset.ask("SELECT COUNT(*) FROM visits", epsilon=20)
        ... except lapwing.OverBudget as error:
        ...     print(error.left)
        ε 2.8 of 3
    """

    def __init__(self, asked: str, left: str, what_now: str, *, where: str = "") -> None:
        super().__init__(f"asked {asked}, but {left} is left{where and f' on {where}'}. {what_now}")
        self.asked = asked
        self.left = left
        self.what_now = what_now
        self.where = where


class KeyReused(LapwingError):
    """The same idempotency key came with a different request. Nothing was charged."""

    def __init__(self) -> None:
        super().__init__("this key was used for another request. Ask with a new key")


class InProgress(LapwingError):
    """A request with this key was charged and is still being worked on. Nothing was charged now."""

    def __init__(self) -> None:
        super().__init__(
            "the same request is being worked on, and nothing was charged now. Ask again in a moment (with "
            "the same key, if you gave one)"
        )


class WorkEnded(LapwingError):
    """A request with this key was charged, but failed or crashed before its answer was stored.

    Noise is drawn once: the work is never repeated under the same charge.
    """

    def __init__(self) -> None:
        super().__init__(
            "a request with this key was charged, but its work ended without an answer. "
            "The charge stays; ask with a new key to pay again"
        )


class Held(LapwingError):
    """A question of this analyst failed after it was charged. It waits until the curator has looked.

    The reply never varies: why it failed may depend on one person's rows.
    """

    def __init__(self, position: int) -> None:
        super().__init__(
            f"this question was charged, but could not be answered (receipt {position}). The charge stays, "
            "and the question waits until the curator has looked at it: lapwing looked POLICY RECEIPT"
        )
        self.position = position


class AllHeld(Held):
    """Several questions of this analyst failed after they were charged: all of the analyst's wait.

    That a question fails may itself tell of one person's rows, and nobody has priced it.
    """

    def __init__(self, positions: Sequence[int]) -> None:
        receipts = " ".join(map(str, positions))
        LapwingError.__init__(
            self,
            f"{len(positions)} questions of this analyst were charged, but could not be answered. All of "
            "the analyst's questions wait until the curator has looked at these: "
            f"lapwing looked POLICY {receipts}",
        )
        self.position = positions[-1]
        self.positions = tuple(positions)


class Aborted(LapwingError):
    """A joint computation ended before all was opened. What was charged stays charged.

    `missing` names the members who were missing, or who sent what cannot be; `was_charged` is false if it
    ended before this member was; `opened` is the number of stages whose sums were opened before.
    """

    def __init__(
        self, why: str, missing: Sequence[str] = (), *, was_charged: bool = True, opened: int = 0
    ) -> None:
        names = f" ({', '.join(missing)})" if missing else ""
        if not was_charged:
            rest = "Nothing was opened, and nothing was charged"
        else:
            what = f"Sums that were opened before: {opened}" if opened else "Nothing was opened"
            rest = f"{what}; what was charged stays charged"
        super().__init__(f"{why}{names}. {rest}")
        self.why = why
        self.missing = tuple(missing)
        self.was_charged = was_charged
        self.opened = opened


class Tampered(LapwingError):
    """A ledger, an anchor or a statement is not what it was. `found` says what differs."""

    def __init__(self, found: Sequence[str]) -> None:
        super().__init__("; ".join(found))
        self.found = tuple(found)


class Unavailable(LapwingError):
    """A ledger or its anchor could not be reached, read or written. What is unknown counts as spent."""


class SessionOver(LapwingError):
    """An interactive mechanism has given its last answer, or this is a copy of it or of a budget."""


class MissingExtra(LapwingError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(f"{needed_for} needs an extra: pip install 'lapwing[{extra}]'")
        self.extra = extra
