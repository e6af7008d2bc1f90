"""`lapwing people`: the accounts of a server, made and ended while it runs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from lapwing.server.people.people import People
from lapwing.server.people.person import Role
from lapwing.server.state import ServerState
from support.server_people import GOOD, cheapen
from support.shell import Shell


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cheapen(monkeypatch)
    shell.good("example", tmp_path)
    return tmp_path


@pytest.fixture
def people(folder: Path) -> Iterator[People]:
    """The people of a server that runs meanwhile."""
    state = ServerState.open(folder / ".lapwing-server")
    yield People.of(state)
    state.close()


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_an_account_is_made_with_roles_and_a_link(shell: Shell, folder: Path, people: People) -> None:
    done = shell("people", "add", folder, "ann", "--data", "visits", "--role", "analyst")
    assert done.code == 0
    assert "once" in done.error
    assert people.accounts.known("ann").roles == {"visits": frozenset({Role.ANALYST})}
    link = done.out.strip().rpartition("=")[2]
    assert people.accounts.set_password_by_link(link, GOOD) == "ann"


def test_the_link_has_the_public_address(shell: Shell, folder: Path) -> None:
    (folder / "server.toml").write_text('[server]\naddress = "https://privacy.example.org"\n')
    done = shell("people", "add", folder, "ann")
    assert "\nhttps://privacy.example.org/password?key=" in done.out


def test_a_password_is_typed_or_comes_from_standard_input(
    shell: Shell, folder: Path, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, f"{GOOD}\n")
    assert GOOD not in shell.good("people", "add", folder, "ann", "--with-password").out
    assert people.accounts.with_password("ann", GOOD) == "ann"
    session = people.sessions.begin("ann")
    typed(monkeypatch, "another good password")
    shell.good("people", "password", folder, "ann")
    assert people.accounts.with_password("ann", "another good password") == "ann"
    assert people.sessions.find(session) is None
    typed(monkeypatch, "short")
    assert shell("people", "password", folder, "ann").code == 2
    assert people.accounts.with_password("ann", "another good password") == "ann"
    assert "/password?key=" in shell("people", "password", folder, "ann", "--link").out


def test_accounts_are_listed(shell: Shell, folder: Path, people: People) -> None:
    people.accounts.make("ann", shown_name="Ann", password=GOOD)
    people.accounts.set_roles("ann", "*", frozenset({Role.STEWARD, Role.OFFICER}))
    people.accounts.make("bob")
    people.accounts.disable("bob")
    assert shell.good("people", "list", folder, "--json").json == [
        {
            "name": "ann", "shown_name": "Ann", "roles": {"*": ["officer", "steward"]},
            "signs_in_with": ["password"], "is_disabled": False,
        },
        {"name": "bob", "shown_name": "bob", "roles": {}, "signs_in_with": [], "is_disabled": True},
    ]  # fmt: skip
    shown = shell.good("people", "list", folder).out
    for words in ("all data sets: officer, steward", "password", "(ended)"):
        assert words in shown
    csv = shell.good("people", "list", folder, "--csv").out.splitlines()
    assert csv[0] == "name,shown_name,roles,signs_in_with,is_disabled"
    assert csv[1:] == ['ann,Ann,"all data sets: officer, steward",password,false', "bob,bob,,,true"]


def test_roles_are_replaced(shell: Shell, folder: Path, people: People) -> None:
    people.accounts.make("ann")
    shell.good(
        "people", "roles", folder, "ann", "--data", "visits", "--role", "analyst", "--role", "officer"
    )
    assert people.accounts.known("ann").roles == {"visits": frozenset({Role.ANALYST, Role.OFFICER})}
    assert "no role for visits" in shell.good("people", "roles", folder, "ann", "--data", "visits").out
    assert people.accounts.known("ann").roles == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["roles", "ann", "--data", "visit", "--role", "analyst"], 'Did you mean "visits"?'),
        (["roles", "ann", "--data", "visits", "--role", "king"], "survey-owner"),
        (["roles", "ann"], "name a data set"),
        (["roles", "nobody", "--data", "visits"], "lapwing people list"),
        (["add", "new", "--role", "analyst"], "a role is for a data set"),
        (["add", "ANN"], "never used again"),
        (["add", "*"], "a meaning of its own"),
        (["password", "gone", "--link"], "for ever"),
        (["disable", "nobody"], "no such account"),
        (["bind", "ann", "--subject", "1"], "[open_id]"),
        (["tokens", "ann", "--revoke", "none"], "no such token"),
        (["token", "ann", "--data", "visits"], "no such account, role"),
        (["token", "ann", "--most-epsilon", "-1"], "above 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_wishes_are_told(
    shell: Shell, folder: Path, people: People, words: list[str], said: str
) -> None:
    people.accounts.make("ann")
    people.accounts.make("gone")
    people.accounts.disable("gone")
    done = shell("people", words[0], folder, *words[1:])
    assert (done.code, said in done.error) == (2, True), done.error
    assert [one.name for one in people.accounts.all()] == ["ann", "gone"]


def test_a_missing_folder_is_told_and_not_made(shell: Shell, tmp_path: Path) -> None:
    done = shell("people", "list", tmp_path / "none")
    assert done.code == 2
    assert not (tmp_path / "none").exists()


def test_a_token_is_printed_once_listed_and_revoked(shell: Shell, folder: Path, people: People) -> None:
    people.accounts.make("ann")
    people.accounts.set_roles("ann", "visits", frozenset({Role.ANALYST}))
    done = shell(
        "people", "token", folder, "ann", "--data", "visits", "--most-epsilon", "0.5", "--days", "7"
    )
    assert done.code == 0
    secret = done.out.strip()
    person = people.tokens.find(secret)
    assert person is not None
    assert person.scope == frozenset({"visits"})
    [listed] = shell.good("people", "tokens", folder, "ann", "--json").json
    assert (listed["most_epsilon"], listed["data"]) == ("0.5", ["visits"])
    for form in ("--json", "--csv", ""):
        assert secret not in shell.good("people", "tokens", folder, "ann", *filter(None, [form])).out
    assert "visits" in shell.good("people", "tokens", folder, "ann").out
    shell.good("people", "tokens", folder, "ann", "--revoke", listed["id"])
    assert people.tokens.find(secret) is None
    assert "ended" in shell.good("people", "tokens", folder, "ann").out


def test_an_identity_is_bound_and_unbound(shell: Shell, folder: Path, people: People) -> None:
    people.accounts.make("ann")
    (folder / "server.toml").write_text('[open_id]\nissuer = "https://id.example"\nclient_id = "lapwing"\n')
    shell.good("people", "bind", folder, "ann", "--subject", "1")
    shell.good("people", "bind", folder, "ann", "--subject", "1", "--issuer", "https://other.example")
    assert len(people.accounts.known("ann").identities) == 2
    shell.good("people", "bind", folder, "ann", "--subject", "1", "--remove")
    assert people.accounts.known("ann").identities == (("https://other.example", "1"),)


def test_an_account_is_ended(shell: Shell, folder: Path, people: People) -> None:
    people.accounts.make("ann", password=GOOD)
    session = people.sessions.begin("ann")
    shell.good("people", "disable", folder, "ann")
    assert people.sessions.find(session) is None
    assert people.accounts.with_password("ann", GOOD) is None
