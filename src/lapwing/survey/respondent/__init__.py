"""The respondent's side: coins, memo, account and sending, all on the respondent's own device."""

from lapwing.survey.respondent.client import Respondent

__all__ = ["Respondent"]
