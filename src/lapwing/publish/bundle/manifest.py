"""The manifest of a bundle: what the release is, a digest of every file, and the ledger's signature.

Claim    a bundle that passes has exactly the files that the ledger's holder signed, byte for byte.
Because  the manifest has the SHA-256 digest of every other file, and the signature covers its values. Its
         bytes are the only ones that stand for these values: fields have one order, none is written
         twice, and the signature has lower-case digits.
Test     tests/publish/bundle/test_verified_bundle.py
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, NoReturn

from lapwing.canonical_json import canonical_json
from lapwing.config.values import kind_of
from lapwing.core.exact import float_up
from lapwing.errors import BadParameter, Unavailable
from lapwing.ledger.accountant.forms import is_hex
from lapwing.ledger.keys import good_signature
from lapwing.storage.private_file import sync_to_disk

FORM = "lapwing bundle 2"
OLD_FORM = "lapwing bundle 1"  # it has no notes, and its pages are in older words
MANIFEST = "bundle.json"
LARGEST_MANIFEST = 1 << 24
_SIGNED = b"lapwing bundle\x00"
_FIELDS = {
    "form": str, "name": str, "method": str, "ledger": str, "key": str, "charge": int, "answer": int,
    "notes": list, "privacy": dict, "files": dict, "signature": str,
}  # fmt: skip


def signed_message(manifest: Mapping[str, Any]) -> bytes:
    """Return the bytes that the ledger signs: a digest of everything but the signature."""
    said = {name: value for name, value in manifest.items() if name != "signature"}
    return _SIGNED + sha256(canonical_json(said).encode()).digest()


def privacy_numbers(privacy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest's `privacy` with ρ, ε and δ as numbers, rounded up. A bundle has exact texts."""
    return {
        name: float_up(Fraction(value)) if name in ("rho", "epsilon", "delta") else value
        for name, value in privacy.items()
    }


def write_bundle(
    folder: Path, files: Mapping[str, bytes], about: Mapping[str, Any], sign: Callable[[bytes], bytes]
) -> dict[str, Any]:
    """Write all files and the manifest into a new folder, which appears whole or not at all."""
    manifest = {"form": FORM, **about, "files": {name: _digest(files[name]) for name in sorted(files)}}
    manifest["signature"] = sign(signed_message(manifest)).hex()
    text = _text(manifest)
    with _new_folder(folder) as place:
        for name, content in {**files, MANIFEST: text.encode()}.items():
            path = place / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            sync_to_disk(path)
    return manifest


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"


def require_new_folder(folder: Path) -> None:
    """Refuse a folder that a bundle cannot be written to. Nothing was charged so far."""
    if os.path.islink(folder):
        raise BadParameter("out", f"{folder} is a link. Name the folder itself")
    if not folder.name or folder.resolve() == Path.cwd():
        raise BadParameter("out", "must be a new folder, not the one that you are in")
    with _new_folder(folder, keep=False):
        pass


@contextmanager
def _new_folder(folder: Path, *, keep: bool = True) -> Iterator[Path]:
    """Yield a new folder beside the wanted one, and rename it when the block ends, unless not to keep."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        yield beside
        if not keep:
            return
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        os.rename(beside, folder)
        sync_to_disk(folder.parent)
    except OSError as error:
        if not keep:
            raise BadParameter("out", f"{folder} cannot be written ({error.strerror})") from None
        raise Unavailable(
            f"the bundle {folder} cannot be written ({error.strerror}). What was measured is stored: run "
            "the release again, and nothing is charged"
        ) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _refuse(_: str) -> NoReturn:
    raise ValueError


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a bundle. Raises BadParameter if there is none, or it is not of its form."""
    path = folder / MANIFEST
    if not path.is_file() or path.is_symlink() or path.stat().st_size > LARGEST_MANIFEST:
        raise BadParameter("folder", f"{folder} is no bundle: it has no {MANIFEST}")
    text = path.read_bytes()
    try:
        manifest = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BadParameter("folder", f"{path} is not JSON") from None
    if not isinstance(manifest, dict) or manifest.get("form") not in (FORM, OLD_FORM):
        raise BadParameter("folder", f"{path} is not of the form {FORM!r}")
    fields = {
        name: kind for name, kind in _FIELDS.items() if name != "notes" or manifest["form"] != OLD_FORM
    }
    for name, kind in fields.items():
        if type(manifest.get(name)) is not kind:
            raise BadParameter("folder", f"{path}: {name} is {kind_of(manifest.get(name))}")
    if tuple(manifest) != tuple(fields) or list(manifest["files"]) != sorted(manifest["files"]):
        raise BadParameter("folder", f"{path} has other fields, or another order, than a bundle has")
    if _text(manifest).encode("utf-8", "surrogatepass") != text:
        raise BadParameter(
            "folder", f"{path} was written by something else: its bytes are not those of a bundle"
        )
    return manifest


def signature_findings(manifest: Mapping[str, Any], key: str | None) -> Iterator[str]:
    """Yield what is wrong with the signature. `key` is the ledger's, from elsewhere; None if not known."""
    if key is not None and manifest["key"] != key:
        yield "the bundle is signed with another key than the one that was given"
        return
    if not is_hex(manifest["key"], 64) or not is_hex(manifest["signature"], 128):
        yield "the key or the signature of the bundle is not of its form"
        return
    own, signature = bytes.fromhex(manifest["key"]), bytes.fromhex(manifest["signature"])
    if not good_signature(own, signed_message(manifest), signature):
        yield "the signature does not fit: bundle.json was changed after it was signed"


def changed_files(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each file that is missing, changed or not in the manifest."""
    listed = {str(name): digest for name, digest in manifest["files"].items()}
    there = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() or path.is_symlink()
    }
    for name in sorted(listed):
        if name not in there:
            yield f"{name} is missing"
        elif there[name].is_symlink() or not there[name].is_file():
            yield f"{name} is not a plain file"
        elif _digest_of_file(there[name]) != listed[name]:
            yield f"{name} was changed"
    for name in sorted(set(there) - set(listed) - {MANIFEST}):
        yield f"{name} does not belong to the bundle"


def _digest_of_file(path: Path) -> str:
    with open(path, "rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
