"""The list of parts of a release (SBOM), as CycloneDX JSON.

It is made from the metadata inside the wheel and from constraints.txt: each package that the wheel may
need, at the version with which it was tested, and what needs what. Packages of an extra are optional. What
packages need in turn is read from their installed metadata, for this version of Python; the constraints
must name them.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email import message_from_bytes
from importlib.metadata import distribution
from typing import Any

from packaging.requirements import Requirement

FOR_CONTRIBUTORS = {"dev", "docs"}
_SPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # of RFC 9562, for addresses


def _plain(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _address(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    """Return whether a requirement applies with these extras, for this Python on this system."""
    return requirement.marker is None or any(
        requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
    )


class _Packages:
    """All packages that are needed, found by following requirements."""

    def __init__(self, constraints: str) -> None:
        lines = (line.split("==") for line in constraints.split())
        self._versions = {_plain(name): version for name, version in lines}
        self.needs: dict[str, set[str]] = {}

    def follow(self, requirements: Iterable[Requirement]) -> set[str]:
        """Return the names of the required packages, and note what they need in turn."""
        names = set()
        for requirement in requirements:
            name = _plain(requirement.name)
            names.add(name)
            inner = map(Requirement, distribution(name).requires or [])
            wanted = [one for one in inner if _applies(one, requirement.extras)]
            missing = {_plain(one.name) for one in wanted} - self.needs.get(name, set())
            if name not in self.needs or missing:
                self.needs.setdefault(name, set()).update(missing)
                self.follow(wanted)
        return names

    def part(self, name: str, scope: str) -> dict[str, Any]:
        """Return the entry of a package in the list of parts."""
        if name not in self._versions:
            raise SystemExit(f"{name} has no version in constraints.txt")
        version = self._versions[name]
        part = {"type": "library", "bom-ref": _address(name, version), "name": name, "version": version}
        part |= {"scope": scope, "purl": _address(name, version)}
        licences = distribution(name).metadata.get_all("License-Expression") or []
        return part | ({"licenses": [{"expression": licences[0]}]} if licences else {})

    def address(self, name: str) -> str:
        """Return the address of a package."""
        return _address(name, self._versions[name])


def _reached(names: Iterable[str], needs: Mapping[str, set[str]]) -> set[str]:
    """Return the names, and all that they need in turn."""
    found, waiting = set(), list(names)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += needs[name]
    return found


def parts_of(files: Mapping[str, bytes], constraints: str, epoch: int) -> bytes:
    """Return the list of parts of a release, given its files (one of them the wheel) and their time."""
    [wheel] = [content for name, content in files.items() if name.endswith(".whl")]
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        [about] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(about))
    name, version = str(metadata["Name"]), str(metadata["Version"])
    extras = set(metadata.get_all("Provides-Extra", [])) - FOR_CONTRIBUTORS
    declared = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    outside = [one for one in declared if _plain(one.name) != name]
    packages = _Packages(constraints)
    base = packages.follow(one for one in outside if _applies(one, ()))
    chosen = packages.follow(one for one in outside if _applies(one, extras))
    required = _reached(base, packages.needs)
    own = _address(name, version)
    record: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_SPACE, hashlib.sha256(wheel).hexdigest())}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": name,
                "version": version,
                "description": metadata["Summary"],
                "licenses": [{"expression": metadata["License-Expression"]}],
                "purl": own,
                "components": [
                    {
                        "type": "file",
                        "bom-ref": file,
                        "name": file,
                        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
                    }
                    for file, content in sorted(files.items())
                ],
            },
            "properties": [
                {"name": "lapwing:python", "value": ".".join(platform.python_version_tuple()[:2])}
            ],
        },
        "components": [
            packages.part(name, "required" if name in required else "optional")
            for name in sorted(packages.needs)
        ],
        "dependencies": [
            {"ref": own, "dependsOn": sorted(map(packages.address, base | chosen))},
            *(
                {"ref": packages.address(name), "dependsOn": sorted(map(packages.address, needed))}
                for name, needed in sorted(packages.needs.items())
            ),
        ],
    }
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()
