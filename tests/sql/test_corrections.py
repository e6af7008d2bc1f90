"""What can be asked instead: every offer is answered when it is taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadParameter, Held, OverBudget
from lapwing.sql.corrections import MOST_OFFERED, corrections
from lapwing.sql.dataset import Dataset
from lapwing.sql.question.refusal import Refused
from lapwing.sql.reading.reader import Reader
from support.raised import named

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) FROM visits"
BY_WARD = "SELECT ward, COUNT(*) FROM visits GROUP BY ward"
COHORTS = '[blocks]\nby = "unit"\ncohorts = 3\n'


@pytest.mark.parametrize(
    ("sql", "first"),
    [
        ("SELECT * FROM visits LIMIT 10", COUNT),
        ("SELECT ward FROM visits", BY_WARD),
        ("SELECT DISTINCT ward FROM visits ORDER BY 1", BY_WARD),
        ("SELECT ward, COUNT(*) FROM visits", BY_WARD),
        ("SELECT WARDS, COUNT(*) FROM visits GROUP BY WARDS", BY_WARD),
        ("SELECT hidden, COUNT(*) FROM visits GROUP BY hidden", COUNT),
        ("SELECT patient_id, COUNT(*) FROM visits GROUP BY patient_id", COUNT),
        ("SELECT COUNT(*) FROM visit", COUNT),
        ("SELECT COUNT(*) FROM clinic.visits", COUNT),
        ("SELECT COUNT(*) FROM visits WHERE ward = 'a'", f"{COUNT} WHERE ward = 'A'"),
        ("SELECT ward, COUNT(*) OVER (PARTITION BY ward) FROM visits", BY_WARD),
        ("SELECT SUM(DISTINCT stay) FROM visits", "SELECT SUM(stay) FROM visits"),
        ("SELECT COUNT(*) FROM visits WHERE stay > (SELECT AVG(stay) FROM visits)",
         "SELECT AVG(stay) FROM visits"),
        ("SELECT COUNT(*) FROM (SELECT stay FROM visits ORDER BY stay LIMIT 5) AS t",
         "SELECT COUNT(*) FROM (SELECT stay FROM visits) AS t"),
        ("SELECT SUM(x) FROM (SELECT stay AS x FROM visits UNION SELECT stay AS x FROM visits) AS t",
         "SELECT SUM(x) FROM (SELECT stay AS x FROM visits UNION ALL SELECT stay AS x FROM visits) AS t"),
    ],
)  # fmt: skip
def test_what_is_refused_is_offered_in_a_form_that_is_answered(opened: Open, sql: str, first: str) -> None:
    dataset = opened()
    with pytest.raises(Refused):
        dataset.plan(sql, epsilon="0.1")
    offers = corrections(dataset.session, sql, epsilon="0.1")
    assert 1 <= len(offers) <= MOST_OFFERED
    assert offers[0].sql == first
    assert not dataset.curator.has_ledger
    for offer in offers:
        assert offer.why
        assert offer.epsilon is None
        assert dataset.ask(offer.sql, epsilon="0.1").receipt is not None


@pytest.mark.parametrize(
    "sql",
    [
        COUNT, "", "DROP TABLE visits", "SELEC 1", "SELECT MAX(name) FROM visits", "SELECT 1",
        "SELECT COUNT(*) FROM nothing_alike", "SELECT COUNT(*) FROM visits WHERE stay > 99",
        "SELECT " + "(" * 30 + "1" + ")" * 30, f"{COUNT}; {COUNT}",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(kappa = 1) * FROM visits",
    ],
)  # fmt: skip
def test_nothing_is_offered_for_what_can_be_asked_or_cannot_be_mended(opened: Open, sql: str) -> None:
    assert corrections(opened().session, sql, epsilon=1) == ()


def test_several_mistakes_are_mended_together(opened: Open) -> None:
    [offer, *_] = corrections(
        opened().session, "SELECT wards, AVG(stays) FROM visit WHERE ward = 'b'", epsilon=1
    )
    assert offer.sql == "SELECT ward, AVG(stay) FROM visits WHERE ward = 'B' GROUP BY ward"
    assert offer.why.count("called") == 3


def test_too_little_is_offered_at_the_least_that_is_sold(opened: Open) -> None:
    dataset = opened(more="least_epsilon = 0.05\n")
    for sql in (COUNT, "SELECT ward, COUNT(*) FROM visits"):
        [offer] = corrections(dataset.session, sql, epsilon="0.01")
        assert offer.epsilon == Fraction("0.05")
        dataset.ask(offer.sql, epsilon=offer.epsilon)
    both = "SELECT COUNT(*) AS n, SUM(stay) AS s, MEDIAN(stay) AS m FROM visits"
    [offer] = corrections(dataset.session, both, epsilon="0.05")
    assert offer.epsilon is not None
    assert offer.epsilon > Fraction("0.05")  # several aggregates cost less than their ε
    with pytest.raises(BadParameter):
        dataset.plan(both, epsilon=offer.epsilon / 2)
    dataset.ask(both, epsilon=offer.epsilon)


def test_what_does_not_fit_is_offered_cheaper_or_about_one_block(opened: Open) -> None:
    dataset = opened(more=COHORTS)
    dataset.ask(f"{COUNT} WHERE cohort IN (0, 1)", epsilon=8)
    with pytest.raises(OverBudget):
        dataset.ask(COUNT, epsilon=3)
    cheaper, narrower = corrections(dataset.session, COUNT, epsilon=3)
    assert cheaper.epsilon == 2
    assert narrower.sql == f"{COUNT} WHERE cohort = 2"
    dataset.ask(narrower.sql, epsilon=3)
    dataset.ask(cheaper.sql, epsilon=cheaper.epsilon)
    dataset.ask(f"{COUNT} WHERE stay > 1 AND cohort = 2", epsilon=5)
    assert corrections(dataset.session, "SELECT MEDIAN(stay) FROM visits", epsilon=3) == ()


@pytest.mark.parametrize("spent", ["9.99", "9.9", "9.5"])
def test_an_epsilon_that_fits_is_sold(opened: Open, spent: str) -> None:
    """What is left may be less than the least: then nothing is offered."""
    dataset = opened(more="least_epsilon = 0.05\n")
    dataset.ask(COUNT, epsilon=spent)
    found = corrections(dataset.session, "SELECT AVG(stay) FROM visits", epsilon=3)
    for offer in found:
        dataset.ask(offer.sql, epsilon=offer.epsilon)
    assert len(found) == (spent != "9.99")


def test_the_clause_stays_with_its_options(opened: Open) -> None:
    dataset = opened(more="least_epsilon = 0.05\n")
    priced = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.01, noise = laplace)"
    [offer] = corrections(dataset.session, f"{priced} ward, COUNT(*) FROM visits")
    assert offer.sql == f"{priced.replace('0.01', '0.05')} ward, COUNT(*) FROM visits GROUP BY ward"
    dataset.ask(offer.sql)
    with pytest.raises(BadParameter, match="in one place"):
        corrections(dataset.session, f"{priced} * FROM visits", epsilon=1)


@pytest.mark.parametrize("least", ["0.333333333333", "0.1234567890123", "0.05"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_an_offer_in_text_is_answered_as_it_is_written(opened: Open, least: str, noise: str) -> None:
    """A least price with many digits is written rounded up, here and in the error."""
    dataset = opened(more=f"least_epsilon = {least}\n")
    sql = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.001, noise = {noise}) COUNT(*) FROM visits"
    [offer] = corrections(dataset.session, sql)
    assert not dataset.ask(offer.sql, epsilon=offer.epsilon).is_replay
    with pytest.raises(BadParameter, check=named("epsilon")) as refused:
        dataset.plan("SELECT SUM(stay) FROM visits", epsilon="0.001", noise=noise)
    [enough] = re.findall(r"Ask with ε (\S+) or more", str(refused.value))
    dataset.plan("SELECT SUM(stay) FROM visits", epsilon=enough, noise=noise)


def test_a_wrong_unit_or_bound_in_the_clause_is_not_offered_again(opened: Open) -> None:
    dataset = opened()
    for option in ("privacy_unit_column = ward", "max_rows_contributed = 1"):
        both = "FROM (SELECT ward FROM visits UNION ALL SELECT wards FROM visits) AS t"
        clause = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, {option})"
        assert corrections(dataset.session, f"{clause} COUNT(*) {both}") == ()
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, privacy_unit_column = patient_id)"
    [offer] = corrections(dataset.session, f"{clause} COUNT(*) FROM visit")
    dataset.ask(offer.sql)


def test_a_question_that_no_single_block_can_be_taken_of_is_offered_cheaper(opened: Open) -> None:
    dataset = opened(more=COHORTS)
    dataset.ask(COUNT, epsilon=8)
    [offer] = corrections(dataset.session, "SELECT COUNT(*) FROM (SELECT stay FROM visits) AS t", epsilon=3)
    assert offer.epsilon == 2


def test_what_is_held_is_not_offered(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = opened()
    [offer] = corrections(dataset.session, "SELECT * FROM visits", epsilon="0.1")
    with monkeypatch.context() as patch:
        patch.setattr(Reader, "exact", lambda *_: 1 / 0)
        with pytest.raises(Held) as held:
            dataset.ask(offer.sql, epsilon="0.1")
    assert corrections(dataset.session, "SELECT * FROM visits", epsilon="0.1") == ()
    dataset.clear_hold(held.value.position)
    assert corrections(dataset.session, "SELECT * FROM visits", epsilon="0.1") == (offer,)


def test_an_accuracy_that_does_not_fit_is_offered_at_a_price_that_does(opened: Open) -> None:
    dataset = opened()
    dataset.ask("SELECT SUM(stay) FROM visits", epsilon="9.9")
    clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(within = 5, confidence = 0.9)"
    [offer] = corrections(dataset.session, f"{clause} COUNT(*) FROM visits")
    assert offer.sql == f"{clause.replace('within = 5', 'epsilon = 0.1')} COUNT(*) FROM visits"
    dataset.ask(offer.sql, epsilon=offer.epsilon)


def test_corrections_read_nothing(opened: Open, tmp_path: Path) -> None:
    """Also without any source they are the same."""
    dataset = opened()
    found = corrections(dataset.session, "SELECT ward, stay FROM visits", epsilon="0.1")
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    assert corrections(opened().session, "SELECT ward, stay FROM visits", epsilon="0.1") == found
    assert not dataset.curator.has_ledger
