"""Somebody else's function runs in a process of its own, with limits."""

from __future__ import annotations

import numpy as np
import pytest

from lapwing.audit.function_process import AuditedFunction, FunctionEnded, decoded
from lapwing.audit.stages.inside import Raised
from lapwing.errors import BadParameter

SOURCE = """
import os, sys
NEIGHBOURS = [([], [1]), ({1, 2}, {1})]

def numbers(data, size):
    data = list(data) + [9]
    return [len(data) / 3] * size

def mixed(data, size):
    return [None, "ä", -0.0, float("nan"), 1 << 80, [1, (2,)], {"a": {3}}, b"x", ValueError("no")][:size]

def raises(data, size):
    raise KeyError("private")

def changes(data, size):
    data.append(5)
    return [len(data)] * size

def hangs(data, size):
    while True:
        pass

def eats(data, size):
    return [bytearray(1 << 33)] * size

def ends(data, size):
    os._exit(3)

def reads(data, size):
    return [sys.stdin.read(), os.environ.get("SECRET")][:size]

def bad_reply(data, size):
    open(os.path.join(sys.argv[1], "reply.json"), "w").write("{")
    os._exit(0)

def pipe(data, size):
    os.mkfifo(os.path.join(sys.argv[1], "reply.json"))
    os._exit(0)

def large(data, size):
    return [[0.5] * 200_000] * size

def address(data, size):
    raise ValueError(f"no value for {object()!r}")

def text(data, size):
    return "x" * size

def quits(data, size):
    sys.exit("bye")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("theirs") / "theirs.py"
    file.write_text(SOURCE)
    return str(file)


def test_numbers_and_data_of_the_module_come_back(path: str) -> None:
    function = AuditedFunction(path, "numbers", None)
    assert function.tried((1,)).neighbours == [("[]", "[1]"), ("{1, 2}", "{1}")]
    first, second = function.results([(0, 0, 3), (1, 1, 2)])
    assert isinstance(first, np.ndarray)
    assert first.tolist() == [1 / 3] * 3
    assert np.asarray(second).tolist() == [2 / 3] * 2


def test_all_forms_of_outputs_come_back_exactly(path: str) -> None:
    [outputs] = AuditedFunction(path, "mixed", None).results([(0, 0, 9)])
    assert repr(outputs) == repr(
        [
            None, "ä", -0.0, float("nan"), 1 << 80, [1, (2,)], {"a": frozenset({3})}, b"x",
            Raised("ValueError", "no"),
        ]
    )  # fmt: skip


def test_what_it_raises_is_an_outcome(path: str) -> None:
    [outcome] = AuditedFunction(path, "raises", None).results([(0, 0, 9)])
    assert outcome == Raised("KeyError", "'private'")
    [outcome] = AuditedFunction(path, "quits", None).results([(0, 0, 1)])
    assert outcome == Raised("SystemExit", "bye")


def test_each_call_gets_its_own_copy_of_the_data(path: str) -> None:
    results = AuditedFunction(path, "changes", None).results([(0, 0, 1)] * 3)
    assert [np.asarray(result).tolist() for result in results] == [[1]] * 3


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("hangs", "stopped after 1 seconds"),
        ("eats", "memory"),
        ("ends", "exit status 3"),
        ("bad_reply", "cannot be read"),
        ("pipe", "cannot be read"),
    ],
)
def test_a_process_that_ends_without_a_reply_says_why(path: str, name: str, why: str) -> None:
    with pytest.raises(FunctionEnded, match=why):
        AuditedFunction(path, name, None, seconds=1 if name == "hangs" else 60).results([(0, 0, 1)])


@pytest.mark.parametrize(("name", "why"), [("large", "short summary"), ("text", "returned a str")])
def test_outputs_of_a_wrong_form_are_refused(path: str, name: str, why: str) -> None:
    with pytest.raises(BadParameter, match=why):
        AuditedFunction(path, name, None).results([(0, 0, 2)])


def test_addresses_in_messages_are_left_out(path: str) -> None:
    [outcome] = AuditedFunction(path, "address", None).results([(0, 0, 1)])
    assert outcome == Raised("ValueError", "no value for <object object at 0x…>")


def test_standard_input_and_the_environment_are_empty(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    [outputs] = AuditedFunction(path, "reads", None).results([(0, 0, 2)])
    assert outputs == ["", None]


@pytest.mark.parametrize(
    ("module", "name", "why"),
    [
        ("no_such_module", "f", "no_such_module cannot be used"),
        ("/no/such/file.py", "f", "there is no file"),
        ("theirs", "number", "Functions there: numbers"),
        ("theirs", "NEIGHBOURS", "is no function"),
    ],
)
def test_unknown_names_have_a_hint(path: str, module: str, name: str, why: str) -> None:
    with pytest.raises(BadParameter, match=why):
        AuditedFunction(path if module == "theirs" else module, name, None).tried((1,))


@pytest.mark.parametrize("written", [{"code": "x"}, [1], 5, {"int": "1", "float": "1"}])
def test_other_json_is_not_read(written: object) -> None:
    with pytest.raises(FunctionEnded):
        decoded(written)
