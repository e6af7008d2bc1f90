"""The wish of a consortium, from a file that a person writes (TOML). All mistakes are told together.

```toml
[consortium]
name = "joint-wards"
question = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"
epsilon = 1.0
coalition = 1
losses = 0
people_at = 1
adversary = "unbounded"
[relay]
host = "north"
address = "127.0.0.1:7443"
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.errors import BadParameter
from lapwing.parties.consortium.document import LONGEST_NAME
from lapwing.parties.identity import checked_name
from lapwing.parties.messages.table import where
from lapwing.parties.planning.wish import ADVERSARIES, CHOICES, MOST_MEMBERS, QUORUMS, JointWish
from lapwing.privacy.loss import checked_delta, checked_epsilon
from lapwing.query.answering.shares import NOISES
from lapwing.toml.section import Section
from lapwing.toml.text import Mistakes, read

HEAD = (
    "name", "question", "epsilon", "delta", "coalition", "losses", "people_at", "adversary", "protocol",
    "noise", "quorum",
)  # fmt: skip
ROOT = ("consortium", "regression", "quantile", "relay", "deadlines")
LOBBY, ROUND, LONGEST_WAIT = 300, 60, 86_400
NEEDED = (
    ("epsilon", "epsilon = 1.0: what a person may lose by the whole computation"),
    ("coalition", "coalition = 1: how many members may be the adversary's"),
    ("losses", "losses = 0: how many more may fail before they have shared"),
    ("people_at", "people_at = 1: at how many members the same person may have rows"),
    ("adversary", 'adversary = "unbounded", or "bounded" if computing power is'),
)


@dataclass(frozen=True, slots=True)
class WishFile:
    """What the file says. How many members there are is known when their cards are."""

    path: Path
    name: str
    statistic: Mapping[str, Any]
    terms: Mapping[str, Any]
    host: str
    address: str
    lobby_seconds: int
    round_seconds: int
    mistakes: Mistakes = field(repr=False, compare=False)

    def wish(self, members: int) -> JointWish:
        """The wish of so many members; what does not fit them is a mistake in the file."""
        try:
            return JointWish(members=members, **self.terms)
        except BadParameter as error:
            self.mistakes.add(("consortium", error.name), error.why)
            self.mistakes.complain()
            raise


def read_wish(path: Path) -> WishFile:
    """The wish in a file, checked; or `BadFile` with every mistake in it."""
    values, mistakes = read(
        Path(path), what="wish file", example="joint.toml", draft="lapwing party example"
    )
    root = Section.of(mistakes, (), values, ROOT)
    assert root is not None
    head = root.below("consortium", HEAD)
    if head is None:
        if not root.has("consortium"):
            root.missing("consortium", "[consortium] with name, question, epsilon and coalition")
        mistakes.complain()
        raise AssertionError("a mistake was noted")
    name = _name(head)
    statistic = _statistic(root, head)
    terms = _terms(head)
    host, address = _relay(root)
    lobby, in_round = _deadlines(root)
    mistakes.complain()
    assert name is not None
    assert statistic is not None
    return WishFile(Path(path), name, statistic, terms, host, address, lobby, in_round, mistakes)


def _name(head: Section) -> str | None:
    if not head.has("name"):
        head.missing("name", 'name = "joint-wards": how this consortium is called')
        return None
    name = head.text("name")
    if name is not None and len(name) > LONGEST_NAME:
        head.wrong("name", f"must be at most {LONGEST_NAME} long")
    if name is not None and (set(name) & set("/\\") or name.startswith(".")):
        head.wrong("name", "becomes the name of a file: without / and not beginning with a dot")
    return name


def _terms(head: Section) -> dict[str, Any]:
    for name, write in NEEDED:
        if not head.has(name):
            head.missing(name, write)
    epsilon, delta = head.number("epsilon"), head.number("delta")
    if epsilon is not None:
        head.checked("epsilon", checked_epsilon, epsilon)
    if delta is not None:
        head.checked("delta", checked_delta, delta)
    noise = head.one_of("noise", NOISES) if head.has("noise") else "auto"
    if noise == "gaussian" and not delta:
        head.wrong("noise", 'Gaussian noise needs delta, such as delta = 1e-6. Or write noise = "laplace"')
    return {
        "epsilon": epsilon,
        "delta": Fraction(0) if delta is None else delta,
        "coalition": head.whole("coalition", least=0, most=MOST_MEMBERS),
        "losses": head.whole("losses", least=0, most=MOST_MEMBERS),
        "people_at": head.whole("people_at", least=1, most=MOST_MEMBERS),
        "adversary": head.one_of("adversary", ADVERSARIES),
        "protocol": head.one_of("protocol", CHOICES) if head.has("protocol") else "auto",
        "noise": noise,
        "quorum": head.one_of("quorum", QUORUMS) if head.has("quorum") else "",
    }


def _statistic(root: Section, head: Section) -> dict[str, Any] | None:
    said = [name for name in ("regression", "quantile") if root.has(name)]
    if head.has("question"):
        said.append("question")
    if len(said) != 1:
        why = "say only one of" if said else "is missing. Write one of"
        head.wrong("question", f'{why} question = "SELECT …", [regression] and [quantile]')
        return None
    if said[0] == "question":
        return _question(head)
    return _regression(root) if said[0] == "regression" else _quantile(root)


def _question(head: Section) -> dict[str, Any] | None:
    found = head.values["question"]
    if isinstance(found, str) and "\n" in found:  # a long question may be written over several lines
        found = " ".join(found.split())
    sql = Section(head.mistakes, head.key, {"question": found}).text("question")
    return None if sql is None else {"kind": "question", "sql": sql}


def _regression(root: Section) -> dict[str, Any] | None:
    section = root.below("regression", ("table", "y", "x"))
    if section is None:
        return None
    for name, write in (("table", '"visits"'), ("y", '"cost"'), ("x", '["age", "stay"]')):
        if not section.has(name):
            section.missing(name, f"{name} = {write}")
    table, y, x = section.name("table"), section.name("y"), section.values.get("x")
    if section.has("x") and (
        not isinstance(x, list) or not x or not all(isinstance(one, str) for one in x)
    ):
        section.wrong("x", 'must be a list of columns, such as ["age", "stay"]')
        return None
    return {"kind": "regression", "table": table, "y": y, "x": x}


def _quantile(root: Section) -> dict[str, Any] | None:
    section = root.below("quantile", ("table", "column", "fraction"))
    if section is None:
        return None
    for name, write in (("table", '"visits"'), ("column", '"stay"'), ("fraction", "0.5")):
        if not section.has(name):
            section.missing(name, f"{name} = {write}")
    fraction = section.number("fraction")
    if fraction is not None and not 0 < fraction < 1:
        section.wrong("fraction", "must lie between 0 and 1: 0.5 is the median")
    return {
        "kind": "quantile",
        "table": section.name("table"),
        "column": section.name("column"),
        "fraction": str(fraction),
    }


def _relay(root: Section) -> tuple[str, str]:
    section = root.below("relay", ("host", "address"))
    if section is None:
        if not root.has("relay"):
            root.missing("relay", '[relay] with host = "north" and address = "127.0.0.1:7443"')
        return "", ""
    for name, write in (("host", '"north": the member who relays'), ("address", '"127.0.0.1:7443"')):
        if not section.has(name):
            section.missing(name, f"{name} = {write}")
    host, address = section.text("host"), section.text("address")
    if host is not None:
        section.checked("host", lambda value, _: checked_name(value), host)
    if address is not None:
        section.checked("address", lambda value, _: where(value), address)
    return host or "", address or ""


def _deadlines(root: Section) -> tuple[int, int]:
    section = root.below("deadlines", ("lobby", "round"))
    if section is None:
        return LOBBY, ROUND
    lobby, in_round = (section.whole(name, least=1, most=LONGEST_WAIT) for name in ("lobby", "round"))
    return lobby or LOBBY, in_round or ROUND
