"""Questions in a Jupyter kernel without ipywidgets (failure case C20)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapwing.examples.visits import write_visits
from support.kernels import kernel, run_cell


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_visits(tmp_path)
    return tmp_path


def test_a_kernel_without_ipywidgets_asks_and_prepares(folder: Path) -> None:
    with kernel(folder) as client:
        run_cell(client, "import lapwing; visits = lapwing.open('visits.toml', analyst='ann')")
        ask = "print(visits.ask('SELECT COUNT(*) AS n FROM visits', epsilon='0.1'))"
        assert "charged ε 0.1" in run_cell(client, ask)
        # A copy is written with progress reports, which DuckDB cannot measure here.
        run_cell(client, "shares = []; visits.curator.prepare(progress=shares.append, again=True)")
        said = run_cell(client, "print(shares == sorted(shares), shares[0], shares[-1])")
        assert said == "True 0.0 1.0\n"
        again = "print(visits.ask('SELECT SUM(cost) AS s FROM visits', epsilon='0.1'))"
        assert "charged ε 0.1" in run_cell(client, again)
        run_cell(client, "visits.close()")
        run_cell(client, "%load_ext lapwing")
        assert "Nothing was charged" in run_cell(
            client, "%%lapwing visits.toml --epsilon 0.5\nSELECT COUNT(*) AS n FROM visits"
        )
