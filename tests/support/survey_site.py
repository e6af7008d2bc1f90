"""A survey file served by a process of its own, with invitations: for browsers and for respondents."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.survey.credentials import new_invitation
from lapwing.survey.designing import Design, design
from lapwing.survey.report_store import read_all_reports
from lapwing.survey.service import open_report_store
from lapwing.survey.survey_file import load
from lapwing.survey.web_app import open_survey
from lapwing.web.serving import serve
from support.forking import Program

EVERY_KIND = """
[survey]
name = "every_kind"
title = "Small things, honestly answered"
text = "A survey about everyday life.\\nIt takes two minutes."
epsilon = 7
ask = "all"
stop_after = 1000

[[questions]]
name = "shop"
text = "Have you ever left a shop without paying?"
kind = "yes_no"

[[questions]]
name = "place"
text = "Where do you work most of the time?"
kind = "choice"
options = ["at home", "in an office", "outdoors", "somewhere else"]

[[questions]]
name = "leisure"
text = "What did you do last week?"
kind = "several"
options = ["sport", "music", "reading <b>aloud</b>"]

[[questions]]
name = "meals"
text = "Which meals did you have yesterday?"
kind = "several"
as = "set"
options = ["breakfast", "lunch", "dinner"]

[[questions]]
name = "content"
text = "How content are you with your days, from 1 (not at all) to 5 (fully)?"
kind = "rating"

[[questions]]
name = "matters"
text = "What matters most to you? Put these in order."
kind = "ranking"
options = ["health", "family", "money"]

[[questions]]
name = "sleep"
text = "How many hours did you sleep last night?"
kind = "number"
low = 0
high = 16
step = 0.25

[[questions]]
name = "holiday"
text = "On which day did your last holiday begin?"
kind = "date"
low = 2025-01-01
high = 2026-12-31
step = 7

[[questions]]
name = "drink"
text = "What do you drink first in the morning? One word."
kind = "word"
letters = 6

[[questions]]
name = "room"
text = "In which room are you?"
kind = "choice"
options = ROOMS
""".replace("ROOMS", str([f"room {number}" for number in range(1, 61)]))
ONE = """
[survey]
name = "one"
title = "One question"
text = "A short one."
epsilon = {epsilon}
stop_after = 1000

[[questions]]
name = "shop"
text = "{text}"
kind = "yes_no"
no_answer = {no_answer}
"""


def one_question(*, epsilon: str = "1", text: str = "Is it so?", no_answer: str = "true") -> str:
    """A survey of one yes or no question."""
    return ONE.format(epsilon=epsilon, text=text, no_answer=no_answer)


@dataclass(frozen=True)
class Request:
    """What an owner who watches the server sees: a request's path, the port it came from, the second."""

    path: str
    port: int
    second: float


@dataclass
class Watched:
    """A served survey that notes every request in a file, as no server of Lapwing does."""

    app: Any
    file: Path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            with self.file.open("a") as notes:
                notes.write(f"{scope['path']} {scope['client'][1]} {time.monotonic()}\n")
        await self.app(scope, receive, send)


@dataclass
class Site:
    """A survey file in a folder of its own, and the process that serves it."""

    folder: Path
    content: str
    port: int = 0
    address: str = ""
    design: Design = field(init=False)

    def start(self) -> Site:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / "survey.toml"
        self.file.write_text(self.content)
        self.design = design(load(self.file))
        opened = open_survey(self.file)  # makes the key and the store
        self._spare = [new_invitation() for _ in range(60)]
        opened.service.reports.admit(self._spare)
        opened.service.close()
        self.process = Program(main, self.file, self.port)
        self.address = self.process.stdout.readline().decode().strip()
        assert self.address
        self.port = int(self.address.strip("/").rpartition(":")[2])
        return self

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()

    def invitation(self) -> str:
        return self._spare.pop()

    def link(self) -> str:
        return f"{self.address}#{self.invitation()}"

    def asked(self) -> list[Request]:
        """All requests so far, in their order."""
        written = self.folder / "asked"  # there is none before the first request
        lines = [line.split() for line in (written.read_text() if written.exists() else "").splitlines()]
        return [Request(path, int(port), float(second)) for path, port, second in lines]

    def reports(self) -> NDArray[np.uint8]:
        """All reports that the server has, as rows."""
        where, size = self.design.survey.reports, self.design.report_size
        store = open_report_store(where, digest=self.design.digest, report_size=size)
        try:
            return read_all_reports(store)
        finally:
            store.close()


def main(file: Path, port: int) -> None:
    """The process itself."""
    with suppress(KeyboardInterrupt):
        serve(
            Watched(open_survey(file).app(), file.with_name("asked")),  # type: ignore[arg-type]
            host="127.0.0.1",
            port=port,
            ready=lambda address: print(address, flush=True),
        )
