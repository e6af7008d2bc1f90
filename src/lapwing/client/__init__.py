"""A client of a Lapwing server. It needs httpx alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapwing.lazy import lazy_names

if TYPE_CHECKING:
    from lapwing.client.connecting import connect as connect
    from lapwing.client.remote_answer import RemoteAnswer as RemoteAnswer
    from lapwing.client.remote_batch import RemoteBatch as RemoteBatch
    from lapwing.client.remote_dataset import RemoteDataset as RemoteDataset
    from lapwing.client.remote_plan import RemotePlan as RemotePlan
    from lapwing.client.replied_errors import RequestRefused as RequestRefused

_HOMES = {
    "RemoteAnswer": "remote_answer",
    "RemoteBatch": "remote_batch",
    "RemoteDataset": "remote_dataset",
    "RemotePlan": "remote_plan",
    "RequestRefused": "replied_errors",
    "connect": "connecting",
}
__all__ = list(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
