"""Data sets, plans and answers show themselves in notebooks: escaped, without scripts."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import lapwing
from lapwing.sql.dataset import Dataset

Open = Callable[..., Dataset]
MARKUP = "<script>alert(1)</script>"
ALLOWED = {"div", "p", "strong", "br", "table", "tr", "th", "td"}
BY_WARD = "SELECT ward, COUNT(*) AS n, AVG(stay) AS days, MEDIAN(stay) AS middle FROM visits GROUP BY ward"


class _Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert all(name in ("class", "style") for name, _ in attrs)
        self.seen.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def shown(html: str) -> str:
    """Return the text, if the tags are harmless."""
    tags = _Tags(html)
    assert tags.seen <= ALLOWED
    return tags.text


def test_a_data_set_shows_its_tables_columns_and_budget_and_makes_no_ledger(
    opened: Open, tmp_path: Path
) -> None:
    dataset = opened()
    text = shown(dataset._repr_html_())
    for part in (
        "visits",
        "patient_id",
        "ward",
        "A, B",
        "0 to 10 in steps of 1",
        "2025-01-01 to 2025-12-31",
    ):
        assert part in text
    assert "at most 2 rows of each person" in text
    assert "ε 10, δ 1e-6. Nothing has been asked yet" in text
    assert not list(tmp_path.glob("*.ledger*"))
    dataset.ask("SELECT COUNT(*) FROM visits", epsilon=1)
    assert "Budget left: ε 9 of 10" in shown(dataset._repr_html_())
    assert repr(dataset) == "<Dataset visits, asked by ann, with visits>"


def test_a_ledger_that_cannot_be_read_does_not_hide_the_tables(opened: Open, tmp_path: Path) -> None:
    dataset = opened()
    dataset.ask("SELECT COUNT(*) FROM visits", epsilon=1)
    dataset.close()
    (tmp_path / "lapwing.ledger").write_bytes(b"no ledger")
    text = shown(opened(rewrite=False)._repr_html_())
    assert "patient_id" in text
    assert "cannot say what is left" in text


def test_a_plan_shows_its_price_errors_and_bounds(opened: Open) -> None:
    text = shown(opened().plan(BY_WARD, epsilon="0.5")._repr_html_())
    assert text.startswith("Costs ε 0.5; nothing is charged by looking.")
    for part in (
        "±",
        "Laplace noise",
        "exponential choice",
        "rank within",
        "at most 2 rows of each person",
    ):
        assert part in text


def test_an_answer_shows_intervals_truncation_and_rank_notes(opened: Open) -> None:
    answer = opened().ask(BY_WARD, epsilon=5)
    text = shown(answer._repr_html_())
    for part in (" to ", "middle: no interval of values", "at most 2 rows", "charged ε 5", "Receipt:"):
        assert part in text


def test_texts_are_escaped(opened: Open) -> None:
    dataset = opened()
    sql = f'SELECT ward AS "{MARKUP}", COUNT(*) AS "<b>" FROM visits GROUP BY ward'
    plan = dataset.plan(sql, epsilon=1)
    for html in (plan._repr_html_(), plan.release()._repr_html_()):
        assert "<script" not in html
        assert "<b>" not in html
        assert "alert(1)" in shown(html)


def test_no_private_value_is_shown(opened: Open) -> None:
    """Names begin with "secret". They are declared as text, and shown only where many people have them."""
    dataset = opened()
    plan = dataset.plan("SELECT name, COUNT(*) AS n FROM visits GROUP BY name", epsilon=1)
    for html in (dataset._repr_html_(), plan._repr_html_(), plan.release()._repr_html_()):
        assert "secret" not in html


def test_all_three_are_public(opened: Open) -> None:
    dataset = opened()
    plan = dataset.plan("SELECT COUNT(*) FROM visits", epsilon=1)
    for one, kind in ((dataset, lapwing.Dataset), (plan, lapwing.Plan), (plan.dry_run(), lapwing.Answer)):
        assert isinstance(one, kind)
        assert shown(one._repr_html_())
