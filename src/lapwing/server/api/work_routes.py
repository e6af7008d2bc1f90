"""Routes of releases, models and audits: what is declared and done, and the files that were written."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from lapwing.server.api.route import READERS, ApiRoute, Call, json_reply
from lapwing.server.data.work_files import WorkFile, WorkKind, file_type

BYTES = "application/octet-stream"
_WORK = {
    "id": "town-rows-bundle", "title": "town-rows", "file": "town-rows-bundle/", "state": "released",
    "words": "a bundle", "data": ["town"], "facts": {"Method": "adaptive"}, "files": ["bundle.json"],
}  # fmt: skip


def work_json(work: WorkFile) -> dict[str, Any]:
    """Return a release, model or audit."""
    return {
        "id": work.id,
        "title": work.title,
        "file": work.file,
        "state": work.state,
        "words": work.words,
        "data": None if work.data is None else sorted(work.data),
        "facts": dict(work.facts),
        "files": list(work.files),
    }


def _list(call: Call, *, kind: WorkKind) -> Response:
    works = call.services.works.all_of(call.person, kind)
    return json_reply({kind.value: [work_json(work) for work in works]})


def _file(call: Call, *, kind: WorkKind) -> Response:
    name = call.part("file")
    content = call.services.works.content(call.person, kind, call.part("work"), name)
    shown = "".join(
        letter if (letter.isascii() and letter.isalnum()) or letter in "-._" else "_" for letter in name
    )
    headers = {"Content-Disposition": f'attachment; filename="{shown}"'}
    return Response(content, headers=headers, media_type=file_type(name))


def list_releases(call: Call) -> Response:
    """Return declared releases and bundles of data that the person has a role for."""
    return _list(call, kind=WorkKind.RELEASES)


def list_models(call: Call) -> Response:
    """Return pipelines and their runs, of data that the person has a role for."""
    return _list(call, kind=WorkKind.MODELS)


def list_audits(call: Call) -> Response:
    """Return audit runs that the person may see."""
    return _list(call, kind=WorkKind.AUDITS)


def release_file(call: Call) -> Response:
    """Return a file of a bundle."""
    return _file(call, kind=WorkKind.RELEASES)


def model_file(call: Call) -> Response:
    """Return a file of a run: its card, or the model if it was accepted. Officers get cards."""
    return _file(call, kind=WorkKind.MODELS)


def audit_file(call: Call) -> Response:
    """Return an audit run."""
    return _file(call, kind=WorkKind.AUDITS)


ROUTES = (
    ApiRoute("GET", "/v1/releases", READERS, list_releases, "Declared releases, and bundles.",
             example={"releases": [_WORK]}),
    ApiRoute("GET", "/v1/models", READERS, list_models, "Pipelines, and their runs."),
    ApiRoute("GET", "/v1/audits", READERS, list_audits, "Audit runs."),
    ApiRoute("GET", "/v1/releases/{work}/files/{file:path}", READERS, release_file, "A file of a bundle.",
             kind=BYTES),
    ApiRoute("GET", "/v1/models/{work}/files/{file:path}", READERS, model_file, "A file of a run.",
             kind=BYTES),
    ApiRoute("GET", "/v1/audits/{work}/files/{file:path}", READERS, audit_file, "An audit run.",
             kind=BYTES),
)  # fmt: skip
