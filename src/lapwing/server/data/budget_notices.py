"""Notices when 50, 80 and 95 % of a budget are used: to a web address, or to a command.

Claim    each threshold of an account is told once, whatever the number of processes, also after a restart.
         No request waits for it.
Because  one thread of one process sends at a time: it holds a lock that ends with its process. A row in the
         shared state follows a notice that was delivered; without it, the notice is sent again. A process
         that dies between the two sends it twice: its `id` is then the same.
Test     tests/server/data/test_budget_notices.py
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lapwing.server.data.budget_view import budget_view
from lapwing.server.data.served_data import ServedData, left_text, price_text
from lapwing.server.state import ServerState

PERCENTS = (50, 80, 95)
LOCK = "notices.lock"  # beside the state
_SECONDS = 10.0  # for one notice
_AGAIN = 60.0  # seconds until a notice that failed is sent again
_CLOSING = 2.0  # seconds that a server waits for a notice at its end
Send = Callable[[bytes], None]


class BudgetNotices:
    """Tells the steward how much of a budget is used.

    Args:
        state: The shared state, which knows what was told.
        send: Sends one notice, or raises. None: nobody is told.
    """

    def __init__(self, state: ServerState, send: Send | None) -> None:
        self._state, self._send = state, send
        self._turn, self._wake, self._closed = threading.Lock(), threading.Event(), threading.Event()
        self._due: dict[str, ServedData] = {}
        self._thread: threading.Thread | None = None

    def look(self, data: ServedData) -> None:
        """Look at a budget soon, after a release or a restart: no reply waits for it."""
        if self._send is None:
            return
        with self._turn:
            self._due[data.name] = data
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._work, daemon=True, name="lapwing notices")
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """Stop. What was not told yet is told after the next start."""
        with self._turn:
            self._closed.set()
            thread = self._thread
        self._wake.set()
        if thread is not None:
            thread.join(_CLOSING)

    def _work(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(_AGAIN if self._due else None)
            self._wake.clear()
            with self._turn:
                due, self._due = self._due, {}
            for data in due.values():
                if self._closed.is_set():
                    return
                try:
                    self.tell(data)
                except Exception:  # whatever it was, it is tried again
                    with self._turn:
                        self._due.setdefault(data.name, data)

    def tell(self, data: ServedData) -> list[int]:
        """Tell what was not told yet. Return the percents that were told now.

        Raises:
            Exception: If a notice cannot be delivered. It is not told then.
        """
        send = self._send
        if send is None or not data.curator.has_ledger:
            return []
        view = budget_view(data.curator, people="", with_forecast=False)
        least, told = view.least, list[int]()
        reached = [percent for percent in PERCENTS if 100 * least.used >= percent]
        if all(self._was_told(view.account, percent) for percent in reached):
            return []
        with self._alone():
            for percent in reached:
                if self._was_told(view.account, percent):
                    continue
                notice = {
                    "id": f"{view.account} {percent}",
                    "data": data.name,
                    "account": view.account,
                    "percent": percent,
                    "left": left_text(least.epsilon),
                    "of": price_text(least.of),
                }
                send(json.dumps(notice, ensure_ascii=False).encode())
                with self._state.transaction() as run:
                    run("INSERT OR IGNORE INTO notices VALUES (?, ?)", (view.account, percent))
                told.append(percent)
        return told

    def _was_told(self, account: str, percent: int) -> bool:
        return bool(
            self._state.rows("SELECT 1 FROM notices WHERE account = ? AND percent = ?", account, percent)
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait until no other process sends."""
        path = self._state.path.with_name(LOCK)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


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
