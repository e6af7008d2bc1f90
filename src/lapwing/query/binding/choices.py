"""Declared values turned into others, and into texts: one by one, by us."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lapwing.query.binding.build import apply, as_text, null_of, with_kind
from lapwing.query.binding.effort import spend
from lapwing.query.language.expression import Constant, Expression, Op
from lapwing.query.language.kinds import Choice, Text

MOST_MAPPED = 2_000  # values of a Choice that are mapped one by one


def mapped(expression: Expression, values: Sequence[str | int | bool | None]) -> Expression:
    """A declared value turned into others, one by one: again a declared value."""
    kept = tuple(dict.fromkeys(value for value in values if value is not None))
    return recoded(expression, values, Choice(kept)) if kept else null_of(Choice(("",)))


def recoded(expression: Expression, values: Sequence[str | int | bool | None], kind: Choice) -> Expression:
    """The code among the kind's values of what each code is turned into."""
    spend(len(values))
    position = {value: code for code, value in enumerate(kind.values)}
    if isinstance(expression, Constant):
        new = None if expression.value is None else values[int(expression.value)]
        return Constant(None if new is None else position[new], kind)
    if list(values) == list(kind.values[: len(values)]):
        return with_kind(expression, kind)
    groups: dict[int, list[int]] = {}
    for code, value in enumerate(values):
        if value is not None:
            groups.setdefault(position[value], []).append(code)
    args: list[Expression] = []
    for new_code, codes in groups.items():
        args += [apply(Op.IN, expression, parameter=tuple(codes)), Constant(new_code, kind)]
    return apply(Op.CASE, *args, null_of(kind), kind=kind)


def mapped_text(
    expression: Expression, op: Op, function: Callable[[str], str], parameter: object = None
) -> Expression:
    """A function of a text: computed by us for declared values, by the engine for all others."""
    match expression.kind:
        case Choice(values) if len(values) <= MOST_MAPPED and all(isinstance(v, str) for v in values):
            spend(len(values))
            return mapped(expression, [function(str(value)) for value in values])
        case _:
            text = as_text(expression)
            if isinstance(text, Constant):
                return Constant(None if text.value is None else function(str(text.value)), Text())
            return apply(op, text, kind=Text(), parameter=parameter)
