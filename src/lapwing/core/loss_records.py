"""Losses as plain records: a ledger stores the loss of each charge, so that anybody can price it again."""

from __future__ import annotations

import re
from dataclasses import fields
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from lapwing.core import losses
from lapwing.core.exact import whole
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import Loss
from lapwing.errors import BadParameter

Description = dict[str, Any]
_MOST_BITS = 14_000  # of a number: about 4,200 digits. Python writes no more than 4,300
_EXPONENT = re.compile(r"e[+-]?([0-9_]+)", re.IGNORECASE)
DEEPEST = 50  # the checkers of a ledger refuse to read records that are nested deeper
# Ledgers keep these words for ever. "Sum" and "Worst" are older names of their classes.
KINDS: Final[dict[str, type[Loss]]] = {
    "Approximate": losses.Approximate,
    "BoundedRange": losses.BoundedRange,
    "Concentrated": losses.Concentrated,
    "FixedRun": FixedRun,
    "GaussianNoise": losses.GaussianNoise,
    "LaplaceNoise": losses.LaplaceNoise,
    "Pure": losses.Pure,
    "Repeated": losses.Repeated,
    "SampledGaussian": losses.SampledGaussian,
    "Sum": losses.SequentialComposition,
    "Worst": losses.ParallelComposition,
}
_WORDS = {kind: word for word, kind in KINDS.items()}
# Field names by the name they have in a description: "loss" is the kind there.
_FIELDS = {
    kind: {{"loss": "each"}.get(field.name, field.name): field.name for field in fields(kind) if field.init}  # type: ignore[arg-type]
    for kind in KINDS.values()
}


def describe(loss: Loss, depth: int = 0) -> Description:
    """Return the loss as a JSON object: its kind, then its parameters; rationals as text.

    Raises BadParameter if it is not one of `KINDS`, or contains losses within losses deeper than `DEEPEST`.
    """
    if depth > DEEPEST:
        raise BadParameter("loss", f"is made of losses within losses, more than {DEEPEST} deep")
    word = _WORDS.get(type(loss))
    if word is None:
        raise BadParameter("loss", f"must be one of {', '.join(sorted(KINDS))}")
    record: Description = {"loss": word}
    for written, name in _FIELDS[type(loss)].items():
        record[written] = _plain(getattr(loss, name), depth)
    return record


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, int | Fraction) and _is_long(value):
        raise BadParameter("loss", "has a number with too many digits")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item, depth) for item in value]
    return describe(value, depth + 1)


def _is_long(value: int | Fraction) -> bool:
    """Return whether a number is so long that Python refuses to write it, or to read it again."""
    return max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS


def from_description(record: Description) -> Loss:
    """Return the loss that was described. Raises BadParameter for anything else."""
    try:
        kind = KINDS[record["loss"]]
        if set(record) != {"loss", *_FIELDS[kind]}:
            raise BadParameter("loss", f"{record['loss']} has other parameters")
        return kind(**{name: _rich(written, record[written]) for written, name in _FIELDS[kind].items()})
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        if isinstance(error, BadParameter):
            raise
        raise BadParameter("loss", "is not the description of a loss") from None


def _rich(name: str, value: Any) -> Any:
    match name:
        case "each" | "noise":
            return from_description(value)
        case "parts":
            return tuple([from_description(part) for part in value])
        case "steps":
            return tuple([(from_description(step), whole(count, "count")) for step, count in value])
    if isinstance(value, int):
        return whole(value, name)
    if not isinstance(value, str):
        raise BadParameter("loss", "is not the description of a loss")
    if (exponent := _EXPONENT.search(value)) and int(exponent[1]) > _MOST_BITS:  # of a billion digits
        raise BadParameter("loss", "has a number with too many digits")
    return Fraction(value)


def losses_within(loss: Loss) -> tuple[Loss, ...]:
    """Return the loss itself and all losses inside it."""
    inside: list[Loss] = [loss]
    for name in _FIELDS.get(type(loss), {}).values():
        value = getattr(loss, name)
        for item in value if isinstance(value, tuple) else (value,):
            for deeper in item if isinstance(item, tuple) else (item,):
                if isinstance(deeper, Loss):
                    inside.extend(losses_within(deeper))
    return tuple(inside)


@lru_cache(maxsize=4096)
def only_add_remove(loss: Loss) -> bool:
    """Return whether the loss holds only if neighbours add or remove a unit."""
    kinds = losses.ParallelComposition | losses.SampledGaussian
    return any(isinstance(part, kinds) for part in losses_within(loss))
