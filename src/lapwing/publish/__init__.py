"""Publishing: synthetic tables and census tables, with a bundle that a stranger can verify.

Names are imported at their first use. Whole census tables need scipy (extra `publish`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lapwing.lazy import lazy_names

if TYPE_CHECKING:
    from lapwing.publish.bundle.published_bundle import PublishedBundle
    from lapwing.publish.bundle.verified_bundle import verify_bundle
    from lapwing.publish.publication import Publication
    from lapwing.publish.release_file import load_release

_HOMES = {
    "Publication": "publication",
    "PublishedBundle": "bundle.published_bundle",
    "load_release": "release_file",
    "verify_bundle": "bundle.verified_bundle",
}
__all__ = ["Publication", "PublishedBundle", "load_release", "verify_bundle"]
__getattr__ = lazy_names(__name__, _HOMES)
