"""Case L13: whoever edits a ledger is found when it is opened, or where opening does not look by `verify`.

What he changes is enumerated from the catalogue, so that a column added later is attacked as well. All
of it is tried twice: with the signed state that opening goes on from, and after he removed that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from hashlib import sha256
from typing import Any

import pytest

from lapwing.core.budget import Terms
from lapwing.core.losses import Pure
from lapwing.errors import Tampered, Unavailable
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.entry import commitment, digest_of, encode, now
from lapwing.ledger.keys import SigningKey
from lapwing.ledger.seals import Seal
from lapwing.ledger.spending import Target
from support.attackers import Crime, Row, SqliteAttacker, committed, others, same
from support.ledgers import Home, release
from support.slowly import slow

# What opening never reads: answers, and what is known of people. `verify` and whoever uses them look.
READ_LATER = {("answers", "bytes"), ("sketches", "bytes")}
# What opening reads only after the signed state (docs/arguments/ledger.md, f). `verify` finds the rest; an
# entry with its answer, and a principal, are looked at by whoever reads them.
MOVED_TO_VERIFY = {"entries", "answers", "seals", "principals", "requests"}


@pytest.fixture(params=[True, slow(False)], ids=["state", "no state"])
def crime(home: Home, request: pytest.FixtureRequest) -> Iterator[Crime]:
    with committed(home, with_state=request.param) as ready:
        yield ready


def moved_to_verify(crime: Crime, table: str, row: Row) -> bool:
    """Whether opening may leave a change of this row to `verify`."""
    return crime.with_state and (
        table in MOVED_TO_VERIFY or (table == "reservations" and row["ended"] == 1)
    )


def is_found(crime: Crime, table: str, row: Row) -> bool:
    found = crime.found()
    return bool(found or (moved_to_verify(crime, table, row) and crime.found_by_verifying()))


def unnoticed_changes(crime: Crime, rows_of_each: slice, values_of_each: slice) -> list[str]:
    """Change single values, one after the other, each put back afterwards."""
    attacker, unnoticed, tried = crime.attacker, [], 0
    for table in set(attacker.tables()) - {"states"}:  # which has tests of its own
        for k in range(len(attacker.rows(table)))[rows_of_each]:
            for name, kind, missing in attacker.columns(table):
                before = attacker.rows(table)[k]
                changes = others(before[name], kind, may_be_missing=missing)
                start = k % len(changes)  # rows are alike: each is tried with another value first
                for value in [*changes[start:], *changes[:start]][values_of_each]:
                    place = next(r["place"] for r in attacker.rows(table) if same(r, before))
                    try:
                        place = attacker.change(table, place, **{name: value})
                    except attacker.refused:  # there is a row with this value already
                        continue
                    tried += 1
                    if not is_noticed(crime, table, name, before):
                        unnoticed.append(f"{table}.{name}: {before[name]!r} became {value!r}")
                    attacker.change(table, place, **{name: before[name]})
    assert tried > 90
    assert crime.found() == ()
    return unnoticed


def is_noticed(crime: Crime, table: str, name: str, before: Row) -> bool:
    if table == "schema_version":  # not opened, with another reason: it is not of this or any known form
        with pytest.raises(Unavailable):
            crime.home.open()
        return True
    if (table, name) in READ_LATER:
        return bool(crime.found() or crime.found_by_verifying())
    return is_found(crime, table, before)


def test_case_L13_every_change_of_a_value_is_found(crime: Crime) -> None:
    on_sqlite = isinstance(crime.attacker, SqliteAttacker)
    assert unnoticed_changes(crime, slice(None) if on_sqlite else slice(-1, None), slice(1)) == []


@pytest.mark.slow
def test_case_L13_every_change_of_a_value_to_anything_is_found(crime: Crime) -> None:
    on_sqlite = isinstance(crime.attacker, SqliteAttacker)
    assert unnoticed_changes(crime, slice(None) if on_sqlite else slice(-2, None), slice(None)) == []


def test_a_state_that_was_not_signed_so_is_found(crime: Crime) -> None:
    attacker = crime.attacker
    crime.home.open().close()
    [state] = attacker.rows("states")
    newest = state["number"]
    for name, value in (
        ("books", state["books"].replace(b'"entries":', b'"entries": ')),
        ("books", b""),
        ("state_signature", bytes(64)),
        ("state_signature", b""),
        ("number", newest - 1),  # signed, but with another seal
    ):
        place = attacker.change("states", attacker.rows("states")[0]["place"], **{name: value})
        with pytest.raises(Tampered, match="is not the one that was signed"):
            crime.home.open()
        attacker.change("states", place, **{name: state[name]})
    crime.home.open().close()


def test_a_state_without_its_seal_is_none(crime: Crime) -> None:
    [state] = crime.attacker.rows("states")
    crime.attacker.change("states", state["place"], number=state["number"] + 1)
    crime.home.open().close()
    assert [row["number"] for row in crime.attacker.rows("states")] == [state["number"]]


def test_an_older_state_is_as_good(crime: Crime) -> None:
    """It was signed; all entries since are replayed, with the seals over them."""
    older = crime.attacker.rows("states")
    ledger = crime.home.open()
    release(ledger, "0.1", Target("Wolf Hospital", ["b2"]), principal="Dr Grey")
    ledger.close()
    [newer] = crime.attacker.rows("states")
    crime.attacker.delete("states", newer["place"])
    crime.attacker.insert("states", **{name: older[0][name] for name in older[0] if name != "place"})
    with_older = Crime(crime.home, crime.attacker, crime.ledger_id)
    assert with_older.found() == ()
    newest = max(crime.attacker.rows("entries"), key=lambda row: row["seq"])
    crime.attacker.change("entries", newest["place"], digest=bytes(32))
    crime.attacker.delete("states", crime.attacker.rows("states")[0]["place"])
    crime.attacker.insert("states", **{name: older[0][name] for name in older[0] if name != "place"})
    assert any("are not those that were sealed" in text for text in with_older.found())


def test_what_opening_leaves_to_verify_is_found_by_whoever_reads_it(crime: Crime) -> None:
    """An old charge and its answer, forged with their digests, and no state that could contradict."""
    attacker = crime.attacker
    [asked] = [row for row in attacker.rows("answers") if row["bytes"] == b"42"][:1]
    answer = next(row for row in attacker.rows("entries") if row["seq"] == asked["entry"])
    body = encode(json.loads(answer["body"]) | {"digest": sha256(b"43").hexdigest()})
    attacker.change("answers", asked["place"], bytes=b"43")
    attacker.change("entries", answer["place"], body=body, digest=digest_of(body))
    if not crime.with_state:
        assert crime.found()
        return
    for path in (crime.home.anchor, crime.witness):  # which forget marks and early heads when they grow
        path.write_text(path.read_text().splitlines()[-1] + "\n")
    assert crime.found() == ()
    few = Target("Wolf Hospital", ["b0", "b1"])
    with pytest.raises(Tampered, match="is not the one that was sealed"):
        release(crime.home.open(), "0.1", few, Target("night shift"), principal="Dr Grey", key="one")
    assert crime.found_by_verifying()


def test_a_renamed_principal_is_found_when_he_asks(crime: Crime) -> None:
    grey, owl = crime.attacker.rows("principals")
    crime.attacker.change("principals", grey["place"], label="x")
    crime.attacker.change("principals", owl["place"], label=grey["label"])
    if not crime.with_state:
        assert crime.found()
        return
    with pytest.raises(Tampered, match="was renamed"):
        release(crime.home.open(), "0.1", Target("night shift"), principal=grey["label"])


def test_a_changed_answer_is_never_given_again(crime: Crime) -> None:
    stored = next(row for row in crime.attacker.rows("answers") if row["bytes"] == b"42")
    crime.attacker.change("answers", stored["place"], bytes=b"43")
    few = Target("Wolf Hospital", ["b0", "b1"])
    with pytest.raises(Tampered, match="answer to charge"):
        release(crime.home.open(), "0.1", few, Target("night shift"), principal="Dr Grey", key="one")


def test_case_L13_every_removed_row_is_found(crime: Crime) -> None:
    attacker, unnoticed = crime.attacker, []
    for table in set(attacker.tables()) - {"schema_version", "states"}:  # without a state all is replayed
        rows = attacker.rows(table)
        if table == "seals":
            rows.remove(max(rows, key=lambda row: row["number"]))  # the next test
        for before in rows:
            place = next(row["place"] for row in attacker.rows(table) if same(row, before))
            attacker.delete(table, place)
            if not is_found(crime, table, before):
                unnoticed.append((table, before))
            attacker.insert(table, **{name: before[name] for name in before if name != "place"})
    assert unnoticed == []
    assert crime.found() == ()


def test_without_its_newest_seal_the_same_history_is_sealed_again(crime: Crime) -> None:
    """As in a copy that was made just before it was sealed: every entry is there, and nothing is lost."""
    newest = max(crime.attacker.rows("seals"), key=lambda row: row["number"])
    crime.attacker.delete("seals", newest["place"])
    crime.home.open().close()
    again = max(crime.attacker.rows("seals"), key=lambda row: row["number"])
    assert (again["number"], again["root"]) == (newest["number"], newest["root"])


@pytest.mark.parametrize("table", ["accounts", "blocks", "datasets", "entries", "principals"])
def test_two_that_change_places_are_found(crime: Crime, table: str) -> None:
    """Whole names with their salts, so that every commitment holds; bodies with their digests."""
    attacker = crime.attacker
    names = {"entries": ["body", "digest"], "principals": ["label"]}.get(table, ["name", "label", "salt"])
    places = {"accounts": slice(2), "blocks": slice(1, 3)}  # two whose exchange no unique index forbids
    one, other = attacker.rows(table)[places.get(table, slice(-2, None))]
    placeholder = {name: "x" if isinstance(one[name], str) else b"x" for name in names}
    place = attacker.change(table, one["place"], **placeholder)
    attacker.change(table, other["place"], **{name: one[name] for name in names})
    attacker.change(table, place, **{name: other[name] for name in names})
    assert is_found(crime, table, one)


# Forged rows


def a_charge(crime: Crime) -> tuple[int, dict[str, Any]]:
    """The newest charge, as a pattern for others."""
    for row in reversed(crime.attacker.rows("entries")):
        record = json.loads(row["body"])
        if record["kind"] == "charge":
            return row["seq"], record
    raise AssertionError


def forge(crime: Crime, record: dict[str, Any]) -> None:
    body, seq = encode(record), max(row["seq"] for row in crime.attacker.rows("entries")) + 1
    crime.attacker.insert("entries", seq=seq, key=None, body=body, digest=digest_of(body))


FORGED: dict[str, Callable[[int, dict[str, Any]], dict[str, Any]]] = {
    "a charge that was never asked": lambda _, charge: charge | {"key": None},
    "a charge of an unknown account": lambda _, charge: charge
    | {"key": None, "debits": [[77, [[1, 1]], [0] * 8]]},
    "a reservation that lapses": lambda seq, _: {
        "kind": "settle", "at": now(), "reservation": seq - 13, "spent": False,
    },
    "an answer to a charge that failed": lambda seq, _: {
        "kind": "answer", "at": now(), "charge": 9, "digest": "0" * 64, "size": 0,
    },
    "a raise without the curator": lambda _, charge: {
        "kind": "account", "at": now(), "account": 9, "name": "0" * 32, "unit": "person",
        "relation": "add or remove one unit", "epsilon": "1000", "delta": "0", "orders": [2, 3, 4, 5, 6],
        "caps": [0, 10**12, 0, -1, -1, -1, -1, -1], "slices": "none", "rule": "", "everyone": 99,
        "raises": 2, "moved": [], "signature": "0" * 128,
    },
    "blocks that nobody opened": lambda _, charge: {
        "kind": "blocks", "at": now(), "account": 1, "first": 50, "names": ["0" * 31 + "1"],
    },
    "a refund": lambda _, charge: charge | {"key": None, "debits": [[1, [[1, 1]], [-1] * 8]]},
    "a second beginning": lambda _, charge: {
        "kind": "genesis", "at": now(), "ledger": "0" * 32, "key": "0" * 64, "curator": "0" * 64,
        "format": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_entry_is_found(crime: Crime, what: str) -> None:
    forge(crime, FORGED[what](*a_charge(crime)))
    assert crime.found()


def test_a_forged_row_without_an_entry_is_found(crime: Crime) -> None:
    attacker = crime.attacker
    for table in set(attacker.tables()) - {"schema_version", "states", "entries", "principals"}:
        row = attacker.rows(table)[-1]
        first, _, _ = attacker.columns(table)[0]
        copy = {name: row[name] for name in row if name != "place"} | {first: row[first] + 1000}
        if "label" in copy:
            copy |= {"label": "forged", "salt": bytes(32), "name": commitment("forged", bytes(32))}
        attacker.insert(table, **copy)
        assert is_found(crime, table, row), table
        attacker.delete(table, next(r["place"] for r in attacker.rows(table) if r[first] == copy[first]))
    assert crime.found() == ()


def test_what_is_added_at_the_end_can_only_take_budget_away(crime: Crime) -> None:
    """Who has all rights over the database can charge, like the ledger itself: it is the end of history,
    and no anchor contradicts. He cannot give anything back: what differs from sums of charges is found."""
    _, charge = a_charge(crime)
    forge(crime, charge | {"key": None})
    assert crime.found()
    add_up(crime)
    assert crime.found() == ()
    ledger = crime.home.open()
    assert ledger.verify().findings == ()
    [block] = [block for block in ledger.blocks("Wolf Hospital") if block.label == "b2"]
    assert block.spent[1] == 3 * 10**8, "everyone's charge, the true one, and the forged one"


# Forged history


def recompute(crime: Crime, signing: SigningKey, *, with_files: bool) -> None:
    """Digests, tree and seals anew over whatever stands there now, with the attacker's own key."""
    attacker = crime.attacker
    attacker.edit("states", "DELETE FROM states")  # which he cannot sign
    for row in attacker.rows("entries"):
        attacker.change("entries", row["place"], digest=digest_of(row["body"]))
    leaves = [(row["seq"], row["digest"]) for row in attacker.rows("entries")]
    old, seal, start = attacker.rows("seals"), None, 0
    attacker.edit("seals", "DELETE FROM seals")
    heads = []
    for before in old:
        some = [leaf for leaf in leaves if start < leaf[0] <= before["last"]]
        seal = Seal.after(seal, some, bytes.fromhex(crime.ledger_id), signing)
        start = seal.last
        heads.append(seal.head.line)
        attacker.insert("seals", **{name: getattr(seal, name) for name in Seal.__slots__})
    if with_files:
        for path in (crime.home.anchor, crime.witness):
            path.write_text("".join(f"{head}\n" for head in heads))


def add_up(crime: Crime) -> None:
    """Let the sums of all blocks follow from whatever the entries say now."""
    replay = Replay()
    replay.feed([(row["seq"], row["body"], row["digest"]) for row in crime.attacker.rows("entries")])
    budgets = crime.attacker.rows("budgets")
    for row, (_, account, _, spent, held) in zip(budgets, replay.blocks(), strict=True):
        caps = replay.accounts[account].caps
        left = {f"left_{k}": cap - sum_ for k, (cap, sum_) in enumerate(zip(caps, spent, strict=True))}
        sums = left | {f"held_{k}": value for k, value in enumerate(held)}
        crime.attacker.change("budgets", row["place"], **sums)


def edit_a_charge(crime: Crime) -> None:
    """A charge becomes cheaper, and so does what was spent on its block: all of it consistent."""
    seq, charge = a_charge(crime)
    [[account, ranges, _]] = charge["debits"]
    terms = Terms.of(1, "1e-6")
    price = terms.price(Pure(Fraction(1, 20))).costs
    costs = [min(cost, cap + 1) for cost, cap in zip(price, terms.caps, strict=True)]
    charge |= {"debits": [[account, ranges, costs]], "loss": {"loss": "Pure", "epsilon": "1/20"}}
    entry = next(row for row in crime.attacker.rows("entries") if row["seq"] == seq)
    body = encode(charge)
    crime.attacker.change("entries", entry["place"], body=body, digest=digest_of(body))
    add_up(crime)


def test_an_edited_charge_with_its_digest_and_its_sums_is_found(crime: Crime) -> None:
    edit_a_charge(crime)
    found = crime.found()
    if crime.with_state:
        assert [text for text in found if "block" in text], "the state knows the sums"
        crime.attacker.edit("states", "DELETE FROM states")
        found = crime.found()
    assert any("are not those that were sealed" in text for text in found)
    assert not [text for text in found if "block" in text], "all sums were right"


@pytest.mark.parametrize("with_files", [False, True], ids=["database", "database, anchor and witness"])
def test_a_history_that_is_forged_throughout_lacks_the_signature(crime: Crime, with_files: bool) -> None:
    edit_a_charge(crime)
    recompute(crime, SigningKey(bytes(32)), with_files=with_files)
    assert "the last seal is not signed by this ledger" in crime.found()


def test_a_forged_history_without_any_seal_is_found(crime: Crime) -> None:
    """Whoever cannot sign leaves the seals out, and writes marks into all anchors."""
    edit_a_charge(crime)
    for table in ("seals", "states"):
        crime.attacker.edit(table, f"DELETE FROM {table}")
    marks = "".join(f"m {row['seq']} {row['digest'].hex()}\n" for row in crime.attacker.rows("entries"))
    crime.home.anchor.write_text(marks)
    crime.witness.unlink()
    assert crime.found() == ("nothing of it is sealed",)


def test_a_history_under_other_keys_is_found(crime: Crime) -> None:
    """The public key in the first entry is exchanged as well."""
    stranger = SigningKey(bytes(32))
    first = crime.attacker.rows("entries")[0]
    body = encode(json.loads(first["body"]) | {"key": stranger.public.hex()})
    crime.attacker.change("entries", first["place"], body=body)
    recompute(crime, stranger, with_files=True)
    assert crime.found() == ("the ledger belongs to other keys",)


def test_the_signature_of_an_early_seal_is_looked_at_by_verifying(crime: Crime) -> None:
    """Anchors forget early seals when they grow; opening relies on the newest, which stands for all."""
    for path in (crime.home.anchor, crime.witness):
        path.write_text(path.read_text().splitlines()[-1] + "\n")
    early = crime.attacker.rows("seals")[1]
    crime.attacker.change("seals", early["place"], signature=bytes(64))
    assert crime.found() == ()
    assert crime.found_by_verifying() == (f"seal {early['number']} is not signed by this ledger",)
