"""`lapwing budget`: what is left, never more than is true, with everything that must be known beside it."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lapwing.core.budget import Terms
from lapwing.core.losses import Approximate, Relation, Repeated
from lapwing.ledger import Ledger, Slices, Unit, register
from lapwing.ledger.budget_history import overview, overview_json, remaining_exactly
from lapwing.ledger.gate import Gate
from lapwing.ledger.recovery import recover
from lapwing.ledger.spending import Target
from support.events import GAUSSIAN, eventful
from support.ledgers import Home, open_account, open_sliced, release, spending
from support.shell import Shell, at


def words(text: str) -> str:
    return " ".join(text.split())


def blocks(found: dict[str, Any], account: int = 0) -> dict[str, dict[str, Any]]:
    return {block["block"]: block for block in found["accounts"][account]["blocks"]}


def three_accounts(home: Home) -> Ledger:
    """People twice, and people by weeks."""
    ledger = home.create()
    open_sliced(ledger, 3)
    open_account(ledger, "survey", epsilon="0.5", delta=0)
    weeks: dict[str, Any] = {"slices": Slices.PERIODS, "rule": "week", "unit": Unit.PERSON_AND_PERIOD}
    open_account(ledger, "moves", delta="1e-7", **weeks)
    ledger.open_blocks("moves", ["w1", "w2", "w3", "w4", "w5"])
    return ledger


def test_what_is_left_is_what_the_ledger_would_admit(home: Home, shell: Shell) -> None:
    ledger = home.create()
    account = open_sliced(ledger, 3)
    release(ledger, "0.1", Target("visits", ["b0"]))
    release(ledger, GAUSSIAN, Target("visits", ["b0", "b1"]))
    release(ledger, Approximate(Fraction(1, 20), Fraction(1, 10**8)), Target("visits", everyone=True))
    expected = {block.label: block.left(account.terms) for block in ledger.blocks("visits")}
    ledger.close()
    done = shell.good("budget", *at(home), "--json")
    found = json.loads(done.out, parse_float=Fraction)
    assert {name: block["epsilon_left"] for name, block in blocks(found).items()} == expected
    assert {block["delta_left"] for block in blocks(found).values()} == {Fraction(5, 10**8)}
    table = shell.good("budget", *at(home)).out
    assert "the largest pure ε that a next question could spend" in words(table)
    for name in ("b0", "b1", "b2", "everybody else"):
        row = next(line for line in table.splitlines() if f"  {name} " in line)
        shown = row.replace(name, "").split()
        assert 0 <= expected["*" if " " in name else name] - Fraction(shown[0]) < Fraction(1, 1000)
        assert [Fraction(shown[-3]), Fraction(shown[-1])] == [Fraction(5, 10**8), Fraction(6, 10**8)]


def test_what_delta_is_set_aside_for_is_said_before_anything_is_spent(home: Home, shell: Shell) -> None:
    ledger = home.create()
    open_account(ledger, delta="1e-6")
    open_account(ledger, "pure", delta=0)
    ledger.close()
    shown = words(shell.good("budget", *at(home)).out)
    assert "Of δ 1e-6, 6e-8 is set aside for answers that may fail to keep their ε, 4e-8 for runs" in shown
    assert "9e-7 for the Rényi filters" in shown
    assert "6e-8 of 6e-8" in shown
    assert shown.count("set aside") == 1  # where there is no δ, there is none to divide
    found = shell.good("budget", *at(home), "--json").json["accounts"][0]
    assert sum(found["delta_set_aside"].values()) == pytest.approx(1e-6)
    assert found["blocks"][0]["delta_at_first"] == found["blocks"][0]["delta_left"] == 6e-8


def test_looking_changes_nothing(file_home: Home, shell: Shell) -> None:
    eventful(file_home).close()
    before = shell.good("ledger", "log", *at(file_home), "--json").out
    for options in ([], ["--json"], ["--account", "visits"]):
        shell.good("budget", *at(file_home), *options)
    assert shell.good("ledger", "log", *at(file_home), "--json").out == before


def test_a_raised_account_shows_the_sum(home: Home, shell: Shell) -> None:
    eventful(home).close()
    found = shell.good("budget", *at(home), "--account", "survey", "--json").json
    (account,) = found["accounts"]
    assert (account["epsilon"], account["delta"], account["is_raised"]) == (1.5, 1.01e-6, True)
    assert [part["epsilon"] for part in account["parts"]] == [1.0, 0.5]
    assert blocks(found)["*"]["part"] == account["parts"][1]["number"]
    assert found["accounts_not_shown"] == ["visits"]
    table = words(shell.good("budget", *at(home), "--account", "survey").out)
    assert "Raised once, so losses add: ε 1.5, δ 1.01e-6 for life, that is ε 1, δ 1e-6, then ε 0.5" in table
    assert "raise 1" in table
    assert "Not shown here: visits" in table


def test_somebody_in_several_periods_sees_the_worst_case(file_home: Home, shell: Shell) -> None:
    three_accounts(file_home).close()
    found = shell.good("budget", *at(file_home), "--account", "moves", "--json").json
    worst = {case["periods"]: case for case in found["accounts"][0]["worst_cases"]}
    assert list(worst) == [1, 2, 3, 5, 12]
    for count, case in worst.items():
        assert case["epsilon"] == count
        e = Fraction(1)
        exact = Fraction(1, 10**7) * sum((_exp(k * e) for k in range(count)), Fraction(0))
        assert exact <= Fraction(repr(case["delta"])) <= exact * (1 + Fraction(1, 10**6))
    table = words(shell.good("budget", *at(file_home)).out)
    assert "Somebody who is in several periods loses more, at worst:" in table


def _exp(power: Fraction) -> Fraction:
    """e^power from below, to 40 digits."""
    total = term = Fraction(1)
    for k in range(1, 90):
        term = term * power / k
        total += term
    return total


def test_losses_add_for_whoever_is_in_several_accounts(file_home: Home, shell: Shell) -> None:
    ledger = file_home.create()
    open_account(ledger, "visits")
    register(ledger, "clinic", origin="hospital", account="visits", units=["p1"])
    assert overview_json(overview(ledger))["losses_add"] is False
    open_account(ledger, "survey", epsilon=2, delta=0)
    register(ledger, "office", origin="town", account="survey", units=["p1"])
    assert overview_json(overview(ledger))["losses_add"] is False  # nothing was charged yet
    release(ledger, "0.1", Target("visits"))
    release(ledger, "0.1", Target("survey"))
    ledger.close()
    found = shell.good("budget", *at(file_home), "--json").json
    assert found["losses_add"] is True
    assert found["data_sets"][1] == {"name": "office", "version": 1, "accounts": ["visits", "survey"]}
    table = words(shell.good("budget", *at(file_home)).out)
    assert 'Data "office" is about people of several accounts' in table
    assert "Losses add:" in table
    assert "in all 2 together ε 3, δ 1e-6." in table


def test_there_is_no_sum_across_relations(file_home: Home, shell: Shell) -> None:
    """ε 1 for a replacement is not ε 1 for one person more: the first is two steps of the second."""
    with file_home.create() as ledger:
        for label, relation in (("visits", Relation.ADD_REMOVE), ("survey", Relation.REPLACE)):
            open_account(ledger, label, epsilon=1, delta=0, relation=relation)
            release(ledger, "0.1", Target(label), relation=relation)
    table = words(shell.good("budget", *at(file_home)).out)
    assert "Losses add:" in table
    assert "there is no one sum" in table
    assert "together" not in table


def test_a_part_is_shown_with_the_account_that_it_is_a_part_of(file_home: Home, shell: Shell) -> None:
    """Else ε 2 would stand there for people who lose up to ε 3, with more left than can be spent."""
    with file_home.create() as ledger:
        open_account(ledger, "orders", epsilon=3, delta=0)
        open_account(ledger, "members", epsilon=2, delta=0)
        release(ledger, "1", Target("orders"), Target("members"))
        release(ledger, "1.5", Target("orders"))
    named = (*at(file_home), "--account", "members")
    found = shell.good("budget", *named, "--json").json
    assert [(one["account"], one["epsilon"]) for one in found["accounts"]] == [
        ("members", 2),
        ("orders", 3),
    ]
    assert [one["blocks"][0]["epsilon_left"] for one in found["accounts"]] == [1, 0.5]
    assert found["accounts_not_shown"] == []
    assert found["losses_add"] is False
    table = words(shell.good("budget", *named).out)
    assert '"members" is a part of "orders"' in table
    assert "the least that is left in both" in table
    assert [
        one["account"]
        for one in shell.good("budget", *at(file_home), "--account", "orders", "--json").json["accounts"]
    ] == ["orders"]
    with file_home.open() as ledger:
        open_account(ledger, "others", epsilon=1, delta=0)
        release(ledger, "1", Target("others"))
    found = shell.good("budget", *named, "--json").json
    assert (found["accounts_not_shown"], found["losses_add"]) == (["others"], True)


def test_what_the_curator_signed_is_shown(file_home: Home, shell: Shell) -> None:
    ledger = eventful(file_home)
    ledger.close()
    found = shell.good("budget", *at(file_home), "--json").json
    assert [line["kind"] for line in found["signed_by_curator"]] == ["data", "account"]
    table = words(shell.good("budget", *at(file_home)).out)
    assert "Signed by the curator" in table
    assert 'its people are not those of "visits"' in table
    assert "survey raised by ε 0.5, δ 1e-8" in table


def test_what_was_lost_counts_as_spent(file_home: Home, shell: Shell) -> None:
    home = file_home
    with home.create() as ledger:
        open_sliced(ledger, 2)
    home.anchor.unlink()
    Path(ledger.store.witnesses[0].where).unlink()
    assert recover(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor) == 3
    found = shell.good("budget", *at(home), "--json").json
    assert {(b["is_open"], b["epsilon_left"], b["delta_left"]) for b in blocks(found).values()} == {
        (False, 0, 0)
    }
    table = words(shell.good("budget", *at(home)).out)
    assert table.count("lost: counts as spent") == 3
    assert "all that was open counts as spent" in table


def test_what_is_held_is_not_left(file_home: Home, shell: Shell) -> None:
    with file_home.create() as ledger:
        open_sliced(ledger, 2)
        work = Gate(ledger, principal="trainer").reserve(
            spending(Repeated(GAUSSIAN, 9), Target("visits", ["b1"]))
        )
        expected = {b.label: b.left(ledger.account("visits").terms) for b in ledger.blocks("visits")}
    found = shell.good("budget", *at(file_home), "--json").json
    held = blocks(found)["b1"]
    assert Fraction(repr(held["epsilon_left"])) == expected["b1"] < 1
    assert held["epsilon_left_after_lapse"] == 1
    assert found["accounts"][0]["open_reservations"] == [work.number]
    table = shell.good("budget", *at(file_home)).out
    assert "ε left if what" in table
    assert f"1 reservation ({work.number})" in table


def test_many_blocks_are_gathered_the_least_first(file_home: Home, shell: Shell) -> None:
    with file_home.create() as ledger:
        open_sliced(ledger, 300)
        release(ledger, "0.5", Target("visits", ["b7"]))
        release(ledger, "0.25", Target("visits", [f"b{k}" for k in range(100)]))
        for k in range(30):
            release(ledger, Fraction(1 + k, 1000), Target("visits", [f"b{200 + k}"]))
    table = shell.good("budget", *at(file_home)).out
    rows = [line for line in table.splitlines() if "█" in line or "▏" in line]
    assert len(rows) == 12
    assert rows[0].split()[:2] == ["b7", "0.25"]
    assert "b0, b1 and 97 more" in rows[1]
    assert "further blocks have ε" in words(table)
    assert len(blocks(shell.good("budget", *at(file_home), "--json").json)) == 301


def test_json_has_stable_names(file_home: Home, shell: Shell) -> None:
    three_accounts(file_home).close()
    found = shell.good("budget", *at(file_home), "--json").json
    assert list(found) == [
        "ledger", "accounts", "accounts_not_shown", "losses_add", "data_sets", "signed_by_curator",
        "changed_after_check",
    ]  # fmt: skip
    assert list(found["accounts"][0]) == [
        "account", "unit", "relation", "slices", "rule", "epsilon", "delta", "delta_set_aside",
        "is_raised", "parts", "worst_cases", "open_reservations", "blocks",
    ]  # fmt: skip
    assert list(found["accounts"][0]["blocks"][0]) == [
        "block", "part", "is_open", "epsilon_left", "delta_left", "epsilon_left_after_lapse",
        "epsilon_at_first", "delta_at_first",
    ]  # fmt: skip


def test_an_empty_ledger_says_so(file_home: Home, shell: Shell) -> None:
    file_home.create().close()
    assert shell.good("budget", *at(file_home)).out == "This ledger has no accounts yet.\n"
    assert shell.good("budget", *at(file_home), "--json").json["accounts"] == []


def test_names_are_shown_as_they_are(file_home: Home, shell: Shell) -> None:
    strange = "[bold]x[/bold] $a$ 患者 :smile: " + "y" * 120
    with file_home.create() as ledger:
        open_sliced(ledger, 1, strange)
        ledger.open_blocks(strange, ["*x", strange])
    table = shell.good("budget", *at(file_home)).out
    assert "[bold]x[/bold]" in table
    assert ":smile:" in table
    assert all(len(line) <= 100 for line in table.splitlines())


# The picture


def test_the_picture_is_drawn_into_the_file(home: Home, shell: Shell, tmp_path: Path) -> None:
    eventful(home).close()
    picture = tmp_path / "left.svg"
    done = shell.good("budget", *at(home), "--account", "survey", "--plot", picture)
    assert str(picture) in done.out
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert 'id="raise-1"' in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "options",
    [
        ["--plot", "x.bmp", "--account", "visits"],
        ["--plot", "/nowhere/at/all.svg", "--account", "visits"],
        ["--plot", "x.svg"],
        ["--account", "unheard-of"],
        ["--account", ""],
        ["--account", "a" * 10_000_000],
        ["--bogus"],
    ],
    ids=lambda options: " ".join(options)[:40],
)
def test_what_is_asked_wrongly_is_said_in_one_line(
    options: list[str], file_home: Home, shell: Shell
) -> None:
    three_accounts(file_home).close()
    done = shell("budget", *at(file_home), *options)
    assert (done.code, done.out) == (2, "")
    assert done.error.count("\n") == 1
    assert len(done.error) < 300


def test_a_ledger_that_is_not_there_is_said_in_one_line(shell: Shell, tmp_path: Path) -> None:
    done = shell("budget", tmp_path / "nothing")
    assert (done.code, done.out) == (2, "")
    assert "there is no ledger at" in done.error


# Many at once


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        ("1", "1e-6"),
        ("0.001", "1e-9"),
        ("1000", "1e-6"),
        ("1", "0"),
        ("5", "0.5"),
        ("1e-9", "0"),
        ("3", "1e-18"),
    ],
)
def test_many_are_computed_at_once_and_exactly(epsilon: str, delta: str) -> None:
    terms = Terms.of(epsilon, delta)
    chance = random.Random(7)
    sums = [
        terms.nothing_spent,
        tuple(cap + 1 for cap in terms.caps),
        tuple(max(cap, 0) for cap in terms.caps),
    ]
    for _ in range(20):
        share = chance.random() ** 3
        sums.append(
            tuple(
                max(min(int(cap * chance.choice([0, share, chance.random(), 1, 2])), cap + 1), 0)
                for cap in terms.caps
            )
        )
    found = remaining_exactly(terms, sums)
    assert found == {taken: terms.largest_pure(taken) for taken in sums}


def test_the_relation_is_said(file_home: Home, shell: Shell) -> None:
    with file_home.create() as ledger:
        open_account(ledger, relation=Relation.REPLACE, unit=Unit.ROW)
    assert "Protects one row; neighbours replace one unit." in shell.good("budget", *at(file_home)).out
