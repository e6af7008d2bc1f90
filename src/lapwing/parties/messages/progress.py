"""Progress of a run, for whoever watches. All of it is public."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One thing that happened. `kind` is one of

    arrived   `names` are in the lobby
    ready     `names` have read their data, and can begin
    refused   `names` were turned away at the door: `why`
    begun     `names` are in the run
    round     round `round` (number `index` of `rounds`) of stage `stage` of `stages` is open
    posted    `names` have posted in it
    closed    `names` were in time
    lost      `names` are out
    opened    the sum of a stage is open, and `names` are in it
    unserved  `names` may not know the sums, which are kept for them: `why`
    away      the relay cannot be reached; trying again
    """

    kind: str
    names: tuple[str, ...] = ()
    stage: int = 0
    stages: int = 1
    round: str = ""
    index: int = 0
    rounds: int = 0
    why: str = ""


Watch = Callable[[Progress], None]


def nobody_watches(_: Progress) -> None:
    """The default."""


def harmless(watch: Watch) -> Watch:
    """The same, but what goes wrong in watching, such as a closed terminal, never reaches the run."""

    def tell(progress: Progress) -> None:
        with suppress(Exception):
            watch(progress)

    return tell
