"""The auditor: it tries to show that the privacy claims of mechanisms and randomizers are false."""

from lapwing.audit.attack import Case, Verdict, attack
from lapwing.audit.registry import cases

__all__ = ["Case", "Verdict", "attack", "cases"]
