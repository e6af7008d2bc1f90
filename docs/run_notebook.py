"""Run a notebook of the tutorials: `python docs/run_notebook.py [--check] docs/tutorials/orders.ipynb`.

The cells run in a new folder, in IPython, and their outputs are stored in the notebook. With --check
nothing is stored. The first cell that fails ends it with status 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

SHOWN_FOLDER = "/home/ann/orders"  # stands for the folder of the run
KINDS = ("text/html", "text/plain", "image/svg+xml")


def main(arguments: Sequence[str]) -> int:
    """Run the notebook that the last argument names."""
    *options, name = arguments or [""]
    if not name.endswith(".ipynb") or options not in ([], ["--check"]):
        print("usage: python docs/run_notebook.py [--check] NOTEBOOK", file=sys.stderr)
        return 2
    path = Path(name).absolute()
    notebook = json.loads(path.read_text(encoding="utf-8"))
    before = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            failed = run_cells(notebook, folder)
        finally:
            os.chdir(before)
    if failed:
        print(failed, file=sys.stderr)
        return 1
    if not options:
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def run_cells(notebook: dict[str, Any], folder: str) -> str:
    """Run all code cells and put in their outputs. Return the first error, or ""."""
    os.environ["IPYTHONDIR"] = os.path.join(folder, ".ipython")  # nothing is left in the home of the user
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        with capture_output() as captured:
            done = shell.run_cell("".join(cell["source"]), store_history=True)
        if not done.success:
            return f"cell {number}: {captured.stdout}{captured.stderr}{done.error_in_exec!r}"
        cell["execution_count"] = number
        cell["outputs"] = [
            *_stream(captured.stdout if done.result is None else _before_result(captured.stdout), folder),
            *[_shown("display_data", one.data, folder) for one in captured.outputs],
        ]
        if done.result is not None:
            data, _ = shell.display_formatter.format(done.result)
            cell["outputs"].append({**_shown("execute_result", data, folder), "execution_count": number})
    return ""


def _before_result(text: str) -> str:
    """Return what a cell printed before IPython printed its result."""
    return text.split("Out[", maxsplit=1)[0]


def _stream(text: str, folder: str) -> list[dict[str, Any]]:
    lines = text.replace(folder, SHOWN_FOLDER).splitlines(keepends=True)
    return [{"name": "stdout", "output_type": "stream", "text": lines}] if text.strip() else []


def _shown(kind: str, data: dict[str, Any], folder: str) -> dict[str, Any]:
    known = {
        name: str(data[name]).replace(folder, SHOWN_FOLDER).splitlines(keepends=True)
        for name in KINDS
        if name in data
    }
    return {"data": known, "metadata": {}, "output_type": kind}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
