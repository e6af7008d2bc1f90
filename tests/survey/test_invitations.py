"""Invitations: charged when issued, once a person and survey, and refused beyond a lifetime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.core.losses import Relation
from lapwing.errors import BadParameter, OverBudget, WorkEnded
from lapwing.ledger import Ledger, Unit
from lapwing.survey import invitations
from lapwing.survey.credentials import INVITATION_FORM
from lapwing.survey.designing import Design, design
from lapwing.survey.invitations import RESPONDENTS_ACCOUNT, Invitation, invite, open_ledger, person_mark
from lapwing.survey.report_store import IntakeResult, ReportStore, invitation_hash
from lapwing.survey.service import open_report_store
from lapwing.survey.survey_file import load
from support import postgres
from support.raised import named
from support.survey_files import write_survey

SHARED = '[ledger]\nurl = "shared.ledger"\n'


@pytest.fixture
def made(tmp_path: Path) -> Design:
    return design(load(write_survey(tmp_path)))


@pytest.fixture
def ledger(made: Design) -> Iterator[Ledger]:
    with open_ledger(made.survey) as found:
        yield found


@pytest.fixture
def reports(made: Design) -> Iterator[ReportStore]:
    store = open_report_store(made.survey.reports, digest=made.digest, report_size=made.report_size)
    yield store
    store.close()


def issue(
    made: Design, ledger: Ledger, reports: ReportStore, *people: str, count: int | None = None
) -> list[Invitation]:
    named = None if count else people
    return [one for batch in invite(made, ledger, reports, people=named, count=count) for one in batch]


def left(ledger: Ledger, person: str) -> Fraction:
    account = ledger.account(RESPONDENTS_ACCOUNT)
    [(owner, block)] = ledger.look_at(account, [person_mark(ledger, person)])
    return block.left(owner.terms)


class TestCharges:
    def test_each_invitation_costs_the_worst_case_at_once(
        self, made: Design, ledger: Ledger, reports: ReportStore
    ) -> None:
        made_for = issue(made, ledger, reports, "ann", "ben")
        assert [one.person for one in made_for] == ["ann", "ben"]
        assert made.epsilon == 2
        for person in ("ann", "ben"):
            assert left(ledger, person) == 3
        assert ledger.verify().findings == ()

    def test_nobody_has_to_answer_for_it_to_be_spent(
        self, made: Design, ledger: Ledger, reports: ReportStore
    ) -> None:
        issue(made, ledger, reports, count=7)
        blocks = [block for block in ledger.blocks(RESPONDENTS_ACCOUNT) if block.label != "*"]
        terms = ledger.account(RESPONDENTS_ACCOUNT).terms
        assert [block.left(terms) for block in blocks] == [Fraction(3)] * 7
        assert reports.invitations() == (7, 0)

    def test_the_account_is_of_respondents_who_are_replaced(self, ledger: Ledger) -> None:
        account = ledger.account(RESPONDENTS_ACCOUNT)
        assert (account.unit, account.relation) == (Unit.PERSON, Relation.REPLACE)
        assert account.terms.epsilon == 5
        assert account.terms.delta == 0

    def test_a_second_survey_spends_from_the_same_people_and_is_refused_beyond(
        self, tmp_path: Path
    ) -> None:
        surveys = [design(load(write_survey(tmp_path, f"s{k}", places=SHARED))) for k in range(3)]
        stores = [
            open_report_store(one.survey.reports, digest=one.digest, report_size=one.report_size)
            for one in surveys
        ]
        with open_ledger(surveys[0].survey) as ledger:
            issue(surveys[0], ledger, stores[0], "ann", "ben")
            issue(surveys[1], ledger, stores[1], " ANN ", "cem")
            assert left(ledger, "ann") == 1
            assert left(ledger, "ben") == left(ledger, "cem") == 3
            entries = len(ledger.blocks(RESPONDENTS_ACCOUNT))
            with pytest.raises(
                OverBudget, match=r"asked ε 2 of each of 3 people, but ε 1 is left"
            ) as caught:
                invite(surveys[2], ledger, stores[2], people=["dee", "ann", "ben"])
            assert "ann" not in str(caught.value)
            assert stores[2].invitations() == (0, 0)
            assert len(ledger.blocks(RESPONDENTS_ACCOUNT)) == entries
            issue(surveys[2], ledger, stores[2], "dee", "ben")
            assert ledger.verify().findings == ()
        for store in stores:
            store.close()

    def test_a_race_for_the_last_of_it_is_decided_by_the_ledger(
        self, tmp_path: Path, made: Design, ledger: Ledger, reports: ReportStore
    ) -> None:
        """Both looked before either charged: the second gets nothing, and no link leaves."""
        first = invite(made, ledger, reports, people=["ann"])
        second = invite(made, ledger, reports, people=["ann"])
        third = invite(made, ledger, reports, people=["ann"])
        list(first)
        list(second)
        with pytest.raises(OverBudget):
            list(third)
        assert reports.invitations() == (2, 0)
        assert left(ledger, "ann") == 1

    def test_what_cannot_be_stored_is_charged_and_not_given_out(
        self, made: Design, ledger: Ledger, reports: ReportStore
    ) -> None:
        batches = invite(made, ledger, reports, people=["ann"])
        reports.close()
        with pytest.raises(WorkEnded):
            next(batches)
        assert left(ledger, "ann") == 3


class TestPeople:
    def test_are_invited_to_a_survey_once(self, made: Design, ledger: Ledger, reports: ReportStore) -> None:
        issue(made, ledger, reports, "ann", "ben")
        with pytest.raises(BadParameter, match="1 of them were invited") as caught:
            invite(made, ledger, reports, people=["Ann", "cem"])
        assert "ann" not in str(caught.value).lower()
        assert len(list(invite(made, ledger, reports, people=["ann"], again=True))) == 1
        assert left(ledger, "ann") == 1

    def test_are_stored_only_as_keyed_hashes(
        self, made: Design, ledger: Ledger, reports: ReportStore, tmp_path: Path
    ) -> None:
        name = "ann.unmistakable@example.org"
        [one] = issue(made, ledger, reports, name)
        mark = person_mark(ledger, name)
        assert person_mark(ledger, f" {name.upper()} ") == mark
        assert reports.known_people([mark]) == {mark}
        ledger.close()
        reports.close()
        for path in tmp_path.rglob("*"):
            content = path.read_bytes() if path.is_file() else b""
            assert b"unmistakable" not in content, path
            assert one.secret.encode() not in content, path

    def test_named_twice_get_one_invitation(
        self, made: Design, ledger: Ledger, reports: ReportStore
    ) -> None:
        assert len(issue(made, ledger, reports, "ann", "Ann ", "ann")) == 1
        assert left(ledger, "ann") == 3

    def test_nobody_and_nonsense_are_refused(
        self, made: Design, ledger: Ledger, reports: ReportStore
    ) -> None:
        wrong: list[dict[str, Any]] = [{"people": []}, {"people": [" "]}, {"count": 0}, {"count": True}, {}]
        for given in wrong:
            with pytest.raises(BadParameter):
                invite(made, ledger, reports, **given)
        with pytest.raises(BadParameter, check=named("invite")):
            invite(made, ledger, reports, people=["ann"], count=3)


class TestSecrets:
    def test_are_random_and_expected_by_the_survey(
        self, made: Design, ledger: Ledger, reports: ReportStore
    ) -> None:
        found = issue(made, ledger, reports, count=50)
        assert len({one.secret for one in found}) == 50
        for one in found:
            assert INVITATION_FORM.fullmatch(one.secret)
            assert reports.signed(invitation_hash(one.secret)) is IntakeResult.NEW

    def test_stand_after_the_sign_that_browsers_do_not_send(self) -> None:
        one = Invitation("s" * 24, "ann")
        assert one.link("https://survey.example.org") == f"https://survey.example.org/#{'s' * 24}"
        assert one.link("https://example.org/canteen/") == f"https://example.org/canteen/#{'s' * 24}"


class TestTheAccount:
    def test_a_changed_lifetime_is_refused(self, tmp_path: Path) -> None:
        path = write_survey(tmp_path)
        open_ledger(load(path)).close()
        survey = load(write_survey(tmp_path, lifetime=6.0))
        with pytest.raises(BadParameter, match="ε 5 for life"):
            open_ledger(survey)

    def test_of_the_same_name_for_something_else_is_refused(self, tmp_path: Path) -> None:
        survey = load(write_survey(tmp_path))
        with Ledger.create(survey.ledger) as ledger:
            ledger.open_account(
                RESPONDENTS_ACCOUNT, epsilon=5, delta=0, unit=Unit.PERSON, relation=Relation.ADD_REMOVE
            )
        with pytest.raises(BadParameter, match="something else"):
            open_ledger(survey)

    def test_in_a_server_works_alike(self, tmp_path: Path) -> None:
        url = postgres.fresh_url()
        keys, anchor = tmp_path / "k", tmp_path / "a"
        places = (
            f'[ledger]\nurl = "{url}"\nkeys = "k"\nanchor = "a"\n[store]\nurl = "{postgres.fresh_url()}"\n'
        )
        made = design(load(write_survey(tmp_path, places=places)))
        with pytest.raises(BadParameter, match="not made yet"):
            open_ledger(made.survey)
        Ledger.create(url, keys=keys, anchor=anchor).close()
        store = open_report_store(made.survey.reports, digest=made.digest, report_size=made.report_size)
        with open_ledger(made.survey) as ledger:
            issue(made, ledger, store, "ann")
            assert left(ledger, "ann") == 3
        store.close()


def test_many_are_charged_in_few_batches_with_progress(
    made: Design, ledger: Ledger, reports: ReportStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invitations, "BATCH_SIZE", 40)
    told: list[tuple[int, int]] = []
    batches = list(
        invite(made, ledger, reports, count=100, progress=lambda done, total: told.append((done, total)))
    )
    assert [len(batch) for batch in batches] == [40, 40, 20]
    assert told == [(40, 100), (80, 100), (100, 100)]
    assert reports.invitations() == (100, 0)


def test_reports_without_an_invitation_are_charged_too(made: Design, ledger: Ledger) -> None:
    invitations.charge_uninvited(made, ledger, 3)
    terms = ledger.account(RESPONDENTS_ACCOUNT).terms
    assert [block.left(terms) for block in ledger.blocks(RESPONDENTS_ACCOUNT) if block.label != "*"] == [
        Fraction(3)
    ] * 3


@pytest.mark.slow
def test_a_hundred_thousand_take_well_under_a_minute(
    made: Design, ledger: Ledger, reports: ReportStore
) -> None:
    start = time.process_time()
    assert sum(map(len, invite(made, ledger, reports, count=100_000))) == 100_000
    assert time.process_time() - start < 60
