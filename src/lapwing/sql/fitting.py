"""Fitting a model to the rows of a question: price, charge, read the rows, train, and store the model.

An estimator comes from above (`lapwing.learn`) and meets the two protocols here. It prices a fit from the
kinds of the question's columns; it gets rows only after the charge.

Claim    no row is read for a fit before its charge is on disk, and what leaves is the stored model alone.
Because  price and parameters are fixed from public things, and the rows are read in a `ChargedRead`.
Test     tests/sql/test_fitting.py

Claim    a fit is no cheaper way to ask, or to fail, than a question: it costs at least the policy's least,
         and an analyst with too many failures sees no model and no outcome.
Because  both are checked as `lapwing.sql.releasing` checks them, before the charge and before an outcome.
Test     tests/sql/test_fitting.py

Claim    the same fit of the same data costs nothing again, and no other fit gets its model.
Because  its key is a digest of the data set, its version, the meaning of the question and all settings; an
         answered request under that key is looked up before anything is priced in the ledger. The key
         does not name the form of CSV files: a changed form is a new version of the data.
Test     tests/sql/test_fitting.py, tests/sql/test_fitting_engines.py
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

from lapwing.canonical_json import canonical_json
from lapwing.core.exact import Number, exact
from lapwing.core.losses import Loss
from lapwing.errors import BadParameter, Held, InProgress, KeyReused, WorkEnded
from lapwing.ledger import ChargedRead, Gate, Receipt, Spending
from lapwing.ledger.request_status import RequestState, RequestStatus
from lapwing.sql import policy_ledger, row_questions
from lapwing.sql.policy.kinds import Kind
from lapwing.sql.pricing.plan import is_enough, not_enough
from lapwing.sql.row_questions import AnalystSession, PrivateRows

FORM = "lapwing fit 1"
_MOST_REPEATS = 1000
# What a receipt or a key says besides the settings of the estimator.
_OWN_FACTS = {"form", "rows", "rows of a unit", "data", "version", "mechanism"}


class RowFit(Protocol):
    """A fit whose price is fixed. Nothing was read for it."""

    @property
    def loss(self) -> Loss:
        """The loss of each unit."""

    @property
    def mechanism(self) -> str:
        """The name of the mechanism, for the receipt."""

    @property
    def parameters(self) -> Mapping[str, str | int]:
        """All public settings that decide the model, for the receipt."""

    def train(self, rows: PrivateRows) -> bytes:
        """Return the model, which is private at `loss`. It must not fail, and release nothing else."""

    def finish(self, model: bytes, receipt: Receipt) -> None:
        """Give the stored model to the estimator."""


class RowEstimator(Protocol):
    """An estimator that a data set can fit, such as those of `lapwing.learn`."""

    def plan_fit(
        self, columns: Mapping[str, Kind], *, label: str | None, epsilon: Number, delta: Number
    ) -> RowFit:
        """Price a fit to columns of these kinds. `label` is the column to be predicted, if it is named."""


def fit(
    session: AnalystSession,
    estimator: RowEstimator,
    question: Any,
    *,
    label: str | None,
    epsilon: Number,
    delta: Number | None,
    fresh: bool,
) -> None:
    """Charge a fit and train, or read the stored model of the same fit. See `Dataset.fit`."""
    if isinstance(estimator, type) or not callable(getattr(estimator, "plan_fit", None)):
        raise BadParameter("estimator", "must be one of lapwing.learn, such as LogisticRegression")
    curator, policy = session.curator, session.curator.policy
    price = exact(epsilon, "epsilon")
    asked = row_questions.row_question(session, question)
    paid = policy.delta_per_query if delta is None else delta
    planned = estimator.plan_fit(asked.columns, label=label, epsilon=epsilon, delta=paid)
    loss, settings = planned.loss, dict(planned.parameters)
    if taken := sorted(_OWN_FACTS & settings.keys()):
        raise BadParameter("estimator", f"has a setting {taken[0]!r}, which the data set writes itself")
    costs_enough = is_enough(price, loss, policy)
    if not costs_enough and not curator.has_ledger:
        raise not_enough(price, policy)
    with curator.keeping_open():
        data = curator.data()
        facts: dict[str, str | int] = {
            "form": FORM,
            "rows": row_questions.meaning_digest(session, asked),
            **settings,
        }
        said = {**facts, "data": data.number, "version": data.version, "mechanism": planned.mechanism}
        request = canonical_json(said, spaces=True).encode()
        _require_few_failures(session)  # who may not fit may not see what was fitted, or failed
        stored, key = _earlier(session, hashlib.sha256(request).hexdigest())
        if stored is not None and not fresh:
            planned.finish(stored.answer, stored.receipt)
            return
        if not costs_enough:
            raise not_enough(price, policy)
        spending = Spending(
            targets=row_questions.targets(session, asked),
            loss=loss,
            unit=curator.unit,
            relation=policy_ledger.RELATION,
            mechanism=planned.mechanism,
            parameters={**facts, "rows of a unit": asked.rows},
            request=request,
        )
        curator.require_answerable(
            data.version, lambda reader: reader.require_plan_of_rows(asked.relation), spending=spending
        )
        read = ChargedRead(
            gate=curator.gate(session.analyst), spending=spending, key=key, version=data.version,
            current_version=curator.version,
        )  # fmt: skip
        try:
            done = read.release(lambda: row_questions.read_rows(session, asked), planned.train)
        except KeyReused:  # asked elsewhere, on other accounts, since we looked
            raise InProgress from None
        except WorkEnded:
            failed = read.find()
            position = failed.receipt.position if failed else 0
            _require_few_failures(session, besides=position)
            raise Held(position) from None
        _require_few_failures(session, besides=done.receipt.position)  # others may have failed meanwhile
        planned.finish(done.answer, done.receipt)


def _require_few_failures(session: AnalystSession, *, besides: int | None = None) -> None:
    curator = session.curator
    policy_ledger.require_few_failures(curator.ledger, curator.policy, session.analyst, besides=besides)


def _earlier(session: AnalystSession, digest: str) -> tuple[RequestStatus | None, str]:
    """Return the last stored fit of these facts, and the key of the next. Raise `Held` if a fit failed."""
    gate, stored = Gate(session.curator.ledger, principal=session.analyst), None
    for repeat in range(_MOST_REPEATS):
        key = f"fit {digest}:{repeat}"
        status = gate.find(key)
        if status is None:
            return stored, key
        if status.state is RequestState.OPEN:
            raise InProgress
        if status.state is RequestState.ANSWERED:
            stored = status
        elif policy_ledger.is_held(session.curator.policy, status.receipt.position):
            raise Held(status.receipt.position)
    raise BadParameter("fresh", f"was asked {_MOST_REPEATS:,} times for this fit: change a setting")
