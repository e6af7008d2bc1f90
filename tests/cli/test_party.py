"""`lapwing party`: init, plan, invite, join, simulate, compare, example, as a newcomer types them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lapwing.cli.party import example, init
from lapwing.cli.show_party import show_verified
from lapwing.core.laplace import LaplaceShares
from lapwing.errors import Aborted
from lapwing.parties.transcript import VerifiedTranscript
from support.shell import Shell

MEMBERS = ("north", "south", "east")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, and keys for all."""
    folder = tmp_path_factory.mktemp("made")
    example(folder)
    for name in MEMBERS:
        init(name, folder=folder / name)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cards() -> list[str]:
    return [f"{name}/{name}.card" for name in MEMBERS]


def invited(shell: Shell) -> str:
    shell.good("party", "invite", "joint.toml", *cards(), "--policy", "north/visits.toml")
    return "joint-wards.consortium"


def test_the_example_can_be_planned_at_once(shell: Shell, folder: Path) -> None:
    done = shell.good("party", "plan", "joint.toml", "--members", 3, "--policy", "north/visits.toml")
    for text in (
        "Protocol C (Shamir shares), chosen",
        "up to 1 of the 3 members",
        "unbounded coalition, computational network",
        "ε 1",
        "deviation",
        "3 rounds",
        "masked star",
        "bounded computing power",
    ):
        assert text in " ".join(done.out.split())
    assert not (folder / "north" / "lapwing.ledger").exists()  # looking is free
    found = shell.good(
        "party", "plan", "joint.toml", "--members", 3, "--policy", "north/visits.toml", "--json"
    ).json
    assert (found["protocol"], found["honest"], found["least_members"]) == ("C", 2, 3)


def test_at_all_but_one_the_plan_says_what_cryptography_buys(shell: Shell, folder: Path) -> None:
    wish = (folder / "joint.toml").read_text().replace("coalition = 1 ", "coalition = 2 ")
    (folder / "joint.toml").write_text(wish)
    done = shell.good("party", "plan", "joint.toml", "--members", 3, "--policy", "north/visits.toml")
    assert "cryptography buys nothing" in " ".join(done.out.split())
    assert "Protocol A" in done.out


def test_nothing_is_written_over(shell: Shell, folder: Path) -> None:
    joint = folder / "joint.toml"
    assert "left as it was" in shell.good("party", "example").out
    joint.write_text(joint.read_text() + "# mine\n")
    changed = shell("party", "example")
    assert (changed.code, "joint.toml exists" in changed.error) == (2, True)
    again = shell("party", "init", "north")
    assert again.code == 2
    assert "never overwritten" in again.error
    invited(shell)
    twice = shell("party", "invite", "joint.toml", *cards(), "--policy", "north/visits.toml")
    assert (twice.code, "exists" in twice.error) == (2, True)
    assert shell("party", "init", "North Hospital").code == 2


def test_each_signs_and_the_last_one_is_told_to_run(shell: Shell, folder: Path) -> None:
    file = invited(shell)
    for name, left in (("north", "east, south"), ("east", "south")):
        done = shell.good("party", "join", file, "--me", name, "--policy", f"{name}/visits.toml", "--yes")
        assert f"Not yet: {left}." in done.out
        assert "ε 1" in done.out
    early = shell("party", "run", file, "--me", "north", "--policy", "north/visits.toml")
    assert early.code == 2
    assert "south has not signed" in early.error
    done = shell.good("party", "join", file, "--me", "south", "--policy", "south/visits.toml", "--yes")
    assert "All have signed" in done.out
    assert set(json.loads(Path(file).read_text())["signatures"]) == set(MEMBERS)


def test_join_shows_what_is_lost_if_more_belong_together(shell: Shell, folder: Path) -> None:
    file = invited(shell)
    done = shell("party", "join", file, "--me", "north", "--policy", "north/visits.toml", "--yes")
    said = " ".join(done.out.split())
    assert "if more members belong together than planned 1 of 3 (planned): ε 1; 2 of 3: ε 2.82." in said
    found = shell.good(
        "party", "plan", "joint.toml", "--members", 10, "--policy", "north/visits.toml", "--json"
    ).json
    lost = found["epsilon_if_so_many_belong_together"]
    assert list(lost) == ["1", "2", "3", "4", "9"]
    assert lost["1"] == 1
    share = LaplaceShares.for_epsilon(1, l1=3, of=9)  # three rows of a person count
    assert lost["2"] == lost["9"] == float(share.loss_with(1))


@pytest.mark.parametrize(("least", "code"), [(1, 0), (2, 2), (3, 2)])
def test_a_policy_can_demand_a_least_coalition(shell: Shell, folder: Path, least: int, code: int) -> None:
    file = invited(shell)
    policy = folder / "south" / "visits.toml"
    policy.write_text(policy.read_text() + f"\n[parties]\nleast_coalition = {least}\n")
    done = shell("party", "join", file, "--me", "south", "--policy", "south/visits.toml", "--yes")
    assert done.code == code
    signed = json.loads(Path(file).read_text())["signatures"]
    assert list(signed) == ([] if code else ["south"])
    if code:
        assert f"least_coalition = {least}" in done.error
        assert "protects against 1 member who" in done.error
        assert ("no consortium of 3 members can" in done.error) == (least == 3)


def test_what_a_policy_demands_is_asked_again_before_a_run(shell: Shell, folder: Path) -> None:
    file = invited(shell)
    for name in MEMBERS:
        shell.good("party", "join", file, "--me", name, "--policy", f"{name}/visits.toml", "--yes")
    policy = folder / "south" / "visits.toml"
    policy.write_text(policy.read_text() + "\n[parties]\nleast_coalition = 2\n")
    done = shell("party", "run", file, "--me", "south", "--policy", "south/visits.toml")
    assert done.code == 2
    assert "least_coalition = 2" in done.error


def test_copies_that_were_signed_apart_come_together(shell: Shell, folder: Path) -> None:
    file = invited(shell)
    for name in ("north", "south"):
        (folder / name / file).write_text(Path(file).read_text())
        mine = f"{name}/{file}"
        shell.good("party", "join", mine, "--me", name, "--policy", f"{name}/visits.toml", "--yes")
    arguments = ("--with", f"north/{file}", "--with", f"south/{file}", "--yes")
    done = shell.good("party", "join", file, "--me", "east", "--policy", "east/visits.toml", *arguments)
    assert "All have signed" in done.out


def test_who_says_no_has_not_signed(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = invited(shell)
    monkeypatch.setattr("typer.confirm", lambda _: False)
    done = shell("party", "join", file, "--me", "north", "--policy", "north/visits.toml")
    assert (done.code, done.error) == (1, "lapwing: stopped\n")
    assert not json.loads(Path(file).read_text())["signatures"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rows_per_unit = 3", "rows_per_unit = 2"),
        ('"emergency"]', '"emergency", "other"]'),
    ],
)
def test_a_policy_that_means_something_else_is_refused(
    shell: Shell, folder: Path, old: str, new: str
) -> None:
    file = invited(shell)
    policy = folder / "south" / "visits.toml"
    assert old in policy.read_text()
    policy.write_text(policy.read_text().replace(old, new))
    done = shell("party", "join", file, "--me", "south", "--policy", policy, "--yes")
    assert done.code == 2
    assert "mean the same" in done.error


def test_strangers_and_changed_files_are_refused(shell: Shell, folder: Path) -> None:
    file = invited(shell)
    shell.good("party", "init", "west")
    done = shell("party", "join", file, "--me", "west", "--policy", "north/visits.toml", "--yes")
    assert (done.code, "none of east, north, south" in done.error) == (2, True)
    for old, new in (('"coalition": 1', '"coalition": 0'), ('"1"', '"2"')):
        changed = folder / "changed.consortium"
        changed.write_text(Path(file).read_text().replace(old, new))
        done = shell("party", "join", changed, "--me", "north", "--policy", "north/visits.toml", "--yes")
        assert done.code == 2


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("SELECT MEDIAN(stay) AS m FROM visits", "m"),
        ("SELECT nothing FROM visits", "nothing"),
    ],
)
def test_what_cannot_be_summed_is_refused_at_the_plan(
    shell: Shell, folder: Path, question: str, told: str
) -> None:
    wish = folder / "joint.toml"
    old = "SELECT ward, COUNT(*) AS visits FROM visits GROUP BY ward"
    wish.write_text(wish.read_text().replace(old, question))
    done = shell("party", "plan", wish, "--members", 3, "--policy", "north/visits.toml")
    assert done.code == 2
    assert told in done.error


def test_mistakes_in_the_wish_are_told_with_their_lines(shell: Shell, folder: Path) -> None:
    wish = folder / "joint.toml"
    wish.write_text(wish.read_text().replace("epsilon = 1.0", "epsilom = 1.0"))
    done = shell("party", "plan", wish, "--members", 3, "--policy", "north/visits.toml")
    assert done.code == 2
    assert "joint.toml:6: consortium.epsilom: unknown key" in done.error


def test_a_budget_that_does_not_suffice_is_told_before_anybody_waits(shell: Shell, folder: Path) -> None:
    wish = folder / "joint.toml"
    wish.write_text(wish.read_text().replace("epsilon = 1.0", "epsilon = 4.0"))
    file = invited(shell)
    for name in MEMBERS:
        shell.good("party", "join", file, "--me", name, "--policy", f"{name}/visits.toml", "--yes")
    done = shell("party", "run", file, "--me", "south", "--policy", "south/visits.toml")
    assert done.code == 3
    assert "ε 3" in done.error


def test_a_simulation_shows_every_round(shell: Shell) -> None:
    done = shell.good("party", "simulate", "--counts", "120,45,230")
    for text in ("deal", "agree", "open", "Opened:", "395", "ε 1.68 instead of 1"):
        assert text in done.out
    found = shell.good("party", "simulate", "--lose", "south:deal", "--json").json
    assert found["opened"] is None
    assert "south" in found["stopped"]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--counts", "1,2"),
        ("--counts", "a,b,c"),
        ("--lose", "south"),
        ("--lose", "moon:deal"),
        ("--lose", "south:noon"),
        ("--coalition", "3"),
        ("--protocol", "D"),
        ("--epsilon", "0"),
        ("--members", "0"),
    ],
)
def test_bad_simulations_are_told_in_one_line(shell: Shell, wrong: tuple[str, str]) -> None:
    done = shell("party", "simulate", *wrong)
    assert done.code == 2
    assert done.error.startswith("lapwing: ")
    assert done.error.count("\n") == 1


def test_a_quick_comparison_is_printed_kept_and_drawn(shell: Shell, tmp_path: Path) -> None:
    out, plot = tmp_path / "numbers.json", tmp_path / "parties.svg"
    done = shell.good("party", "compare", "--quick", "--repetitions", 3, "--out", out, "--plot", plot)
    assert "local model" in done.out
    assert json.loads(out.read_text())["people"] == 1000
    assert plot.read_text().startswith("<?xml")
    assert shell("party", "compare", "--plot", "a.gif").code == 2


def test_what_does_not_verify_is_told_without_talk_of_ledgers(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "bad.transcript").write_text("{}\n")
    done = shell("party", "verify", tmp_path / "bad.transcript")
    assert done.code == 1
    assert "does not verify" in done.error
    assert "anchor" not in done.error
    assert shell("party", "verify", tmp_path / "none").code == 2


def test_what_nobody_signed_is_not_told_as_a_fact(capsys: pytest.CaptureFixture[str]) -> None:
    found = VerifiedTranscript(
        members=MEMBERS,
        number=1,
        protocol="C: Shamir shares",
        contributors=(),
        opened=(),
        stopped="south cheated\x1b[2J",
        left=("east: I leave",),
        guarantee="at most ε 1",
    )
    show_verified(found, Path("a.transcript"))
    told = " ".join(capsys.readouterr().out.split())
    assert 'The writer of this file says that the run stopped: "south cheated\\u001b[2J"' in told
    assert "Left, and signed why: east: I leave." in told
    assert "the last rounds; nobody signs why it stopped" in told.replace("- ", "")


def test_an_abort_says_that_the_charge_stays() -> None:
    assert "what was charged stays charged" in str(Aborted("too few members", ("south",)))
