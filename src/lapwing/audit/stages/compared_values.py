"""Results as plain values that tell any two of them apart: by type, by bits and by order.

Claim    if `comparable` gives equal values for two results, then they have the same types, the same bits of
         each number, and the same order of their entries.
Because  each value becomes its type and its content. An object becomes the state that it holds; its own
         `==` is not asked. What has no known content is refused.
Test     tests/audit/stages/test_compared_values.py
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from lapwing.audit.stages.input_distances import NotComparable

_PLAIN = (type(None), bool, int, str, bytes)
Of = Callable[[Any], Any]  # makes a part of a value comparable


def comparable(value: Any) -> Any:
    """Return a result as tuples of plain values.

    Raises:
        NotComparable: If a part of it has no content that is known.
    """
    return _compared(value, ())


def _compared(value: Any, path: tuple[int, ...]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return kind.__name__, value
    if kind is float:
        return "float", struct.pack("<d", value)  # 0.0 is not -0.0, and NaN has bits
    if id(value) in path:
        return "again", len(path) - path.index(id(value))
    inner = (*path, id(value))

    def of(part: Any) -> Any:
        return _compared(part, inner)

    return f"{kind.__module__}.{kind.__qualname__}", _content(value, of), _state(value, of)


def _of_function(value: FunctionType, of: Of) -> Any:
    cells = [of(cell.cell_contents) for cell in value.__closure__ or ()]
    return value.__module__, value.__qualname__, cells, of(value.__defaults__)


def _of_array(value: Any, of: Of) -> Any:
    is_plain = value.dtype != object
    content = value.tobytes() if is_plain else [of(element) for element in value.reshape(-1).tolist()]
    return str(value.dtype), value.shape, content


def _of_name(value: Any, of: Of) -> Any:
    """Return the name of a class, module or function; of a method, also its object."""
    owner = getattr(value, "__self__", None)
    held = None if isinstance(value, type) or isinstance(owner, ModuleType) else of(owner)
    return getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__), held


# What a value is beside its attributes, by its class. The first that fits is taken.
_CONTENTS: tuple[tuple[Any, Callable[[Any, Of], Any]], ...] = (
    (Enum, lambda value, _: value.name),
    ((np.ndarray, np.generic), _of_array),
    (int, lambda value, _: int(value)),
    (float, lambda value, of: of(float(value))),
    ((str, bytes, bytearray), lambda value, _: value[:]),
    (
        (Fraction, Decimal, PurePath, date, datetime, time, timedelta, np.dtype, range),
        lambda value, _: str(value),
    ),
    ((dict, MappingProxyType), lambda value, of: [(of(key), of(item)) for key, item in value.items()]),
    ((list, tuple), lambda value, of: [of(item) for item in value]),
    ((set, frozenset), lambda value, of: sorted((of(item) for item in value), key=repr)),
    (partial, lambda value, of: (of(value.func), of(value.args), of(value.keywords))),
    (MethodType, lambda value, of: (of(value.__func__), of(value.__self__))),
    (FunctionType, _of_function),
    ((type, BuiltinFunctionType, ModuleType), _of_name),
)


def _content(value: Any, of: Of) -> Any:
    content_of = next((content for kinds, content in _CONTENTS if isinstance(value, kinds)), _of_torch)
    return content_of(value, of)


def _of_torch(value: Any, of: Of) -> Any:
    """Return the numbers of a tensor. torch is not imported: without it, there are no tensors."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(value, torch.Tensor):
        return str(value.dtype), of(value.detach().cpu().numpy())
    if isinstance(value, torch.Generator):
        return of(value.get_state().numpy())
    return str(value) if isinstance(value, torch.dtype | torch.device) else None


def _state(value: Any, of: Of) -> Any:
    """Return the attributes of a value. Raises NotComparable if neither these nor a content are known."""
    kind = type(value)
    if isinstance(value, FunctionType | type | ModuleType | Enum) or _is_of_torch(kind, "Tensor"):
        return None  # they have names, and the tensor its numbers
    named = [name for base in kind.__mro__ for name in _slots(base) if hasattr(value, name)]
    held = {name: getattr(value, name) for name in named} | getattr(value, "__dict__", {})
    is_known = any(isinstance(value, kinds) for kinds, _ in _CONTENTS)
    is_known |= kind.__module__.partition(".")[0] == "torch"
    is_written_here = hasattr(value, "__dict__") or any("__slots__" in vars(base) for base in kind.__mro__)
    if not (is_known or is_written_here):
        raise NotComparable(f"a {kind.__module__}.{kind.__qualname__} has no content that replay knows")
    return [(name, of(item)) for name, item in held.items()]


def _is_of_torch(kind: type, name: str) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(kind, getattr(torch, name))


def _slots(base: type) -> tuple[str, ...]:
    slots = vars(base).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    private = f"_{base.__name__.lstrip('_')}"
    return tuple(
        f"{private}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    )
