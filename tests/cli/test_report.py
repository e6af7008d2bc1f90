"""`lapwing report` and `lapwing verify`: forms, sections, secrets, refusals, and every kind of subject."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lapwing.audit.signed_audit import signed_run
from lapwing.examples.town import TOWN_CENSUS
from lapwing.examples.visits import _DIAGNOSES as DIAGNOSES
from lapwing.ledger.keys import LedgerKeys
from lapwing.reporting.sections import SECTIONS
from lapwing.reporting.writing import make_report
from support.published import copied_bundle, town
from support.reported import ANALYSTS, ASKED, DATA, DAY, FIRST_RECEIPT, copied_policy
from support.shell import Shell

FORMS = {"--html": "r.html", "--markdown": "r.md", "--json": "r.json"}


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy that was asked three questions by two analysts, and raised once."""
    monkeypatch.chdir(tmp_path)
    return copied_policy(tmp_path)


def entries(ledger: Path) -> list[Any]:
    with sqlite3.connect(ledger) as database:
        return database.execute("SELECT seq, body FROM entries ORDER BY seq").fetchall()


def written(shell: Shell, policy: Path, *more: object) -> dict[str, str]:
    """Write a report in every form. Return the texts, and remove the files."""
    files = [part for option, name in FORMS.items() for part in (option, name)]
    shell.good("report", policy, *files, "--date", DAY, *more)
    found = {name: Path(name).read_text() for name in FORMS.values()}
    for name in found:
        Path(name).unlink()
    return found


def test_the_odds_are_for_taking_part_and_for_a_fact(shell: Shell, policy: Path) -> None:
    text = written(shell, policy)["r.md"]
    assert (
        "that a unit is in the data by at most e^ε, and that something is true of a unit by at most e^2ε"
        in text
    )
    assert "Two steps together have (1 + e^ε) δ" in text
    rows = [line for line in text.splitlines() if line.startswith("| that ")]
    assert len(rows) == 6


def test_every_form_has_every_section_and_nothing_is_charged(shell: Shell, policy: Path) -> None:
    before = entries(policy.with_name("lapwing.ledger"))
    found = written(shell, policy)
    again = written(shell, policy)
    assert found == again  # to the byte
    assert entries(policy.with_name("lapwing.ledger")) == before
    report = json.loads(found["r.json"])["report"]
    wanted = [key for key, _, _ in SECTIONS if key != "since"]
    assert [section["key"] for section in report["sections"]] == wanted
    for key, title, _ in SECTIONS:
        if key != "since":
            assert f"## {title}\n" in found["r.md"]
            assert f"<h2>{title}</h2>" in found["r.html"]
    assert "ε 4, δ 1.1e-6 for life" in found["r.md"]
    assert "Refresh policy: never" in found["r.md"]
    assert found["r.md"].count("Not answered yet") >= 20
    assert "nothing in it was audited" in found["r.md"]
    assert "data:image/svg+xml;base64," in found["r.html"]
    assert "<script" not in found["r.html"]
    other = written(shell, policy, "--date", "2026-02-01")
    assert [line for line in other["r.md"].split("<!--")[0].splitlines() if "2026-02-01" in line] == [
        found["r.md"].splitlines()[2].replace(DAY, "2026-02-01")
    ]


def test_no_private_value_no_question_and_no_name_of_an_analyst(shell: Shell, policy: Path) -> None:
    for text in written(shell, policy).values():
        for secret in (*DIAGNOSES, *ANALYSTS, *(sql for _, sql, _ in ASKED), str(policy.parent)):
            assert secret not in text
    for text in written(shell, policy, "--analysts").values():
        assert all(name in text for name in ANALYSTS)
        assert not any(sql in text for _, sql, _ in ASKED)


def test_it_verifies_in_another_folder(shell: Shell, policy: Path, tmp_path_factory: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    key = shell.good("verify", "lapwing.ledger", "--json").json["key"]
    for name, text in written(shell, policy, "--analysts", "--since", FIRST_RECEIPT).items():
        path = elsewhere / name
        path.write_text(text)
        shown = shell.good("verify", path, "--key", key).out
        assert "nothing differs" in shown
        assert "policy visits" in shown
        assert shell.good("verify", path, "--json").json["good"]
        assert "no --key was given" in shell.good("verify", path).out
        wrong = shell("verify", path, "--key", "0" * 64)
        assert (wrong.code, "another key" in wrong.error) == (1, True)
        path.write_text(text.replace("ε 4", "ε 3", 1))
        refused = shell("verify", path)
        assert refused.code == 1
        assert "not what was signed" in refused.error
        assert shell("verify", path, "--json").code == 1


def test_a_strangers_report_cannot_steer_the_terminal(shell: Shell, policy: Path) -> None:
    """With a key of their own they can sign any date. It must not hide the warning about the key."""
    made = make_report(policy, date="2026-01-31\x1b[8m")
    Path("r.json").write_bytes(made.bytes_of("json"))
    shown = shell.good("verify", "r.json").out
    assert "\\u001b[8m" in shown
    assert "\x1b[8m" not in shown
    assert "no --key was given" in shown


def test_since_a_receipt(shell: Shell, policy: Path) -> None:
    text = written(shell, policy, "--since", FIRST_RECEIPT)["r.md"]
    assert 'charged to "visits" since receipt 5: 2.' in text
    assert "ε 0.45" in text
    assert "Raises of the budget since then: 1." in text
    for receipt in (6, 999):
        done = shell("report", policy, "--since", receipt)
        assert (done.code, "is no receipt" in done.error) == (2, True)


def test_without_a_file_it_is_printed(shell: Shell, policy: Path) -> None:
    done = shell.good("report", policy)
    assert done.out.startswith("# Privacy report of the policy visits\n")
    assert "Printed without a signature" in done.out
    assert "UNSIGNED" in done.out
    assert "signed with" not in done.out.lower()
    found = shell.good("report", policy, "--json", "-").json
    assert found["lapwing"] == "report"
    assert found["signature"]


def test_the_officer_answers_in_a_file_beside_the_policy(shell: Shell, policy: Path) -> None:
    done = shell.good("report", policy, "--template")
    path = policy.with_name("visits.report.toml")
    assert str(path) in done.out
    assert shell("report", policy, "--template").code == 2  # nothing is written over
    path.write_text(
        path.read_text().replace('collection = ""', 'collection = "By the <b>hospital</b> | itself"')
    )
    found = written(shell, policy)
    assert "By the &lt;b&gt;hospital&lt;/b&gt; \\| itself." in found["r.md"]
    assert "By the &lt;b&gt;hospital&lt;/b&gt; | itself." in found["r.html"]
    assert "has answered 1 of 20" in found["r.md"]
    path.write_text("[data]\nnothing = 1\n")
    done = shell("report", policy)
    assert (done.code, "visits.report.toml:2" in done.error) == (2, True)


def test_audits_are_told_with_date_and_version(shell: Shell, policy: Path) -> None:
    exact = ("audit", "mechanism", "noisy max", "--quick", "--exact-only", "--json")
    audit = shell.good(*exact, "--sign", policy)
    Path("audit.json").write_text(audit.out)
    found = written(shell, policy, "--audit", "audit.json")
    started = audit.json["started"][:16].replace("T", " ")
    assert f"audit.json: begun {started} UTC, Lapwing {audit.json['version']}." in found["r.md"]
    assert "| noisy max |" in found["r.md"]
    assert "error" not in audit.json  # under this name `--json` tells that a command failed
    assert "Signed by the ledger's key. No violation found." in found["r.md"]
    told = dict(audit.json)
    earlier = {**told, "format": 1, "error": told.pop("error_probability")}
    praised = {**audit.json, "verdict": "Proven private by NIST."}
    for edited in (earlier, praised, shell.good(*exact).json):
        Path("audit.json").write_text(json.dumps(edited))
        done = shell("report", policy, "--audit", "audit.json")
        assert (done.code, "is not signed by the key of this report's ledger" in done.error) == (2, True)
    texts = ("{}", "[1]", "no JSON", '{"lapwing": "audit", "format": 99}', json.dumps(told))
    for text in texts:
        Path("audit.json").write_text(text)
        done = shell("report", policy, "--audit", "audit.json")
        assert (done.code, "is no audit run" in done.error) == (2, True)
    assert shell("report", policy, "--audit", "nowhere.json").code == 2


def test_a_failed_audit_stands_at_the_top(shell: Shell, policy: Path) -> None:
    """Failure case C19."""
    audit = shell.good("audit", "mechanism", "noisy max", "--quick", "--exact-only", "--json").json
    audit["cases"][0]["stages"][0]["witness"] = {"pair": "two inputs", "event": "an event"}
    keys = LedgerKeys.load(policy.with_name("lapwing.ledger.keys"))
    Path("audit.json").write_text(json.dumps(signed_run(audit, keys.signing)))  # it still says "passed"
    text = written(shell, policy, "--audit", "audit.json")["r.md"]
    first = text.partition("## In short\n")[2].strip().splitlines()[0]
    assert "AN AUDIT DID NOT PASS (audit.json): Violation found: noisy max" in first
    assert "No violation found" not in text


def test_only_json_is_signed_and_only_by_a_ledger(shell: Shell, policy: Path) -> None:
    exact = ("audit", "mechanism", "noisy max", "--quick", "--exact-only")
    for more, why in (
        (("--sign", policy), "Add --json"),
        (("--json", "--sign", "nowhere.ledger"), "there is no ledger at nowhere.ledger"),
    ):
        done = shell(*exact, *more)
        assert (done.code, why in done.error) == (2, True)


def test_two_policies_in_one_ledger_and_one_under_two_names(shell: Shell, policy: Path) -> None:
    copy = policy.with_name("other.toml")
    copy.write_text(policy.read_text().replace('name = "visits"', 'name = "second"', 1))
    unknown = shell.good("report", copy, "--json", "-").json["report"]
    assert unknown["ledger"]["accounts"] == []  # no account yet: a report opens none
    assert unknown["ledger"]["other_accounts"] == 1
    assert (
        shell("ask", copy, "SELECT COUNT(*) AS n FROM visits", "--epsilon", "0.1", "--as", "ann").code == 0
    )
    found = shell.good("report", copy, "--json", "-").json["report"]["ledger"]
    names = {account["name"] for account in found["accounts"]}
    first = shell.good("report", policy, "--json", "-").json["report"]["ledger"]
    assert {account["name"] for account in first["accounts"]} <= names  # the same people, the same account
    visits = next(one for one in found["accounts"] if one["name"] == first["accounts"][0]["name"])
    assert visits == first["accounts"][0]
    assert visits["charges"] == len(ASKED) + 1
    own = shell.good("report", policy).out
    assert (
        "Other accounts of the same ledger" not in own
    )  # the second is charged with the first: nothing adds


def test_without_a_ledger_it_is_unsigned(shell: Shell, tmp_path: Path) -> None:
    survey = tmp_path / "tea.toml"
    survey.write_text(
        '[survey]\nname = "tea"\nepsilon = 1.0\nstop_after = 9\n[[questions]]\nname = "t"\ntext = "Tea?"\n'
        'kind = "yes_no"\n'
    )
    for file in (copied_policy(tmp_path, DATA), survey):
        page = file.with_suffix(".html")
        done = shell.good("report", file, "--html", page)
        assert "UNSIGNED" in done.out
        assert "UNSIGNED" in page.read_text()
        refused = shell("verify", page)
        assert (refused.code, "unsigned" in refused.error) == (1, True)
        assert "not used yet, or its ledger was lost" in page.read_text()
        assert shell("report", file, "--since", 3).code == 2
    assert [path.name for path in tmp_path.glob("*.ledger")] == []


def test_a_survey_is_signed_by_the_ledger_of_its_invitations(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shell.good("survey", "example")
    assert shell("survey", "invite", "wellbeing.toml", "--count", 3).code == 0
    done = shell.good("report", "wellbeing.toml", "--html", "survey.html", "--json", "survey.json")
    assert done.out.count("signed with the ledger's key") == 2
    assert shell.good("verify", "survey.html", "--json").json["good"]
    found = json.loads(Path("survey.json").read_text())["report"]
    assert found["ledger"]["accounts"][0]["mechanisms"][0]["mechanism"] == "survey invitation"
    page = Path("survey.html").read_text()
    assert "one person" in base64.b64decode(page.split("svg+xml;base64,")[1].split('"')[0]).decode()
    assert "e^2ε" not in page  # one step replaces an answer: e^ε is right
    for text in ("Local model", "replace one unit", "By this survey alone", "binding limit"):
        assert text in page


def test_a_bundle_and_a_release_file(shell: Shell, tmp_path: Path) -> None:
    bundle = copied_bundle("rows", tmp_path)
    text = shell.good("report", bundle).out
    assert "Privacy report of the bundle" in text
    assert "UNSIGNED" in text
    key = json.loads((town() / "rows" / "bundle.json").read_text())["key"]
    checked = shell.good("verify", bundle, "--json", "--key", key).json
    assert (checked["kind"], checked["good"]) == ("bundle", True)
    assert "nothing differs" in shell.good("verify", bundle, "--key", key).out
    assert [shell("verify", bundle, *more).code for more in ((), ("--json",))] == [3, 3]  # anybody's
    folder = Path(shutil.copytree(town(), tmp_path / "town"))
    shutil.copytree(town() / "state", os.environ["LAPWING_STATE"], dirs_exist_ok=True)
    text = shell.good("report", folder / TOWN_CENSUS, "--json", "-").json["report"]
    assert (text["kind"], text["ledger"]["accounts"][0]["charges"]) == ("release", 2)
    (bundle / "privacy.md").write_text("nothing was lost")
    assert shell("verify", bundle).code == 1
    done = shell("report", bundle)
    assert (done.code, "not what was released" in done.error) == (2, True)


def test_a_consortium_and_a_pipeline(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shell.good("party", "example", "joint")
    for name in ("north", "south", "east"):
        shell.good("party", "init", name, "--folder", f"joint/{name}")
    cards = [f"joint/{name}/{name}.card" for name in ("north", "south", "east")]
    shell.good("party", "invite", "joint/joint.toml", *cards, "--policy", "joint/north/visits.toml")
    [file] = tmp_path.rglob("*.consortium")
    text = shell.good("report", file, "--registry", "joint.yaml", "--markdown", "joint.md").out
    assert "UNSIGNED, because a consortium has no ledger" in text
    assert "up to 1 of the 3 members" in Path("joint.md").read_text()
    assert "Federated" in Path("joint.yaml").read_text()
    shell.good("train", "example", "rides")
    shell.good("stream", "append", "rides/rides.toml", "--through", "2026-01")
    text = shell.good("report", "rides/durations.toml", "--markdown", "rides.md").out
    assert "signed with the ledger's key" in text
    assert "Privacy report of the pipeline durations" in Path("rides.md").read_text()


def test_verify_takes_ledgers_statements_and_proofs(shell: Shell, policy: Path) -> None:
    shell.good("ledger", "export", "lapwing.ledger", "statement")
    shell.good("ledger", "prove", "lapwing.ledger", FIRST_RECEIPT, "proof")
    for kind in ("lapwing.ledger", "statement", "proof"):
        found = shell.good("verify", kind, "--json").json
        assert found["kind"] == kind.removeprefix("lapwing.")
        assert found["good"]
    text = Path("statement").read_text()
    Path("statement").write_text(text.replace('"charge":5', '"charge":7', 1))
    assert shell("verify", "statement").code == 1


def test_bad_input_is_one_line_and_exit_code_2(shell: Shell, policy: Path) -> None:
    Path("there.html").write_text("mine")
    Path("notes.txt").write_text("no such thing")
    Path("odd.toml").write_text("[nothing]\nx = 1\n")
    Path("empty").mkdir()
    for arguments, why in (
        (("report", "nowhere.toml"), "there is no file nowhere.toml"),
        (("report", "notes.txt"), "is no policy, survey, consortium"),
        (("report", "odd.toml"), "has none of the tables"),
        (("report", "empty"), "is no bundle"),
        (("report", policy, "--html", "there.html"), "exists: nothing is written over"),
        (("report", policy, "--json", "no/where.json"), "folder of no/where.json does not exist"),
        (("report", policy, "--html", "a", "--markdown", "a"), "different files"),
        (("report", policy, "--date", "yesterday"), "is no day"),
        (("report", "nowhere.toml", "--template"), "there is no file"),
        (("verify", "nowhere"), "there is no file or folder nowhere"),
        (("verify", "notes.txt"), "is no ledger, statement"),
        (("verify", "empty"), "is no bundle"),
    ):
        done = shell(*arguments)
        assert (done.code, done.error.count("\n")) == (2, 1), done.error
        assert why in done.error
    assert Path("there.html").read_text() == "mine"
    assert not re.search("Traceback", done.error)
