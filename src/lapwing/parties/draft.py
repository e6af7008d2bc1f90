"""The draft of a consortium: a file that a person writes (TOML), and the consortium that is made from it.

Reading reports all mistakes in the file together.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.config.section import Section
from lapwing.config.toml_text import FileMistakes, read_toml
from lapwing.core.losses import checked_delta, checked_epsilon
from lapwing.errors import BadFile, BadParameter
from lapwing.parties import requirements
from lapwing.parties.consortium import LONGEST_NAME, LONGEST_WAIT, Consortium
from lapwing.parties.identity import Card, checked_member_name
from lapwing.parties.joint_plan import JointPlan, largest_protected_coalition, plan_jointly
from lapwing.parties.requirements import LOCAL, MOST_MEMBERS, JointRequirements
from lapwing.parties.run_configuration import parse_address
from lapwing.parties.statistics import Statistic
from lapwing.sql.noising import NOISE_NAMES

HEAD_KEYS = (
    "name", "question", "epsilon", "delta", "coalition", "losses", "people_at", "adversary", "protocol",
    "noise", "quorum",
)  # fmt: skip
ROOT_KEYS = ("consortium", "regression", "quantile", "relay", "deadlines")
DEFAULT_LOBBY_SECONDS, DEFAULT_ROUND_SECONDS = 300, 60
NEEDED_KEYS = {
    "epsilon": "1.0: what a person may lose by the whole computation",
    "coalition": "1: how many members may be the adversary's",
    "losses": "0: how many more may fail before they have shared",
    "people_at": "1: at how many members the same person may have rows",
    "adversary": '"unbounded", or "bounded" if computing power is',
}


@dataclass(frozen=True, slots=True)
class ConsortiumDraft:
    """The content of a draft file. The number of members is not part of it: their cards come later."""

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
        """Return the requirements for a number of members. Raises `BadFile` if they do not fit it."""
        try:
            return JointRequirements(members=members, **self.terms)
        except BadParameter as error:
            self.mistakes.add(("consortium", error.name), error.why)
            self.mistakes.complain()
            raise


def read_draft(path: Path) -> ConsortiumDraft:
    """Read a draft file. Raises `BadFile` with all mistakes in it."""
    values, mistakes = read_toml(
        Path(path), what="consortium draft", example="joint.toml", draft="lapwing party example"
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
    relay, deadlines = _relay(root), _deadlines(root)
    mistakes.complain()
    assert name is not None
    assert statistic is not None
    return ConsortiumDraft(Path(path), name, statistic, terms, *relay, *deadlines, mistakes)


def _require(section: Section, examples: Mapping[str, str]) -> None:
    """Note a mistake for each missing key, with an example of its value."""
    for name, example in examples.items():
        if not section.has(name):
            section.missing(name, f"{name} = {example}")


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
    _require(head, NEEDED_KEYS)
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
        "adversary": head.one_of("adversary", requirements.ADVERSARIES),
        "protocol": head.one_of("protocol", requirements.PROTOCOL_CHOICES)
        if head.has("protocol")
        else "auto",
        "noise": noise,
        "quorum": head.one_of("quorum", requirements.QUORUMS) if head.has("quorum") else "",
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
    _require(section, {"table": '"visits"', "y": '"cost"', "x": '["age", "stay"]'})
    table, y, x = section.name("table"), section.name("y"), section.values.get("x")
    is_list = isinstance(x, list) and x and all(isinstance(one, str) for one in x)
    if section.has("x") and not is_list:
        section.wrong("x", 'must be a list of columns, such as ["age", "stay"]')
        return None
    return {"kind": "regression", "table": table, "y": y, "x": x}


def _quantile(root: Section) -> dict[str, Any] | None:
    section = root.below("quantile", ("table", "column", "fraction"))
    if section is None:
        return None
    _require(section, {"table": '"visits"', "column": '"stay"', "fraction": "0.5"})
    fraction = section.number("fraction")
    if fraction is not None and not 0 < fraction < 1:
        section.wrong("fraction", "must lie between 0 and 1: 0.5 is the median")
    table, column = section.name("table"), section.name("column")
    return {"kind": "quantile", "table": table, "column": column, "fraction": str(fraction)}


def _relay(root: Section) -> tuple[str, str]:
    section = root.below("relay", ("host", "address"))
    if section is None:
        if not root.has("relay"):
            root.missing("relay", '[relay] with host = "north" and address = "127.0.0.1:7443"')
        return "", ""
    _require(section, {"host": '"north": the member who relays', "address": '"127.0.0.1:7443"'})
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


# From a draft to a consortium


def plan_for(draft: ConsortiumDraft, members: int, statistic: Statistic) -> JointPlan:
    """Return the plan for a number of members. Raises `BadParameter` or `BadFile`."""
    needs = draft.requirements(members)
    if needs.protocol == LOCAL:
        _require_local(statistic)
    return plan_jointly(needs, statistic.blocks, statistic.stages)


def found_consortium(
    draft: ConsortiumDraft, cards: Sequence[Card], statistic: Statistic, *, relay: Card | None = None
) -> Consortium:
    """Return the consortium of these members, without signatures.

    `relay` is the card of a host that is not a member. Raises `BadParameter` or `BadFile`.
    """
    members = tuple(sorted(cards, key=lambda card: card.name))
    names = [card.name for card in members]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadParameter("cards", f"several are called {twice[0]}. Members need different names")
    host = relay if relay is not None else dict(zip(names, members, strict=True)).get(draft.host)
    if host is None or host.name != draft.host:
        raise BadFile(
            [
                f"{draft.path}: relay.host: {draft.host} is none of {', '.join(names)}. Name a member, or "
                "give the card of another host with --relay-card"
            ]
        )
    return Consortium(
        name=draft.name,
        cards=members,
        host=host,
        address=draft.address,
        statistic=statistic.spec,
        meaning=statistic.meaning,
        plan=plan_for(draft, len(members), statistic),
        lobby_seconds=draft.lobby_seconds,
        round_seconds=draft.round_seconds,
    )


def require_coalition(consortium: Consortium, least: int) -> None:
    """Raise `BadParameter` if a coalition of `least` members would learn more than ε.

    `least` is the demand of this member's policy.
    """
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
    """Raise `BadParameter` if the statistic has another meaning in this member's policy."""
    if statistic.meaning != consortium.meaning:
        raise BadParameter(
            "policy",
            "does not mean the same by this statistic as the consortium does. Columns' bounds, declared "
            "values and rows per unit must be alike at all members: compare the policies",
        )
    if statistic.blocks != consortium.plan.blocks or statistic.stages != consortium.plan.stages:
        raise BadParameter("consortium", "has other blocks than this statistic: it was changed or is old")
    if consortium.plan.is_local:  # the blocks alone do not show everything
        _require_local(statistic)


def _require_local(statistic: Statistic) -> None:
    if statistic.why_not_local:
        raise BadParameter("protocol", f"local model: {statistic.why_not_local}")
