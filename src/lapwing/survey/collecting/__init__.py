"""The owner's side: signing tokens, taking reports, keeping them without account, position or time."""

from __future__ import annotations

from lapwing.survey.collecting.desk import Desk
from lapwing.survey.collecting.places import known_key, open_store, signing_key
from lapwing.survey.collecting.store import Rule, Store, Verdict, read

__all__ = ["Desk", "Rule", "Store", "Verdict", "known_key", "open_store", "read", "signing_key"]
