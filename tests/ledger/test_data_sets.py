"""The same people spend from the same account, whatever their data is called; versions only count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, OverBudget, Tampered
from lapwing.ledger import CuratorKey, DataSet, Ledger, append, register
from lapwing.ledger.data_sets import data_sets_before, find_data_set
from lapwing.ledger.gate import targets
from lapwing.ledger.spending import Target
from support.attackers import somebody_at
from support.ledgers import Home, open_account, open_sliced, release
from support.raised import named

RULE = "month of the first visit"


@pytest.fixture
def ledger(file_home: Home) -> Ledger:
    """Two populations, one of them sliced; data of the first."""
    opened = file_home.create()
    open_sliced(opened, 2)
    open_account(opened, "survey")
    register(opened, "visits 2025", origin="reception", account="visits", units=["ann", "bob"], rule=RULE)
    return opened


def accounts(ledger: Ledger, data: DataSet) -> list[str]:
    return [ledger.numbered(number).label for number in data.accounts]


class TestJoining:
    def test_by_account(self, ledger: Ledger) -> None:
        data = register(ledger, "interviews", origin="phone", account="survey", units=["cyd", "dan"])
        assert accounts(ledger, data) == ["survey"]

    def test_by_one_person_in_common(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)
        open_account(ledger, "survey")
        register(ledger, "visits 2025", origin="reception", account="visits", units=["ann", "bob"])
        data = register(ledger, "interviews", origin="phone", account="survey", units=["dan", "bob", "cyd"])
        assert accounts(ledger, data) == ["visits", "survey"]
        assert ledger.verify().findings == ()

    @pytest.mark.parametrize("typed", ["bob ", "BOB", "Bob", b"bob", "ｂｏｂ", "bo\u200bb"])
    def test_by_a_person_typed_otherwise(self, ledger: Ledger, typed: str | bytes) -> None:
        data = register(ledger, "interviews", origin="phone", account="survey", units=[typed])
        assert accounts(ledger, data) == ["visits", "survey"]

    @pytest.mark.parametrize(("one", "other"), [(7, "7"), (7.0, 7), ("007", "007 ")])
    def test_by_a_number(self, ledger: Ledger, one: str | float, other: str | float) -> None:
        register(ledger, "badges", origin="doors", account="visits", units=[one])
        data = register(ledger, "meals", origin="kitchen", account="survey", units=[other])
        assert accounts(ledger, data) == ["visits", "survey"]

    def test_by_origin_even_if_nobody_is_in_both(self, ledger: Ledger) -> None:
        data = register(ledger, "interviews", origin="reception", account="survey", units=["zoe"])
        assert accounts(ledger, data) == ["visits", "survey"]

    def test_by_a_person_of_an_earlier_version(self, ledger: Ledger) -> None:
        append(ledger, "visits 2025", units=["eve"])
        append(ledger, "visits 2025", units=["fay"])
        data = register(ledger, "interviews", origin="phone", account="survey", units=["eve"])
        assert accounts(ledger, data) == ["visits", "survey"]

    def test_by_somebody_who_comes_later(self, ledger: Ledger) -> None:
        register(ledger, "interviews", origin="phone", account="survey", units=["cyd"])
        data = append(ledger, "interviews", units=["ann"])
        assert accounts(ledger, data) == ["visits", "survey"]
        assert accounts(ledger, append(ledger, "interviews", units=[])) == ["visits", "survey"], "for ever"

    def test_goes_on_from_data_that_joined(self, ledger: Ledger) -> None:
        """Cyd is known only from data that spends from both: so does all that is about her."""
        register(ledger, "interviews", origin="phone", account="survey", units=["bob", "cyd"])
        open_account(ledger, "third")
        data = register(ledger, "letters", origin="post", account="third", units=["cyd"])
        assert accounts(ledger, data) == ["visits", "survey", "third"]

    def test_nobody_in_common_is_somebody_else(self, ledger: Ledger) -> None:
        data = register(ledger, "interviews", origin="phone", account="survey", units=["cyd", None, ""])
        assert accounts(ledger, data) == ["survey"]
        data = register(
            ledger, "letters", origin="post", account="visits", units=[None, "  ", float("nan")]
        )
        assert accounts(ledger, data) == ["visits"]

    def test_survives_a_restart(self, ledger: Ledger, file_home: Home) -> None:
        ledger.close()
        opened = file_home.open()
        data = register(opened, "interviews", origin="phone", account="survey", units=["bob"])
        assert accounts(opened, data) == ["visits", "survey"]
        assert find_data_set(file_home.open(), "interviews") == data


def test_renaming_gives_no_fresh_budget(home: Home) -> None:
    """The same people under a new name, a new origin and a new account: the old account still decides."""
    ledger = home.create()
    open_account(ledger, delta=0)
    register(ledger, "visits 2025", origin="reception", account="visits", units=range(1000))
    release(ledger, "1", *targets(ledger, "visits 2025"))
    open_account(ledger, "fresh", delta=0)
    register(ledger, "anything", origin="somewhere", account="fresh", units=map(str, range(999, 0, -1)))
    with pytest.raises(OverBudget) as refused:
        release(ledger, "0.001", *targets(ledger, "anything"))
    assert refused.value.where == '"visits"'


def test_data_sets_are_known_from_their_registration_on(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    register(ledger, "visits", origin="reception", account="visits", units=["ann"])
    between = release(ledger).receipt.position
    assert [data.label for data in data_sets_before(ledger, between)] == ["visits"]
    register(ledger, "interviews", origin="phone", account="visits", units=["bob"])
    append(ledger, "visits", units=["cyd"])
    after = release(ledger).receipt.position
    assert [(data.label, data.version) for data in data_sets_before(ledger, between)] == [("visits", 2)]
    assert [data.label for data in data_sets_before(ledger, after)] == ["visits", "interviews"]


def test_a_release_about_two_populations_is_charged_to_both_or_to_none(ledger: Ledger) -> None:
    register(ledger, "interviews", origin="phone", account="survey", units=["bob", "cyd"])
    release(ledger, "0.7", Target("survey"))
    with pytest.raises(OverBudget):
        release(ledger, "0.4", *targets(ledger, "interviews"))
    assert {block.spent[1] for block in ledger.blocks("visits")} == {0}
    release(ledger, "0.3", *targets(ledger, "interviews"))
    assert {block.spent[1] for block in ledger.blocks("visits")} == {300_000_000}


class TestPeopleWhoDiffer:
    def test_are_signed_for_by_the_curator(self, ledger: Ledger, file_home: Home) -> None:
        """Two people of the same name: only somebody who knows them can tell."""
        data = register(
            ledger, "interviews", origin="phone", account="survey", units=["bob"],
            people_differ_from=["visits"], curator=file_home.curator,
        )  # fmt: skip
        assert accounts(ledger, data) == ["survey"]
        report = ledger.verify()
        assert report.findings == ()
        assert [(number, account) for _, number, account in report.replay.registers.differ] == [(2, 1)]

    def test_also_in_a_later_version(self, ledger: Ledger, file_home: Home) -> None:
        register(ledger, "interviews", origin="phone", account="survey", units=["cyd"])
        signed = append(
            ledger, "interviews", units=["bob"], people_differ_from=["visits"], curator=file_home.curator
        )
        assert accounts(ledger, signed) == ["survey"]
        assert accounts(ledger, append(ledger, "interviews", units=["bob"])) == ["visits", "survey"]
        assert ledger.verify().findings == ()

    def test_need_the_curators_key(self, ledger: Ledger, tmp_path: Path) -> None:
        stranger = CuratorKey.create(tmp_path / "stranger")
        for curator in (None, stranger):
            with pytest.raises(BadParameter, match="curator's key"):
                register(
                    ledger, "interviews", origin="phone", account="survey", units=["bob"],
                    people_differ_from=["visits"], curator=curator,
                )  # fmt: skip
            with pytest.raises(BadParameter, match="curator's key"):
                append(ledger, "visits 2025", units=["bob"], people_differ_from=["survey"], curator=curator)
        assert ledger.verify().replay.registers.differ == []
        assert find_data_set(ledger, "visits 2025").version == 1

    def test_do_not_differ_from_accounts_that_were_not_named(self, ledger: Ledger, file_home: Home) -> None:
        open_account(ledger, "third")
        register(ledger, "letters", origin="post", account="third", units=["bob"])
        data = register(
            ledger, "interviews", origin="phone", account="survey", units=["bob"],
            people_differ_from=["third"], curator=file_home.curator,
        )  # fmt: skip
        assert accounts(ledger, data) == ["visits", "survey"]

    def test_do_not_differ_where_the_data_has_the_same_origin(
        self, ledger: Ledger, file_home: Home
    ) -> None:
        data = register(
            ledger, "interviews", origin="reception", account="survey", units=["bob"],
            people_differ_from=["visits"], curator=file_home.curator,
        )  # fmt: skip
        assert accounts(ledger, data) == ["visits", "survey"]

    def test_a_text_is_not_a_list_of_names(self, ledger: Ledger, file_home: Home) -> None:
        with pytest.raises(BadParameter, check=named("people_differ_from")):
            register(
                ledger, "interviews", origin="phone", account="survey", units=["bob"],
                people_differ_from="visits", curator=file_home.curator,
            )  # fmt: skip


class TestSlices:
    def test_data_sliced_by_the_accounts_rule_is_charged_by_block(self, ledger: Ledger) -> None:
        assert targets(ledger, "visits 2025", ["b0"]) == (Target("visits", ["b0"]),)
        release(ledger, "1", *targets(ledger, "visits 2025", ["b0"]))
        release(ledger, "1", *targets(ledger, "visits 2025", ["b1"]))

    @pytest.mark.parametrize("rule", ["", "month of the last visit", RULE + ".", RULE.upper()])
    def test_data_sliced_otherwise_is_charged_to_everyone(self, ledger: Ledger, rule: str) -> None:
        """Its block b0 may hold people of any block of the account."""
        register(ledger, "reviews", origin="web", account="visits", units=["ann"], rule=rule)
        assert targets(ledger, "reviews", ["b0"]) == (Target("visits", everyone=True),)
        release(ledger, "0.4", *targets(ledger, "reviews", ["b0"]))
        assert {block.spent[1] for block in ledger.blocks("visits")} == {400_000_000}
        assert ledger.verify().findings == ()

    def test_what_joins_by_a_person_is_charged_to_everyone_if_not_sliced_alike(
        self, ledger: Ledger
    ) -> None:
        register(ledger, "interviews", origin="phone", account="survey", units=["bob"])
        assert targets(ledger, "interviews") == (Target("visits", everyone=True), Target("survey"))
        register(ledger, "returns", origin="desk", account="survey", units=["bob"], rule=RULE)
        assert targets(ledger, "returns", ["b1"]) == (Target("visits", ["b1"]), Target("survey"))

    def test_an_account_without_slices_is_charged_as_it_is(self, ledger: Ledger) -> None:
        register(ledger, "interviews", origin="phone", account="survey", units=["cyd"])
        assert targets(ledger, "interviews", ["b0"]) == (Target("survey"),)

    @pytest.mark.parametrize("rule", ["x" * 201, "a\nb", " a", "\ud800"])
    def test_a_rule_that_makes_no_sense_is_refused(self, ledger: Ledger, rule: str) -> None:
        with pytest.raises(BadParameter):
            register(ledger, "reviews", origin="web", account="visits", units=[], rule=rule)


class TestVersions:
    def test_every_append_counts_also_an_empty_one(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)
        assert register(ledger, "d", origin="o", account="visits", units=["ann"]).version == 1
        for version, units in ((2, ["bob"]), (3, []), (4, []), (5, ["ann"])):
            assert append(ledger, "d", units=units).version == version
        assert find_data_set(home.open(), "d").version == 5
        assert home.open().verify().findings == ()

    def test_contents_are_never_compared(self, ledger: Ledger) -> None:
        """That a version is the same as before, or as another data set, would tell something about people:
        it counts as new, and nothing public is alike."""
        append(ledger, "visits 2025", units=["ann", "bob"])
        append(ledger, "visits 2025", units=["ann", "bob"])
        assert find_data_set(ledger, "visits 2025").version == 3
        records = [json.loads(bytes(body)) for _, body, _ in ledger.store.read(
            lambda tx: list(tx.history())
        )]  # fmt: skip
        fields = [set(record) for record in records if record["kind"] == "version"]
        assert fields == [{"kind", "at", "data", "name", "version", "accounts", "same_rule", "differ"}] * 2

    def test_a_name_is_registered_once(self, ledger: Ledger) -> None:
        with pytest.raises(BadParameter, match="append to it"):
            register(ledger, "visits 2025", origin="phone", account="survey", units=["zoe"])
        with pytest.raises(BadParameter, match="not known"):
            append(ledger, "visits 2026", units=["zoe"])

    def test_two_processes_count_together(self, home: Home) -> None:
        ledger = home.create()
        open_account(ledger)
        register(ledger, "d", origin="o", account="visits", units=["ann"])
        other = home.open()
        seen = [append(opened, "d", units=[]).version for opened in (ledger, other, ledger, other)]
        assert seen == [2, 3, 4, 5]


class TestSecrets:
    def test_entries_name_nobody(self, ledger: Ledger) -> None:
        """Neither people nor data sets: the names stand in them as random ids. Rules are public."""
        append(ledger, "visits 2025", units=["patient-4711"])
        history = ledger.store.read(lambda tx: b"\n".join(body for _, body, _ in tx.history()))
        for secret in (b"ann", b"bob", b"patient", b"visits 2025", b"reception"):
            assert secret not in history
        assert RULE.encode() in history

    def test_sketches_show_nobody_to_who_lacks_the_key(self, ledger: Ledger) -> None:
        [(content,)] = ledger.store.read(lambda tx: tx.rows("SELECT bytes FROM sketches"))
        assert b"ann" not in bytes(content)
        assert b"bob" not in bytes(content)

    @pytest.mark.parametrize("edit", ["cut short", "emptied", "of other people", "of another version"])
    def test_people_who_were_edited_away_are_missed(
        self, ledger: Ledger, file_home: Home, edit: str
    ) -> None:
        """Otherwise they would be new people, with a fresh budget."""
        append(ledger, "visits 2025", units=["zoe"])
        ledger.close()
        program = somebody_at(file_home)
        program.disarm()
        mine, later = program.rows("sketches")
        forged = {
            "cut short": mine["bytes"][:-8],
            "emptied": mine["bytes"][:-16],
            "of other people": mine["bytes"][:-1] + b"x",
            "of another version": later["bytes"],
        }[edit]
        program.change("sketches", mine["place"], bytes=forged)
        program.leave()
        opened = file_home.open()
        assert opened.verify().findings == ("what is known of the people of data set 1 was changed",)
        with pytest.raises(Tampered, match="sketch of people was changed"):
            register(opened, "anything", origin="somewhere", account="survey", units=["bob"])
