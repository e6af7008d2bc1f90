"""The program that runs somebody else's function, in a process of its own.

It is started as a file, by `lapwing.audit.function_process`, with one folder as its argument. It reads
`request.json` there, limits its own memory and time, imports the module, calls the function, and writes
`reply.json` and one file for the outputs of each call. It imports nothing of Lapwing.

Outputs are written as plain arrays or as JSON: the reader never unpickles anything.
"""

from __future__ import annotations

import copy
import difflib
import importlib
import importlib.util
import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

_MOST_TEXT = 500
_LARGEST_FILE = 1 << 30


class UnknownForm(Exception):
    """An output that is no number, text, list or mapping."""


def main(folder: Path) -> None:
    """Answer the request in the folder."""
    request = json.loads((folder / "request.json").read_text())
    _limit(request["memory"], request["seconds"])
    sys.path.insert(0, os.getcwd())
    reply: dict[str, Any] = {}
    try:
        module = _imported(request["module"])
    except BaseException as error:  # noqa: BLE001, RUF100  a module may raise anything
        reply["failed"] = f"importing it raised {type(error).__name__}: {str(error)[:_MOST_TEXT]}"
        reply["is_missing"] = isinstance(error, ModuleNotFoundError | FileNotFoundError)
    else:
        reply = _answered(module, request, folder)
    (folder / "reply.part").write_text(json.dumps(reply))
    (folder / "reply.part").replace(folder / "reply.json")


def _limit(memory: int, seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _imported(name: str) -> Any:
    """Import a module by its name, or a file by its path."""
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = Path(name).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {name}")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _answered(module: Any, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    function = getattr(module, request["function"], None)
    if not callable(function):
        names = [
            name for name, value in vars(module).items() if callable(value) and not name.startswith("_")
        ]
        close = difflib.get_close_matches(request["function"], names, 3) or sorted(names)[:5]
        return {"no_function": True, "is_there": function is not None, "close": close}
    given = request["data"]
    pairs = getattr(module, "NEIGHBOURS", None) if given is None else given
    if pairs is None:
        return {"neighbours": None}
    try:
        pairs = [(one, other) for one, other in pairs]
    except (TypeError, ValueError):
        return {"bad_neighbours": True}
    reply: dict[str, Any] = {
        "neighbours": [[_short(one), _short(other)] for one, other in pairs],
        "calls": [],
    }
    for number, (place, side, size) in enumerate(request["calls"]):
        start = time.perf_counter()
        call = _called(function, pairs[place][side], size, folder / str(number))
        reply["calls"].append({**call, "seconds": time.perf_counter() - start})
    return reply


def _short(data: object) -> str:
    text = " ".join(repr(data).split())
    return text if len(text) <= 60 else f"{text[:40]} … {text[-15:]}"


def _called(function: Callable[[Any, int], Any], data: Any, size: int, path: Path) -> dict[str, Any]:
    """Call the function once, on a copy of the data, and write its outputs."""
    try:
        outputs = function(copy.deepcopy(data), size)
    except MemoryError:
        return {"form": "memory"}
    except BaseException as error:  # noqa: BLE001, RUF100  all that is raised is an outcome
        return {"form": "raised", "kind": type(error).__name__, "message": str(error)[:_MOST_TEXT]}
    if outputs is None:
        return {"form": "nothing"}
    try:
        if not isinstance(outputs, np.ndarray):
            outputs = list(outputs)
        if len(outputs) != size:
            return {"form": "length", "length": len(outputs)}
    except TypeError:
        return {"form": "class", "name": type(outputs).__name__}
    return _written(outputs, path)


def _written(outputs: Any, path: Path) -> dict[str, Any]:
    numbers = _as_array(outputs)
    if numbers is not None:
        np.save(path.with_suffix(".npy"), numbers, allow_pickle=False)
        return {"form": "array"}
    try:
        path.with_suffix(".json").write_text(json.dumps([_encoded(value) for value in outputs]))
    except UnknownForm as error:
        return {"form": "class", "name": str(error)}
    return {"form": "objects"}


def _as_array(outputs: Any) -> Any:
    """Return outputs as an array of numbers if nothing is lost by that; else None."""
    if not isinstance(outputs, np.ndarray):
        if {type(value) for value in outputs} not in ({int}, {float}, {bool}):
            return None
        try:
            outputs = np.array(outputs)
        except (ValueError, OverflowError):
            return None
    is_number = outputs.dtype.kind in "biu" or (outputs.dtype.kind == "f" and outputs.dtype.itemsize <= 8)
    return outputs if is_number and outputs.ndim and outputs.size else None


def _encoded(value: Any) -> Any:
    """Return an output as JSON, from which it can be read back exactly."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"int": str(value)}
    if isinstance(value, float):
        return {"float": "nan" if math.isnan(value) else value.hex()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return _encoded_collection(value)


def _encoded_collection(value: Any) -> Any:
    if isinstance(value, BaseException):
        return {"raised": [type(value).__name__, str(value)[:_MOST_TEXT]]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(key), _encoded(item)] for key, item in value.items()]}
    if isinstance(value, set | frozenset):
        return {"set": _all(value)}
    if isinstance(value, list | tuple):
        return {"list": _all(value)}
    raise UnknownForm(type(value).__name__)


def _all(values: Iterable[Any]) -> list[Any]:
    return [_encoded(value) for value in values]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
