"""Commands that need a ledger take a policy, survey, pipeline or release file as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.cli.named_ledger import named_ledger
from lapwing.errors import BadParameter
from lapwing.examples.rides import PIPELINES, RIDES_POLICY, write_rides
from lapwing.examples.town import TOWN_ROWS, write_town
from support.shell import Shell

COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def policy(shell: Shell, tmp_path: Path) -> Path:
    shell.good("example", tmp_path)
    return tmp_path / "visits.toml"


def test_budget_history_and_ledger_commands_take_a_policy(shell: Shell, policy: Path) -> None:
    shell.good("ask", policy, COUNT, "--epsilon", "0.5")
    ledger = policy.with_name("lapwing.ledger")
    for command in (["budget"], ["history"], ["ledger", "log"], ["ledger", "verify"]):
        for form in ([], ["--json"]):
            assert shell.good(*command, policy, *form).out == shell.good(*command, ledger, *form).out
    statement, proof = policy.with_name("statement"), policy.with_name("proof")
    assert "entries" in shell.good("ledger", "export", policy, statement).out
    assert "entry 5 is in the ledger" in shell.good("ledger", "prove", policy, "5", proof).out
    assert shell.good("ledger", "verify", proof, "--json").json["entry"]["number"] == 5
    more = ("--epsilon", "1", "--delta", "1e-9", "--curator", policy.with_name("lapwing.ledger.curator"))
    assert "ε 4" in shell.good("ledger", "raise", policy, "visits", *more).out


def test_keys_and_anchor_are_those_of_the_policy(
    shell: Shell, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = '\n[ledger]\nurl = "own/l.ledger"\nkeys = "own/k.keys"\nanchor = "own/a.anchor"\n'
    policy.write_text(policy.read_text() + place)
    own = policy.parent / "own"
    own.mkdir()
    assert str(own / "k.keys") in shell.good("ledger", "init", policy).out
    assert {"l.ledger", "k.keys", "a.anchor"} <= {path.name for path in own.iterdir()}
    monkeypatch.setenv("LAPWING_KEYS", str(own / "of-another-ledger.keys"))
    assert shell.good("ask", policy, COUNT, "--epsilon", "0.5").code == 0
    assert shell.good("budget", policy, "--json").json["accounts"][0]["account"] == "visits"
    assert shell.good("ledger", "verify", policy, "--json").json["good"]
    found = named_ledger(str(policy), own / "k.keys", str(own / "a.anchor"))
    assert (found.where, found.keys) == (str(own / "l.ledger"), own / "k.keys")
    for option in ("keys", "anchor"):
        done = shell("budget", policy, f"--{option}", own / "another", "--json")
        assert (done.code, done.json["error"]["name"]) == (2, option)
        assert "names its own" in done.error
        assert f"Leave out --{option}" in done.error


def test_variables_of_another_ledger_do_not_count_for_a_policy(
    shell: Shell, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.good("ask", policy, COUNT, "--epsilon", "0.5")
    monkeypatch.setenv("LAPWING_KEYS", str(policy.with_name("of-another-ledger.keys")))
    monkeypatch.setenv("LAPWING_ANCHOR", str(policy.with_name("of-another-ledger.anchor")))
    for command in (["budget"], ["history"], ["ledger", "verify"], ["verify"]):
        shell.good(*command, policy)
    moved = policy.with_name("moved.keys")
    policy.with_name("lapwing.ledger.keys").rename(moved)
    assert shell("budget", policy).code != 0
    shell.good("budget", policy, "--keys", moved)  # the policy names no keys, so the option counts


def test_verify_takes_a_policy_and_a_path_from_another_folder(
    shell: Shell, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no ledger at" in shell("verify", policy).error
    shell.good("ask", policy, COUNT, "--epsilon", "0.5")
    (policy.parent / "elsewhere").mkdir()
    monkeypatch.chdir(policy.parent / "elsewhere")
    assert shell.good("verify", "../visits.toml", "--json").json["good"]
    shell.good("budget", "../visits.toml")


def test_of_two_data_sets_in_a_ledger_only_the_own_one_is_shown(shell: Shell, policy: Path) -> None:
    text = policy.read_text()
    other = policy.with_name("other.toml")
    kept = text[: text.index("[tables.patients]")].replace('name = "visits"', 'name = "others"')
    other.write_text(kept.replace('unit = "patient_id"', 'unit = "diagnosis"').replace(
        '[tables.visits.columns.diagnosis]   # not declared value by value: keys are selected privately\n'
        'type = "text"\n', ""))  # fmt: skip
    shell.good("ask", policy, COUNT, "--epsilon", "0.5")
    missing = shell("budget", other)
    assert missing.code == 2
    assert 'has no account "others" yet' in missing.error
    shell.good("ask", other, COUNT, "--epsilon", "0.1")
    found = shell.good("budget", other, "--json").json
    assert [one["account"] for one in found["accounts"]] == ["others"]
    assert found["accounts_not_shown"] == ["visits"]
    shown = shell.good("budget", other).out
    ledger = policy.with_name("lapwing.ledger")
    assert f"Only the account of {other} is shown. For all: lapwing budget {ledger}" in shown
    assert "Losses add" in shown
    assert len(shell.good("budget", ledger, "--json").json["accounts"]) == 2
    assert shell.good("budget", other, "--account", "visits", "--json").json["accounts_not_shown"] == [
        "others"
    ]
    assert [one["accounts"] for one in shell.good("history", other, "--json").json] == [["others"]]


def test_a_policy_without_a_ledger_says_when_there_will_be_one(shell: Shell, policy: Path) -> None:
    for command in (["budget"], ["history"], ["ledger", "log"], ["ledger", "verify"]):
        done = shell(*command, policy)
        assert (done.code, done.out) == (2, "")
        assert "there is no ledger at" in done.error
        assert f"yet: the first charge of {policy} makes it" in done.error
    assert not list(policy.parent.glob("*.ledger*"))


def test_surveys_pipelines_and_releases_name_their_ledgers(shell: Shell, tmp_path: Path) -> None:
    shell.good("survey", "example", tmp_path / "survey")
    survey = named_ledger(str(tmp_path / "survey" / "wellbeing.toml"), None, None)
    assert (Path(survey.where).parent, survey.account) == (tmp_path / "survey", "respondents")
    write_rides(tmp_path / "rides")
    stream = named_ledger(str(tmp_path / "rides" / PIPELINES[0]), None, None)
    direct = named_ledger(str(tmp_path / "rides" / RIDES_POLICY), None, None)
    assert (stream.where, stream.account) == (direct.where, direct.account)
    write_town(tmp_path / "town")
    release = named_ledger(str(tmp_path / "town" / TOWN_ROWS), None, None)
    assert Path(release.where).parent == tmp_path / "town"
    assert release.account == "town"


def test_a_survey_has_its_budget_shown(shell: Shell, tmp_path: Path) -> None:
    shell.good("survey", "example", tmp_path)
    survey = tmp_path / "wellbeing.toml"
    shell("survey", "invite", survey, "--count", "2", "--out", tmp_path / "links")
    found = shell.good("budget", survey, "--json").json
    assert [one["account"] for one in found["accounts"]] == ["respondents"]
    assert shell.good("ledger", "verify", survey, "--json").json["good"]


def test_a_ledger_may_be_called_like_a_policy(shell: Shell, tmp_path: Path) -> None:
    ledger = tmp_path / "odd.ledger"
    shell.good("ledger", "init", ledger)
    odd = tmp_path / "odd.toml"
    ledger.rename(odd)
    assert named_ledger(str(odd), None, None).file == ""


def test_a_statement_may_be_called_like_a_policy(shell: Shell, tmp_path: Path) -> None:
    shell.good("ledger", "init", tmp_path / "a.ledger")
    shell.good("ledger", "export", tmp_path / "a.ledger", tmp_path / "statement.toml")
    assert shell.good("ledger", "verify", tmp_path / "statement.toml", "--json").json["kind"] == "statement"


def test_a_file_that_is_none_of_them_is_told_with_its_mistakes(shell: Shell, tmp_path: Path) -> None:
    odd = tmp_path / "odd.toml"
    for text in ("", "[dataset\n", '[dataset]\nname = "x"\n', "\udcff"):
        odd.write_bytes(text.encode("utf-8", "surrogateescape"))
        for command in (["budget"], ["ledger", "verify"], ["ledger", "init"]):
            done = shell(*command, odd)
            assert (done.code, done.out) == (2, "")
            assert "odd.toml" in done.error
    with pytest.raises(BadParameter, match="there is no"):
        named_ledger(str(tmp_path / "none.toml"), None, None)
