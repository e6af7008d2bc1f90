"""What a question means, apart from its text: answers of one text are alike only if they mean the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from lapwing.query.binding.public import PublicTable
from lapwing.query.language.question import Question, unnamed
from lapwing.query.language.relation import public_scans_of, scans_of
from lapwing.query.policies.policy import Policy


def meanings_of(policy: Policy, question: Question, public: Mapping[str, PublicTable]) -> tuple[str, str]:
    """Digests of all that decides what reaches the mechanisms, but the private rows: the bound question,
    the declared columns of its tables and how files are read (they decide values and ranks), and the rows
    of public tables.

    The second is of the question without its names: one for texts that differ in aliases or spelling only.
    """
    names = {scan.table for scan in scans_of(question.source)}
    names |= {unit.through for name in names if (unit := policy.tables[name].unit) and unit.through}
    tables = [
        (name, table.unit, table.primary_key, sorted(table.columns.items()), *table.source.reading)
        for name, table in sorted(policy.tables.items())
        if name in names
    ]
    ids = ("folded",) if policy.folds_ids else ()  # exact ids are the rule, and are not said
    named = hashlib.sha256(repr((question, tables, *ids)).encode())
    form = hashlib.sha256(repr((unnamed(question), tables, *ids)).encode())
    for scan in public_scans_of(question.source):
        rows = repr(public[scan.table].shipped(scan).to_pydict()).encode()
        named.update(rows)
        form.update(rows)
    return named.hexdigest(), form.hexdigest()
