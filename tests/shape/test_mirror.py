"""A behaviour's test is found by its module's name: the folders of tests mirror those of the source."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "lapwing"
# Tests of several parts: claims, faults, engines beside each other, journeys, the tree itself.
ACROSS = {"claims", "engines", "faults", "journeys", "shape", "stored", "support"}


def _folders_of_modules() -> dict[str, dict[str, set[str]]]:
    """Return, for each part, the folders in which tests of each module and package may lie.

    Tests of a module lie where the module does, or in a folder with the module's name. Tests of a package
    lie in its folder.
    """
    folders: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path in SOURCE.glob("*/**/*.py"):
        part, *between = path.relative_to(SOURCE).parts[:-1]
        here = "/".join(between)
        if path.name == "__init__.py":
            folders[part][path.parent.name].add(here)
        else:
            folders[part][path.stem] |= {here, "/".join([*between, path.stem])}
    return folders


def test_every_test_has_the_name_of_a_module_and_lies_in_its_folder() -> None:
    folders = _folders_of_modules()
    astray = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        part, *between = path.relative_to(ROOT / "tests").parts[:-1]
        name = path.stem.removeprefix("test_")
        if part not in ACROSS and not any(
            "/".join(between) in places and f"{name}_".startswith(f"{module}_")
            for module, places in folders[part].items()
        ):
            astray.append(str(path.relative_to(ROOT)))
    assert sorted(astray) == [], "name them test_MODULE.py or test_MODULE_aspect.py, where MODULE lies"
