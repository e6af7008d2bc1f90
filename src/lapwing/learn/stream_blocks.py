"""The budget of a stream's blocks: what is left in each, which blocks can pay, and how pipelines share it.

Claim    a block that is chosen can pay in every account that would be charged, unless somebody else spends
         there first: then the charge is refused, and nothing is lost.
Because  the budget used and the cost are the numbers that the ledger's transaction compares. A wrong choice
         is only refused, because choosing spends nothing.
Test     tests/learn/test_stream.py::test_who_is_chosen_can_pay_and_who_is_not_cannot

Several pipelines share the budgets by a rule. The curator writes it into a file beside the policy:

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
Test     tests/learn/test_stream_blocks_sharing.py
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainValidator

from lapwing.config.file_table import FileTable, Text, needed, one_of, read_table
from lapwing.config.toml_text import read_toml
from lapwing.config.values import checked_label
from lapwing.core.budget import DELTA, DELTA0, EPSILON, FIRST_ORDER, Terms
from lapwing.core.losses import Loss, Relation
from lapwing.errors import BadParameter
from lapwing.learn.confidence_bounds import float_down
from lapwing.ledger import Account, Block, Ledger, Target
from lapwing.ledger.budget_history import remaining_exactly
from lapwing.ledger.entry import Costs
from lapwing.sql import policy_ledger
from lapwing.sql.policy.policy import CheckedPolicy, account_label

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


def _labels(labels: object) -> tuple[str, ...]:
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels) or not labels:
        raise ValueError('must be a list of names, such as ["durations", "tips"]')
    return tuple([checked_label(label, "pipelines") for label in labels])


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


def load_sharing_rule(policy: CheckedPolicy) -> SharingRule:
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


def share_label(policy: CheckedPolicy, pipeline: str) -> str:
    """Return the label of the account of one pipeline's share."""
    return f"{account_label(policy)}: share of {pipeline}"


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


def find_share(
    ledger: Ledger, policy: CheckedPolicy, sharing: SharingRule, pipeline: str
) -> PipelineShare | None:
    """Return a pipeline's share as it is now; None if the rule has no shares. Nothing is written.

    Raises BadParameter if the pipeline has no share, or if the file changes a share that was opened.
    """
    if sharing.rule != EQUAL_SHARES:
        return None
    if pipeline not in sharing.pipelines:
        raise BadParameter("pipeline", "has no share of this stream: ask the curator for one")
    label, whole = share_label(policy, pipeline), ledger.account(account_label(policy))
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


def open_share(ledger: Ledger, policy: CheckedPolicy, sharing: SharingRule, pipeline: str) -> str | None:
    """Open a pipeline's share at its first use, and return the label of its account; None if there is none.

    It gets the blocks that the stream's account has now.
    """
    share = find_share(ledger, policy, sharing, pipeline)
    if share is None:
        return None
    whole = ledger.opened_account(account_label(policy))
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


ALL_UNLOCKED = Fraction(1)
RETIRED_BELOW = Fraction(1, 1000)  # of the block's ε


def blocks_text(count: int) -> str:
    """Return a number of blocks in words."""
    return f"{count:,} block{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class BlockStatus:
    """The pure ε and the δ that a next release could cost in a block, in all accounts that pay.

    `unlocked` is the share of its budget that may be used now.
    """

    label: str
    epsilon: Fraction
    left: Fraction
    delta_left: Fraction
    has_arrived: bool
    unlocked: Fraction
    is_untouched: bool  # nothing was charged or is held there, in any of the accounts

    @property
    def is_retired(self) -> bool:
        """True if (nearly) no budget is left, so that the block is never used again."""
        return self.left < self.epsilon * RETIRED_BELOW


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream as it is now. All of it is public."""

    name: str
    unit: str
    version: int | None  # None: nothing was taken in yet
    sharing: str
    blocks: tuple[BlockStatus, ...]
    several: str = ""  # in words: the loss of a person who is several units

    @property
    def retired(self) -> tuple[BlockStatus, ...]:
        """The blocks whose budget is used up."""
        return tuple(block for block in self.blocks if block.is_retired)

    @property
    def usable(self) -> tuple[BlockStatus, ...]:
        """The blocks that have arrived and have budget left."""
        return tuple(block for block in self.blocks if block.has_arrived and not block.is_retired)

    def to_json(self) -> dict[str, Any]:
        """Return the status as plain values. The budget left is rounded down."""
        return {
            "stream": self.name,
            "protects": self.unit,
            "version": self.version,
            "sharing": self.sharing,
            "several_periods": self.several,
            "blocks": [
                {
                    "block": block.label,
                    "epsilon": float(block.epsilon),
                    "epsilon_left": float_down(block.left),
                    "delta_left": float_down(block.delta_left),
                    "has_arrived": block.has_arrived,
                    "unlocked": float(block.unlocked),
                    "is_retired": block.is_retired,
                }
                for block in self.blocks
            ],
        }


def untouched_blocks(epsilon: Fraction, delta: Fraction, labels: Sequence[str]) -> tuple[BlockStatus, ...]:
    """Return the status of declared blocks before anything was appended or spent."""
    terms = Terms.of(epsilon, delta)
    now = (
        terms.epsilon,
        terms.largest_pure(terms.nothing_spent),
        terms.largest_delta(terms.nothing_spent),
    )
    return tuple(BlockStatus(label, *now, False, ALL_UNLOCKED, True) for label in labels)


def budget_left_by_block(
    ledger: Ledger,
    targets: Sequence[Target],
    labels: Sequence[str],
    *,
    arrived: Collection[str],
    unlocked: Mapping[str, Fraction],
    share: PipelineShare | None = None,
) -> tuple[BlockStatus, ...]:
    """Return the budget left of each block: the least of all accounts that pay. Nothing is opened."""
    accounts: defaultdict[str, list[tuple[Fraction, Fraction, Fraction, bool]]] = defaultdict(list)
    if share is not None:
        terms, taken = share.terms, share.taken
        anew = terms.epsilon, terms.largest_pure(taken), terms.largest_delta(taken), not any(taken)
        for label in labels:
            if label not in share.blocks:
                accounts[label].append(anew)
        targets = (*targets, *share.targets(labels))
    for target in targets:
        looked_at = ledger.look_at(ledger.account(target.account), target.blocks)
        sums: dict[Terms, set[Costs]] = {}
        for account, block in looked_at:
            sums.setdefault(account.terms, set()).add(block.taken(account.terms))
        left = {terms: remaining_exactly(terms, several) for terms, several in sums.items()}
        for account, block in looked_at:
            taken = block.taken(account.terms)
            epsilon = left[account.terms][taken] if block.is_open else Fraction(0)
            now = account.terms.epsilon, epsilon, account.terms.largest_delta(taken), not any(taken)
            for label in [block.label] if target.blocks else labels:
                accounts[label].append(now)
    none = [(Fraction(0), Fraction(0), Fraction(0), False)]
    status = []
    for label in labels:
        each = zip(*(accounts[label] or none), strict=True)
        epsilon, left, delta, is_untouched = (min(amounts) for amounts in each)
        part = unlocked.get(label, ALL_UNLOCKED)
        status.append(BlockStatus(label, epsilon, left, delta, label in arrived, part, is_untouched))
    return tuple(status)


def blocks_able_to_pay(
    ledger: Ledger,
    targets: Sequence[Target],
    loss: Loss,
    unlocked: Mapping[str, Fraction] | None = None,
    share: PipelineShare | None = None,
) -> set[str]:
    """Return the blocks of the targets that can pay, or none if an account without blocks cannot.

    `unlocked` is the part of each block's budget that may be used now; None means all of it. `share` is
    the pipeline's share of the stream, if it has one. Nothing is opened.
    """
    labels = {label for target in targets for label in target.blocks}
    able: set[str] | None = None
    if share is not None and labels:
        fits_anew = share.terms.after(share.taken, share.terms.price(loss)) is not None
        able = {label for label in labels if fits_anew or label in share.blocks}
        targets = (*targets, *share.targets(sorted(labels)))
    for target in targets:
        looked_at = ledger.look_at(ledger.account(target.account), target.blocks)
        fits = dict(
            zip([block.label for _, block in looked_at], _fits(looked_at, loss, unlocked), strict=True)
        )
        if not target.blocks:
            if not all(fits.values()):
                return set()
            continue
        cannot = {label for label in target.blocks if not fits.get(label, False)}
        able = (labels if able is None else able) - cannot
    return able or set()


def _fits(
    blocks: Sequence[tuple[Account, Block]], loss: Loss, unlocked: Mapping[str, Fraction] | None
) -> list[bool]:
    """Apply the accounts' filter (like `Terms.after`) to many blocks at once."""
    if not blocks:
        return []
    priced = {account.number: account.costs(loss) for account in {a.number: a for a, _ in blocks}.values()}
    caps = np.array([account.terms.caps for account, _ in blocks], np.int64)
    spent = np.array([block.spent for _, block in blocks], np.int64)
    held = np.array([block.held for _, block in blocks], np.int64)
    taken = np.minimum(spent + held, caps + 1)  # as `Block.taken` does it
    costs = np.array([priced[account.number] for account, _ in blocks], np.int64)
    is_open = np.array([block.is_open for _, block in blocks], np.bool_)
    if unlocked is not None:
        caps = _scaled(caps, [unlocked.get(block.label, ALL_UNLOCKED) for _, block in blocks])
    within = taken + costs <= caps
    fits_one = (within[:, EPSILON] & within[:, DELTA]) | within[:, FIRST_ORDER:].any(axis=1)
    fits: NDArray[np.bool_] = is_open & within[:, DELTA0] & fits_one
    return [bool(fit) for fit in fits]


def _scaled(caps: NDArray[np.int64], shares: Sequence[Fraction]) -> NDArray[np.int64]:
    """Multiply caps by shares, rounded down.

    A cap below 0 is a filter that never holds, and stays as it is.
    """
    rows = [
        [int(cap * share) if cap > 0 else cap for cap in row] if share != ALL_UNLOCKED else row
        for row, share in zip(caps.tolist(), shares, strict=True)
    ]
    return np.array(rows, np.int64)
