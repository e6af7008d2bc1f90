"""From a survey to a design: the coins of each question, what they cost, how far they stray."""

from lapwing.survey.planning.design import Design, Part, design
from lapwing.survey.planning.plan import Plan, plan

__all__ = ["Design", "Part", "Plan", "design", "plan"]
