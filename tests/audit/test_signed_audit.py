"""Signatures of audit runs."""

from __future__ import annotations

import json

from lapwing.audit import StageBudget, cases, run_audit
from lapwing.audit.audit_run import EXACT_STAGES
from lapwing.audit.signed_audit import is_signed_by, signed_run
from lapwing.ledger.keys import SigningKey

KEY = SigningKey(bytes(range(32)))


def test_a_run_keeps_its_signature_through_json_and_no_value_can_be_changed() -> None:
    report = run_audit(cases()[:1], StageBudget(seconds=1, is_thorough=False), stages=EXACT_STAGES)
    signed = json.loads(json.dumps(signed_run(report.to_json(), KEY)))
    assert is_signed_by(signed, KEY.public)
    assert not is_signed_by(signed, SigningKey(bytes(32)).public)
    for name, value in signed.items():
        assert not is_signed_by({**signed, name: "other"}, KEY.public), name
        assert not is_signed_by({key: one for key, one in signed.items() if key != name}, KEY.public), name
        assert not is_signed_by({**signed, name: [value]}, KEY.public), name
