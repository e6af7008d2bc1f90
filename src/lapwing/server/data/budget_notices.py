"""Notices when 50, 80 and 95 % of a budget are used: to a web address, or to a command.

Claim    each threshold of an account is told once, whatever the number of processes; a notice that could
         not be delivered is tried again with the next release.
Because  a row in the shared state is written before the notice is sent, by one process only, and removed if
         sending fails.
Test     tests/server/data/test_budget_notices.py
"""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

from lapwing.errors import LapwingError
from lapwing.server.data.budget_view import budget_view
from lapwing.server.data.served_data import ServedData, left_text, price_text
from lapwing.server.state import ServerState

PERCENTS = (50, 80, 95)
_SECONDS = 10.0  # for one notice
Send = Callable[[bytes], None]


class BudgetNotices:
    """Tells the steward how much of a budget is used.

    Args:
        state: The shared state, which knows what was told.
        send: Sends one notice, or raises. None: nobody is told.
    """

    def __init__(self, state: ServerState, send: Send | None) -> None:
        self._state, self._send = state, send

    def look(self, data: ServedData) -> None:
        """Look at a budget after a release, in a thread of its own: no reply waits for it."""
        if self._send is not None:
            threading.Thread(target=self.tell, args=(data,), daemon=True).start()

    def tell(self, data: ServedData) -> list[int]:
        """Tell what was not told yet. Return the percents that were told now."""
        send = self._send
        if send is None or not data.curator.has_ledger:
            return []
        try:
            view = budget_view(data.curator, people="", with_forecast=False)
        except LapwingError:
            return []
        least, told = view.least, []
        for percent in PERCENTS:
            if 100 * least.used < percent or not self._claim(view.account, percent):
                continue
            notice = {
                "data": data.name,
                "account": view.account,
                "percent": percent,
                "left": left_text(least.epsilon),
                "of": price_text(least.of),
            }
            try:
                send(json.dumps(notice, ensure_ascii=False).encode())
                told.append(percent)
            except Exception:  # whatever it was, it is tried again
                self._forget(view.account, percent)
        return told

    def _claim(self, account: str, percent: int) -> bool:
        with self._state.transaction() as run:
            added = run("INSERT OR IGNORE INTO notices VALUES (?, ?)", (account, percent))
            return added.rowcount == 1

    def _forget(self, account: str, percent: int) -> None:
        with self._state.transaction() as run:
            run("DELETE FROM notices WHERE account = ? AND percent = ?", (account, percent))


def sender(webhook: str, command: tuple[str, ...]) -> Send | None:
    """Return the function that sends a notice to a web address, or to a command's standard input."""
    if webhook:
        return lambda content: _post(webhook, content)
    return (lambda content: _run(command, content)) if command else None


def _post(address: str, content: bytes) -> None:
    request = urllib.request.Request(  # noqa: S310 (the settings checked its scheme)
        address, content, {"Content-Type": "application/json"}, method="POST"
    )
    with _OPENER.open(request, timeout=_SECONDS):
        pass


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow no redirection: it could lead elsewhere than the steward said."""


_OPENER = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def _run(command: tuple[str, ...], content: bytes) -> None:
    subprocess.run(  # noqa: S603 (the steward's own command, without a shell)
        command, input=content, timeout=_SECONDS, check=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
