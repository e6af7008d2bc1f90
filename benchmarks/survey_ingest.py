"""How many reports a second a survey's server takes, and whether one is lost or counted twice.

The real server (`lapwing survey serve`, one process) under load from a second process, on SQLite and on
PostgreSQL; beside it the bare work that nobody can do without: to check the credential and the report, and
to commit each alone, durably. Then the same with kill -9 in the middle.

    .venv/bin/python benchmarks/survey_ingest.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from lapwing.survey.credentials import BlindSigningKey, prepare_token
from lapwing.survey.designing import Design, design
from lapwing.survey.report_store import ReportStore
from lapwing.survey.service import SurveyService, open_report_store
from lapwing.survey.survey_file import load
from lapwing.survey.web_app import open_service
from support import postgres
from support.survey_files import write_survey
from support.survey_siege import Siege, body

REPORTS = 12_000
KILLS = 8
BARE = 2000
COMMAND = (sys.executable, "-m", "support.survey_cli", "serve")
PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=48)


@dataclass
class Server:
    """`lapwing survey serve`, as a process."""

    survey: Path
    port: int = 0

    def start(self) -> Server:
        """Start it, and wait until it has its address."""
        self.process = subprocess.Popen(
            [*COMMAND, str(self.survey), "--port", str(self.port)],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        assert self.process.stdout is not None
        address = self.process.stdout.readline().decode().rpartition(" ")[2].strip(" /\n")
        self.port = int(address.rpartition(":")[2])
        return self

    @property
    def host_and_port(self) -> tuple[str, int]:
        """Where it listens."""
        return "127.0.0.1", self.port

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self._wait()

    def stop(self) -> None:
        """As its owner would."""
        self.process.terminate()
        self._wait()

    def _wait(self) -> None:
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def requests(planned: Design, private: rsa.RSAPrivateKey, count: int) -> list[bytes]:
    """Reports of invented respondents, each under a credential of its own."""
    answers: dict[str, Any] = {
        part.question.name: np.arange(count, dtype=np.int64) % part.question.inputs
        for part in planned.parts
    }
    made = []
    for report in planned.simulate(answers):
        prepared = prepare_token()
        # What a respondent unblinds is such a signature; to blind and unblind costs the owner nothing.
        signature = private.sign(prepared, PSS, hashes.SHA384())
        made.append(body(planned.digest, prepared, signature, report.tobytes()))
    return made


def private_key(planned: Design) -> rsa.RSAPrivateKey:
    """The survey's own key: the owner's to sign with."""
    open_service(planned).close()  # makes it
    [path] = Path(planned.survey.ledger).parent.glob("*.signing")
    found = serialization.load_pem_private_key(path.read_bytes(), password=None)
    assert isinstance(found, rsa.RSAPrivateKey)
    return found


def bare(planned: Design, where: str, private: rsa.RSAPrivateKey) -> float:
    """Reports a second, if each is checked and committed alone, in this process, without any HTTP."""
    bodies = [json.loads(one) for one in requests(planned, private, BARE)]
    store = open_report_store(where, digest=planned.digest, report_size=planned.report_size)
    desk = SurveyService(
        store, BlindSigningKey(private), planned.digest, planned.report_size, planned.check
    )
    try:
        start = time.perf_counter()
        for one in bodies:
            parts = (bytes.fromhex(one[name]) for name in ("token", "signature", "report"))
            desk.take(planned.digest, *parts).result()
        return BARE / (time.perf_counter() - start)
    finally:
        desk.close()


def measured(folder: Path, *, in_server: bool) -> tuple[Siege, Siege, float]:
    """The server undisturbed, then killed again and again; and the bare work."""
    folder.mkdir()
    sieges = []
    for name, kills in (("calm", 0), ("killed", KILLS)):
        own = folder / name
        own.mkdir()
        places = f'[store]\nurl = "{postgres.fresh_url()}"\n' if in_server else ""
        planned = design(load(write_survey(own, name, stop_after=10 * REPORTS, places=places)))
        private = private_key(planned)
        siege = Siege(own, requests(planned, private, REPORTS))
        store = opened(planned)
        server = Server(planned.survey.path).start()
        try:
            siege.lay(server, store, kills)
        finally:
            server.stop()
        siege.require_each_once(store)
        store.close()
        sieges.append(siege)
    where = postgres.fresh_url() if in_server else f"{planned.survey.reports}.bare"
    rate = bare(planned, where, private)
    return sieges[0], sieges[1], rate


def opened(planned: Design) -> ReportStore:
    """The survey's reports."""
    return open_report_store(planned.survey.reports, digest=planned.digest, report_size=planned.report_size)


def show(name: str, calm: Siege, killed: Siege, alone: float) -> None:
    """Two lines for a database."""
    rate = len(calm.bodies) / calm.seconds
    print(
        f"{name:<12} {rate:7,.0f} reports/s sustained over HTTP ({len(calm.bodies):,} reports); "
        f"one by one without HTTP: {alone:,.0f}/s",
        flush=True,
    )
    print(
        f"{'':<12} kill -9 {killed.kills} times under load: {len(killed.bodies):,} acknowledged, 0 lost, "
        f"0 counted twice, {killed.sent_again:,} connections broken off and sent again",
        flush=True,
    )


def section() -> None:
    """Both databases."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["LAPWING_STATE"] = str(folder / "state")
        show("SQLite", *measured(folder / "sqlite", in_server=False))
        show("PostgreSQL", *measured(folder / "postgres", in_server=True))


if __name__ == "__main__":
    section()
