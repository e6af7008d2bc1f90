"""Under `--json` numbers are numbers, at every command that prints some."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.shell import Shell

NUMBER = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?(/\d+)?", re.IGNORECASE)
# Names of blocks and answers may look like numbers. A receipt is as the ledger has it, and a survey as
# devices get it, with exact numbers as texts: digests are made of them.
LEFT_OUT = {"receipt", "survey", "block", "blocks", "label", "version"}
COUNT = "SELECT COUNT(*) AS n, AVG(stay) AS days FROM visits"


def texts_of_numbers(found: Any, path: str = "") -> Iterator[str]:
    match found:
        case dict():
            for name, value in found.items():
                if name not in LEFT_OUT:
                    yield from texts_of_numbers(value, f"{path}.{name}")
        case list():
            for place, value in enumerate(found):
                yield from texts_of_numbers(value, f"{path}[{place}]")
        case str():
            if NUMBER.fullmatch(found.strip()):
                yield f"{path} = {found!r}"


def test_the_search_finds_them() -> None:
    found = {"a": "1/2", "b": ["1e-6", {"c": "0.5"}], "d": "ε 0.5", "e": 1.0, "blocks": ["1"]}
    assert len(list(texts_of_numbers(found))) == 3


@pytest.fixture
def folder(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shell.good("example")
    shell.good("ask", "visits.toml", COUNT, "--epsilon", "0.2")
    shell.good("ledger", "prove", "visits.toml", "5", "proof")
    shell.good("survey", "example")
    shell.good("survey", "simulate", "wellbeing.toml", "--n", "100", "--json")
    shell.good("publish", "example", "town")
    shell.good("train", "example", "rides")
    return tmp_path


COMMANDS = [
    "explain --epsilon 1/3 --delta 1e-6 --n 1000",
    "schema visits.toml",
    "plan visits.toml {sql} --epsilon 1/3",
    "plan visits.toml {keys} --epsilon 1/3 --delta 1e-8",
    "ask visits.toml {sql} --epsilon 0.2",
    "ask visits.toml {average} --within 1 --two-stage",
    "ask visits.toml {sql} --epsilon 0.2 --dry-run",
    "bounds visits.toml visits.stay --epsilon 0.1 --step 1",
    "truncated visits.toml visits --epsilon 0.1",
    "check visits.toml --epsilon 0.1",
    "budget visits.toml",
    "history visits.toml",
    "history visits.toml --by analyst",
    "ledger log visits.toml",
    "ledger verify visits.toml",
    "ledger verify proof",
    "survey check wellbeing.toml",
    "survey plan wellbeing.toml --n 5000 --margin 0.03",
    "survey estimate wellbeing.toml --reports wellbeing.simulated",
    "party simulate --epsilon 1/3",
    "publish plan town/town-rows.toml",
    "stream status rides/rides.toml",
    "audit list",
]


def test_no_command_prints_a_number_as_a_text(shell: Shell, folder: Path) -> None:
    sqls = {
        "sql": COUNT,
        "average": "SELECT AVG(stay) AS days FROM visits",
        "keys": "SELECT diagnosis, COUNT(*) FROM visits GROUP BY 1",
    }
    for line in COMMANDS:
        words = [word.format(**sqls) if word.startswith("{") else word for word in line.split()]
        done = shell(*words, "--json")
        assert done.code == 0, (line, done.error)
        assert list(texts_of_numbers(done.json)) == [], line


def test_prices_are_rounded_up(shell: Shell, folder: Path) -> None:
    cost = shell.good("plan", "visits.toml", COUNT, "--epsilon", "1/3", "--json").json["cost"]
    assert cost == {"epsilon": 0.33333333333333337, "delta": 0}
    paid = shell.good("ask", "visits.toml", COUNT, "--epsilon", "0.2", "--json").json
    assert paid["price"] == {"epsilon": 0.2, "delta": 0}
    assert paid["receipt"]["parameters"]["epsilon"] == "1/5"
    assert (
        shell.good("ask", "visits.toml", COUNT, "--epsilon", "1", "--dry-run", "--json").json["price"]
        is None
    )
