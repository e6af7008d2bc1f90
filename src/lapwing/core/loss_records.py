"""Losses as plain records, so that a ledger can say what it charged for, and anybody can price it again."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction
from typing import Any, Final

from lapwing.core.exact import whole
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import (
    Approximate,
    BoundedRange,
    Concentrated,
    GaussianNoise,
    LaplaceNoise,
    Loss,
    ParallelComposition,
    Pure,
    Repeated,
    SampledGaussian,
    SequentialComposition,
)
from lapwing.errors import BadParameter

Description = dict[str, Any]
DEEPEST = 50  # what is deeper, whoever checks a ledger refuses to read
KINDS: Final[dict[str, type[Loss]]] = {
    kind.__name__: kind
    for kind in (
        Approximate, BoundedRange, Concentrated, FixedRun, GaussianNoise, LaplaceNoise, Pure, Repeated,
        SampledGaussian, SequentialComposition, ParallelComposition,
    )
}  # fmt: skip
# Field names by the name they have in a description: "loss" is the kind there.
_FIELDS = {
    kind: {{"loss": "each"}.get(field.name, field.name): field.name for field in fields(kind) if field.init}  # type: ignore[arg-type]
    for kind in KINDS.values()
}


def describe(loss: Loss, depth: int = 0) -> Description:
    """The loss as a JSON object: its kind, then its parameters; rationals as text."""
    if depth > DEEPEST:
        raise BadParameter("loss", f"is made of losses within losses, more than {DEEPEST} deep")
    kind = type(loss)
    if KINDS.get(kind.__name__) is not kind:
        raise BadParameter("loss", f"must be one of {', '.join(sorted(KINDS))}")
    record: Description = {"loss": kind.__name__}
    for written, name in _FIELDS[kind].items():
        record[written] = _plain(getattr(loss, name), depth)
    return record


def _plain(value: object, depth: int) -> Any:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(item, depth) for item in value]
    if isinstance(value, Loss):
        return describe(value, depth + 1)
    raise TypeError(f"a loss has no field of type {type(value).__name__}")


def from_description(record: Description) -> Loss:
    """The loss that was described. Raises `BadParameter` for anything else."""
    try:
        kind = KINDS[record["loss"]]
        if set(record) != {"loss", *_FIELDS[kind]}:
            raise BadParameter("loss", f"{kind.__name__} has other parameters")
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
    return whole(value, name) if isinstance(value, int) else Fraction(_text(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadParameter("loss", "is not the description of a loss")
    return value


def losses_within(loss: Loss) -> tuple[Loss, ...]:
    """The loss itself and all losses inside it."""
    inside: list[Loss] = [loss]
    for name in _FIELDS.get(type(loss), {}).values():
        value = getattr(loss, name)
        for item in value if isinstance(value, tuple) else (value,):
            for deeper in item if isinstance(item, tuple) else (item,):
                if isinstance(deeper, Loss):
                    inside.extend(losses_within(deeper))
    return tuple(inside)
