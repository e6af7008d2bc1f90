"""Pages from templates, and the stylesheet, script and icon under addresses that name their content.

Claim    no text of a person, a policy or a question becomes markup.
Because  every template escapes what it prints, and a name that is not there is an error.
Test     tests/server/console/test_rendering.py
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from lapwing.web.replies import TYPES

PAGES = Path(__file__).parent / "pages"
FILES = Path(__file__).parent / "files"
FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the console: its address names its content, so browsers keep it for a year."""

    name: str
    address: str
    content: bytes
    kind: str


def _static_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return StaticFile(path.name, f"/files/{digest}/{path.name}", content, TYPES[path.suffix])


class Pages:
    """The templates and files of the console, read once."""

    def __init__(self) -> None:
        self.files = {path.name: _static_file(path) for path in sorted(FILES.iterdir())}
        self._by_address = {one.address: one for one in self.files.values()}
        self._templates = Environment(
            loader=FileSystemLoader(PAGES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.globals["file"] = lambda name: self.files[name].address

    def html(self, template: str, **values: Any) -> str:
        """Return a page or fragment as text."""
        return self._templates.get_template(template).render(**values)

    def reply(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Return a page or fragment as a reply."""
        return HTMLResponse(self.html(template, **values), status)

    def file(self, address: str) -> Response | None:
        """Return a file by its address; None if no file has this content now."""
        found = self._by_address.get(address)
        if found is None:
            return None
        return Response(found.content, headers={"Content-Type": found.kind, "Cache-Control": FOREVER})
