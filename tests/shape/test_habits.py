"""The habits of the project: pinned packages and actions, extras that say what they are, report forms."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_CONTRIBUTORS = {"docs", "dev"}
FROM_THE_CALLER = {"ibis"}  # its expressions come from programs that have it
NOT_IMPORTED = {
    "ipykernel",  # the kernel that runs the cell magic
    "mlflow-skinny",  # provides `mlflow`, as the full package does
}


def _plain(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _packages_of(extra: str) -> set[str]:
    """Return the distributions that an extra names, those of the extras inside it included."""
    found: set[str] = set()
    for text in EXTRAS[extra]:
        requirement = Requirement(text)
        if requirement.name == "lapwing":
            found.update(*map(_packages_of, requirement.extras))
        else:
            found.add(_plain(requirement.name))
    return found


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().split()
    return {_plain(name): version for name, version in (line.split("==") for line in lines)}


def _imported() -> set[str]:
    """Return the top names of all packages that the source imports and that are not Python's or ours."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    found |= {alias.name.split(".")[0] for alias in node.names}
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"lapwing"}


def test_all_holds_every_extra_that_users_may_want() -> None:
    [everything] = EXTRAS["all"]
    assert Requirement(everything).extras == set(EXTRAS) - FOR_CONTRIBUTORS - {"all"}


def test_what_the_source_imports_is_required_and_what_is_required_is_imported() -> None:
    provided = packages_distributions()
    base = {_plain(Requirement(text).name) for text in PROJECT["dependencies"]}
    declared = base | _packages_of("all")
    imported = _imported() - FROM_THE_CALLER
    missing = [name for name in imported if not declared & set(map(_plain, provided.get(name, [name])))]
    assert sorted(missing) == [], "declare them in pyproject.toml"
    used = {_plain(name) for top in imported for name in provided[top]}
    assert declared - used - NOT_IMPORTED == set(), "nothing imports them"


def test_every_extra_that_a_refusal_names_exists() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"MissingExtra\(\s*\"(\w+)\"", text))
    assert named == set(EXTRAS) - FOR_CONTRIBUTORS - {"all"}


def test_every_package_is_pinned_also_those_that_packages_need() -> None:
    """Followed through the metadata of what is installed: for this Python, on this system."""
    pins, seen = _pins(), set()
    waiting = [Requirement(text) for texts in (PROJECT["dependencies"], *EXTRAS.values()) for text in texts]
    while waiting:
        requirement = waiting.pop()
        for extra in {"", *requirement.extras}:
            name = _plain(requirement.name)
            if name == "lapwing" or (name, extra) in seen:
                continue
            seen.add((name, extra))
            assert name in pins, f"{name} has no version in constraints.txt"
            for text in distribution(name).requires or []:
                inner = Requirement(text)
                if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                    waiting.append(inner)
    for name, _ in seen:
        assert distribution(name).version.partition("+")[0] == pins[name], name


def test_every_range_holds_the_pinned_version() -> None:
    pins = _pins()
    for text in [*PROJECT["dependencies"], *(text for texts in EXTRAS.values() for text in texts)]:
        requirement = Requirement(text)
        if requirement.name != "lapwing":
            assert pins[_plain(requirement.name)] in requirement.specifier, text
            assert not any(part.operator == "==" for part in requirement.specifier), (
                "pins are in constraints.txt"
            )


def _workflows() -> dict[str, Any]:
    return {
        path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").iterdir()
    }


def test_workflows_run_make_with_targets_that_exist_and_may_only_read() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflows = _workflows()
    # YAML reads `on` as true.
    assert {name: set(flow[True]) for name, flow in workflows.items()} == {
        "test.yml": {"push", "pull_request"},
        "nightly.yml": {"schedule", "workflow_dispatch"},
    }
    run = {}
    for name, flow in workflows.items():
        assert flow["permissions"] == {"contents": "read"}
        steps = [step for job in flow["jobs"].values() for step in job["steps"]]
        run[name] = [step["run"] for step in steps if "run" in step]
        for command in run[name]:
            program, *wanted = command.split()
            assert program == "make"
            assert set(wanted) <= targets
        for step in steps:
            # A tag can be moved to other code; a commit cannot.
            assert "run" in step or re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])
        assert all(job["runs-on"] == "ubuntu-latest" for job in flow["jobs"].values())
    assert {"make test", "make docs", "make package"} <= set(run["test.yml"])
    assert "make test-all" in run["nightly.yml"]


def test_workflows_run_the_pythons_that_the_metadata_names() -> None:
    flows = _workflows()
    versions = flows["test.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    nightly = flows["nightly.yml"]["jobs"]["all"]["strategy"]["matrix"]["python"]
    assert all(isinstance(version, str) for version in versions)  # 3.10 is not 3.1
    named = [
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]
    ]
    assert versions == [match[1] for match in named if match]
    assert set(nightly) == {versions[0], versions[-1]}
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_issue_forms_ask_for_something_and_send_privacy_problems_elsewhere() -> None:
    forms = {path.stem: path.read_text() for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")}
    assert set(forms) == {"bug", "privacy", "feature", "question", "config"}
    assert yaml.safe_load(forms.pop("config"))["blank_issues_enabled"] is False
    for name, text in forms.items():
        form = yaml.safe_load(text)
        assert form["name"]
        assert form["description"]
        assert any(
            part.get("validations", {}).get("required") or name == "privacy" for part in form["body"]
        )
    assert "SECURITY.md" in forms["bug"]
    assert "SECURITY.md" in forms["privacy"]


def test_commit_hooks_call_the_programs_of_make_lint_and_fetch_nothing() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    called = {hook["entry"].split()[0] for hook in repository["hooks"]}
    assert called == {f".venv/bin/{name}" for name in ("ruff", "mypy", "lint-imports")}


def test_the_citation_has_the_version_and_the_licence_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert citation["title"].lower() == f"lapwing: {PROJECT['description']}".lower()


# Where a user looks for a change. A new area is a new word here.
AREAS = {
    *(
        "Accounting",
        "Auditor",
        "Command line",
        "Docs",
        "Installing",
        "Learning",
        "Ledger",
        "Mechanisms",
        "Noise",
    ),
    *(
        "Notebooks",
        "Parties",
        "Private SQL",
        "Publishing",
        "Python",
        "Reports",
        "Server",
        "Show",
        "Surveys",
    ),
    *("Test vectors", "Time"),
}


def test_the_changelog_says_each_change_in_one_line() -> None:
    """Sections Added, Changed and Fixed; a line is `- **Area**: what a user can do now.` and short."""
    _, *releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert releases
    lines = []
    for release in releases:
        title, *sections = re.split(r"^### ", release, flags=re.MULTILINE)
        assert re.fullmatch(r"\d+\.\d+\.\d+, (not released yet|\d{4}-\d{2}-\d{2})", title.strip())
        heads = [section.partition("\n")[0] for section in sections]
        assert heads == [name for name in ("Added", "Changed", "Fixed") if name in heads]
        lines += [line for section in sections for line in section.splitlines()[1:] if line]
    for line in lines:
        entry = re.fullmatch(r"- \*\*([\w ]+)\*\*: (.{20,})\.", line)
        assert entry, line
        assert entry[1] in AREAS, line
        assert len(line) <= 180, line
    assert len(set(lines)) == len(lines)
    assert PROJECT["version"] in releases[0]
