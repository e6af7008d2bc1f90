"""List all pages of arguments in the navigation of the site, README first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

FIRST = "arguments/README.md"


def pages(docs: Path) -> list[str]:
    """Return the pages of arguments, in their order."""
    found = [path.relative_to(docs).as_posix() for path in (docs / "arguments").glob("*.md")]
    return sorted(found, key=lambda page: (page != FIRST, page))


def on_config(config: Any) -> Any:
    """Put the pages into the navigation that mkdocs.yml gives."""
    for entry in config["nav"]:
        if entry.get("Arguments") == FIRST:
            entry["Arguments"] = pages(Path(config["docs_dir"]))
    return config
