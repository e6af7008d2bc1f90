"""The program that runs somebody else's function, in a process of its own.

It is started as a file, by `lapwing.audit.function_process`, with one folder as its argument. It reads
`request.json` there, limits its own memory and time, imports the module, calls the function, and writes
`reply.json` and `outputs.bin`, with the outputs of all calls. It imports nothing of Lapwing.

Outputs are written as plain numbers or as JSON: the reader never unpickles anything. Numbers of an array
are written as float64: NumPy gives all outputs of a call one type, so that the type of one output would
depend on the others. Only of calls with one output the type is told.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import difflib
import importlib
import importlib.util
import json
import os
import re
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterable
from io import BufferedWriter
from pathlib import Path
from typing import Any

import numpy as np

_MOST_TEXT = 500
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")  # of an object: it is the process's, not the output's
_LARGEST_FILE = 1 << 30
_LARGEST_REQUEST = 1 << 29
_LARGEST_OUTPUT = 1 << 16  # bytes
_DEATH_SIGNAL, _KILL = 1, 9  # prctl(PR_SET_PDEATHSIG, SIGKILL)


class UnknownForm(Exception):
    """An output that is no number, text, list or mapping."""


class LargeOutput(Exception):
    """An output that has too many bytes."""


def main(folder: Path) -> None:
    """Answer the request in the folder."""
    request = json.loads((folder / "request.json").read_text())
    _end_with_the_parent()
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


def _end_with_the_parent() -> None:
    """Ask Linux to end this process when the one that started it ends."""
    with contextlib.suppress(OSError, AttributeError):  # another system
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, _KILL)


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
    pairs = getattr(module, "NEIGHBOURS", request["default"]) if given is None else given
    try:
        pairs = [(first, second) for first, second in pairs]
    except (TypeError, ValueError):
        return {"bad_neighbours": True}
    reply: dict[str, Any] = {
        "neighbours": [[_short(first), _short(second)] for first, second in pairs],
        "calls": [],
    }
    sides = [(place, side) for place in range(len(pairs)) for side in (0, 1)]
    # Without a list of calls, each side is tried.
    calls = request["calls"] or [[*side, size] for side in sides for size in request["sizes"]]
    with (folder / "outputs.bin").open("wb") as file:
        for place, side, size in calls:
            start = time.perf_counter()
            call = _called(function, pairs[place][side], size, file)
            reply["calls"].append({**call, "seconds": time.perf_counter() - start})
    return reply


def _short(data: object) -> str:
    text = " ".join(repr(data).split())
    return text if len(text) <= 60 else f"{text[:40]} … {text[-15:]}"


def _called(  # noqa: PLR0911  each refusal is a reply
    function: Callable[[Any, int], Any], data: Any, size: int, file: BufferedWriter
) -> dict[str, Any]:
    """Call the function once, on a copy of the data, and write its outputs."""
    try:
        outputs = function(_copied(data), size)
        if outputs is None:
            return {"form": "nothing"}
        if isinstance(outputs, str | bytes | dict) or not hasattr(outputs, "__iter__"):
            return {"form": "class", "name": type(outputs).__name__}
        if not isinstance(outputs, np.ndarray):
            outputs = list(outputs)
    except MemoryError:
        return {"form": "memory"}
    except BaseException as error:  # noqa: BLE001, RUF100  all that is raised is an outcome
        return {"form": "raised", "kind": type(error).__name__, "message": _message(error)}
    if outputs is None or (isinstance(outputs, np.ndarray) and not outputs.ndim):
        return {"form": "nothing"}
    if len(outputs) != size:
        return {"form": "length", "length": len(outputs)}
    kind = {"type": _type_of(outputs[0])} if size == 1 else {}
    try:
        return {**_written(outputs, size, file), **kind}
    except UnknownForm as error:
        return {"form": "class", "name": str(error)}
    except LargeOutput:
        return {"form": "large"}


def _copied(data: Any) -> Any:
    is_flat = type(data) is list and all(type(each) in (int, float, str) for each in data)
    return data[:] if is_flat else copy.deepcopy(data)


def _message(error: BaseException) -> str:
    return _ADDRESS.sub("0x…", str(error)[:_MOST_TEXT])


def _type_of(value: Any) -> str:
    """Return the type of an output, and of what is in it."""
    if isinstance(value, np.generic | np.ndarray):
        return f"{type(value).__name__} of {value.dtype}"
    if isinstance(value, list | tuple | set | frozenset | dict):
        items = value.values() if isinstance(value, dict) else value
        return f"{type(value).__name__} of {', '.join(sorted({_type_of(item) for item in items}))}"
    return type(value).__name__


def _written(outputs: Any, size: int, file: BufferedWriter) -> dict[str, Any]:
    numbers = _as_array(outputs)
    if numbers is None:
        form: dict[str, Any] = {"form": "objects"}
        content = json.dumps([_encoded(value) for value in outputs]).encode()
    else:
        form = {"form": "array", "dtype": numbers.dtype.name, "shape": numbers.shape}
        content = numbers.tobytes()
    if len(content) > max(size, 1) * _LARGEST_OUTPUT or file.tell() + len(content) > _LARGEST_REQUEST:
        raise LargeOutput
    at = file.tell()
    file.write(content)
    return {**form, "at": at, "bytes": len(content)}


def _as_array(outputs: Any) -> Any:
    """Return outputs as an array of numbers; None if they are no numbers.

    What becomes of one output does not depend on the others of its call.
    """
    if isinstance(outputs, np.ndarray):
        is_number = outputs.dtype.kind in "biuf" and outputs.size
        return np.ascontiguousarray(outputs, dtype=np.float64) if is_number else None
    kinds = {type(value) for value in outputs}
    if kinds == {float}:
        return np.array(outputs, dtype=np.float64)
    if kinds in ({int}, {bool}) and all(abs(value) <= 1 << 53 for value in outputs):
        return np.array(outputs, dtype=np.float64)
    return None


def _encoded(value: Any) -> Any:
    """Return an output as JSON, from which its value can be read back exactly."""
    if isinstance(value, np.generic) and value.dtype.kind == "f":
        value = float(value)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"int": hex(value)}
    if isinstance(value, float):
        return {"float": struct.pack("<d", value).hex()}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    return _encoded_collection(value)


def _encoded_collection(value: Any) -> Any:
    if isinstance(value, BaseException):
        return {"raised": [type(value).__name__, _message(value)]}
    if isinstance(value, dict):
        return {"dict": [[_encoded(key), _encoded(item)] for key, item in value.items()]}
    if isinstance(value, set | frozenset):
        return {"set": _all(value)}
    if isinstance(value, list):
        return {"list": _all(value)}
    if isinstance(value, tuple):
        return {"tuple": _all(value)}
    raise UnknownForm(type(value).__name__)


def _all(values: Iterable[Any]) -> list[Any]:
    return [_encoded(value) for value in values]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
