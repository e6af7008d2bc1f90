"""Rules by which several pipelines share the budgets of a stream's blocks.

The curator writes the rule into a file beside the policy:

```toml
# rides.stream.toml, beside rides.toml
[sharing]
rule = "equal shares"
pipelines = ["durations", "tips"]
```

- first come: The first pipeline to ask spends first. This is also the rule without a file.
- equal shares: Each pipeline has an account of its own with the stream's blocks and 1/n of ε and δ. It
  is charged together with the stream's account. A share belongs to the pipeline's name, whoever trains it.
  n is the number of pipelines, or `shares` if that is given: with it the list can grow.
- unlock: With each append that brings files (for other sources: on each day of an append), one more of n
  parts of a block's budget may be spent.

The rules are about pipelines. A plain question (`lapwing ask`) is charged to the stream's account and to
the analyst's quota alone.

Claim    no rule can make the stream lose more than its own account allows.
Because  the stream's account is charged for everything under every rule; rules only refuse more.
Test     tests/learn/test_budget_sharing.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic import Field, PlainValidator

from lapwing.config.file_table import FileTable, Text, needed, one_of, read_table
from lapwing.config.toml_text import read_toml
from lapwing.config.values import checked_label
from lapwing.core.budget import Terms
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter
from lapwing.ledger import Ledger
from lapwing.ledger.entry import Costs
from lapwing.ledger.spending import Target
from lapwing.sql import policy_ledger
from lapwing.sql.policy import Policy

FIRST_COME, EQUAL_SHARES, UNLOCK = "first come", "equal shares", "unlock"
MOST_PIPELINES, MOST_VERSIONS = 1000, 100_000


@dataclass(frozen=True, slots=True)
class SharingRule:
    """A rule for sharing a stream's budgets.

    `pipelines` share equally, in `shares` parts (0: as many parts as pipelines). `versions` is the number
    of appends over which a block's budget unlocks.
    """

    rule: str = FIRST_COME
    pipelines: tuple[str, ...] = ()
    versions: int = 0
    shares: int = 0

    def __post_init__(self) -> None:
        if self.rule not in (FIRST_COME, EQUAL_SHARES, UNLOCK):
            raise BadParameter("rule", f'must be "{FIRST_COME}", "{EQUAL_SHARES}" or "{UNLOCK}"')
        if (self.rule == EQUAL_SHARES) is not bool(self.pipelines):
            raise BadParameter("pipelines", f'must be named if the rule is "{EQUAL_SHARES}", and only then')
        if len(set(self.pipelines)) < len(self.pipelines) or len(self.pipelines) > MOST_PIPELINES:
            raise BadParameter("pipelines", f"must be at most {MOST_PIPELINES:,} different names")
        if (self.rule == UNLOCK) is not bool(self.versions) or not 0 <= self.versions <= MOST_VERSIONS:
            raise BadParameter(
                "versions",
                f'must be 1 to {MOST_VERSIONS:,} if the rule is "{UNLOCK}", and is for that rule only',
            )
        if (self.shares and self.rule != EQUAL_SHARES) or not 0 <= self.shares <= MOST_PIPELINES:
            raise BadParameter(
                "shares", f'must be 1 to {MOST_PIPELINES:,}, and is for the rule "{EQUAL_SHARES}" only'
            )

    @property
    def parts(self) -> int:
        """The number of parts into which the budget is divided."""
        return self.shares or len(self.pipelines)

    def unlocked(self, appends: int, born: int) -> Fraction:
        """Return the part of a block's budget that may be spent after `appends` appends.

        `born` is the number of the append with which the block arrived.
        """
        if self.rule != UNLOCK:
            return Fraction(1)
        return Fraction(min(max(appends - born + 1, 1), self.versions), self.versions)

    def __str__(self) -> str:
        if self.rule == EQUAL_SHARES:
            parts = f", 1/{self.shares} each" if self.shares else ""
            return f"{self.rule} of {', '.join(self.pipelines)}{parts}"
        return f"{self.rule} over {self.versions} appends" if self.rule == UNLOCK else self.rule


def _labels(found: object) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found) or not found:
        raise ValueError('must be a list of names, such as ["durations", "tips"]')
    return tuple([checked_label(one, "pipelines") for one in found])


class SharingTable(FileTable):
    """The table [sharing] of a stream file."""

    rule: Annotated[Text, one_of((FIRST_COME, EQUAL_SHARES, UNLOCK))] | None = needed(
        f'rule = "{FIRST_COME}"'
    )
    pipelines: Annotated[tuple[str, ...], PlainValidator(_labels)] | None = ()
    versions: int | None = Field(0, ge=1, le=MOST_VERSIONS)
    shares: int | None = Field(0, ge=1, le=MOST_PIPELINES)


class StreamFile(FileTable):
    """A stream file as it is written."""

    sharing: SharingTable = needed(f'[sharing] with rule = "{FIRST_COME}"')


def load_sharing_rule(policy: Policy) -> SharingRule:
    """Read the curator's rule. Without a file, the rule is first come."""
    path = policy.path.with_name(f"{policy.path.stem}.stream.toml")
    if not path.exists():
        return SharingRule()
    values, mistakes = read_toml(path, what="stream file", example=path.name, draft="a text editor")
    table = read_table(StreamFile, values, mistakes).sharing
    if table.rule == EQUAL_SHARES:
        table.require(pipelines='pipelines = ["durations", "tips"]')
    if table.rule == UNLOCK:
        table.require(versions="versions = 10: over how many a block's budget unlocks")
    mistakes.complain()
    made = table.attempt(lambda: SharingRule(**dict(table)))
    mistakes.complain()
    assert made is not None
    return made


def share_label(policy: Policy, pipeline: str) -> str:
    """Return the label of the account of one pipeline's share."""
    return f"{policy_ledger.account_label(policy)}: share of {pipeline}"


@dataclass(frozen=True, slots=True)
class PipelineShare:
    """A pipeline's share: its account, and the blocks that are open in it.

    `taken` is the budget that a block would begin with as used, if it were opened now.
    """

    label: str
    terms: Terms
    blocks: frozenset[str]
    taken: Costs
    is_open: bool

    def targets(self, labels: Sequence[str]) -> tuple[Target, ...]:
        """Return the ledger target of those of the given blocks that are open; none if no block is."""
        there = tuple(label for label in labels if label in self.blocks)
        return (Target(self.label, there),) if there else ()


def find_share(ledger: Ledger, policy: Policy, sharing: SharingRule, pipeline: str) -> PipelineShare | None:
    """Return a pipeline's share as it is now; None if the rule has no shares. Nothing is written.

    Raises BadParameter if the pipeline has no share, or if the file changes a share that was opened.
    """
    if sharing.rule != EQUAL_SHARES:
        return None
    if pipeline not in sharing.pipelines:
        raise BadParameter("pipeline", "has no share of this stream: ask the curator for one")
    label, whole = share_label(policy, pipeline), ledger.account(policy_ledger.account_label(policy))
    epsilon, delta = whole.terms.epsilon / sharing.parts, whole.terms.delta / sharing.parts
    if label not in {account.label for account in ledger.accounts()}:
        terms = Terms.of(epsilon, delta)
        return PipelineShare(label, terms, frozenset(), terms.nothing_spent, is_open=False)
    own = ledger.account(label)
    if (own.terms.epsilon, own.terms.delta) != (epsilon, delta):
        were = whole.terms.epsilon / own.terms.epsilon
        raise BadParameter(
            "pipelines",
            f"a share was opened as ε {float(own.terms.epsilon):g} for life: it cannot change. Write "
            f"shares = {were} beside the list, and every pipeline on it has that much, newcomers too "
            "(the stream's own account bounds them all); or take the newcomers off the list",
        )
    blocks = frozenset(block.label for block in ledger.blocks(label)) - {policy_ledger.EVERYBODY_ELSE}
    everyone = ledger.look_at(own, (policy_ledger.EVERYBODY_ELSE,))[0][1].taken(own.terms)
    return PipelineShare(label, own.terms, blocks, everyone, is_open=True)


def open_share(ledger: Ledger, policy: Policy, sharing: SharingRule, pipeline: str) -> str | None:
    """Open a pipeline's share at its first use, and return the label of its account; None if there is none.

    It gets the blocks that the stream's account has now.
    """
    share = find_share(ledger, policy, sharing, pipeline)
    if share is None:
        return None
    whole = ledger.account(policy_ledger.account_label(policy))
    if not share.is_open:
        ledger.open_account(
            share.label,
            epsilon=share.terms.epsilon,
            delta=share.terms.delta,
            unit=whole.unit,
            relation=Relation.ADD_REMOVE,
            slices=whole.slices,
            rule=whole.rule,
        )
    known = {*share.blocks, policy_ledger.EVERYBODY_ELSE}
    if missing := [block.label for block in ledger.blocks(whole.label) if block.label not in known]:
        ledger.open_blocks(share.label, missing)
    return share.label
