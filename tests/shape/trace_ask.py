"""Follow one question through `Dataset.ask`: the hops it takes, and the objects that are wrapped around it.

The *datum* is the question. It has these forms, each made from the one before: the text, the syntax tree,
the bound query, its mechanisms (`BudgetShares`), the plan, the charged read, the engine's statements, the
engine's table, the exact numbers, the noisy numbers, the rows of the answer, the answer.

The *walk*: when a form is made, note the stack of Lapwing's functions. (If a form is made several times,
take the last one before the next form: that one became the answer.) From one form to the next, the datum is
returned to the last function that both stacks share, and passed down from there, call by call.

A *hop* is a call in the walk from a function to a function of another module. A return is
none: the caller gets back what it asked for. The call of a callback is none: a function that is written
inside another one continues that one. Calls that only look at the datum are not in the walk: they give a
version, a check, a list of accounts or the stored copy, and no next form.

A *wrapper* is a class of Lapwing, of which an object is made on the way that has a form, or another
wrapper, in one of its attributes. Helpers inside one module count as well. The forms themselves
are the datum: the bound query, the statements, the numbers and the rows of the answer wrap nothing.

A *folder is left* when none of its functions is on the stack of the walk any more.

Run it: python tests/shape/trace_ask.py
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
from sqlglot import exp

import lapwing
from lapwing.examples.clinic import state_in
from lapwing.examples.visits import write_visits

SQL = "SELECT ward, COUNT(*) AS n, SUM(stay) AS days FROM visits WHERE stay > 1 GROUP BY ward"
FORMS = (
    "syntax tree", "BoundQuery", "BudgetShares", "SessionPlan", "ChargedRead", "Statements", "table",
    "ExactGrouping", "NoisyGrouping", "AnswerRows", "Answer",
)  # fmt: skip
FORMS_ITSELF = ("BoundQuery", "Statements", "ExactGrouping", "NoisyGrouping", "AnswerRows")
MOST_HOPS, MOST_WRAPPERS = 12, 10
_MAKING = ("__init__", "__post_init__", "__new__", "__replace__")


@dataclass(frozen=True)
class Made:
    """An object that was made, and the functions on the stack, outermost first."""

    form: str
    stack: tuple[FrameType, ...]


@dataclass
class Trace:
    """What one `ask` made."""

    forms: list[Made] = field(default_factory=list)
    wrappers: dict[str, str] = field(default_factory=dict)  # class and the attribute that holds the datum
    _held: dict[int, Any] = field(default_factory=dict)  # forms and wrappers, kept alive

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        """Look at a function that returns (for `sys.setprofile`)."""
        if event != "return" or not is_ours(frame):
            return
        name = frame.f_code.co_name
        if name == "__init__" and "self" in frame.f_locals:
            self._made(frame.f_locals["self"], frame)
        elif isinstance(value, exp.Query) and id(value) not in self._held:
            self._note("syntax tree", value, frame)
        elif isinstance(value, pa.Table) and module_of(frame).startswith("lapwing.engines."):
            self._note("table", value, frame)
        elif isinstance(value, bytes) and name.endswith("to_bytes"):
            self._held[id(value)] = value

    def _made(self, made: Any, frame: FrameType) -> None:
        kind = type(made)
        if not kind.__module__.startswith("lapwing."):
            return
        for attribute, one in attributes(made).items():
            if self._has_datum(one) and kind.__name__ not in FORMS_ITSELF:
                self.wrappers.setdefault(kind.__name__, f"{kind.__module__}: {attribute}")
                self._held[id(made)] = made
        if kind.__name__ in FORMS:
            self._note(kind.__name__, made, frame)

    def _has_datum(self, value: Any) -> bool:
        if isinstance(value, str):
            return "SELECT" in value and "stay" in value
        several = value if isinstance(value, tuple | list) else (value,)
        return any(id(one) in self._held for one in several)

    def _note(self, form: str, made: Any, frame: FrameType) -> None:
        self._held[id(made)] = made
        self.forms.append(Made(form, stack_of(frame)))

    def walk(self) -> list[Made]:
        """Return the forms that became the answer, in order."""
        found, before = list[Made](), len(self.forms)
        for form in reversed(FORMS):
            before = max(place for place in range(before) if self.forms[place].form == form)
            found.append(self.forms[before])
        return found[::-1]


def is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("lapwing.")


def attributes(one: Any) -> dict[str, Any]:
    """Return the attributes of an object that has a dictionary, or slots."""
    names = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
    return {**getattr(one, "__dict__", {}), **{name: getattr(one, name, None) for name in names}}


def stack_of(frame: FrameType | None) -> tuple[FrameType, ...]:
    found = list[FrameType]()
    while frame is not None:
        if is_ours(frame) and frame.f_code.co_name not in _MAKING:
            found.append(frame)
        frame = frame.f_back
    return tuple(found[::-1])


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals["__name__"])


def steps(walk: list[Made]) -> list[tuple[FrameType, FrameType, str]]:
    """Return the calls in the walk: from, to, and the form that is made next."""
    found, before = [], walk[0].stack[:1]
    for made in walk:
        shared = 0
        while shared < min(len(before), len(made.stack)) and before[shared] is made.stack[shared]:
            shared += 1
        path = made.stack[max(shared - 1, 0) :]
        found += [(a, b, made.form) for a, b in itertools.pairwise(path)]
        before = made.stack
    return found


def hops(walk: list[Made]) -> list[tuple[str, str, str]]:
    """Return the hops: from, to, and the form that is made next."""
    return [
        (called_name(a), called_name(b), form)
        for a, b, form in steps(walk)
        if module_of(a) != module_of(b) and "<locals>" not in b.f_code.co_qualname
    ]


def called_name(frame: FrameType) -> str:
    return f"{module_of(frame).removeprefix('lapwing.')}:{frame.f_code.co_qualname}"


def folder_of(frame: FrameType) -> str:
    return module_of(frame).rpartition(".")[0]


def folders_again(walk: list[Made]) -> list[str]:
    """Return the folders that the walk enters again after it left them."""
    left, again = set[str](), list[str]()
    before: set[str] = set()
    for made in walk:
        here = {folder_of(frame) for frame in made.stack}
        left |= before - here
        again += sorted(here & left)
        before = here
    return again


def trace_example(folder: Path) -> Trace:
    """Ask one question about the example, and follow it."""
    write_visits(folder)
    with lapwing.open(folder / "visits.toml", analyst="ann") as dataset:
        dataset.prepare()
        dataset.ask("SELECT COUNT(*) FROM visits", epsilon="0.01")  # all modules are loaded
        trace = Trace()
        sys.setprofile(trace)
        try:
            dataset.ask(SQL, epsilon="0.1")
        finally:
            sys.setprofile(None)
    return trace


def main() -> None:
    """Print the hops, the wrappers and the folders."""
    with tempfile.TemporaryDirectory() as folder, state_in(Path(folder) / "state"):
        trace = trace_example(Path(folder) / "example")
    walk = trace.walk()
    found = hops(walk)
    print(f"{len(found)} hops")
    for number, (come, gone, form) in enumerate(found, 1):
        print(f"{number:3} {come} -> {gone}   ({form})")
    print(f"{len(trace.wrappers)} wrappers")
    for name, why in trace.wrappers.items():
        print(f"    {name} ({why})")
    print("folders entered again:", ", ".join(folders_again(walk)) or "none")


if __name__ == "__main__":
    main()
