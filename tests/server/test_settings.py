"""Settings: safe without a file, checked with one."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.config.file_table import FileTable
from lapwing.errors import BadFile, BadParameter
from lapwing.server.settings import (
    LOOPBACK_HOSTS,
    LimitsTable,
    NoticesTable,
    OpenIdTable,
    ServerFile,
    ServerSettings,
    ServerTable,
    read_settings,
)
from support.cases import each

ROOT = Path(__file__).parents[2]


def test_a_server_that_is_told_nothing_serves_this_machine_alone(tmp_path: Path) -> None:
    settings = read_settings(tmp_path)
    assert settings.is_loopback
    assert not settings.is_encrypted
    assert settings.hosts == LOOPBACK_HOSTS
    assert settings.open_id is None
    assert not read_settings(tmp_path, host="0.0.0.0", has_tls=True).is_loopback
    assert read_settings(tmp_path, host="0.0.0.0", has_tls=True).hosts == LOOPBACK_HOSTS
    behind = read_settings(tmp_path, behind_tls_proxy=True)
    assert (behind.is_loopback, behind.scheme) == (False, "https")
    assert "10.1.2.3" in read_settings(tmp_path, host="10.1.2.3", has_tls=True).hosts


def test_the_file_says_the_rest(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary\n")
    secret.chmod(0o600)
    (tmp_path / "server.toml").write_text(
        "[server]\n"
        'title = "Ward data"\naddress = "https://Privacy.example.org/"\nhosts = ["other.example.org"]\n'
        'reply_slot = 0.25\nclient_address_header = "X-Forwarded-For"\n'
        "[limits]\nbody_bytes = 65536\nrequests_per_minute = 60\n"
        "[open_id]\n"
        'issuer = "https://id.example.org"\nclient_id = "lapwing"\nclient_secret_file = "secret"\n'
    )
    settings = read_settings(tmp_path)
    assert settings.hosts == LOOPBACK_HOSTS | {"privacy.example.org", "other.example.org"}
    assert (settings.title, settings.address) == ("Ward data", "https://Privacy.example.org")
    assert settings.reply_slot == Fraction(1, 4)
    assert (settings.body_bytes, settings.requests_per_minute) == (65536, 60)
    assert settings.open_id is not None
    assert settings.open_id.client_secret == "canary"
    assert "canary" not in repr(settings)
    secret.chmod(0o644)
    with pytest.raises(BadFile, match="chmod 600") as caught:
        read_settings(tmp_path)
    assert "canary" not in str(caught.value)


@each(
    ("text", "said"),
    [
        ('[server]\nadress = "https://a.example"', 'toml:2: server.adress: unknown key. Did you'),
        ('[server]\naddress = "http://a.example"', "plain HTTP is for this machine only"),
        ('[server]\naddress = "a.example"', "must be like"),
        ('[server]\nhosts = "a.example"', "must be a list of texts"),
        ('[server]\nhosts = ["https://a.example"]', "without scheme and port"),
        ('[server]\nhosts = ["a.example:80"]', "without scheme and port"),
        ("[server]\nreply_slot = 0", "between 0.05 and 10"),
        ("[limits]\nbody_bytes = 1", "must lie between 4,096"),
        ('[open_id]\nissuer = "http://id.example"\nclient_id = "a"', "https://"),
        ('[open_id]\nissuer = "https://id.example"', "client_id: is missing"),
        ('[open_id]\nissuer = "https://i.d"\nclient_id = "a"\nclient_secret_file = "n"', "cannot be read"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_lines(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "server.toml").write_text(text)
    with pytest.raises(BadFile) as caught:
        read_settings(tmp_path)
    assert said in str(caught.value)


def test_every_setting_is_in_the_reference_and_its_example_is_right(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "server.md").read_text(encoding="utf-8")
    tables: dict[str, type[FileTable]] = {
        "server": ServerTable,
        "limits": LimitsTable,
        "notices": NoticesTable,
    }
    tables["open_id"] = OpenIdTable
    assert tables.keys() == ServerFile.by_key().keys()
    keys = {f"{name}.{key}" for name, table in tables.items() for key in table.by_key()}
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE)) == keys
    [example] = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "server.toml").write_text(example)
    secret = tmp_path / "open_id.secret"
    secret.write_text("a secret")
    secret.chmod(0o600)
    settings = read_settings(tmp_path)
    assert settings.title == "Ward data"
    plain = ServerSettings(tmp_path)
    for name in ("reply_slot", "body_bytes", "requests_per_minute", "unknown_per_minute"):
        assert getattr(settings, name) == getattr(plain, name), "the example has the defaults"


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="no such folder"):
        read_settings(tmp_path / "none")
