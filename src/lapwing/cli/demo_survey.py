"""The demo's survey: one question, real coins, an estimate, and a device that refuses to say more."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lapwing.cli.show import console, heading, indented, points
from lapwing.errors import OverBudget
from lapwing.survey.estimating import estimate
from lapwing.survey.planning import Design, design
from lapwing.survey.questionnaire import load
from lapwing.survey.respondent import Respondent
from lapwing.survey.shuffled import shuffled_epsilon

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
    """Ten thousand invented people, of whom nobody says for sure what they did."""
    with TemporaryDirectory(prefix="lapwing-demo-") as folder:
        first, *more = (_survey(Path(folder), number) for number in range(9))
        with console() as out:
            heading(out, "A survey in the local model: each device throws two coins, nobody is trusted")
            indented(out, first.survey.questions[0].text)
            points(out, [*_estimated(first), *_device(Path(folder, "device"), [first, *more])])


def _survey(folder: Path, number: int) -> Design:
    file = folder / f"sleep{number}.toml"
    file.write_text(SURVEY.format(name=f"sleep {number}"))
    return design(load(file))


def _estimated(made: Design) -> list[str]:
    reports = made.simulate({"pill": np.repeat([0, 1], [TRULY_A, PEOPLE - TRULY_A])})
    found = estimate(made, reports).answers[0].tables[0].estimates[0]
    assert found.respondents is not None
    low, high = found.respondents.low, found.respondents.high
    return [
        f"{PEOPLE:,} reports (invented people, real coins): {np.sum(reports[:, 1] == 0):,} say A.",
        f"The estimate, 2 · mean - 1/2, is {found.value:.1%} ({low:.1%} to {high:.1%}); the truth is "
        f"{TRULY_A / PEOPLE:.0%}.",
        f"Each report costs its respondent ln 3 = {float(made.epsilon):.4f}; if a shuffler hides it among "
        f"{PEOPLE:,} honest ones, {float(shuffled_epsilon(made.epsilon, PEOPLE, '1e-6')):.4f} (δ 1e-6).",
    ]


def _device(folder: Path, surveys: list[Design]) -> list[str]:
    """One person answers survey after survey, until their device says no."""
    device = Respondent(folder)
    public = surveys[0].public()
    report = device.answer(public, {"pill": "A"})
    same = "the same bytes" if device.answer(public, {"pill": "B"}) == report else "OTHER BYTES"
    lines = [f"One device answers, and changes its mind: {same} are sent again, and nothing is charged."]
    for answered, made in enumerate(surveys):
        try:
            device.answer(made.public(), {"pill": "A"})
        except OverBudget:
            spent, lifetime = float(device.spent), float(device.lifetime)
            said = (
                f"After {answered} surveys it has sent ε {spent:.2f} of {lifetime:g}, and refuses any other"
            )
            return [*lines, f"{said}, for life."]
    raise AssertionError("the device must refuse one of them")
