"""SQL with its price inside: what is taken out, what is left, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lapwing.errors import BadParameter
from lapwing.sql.dataset import Dataset
from lapwing.sql.question.parse import LONGEST
from lapwing.sql.question.priced_text import INSTEAD, OPTIONS, priced_text
from lapwing.sql.question.refusal import Refused

Open = Callable[..., Dataset]
COUNT = "SELECT COUNT(*) AS n FROM visits"


def priced(options: str, rest: str = "COUNT(*) AS n FROM visits") -> str:
    return f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({options}) {rest}"


@pytest.mark.parametrize(
    ("sql", "options"),
    [
        (priced("epsilon = 0.5"), {"epsilon": "0.5"}),
        (priced("epsilon=.5,delta=1e-6"), {"epsilon": ".5", "delta": "1e-6"}),
        (priced("EPSILON = '1/3', Noise = 'Gaussian'"), {"epsilon": "1/3", "noise": "gaussian"}),
        (priced("within = 50, confidence = 0.9, n = 7"), {"within": "50", "confidence": "0.9", "n": 7}),
        (priced("rows = 1, where_first = TRUE, sampling = false"),
         {"rows": 1, "where_first": True, "sampling": False}),
        (priced("max_rows_contributed = 2"), {"rows": 2}),
        (priced("epsilon = -1"), {"epsilon": "-1"}),  # a price that `plan` refuses
        (priced(""), {}),
        ("SELECT WITH DIFFERENTIAL_PRIVACY COUNT(*) AS n FROM visits", {}),
        ("select/* a */with -- b\n differential_privacy\toptions ( epsilon = 1 ) COUNT(*) AS n FROM visits",
         {"epsilon": "1"}),
        (f"(({priced('epsilon = 1')}))", {"epsilon": "1"}),
        (f"WITH t AS (SELECT * FROM visits) {priced('epsilon = 1')}", {"epsilon": "1"}),
    ],
)  # fmt: skip
def test_options_are_read_and_the_plain_select_is_left(sql: str, options: dict[str, Any]) -> None:
    found = priced_text(sql)
    assert found is not None
    assert found.options == options
    assert "DIFFERENTIAL" not in found.question.upper()
    assert len(found.question) == len(sql)
    assert found.question.count("\n") == sql.count("\n")
    assert found.question.rstrip(")").endswith("COUNT(*) AS n FROM visits")


@pytest.mark.parametrize(
    "sql",
    [
        COUNT,
        "SELECT COUNT(*) AS n FROM visits WHERE name = 'WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 9)'",
        "SELECT COUNT(*) AS n FROM visits -- SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 9)",
        'SELECT COUNT(*) AS "SELECT WITH DIFFERENTIAL_PRIVACY" FROM visits',
        "SELECT /* WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 9) */ COUNT(*) AS n FROM visits",
    ],
)
def test_texts_names_and_comments_are_no_clause(sql: str) -> None:
    assert priced_text(sql) is None


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (priced("kappa = 3"), "no option kappa"),
        (priced('"a b" = 3'), "no option of this name"),
        (priced("epsilon = 1, epsilon = 2"), "epsilon is given twice"),
        (priced("rows = 1, max_rows_contributed = 1"), "say the same"),
        (priced("epsilon = cost"), "value of epsilon"),
        (priced("epsilon = NULL"), "value of epsilon"),
        (priced("epsilon = @price"), "value of epsilon"),
        (priced("epsilon ="), "value of epsilon"),
        (priced(f"epsilon = 0.{'5' * 60}"), "value of epsilon is too long"),
        (priced("rows = 1.5"), "value of rows"),
        (priced("where_first = 1"), "value of where_first"),
        (priced("noise = 1"), "value of noise"),
        (priced("privacy_unit_column = 'a'"), "value of privacy_unit_column"),
        (priced("epsilon = 1 5"), "value of epsilon"),
        (priced("epsilon = 1 -- of 10\n 5"), "value of epsilon"),
        (priced("epsilon = 0. 5"), "value of epsilon"),
        (priced("privacy_unit_column = visits patient_id"), "value of privacy_unit_column"),
        (priced("privacy_unit_column = visits."), "value of privacy_unit_column"),
        (priced("epsilon = (1)"), "cannot be read"),
        (priced("epsilon 1"), "cannot be read"),
        (priced("epsilon = 1,"), "cannot be read"),
        (priced("epsilon = 1 delta = 2"), "value of epsilon"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1", "cannot be read"),
        ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(", "cannot be read"),
        (f"SELECT COUNT(*) FROM ({priced('epsilon = 1')}) AS t", "first SELECT of the whole query"),
        (f"WITH t AS ({priced('epsilon = 1')}) {COUNT}", "first SELECT of the whole query"),
        (f"{COUNT} UNION ALL {priced('epsilon = 1')}", "first SELECT of the whole query"),
        (f"{priced('epsilon = 1')}; {priced('epsilon = 1')}", "first SELECT of the whole query"),
        (f"{priced('epsilon = 1')}{' ' * LONGEST}", "longer than"),
        (priced("epsilon = '\u202e1'"), "cannot be shown"),
        (priced("epsilon = 'open"), "cannot be read as SQL"),
        (priced("epsilon = " + "(" * 500), "nested too deeply"),
    ],
)
def test_what_is_no_clause_of_the_whole_query_is_refused(sql: str, says: str) -> None:
    with pytest.raises(Refused, match="SQL") as refused:
        priced_text(sql)
    assert says in str(refused.value)


def test_a_price_that_is_too_large_to_be_meant_takes_no_time(opened: Open) -> None:
    for number in ("1e999999999", "1e-999999999", "NaN"):
        with pytest.raises(BadParameter):
            opened().plan(priced(f"epsilon = '{number}'"))


def test_options_of_bigquery_without_a_meaning_say_what_to_write() -> None:
    for name, instead in INSTEAD.items():
        with pytest.raises(Refused) as refused:
            priced_text(priced(f"epsilon = 1, {name} = 3"))
        assert name in refused.value.construct
        assert refused.value.instead == instead
        assert refused.value.place == (1, priced(f"epsilon = 1, {name}").index(name) + 1)


def test_refusals_point_at_the_text_as_it_was_written(opened: Open) -> None:
    for end in ("\n", "\r\n", "\r"):
        sql = f"SELECT WITH DIFFERENTIAL_PRIVACY{end} OPTIONS(epsilon = 1){end}  hidden FROM visits"
        with pytest.raises(Refused) as refused:
            opened().plan(sql)
        assert refused.value.place == (3, 3)


def test_the_plain_select_is_the_question(opened: Open) -> None:
    """The same plan, and the same stored answer, at no charge."""
    dataset = opened()
    plan = dataset.plan(priced("epsilon = 0.5, noise = laplace, confidence = 0.9"))
    assert plan == dataset.plan(COUNT, epsilon="0.5", noise="laplace", confidence="0.9")
    assert not dataset.ask(priced("epsilon = 0.5")).is_replay
    assert dataset.ask(COUNT, epsilon="0.5").is_replay
    assert dataset.ask(f"  {priced('epsilon = 5e-1, confidence = 0.8')}").is_replay


def test_an_option_stands_in_the_text_or_beside_it(opened: Open) -> None:
    dataset = opened()
    beside: dict[str, Any] = {
        "epsilon": 1, "delta": 0, "within": 5, "confidence": "0.95", "noise": "auto", "rows": 1, "n": 9,
        "where_first": True, "sampling": True,
    }  # fmt: skip
    texts = {"noise": "auto", "where_first": "TRUE", "sampling": "TRUE", "rows": "1", "n": "9"}
    for name, value in beside.items():
        assert name in OPTIONS
        with pytest.raises(BadParameter, match="in one place") as error:
            dataset.plan(priced(f"{name} = {texts.get(name, '0.5')}"), **{name: value})
        assert error.value.name == name
    assert dataset.plan(priced("delta = 0"), epsilon=1).cost.delta == 0
    with pytest.raises(BadParameter, match="epsilon"):
        dataset.plan(priced("delta = 0"))


def test_bigquerys_words_about_rows_and_units_must_be_true(opened: Open) -> None:
    dataset = opened()
    assert dataset.plan(priced("epsilon = 1, max_rows_contributed = 1")).question.rows == 1
    assert dataset.plan(priced("epsilon = 1, max_rows_contributed = 9")).question.rows == 2
    twice = "COUNT(*) FROM (SELECT ward FROM visits UNION ALL SELECT ward FROM visits) AS t"
    with pytest.raises(Refused, match="up to 2 rows"):
        dataset.plan(priced("epsilon = 1, max_rows_contributed = 1", twice))
    for column in ("patient_id", '"patient_id"', "visits.patient_id"):
        assert dataset.plan(priced(f"epsilon = 1, privacy_unit_column = {column}"))
    with pytest.raises(Refused, match="protects by patient_id"):
        dataset.plan(priced("epsilon = 1, privacy_unit_column = ward"))


def test_only_plan_and_ask_read_the_clause(opened: Open) -> None:
    with pytest.raises(Refused, match="`plan` and `ask` only") as refused:
        opened().two_stage(priced("confidence = 0.9"), within=50)
    assert refused.value.place == (1, 8)


def test_a_clause_can_be_written_into_other_sql() -> None:
    """With the same options, but for those that are changed."""
    sql = priced(
        "epsilon = '1/3', noise = gaussian, where_first = TRUE, rows = 2, privacy_unit_column = who"
    )
    found = priced_text(sql)
    assert found is not None
    other = found.priced("WITH t AS (SELECT stay FROM visits) SELECT SUM(stay) FROM t", epsilon="0.5", n=9)
    again = priced_text(other)
    assert again is not None
    assert again.options == {**found.options, "epsilon": "0.5"}
    assert again.unit_column == "who"
