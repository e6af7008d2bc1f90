"""Routes of batches: several questions priced together, and released as one charge, all or none."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from lapwing.server.api.replies import cost_json, plan_values, stored_answer_json
from lapwing.server.api.route import ANALYST, RECEIPT, ApiRoute, Call, json_reply
from lapwing.server.data.batches import BatchForm, StoredBatch

_COST = {"epsilon": "0.5", "delta": "0"}
_BATCH = {"id": "0" * 32, "data": "visits", "cost": _COST, "charged": [0, 1], "plans": []}


def batch_json(stored: StoredBatch) -> dict[str, Any]:
    """Return a batch: its price, and each plan with its own."""
    plan = stored.plan
    return {
        "id": stored.id,
        "data": stored.data,
        "cost": cost_json(plan.cost),
        "charged": list(plan.charged),
        "blocks": None if plan.blocks is None else list(plan.blocks),
        "plans": [plan_values(planned) for planned in plan.plans],
    }


def make_batch(call: Call) -> Response:
    """Plan several questions as one release. Free."""
    return json_reply(
        batch_json(call.services.batches.make(call.person, BatchForm.read(call.body))), status=201
    )


def find_batch(call: Call) -> Response:
    """Return an own batch."""
    return json_reply(batch_json(call.services.batches.find(call.person, call.part("batch"))))


def release_batch(call: Call) -> Response:
    """Release a batch: one charge for all its answers, or none."""
    answers = call.services.batches.release(call.person, call.part("batch"))
    call.request.scope[RECEIPT] = answers[0].receipt.position
    return json_reply({"answers": [stored_answer_json(answer) for answer in answers]})


ROUTES = (
    ApiRoute("POST", "/v1/batches", ANALYST, make_batch, "Plan several questions as one release. Free.",
             form=BatchForm, example=_BATCH, status=201),
    ApiRoute("GET", "/v1/batches/{batch}", ANALYST, find_batch, "A batch of yours.", example=_BATCH),
    ApiRoute("POST", "/v1/batches/{batch}/release", ANALYST, release_batch,
             "Release a batch: one charge for all its answers, or none.", on_grid=True),
)  # fmt: skip
