"""Lapwing: differential privacy for every trust model, on one lifetime ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lapwing.sql.dataset import Dataset as Dataset
    from lapwing.sql.dataset import open as open  # noqa: A004

__all__ = ["Dataset", "open"]


def __getattr__(name: str) -> Any:
    """Engines are loaded when a data set is opened: whoever wants noise alone does not wait for them."""
    if name in __all__:
        from lapwing.sql import dataset  # noqa: PLC0415

        return getattr(dataset, name)
    raise AttributeError(f"module 'lapwing' has no attribute {name!r}")
