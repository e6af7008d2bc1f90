"""`lapwing publish`: example, plan, run and verify, for good and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.published import BUNDLES, copied_bundle, town
from support.shell import Shell


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_example_to_verified_bundle_and_again(folder: Path, shell: Shell) -> None:
    for again in (False, True):
        done = shell("publish", "example")
        assert done.code == 0
        assert ("there already" in done.out) is again
        assert "ε 3 at δ 1e-6" in shell("publish", "plan", "town-census.toml").out
        for release, out in (("town-rows.toml", "rows"), ("town-census.toml", "census")):
            done = shell("publish", "run", release, "--out", out)
            assert done.code == 0, done.error
            assert ("measur" in done.out.splitlines()[0]) is not again
            key = json.loads((folder / out / "bundle.json").read_text())["key"]
            assert f"verify {out} --key" in done.out
            checked = shell("publish", "verify", out, "--key", key)
            assert (checked.code, "nothing differs" in checked.out) == (0, True)
    assert "costs nothing" in shell("publish", "plan", "town-rows.toml").out


def test_json_and_pictures(folder: Path, shell: Shell) -> None:
    shell("publish", "example")
    plan = json.loads(shell("publish", "plan", "town-rows.toml", "--json", "--plot", "plan.svg").out)
    assert plan["fits"]
    assert "<svg" in (folder / "plan.svg").read_text()
    assert shell("publish", "plan", "town-rows.toml", "--plot", "plan.doc").code == 2
    done = json.loads(shell("publish", "run", "town-census.toml", "--out", "census", "--json").out)
    assert done["privacy"]["epsilon"] == 3
    checked = json.loads(shell("publish", "verify", "census", "--json").out)
    assert checked["good"]
    assert not checked["key_was_given"]


def test_refusals(folder: Path, shell: Shell) -> None:
    assert shell("publish", "plan", "nowhere.toml").code == 2
    shell("publish", "example")
    text = (folder / "town-census.toml").read_text()
    (folder / "town-census.toml").write_text(text.replace("epsilon = 3.0", "epsilon = 60.0"))
    assert "The budget refuses" in shell("publish", "plan", "town-census.toml").out
    done = shell("publish", "run", "town-census.toml", "--out", "census")
    assert (done.code, "would pass" in done.error) == (3, True)
    (folder / "town-rows.toml").write_text('[release]\nname = "x"\nmethod = "magic"\n')
    done = shell("publish", "plan", "town-rows.toml")
    assert done.code == 2
    for word in ("policy", "rows", "method", "epsilon"):
        assert word in done.error
    assert shell("publish", "verify", ".").code == 2


def test_a_changed_bundle_ends_with_code_1(folder: Path, shell: Shell) -> None:
    bundle = copied_bundle("rows", folder)
    text = (bundle / "rows.csv").read_text()
    (bundle / "rows.csv").write_text(text.replace("employed", "retired", 1))
    done = shell("publish", "verify", str(bundle))
    assert done.code == 1
    assert "rows.csv was changed" in done.error
    assert json.loads(shell("publish", "verify", str(bundle), "--json").out)["good"] is False


def test_a_bundle_without_a_key_is_warned_about(shell: Shell) -> None:
    assert "no --key was given" in shell("publish", "verify", str(town() / "census")).out
    for name in BUNDLES:
        bundle = town() / name
        key = json.loads((bundle / "bundle.json").read_text())["key"]
        assert key not in (bundle / "README.md").read_text()  # who takes it from there checks nothing
        for more, code in (((), 3), (("--json",), 3), (("--key", key), 0), (("--key", "00" * 32), 1)):
            assert shell("publish", "verify", str(bundle), *more).code == code
