"""Reports: what a device sends. All reports of a survey have one size, whatever they say.

Byte 0 is 255 where all questions are asked, else the number of the question that was. Then come the
messages, in the order of the questions, and zeros up to the size of the longest report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.errors import BadParameter, BadValue
from lapwing.noise import uniform_int
from lapwing.survey.randomizers import Randomizer

ALL = 255
BLOCK = 1 << 15  # reports simulated together: long messages would fill the memory
Sorted = dict[int, tuple[NDArray[np.int64], NDArray[Any]]]


@dataclass(frozen=True)
class Layout:
    """Where messages lie in a report."""

    randomizers: tuple[Randomizer, ...]
    asks_all: bool

    @property
    def size(self) -> int:
        """Bytes of every report."""
        sizes = [randomizer.size for randomizer in self.randomizers]
        return 1 + (sum(sizes) if self.asks_all else max(sizes))

    def _columns(self) -> Iterator[tuple[int, Randomizer, slice]]:
        start = 1
        for place, randomizer in enumerate(self.randomizers):
            yield place, randomizer, slice(start, start + randomizer.size)
            if self.asks_all:
                start += randomizer.size

    def pack(self, messages: Mapping[int, bytes]) -> bytes:
        """A report of the messages to all questions, or to one; `BadValue` for the impossible."""
        places = sorted(messages)
        if places != (list(range(len(self.randomizers))) if self.asks_all else places[:1]) or not places:
            wanted = "every question" if self.asks_all else "one question"
            raise BadValue(f"a report has a message to {wanted}")
        if not 0 <= places[-1] < len(self.randomizers):
            raise BadValue("a message belongs to no question")
        if not all(isinstance(messages[place], bytes) for place in places):
            raise BadValue("a message must be bytes")
        if any(len(messages[place]) != self.randomizers[place].size for place in places):
            raise BadValue("a message has not the size that its question asks for")
        head = ALL if self.asks_all else places[0]
        report = bytes([head, *b"".join([messages[place] for place in places])]).ljust(self.size, b"\0")
        self.check(report)
        return report

    def unpack(self, reports: NDArray[np.uint8]) -> Sorted:
        """For every question the rows that answer it, and their messages, checked."""
        well_formed = isinstance(reports, np.ndarray) and reports.dtype == np.uint8 and reports.ndim == 2
        if not well_formed or reports.shape[1] != self.size:
            raise BadValue(f"a report must have {self.size} bytes")
        heads = reports[:, 0]
        if self.asks_all and bool(np.any(heads != ALL)):
            raise BadValue("a report is impossible: it must answer all questions")
        if not self.asks_all and bool(np.any(heads >= len(self.randomizers))):
            raise BadValue("a report is impossible: it answers a question that is not asked")
        found: Sorted = {}
        for place, randomizer, columns in self._columns():
            rows = np.arange(len(reports)) if self.asks_all else np.flatnonzero(heads == place)
            sent = reports if self.asks_all else reports[rows]
            if not self.asks_all and bool(np.any(sent[:, columns.stop :])):
                raise BadValue("a report is impossible: there is something after its message")
            found[place] = rows, randomizer.decode(np.ascontiguousarray(sent[:, columns]))
        return found

    def check(self, report: bytes) -> None:
        """`BadValue` unless some device could have sent it."""
        if not isinstance(report, bytes):
            raise BadValue("a report must be bytes")
        self.unpack(np.frombuffer(report, dtype=np.uint8)[np.newaxis])

    def simulate(self, answers: Sequence[NDArray[np.int64]]) -> NDArray[np.uint8]:
        """Reports of respondents with these answers: coins are thrown as on devices, many at once."""
        count = len(answers[0])
        if any(len(given) != count for given in answers):
            raise BadParameter("answers", "must be as many to each question")
        reports = np.zeros((count, self.size), dtype=np.uint8)
        for start in range(0, count, BLOCK):
            self._simulate(
                reports[start : start + BLOCK], [given[start : start + BLOCK] for given in answers]
            )
        return reports

    def _simulate(self, reports: NDArray[np.uint8], answers: Sequence[NDArray[np.int64]]) -> None:
        if self.asks_all:
            reports[:, 0] = ALL
        else:
            reports[:, 0] = uniform_int(0, len(self.randomizers), len(reports))
        for place, randomizer, columns in self._columns():
            rows = np.arange(len(reports)) if self.asks_all else np.flatnonzero(reports[:, 0] == place)
            if len(rows):
                reports[rows, columns] = randomizer.encode(randomizer.sample(answers[place][rows]))
