"""`lapwing people`: the accounts of a server, for whoever has its machine. They work while the server runs.

The library is imported where it is used: `lapwing --help` must not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from lapwing.cli import console
from lapwing.errors import BadParameter

if TYPE_CHECKING:
    from lapwing.server.people.people import People
    from lapwing.server.people.person import Role
    from lapwing.server.people.tokens import Token
    from lapwing.server.settings import ServerSettings

app = console.Commands(help="Make and end the accounts of a server, and give roles. The server may run.")

Folder = Annotated[Path, Argument(metavar="DIR", help="The folder that `lapwing serve` serves.")]
Name = Annotated[str, Argument(metavar="NAME", help="The account's name.")]
DataSet = Annotated[str | None, Option("--data", help='The data set; "*" for all of the server.')]
Roles = Annotated[
    list[str] | None,
    Option("--role", help="steward, analyst, officer or survey-owner. Give it once for each role."),
]
ACCOUNT = ("name", "shown_name", "roles", "signs_in_with", "is_disabled")
TOKEN = ("id", "name", "data", "most_epsilon", "booked_epsilon", "expires", "is_revoked")


@app.command()
def add(
    folder: Folder,
    name: Annotated[
        str, Argument(metavar="NAME", help="Its name for life: the analyst of ledger and quotas.")
    ],
    *,
    shown_name: Annotated[str, Option("--shown-name", help="The name that pages show.")] = "",
    data: DataSet = None,
    role: Roles = None,
    with_password: Annotated[
        bool, Option("--with-password", help="Ask for a password now, instead of printing a link.")
    ] = False,
) -> None:
    """Make an account, and print the link with which its owner sets the password."""
    with _opened(folder) as (people, settings):
        roles = _roles(folder, data, role)
        password = _asked_password() if with_password else None
        people.accounts.make(name, shown_name=shown_name, password=password)
        if data is not None:
            people.accounts.set_roles(name, data, roles)
        print(f"Made the account {name}.")
        if not with_password:
            _print_link(people, settings, name)


@app.command("list")
def list_accounts(folder: Folder, *, form: console.OutputForm) -> None:
    """List all accounts with their roles. Accounts that were ended keep their names."""
    with _opened(folder) as (people, _):
        rows: list[dict[str, Any]] = [
            {
                "name": one.name,
                "shown_name": one.shown_name,
                "roles": {where: sorted(roles) for where, roles in sorted(one.roles.items())},
                "signs_in_with": ["password"] * one.has_password + ["OpenID"] * bool(one.identities),
                "is_disabled": one.is_disabled,
            }
            for one in people.accounts.all()
        ]
    if form.as_json:
        console.print_json(rows)
    elif form.as_csv:
        writer = console.CsvWriter(ACCOUNT)
        for row in rows:
            writer.write(list({**row, "roles": _in_words(row["roles"])}.values()))
    else:
        with console.page() as page:
            page.table(
                "account", "roles", "signs in with",
                rows=(
                    (
                        row["name"],
                        _in_words(row["roles"]),
                        "(ended)" if row["is_disabled"] else ", ".join(row["signs_in_with"]) or "nothing",
                    )
                    for row in rows
                ),
            )  # fmt: skip


@app.command()
def roles(folder: Folder, name: Name, *, data: DataSet = None, role: Roles = None) -> None:
    """Replace the roles of an account for one data set. Without --role, it has none there."""
    if data is None:
        raise BadParameter("data", 'is missing: name a data set, or "*" for all')
    with _opened(folder) as (people, _):
        wanted = _roles(folder, data, role)
        people.accounts.set_roles(name, data, wanted)
        said = ", ".join(sorted(wanted)) or "no role"
        print(f"{name} has {said} for {_place(data)} now.")


@app.command()
def password(
    folder: Folder,
    name: Name,
    *,
    link: Annotated[
        bool, Option("--link", help="Print a link with which the owner sets the password.")
    ] = False,
) -> None:
    """Set a new password, typed or from standard input. All sessions of the account end."""
    with _opened(folder) as (people, settings):
        if people.accounts.known(name).is_disabled:
            raise BadParameter("name", "the account was ended, for ever. Make another")
        if link:
            _print_link(people, settings, name)
        else:
            people.accounts.set_password(name, _asked_password())
            print(f"The password of {name} is set, and all sessions ended.")


@app.command()
def token(
    folder: Folder,
    name: Name,
    *,
    label: Annotated[str, Option("--name", help="What the token is called.")] = "made by a command",
    data: Annotated[
        list[str] | None, Option("--data", help="Only for this data set. Give it once for each.")
    ] = None,
    most_epsilon: Annotated[
        str | None, Option("--most-epsilon", help="The most ε that it may spend; else no limit of its own.")
    ] = None,
    days: Annotated[int, Option(min=1, max=366, help="How long it lasts.")] = 90,
) -> None:
    """Make a token for programs of an account, and print it: once, and never again."""
    from lapwing.core.exact import exact
    from lapwing.server.people.person import Requester

    with _opened(folder) as (people, _):
        account = people.accounts.known(name)
        _, secret = people.tokens.make(
            Requester(account.name, account.roles, "command", ""),
            name=label,
            data=frozenset(data) if data else None,
            most_epsilon=None if most_epsilon is None else exact(most_epsilon, "most_epsilon"),
            expires=datetime.now(UTC) + timedelta(days=days),
        )
        console.tell("this token is shown once. Keep it as a password")
        print(secret)


@app.command()
def tokens(
    folder: Folder,
    name: Name,
    *,
    revoke: Annotated[str | None, Option(help="End the token with this id first.")] = None,
    form: console.OutputForm,
) -> None:
    """List the tokens of an account, and end one."""
    from lapwing.server.people.managing import token_json

    with _opened(folder) as (people, _):
        people.accounts.known(name)
        if revoke is not None:
            if revoke not in {one.id for one in people.tokens.all_of(name)}:
                raise BadParameter("revoke", "the account has no such token")
            people.tokens.revoke(revoke)
        listed = people.tokens.all_of(name)
    rows = [token_json(one) for one in listed]
    if form.as_json:
        console.print_json(rows)
    elif form.as_csv:
        writer = console.CsvWriter(TOKEN)
        for row in rows:
            writer.write([row[column] for column in TOKEN])
    else:
        with console.page() as page:
            page.table(
                "id", "name", "data", "most ε", "booked ε", "ends",
                rows=(
                    (
                        row["id"],
                        row["name"],
                        "all" if row["data"] is None else ", ".join(row["data"]),
                        row["most_epsilon"] or "no limit",
                        row["booked_epsilon"] or "",
                        "ended" if row["is_revoked"] else _day(one),
                    )
                    for row, one in zip(rows, listed, strict=True)
                ),
            )  # fmt: skip


@app.command()
def disable(folder: Folder, name: Name) -> None:
    """End an account for ever: its sessions and tokens end at once, and its name stays taken."""
    with _opened(folder) as (people, _):
        people.accounts.disable(name)
        print(f"The account {name} is ended. Its sessions and tokens are, too.")


@app.command()
def bind(
    folder: Folder,
    name: Name,
    *,
    subject: Annotated[str, Option(help="The identity's subject (sub), as the provider writes it.")],
    issuer: Annotated[str | None, Option(help="The provider's issuer; else that of server.toml.")] = None,
    remove: Annotated[bool, Option("--remove", help="Unbind it, and end the account's sessions.")] = False,
) -> None:
    """Let whoever has an identity at the OpenID provider sign in as the account."""
    with _opened(folder) as (people, settings):
        known = settings.open_id.issuer if settings.open_id is not None else None
        wanted = issuer or known
        if wanted is None:
            raise BadParameter("issuer", "is missing: name it, or write [open_id] into server.toml")
        if remove:
            people.accounts.unbind(name, wanted, subject)
            print(f"{name} is no longer bound to that identity, and all sessions ended.")
        else:
            people.accounts.bind(name, wanted, subject)
            print(f"Whoever has that identity at {wanted} signs in as {name}.")


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[People, ServerSettings]]:
    """Open the people of a folder that is served."""
    from lapwing.server.people.people import People
    from lapwing.server.people.person import NotFound, NotSignedIn
    from lapwing.server.settings import read_settings
    from lapwing.server.state import ServerState

    settings = read_settings(folder)
    with closing(ServerState.open(settings.state_folder)) as state:
        try:
            yield People.of(state), settings
        except (NotFound, NotSignedIn):
            raise BadParameter(
                "name", f"there is no such account, role or identity. See lapwing people list {folder}"
            ) from None


def _roles(folder: Path, data: str | None, names: list[str] | None) -> frozenset[Role]:
    """Return roles by their names, for a data set that the folder has."""
    from lapwing.config.values import did_you_mean
    from lapwing.server.people.managing import roles_named
    from lapwing.server.people.person import EVERYWHERE

    if data is None:
        if names:
            raise BadParameter("data", 'is missing: a role is for a data set, or for "*"')
        return frozenset()
    known = _data_sets(folder)
    if data != EVERYWHERE and data not in known:
        raise BadParameter("data", f"there is no such policy in {folder}. {did_you_mean(data, known)}")
    return roles_named(names or [])


def _data_sets(folder: Path) -> list[str]:
    """Return the names of the data sets in a folder."""
    import tomllib

    from lapwing.sql.policy.policy_file import load_policy

    found = []
    for path in sorted(folder.glob("*.toml")):
        try:
            is_policy = "dataset" in tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if is_policy:
            found.append(load_policy(path).name)
    return found


def _asked_password() -> str:
    """Return a password, typed twice on a terminal, or the first line of standard input."""
    if sys.stdin is not None and sys.stdin.isatty():
        return str(typer.prompt("password", hide_input=True, confirmation_prompt=True))
    line = "" if sys.stdin is None else sys.stdin.readline()
    return line.rstrip("\r\n")


def _print_link(people: People, settings: ServerSettings, name: str) -> None:
    link = people.links.make_password(name)
    console.tell("whoever has this link sets the password: once, within three days")
    print(f"{settings.address or 'http://127.0.0.1:PORT'}/password?key={link}")


def _in_words(roles: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{_place(data)}: {', '.join(names)}" for data, names in roles.items() if names)


def _place(data: str) -> str:
    return "all data sets" if data == "*" else data


def _day(token: Token) -> str:
    return token.expires.date().isoformat()
