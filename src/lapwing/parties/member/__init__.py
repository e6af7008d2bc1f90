"""A member's side of a run over the network."""

from lapwing.parties.member.playing import Contribute, Outcome, take_part

__all__ = ["Contribute", "Outcome", "take_part"]
