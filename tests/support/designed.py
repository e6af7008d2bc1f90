"""Surveys from a few lines of text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lapwing.survey.designing import Design, design
from lapwing.survey.survey_file import load

Designed = Callable[..., Design]


@pytest.fixture
def designed(tmp_path: Path) -> Designed:
    """The design of questions, each as (kind, keys). They are named q1, q2 …"""

    def made(*questions: tuple[str, str], epsilon: str = "2", ask: str = "auto") -> Design:
        text = (
            f'[survey]\nname = "test"\ntitle = "A test"\nepsilon = {epsilon}\nask = "{ask}"\n'
            "stop_after = 5000\nlifetime = 100\n"
        )
        for number, (kind, keys) in enumerate(questions, 1):
            text += f'[[questions]]\nname = "q{number}"\ntext = "What?"\nkind = "{kind}"\n{keys}\n'
        path = tmp_path / "test.toml"
        path.write_text(text, encoding="utf-8")
        return design(load(path))

    return made
