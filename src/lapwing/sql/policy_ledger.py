"""A policy's data set in the ledger: its account, blocks, quotas and versions.

Claim    whoever opens the policy spends from the same account, whose terms are those of the policy when it
         was first used; a policy that says otherwise now is refused. So is one whose data another ledger of
         this user knows.
Because  the ledger never changes an account, and what it holds is compared with the policy here; sources
         are looked up in the user's registry before a ledger is made or used.
Test     tests/query/test_custody.py, tests/query/test_registry.py

Few failures: that a charged question fails may tell of one person's rows, and nobody has priced it.

Claim    an analyst learns of at most `policy.failures` questions of theirs that failed, and of those that
         end in the same moment, until the curator has looked; whatever the policy file and the data are
         called. Where answers are shared, they may learn of other analysts' as well, each of whom has no
         more; a question that was held already is no failure of who asks it again.
Because  failures are read from the ledger itself, by the analyst and the accounts that were charged. Who
         has had so many is told nothing any more, neither old answers nor the outcome of questions that
         were under way: the check comes before the charge, and again before an outcome is told.
Test     tests/query/test_failures.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from lapwing.core.losses import Relation
from lapwing.errors import AllHeld, BadParameter
from lapwing.ledger import Account, DataSet, Ledger, Receipt, Slices, Unit, append, data_sets, register
from lapwing.ledger.data_sets import SourceRegistry, is_ledger_gone, location_of, open_registry
from lapwing.ledger.gate import targets
from lapwing.ledger.ledger import LedgerPlace, is_postgres, record_policy
from lapwing.ledger.request_status import FailedCharges, find_failed_charges
from lapwing.ledger.spending import Target
from lapwing.ledger.unit_ids import Ids
from lapwing.sql.policy import Policy, block_label, block_labels, block_rule_text, period_of
from lapwing.sql.source_location import registry_names
from lapwing.sql.truncated import registration
from lapwing.sql.truncated.prepared_copy import prepared_folder

if TYPE_CHECKING:
    from lapwing.sql.dataset import Dataset


UNITS = {"person": Unit.PERSON, "row": Unit.ROW, "person-period": Unit.PERSON_AND_PERIOD}
EVERYBODY_ELSE = "*"
Notify = Callable[[str], None]


def unit_of(policy: Policy) -> Unit:
    """What the policy protects."""
    return UNITS[policy.protects]


def account_label(policy: Policy) -> str:
    """The account's name: data sets about the same people may share one."""
    return policy.population or policy.name


def _slices(policy: Policy) -> Slices:
    if policy.blocks is None:
        return Slices.NONE
    if policy.blocks.by == "row":
        return Slices.PERIODS
    return Slices.IDENTITIES if policy.blocks.cohorts else Slices.UNITS


def has_ledger(policy: Policy) -> bool:
    """Whether the policy was used before. A ledger in a server is made by `lapwing ledger init`."""
    if is_postgres(policy.ledger):
        return not policy.ledger_keys or Path(policy.ledger_keys).exists()
    return Path(policy.ledger).exists()


def open_ledger(policy: Policy, tell: Notify) -> Ledger:
    """The policy's ledger, made at its first use, with the account, blocks and quotas of the policy.

    What is made for life is told. Data that another ledger knows is refused.
    """
    where = policy.ledger
    keys = Path(policy.ledger_keys) if policy.ledger_keys else None
    anchor = policy.ledger_anchor or None
    if is_postgres(where) and not has_ledger(policy):
        raise BadParameter(
            "ledger", "is not made yet, or its keys lie elsewhere. See `lapwing ledger init`"
        )
    ledger = None
    with open_registry() as known:
        if not has_ledger(policy):  # and nobody else makes one now
            _require_own(known, policy)
            _require_population(policy)
            ledger = Ledger.create(where, keys=keys, anchor=anchor)
            _note(known, policy, ledger)
            tell(LedgerPlace.of(where, keys=keys, anchor=anchor).news)
    ledger = ledger or Ledger.open(where, keys=keys, anchor=anchor)
    try:
        with open_registry() as known:
            _require_own(known, policy, ledger.id)
            _require_accounts(ledger, policy, tell)
            _note(known, policy, ledger)
        record_policy(ledger, account_label(policy), declared_digest(policy, ledger))
    except BaseException:
        ledger.close()
        raise
    return ledger


def declared_digest(policy: Policy, ledger: Ledger) -> str:
    """A keyed digest of all that a policy declares about rows: what a check could change for the better."""
    tables = [
        (
            table.name, table.unit, table.rows_per_unit, table.primary_key, table.rows, table.hidden,
            table.source.csv, sorted(table.columns.items()),
        )
        for table in sorted(policy.tables.values(), key=lambda table: table.name)
    ]  # fmt: skip
    words = repr((policy.name, policy.protects, policy.blocks, policy.folds_ids, tables)).encode()
    person = b"lapwing policy"
    return hashlib.blake2b(words, key=ledger.keys.people, person=person, digest_size=32).hexdigest()


def _sources(policy: Policy) -> list[str]:
    private = (table.source for table in policy.tables.values() if not table.is_public)
    return sorted({name for source in private for name in registry_names(source)})


def _note(known: SourceRegistry, policy: Policy, ledger: Ledger) -> None:
    account = account_label(policy) if policy.protects == "row" else ""  # people are known by their ids
    known.note(_sources(policy), ledger=ledger.id, place=location_of(ledger), account=account)


def _require_own(known: SourceRegistry, policy: Policy, ledger: str = "") -> None:
    """A source has one ledger for life, and one account where its rows are protected one by one."""
    others = known.accounts_of(_sources(policy)) - {account_label(policy)}
    if policy.protects == "row" and others:
        raise BadParameter(
            "dataset.population",
            f'these rows spend from the account "{min(others)}" already, for life. Write '
            f'population = "{min(others)}" into the policy',
        )
    for other, place in known.ledgers_of(_sources(policy)).items():
        if other == ledger:
            continue
        if not is_ledger_gone(place):
            raise BadParameter(
                "ledger",
                f"these data spend from {place} already, for life. To join it, write into the policy "
                f'[ledger] and below it url = "{place}"',
            )
        raise BadParameter(
            "ledger",
            f"these data spend from {place}, for life, and that is missing. Put it back from a backup, "
            "with its keys but not its anchor; `lapwing ledger recover` helps if it is an older state. If "
            "other data lie there now, see the table in docs/guides/ledger.md",
        )


def _require_accounts(ledger: Ledger, policy: Policy, tell: Notify) -> None:
    label = account_label(policy)
    known = {account.label for account in ledger.accounts()}
    rule = block_rule_text(policy)

    def opened(name: str, epsilon: Fraction, delta: Fraction, slices: Slices, rule: str) -> None:
        made = ledger.open_account(
            name, epsilon=epsilon, delta=delta, unit=unit_of(policy), relation=Relation.ADD_REMOVE,
            slices=slices, rule=rule,
        )  # fmt: skip
        tell(made.news)

    if label not in known:
        _require_population(policy)
        opened(label, policy.epsilon, policy.delta, _slices(policy), rule)
    account = ledger.account(label)
    _require_same(account, policy, rule)
    if policy.blocks is not None:
        there = {block.label for block in ledger.blocks(label)}
        missing = [name for name in block_labels(policy.blocks) if name not in there]
        if missing:
            ledger.open_blocks(label, missing)
    for analyst, (epsilon, delta) in policy.quotas.items():
        quota = quota_label(policy, analyst)
        if quota not in known:
            opened(quota, epsilon, delta, Slices.NONE, "")
        _require_terms(ledger.account(quota), epsilon, delta, f"analysts.{analyst}")


def _require_population(policy: Policy) -> None:
    """Rows have no ids by which the ledger could know them again under another name."""
    if policy.protects == "row" and not policy.population:
        raise BadParameter(
            "dataset.population",
            'is needed where dataset.protects is "row": name what the rows are about, such as '
            'population = "admissions". All data about it then share one budget',
        )


def _require_same(account: Account, policy: Policy, rule: str) -> None:
    """An account is for life: a policy that was edited does not change it."""
    _require_terms(account, policy.epsilon, policy.delta, "budget")
    if account.slices is _slices(policy) is Slices.UNITS and account.rule != rule:
        raise BadParameter(
            "blocks", "of arrival are those of one data set: others cannot share its account by population"
        )
    if (account.unit, account.slices, account.rule) != (unit_of(policy), _slices(policy), rule):
        raise BadParameter("blocks", "or what is protected differs from what the account was opened with")


def _require_terms(account: Account, epsilon: Fraction, delta: Fraction, where: str) -> None:
    terms = account.terms
    if (terms.epsilon, terms.delta) != (epsilon, delta):
        raise BadParameter(
            where,
            f"the account has ε {float(terms.epsilon):g} and δ {float(terms.delta):g} for life. "
            "Write these into the policy, or raise the budget with `lapwing ledger raise`",
        )


def quota_label(policy: Policy, analyst: str) -> str:
    """The account of one analyst's share."""
    return f"{account_label(policy)}: quota of {analyst}"


def quota_of(policy: Policy, analyst: str) -> str | None:
    """The account that an analyst's questions are charged to as well."""
    if not policy.quotas:
        return None
    if analyst in policy.quotas:
        return quota_label(policy, analyst)
    if EVERYBODY_ELSE in policy.quotas:
        return quota_label(policy, EVERYBODY_ELSE)
    raise BadParameter("analyst", "has no quota in the policy: ask the curator for one")


def find_data_set(ledger: Ledger, policy: Policy) -> DataSet | None:
    """The data set, if it was registered."""
    try:
        return data_sets.find_data_set(ledger, policy.name)
    except BadParameter:
        return None


def possible_data_sets(ledger: Ledger, version: int, receipt: Receipt) -> set[int]:
    """The numbers of the data sets that a charge may be of: known before it, of at least this version, and
    spending from a charged account."""
    charged = {ledger.numbered(debit[0]).root for debit in receipt.record["debits"]}
    return {
        data.number
        for data in data_sets.data_sets_before(ledger, receipt.position)
        if data.version >= version and charged & set(data.accounts)
    }


def register_version(ledger: Ledger, policy: Policy, units: Ids) -> DataSet:
    """Register the data, or count one version more: after every preparation and every append."""
    with open_registry() as known:  # files may have come
        _require_own(known, policy, ledger.id)
        _note(known, policy, ledger)
    if find_data_set(ledger, policy) is not None:
        return append(ledger, policy.name, units=units)
    return register(
        ledger,
        policy.name,
        origin=_origin(policy),
        account=account_label(policy),
        units=units,
        rule=block_rule_text(policy),
    )


def open_arrival_block(ledger: Ledger, policy: Policy, today: date | None = None) -> None:
    """Where blocks are periods in which units arrive: the block of those who arrive now."""
    blocks = policy.blocks
    if blocks is None or blocks.by != "unit" or blocks.cohorts:
        return
    day = (today or datetime.now(UTC).date()) - date(1970, 1, 1)
    label = block_label(blocks, period_of(blocks.every, day.days))
    if all(block.label != label for block in ledger.blocks(account_label(policy))):
        ledger.open_blocks(account_label(policy), [label])


def _origin(policy: Policy) -> str:
    """Where the data says it comes from: the private tables' places, without secrets."""
    places = sorted(table.source.place for table in policy.tables.values() if not table.is_public)
    text = " ".join(places)
    return text if len(text) <= 200 else f"{text[:150]}… {len(places)} tables"


def targets_of(ledger: Ledger, policy: Policy, analyst: str, blocks: Sequence[str]) -> tuple[Target, ...]:
    """Whom a question is charged to: the data's accounts, and the analyst's quota."""
    found = targets(ledger, policy.name, blocks)
    quota = quota_of(policy, analyst)
    return found if quota is None else (*found, Target(quota))


FAILURES_FILE = "failed.json"  # what need not be read again; if it is lost, it is
SAVE_FAILURES_EVERY = 1000  # entries


def require_few_failures(dataset: Dataset, *, besides: int | None = None) -> None:
    """Raise `AllHeld` if the analyst has had too many failures, not counting one of them."""
    ledger, policy = dataset.ledger, dataset.policy
    data = find_data_set(ledger, policy)
    if data is None:
        return
    path = prepared_folder(policy) / FAILURES_FILE
    kept = FailedCharges()
    with suppress(OSError, ValueError, TypeError):
        kept = FailedCharges.from_json(json.loads(path.read_text(encoding="utf-8")))
    found, known = find_failed_charges(ledger, kept)
    if known.last >= kept.last + SAVE_FAILURES_EVERY:
        with suppress(OSError):
            registration.replace_file(path, json.dumps(known.to_json()))
    analyst, looked = ledger.principal(dataset.analyst), registration.cleared_holds(policy)
    own = [
        one.position
        for one in found
        if one.by == analyst and set(one.accounts) & set(data.accounts)
        and one.position not in looked and one.position != besides
    ]  # fmt: skip
    if len(own) >= policy.failures:
        raise AllHeld(own)
