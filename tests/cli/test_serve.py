"""`lapwing serve`: refusals before anything is served, and one process with its data loaded."""

from __future__ import annotations

from pathlib import Path

import httpx

from support.served import write_data
from support.served_process import serving
from support.shell import Shell


def test_what_cannot_be_served_is_refused(shell: Shell, tmp_path: Path) -> None:
    for arguments, words in (
        ([tmp_path], "has no policy"),
        ([tmp_path / "missing"], "no such folder"),
        ([tmp_path, "--host", "192.0.2.1"], "plain HTTP"),
    ):
        refused = shell("serve", *arguments)
        assert refused.code == 2
        assert words in refused.error


def test_a_folder_is_served_until_it_is_stopped(tmp_path: Path) -> None:
    write_data(tmp_path)
    with serving(tmp_path, "--log", str(tmp_path / "log.jsonl")) as server:
        assert httpx.get(f"{server.address}readyz").json() == {"ready": True, "problems": []}
        assert httpx.get(f"{server.address}v1/data").status_code == 401
        assert server.stop() == 0
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "stderr").read_text() == ""
