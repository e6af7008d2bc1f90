"""A real Jupyter kernel in a process of its own, to run cells in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

WITHOUT_WIDGETS = "import sys; sys.modules['ipywidgets'] = None"  # as if it were not installed


@contextmanager
def kernel(folder: Path) -> Iterator[BlockingKernelClient]:
    """Start a kernel without ipywidgets in a folder, and end it."""
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder))
    try:
        run_cell(client, WITHOUT_WIDGETS)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run_cell(client: BlockingKernelClient, code: str) -> str:
    """Run a cell and return what it printed or showed. A cell that raises fails the test."""
    shown: list[str] = []

    def keep(message: dict[str, Any]) -> None:
        content = message["content"]
        shown.append(content.get("text") or content.get("data", {}).get("text/plain", ""))

    reply = client.execute_interactive(code, output_hook=keep, timeout=60)["content"]
    assert reply["status"] == "ok", f"{reply['ename']}: {reply['evalue']}"
    return "".join(shown)
