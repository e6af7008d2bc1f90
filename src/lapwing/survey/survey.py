"""`Survey`: one object for the owner of a survey, from its file to its estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number
from lapwing.survey.designing import Design, design
from lapwing.survey.estimating.results import SurveyEstimates
from lapwing.survey.estimating.survey_estimates import estimate
from lapwing.survey.planning import SurveyPlan, plan
from lapwing.survey.questionnaire import Questionnaire
from lapwing.survey.survey_file import load


@dataclass(frozen=True)
class Survey:
    """A survey in the local model: its questionnaire, its design, its plan and its estimates.

    Each method calls the function of the same name in `lapwing.survey` with the survey's design.

    Args:
        questionnaire: The content of a survey file. `Survey.load` reads it.

    Example:
        >>> import numpy as np
        >>> survey = Survey.load("tea.toml")
        >>> survey.plan(5000).lines[0].what
        'any share'
        >>> survey.estimate(survey.simulate({"tea": np.repeat([0, 1], [30, 70])})).reports
        100
    """

    questionnaire: Questionnaire

    @classmethod
    def load(cls, path: str | Path) -> Survey:
        """Read and check a survey file.

        Args:
            path: The TOML file.

        Returns:
            The survey.

        Raises:
            BadFile: The file cannot be read, or something in it is wrong. All mistakes are listed.
        """
        return cls(load(path))

    @cached_property
    def design(self) -> Design:
        """The randomizer of each question. The same file always gives the same design."""
        return design(self.questionnaire)

    def public(self) -> dict[str, Any]:
        """Return everything that a respondent's device needs, as JSON. `Respondent.answer` takes it."""
        return self.design.public()

    def plan(self, n: int, *, margin: Number | None = None, confidence: Number = "0.95") -> SurveyPlan:
        """Predict the errors of n respondents, and the number of respondents that a margin needs.

        Args:
            n: The number of respondents.
            margin: A part of the range, such as 0.03 for 3 percentage points; None: not asked.
            confidence: The confidence of the errors, between 0 and 1.

        Returns:
            The plan.

        Raises:
            BadParameter: One of the numbers is out of its range.
        """
        return plan(self.design, n, margin=margin, confidence=confidence)

    def simulate(self, answers: Mapping[str, NDArray[np.int64]]) -> NDArray[np.uint8]:
        """Simulate the reports of respondents with these answers (numbers, one array per question)."""
        return self.design.simulate(answers)

    def estimate(
        self,
        reports: NDArray[np.uint8],
        *,
        confidence: Number = 0.95,
        by: str | None = None,
        cross: Sequence[tuple[str, str]] = (),
        liars: Number = 0,
    ) -> SurveyEstimates:
        """Estimate every question from the reports. `lapwing.survey.estimate` explains the arguments.

        Args:
            reports: The reports, of shape (n, design.report_size).
            confidence: The confidence of all intervals, between 0 and 1.
            by: The name of a question within whose answers all others are estimated, or None.
            cross: Pairs of question names to estimate together.
            liars: The fraction of respondents who may send anything.

        Returns:
            The estimates.

        Raises:
            BadParameter: A name, the confidence or the fraction is wrong.
            BadValue: There are no reports, or one of them is impossible.
        """
        return estimate(self.design, reports, confidence=confidence, by=by, cross=cross, liars=liars)
