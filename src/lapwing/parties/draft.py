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
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from lapwing.config import file_table
from lapwing.config.file_table import ColumnName, Epsilon, FileTable, Number, Text, fits, needed, one_of
from lapwing.config.toml_text import FileMistakes, read_toml
from lapwing.errors import BadFile, BadParameter
from lapwing.parties.consortium import LONGEST_NAME, LONGEST_WAIT, Consortium
from lapwing.parties.identity import Card, checked_member_name
from lapwing.parties.joint_plan import JointPlan, largest_protected_coalition, plan_jointly
from lapwing.parties.protocols.registry import LOCAL, PROTOCOL_CHOICES
from lapwing.parties.requirements import ADVERSARIES, MOST_MEMBERS, QUORUMS, JointRequirements
from lapwing.parties.run_configuration import parse_address
from lapwing.parties.statistics import Statistic
from lapwing.sql.pricing.noise_shares import NOISE_NAMES

DEFAULT_LOBBY_SECONDS, DEFAULT_ROUND_SECONDS = 300, 60


def _one_line(sql: object) -> object:
    return " ".join(sql.split()) if isinstance(sql, str) and "\n" in sql else sql


def _columns(names: object) -> list[str]:
    if isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return names
    raise ValueError('must be a list of columns, such as ["age", "stay"]')


def _address(address: str) -> str:
    parse_address(address)
    return address


FileName = Annotated[
    Text,
    fits(lambda name: len(name) <= LONGEST_NAME, f"must be at most {LONGEST_NAME} long"),
    fits(
        lambda name: not set(name) & set("/\\") and not name.startswith("."),
        "becomes the name of a file: without / and not beginning with a dot",
    ),
]


_INSIDE = fits(lambda fraction: 0 < fraction < 1, "must lie between 0 and 1: 0.5 is the median")


class ConsortiumTable(FileTable):
    """The table [consortium]."""

    name: FileName | None = needed('name = "joint-wards": how this consortium is called')
    question: Annotated[Text, BeforeValidator(_one_line)] | None = None  # it may have several lines
    epsilon: Epsilon | None = needed("epsilon = 1.0: what a person may lose by the whole computation")
    delta: file_table.Delta | None = Fraction(0)
    coalition: int | None = needed(
        "coalition = 1: how many members may be the adversary's", ge=0, le=MOST_MEMBERS
    )
    losses: int | None = needed(
        "losses = 0: how many more may fail before they have shared", ge=0, le=MOST_MEMBERS
    )
    people_at: int | None = needed(
        "people_at = 1: at how many members the same person may have rows", ge=1, le=MOST_MEMBERS
    )
    adversary: Annotated[Text, one_of(ADVERSARIES)] | None = needed(
        'adversary = "unbounded", or "bounded" if computing power is'
    )
    protocol: Annotated[Text, one_of(PROTOCOL_CHOICES)] | None = "auto"
    noise: Annotated[Text, one_of(NOISE_NAMES)] | None = "auto"
    quorum: Annotated[Text, one_of(QUORUMS)] | None = ""

    def terms(self) -> dict[str, Any]:
        """Return the fields of `JointRequirements` that this table gives."""
        if self.noise == "gaussian" and self.delta == 0:
            self.wrong(
                "noise", 'Gaussian noise needs delta, such as delta = 1e-6. Or write noise = "laplace"'
            )
        return {name: value for name, value in self if name not in ("name", "question")}


class RegressionTable(FileTable):
    """The table [regression]."""

    table: ColumnName | None = needed('table = "visits"')
    y: ColumnName | None = needed('y = "cost"')
    x: Annotated[list[str], PlainValidator(_columns)] | None = needed('x = ["age", "stay"]')


class QuantileTable(FileTable):
    """The table [quantile]."""

    table: ColumnName | None = needed('table = "visits"')
    column: ColumnName | None = needed('column = "stay"')
    fraction: Annotated[Number, _INSIDE, AfterValidator(str)] | None = needed("fraction = 0.5")


class RelayTable(FileTable):
    """The table [relay]."""

    host: Annotated[Text, AfterValidator(checked_member_name)] | None = needed(
        'host = "north": the member who relays'
    )
    address: Annotated[Text, AfterValidator(_address)] | None = needed('address = "127.0.0.1:7443"')


class DeadlinesTable(FileTable):
    """The table [deadlines], in seconds."""

    lobby_seconds: int | None = Field(default=DEFAULT_LOBBY_SECONDS, alias="lobby", ge=1, le=LONGEST_WAIT)
    round_seconds: int | None = Field(default=DEFAULT_ROUND_SECONDS, alias="round", ge=1, le=LONGEST_WAIT)


class DraftFile(FileTable):
    """A draft file as it is written."""

    consortium: ConsortiumTable = needed("[consortium] with name, question, epsilon and coalition")
    regression: RegressionTable | None = None
    quantile: QuantileTable | None = None
    relay: RelayTable = needed('[relay] with host = "north" and address = "127.0.0.1:7443"')
    deadlines: DeadlinesTable = Field(default_factory=DeadlinesTable.model_construct)

    def statistic(self) -> dict[str, Any]:
        """Return the statistic as plain values. Exactly one must be there."""
        said = [name for name in ("regression", "quantile") if self.has(name)]
        if len(said) + self.consortium.has("question") != 1:
            why = "say only one of" if said else "is missing. Write one of"
            self.consortium.wrong("question", f'{why} question = "SELECT …", [regression] and [quantile]')
        if self.regression is not None:
            return {"kind": "regression", **dict(self.regression)}
        if self.quantile is not None:
            return {"kind": "quantile", **dict(self.quantile)}
        return {"kind": "question", "sql": self.consortium.question}


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
    file = file_table.read_table(DraftFile, values, mistakes)
    statistic, terms = file.statistic(), file.consortium.terms()
    mistakes.complain()
    return ConsortiumDraft(
        path=Path(path),
        name=str(file.consortium.name),
        statistic=statistic,
        terms=terms,
        mistakes=mistakes,
        **dict(file.relay),
        **dict(file.deadlines),
    )


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
