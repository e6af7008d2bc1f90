"""The owner's commands on a survey file, as processes: invite, serve, collect, close."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lapwing.errors import BadParameter, BadValue, OverBudget
from lapwing.survey.credentials import PublicKey, blind_token, prepare_token
from lapwing.survey.designing import Design, design
from lapwing.survey.invitations import RESPONDENTS_ACCOUNT, open_ledger, person_mark
from lapwing.survey.report_file import write_reports
from lapwing.survey.report_store import read_all_reports
from lapwing.survey.service import open_report_store
from lapwing.survey.survey_file import load
from support.raised import named
from support.survey_cli import app
from support.survey_files import write_survey

COMMAND = (sys.executable, "-m", "support.survey_cli")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def command(*arguments: object) -> str:
    """What a command printed."""
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@contextmanager
def served(file: Path) -> Iterator[tuple[str, int]]:
    """The survey, served by the command until the block ends."""
    process = subprocess.Popen(
        [*COMMAND, "serve", str(file), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        told = [process.stdout.readline() for _ in range(3)]
        assert re.fullmatch(r"The fingerprint of this survey and its key:( [0-9a-f]{4}){8}\n", told[1])
        assert told[2].startswith("0 reports so far. It ends after 30 reports")
        found = re.search(r"http://(127\.0\.0\.1):(\d+)/", told[0])
        assert found
        yield found[1], int(found[2])
    finally:
        process.terminate()
        _, error = process.communicate(timeout=60)
    assert error == ""


def post(where: tuple[str, int], path: str, body: dict[str, str]) -> tuple[int, Any]:
    connection = HTTPConnection(*where, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def get(where: tuple[str, int], path: str) -> Any:
    connection = HTTPConnection(*where, timeout=60)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def reports_of(made: Design, count: int) -> Any:
    return made.simulate(
        {part.question.name: np.arange(count) % part.question.inputs for part in made.parts}
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_survey(tmp_path, stop_after=30)


def test_a_survey_from_invitations_to_its_end(file: Path, tmp_path: Path) -> None:
    made = design(load(file))
    people, links = tmp_path / "people.txt", tmp_path / "links.txt"
    people.write_text("ann@example.org\n\nben@example.org\n")
    told = command("invite", file, "--to", people, "--base", "https://survey.example.org", "--out", links)
    assert told.startswith("Issued 2 invitations, each charged ε 2 in ")
    assert stat.S_IMODE(links.stat().st_mode) == 0o600
    lines = [line.split("\t") for line in links.read_text().splitlines()]
    assert [person for person, _ in lines] == ["ann@example.org", "ben@example.org"]
    secrets = [link.removeprefix("https://survey.example.org/#") for _, link in lines]
    printed = command("invite", file, "--count", 3)
    assert re.fullmatch(r"(http://127\.0\.0\.1:8000/#[A-Za-z0-9_-]{24}\n){3}", printed)
    secrets += [line.partition("#")[2] for line in printed.splitlines()]
    with open_ledger(made.survey) as ledger:
        account = ledger.account(RESPONDENTS_ACCOUNT)
        [(_, block)] = ledger.look_at(account, [person_mark(ledger, "ANN@example.org")])
        assert block.left(account.terms) == 3

    sent = reports_of(made, 5)
    with served(file) as where:
        survey = get(where, "/survey.json")
        assert (survey["digest"], survey["survey"]) == (made.digest, made.public())
        key = PublicKey.from_json(survey["key"])
        for secret, report in zip(secrets, sent, strict=True):
            blinding = blind_token(key, prepare_token())
            status, signed = post(where, "/sign", {"invitation": secret, "blinded": blinding.blinded.hex()})
            assert status == 200
            body = {
                "digest": made.digest,
                "token": blinding.prepared.hex(),
                "signature": blinding.finish(bytes.fromhex(signed["signature"])).hex(),
                "report": report.tobytes().hex(),
            }
            assert post(where, "/report", body) == (200, {"accepted": True})
            crafted = {**body, "report": "07" * made.report_size}
            assert post(where, "/report", crafted)[0] == 422  # P2: no device sends such a report

    write_reports(tmp_path / "mailed.reports", made, reports_of(made, 20))
    command("collect", file, tmp_path / "mailed.reports")
    done = command("close", file, "--json")
    expected = {"reports": 25, "invitations": 5, "signed": 5, "closed": True}
    assert json.loads(done) == expected
    store = open_report_store(made.survey.reports, digest=made.digest, report_size=made.report_size)
    assert read_all_reports(store).shape == (25, made.report_size)
    assert store.state().without_credential == 20
    store.close()


class TestInviting:
    def test_the_same_people_again_is_refused_and_charges_nothing(self, file: Path, tmp_path: Path) -> None:
        people = tmp_path / "people.txt"
        people.write_text("ann\n")
        command("invite", file, "--to", people)
        with pytest.raises(BadParameter, match="--again"):
            command("invite", file, "--to", people, "--out", tmp_path / "links.txt")
        assert not (tmp_path / "links.txt").exists()
        command("invite", file, "--to", people, "--again")
        with pytest.raises(OverBudget, match="ε 1 is left"):
            command("invite", file, "--to", people, "--again")

    def test_links_are_never_written_over(self, file: Path, tmp_path: Path) -> None:
        links = tmp_path / "links.txt"
        links.write_text("precious")
        with pytest.raises(BadParameter, match="nothing is written over"):
            command("invite", file, "--count", 2, "--out", links)
        assert links.read_text() == "precious"
        with open_ledger(load(file)) as ledger:
            assert len(ledger.blocks(RESPONDENTS_ACCOUNT)) == 1  # nobody was charged

    def test_what_makes_no_sense_is_refused(self, file: Path, tmp_path: Path) -> None:
        with pytest.raises(BadParameter, check=named("invite")):
            command("invite", file)
        with pytest.raises(BadParameter, match="No such file"):
            command("invite", file, "--to", tmp_path / "none.txt")
        with pytest.raises(BadParameter, match="Is a directory"):
            command("invite", file, "--to", tmp_path)
        with pytest.raises(BadParameter, match="No such file"):
            command("invite", file, "--count", 2, "--out", tmp_path / "no" / "such")
        with open_ledger(load(file)) as ledger:
            assert len(ledger.blocks(RESPONDENTS_ACCOUNT)) == 1  # nobody was charged

    @pytest.mark.parametrize(
        "base",
        [
            "survey.example.org", "ftp://survey.example.org", "https://", "https://x y", "https://x\n",
            "https://x\t", "https://x/?a=b", "https://x/#", "https://me@x", "https://x:port", "https://[x",
            "http://survey.example.org", "http://127.0.0.1.example.org", "https://exämple.org", "",
        ],
    )  # fmt: skip
    def test_an_address_that_cannot_begin_a_link_is_refused_before_anything_is_made(
        self, file: Path, tmp_path: Path, base: str
    ) -> None:
        with pytest.raises(BadParameter, check=named("base")):
            command("invite", file, "--count", 2, "--base", base)
        assert list(tmp_path.iterdir()) == [file]

    @pytest.mark.parametrize("base", ["http://localhost:8000", "http://[::1]:9/", "https://x.example/a/"])
    def test_an_address_begins_each_link(self, file: Path, base: str) -> None:
        assert command("invite", file, "--count", 1, "--base", base).startswith(f"{base.rstrip('/')}/#")

    def test_a_copy_of_a_survey_gives_nobody_a_new_life(self, file: Path, tmp_path: Path) -> None:
        people, copy = tmp_path / "people.txt", tmp_path / "copy.toml"
        people.write_text("ann\n")
        copy.write_text(file.read_text().replace('"canteen"', '"copy"'))
        command("invite", file, "--to", people)
        command("invite", copy, "--to", people)
        with pytest.raises(OverBudget, match="ε 1 is left"):
            command("invite", copy, "--to", people, "--again")
        assert (tmp_path / "respondents.ledger").is_file()


class TestCollecting:
    def test_the_same_file_counts_once_and_more_than_the_rule_lets_in_is_left(
        self, file: Path, tmp_path: Path
    ) -> None:
        made, mailed = design(load(file)), tmp_path / "mailed.reports"
        write_reports(mailed, made, reports_of(made, 20))
        first = json.loads(command("collect", file, mailed, "--json"))
        assert first == {"file": 20, "taken": 20, "reports": 20}
        assert json.loads(command("collect", file, mailed, "--json"))["taken"] == 0
        again = json.loads(command("collect", file, mailed, "--again", "--json"))
        assert again == {"file": 20, "taken": 10, "reports": 30}  # stop_after
        assert "Took 0 of 20" in command("collect", file, mailed, "--again")
        with open_ledger(made.survey) as ledger:
            assert len(ledger.blocks(RESPONDENTS_ACCOUNT)) == 1 + 30  # only what was taken is charged

    def test_alike_files_of_seven_devices_count_seven(self, file: Path, tmp_path: Path) -> None:
        made = design(load(file))
        alike = reports_of(made, 1)
        for device in range(7):
            path = tmp_path / f"{device}.report"
            write_reports(path, made, alike)
            for _ in range(2):
                found = json.loads(command("collect", file, path, "--json"))
        assert found == {"file": 1, "taken": 0, "reports": 7}

    def test_P2_a_file_with_an_impossible_report_is_refused_whole(self, file: Path, tmp_path: Path) -> None:
        made, mailed = design(load(file)), tmp_path / "mailed.reports"
        crafted = reports_of(made, 20)
        crafted[7, 1:] = 255
        write_reports(mailed, made, crafted)
        with pytest.raises(BadValue, match="impossible"):
            command("collect", file, mailed)
        store = open_report_store(made.survey.reports, digest=made.digest, report_size=made.report_size)
        assert store.state().reports == 0
        store.close()


def test_a_survey_that_was_changed_after_it_began_is_refused(file: Path, tmp_path: Path) -> None:
    command("invite", file, "--count", 1)
    file.write_text(file.read_text().replace("vegetarian meal", "meal"))
    with pytest.raises(BadParameter, match="before its file was changed"):
        command("serve", file)
