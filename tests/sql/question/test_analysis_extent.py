"""What rows could make too large is refused by its text alone, before anything is charged."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from random import Random

import pytest

from lapwing.engines.dialect import SqlDialect
from lapwing.engines.dialects import DuckDbDialect, PostgresDialect, SparkDialect
from lapwing.sql.policy.kinds import Kind, Moment, Text, Truth
from lapwing.sql.question.analysis import ADDED, COPIES, MOST_COPIES, MOST_MADE
from lapwing.sql.question.expression import Apply, Constant, Expression, Op, Reference
from lapwing.sql.question.functions import is_like
from lapwing.sql.question.refusal import Refused
from lapwing.sql.reading.render_expression import WRITTEN, ExpressionWriter
from support.cases import each
from support.clinic import asked, clinic_catalog
from support.growing_texts import GROWING
from support.private_tables import whole

SPELLINGS: tuple[SqlDialect, ...] = (DuckDbDialect(), PostgresDialect(), SparkDialect())
LONG = "a text could have more than"


@pytest.mark.parametrize("grown", GROWING)
def test_what_grows_with_each_sub_query_is_refused(grown: str) -> None:
    with pytest.raises(Refused):
        asked(GROWING[grown]("stay > 3").replace("who", "patient_id"))


def test_a_text_holds_so_many_texts_of_a_row_and_so_many_bytes() -> None:
    names, one_row = ["name"] * MOST_COPIES, replace(clinic_catalog(), rows=1)
    asked(f"SELECT COUNT(DISTINCT CONCAT({', '.join(names)}, '{'x' * MOST_MADE}')) FROM visits", one_row)
    for more in (f"CONCAT({', '.join(names)}, name)", f"name || '{'x' * MOST_MADE}y'"):
        with pytest.raises(Refused, match=LONG):
            asked(f"SELECT COUNT(DISTINCT {more}) FROM visits", one_row)


def test_bytes_are_counted_not_letters() -> None:
    asked(f"SELECT COUNT(DISTINCT name || '{'é' * (MOST_MADE // 2)}') FROM visits")
    with pytest.raises(Refused, match=LONG):
        asked(f"SELECT COUNT(DISTINCT name || '{'é' * (MOST_MADE // 2)}e') FROM visits")


def test_a_part_of_a_text_is_as_short_as_it_says() -> None:
    parts = ", ".join(["SUBSTRING(name, 1, 10)"] * 50)
    asked(f"SELECT COUNT(DISTINCT CONCAT({parts})) FROM visits")
    with pytest.raises(Refused, match=LONG):
        asked(f"SELECT COUNT(DISTINCT CONCAT({parts}, LEFT(name, 1))) FROM visits")


@pytest.mark.parametrize(
    "text",
    ["CASE WHEN stay > 3 THEN {} ELSE name END", "COALESCE({}, name)", "NULLIF({}, 'a')", "LOWER({})"],
)
def test_a_choice_of_texts_is_as_long_as_the_longest(text: str) -> None:
    inner = text.format(f"name || '{'x' * MOST_MADE}'")
    asked(f"SELECT COUNT(DISTINCT {inner}) FROM visits")
    with pytest.raises(Refused, match=LONG):
        asked(f"SELECT COUNT(DISTINCT {inner} || 'y') FROM visits")


def test_a_union_is_as_long_as_its_longest_side() -> None:
    sides = [f"SELECT name || '{'x' * length}' AS n FROM visits" for length in (1, MOST_MADE - 1)]
    for united in (sides, sides[::-1]):
        source = f"({' UNION ALL '.join(united)}) v"
        asked(f"SELECT COUNT(DISTINCT n || 'y') FROM {source}")
        with pytest.raises(Refused, match=LONG):
            asked(f"SELECT COUNT(DISTINCT n || 'yy') FROM {source}")


def test_a_column_that_is_passed_on_counts_once() -> None:
    ctes = ["a0 AS (SELECT *, DATE_TRUNC('month', admitted) AS m, UPPER(name) AS u FROM visits)"]
    ctes += [f"a{n} AS (SELECT * FROM a{n - 1} WHERE stay > {n})" for n in range(1, 19)]
    asked(f"WITH {', '.join(ctes)} SELECT m, COUNT(DISTINCT u) FROM a18 GROUP BY m")


def test_many_groupings_of_many_quantiles_are_refused() -> None:
    quantiles = ", ".join(f"MEDIAN(stay + {n})" for n in range(190))
    keys = ", ".join(f"(ward, FLOOR(stay / {n}))" for n in range(2, 60))
    inner = f"(SELECT ward, LEAST(stay, {', '.join(map(str, range(60, 150)))}) AS stay FROM visits) v"
    with pytest.raises(Refused, match="too many parts"):
        asked(f"SELECT {quantiles} FROM {inner} GROUP BY GROUPING SETS ({keys})")


@pytest.mark.parametrize("form", ["{}", "NOT ({})"])
def test_conditions_are_counted_over_all_sub_queries(form: str) -> None:
    """Planners bring them together, and some then need the square of their number."""

    def chained(each: int) -> str:
        conditions = form.format((" OR " if "NOT" in form else " AND ").join(["stay <> 7"] * each))
        ctes = [f"a0 AS (SELECT stay, {conditions} AS flag FROM visits)"]
        ctes += [f"a{n} AS (SELECT * FROM a{n - 1} WHERE {conditions} AND flag)" for n in range(1, 6)]
        return f"WITH {', '.join(ctes)} SELECT COUNT(*) FROM a5"

    asked(chained(30))
    with pytest.raises(Refused, match="conditions"):
        asked(chained(60))


def _call(op: Op) -> Apply:
    """The operation on columns @, of the sort that its spelling takes."""
    kinds: dict[Op, Kind] = {
        Op.MONTHS: Moment(3600, -999, 999), Op.PART: Moment(3600, -999, 999), Op.FROM_TRUTH: Truth(),
        Op.AND: Truth(), Op.OR: Truth(), Op.NOT: Truth(),
        **dict.fromkeys((Op.LOWER, Op.UPPER, Op.TRIM, Op.SUBSTRING, Op.LENGTH, Op.CONCAT), Text()),
        **dict.fromkeys((Op.LIKE, Op.PARSE_WHOLE), Text()),
    }  # fmt: skip
    parameters: dict[Op, object] = {
        Op.SUBSTRING: (2, 3), Op.LIKE: "%a_", Op.PART: "dayofyear", Op.MONTHS: 3, Op.IN: (1, 2, 3),
        Op.DECODE: ("a", "b"), Op.SCALE: 3, Op.FLOOR_DIVIDE: 3, Op.MODULO: 3, Op.QUOTIENT: 3,
    }  # fmt: skip
    one = (
        Op.SCALE, Op.ABS, Op.FLOOR_DIVIDE, Op.MODULO, Op.FROM_TRUTH, Op.IN, Op.IS_NULL, Op.NOT, Op.DECODE,
        Op.LOWER, Op.UPPER, Op.TRIM, Op.SUBSTRING, Op.LENGTH, Op.LIKE, Op.PARSE_WHOLE, Op.MONTHS, Op.PART,
    )  # fmt: skip
    kind = kinds.get(op, whole(-99, 99))
    args: list[Expression] = [Reference("@", kind), *([] if op in one else [Reference("#", kind)])]
    if op is Op.CASE:
        args = [Constant(True, Truth()), *args]
    result = Truth() if op in (Op.AND, Op.OR, Op.NOT) else kind
    return Apply(op, tuple(args), result, parameters.get(op))  # type: ignore[arg-type]


@each("op", sorted(WRITTEN, key=str))
def test_no_spelling_names_an_argument_or_adds_terms_more_often_than_is_counted(op: Op) -> None:
    for spelling in SPELLINGS:
        sql = ExpressionWriter(spelling, {"@": "@", "#": "#"}).plain(_call(op))
        assert max(sql.count("@"), sql.count("#")) <= COPIES.get(op, 1), sql
        words = re.findall(r"[A-Za-z_]+\(|[-+*/%<>=]+|\bAND\b|\bOR\b|\bWHEN\b|\bdiv\b|\|\|", sql)
        assert len(words) <= 4 * ADDED.get(op, 1) + 4, sql


@pytest.mark.parametrize("seed", range(3))
def test_declared_values_are_matched_as_a_regular_expression_would(seed: int) -> None:
    random = Random(seed)
    for _ in range(500):
        text = "".join(random.choices("ab%_\n", k=random.randint(0, 8)))
        pattern = "".join(random.choices("ab%_%_", k=random.randint(0, 6)))
        wanted = "".join({"%": ".*", "_": "."}.get(letter, letter) for letter in pattern)
        assert is_like(text, pattern) is bool(re.fullmatch(wanted, text, re.DOTALL))


def test_a_hostile_pattern_is_matched_in_time_of_text_times_pattern() -> None:
    """A regular expression would try 10^20 ways."""
    begun = time.thread_time()
    assert not is_like("a" * 1000, "%a" * 200 + "%b")
    assert time.thread_time() - begun < 1


def test_negations_do_not_add_up() -> None:
    """A planner removes them in pairs: what is joined within counts once."""
    asked("SELECT COUNT(*) AS n FROM visits WHERE " + "NOT (" * 20 + "stay NOT BETWEEN 2 AND 5" + ")" * 20)
    many = " OR ".join(["stay <> 7"] * 600)
    asked(f"SELECT COUNT(*) AS n FROM visits WHERE NOT (NOT ({many}))")
    with pytest.raises(Refused, match="conditions"):
        asked(f"SELECT COUNT(*) AS n FROM visits WHERE NOT (NOT (NOT ({many})))")
