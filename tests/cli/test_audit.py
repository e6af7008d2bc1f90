"""`lapwing audit`: exit codes, witnesses, hints, and nothing that is read or charged."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.audit.case import Family
from lapwing.audit.registry.mechanisms import mechanism_cases
from lapwing.core.gaussian import Gaussian
from support.shell import Shell


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)


@pytest.mark.slow
def test_a_mechanism_of_lapwing_by_its_claim_and_by_its_class(shell: Shell) -> None:
    done = shell.good("audit", "mechanism", "noisy max", "--quick", "--exact-only")
    assert "no violation found" in done.out
    assert "planted bugs caught." in done.out
    assert "No violation found. That is no proof" in done.out
    found = shell.good("audit", "mechanism", "NoisyMax", "--quick", "--exact-only", "--json").json
    assert found["passed"]
    assert [case["name"] for case in found["cases"]] == ["noisy max"]


def test_an_unknown_name_gets_a_hint(shell: Shell) -> None:
    done = shell("audit", "mechanism", "noisy mx")
    assert done.code == 2
    assert "did you mean noisy max" in done.error
    assert done.error.count("\n") == 1


@pytest.mark.parametrize("name", ["narrow_noise", pytest.param("float_noise", marks=[pytest.mark.slow])])
def test_a_broken_function_ends_with_1_and_a_witness(shell: Shell, name: str) -> None:
    shell.good("audit", "example")
    target = f"own_mechanisms.py:{name}"
    done = shell("audit", "mechanism", target, "--epsilon", "1", "--quick", "--html", "report.html")
    assert done.code == 1
    assert f"Violation: {target}" in done.out
    for line in ("inputs", "what shows it", "true ε", "to repeat it"):
        assert line in done.out
    assert "Violation found" in Path("report.html").read_text()


@pytest.mark.slow  # the guide does the same
def test_the_example_can_be_written_again_and_the_right_function_passes(shell: Shell) -> None:
    for _ in range(2):
        shell.good("audit", "example")
    done = shell("audit", "mechanism", "own_mechanisms.py:right", "--epsilon", "1", "--quick", "--json")
    assert done.code == 0
    [stage] = done.json["cases"][0]["stages"]
    assert stage["measured"] <= 1 < stage["could_show"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mechanism", "own_mechanisms.py:right"), "--epsilon"),
        (("mechanism", "own_mechanisms.py:right", "--epsilon", "0"), "epsilon"),
        (("mechanism", "own_mechanisms.py:right", "--epsilon", "1", "--delta", "1"), "delta"),
        (("mechanism", "own_mechanisms.py:rihgt", "--epsilon", "1"), "right"),
        (("mechanism", "no_such_file.py:right", "--epsilon", "1"), "no_such_file"),
        (("mechanism", "noisy max", "--epsilon", "1"), "epsilon"),
        (("mechanism", "noisy max", "--seconds", "0"), "seconds"),
        (("survey", "missing.toml"), "missing.toml"),
        (("party", "missing.toml"), "missing.toml"),
        (("train", "missing.toml"), "missing.toml"),
        (("publish", "missing.toml"), "missing.toml"),
        (("query", "missing.toml", "SELECT 1"), "missing.toml"),
    ],
)
def test_bad_input_is_told_in_one_line(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    shell.good("audit", "example")
    done = shell("audit", *arguments)
    assert done.code == 2
    assert said in done.error
    assert "Traceback" not in done.error


def test_a_report_is_never_written_over_another_file(shell: Shell) -> None:
    Path("there.html").write_text("mine")
    done = shell("audit", "mechanism", "noisy max", "--quick", "--exact-only", "--html", "there.html")
    assert done.code == 2
    assert Path("there.html").read_text() == "mine"


def test_a_question_a_survey_and_a_release_are_audited_without_a_charge(shell: Shell) -> None:
    shell.good("example")
    done = shell("audit", "query", "visits.toml", "SELECT COUNT(*) FROM visits", "--exact-only", "--quick")
    assert done.code == 2  # no ledger yet
    assert "prepare" in done.error
    shell("prepare", "visits.toml")
    before = {path: path.read_bytes() for path in Path(".").rglob("*") if path.is_file()}
    sql = "SELECT ward, COUNT(*) FROM visits GROUP BY ward"
    shell.good("audit", "query", "visits.toml", sql, "--exact-only", "--quick")
    assert {path: path.read_bytes() for path in Path(".").rglob("*") if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["survey: two coins", "protocol A: own noise"])
def test_a_claim_with_a_colon_in_its_name_is_no_function(shell: Shell, name: str) -> None:
    found = shell.good("audit", "mechanism", name, "--quick", "--exact-only", "--json").json
    assert [case["name"] for case in found["cases"]] == [name]


@pytest.mark.parametrize("seconds", ["nan", "inf", "-5", "0"])
def test_a_senseless_time_is_refused_first(shell: Shell, seconds: str) -> None:
    for name in ("noisy max", "nowhere.py:function"):
        done = shell("audit", "mechanism", name, "--seconds", seconds, "--epsilon", "1")
        assert done.code == 2
        assert "seconds" in done.error


def test_claims_are_listed_with_their_stages(shell: Shell) -> None:
    found = shell.good("audit", "list", "--json").json
    assert {"family": "mechanism", "name": "noisy max", "stages": ["exact", "sampled"]} in found


def test_an_audit_of_all_names_claims_without_a_case(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.audit.registry.cases", lambda: mechanism_cases()[:1])
    monkeypatch.setattr(
        "lapwing.audit.registry.coverage.exported_claims", lambda: [(Family.MECHANISM, Gaussian)]
    )
    monkeypatch.setattr("lapwing.audit.registry.coverage.walked_claims", lambda: [])
    done = shell("audit", "all", "--quick", "--exact-only")
    assert done.code == 1
    assert "Not passed: mechanism Gaussian has no case." in " ".join(done.out.split())
