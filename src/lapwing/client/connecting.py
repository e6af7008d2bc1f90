"""Connecting to a data set of a server."""

from __future__ import annotations

from pathlib import Path

from lapwing.client.address import ServerAddress
from lapwing.client.credentials import find_token
from lapwing.client.remote_dataset import RemoteDataset
from lapwing.client.requests import Requests
from lapwing.errors import BadParameter

PATIENCE = 120.0
FIRST_PATIENCE = 5.0  # until it is known that there is a server


def connect(
    url: str,
    *,
    data: str | None = None,
    token: str | None = None,
    token_file: str | Path | None = None,
    ca: str | Path | None = None,
    timeout: float = 90.0,
    patience: float = PATIENCE,
) -> RemoteDataset:
    """Connect to a data set of a Lapwing server, to ask it as `lapwing.open` asks one on this machine.

    The token comes from `token`, `token_file`, or the environment: LAPWING_TOKEN, or the private file that
    LAPWING_TOKEN_FILE names. Certificates are verified, and plain HTTP is for this machine only.

    Args:
        url: The server and the data set, such as "https://privacy.example.org/visits". The name can be left
            out if the token is for one data set.
        data: The name of the data set, if the address is that of the server alone.
        token: The token.
        token_file: A file with the token, which only its owner can read.
        ca: A file with certificates (PEM) to trust instead of the machine's own, for a CA of your own.
        timeout: The most seconds to wait for one reply.
        patience: The most seconds to repeat a request whose connection was lost, or that came too soon.

    Returns:
        The data set, with `plan`, `release`, `ask`, `left` and others.

    Raises:
        BadParameter: If the address or the token cannot be one, there is no such data set, or the
            certificate is not trusted.
        RequestRefused: If the server does not know the token.
        Unavailable: If the server cannot be reached.
        MissingExtra: If httpx is not installed.

    Example:
        >>> visits = lapwing.connect(url, token=token)
        >>> print(visits.ask("SELECT COUNT(*) AS n FROM visits", epsilon="0.1"))
    """
    address = ServerAddress.of(url)
    requests = Requests(address, find_token(token, token_file), ca=ca, timeout=timeout, patience=patience)
    try:
        seen = requests.get("/v1/data", patience=min(patience, FIRST_PATIENCE))
        names = [str(one["name"]) for one in seen["data"]]
        return RemoteDataset(requests, _chosen(_named(address.data, data), names))
    except BaseException:
        requests.close()
        raise


def _named(of_url: str, given: str | None) -> str:
    if given and of_url not in ("", given):
        raise BadParameter("data", "is given twice, and differs: in the address and as data=…")
    return given or of_url


def _chosen(name: str, names: list[str]) -> str:
    if name in names:
        return name
    listed = ", ".join(names) or "none"
    if name:
        raise BadParameter("url", f"names no data set of this token. Those are: {listed}")
    if len(names) != 1:
        raise BadParameter("url", f"must end with the name of a data set of this token: {listed}")
    return names[0]
