"""The published description of the API: OpenAPI 3.1, from the table of routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from lapwing.server.api.replies import ARROW, CSV
from lapwing.server.api.route import ApiRoute

TITLE = "Lapwing"
ABOUT = (
    "Differential privacy over HTTP: plan a question for nothing, release it for a price, once. Every ε "
    'and δ is decimal text, such as "0.5". Errors have one form, with the codes of the reference of errors.'
)
_PART = re.compile(r"\{(\w+)(?::(\w+))?\}")
_ERROR = {"$ref": "#/components/schemas/Error"}
_ERRORS = {
    400: "The request is malformed.",
    401: "Nobody is signed in, or the token is not valid.",
    403: "The roles, or the token, do not allow this.",
    404: "There is nothing here for you. What another person has is not told apart from what never was.",
    409: "The question is held, or is being answered: send it again.",
    413: "The request is too long.",
    415: "The content is not JSON.",
    422: "A value is not acceptable, or the budget is too small. Nothing was charged.",
    429: "Too many requests: see Retry-After.",
    503: "The data or the ledger cannot be used now: see Retry-After.",
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                name: {"type": "string"} for name in ("code", "message", "asked", "left", "what_now")
            },
        }
    },
    "examples": [
        {"error": {"code": "over-budget", "message": "asked ε 0.3, but ε 0.12 of 1 is left. …",
                   "asked": "ε 0.3", "left": "ε 0.12 of 1", "what_now": "Ask for ε 0.12 or less."}}
    ],
}  # fmt: skip


def description(app: FastAPI, routes: Iterable[ApiRoute]) -> bytes:
    """Return the description of an application's routes and of those of the API, as JSON."""
    described = get_openapi(title=TITLE, version=version("lapwing"), description=ABOUT, routes=app.routes)
    schemas = described.setdefault("components", {}).setdefault("schemas", {})
    schemas["Error"] = _ERROR_SCHEMA
    described["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": "__Host-lapwing"},
    }
    described["security"] = [{"token": []}, {"session": []}]
    paths = described.setdefault("paths", {})
    for route in routes:
        address = _PART.sub(r"{\1}", route.path)
        paths.setdefault(address, {})[route.method.lower()] = _operation(route, schemas)
    for operations in paths.values():
        for operation in operations.values():
            for status, words in _ERRORS.items():
                operation["responses"].setdefault(str(status), _error_reply(words))
    return json.dumps(described, ensure_ascii=False).encode()


def _error_reply(words: str) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": _ERROR}}}


def _operation(route: ApiRoute, schemas: dict[str, Any]) -> dict[str, Any]:
    parts = [
        {"name": name, "in": "path", "required": True, "schema": _part_schema(kind)}
        for name, kind in _PART.findall(route.path)
    ]
    options = [
        {"name": name, "in": "query", "required": False, "description": words, "schema": {"type": "string"}}
        for name, words in route.options.items()
    ]
    reply: dict[str, Any] = {"schema": {"type": "object"}} if route.kind.endswith("json") else {}
    if route.example is not None:
        reply["example"] = route.example
    content = {route.kind: reply}
    if "format" in route.options and "arrow" in route.options["format"]:
        content |= {CSV: {}, ARROW: {}}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "description": f"{route.respond.__doc__}\n\nRoles: {', '.join(sorted(route.roles))}.",
        "operationId": route.respond.__name__,
        "tags": [route.path.split("/")[2].split(".")[0]],
        "parameters": [*parts, *options],
        "responses": {
            str(route.status): {"description": HTTPStatus(route.status).phrase, "content": content}
        },
    }
    if route.form is not None:
        schema = route.form.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[route.form.__name__] = schema
        form = {"$ref": f"#/components/schemas/{route.form.__name__}"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": form}}}
    elif route.method == "POST" and route.path.endswith("/verify"):
        operation["requestBody"] = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return operation


def _part_schema(kind: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1} if kind == "int" else {"type": "string"}
