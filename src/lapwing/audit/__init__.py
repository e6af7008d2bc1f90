"""The auditor: tries to break every claim of the layers below."""

from __future__ import annotations

from lapwing.audit.attack import Case, Verdict, attack
from lapwing.audit.registry import cases

__all__ = ["Case", "Verdict", "attack", "cases"]
