"""Exact random draws: the public name of `lapwing.core.noise`."""

from lapwing.core.noise import *  # noqa: F403
from lapwing.core.noise import __all__  # noqa: F401
