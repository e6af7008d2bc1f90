"""Several processes that serve one port: each opens the data for itself, and one that ends is replaced.

Claim    a worker that is killed takes no answer with it: what it had charged is stored or held in the
         ledger, and the others serve on.
Because  workers share nothing but the port and files that are made to be shared; each is a new process (a
         ledger refuses forks), and what one of them keeps in memory can be made again.
Test     tests/server/test_workers.py
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType

from lapwing.errors import LapwingError, Unavailable
from lapwing.web.serving import bound_socket, require_encrypted

SHORTEST_LIFE = 2.0  # seconds: a worker that ends earlier is not replaced at once
_LOOK_EVERY = 0.5  # seconds between two looks at a stop
_STOPPING = 30.0  # seconds for workers to store what was paid for
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class ServedHow:
    """What a worker needs to know: the folder, the address, TLS, and the log."""

    folder: Path
    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    behind_tls_proxy: bool = False
    log: Path | None = None


@dataclass
class _Worker:
    process: SpawnProcess
    told: Connection  # from the worker: its address, or why it ended
    alive: Connection  # closed with this process: then the worker ends, too
    began: float = field(default_factory=time.monotonic)


def serve_with_workers(how: ServedHow, count: int, *, ready: Callable[[str], None]) -> None:
    """Serve with several processes until a signal ends it. `ready` is called once the port is open.

    Raises:
        BadParameter: If the address cannot be used.
        Unavailable: If a worker cannot begin. The error says why.
    """
    has_tls = how.certificate is not None
    require_encrypted(how.host, has_tls=has_tls, behind_tls_proxy=how.behind_tls_proxy)
    stop = threading.Event()
    guarded = bound_socket(how.host, how.port)  # only plain sockets can be given to processes
    with socket.socket(fileno=guarded.detach()) as bound, _signals(stop):
        workers = [_start(how, bound) for _ in range(count)]
        try:
            _follow(how, bound, workers, stop, ready)
        finally:
            for worker in workers:
                worker.process.terminate()
            for worker in workers:
                worker.process.join(_STOPPING)
                worker.process.kill()


def _follow(
    how: ServedHow,
    bound: socket.socket,
    workers: list[_Worker],
    stop: threading.Event,
    ready: Callable[[str], None],
) -> None:
    """Replace workers that end, until told to stop. The first one that is ready opens the port."""
    is_ready = False
    while not stop.is_set():
        wait([*(one.told for one in workers), *(one.process.sentinel for one in workers)], _LOOK_EVERY)
        for place, worker in enumerate(workers):
            with suppress(EOFError, OSError):
                while worker.told.poll():
                    address, why = worker.told.recv()
                    if why:
                        raise Unavailable(why)
                    if not is_ready:
                        is_ready = True
                        ready(address)
            if not worker.process.is_alive() and not stop.is_set():
                if time.monotonic() - worker.began < SHORTEST_LIFE:
                    time.sleep(SHORTEST_LIFE)
                worker.alive.close()
                workers[place] = _start(how, bound)


def _start(how: ServedHow, bound: socket.socket) -> _Worker:
    told, tells = _SPAWN.Pipe(duplex=False)
    watches, alive = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=work, args=(how, bound, tells, watches))
    process.start()
    tells.close()
    watches.close()
    return _Worker(process, told, alive)


class _signals:  # noqa: N801 (a context)
    """Turns signals that end a server into an event."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        def end(_: int, __: FrameType | None) -> None:
            self._stop.set()

        self._before = {each: signal.signal(each, end) for each in (signal.SIGTERM, signal.SIGINT)}

    def __exit__(self, *_: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)


def work(how: ServedHow, bound: socket.socket, tells: Connection, watches: Connection) -> None:
    """Serve in this process, until a signal or the end of the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all: the parent decides
    threading.Thread(target=_end_with_parent, args=(watches,), daemon=True).start()
    from lapwing.server.app import create_app  # noqa: PLC0415 (the parent needs none of it)
    from lapwing.server.logs import LineLog  # noqa: PLC0415
    from lapwing.server.services import Services  # noqa: PLC0415
    from lapwing.server.settings import read_settings  # noqa: PLC0415
    from lapwing.web.serving import serve  # noqa: PLC0415

    has_tls = how.certificate is not None
    try:
        settings = read_settings(
            how.folder, host=how.host, has_tls=has_tls, behind_tls_proxy=how.behind_tls_proxy
        )
        services = Services.open(settings)
    except (LapwingError, OSError) as error:
        tells.send(("", f"a worker cannot begin. {error}"))
        return
    with closing(services):
        serve(
            create_app(services, write=LineLog(how.log).write),
            host=how.host,
            port=how.port,
            certificate=how.certificate,
            key=how.key,
            behind_tls_proxy=how.behind_tls_proxy,
            ready=lambda address: tells.send((address, "")),
            bound=bound,
        )


def _end_with_parent(watches: Connection) -> None:
    with suppress(EOFError, OSError):
        watches.recv()
    os.kill(os.getpid(), signal.SIGTERM)
