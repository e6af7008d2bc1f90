"""Check the Python reference: every public name is on the page, and its docstring has what readers need.

MkDocs calls `on_page_markdown` when it builds the site, so that `make docs` fails for an undocumented name.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

PACKAGES = (
    "lapwing",
    "lapwing.ledger",
    "lapwing.survey",
    "lapwing.parties",
    "lapwing.learn",
    "lapwing.publish",
    "lapwing.audit",
    "lapwing.noise",
    "lapwing.mechanisms",
    "lapwing.questions",
)
PAGE = "reference/python.md"


def public_names() -> Iterator[tuple[str, Any]]:
    """Yield each public name and its value. A value that two packages export has its shorter name."""
    seen = set()
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if name != "__version__" and not inspect.ismodule(value) and id(value) not in seen:
                seen.add(id(value))
                yield f"{package}.{name}", value


def missing_sections(value: Any) -> list[str]:
    """Return the docstring sections that apply to a function or class, and that it does not have."""
    if not callable(value):
        return []
    wanted = ["Example"]
    if inspect.isclass(value):
        # A class that is opened or created has Args there.
        is_built = not issubclass(value, Exception | enum.Enum) and not hasattr(value, "open")
        wanted += ["Args"] * (is_built and bool(inspect.signature(value).parameters))
    else:
        signature = inspect.signature(value)
        wanted += ["Args"] * bool(signature.parameters)
        wanted += ["Returns"] * (signature.return_annotation not in (None, "None"))
        wanted += ["Raises"] * _raises(value)
    text = value.__doc__ or ""
    text = text.replace("Attributes:", "Args:") if inspect.isclass(value) else text  # of named tuples
    missing = [name for name in wanted if not re.search(rf"^\s*{name}:$", text, re.MULTILINE)]
    if "Example" not in missing and ">>> " not in text and "```python" not in text:
        missing.append("Example that runs")
    return missing


def _raises(function: Any) -> bool:
    """Return whether the function's own lines raise an error."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def mistakes(page: str) -> list[str]:
    """Return what is missing on the reference page, and in the docstrings of public names."""
    shown = set(re.findall(r"^::: (\S+)$", page, re.MULTILINE))
    found = []
    for name, value in public_names():
        if name not in shown:
            found.append(f"{name} is not on the page {PAGE}")
        if missing := missing_sections(value):
            found.append(f"{name} has no {', '.join(missing)} in its docstring")
    return found


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """End the build if the reference lacks something."""
    if page.file.src_uri == PAGE and (found := mistakes(markdown)):
        from mkdocs.exceptions import PluginError  # noqa: PLC0415 (tests need no mkdocs)

        raise PluginError("\n".join(found))
