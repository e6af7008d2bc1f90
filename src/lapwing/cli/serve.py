"""`lapwing serve`: the door to the data, for analysts, stewards and officers.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lapwing.cli import console

PORT = 8400


def serve(
    folder: Annotated[
        Path, Argument(metavar="DIR", help="The folder with the policies, and server.toml if there is one.")
    ],
    *,
    host: Annotated[
        str, Option(help="Listen on this address. Others than 127.0.0.1 need TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="The port; 0 for a free one.")] = PORT,
    tls_cert: Annotated[
        Path | None, Option("--tls-cert", help="The certificate, with its chain (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, Option("--tls-key", help="The key of the certificate (PEM).")] = None,
    behind_tls_proxy: Annotated[
        bool, Option("--behind-tls-proxy", help="A proxy with TLS is in front, and nobody else gets here.")
    ] = False,
    workers: Annotated[
        int,
        Option(min=1, max=64, help="How many processes serve. Each opens the data; all share the port."),
    ] = 1,
    log: Annotated[
        Path | None, Option(help="Append a line for each request to this file; else to standard error.")
    ] = None,
) -> None:
    """Serve the data sets of a folder: an HTTP API and a web console, for people with accounts."""
    from lapwing.server.workers import ServedHow, serve_with_workers
    from lapwing.web.serving import require_encrypted
    from lapwing.web.serving import serve as run

    has_tls = tls_cert is not None
    if workers > 1:  # they load the rest, and this process does not
        how = ServedHow(folder, host, port, tls_cert, tls_key, behind_tls_proxy, log)
        serve_with_workers(how, workers, ready=lambda address: print(f"Serving at {address}", flush=True))
        return
    from lapwing.server.app import create_app
    from lapwing.server.logs import LineLog
    from lapwing.server.services import Services
    from lapwing.server.settings import read_settings

    require_encrypted(host, has_tls=has_tls, behind_tls_proxy=behind_tls_proxy)
    settings = read_settings(folder, host=host, has_tls=has_tls, behind_tls_proxy=behind_tls_proxy)
    with console.os_errors_told(), console.working("opening the data"):
        services = Services.open(settings)

    def ready(address: str) -> None:
        print(f"Serving {', '.join(services.sets.names())} at {address}", flush=True)

    with closing(services), suppress(KeyboardInterrupt):
        run(
            create_app(services, write=LineLog(log).write),
            host=host,
            port=port,
            certificate=tls_cert,
            key=tls_key,
            behind_tls_proxy=behind_tls_proxy,
            ready=ready,
        )
