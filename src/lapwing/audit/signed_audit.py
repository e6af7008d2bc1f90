"""Signatures of audit runs: a report shows only the runs that its ledger's key signed.

Claim    a run that `is_signed_by` accepts has, value for value, the fields that the key's holder signed.
Because  the signature covers one canonical text of all fields but itself, and of nothing else.
Test     tests/audit/test_signed_audit.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lapwing.canonical_json import canonical_json
from lapwing.ledger.keys import SigningKey, good_signature

_SIGNED = b"lapwing audit\x00"
SIGNATURE = "signature"


def signed_run(fields: Mapping[str, Any], key: SigningKey) -> dict[str, Any]:
    """Return the fields of an audit run with the public key and the signature.

    Args:
        fields: `AuditReport.to_json()`.
        key: The key of the ledger whose reports will show the run.

    Returns:
        The fields to be written as JSON.
    """
    whole = {**fields, "key": key.public.hex()}
    return {**whole, SIGNATURE: key.sign(_signed_bytes(whole)).hex()}


def is_signed_by(document: Mapping[str, Any], public: bytes) -> bool:
    """Return whether the owner of a public key signed exactly these fields."""
    text = document.get(SIGNATURE)
    try:
        signature = bytes.fromhex(text) if isinstance(text, str) else b""
        return good_signature(public, _signed_bytes(document), signature)
    except (ValueError, RecursionError):
        return False


def _signed_bytes(document: Mapping[str, Any]) -> bytes:
    rest = {name: value for name, value in document.items() if name != SIGNATURE}
    return _SIGNED + canonical_json(rest).encode()
