"""The relay: carries posts between members, keeps the time, and learns nothing that it may not."""

from lapwing.parties.relay.conducting import Relay
from lapwing.parties.relay.serving import serve, serving

__all__ = ["Relay", "serve", "serving"]
