"""The ledger of a policy: the account of its data, its blocks, quotas, versions and failed questions.

Claim    every session of a policy spends from the same account. The terms of the account are those of the
         policy when it was first used. A policy with other terms is refused, and so is a policy whose data
         or people another ledger of the registry knows.
Because  the ledger never changes an account, and the account is compared with the policy here. Sources are
         looked up in the registry before a ledger is made or used, and people when data is registered.
Test     tests/sql/test_policy_ledger.py, tests/sql/test_policy_ledger_registry.py

A failure of a charged question may depend on one person's rows, and no price covers that. So failures are
few:

Claim    until the curator clears a hold, an analyst learns of at most `policy.failures` own questions that
         failed, and of those that end in the same moment, whatever the policy file and the data are called.
         If answers are shared, the analyst may also learn of failures of other analysts, each of whom has
         the same limit. Asking again a question that is held is not another failure.
Because  failures are read from the ledger, by the analyst and the accounts that were charged. An analyst
         who has reached the limit is shown nothing more: neither stored answers nor outcomes of questions
         that were under way. This is checked before the charge, and again before an outcome is shown.
Test     tests/sql/test_releasing_failures.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from shlex import quote

from lapwing.config.values import checked_label, is_postgres
from lapwing.core import Relation, Terms
from lapwing.core.exact import short
from lapwing.errors import AllHeld, BadParameter
from lapwing.ledger import Account, DataSet, Ledger, Receipt, Slices, Target, Unit, data_sets, targets
from lapwing.ledger.entry import now
from lapwing.ledger.registry import OpenRegistry, Registry, is_ledger_gone
from lapwing.ledger.request_status import FailedCharges, find_failed_charges, has_ended
from lapwing.ledger.unit_ids import Ids, Sketch
from lapwing.sql.policy.policy import (
    CheckedPolicy,
    account_label,
    block_label,
    block_labels,
    block_rule_text,
    period_of,
)
from lapwing.sql.policy.source_location import registry_names
from lapwing.sql.pricing.cost import BudgetLeft
from lapwing.sql.reading import registration
from lapwing.sql.reading.prepared_copy import has_current_units, is_copy_of, last_copy, prepared_folder

UNITS = {"person": Unit.PERSON, "row": Unit.ROW, "person-period": Unit.PERSON_AND_PERIOD}
RELATION = Relation.ADD_REMOVE  # of all accounts that policies open
EVERYBODY_ELSE = "*"
Notify = Callable[[str], None]


def unit_of(policy: CheckedPolicy) -> Unit:
    """Return the privacy unit of the policy."""
    return UNITS[policy.protects]


def _slices(policy: CheckedPolicy) -> Slices:
    if policy.blocks is None:
        return Slices.NONE
    if policy.blocks.by == "row":
        return Slices.PERIODS
    return Slices.IDENTITIES if policy.blocks.cohorts else Slices.UNITS


def has_ledger(policy: CheckedPolicy) -> bool:
    """Return whether the policy was used before. `lapwing ledger init` makes a ledger in a server."""
    if is_postgres(policy.ledger):
        return not policy.ledger_keys or Path(policy.ledger_keys).exists()
    return Path(policy.ledger).exists()


def open_ledger(policy: CheckedPolicy, notify: Notify) -> Ledger:
    """Open the policy's ledger, which is made at the first use. Its accounts open with their first charge.

    `notify` is called with a sentence about each thing that is made for life. Data that another ledger
    knows is refused.
    """
    where = policy.ledger
    keys = Path(policy.ledger_keys) if policy.ledger_keys else None
    anchor = policy.ledger_anchor or None
    if is_postgres(where) and not has_ledger(policy):
        raise BadParameter(
            "ledger", "is not made yet, or its keys lie elsewhere. See `lapwing ledger init`"
        )
    ledger = None
    with Registry.at(policy.ledger_registry).open() as known:
        if not has_ledger(policy):  # and nobody else makes one now
            _require_own(known, policy)
            _require_population(policy)
            ledger = Ledger.create(
                where, keys=keys, anchor=anchor, registry=policy.ledger_registry, notify=notify
            )
            _note(known, policy, ledger)
    ledger = ledger or Ledger.open(where, keys=keys, anchor=anchor, registry=policy.ledger_registry)
    try:
        with ledger.registry.open() as known:
            _require_own(known, policy, ledger.id)
            _require_accounts(ledger, policy, _with_place(policy, ledger, notify))
            _note(known, policy, ledger)
        ledger.record_policy(account_label(policy), declared_digest(policy, ledger))
    except BaseException:
        ledger.close()
        raise
    return ledger


def declared_digest(policy: CheckedPolicy, ledger: Ledger) -> str:
    """Return a keyed digest of all that a policy declares about rows.

    After an exact check, another digest shows that the policy was changed since.
    """
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


def row_key(ledger: Ledger) -> bytes:
    """Return the secret that decides which rows of a unit are kept. Who knows it could choose them."""
    return hashlib.blake2b(key=ledger.keys.people, digest_size=32, person=b"lapwing rows").digest()


def _sources(policy: CheckedPolicy, *, earlier: bool = True) -> list[str]:
    private = (table.source for table in policy.tables.values() if not table.is_public)
    return sorted({name for source in private for name in registry_names(source, earlier=earlier)})


def _note(known: OpenRegistry, policy: CheckedPolicy, ledger: Ledger) -> None:
    account = account_label(policy) if policy.protects == "row" else ""  # people are known by their ids
    sources = _sources(policy, earlier=False)
    known.note(sources, ledger=ledger.id, place=ledger.location, account=account)


def _require_own(known: OpenRegistry, policy: CheckedPolicy, ledger: str = "") -> None:
    """Require that a source keeps its ledger for life, and its account if each row is protected."""
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
                f"these data spend from {place} already, for life. To join it, {_joining(policy, place)}",
            )
        raise BadParameter(
            "ledger",
            f"these data spend from {place}, for life, and that is missing. Put it back from a backup, "
            "with its keys but not its anchor; `lapwing ledger recover` helps if it is an older state. If "
            "other data lie there now, see the table in docs/guides/ledger.md",
        )


def _same_people_error(others: list[str], policy: CheckedPolicy, *, can_join: bool) -> BadParameter:
    """Return the refusal of data whose people other ledgers know. Used data has its ledger for life."""
    place, names = others[0], " ".join(map(quote, others))
    key = "KEY" if is_postgres(policy.ledger) else quote(f"{policy.ledger}.curator")
    gone = " (which is missing now: put it back)" if is_ledger_gone(place) else ""
    same, command = _joining(policy, place), f"lapwing ledger other-people {quote(str(policy.path))}"
    if policy.is_in_code:
        command = f"policy.save({str(policy.path)!r})`, then `{command}"
    if not can_join:
        same = f"leave their rows out here, or put these into data of their own that spend from {place}"
    return BadParameter(
        "source",
        f"some ids of these data are ids of people who spend from {place} already{gone}. Are they the same "
        f"people? Then {same}. Are they other people, and only their ids look alike, such as 1, 2, 3? Then "
        f"the curator of this ledger signs that, once (a signature in the other one does not count here): "
        f"`{command} {names} --curator {key}`. Nothing was charged",
    )


def _joining(policy: CheckedPolicy, place: str) -> str:
    """Return in words how a policy spends from a ledger that there is."""
    if policy.is_in_code:
        return f'open it so: lapwing.open(policy, ledger="{place}")'
    return f'write into the policy [ledger] and below it url = "{place}"'


def _with_place(policy: CheckedPolicy, ledger: Ledger, notify: Notify) -> Notify:
    """Let sentences about new accounts say where, if no policy file says so."""
    if policy.is_in_code:
        return lambda text: notify(f"{text} It is kept in {ledger.location}.")
    return notify


def _require_accounts(ledger: Ledger, policy: CheckedPolicy, notify: Notify) -> None:
    label = account_label(policy)
    known = {account.label for account in ledger.accounts()}
    rule = block_rule_text(policy)

    blocks = [] if policy.blocks is None else block_labels(policy.blocks)

    def plan(name: str, epsilon: Fraction, delta: Fraction, *, is_quota: bool) -> None:
        ledger.plan_account(
            name, epsilon=epsilon, delta=delta, unit=unit_of(policy), relation=RELATION,
            slices=Slices.NONE if is_quota else _slices(policy), rule="" if is_quota else rule,
            blocks=() if is_quota else blocks, tell=notify,
        )  # fmt: skip

    if label not in known:
        _require_population(policy)
        plan(label, policy.epsilon, policy.delta, is_quota=False)
    account = ledger.account(label)
    _require_same(account, policy, rule)
    if label in known and blocks:
        there = {block.label for block in ledger.blocks(label)}
        missing = [name for name in blocks if name not in there]
        if missing:
            ledger.open_blocks(label, missing)
    for analyst, (epsilon, delta) in policy.quotas.items():
        quota = quota_label(policy, analyst)
        if quota not in known:
            plan(quota, epsilon, delta, is_quota=True)
        _require_terms(ledger.account(quota), epsilon, delta, f"analysts.{analyst}")


def _require_population(policy: CheckedPolicy) -> None:
    """Require a population where rows are protected: rows have no ids that the ledger could recognise."""
    if policy.protects == "row" and not policy.population:
        raise BadParameter(
            "dataset.population",
            'is needed where dataset.protects is "row": name what the rows are about, such as '
            'population = "admissions". All data about it then share one budget',
        )


def _require_same(account: Account, policy: CheckedPolicy, rule: str) -> None:
    """Require that the policy agrees with the account, which is for life."""
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
            f"the account has ε {float(terms.epsilon):g} and δ {short(float(terms.delta))} for life. "
            "Write these into the policy, or raise the budget with `lapwing ledger raise`",
        )


def checked_analyst(analyst: str) -> str:
    """Require a name of an analyst, as quotas are named."""
    return checked_label(analyst, "analyst")


def quota_label(policy: CheckedPolicy, analyst: str) -> str:
    """Return the name of the account that holds an analyst's quota."""
    return f"{account_label(policy)}: quota of {analyst}"


def declared_terms(policy: CheckedPolicy, analyst: str) -> list[Terms]:
    """Return the terms of each account that a question of the analyst will be charged to."""
    own = analyst if analyst in policy.quotas else EVERYBODY_ELSE
    quotas = [] if quota_of(policy, analyst) is None else [policy.quotas[own]]
    return [Terms.of(epsilon, delta) for epsilon, delta in [(policy.epsilon, policy.delta), *quotas]]


def quota_of(policy: CheckedPolicy, analyst: str) -> str | None:
    """Return the quota account that an analyst's questions are charged to as well; None: no quotas."""
    if not policy.quotas:
        return None
    if analyst in policy.quotas:
        return quota_label(policy, analyst)
    if EVERYBODY_ELSE in policy.quotas:
        return quota_label(policy, EVERYBODY_ELSE)
    raise BadParameter("analyst", "has no quota in the policy: ask the curator for one")


def find_data_set(ledger: Ledger, policy: CheckedPolicy) -> DataSet | None:
    """Return the registered data set, or None."""
    try:
        return data_sets.find_data_set(ledger, policy.name)
    except BadParameter:
        return None


def possible_data_sets(ledger: Ledger, version: int, receipt: Receipt) -> set[int]:
    """Return the numbers of the data sets that may have made a charge.

    These were known before it, had at least this version, and spend from a charged account.
    """
    charged = {ledger.numbered(debit[0]).root for debit in receipt.record["debits"]}
    return {
        data.number
        for data in data_sets.data_sets_before(ledger, receipt.position)
        if data.version >= version and charged & set(data.accounts)
    }


def forget_planned_data(ledger: Ledger, policy: CheckedPolicy) -> None:
    """Forget data that only a first question wanted: the curator prepares or registers it now."""
    ledger.openings.data.pop(policy.name, None)


def untouched_version(ledger: Ledger, policy: CheckedPolicy, key: bytes) -> int:
    """Return the version if its files, how they are read and the registry have not changed; else 0."""
    known, copy = find_data_set(ledger, policy), last_copy(policy)
    if known is None or not registration.is_untouched(policy, known.version):
        return 0
    is_same = copy is None or (is_copy_of(policy, key, copy) and has_current_units(policy, copy))
    return known.version if is_same and are_people_known(ledger, policy) else 0


def register_version(
    ledger: Ledger, policy: CheckedPolicy, units: Ids, at: str | None = None, *, with_charge: bool = False
) -> DataSet:
    """Register the data, or its next version. Call it after every preparation and every append.

    `at` is the time of the entry, if rows were read before this call. `with_charge` leaves data that the
    ledger does not know to the first charge, which registers it and opens its account.
    """
    registry = ledger.registry
    at = at or now()  # before units are read: how long that takes is private
    can_join = not data_sets.has_data_sets(ledger)  # the data may still join another ledger
    own, registered = Sketch.of_each(units, (ledger.keys.people, registry.key))
    with registry.open() as known:  # files may have come
        _require_own(known, policy, ledger.id)
        others = known.ledgers_with(registered, registry.key, besides=ledger.id)
        others = {other: place for other, place in others.items() if other not in ledger.other_ledgers}
        if not others:
            _note(known, policy, ledger)
            known.note_people(registered, registry.key, ledger=ledger.id, data=policy.name)
        elif can_join:
            known.forget_sources(ledger.id)
    if others:
        raise _same_people_error(sorted(others.values()), policy, can_join=can_join)
    forget_planned_data(ledger, policy)
    before = find_data_set(ledger, policy)
    if before is not None and with_charge and data_sets.knows_all_units(ledger, before, own):
        return before  # registered with the charge of another process meanwhile
    if before is not None:
        return data_sets.append(ledger, policy.name, units=own, at=at)
    register = data_sets.plan_register if with_charge else data_sets.register
    return register(
        ledger,
        policy.name,
        origin=_origin(policy),
        account=account_label(policy),
        units=own,
        rule=block_rule_text(policy),
        at=at,
    )


def are_people_known(ledger: Ledger, policy: CheckedPolicy) -> bool:
    """Return whether the registry knows the people of registered data; a new one does not at first."""
    if not ledger.is_registered_anew:
        return True
    with ledger.registry.open() as known:
        return known.has_people(ledger=ledger.id, data=policy.name)


def open_arrival_block(ledger: Ledger, policy: CheckedPolicy, today: date | None = None) -> None:
    """Open the block of the units that arrive today, if blocks are periods of arrival."""
    blocks = policy.blocks
    if blocks is None or blocks.by != "unit" or blocks.cohorts:
        return
    day = (today or datetime.now(UTC).date()) - date(1970, 1, 1)
    label = block_label(blocks, period_of(blocks.every, day.days))
    if all(block.label != label for block in ledger.blocks(account_label(policy))):
        ledger.open_blocks(account_label(policy), [label])


def _origin(policy: CheckedPolicy) -> str:
    """Return the locations of the private tables, without secrets."""
    places = sorted(table.source.place for table in policy.tables.values() if not table.is_public)
    text = " ".join(places)
    return text if len(text) <= 200 else f"{text[:150]}… {len(places)} tables"


def targets_of(
    ledger: Ledger, policy: CheckedPolicy, analyst: str, blocks: Sequence[str]
) -> tuple[Target, ...]:
    """Return the accounts that a question is charged to: the data's, and the analyst's quota."""
    of_data = targets(ledger, policy.name, blocks)
    quota = quota_of(policy, analyst)
    return of_data if quota is None else (*of_data, Target(quota))


def budget_left(ledger: Ledger, policy: CheckedPolicy, analyst: str) -> BudgetLeft:
    """Return what is left of the data's budget, and of the analyst's quota if there is one."""
    quota = None
    with suppress(BadParameter):  # an analyst who lost the quota still sees what is left of the data's
        quota = quota_of(policy, analyst)
    of_quota = None if quota is None else _left(ledger, quota)
    return replace(_left(ledger, account_label(policy)), quota=of_quota)


def _left(ledger: Ledger, label: str) -> BudgetLeft:
    left = []
    for block in ledger.blocks(label):
        if block.is_open:
            terms = ledger.numbered(block.account).terms  # as raised, if it was
            left.append((block.left(terms), terms.epsilon, terms.largest_delta(block.taken(terms))))
    nothing = Fraction(0), ledger.account(label).terms.epsilon, Fraction(0)
    return BudgetLeft(*min(left, default=nothing))


FAILURES_FILE = "failed.json"  # a cache: if it is lost, the ledger is read again
SAVE_FAILURES_EVERY = 1000  # entries


def require_few_failures(
    ledger: Ledger, policy: CheckedPolicy, analyst: str, *, besides: int | None = None
) -> None:
    """Raise `AllHeld` if too many questions of the analyst failed, not counting the receipt `besides`."""
    data = find_data_set(ledger, policy)
    if data is None:
        return
    path = prepared_folder(policy) / FAILURES_FILE
    saved = FailedCharges()
    with suppress(OSError, ValueError, TypeError):
        saved = FailedCharges.from_json(json.loads(path.read_text(encoding="utf-8")))
    failed, known = find_failed_charges(ledger, saved)
    if known.last >= saved.last + SAVE_FAILURES_EVERY:
        with suppress(OSError):
            registration.replace_file(path, json.dumps(known.to_json()))
    principal = ledger.find_principal(analyst)
    own = [
        charge.position
        for charge in failed
        if charge.by == principal
        and set(charge.accounts) & set(data.accounts)
        and charge.position != besides
    ]
    if len(own) >= policy.failures:
        cleared = registration.cleared_holds(policy)
        own = [position for position in own if position not in cleared]
    if len(own) >= policy.failures:
        raise AllHeld(own)


def is_held(policy: CheckedPolicy, position: int) -> bool:
    """Return whether a question that failed waits until the curator clears its hold."""
    return position not in registration.cleared_holds(policy)


def clear_hold(ledger: Ledger | None, policy: CheckedPolicy, receipts: Sequence[int]) -> None:
    """Let questions be asked again that were charged and failed. See `Curator.clear_hold`."""
    if ledger is None or not receipts or not all(has_ended(ledger, position) for position in receipts):
        raise BadParameter("receipt", "is none of a question that was charged and failed")
    registration.make_folder(policy)
    registration.clear_holds(policy, *receipts)
