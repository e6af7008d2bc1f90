"""The choice of ε for a census: its errors by dense least squares, its odds by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.show.topic import Shown, Year, cell_text
from support.shown import rows_of, shown, small

DISTRICTS, BLOCKS, SEXES, LIVES = 4, 16, 2, 3


def dense_errors(rho: float) -> tuple[float, ...]:
    """Return √(2/π) times the deviation of each level's total, from the normal equations of all counts.

    The shares are those of the example's release file: σ² = 1 / (2 · share · ρ) for each measured table.
    """
    town = np.ones((1, DISTRICTS * BLOCKS))
    districts = np.kron(np.eye(DISTRICTS), np.ones((1, BLOCKS)))
    blocks = np.eye(DISTRICTS * BLOCKS)
    total = np.ones((1, SEXES * LIVES))
    life = np.kron(np.ones((1, SEXES)), np.eye(LIVES))
    cells = np.eye(SEXES * LIVES)
    measured = (
        (town, total, 0.05), (town, cells, 0.05), (districts, total, 0.2), (districts, cells, 0.1),
        (blocks, total, 0.2), (blocks, life, 0.1), (blocks, cells, 0.3),
    )  # fmt: skip
    information = np.zeros((len(blocks) * len(cells),) * 2)
    for places, query, share in measured:
        rows = np.kron(places, query)
        information += 2 * share * rho * rows.T @ rows
    covariance = np.linalg.inv(information)
    deviations = [
        np.sqrt(np.diag(rows @ covariance @ rows.T)).mean()
        for rows in (np.kron(places, total) for places in (town, districts, blocks))
    ]
    return tuple(math.sqrt(2 / math.pi) * one for one in deviations)


@pytest.fixture
def found() -> Shown:
    return small("choice").shown


def test_errors_are_those_of_dense_least_squares(found: Shown) -> None:
    heads = ("error of the town's total", "of a district's", "of a block's")
    for row in rows_of(found):
        low, high = 0.0, 1e4  # the ρ whose ε is that of the row, by halving
        for _ in range(60):
            middle = (low + high) / 2
            above = zcdp_to_epsilon(Fraction(middle), Fraction(1, 10**6)) > Fraction(str(row["ε"]))
            low, high = (low, middle) if above else (middle, high)
        assert [row[head] for head in heads] == pytest.approx(dense_errors(low), rel=1e-3)


def test_odds_grow_by_e_to_the_epsilon(found: Shown) -> None:
    for row in rows_of(found):
        factor = math.exp(row["ε"])
        assert row["even odds become at most (to 1)"] == pytest.approx(factor)
        after = row["1\u00a0% becomes at most"]
        assert after / (1 - after) == pytest.approx(factor * 0.01 / 0.99)
    assert "even odds (1 : 1) that you are in it can become 20.1 : 1 at most" in found.headline


def test_published_figures_are_labelled_as_such(found: Shown) -> None:
    published = found.tables[1]
    assert "cited, not computed" in published.title
    census = [row for row in rows_of(found, 1) if row["who"] == "US Census 2020"]
    assert [row["ε"] for row in census] == [2.47, 17.14, 26.34]
    assert all(row["source"] and row["protected unit"] and row["period"] for row in rows_of(found, 1))


def test_the_misreadings_of_epsilon_are_denied(found: Shown) -> None:
    text = " ".join(found.sentences)
    assert "not the probability of being identified" in text
    assert "not a share of noise" in text
    assert "each day adds up to" in text


def test_the_picture_has_the_chosen_point_in_each_panel() -> None:
    figure = shown("choice", epsilon="50", prior="1/2").picture()
    for axes in figure.axes:
        [line] = [one for one in axes.lines if one.get_gid() == "chosen"]
        assert np.asarray(line.get_xdata()).tolist() == [50.0] * 2


def test_a_fact_of_a_record_is_two_steps_away(found: Shown) -> None:
    assert "the odds grow at most 20.1-fold" in found.sentences[2]
    assert "e^2ε = 404" in found.sentences[2]


def test_years_are_shown_as_years_and_stay_numbers(found: Shown) -> None:
    assert cell_text(Year(2020)) == "2020"
    (table,) = [one for one in found.tables if "year" in one.heads]
    years = [row[table.heads.index("year")] for row in table.rows]
    assert all(isinstance(year, int) and cell_text(year) == f"{year:d}" for year in years)
