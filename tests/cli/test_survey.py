"""`lapwing survey example`, `check`, `plan`, `simulate`, `estimate`: as a newcomer types them."""

from __future__ import annotations

import socket
from datetime import date
from pathlib import Path

import pytest

from lapwing.survey.designing import Design, design
from lapwing.survey.offered import fingerprint
from lapwing.survey.report_file import read_reports
from lapwing.survey.report_store import StoppingRule
from lapwing.survey.service import open_report_store
from lapwing.survey.survey_file import load
from lapwing.survey.web_app import open_survey
from support.shell import Shell

SMALL = """\
[survey]
name = "canteen"
epsilon = 2.0
stop_after = 5000
[[questions]]
name = "meal"
text = "Did you eat a warm meal today?"
kind = "yes_no"
no_answer = false
"""


@pytest.fixture
def example(shell: Shell, tmp_path: Path) -> Path:
    assert shell("survey", "example", tmp_path / "new").code == 0
    return tmp_path / "new" / "wellbeing.toml"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "canteen.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_the_example_can_be_checked_and_planned_at_once(shell: Shell, example: Path) -> None:
    done = shell.good("survey", "check", example)
    assert "is in order: 8 questions, each respondent is asked one at random." in done.out
    assert "A respondent loses at most ε 2." in done.out
    done = shell.good("survey", "plan", example, "--n", "5000", "--margin", "0.03")
    for text in (
        "pill",
        "drink",
        "no cross tables",
        "±",
        "± 0.03 is a part of the range",
        "ends after 200,000",
    ):
        assert text in done.out
    assert sorted(path.name for path in example.parent.iterdir()) == ["wellbeing.toml"]


@pytest.mark.parametrize(("epsilon", "likely"), [("2", None), ("4", "98.3 %"), ("8", "99.97 %")])
def test_the_owner_is_warned_where_the_coins_hide_little(
    shell: Shell, small: Path, epsilon: str, likely: str | None
) -> None:
    small.write_text(SMALL.replace("epsilon = 2.0", f"epsilon = {epsilon}"), encoding="utf-8")
    invited = shell("survey", "invite", small, "--count", "1", "--out", small.with_name("links"))
    assert invited.code == 0
    for words in (
        invited.error,
        shell.good("survey", "check", small).out,
        shell.good("survey", "plan", small, "--n", "100").out,
    ):
        assert ("hides little" in words) == (likely is not None)
        assert likely is None or f"up to {likely} likely" in _plain(words)
    warning = shell.good("survey", "check", small, "--json").json["warning"]
    assert (warning is None) == (likely is None)


@pytest.mark.parametrize(
    ("count", "label", "why"),
    [
        (
            20_001,
            "option {}",
            "options: there are 20,001 in all questions together, and a page shows at most",
        ),
        (8_000, "{:04}" + "\N{HERB}" * 190, "survey: its texts and options take 1"),
    ],
    ids=["options", "bytes"],
)
def test_a_survey_too_large_for_a_device_is_refused_before_anybody_is_charged(
    shell: Shell, small: Path, count: int, label: str, why: str
) -> None:
    words = small.with_name("words.txt")
    words.write_text("\n".join(label.format(number) for number in range(count)), encoding="utf-8")
    choice = 'kind = "choice"\noptions_file = "words.txt"'
    small.write_text(SMALL.replace('kind = "yes_no"', choice), encoding="utf-8")
    for command in (["check"], ["invite", "--count", "3"]):
        done = shell("survey", command[0], small, *command[1:])
        assert done.code == 2
        assert why in _plain(done.error)
        assert done.error.count("\n") == 1
    assert {path.name for path in small.parent.iterdir()} == {"canteen.toml", "words.txt"}
    shell.good("survey", "simulate", small, "--n", "50")  # what was stored before is still read
    reports = small.with_suffix(".simulated")
    assert shell.good("survey", "estimate", small, "--reports", reports, "--json").json["reports"] == 50


def test_the_shipped_example_promises_no_more_than_its_coins_keep(example: Path) -> None:
    made = design(load(example))
    assert made.warning is None
    assert "nobody" not in made.survey.text


def test_the_example_is_not_written_over_anything(shell: Shell, example: Path) -> None:
    assert "left as it was" in shell.good("survey", "example", example.parent).out
    example.write_text(example.read_text() + "# mine\n")
    done = shell("survey", "example", example.parent)
    assert done.code == 2
    assert "nothing is written over" in done.error


def test_every_mistake_is_told_with_its_line(shell: Shell, small: Path) -> None:
    small.write_text(SMALL.replace("yes_no", "yes").replace("2.0", "-1"), encoding="utf-8")
    for command in (
        ("check",),
        ("plan", "--n", "100"),
        ("simulate", "--n", "5", "--out", "x"),
        ("estimate",),
    ):
        done = shell("survey", command[0], small, *command[1:])
        assert done.code == 2
        assert f"{small}:3: survey.epsilon: must be above 0" in done.error
        assert f"{small}:8: questions.1.kind: must be " in done.error
        assert done.out == ""


def test_a_plan_can_be_read_by_programs(shell: Shell, small: Path) -> None:
    found = shell.good("survey", "plan", small, "--n", "5000", "--margin", "0.03", "--json").json
    assert found["epsilon"] == 2
    (question,) = found["questions"]
    assert question["protocol"] == "randomized response"
    assert 0.015 < question["error_for_the_population"] < 0.02
    assert 1800 < question["respondents_needed"] < 1900
    assert found["notes"][-1].startswith("The survey ends after 5,000 reports")


def test_a_check_can_be_read_by_programs(shell: Shell, small: Path) -> None:
    found = shell.good("survey", "check", small, "--json").json
    assert len(found["digest"]) == 64
    assert found["fingerprint"] is None, "there is no key before it is served"
    assert found["survey"]["questions"][0]["labels"] == ["yes", "no"]


def test_a_check_shows_what_the_server_shows(shell: Shell, small: Path) -> None:
    opened = open_survey(small)
    expected = fingerprint(opened.service.digest, opened.service.key.public)
    opened.service.close()
    told = shell.good("survey", "check", small).out
    assert f"The fingerprint of this survey and its key: {expected}\n" in told
    assert shell.good("survey", "check", small, "--json").json["fingerprint"] == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("invite", "--to", "gone.txt"), "gone.txt cannot be read"),
        (("invite", "--to", "."), "cannot be read"),
        (("invite", "--count", "1", "--out", "no/such/f"), "no/such/f cannot be written"),
        (("invite", "--count", "1", "--base", "http://example.org"), "https://"),
        (("serve", "--host", "\x7f odd", "--behind-tls-proxy", "--port", "0"), "cannot be served"),
        (("plan", "--n", "0"), "n"),
        (("plan", "--n", "100", "--margin", "2"), "margin"),
        (("plan", "--n", "100", "--confidence", "1"), "confidence"),
        (("simulate", "--n", "100", "--out", "/"), "nothing is written over"),
        (("simulate", "--n", "100", "--out", "gone/x"), "cannot be written"),
        (("estimate",), "there are none yet"),
        (("estimate", "--reports", "gone.bin"), "there is no file gone.bin"),
    ],
)
def test_what_is_asked_wrongly_is_answered_in_one_line(
    shell: Shell, small: Path, arguments: tuple[str, ...], expected: str
) -> None:
    done = shell("survey", arguments[0], small, *arguments[1:])
    assert done.code == 2
    assert expected in done.error
    assert "Traceback" not in done.error


def test_a_port_that_is_taken_is_bad_input(shell: Shell, small: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = shell("survey", "serve", small, "--port", str(taken.getsockname()[1]))
    assert done.code == 2
    assert "Address already in use" in done.error


def test_a_survey_that_is_not_there_is_told_so(shell: Shell, tmp_path: Path) -> None:
    done = shell("survey", "check", tmp_path / "gone.toml")
    assert done.code == 2
    assert "`lapwing survey example` drafts one" in done.error


TWO = (
    SMALL.replace("stop_after", 'ask = "all"\nstop_after')
    + """
[[questions]]
name = "hours"
text = "How many hours did you work?"
kind = "number"
low = 0
high = 12
step = 1
[[questions]]
name = "mood"
text = "How was your day?"
kind = "rating"
"""
)


def test_invented_reports_are_estimated_near_the_invented_truth(shell: Shell, small: Path) -> None:
    told = shell.good("survey", "simulate", small, "--n", "20000", "--json").json
    reports = small.with_suffix(".simulated")
    assert told["reports"] == str(reports)
    truth = told["questions"]["meal"]["truth"]["yes"]
    found = shell.good(
        "survey", "estimate", small, "--reports", reports, "--confidence", "0.999999", "--json"
    ).json
    assert found["reports"] == 20_000
    assert found["privacy"] == {"local_epsilon": 2, "shuffled": None}
    yes = found["answers"][0]["tables"][0]["estimates"][0]
    assert yes["label"] == "yes"
    assert yes["respondents"]["low"] <= truth <= yes["respondents"]["high"], "missed once in a million runs"
    assert yes["population"]["low"] < yes["respondents"]["low"]
    first = reports.read_bytes()
    shell.good("survey", "simulate", small, "--n", "5")  # a tutorial can be repeated
    assert reports.read_bytes() != first
    reports.write_text("something else")
    again = shell("survey", "simulate", small, "--n", "5")
    assert again.code == 2
    assert "nothing is written over" in again.error
    assert reports.read_text() == "something else"


def test_estimates_are_shown_with_intervals_groups_crosses_lies_and_a_picture(
    shell: Shell, small: Path, tmp_path: Path
) -> None:
    small.write_text(TWO, encoding="utf-8")
    reports, picture = tmp_path / "r.bin", tmp_path / "picture.svg"
    done = shell.good("survey", "simulate", small, "--n", "5000", "--out", reports)
    assert "known only because it is invented" in done.out
    done = shell.good(
        "survey", "estimate", small, "--reports", reports, "--by", "meal", "--cross", "meal,mood",
        "--liars", "0.01", "--plot", picture,
    )  # fmt: skip
    for text in (
        "5,000 reports, intervals with 0.95 confidence each", "meal (5,000 reports)", "hours, meal: yes",
        "meal and mood", "these respondents", "population", "At most ε 2", "1 % of respondents",
    ):  # fmt: skip
        assert text in done.out, text
    assert f"The picture is in {picture}" in done.out
    assert "<svg" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--by", "meel"), 'Did you mean "meal"?'),
        (("--cross", "meal"), "must be two questions with a comma"),
        (("--liars", "1"), "liars"),
        (("--confidence", "0"), "confidence"),
        (("--plot", "x.gif"), "must end in .svg"),
        (("--plot", "gone/x.svg"), "cannot be written"),
    ],
)
def test_what_cannot_be_estimated_is_told(
    shell: Shell, small: Path, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    shell.good("survey", "simulate", small, "--n", "100", "--out", tmp_path / "r.bin")
    done = shell("survey", "estimate", small, "--reports", tmp_path / "r.bin", *arguments)
    assert done.code == 2
    assert expected in done.error


def put(made: Design, reports: Path, *, has_credential: bool) -> None:
    """Into the survey's own store."""
    kept = open_report_store(made.survey.reports, digest=made.digest, report_size=made.report_size)
    rows = [(bytes([n % 256]) * 32, row.tobytes()) for n, row in enumerate(read_reports(reports, made))]
    kept.accept(rows, StoppingRule(5000), date(2026, 1, 1), has_credential=has_credential)
    kept.close()


def test_the_shuffled_epsilon_is_shown_only_with_a_shuffler_and_credentials(
    shell: Shell, small: Path
) -> None:
    small.write_text(SMALL.replace("5000", "5000\nshuffled = true\nhonest = 150"), encoding="utf-8")
    reports = small.with_suffix(".simulated")
    shell.good("survey", "simulate", small, "--n", "200")
    found = shell.good("survey", "estimate", small, "--reports", reports, "--json").json
    assert found["privacy"]["shuffled"] is None, "a file says nothing of credentials"
    put(design(load(small)), reports, has_credential=True)
    found = shell.good("survey", "estimate", small, "--json").json
    assert found["reports"] == 200
    shuffled = found["privacy"]["shuffled"]
    assert shuffled["honest_reports"] == 150
    assert shuffled["delta"] == 1e-6
    assert float(shuffled["epsilon"]) <= 2
    assert "honest" in shuffled["assumes"]
    assert "150 honest reports, shuffled. An anonymising shuffler" in _plain(
        shell.good("survey", "estimate", small).out
    )


def test_reports_without_a_credential_end_the_shuffled_epsilon(shell: Shell, small: Path) -> None:
    small.write_text(SMALL.replace("5000", "5000\nshuffled = true\nhonest = 150"), encoding="utf-8")
    shell.good("survey", "simulate", small, "--n", "200")
    put(design(load(small)), small.with_suffix(".simulated"), has_credential=False)
    assert shell.good("survey", "estimate", small, "--json").json["privacy"]["shuffled"] is None


def _plain(text: str) -> str:
    return " ".join(text.split())
