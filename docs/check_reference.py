"""Check the Python reference: every public name is on the page of its package, and nothing else is.

Each page begins with an example, and each docstring has what readers need. MkDocs calls `on_page_markdown`
when it builds the site, so that `make docs` fails for an undocumented name. A line
`<!-- every name of PACKAGE -->` on a page stands for all public names of a package.
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

PAGES = {  # of each package
    "lapwing": "reference/python.md",
    "lapwing.ledger": "reference/lapwing.ledger.md",
    "lapwing.survey": "reference/lapwing.survey.md",
    "lapwing.parties": "reference/lapwing.parties.md",
    "lapwing.learn": "reference/lapwing.learn.md",
    "lapwing.publish": "reference/lapwing.publish.md",
    "lapwing.audit": "reference/lapwing.audit.md",
    "lapwing.noise": "reference/lapwing.noise.md",
    "lapwing.mechanisms": "reference/lapwing.mechanisms.md",
    "lapwing.losses": "reference/lapwing.losses.md",
    "lapwing.questions": "reference/lapwing.questions.md",
    "lapwing.client": "reference/lapwing.client.md",
}
MODULES = {"lapwing.errors": "reference/errors.md"}  # each is shown as a whole
LONGEST_EXAMPLE = 16  # lines with text


def public_names() -> Iterator[tuple[str, Any]]:
    """Yield each public name and its value. A value that two packages export has its shorter name."""
    seen = set()
    for package in PAGES:
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


def with_every_name(text: str) -> str:
    """Return a page with the names that stand behind each `<!-- every name of PACKAGE -->`."""
    names = [name for name, _ in public_names()]

    def listed(package: re.Match[str]) -> str:
        inside = [name for name in names if name.rpartition(".")[0] == package[1]]
        return "\n".join(f"::: {name}" for name in sorted(inside))

    return re.sub(r"^<!-- every name of (\S+) -->$", listed, text, flags=re.MULTILINE)


def mistakes(package: str, text: str) -> list[str]:
    """Return what is wrong with the page of a package, and with the docstrings of its names."""
    page, mistaken, text = PAGES[package], [], with_every_name(text)
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    names = {name: value for name, value in public_names() if name.rpartition(".")[0] == package}
    for name, value in names.items():
        if name not in shown:
            mistaken.append(f"{name} is not on the page {page}")
        if missing := missing_sections(value):
            mistaken.append(f"{name} has no {', '.join(missing)} in its docstring")
    mistaken += [
        f"{name} is on the page {page}, and is no public name" for name in shown if name not in names
    ]
    example = re.search(r"^```python\n(.*?)^```", text.partition("\n:::")[0], re.MULTILINE | re.DOTALL)
    lines = [line for line in example[1].splitlines() if line.strip()] if example else []
    if not 0 < len(lines) <= LONGEST_EXAMPLE:
        mistaken.append(f"{page} does not begin with an example of at most {LONGEST_EXAMPLE} lines")
    return mistaken


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page with all names. End the build if a page of the reference lacks something."""
    for package, path in PAGES.items():
        if page.file.src_uri == path and (mistaken := mistakes(package, markdown)):
            from mkdocs.exceptions import PluginError  # noqa: PLC0415 (tests need no mkdocs)

            raise PluginError("\n".join(mistaken))
    return with_every_name(markdown)
