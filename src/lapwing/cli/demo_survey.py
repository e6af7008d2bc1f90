"""The part of `lapwing demo` that is a survey: two coins on each device, and a device that refuses."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lapwing import OverBudget
from lapwing.cli.console import console, heading, indented, points
from lapwing.survey import Respondent, Survey, shuffled_epsilon

SURVEY = """
[survey]
name = "{name}"
title = "Sleep"
epsilon = 1.1
stop_after = 10000
[[questions]]
name = "pill"
text = "A: I took something to fall asleep last month. B: I did not. Which one holds?"
kind = "yes_no"
options = ["A", "B"]
no_answer = false
protocol = "two_coins"
"""
PEOPLE, TRULY_A = 10_000, 3_000


def tell_survey() -> None:
    """Show a survey of ten thousand invented people, none of whom says for sure what they did."""
    with TemporaryDirectory(prefix="lapwing-demo-") as folder:
        first, *more = (_survey(Path(folder), number) for number in range(9))
        with console() as out:
            heading(out, "A survey in the local model: each device throws two coins, nobody is trusted")
            indented(out, first.questionnaire.questions[0].text)
            points(out, [*_estimated(first), *_device(Path(folder, "device"), [first, *more])])


def _survey(folder: Path, number: int) -> Survey:
    file = folder / f"sleep{number}.toml"
    file.write_text(SURVEY.format(name=f"sleep {number}"))
    return Survey.load(file)


def _estimated(survey: Survey) -> list[str]:
    reports = survey.simulate({"pill": np.repeat([0, 1], [TRULY_A, PEOPLE - TRULY_A])})
    found = survey.estimate(reports).answers[0].tables[0].estimates[0]
    assert found.respondents is not None
    low, high, epsilon = found.respondents.low, found.respondents.high, survey.design.epsilon
    return [
        f"{PEOPLE:,} reports (invented people, real coins): {np.sum(reports[:, 1] == 0):,} say A.",
        f"The estimate, 2 · mean - 1/2, is {found.value:.1%} ({low:.1%} to {high:.1%}); the truth is "
        f"{TRULY_A / PEOPLE:.0%}.",
        f"Each report costs its respondent ln 3 = {float(epsilon):.4f}; if a shuffler hides it among "
        f"{PEOPLE:,} honest ones, {float(shuffled_epsilon(epsilon, PEOPLE, '1e-6')):.4f} (δ 1e-6).",
    ]


def _device(folder: Path, surveys: list[Survey]) -> list[str]:
    """Let one device answer survey after survey, until it refuses."""
    device = Respondent(folder)
    public = surveys[0].public()
    report = device.answer(public, {"pill": "A"})
    same = "the same bytes" if device.answer(public, {"pill": "B"}) == report else "OTHER BYTES"
    lines = [f"One device answers, and changes its mind: {same} are sent again, and nothing is charged."]
    for answered, survey in enumerate(surveys):
        try:
            device.answer(survey.public(), {"pill": "A"})
        except OverBudget:
            spent, lifetime = float(device.spent), float(device.lifetime)
            said = (
                f"After {answered} surveys it has sent ε {spent:.2f} of {lifetime:g}, and refuses any other"
            )
            return [*lines, f"{said}, for life."]
    raise AssertionError("the device must refuse one of them")
