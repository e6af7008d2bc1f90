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

A consortium from a wish, the members' cards, and what the statistic means in one member's policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.config.section import Section
from lapwing.config.toml_text import FileMistakes, read_toml
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.errors import BadFile, BadParameter
from lapwing.parties.consortium import LONGEST_NAME, Consortium
from lapwing.parties.identity import Card, checked_member_name
from lapwing.parties.joint_plan import JointPlan, largest_protected_coalition, plan_jointly
from lapwing.parties.requirements import (
    ADVERSARIES,
    MOST_MEMBERS,
    PROTOCOL_CHOICES,
    QUORUMS,
    JointRequirements,
)
from lapwing.parties.run_configuration import parse_address
from lapwing.parties.statistics import Statistic
from lapwing.sql.noising import NOISE_NAMES

HEAD_KEYS = (
    "name", "question", "epsilon", "delta", "coalition", "losses", "people_at", "adversary", "protocol",
    "noise", "quorum",
)  # fmt: skip
ROOT_KEYS = ("consortium", "regression", "quantile", "relay", "deadlines")
DEFAULT_LOBBY_SECONDS, DEFAULT_ROUND_SECONDS, LONGEST_WAIT = 300, 60, 86_400
NEEDED_KEYS = (
    ("epsilon", "epsilon = 1.0: what a person may lose by the whole computation"),
    ("coalition", "coalition = 1: how many members may be the adversary's"),
    ("losses", "losses = 0: how many more may fail before they have shared"),
    ("people_at", "people_at = 1: at how many members the same person may have rows"),
    ("adversary", 'adversary = "unbounded", or "bounded" if computing power is'),
)


@dataclass(frozen=True, slots=True)
class ConsortiumDraft:
    """What the file says. How many members there are is known when their cards are."""

    path: Path
    name: str
    statistic: Mapping[str, Any]
    terms: Mapping[str, Any]
    host: str
    address: str
    lobby_seconds: int
    round_seconds: int
    mistakes: FileMistakes = field(repr=False, compare=False)

    def requirements(self, members: int) -> JointRequirements:
        """The wish of so many members; what does not fit them is a mistake in the file."""
        try:
            return JointRequirements(members=members, **self.terms)
        except BadParameter as error:
            self.mistakes.add(("consortium", error.name), error.why)
            self.mistakes.complain()
            raise


def read_draft(path: Path) -> ConsortiumDraft:
    """The wish in a file, checked; or `BadFile` with every mistake in it."""
    values, mistakes = read_toml(
        Path(path), what="wish file", example="joint.toml", draft="lapwing party example"
    )
    root = Section.of(mistakes, (), values, ROOT_KEYS)
    assert root is not None
    head = root.below("consortium", HEAD_KEYS)
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
    return ConsortiumDraft(Path(path), name, statistic, terms, host, address, lobby, in_round, mistakes)


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
    for name, write in NEEDED_KEYS:
        if not head.has(name):
            head.missing(name, write)
    epsilon, delta = head.number("epsilon"), head.number("delta")
    if epsilon is not None:
        head.checked("epsilon", checked_epsilon, epsilon)
    if delta is not None:
        head.checked("delta", checked_delta, delta)
    noise = head.one_of("noise", NOISE_NAMES) if head.has("noise") else "auto"
    if noise == "gaussian" and not delta:
        head.wrong("noise", 'Gaussian noise needs delta, such as delta = 1e-6. Or write noise = "laplace"')
    return {
        "epsilon": epsilon,
        "delta": Fraction(0) if delta is None else delta,
        "coalition": head.whole("coalition", least=0, most=MOST_MEMBERS),
        "losses": head.whole("losses", least=0, most=MOST_MEMBERS),
        "people_at": head.whole("people_at", least=1, most=MOST_MEMBERS),
        "adversary": head.one_of("adversary", ADVERSARIES),
        "protocol": head.one_of("protocol", PROTOCOL_CHOICES) if head.has("protocol") else "auto",
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
        section.checked("host", lambda value, _: checked_member_name(value), host)
    if address is not None:
        section.checked("address", lambda value, _: parse_address(value), address)
    return host or "", address or ""


def _deadlines(root: Section) -> tuple[int, int]:
    section = root.below("deadlines", ("lobby", "round"))
    if section is None:
        return DEFAULT_LOBBY_SECONDS, DEFAULT_ROUND_SECONDS
    lobby, in_round = (section.whole(name, least=1, most=LONGEST_WAIT) for name in ("lobby", "round"))
    return lobby or DEFAULT_LOBBY_SECONDS, in_round or DEFAULT_ROUND_SECONDS


def plan_for(file: ConsortiumDraft, members: int, statistic: Statistic) -> JointPlan:
    """What so many members would run."""
    wish = file.requirements(members)
    if wish.protocol == "L" and statistic.why_not_local:
        raise BadParameter("protocol", f"local model: {statistic.why_not_local}")
    return plan_jointly(wish, statistic.blocks, statistic.stages)


def found_consortium(
    file: ConsortiumDraft, cards: Sequence[Card], statistic: Statistic, *, relay: Card | None = None
) -> Consortium:
    """The consortium that these members are invited to; nobody has signed it yet."""
    members = tuple(sorted(cards, key=lambda card: card.name))
    names = [card.name for card in members]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadParameter("cards", f"several are called {twice[0]}. Members need different names")
    known = {card.name: card for card in members}
    host = relay if relay is not None else known.get(file.host)
    if host is None or host.name != file.host:
        raise BadFile(
            [
                f"{file.path}: relay.host: {file.host} is none of {', '.join(names)}. Name a member, or "
                "give the card of another host with --relay-card"
            ]
        )
    return Consortium(
        name=file.name,
        cards=members,
        host=host,
        address=file.address,
        statistic=statistic.spec,
        meaning=statistic.meaning,
        plan=plan_for(file, len(members), statistic),
        lobby_seconds=file.lobby_seconds,
        round_seconds=file.round_seconds,
    )


def require_coalition(consortium: Consortium, least: int) -> None:
    """This member's policy may demand that so many others may belong together, and learn no more."""
    held, members = largest_protected_coalition(consortium.plan), len(consortium.cards)
    if held < least:
        possible = "" if least < members else f", which no consortium of {members} members can"
        raise BadParameter(
            "coalition",
            f"this plan protects against {held} member{'s' if held > 1 else ''} who belong together, and "
            f"your policy demands parties.least_coalition = {least}{possible}. Ask for a consortium with "
            f"coalition = {least}, or change what you demand",
        )


def require_same_meaning(consortium: Consortium, statistic: Statistic) -> None:
    """This member's policy must mean the same by the statistic as everybody's does."""
    if statistic.meaning != consortium.meaning:
        raise BadParameter(
            "policy",
            "does not mean the same by this statistic as the consortium does. Columns' bounds, declared "
            "values and rows per unit must be alike at all members: compare the policies",
        )
    if statistic.blocks != consortium.plan.blocks or statistic.stages != consortium.plan.stages:
        raise BadParameter("consortium", "has other blocks than this statistic: it was changed or is old")
    if consortium.plan.is_local and statistic.why_not_local:  # blocks alone do not tell everything
        raise BadParameter("protocol", f"local model: {statistic.why_not_local}")
