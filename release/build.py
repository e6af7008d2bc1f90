"""Build the wheel and the source distribution twice, compare them byte for byte, and list what they need.

    python -m release.build [FOLDER]        (default: dist)

Nothing of the machine enters the files. Between the two builds the folder, the dates of all files, the
time zone and the order of sets differ. All times inside are those of the last commit, or
`SOURCE_DATE_EPOCH` if it is set. Files that git ignores are not built; an unpacked source distribution
builds itself again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from release.parts import parts_of

ROOT = Path(__file__).parents[1]
BUILD = (sys.executable, "-m", "build", "--no-isolation", "--sdist", "--wheel", "--outdir")
# The date of all files, the time zone, and the seed of the order of sets.
SURROUNDINGS = ((1_000_000_000, "UTC", "1"), (1_700_000_000, "Asia/Tokyo", "2"))
OLDEST_IN_ZIP = 315_532_800  # 1980


def epoch_of(tree: Path) -> int:
    """Return the time that all files of a release have, in seconds since 1970."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    if not (tree / ".git").exists():
        return int((tree / "PKG-INFO").stat().st_mtime)  # the packed time
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, cwd=tree, capture_output=True, check=True).stdout)


def files_of(tree: Path) -> list[Path]:
    """Return the files of a tree, relative to it."""
    if (tree / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=tree, capture_output=True, check=True).stdout.decode()
        names = listed.split("\0")[:-1]
    else:
        [manifest] = tree.glob("src/*.egg-info/SOURCES.txt")
        names = manifest.read_text(encoding="utf-8").splitlines()
    return [Path(name) for name in names if (tree / name).is_file() and ".egg-info" not in name]


def built(tree: Path, folder: Path, epoch: int, surroundings: tuple[int, str, str]) -> dict[str, bytes]:
    """Return the names and bytes of wheel and source distribution, built in a fresh copy of the tree."""
    date, zone, seed = surroundings
    copy, out = folder / "lapwing", folder / "out"
    for name in files_of(tree):
        place = copy / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / name, place)
        place.chmod(0o755 if os.access(tree / name, os.X_OK) else 0o644)
        os.utime(place, (date, date))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    changed = {"SOURCE_DATE_EPOCH": str(epoch), "TZ": zone, "PYTHONHASHSEED": seed}
    command = [*BUILD, str(out)]
    done = subprocess.run(
        command, cwd=copy, env=kept | changed, umask=0o022, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the build failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return {
        path.name: packed_again(path.read_bytes(), epoch) if path.suffix == ".gz" else path.read_bytes()
        for path in sorted(out.iterdir())
    }


def packed_again(archive: bytes, epoch: int) -> bytes:
    """Return a tar.gz archive with sorted members that have one time, no owner, and plain rights."""
    packed, compressed = io.BytesIO(), io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, epoch
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            target.addfile(plain, source.extractfile(member) if member.isfile() else None)
    with gzip.GzipFile(fileobj=compressed, mode="wb", filename="", mtime=epoch) as file:
        file.write(packed.getvalue())
    return compressed.getvalue()


def write_release(tree: Path, out: Path) -> list[Path]:
    """Build twice, and write the files that were equal, their parts and their digests into `out`."""
    epoch = epoch_of(tree)
    if epoch < OLDEST_IN_ZIP:
        raise SystemExit("SOURCE_DATE_EPOCH must be 1980 or later: a wheel cannot have an older time")
    builds = []
    for number, surroundings in enumerate(SURROUNDINGS):
        with tempfile.TemporaryDirectory(prefix="lapwing" + "-again" * number) as folder:
            builds.append(built(tree, Path(folder), epoch, surroundings))
    first, second = builds
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    if differing:
        raise SystemExit(f"two builds differ: {', '.join(differing)}")
    [wheel] = [name for name in first if name.endswith(".whl")]
    constraints = (tree / "constraints.txt").read_text(encoding="utf-8")
    files = first | {wheel.split("-py3")[0] + ".cdx.json": parts_of(first, constraints, epoch)}
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    out.mkdir(parents=True, exist_ok=True)
    for name, content in (files | {"SHA256SUMS": sums.encode()}).items():
        (out / name).write_bytes(content)
    return [out / name for name in files]


if __name__ == "__main__":
    for file in write_release(ROOT, Path(sys.argv[1] if len(sys.argv) > 1 else "dist")):
        print(f"built twice, equal: {file}" if file.suffix != ".json" else f"parts: {file}")
