"""Surveys over the API: designs for people here, progress and estimates for owners."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np

from lapwing.server.people.person import Role
from lapwing.survey.collection import collect_file
from lapwing.survey.designing import design
from lapwing.survey.report_file import write_reports
from lapwing.survey.survey_file import load
from support.served import Door

TEA = """
[survey]
name = "tea"
title = "Tea"
epsilon = 2.0
stop_after = 1000
[[questions]]
name = "tea"
kind = "yes_no"
text = "Do you like tea?"
"""


def test_owners_follow_their_survey_and_others_see_designs(door: Door, tmp_path: Path) -> None:
    text = files("lapwing.examples").joinpath("data", "wellbeing.toml").read_text(encoding="utf-8")
    (tmp_path / "wellbeing.toml").write_text(text)
    (tmp_path / "tea.toml").write_text(TEA)
    (tmp_path / "broken.toml").write_text("[survey]\n")
    made = design(load(tmp_path / "tea.toml"))
    owner = door.client("otto", Role.SURVEY_OWNER, data="tea")
    assert owner.get("/v1/surveys/tea").json()["progress"] == {"reports": 0, "is_closed": False}
    assert owner.get("/v1/surveys/tea/estimates").status_code == 422  # there is no report yet
    write_reports(tmp_path / "reports", made, made.simulate({"tea": np.repeat([0, 1], [300, 100])}))
    collect_file(made, tmp_path / "reports", again=False, tell=lambda _: None, progress=lambda *_: None)
    [listed] = owner.get("/v1/surveys").json()["surveys"]
    assert (listed["id"], listed["epsilon"]) == ("tea", "2")
    assert listed["progress"] == {"reports": 400, "is_closed": False}
    assert owner.get("/v1/surveys/tea").json()["design"] == made.public()
    told = owner.get("/v1/surveys/tea/estimates?confidence=0.9").json()
    assert (told["reports"], told["answers"][0]["question"]) == (400, "tea")
    assert owner.get("/v1/surveys/tea/estimates?confidence=2").status_code == 422
    assert owner.get("/v1/surveys/tea/estimates?by=nothing").status_code == 422
    ann, eve = door.ann(), door.client("eve", Role.ANALYST, data="other")
    assert {survey["id"]: survey["progress"] for survey in ann.get("/v1/surveys").json()["surveys"]} == {
        "tea": None, "wellbeing": None
    }  # fmt: skip
    assert eve.get("/v1/surveys").json() == {"surveys": []}
    never = ann.get("/v1/surveys/never")
    for who in (ann, eve, door.client("sue", Role.STEWARD)):
        for address in ("/v1/surveys/tea", "/v1/surveys/tea/estimates"):
            assert (who.get(address).status_code, who.get(address).content) == (404, never.content)
    assert owner.get("/v1/surveys/wellbeing").content == never.content
    everywhere = door.client("olaf", Role.SURVEY_OWNER, data="*")
    assert everywhere.get("/v1/surveys/tea/estimates").status_code == 200
