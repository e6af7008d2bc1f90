"""The files of `deploy/` say what the commands and the package understand, and encrypt."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from lapwing.cli import main
from lapwing.errors import BadParameter
from lapwing.web.serving import require_encrypted

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT, CONTAINER = DEPLOY / "lapwing.service", DEPLOY / "Containerfile"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
HARDENED = {
    "NoNewPrivileges": "true", "ProtectSystem": "strict", "ProtectHome": "true", "PrivateTmp": "true",
    "PrivateDevices": "true", "UMask": "0077", "CapabilityBoundingSet": "", "RestrictNamespaces": "true",
    "RestrictSUIDSGID": "true", "SystemCallArchitectures": "native", "User": "lapwing",
}  # fmt: skip


def unit() -> dict[str, str]:
    """The settings of [Service]; of one that is given twice, the last."""
    parser = ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return dict(parser["Service"])


def instructions() -> dict[str, list[str]]:
    """The lines of the Containerfile by their first word."""
    found: dict[str, list[str]] = {}
    for line in CONTAINER.read_text().splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            found.setdefault(word, []).append(rest)
    return found


def commands() -> dict[str, list[str]]:
    """What each file runs, without the program."""
    return {
        "systemd": shlex.split(unit()["ExecStart"])[1:],
        "container": json.loads(instructions()["CMD"][0]),
        "compose": COMPOSE["services"]["lapwing"]["command"],
    }


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options of `lapwing serve`, read as the command line reads them."""
    assert arguments[0] == "serve"
    group: Any = typer.main.get_command(main.app)
    context = group.commands["serve"].make_context("serve", arguments[1:])
    return dict(context.params)


@pytest.mark.parametrize("name", ["systemd", "container", "compose"])
def test_each_file_runs_a_command_that_exists_and_encrypts(name: str) -> None:
    given = parsed(commands()[name])
    require_encrypted(
        given["host"], has_tls=given["tls_cert"] is not None, behind_tls_proxy=given["behind_tls_proxy"]
    )
    assert (given["tls_cert"] is None) == (given["tls_key"] is None)


@pytest.mark.parametrize("name", ["container", "compose"])
def test_without_its_certificate_none_of_them_would_serve(name: str) -> None:
    given = parsed(commands()[name])
    with pytest.raises(BadParameter):
        require_encrypted(given["host"], has_tls=False, behind_tls_proxy=given["behind_tls_proxy"])


def test_the_unit_is_hardened() -> None:
    assert HARDENED.items() <= unit().items()
    writable = set(unit()["ReadWritePaths"].split())
    assert writable == {str(parsed(commands()["systemd"])["folder"])}
    assert f"/var/lib/{unit()['StateDirectory']}/state" == unit()["Environment"].partition("=")[2]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = re.sub(r"(?m)^(User|Group)=.*\n", "", UNIT.read_text())  # the account is not here
    text = text.replace("/opt/lapwing/bin/lapwing", "/bin/true")
    told = []
    for content in (text, text.replace("UMask=", "NoSuchSetting=1\nUMask=")):
        copy = tmp_path / UNIT.name
        copy.write_text(content)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False
        )
        told.append([line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line])
    right, wrong = told
    assert right == []
    assert "NoSuchSetting" in "".join(wrong)


def test_the_container_installs_the_package_with_extras_that_exist() -> None:
    lines = instructions()
    [install] = [line for line in lines["RUN"] if "pip install" in line]
    extras = re.search(r"'\.\[(.*)\]'", install)
    assert extras is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert "--constraint constraints.txt" in install
    for line in lines["COPY"]:
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name
    assert lines["ENTRYPOINT"] == ['["lapwing"]']
    assert "lapwing" in project["scripts"]
    assert lines["USER"] == ["lapwing"]
    port = str(parsed(commands()["container"])["port"])
    assert lines["EXPOSE"] == [port]
    assert f"'127.0.0.1', {port}" in lines["HEALTHCHECK"][0]


def test_the_composition_names_only_what_it_has() -> None:
    services = COMPOSE["services"]
    build = services["lapwing"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == CONTAINER
    for service in services.values():
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source.startswith("./") or source in COMPOSE["volumes"]
        assert set(service.get("depends_on", {})) <= set(services)
        assert service["image"].count(":") == 1 if "image" in service else True
    given = parsed(commands()["compose"])
    assert {path.name for path in (given["tls_cert"], given["tls_key"])} <= set(
        services["lapwing"]["secrets"]
    )
    port = str(given["port"])
    assert services["lapwing"]["ports"] == [f"{port}:{port}"]
    assert str(given["folder"]) in {volume.split(":")[1] for volume in services["lapwing"]["volumes"]}
