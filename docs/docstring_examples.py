"""Show examples of docstrings as code: Griffe wants a section "Examples", and ours is "Example"."""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object


class ExampleSections(Extension):
    """Renames the section while the reference is built."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rename it in one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
