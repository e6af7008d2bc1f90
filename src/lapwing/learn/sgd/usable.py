"""Pages in which nobody can make the module fail: whoever does is left out.

Claim    whether a unit counts depends on the unit alone, and no page ends the work because of who is in it.
Because  a page that fails is done again in halves, at the same shape and with the same coins, down to the
         units that fail with all other places empty. Those become empty places, too. That a page fails
         just when one of its units does is assumed, as docs/arguments/dp_sgd.md says.
Test     tests/learn/sgd/test_usable.py
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lapwing.errors import BadValue
from lapwing.learn.sgd.coins import coins_of, put_back
from lapwing.learn.sgd.parts import Part
from lapwing.learn.sgd.tracing import Page

Finding = Callable[[Page], list[Part]]


def usable_parts(find: Finding, page: Page) -> list[Part]:
    """The page's parts, without the units for which `find` raises. What it says is never passed on."""
    device = page.x.device
    coins = coins_of(device)
    found = _tried(find, page)
    if found is not None:
        return found

    def again(units: Tensor) -> list[Part] | None:
        put_back(coins, device)  # other coins would change who fails, for reasons that are the others'
        return _tried(find, page.only(units))

    there = page.present.reshape(page.units, -1).any(1)
    fails = _failing(again, there)
    found = again(there & ~fails)
    if found is None:
        # Raised here, and not where it was caught: nothing of what the module said hangs on it.
        raise BadValue("the module does not work on a page of rows although it works on each of them")
    return found


def _tried(find: Finding, page: Page) -> list[Part] | None:
    try:
        return find(page)
    except (MemoryError, torch.OutOfMemoryError):
        is_full = True  # nobody's fault: leaving all of them out would be no help
    except Exception:  # a module may raise anything
        is_full = False
    if is_full:
        raise BadValue("a page of rows needs more memory than there is: use a smaller page")
    return None


def _failing(again: Callable[[Tensor], list[Part] | None], units: Tensor) -> Tensor:
    """Which of the units fail by themselves. Their page was found to."""
    places = units.nonzero().flatten()
    if len(places) == 0:
        return units
    if len(places) == 1:
        return units.clone()
    fails = torch.zeros_like(units)
    for part in places.tensor_split(2):
        half = torch.zeros_like(units)
        half[part] = True
        if again(half) is None:
            fails |= _failing(again, half)
    return fails


def repeated(values: Tensor, present: Tensor, units: int) -> Tensor:
    """The rows; where a unit has fewer than there are places for it, its first one again, with slope 0.

    So a unit's empty places can do nothing that its own row does not: a row of zeros divided by its length
    is no number, nor is 0 times its slope.
    """
    there = present.reshape(units, -1)
    places = torch.arange(len(present), device=present.device).reshape(units, -1)
    first = places.gather(1, there.to(torch.uint8).argmax(1, keepdim=True))
    return values[torch.where(there, places, first).flatten()]
