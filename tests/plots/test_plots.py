"""The pictures show what they say: their data is read back from the drawing and computed again here."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm

from lapwing.core.budget import Terms
from lapwing.core.losses import GaussianNoise, LaplaceNoise
from lapwing.errors import BadParameter, MissingExtra
from lapwing.plots import accuracy, curator_and_local, epsilon_delta_curve, privacy_loss, save
from lapwing.plots.accuracy import curator_error, local_error
from lapwing.plots.composition import by_portfolio
from support.doc_pictures import draw_pictures


def part(figure: Figure, name: str) -> Any:
    """The one drawn thing of that name."""
    found = [thing for axes in figure.axes for thing in axes.get_children() if thing.get_gid() == name]
    assert len(found) == 1
    return found[0]


def laplace_figure() -> Figure:
    return epsilon_delta_curve((LaplaceNoise(Fraction(20), 1), 100))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (0.5, 1e-6), (1, 1e-9), (5, 1e-6), (20, 0.1)])
def test_laplace_never_passes_e_to_epsilon_and_gaussian_does(epsilon: float, delta: float) -> None:
    figure = privacy_loss(epsilon, delta)
    bound = math.exp(epsilon)
    assert max(part(figure, "laplace").get_data().values) == pytest.approx(bound, rel=1e-12)
    assert max(part(figure, "gaussian").get_data().values) > bound
    heights = np.diff(part(figure, "gaussian").get_data().values)
    assert (heights <= 0).all()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (0.5, 1e-6), (1, 1e-9), (5, 1e-6)])
def test_the_shaded_mass_is_delta(epsilon: float, delta: float) -> None:
    shaded = part(privacy_loss(epsilon, delta), "delta").get_data()
    mass = float(((shaded.values - shaded.baseline) * np.diff(shaded.edges)).sum())
    assert shaded.baseline == pytest.approx(math.exp(epsilon))
    # σ is the least with six digits, and a thousandth of δ lies left of the picture.
    assert 0.99 * delta <= mass <= delta * (1 + 1e-9)


def test_the_gaussian_steps_are_those_of_the_exact_law() -> None:
    drawn = part(privacy_loss("0.5", "1e-6"), "gaussian").get_data()
    sigma = 8.05249
    k = np.arange(-200, 201)
    weights = np.exp(-(k**2) / (2 * sigma**2))
    law = weights / weights.sum()
    for edge, ratio in zip(drawn.edges[1:], drawn.values, strict=True):
        answer = round((2 * sigma**2 * math.log(ratio) + 1) / 2)
        assert edge == pytest.approx(law[k >= answer].sum(), rel=1e-9)
        assert ratio == pytest.approx(
            math.exp(((answer**2) - (answer - 1) ** 2) / (2 * sigma**2)), rel=1e-9
        )


def test_without_delta_only_laplace_is_drawn() -> None:
    figure = privacy_loss(3, 0)
    assert len(figure.axes) == 1
    assert max(part(figure, "laplace").get_data().values) == pytest.approx(math.exp(3))


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0, 1e-6), (-1, 0), ("nan", 0), (1e-4, 0), (21, 0), (1, 1e-19), (1, 0.6), (1, 1), (1, "inf")],
)
def test_what_cannot_be_read_off_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(BadParameter):
        privacy_loss(epsilon, delta)


def test_ways_of_counting_stand_in_the_right_order() -> None:
    figure = laplace_figure()
    lines = {
        name: part(figure, name).get_ydata() for name in ("basic", "portfolio", "renyi", "distribution")
    }
    assert lines["basic"] == pytest.approx([5.0] * 7)
    assert (lines["distribution"] <= lines["renyi"]).all()
    assert (lines["renyi"] <= lines["portfolio"]).all()
    assert (lines["portfolio"] <= lines["basic"]).all()
    for values in lines.values():
        assert (np.diff(values) <= 0).all()  # a larger δ never needs a larger ε


def test_the_ledgers_line_is_what_a_filter_admits() -> None:
    loss, count, delta = LaplaceNoise(Fraction(20), 1), 100, Fraction(1, 10**6)
    least = by_portfolio([(loss, count)], delta)
    for epsilon, fits in ((least, True), (least * 0.999, False)):
        terms = Terms.of(epsilon, delta)
        assert (terms.how_many(terms.price(loss)) >= count) is fits


def test_a_gaussian_composition_is_near_that_of_one_gaussian() -> None:
    """100 uses at σ = 100 are one at σ = 10: δ = Φ(r/2 - ε/r) - e^ε Φ(-r/2 - ε/r), r = 1/10."""
    figure = epsilon_delta_curve((GaussianNoise(Fraction(100), Fraction(1), 1), 100))
    drawn = part(figure, "distribution")
    for delta, epsilon in zip(drawn.get_xdata(), drawn.get_ydata(), strict=True):
        exact = norm.cdf(0.05 - 10 * epsilon) - math.exp(epsilon) * norm.cdf(-0.05 - 10 * epsilon)
        assert 0.9 * delta < exact <= delta


@pytest.mark.parametrize("steps", [(), ((LaplaceNoise(Fraction(20), 1), 0),)])
def test_a_composition_of_nothing_is_refused(steps: tuple[tuple[LaplaceNoise, int], ...]) -> None:
    with pytest.raises(BadParameter):
        epsilon_delta_curve(*steps)


def test_accuracy_follows_the_laplace_law() -> None:
    n = 10_000
    figure = accuracy(n=n)
    expected, within = part(figure, "count-expected"), part(figure, "count-within")
    for epsilon, size, width in zip(
        expected.get_xdata(), expected.get_ydata(), within.get_ydata(), strict=True
    ):
        q = math.exp(-epsilon)
        k = np.arange(1, 20_000)
        law = (1 - q) / (1 + q) * q**k
        assert size == pytest.approx(100 * 2 * (k * law).sum() / n, rel=1e-6)
        people = round(width * n / 100)
        assert 2 * law[k > people].sum() <= 0.05 < 2 * law[k > people - 1].sum()
    for name in ("mean", "histogram"):
        assert (
            part(figure, f"{name}-within").get_ydata() > part(figure, f"{name}-expected").get_ydata()
        ).all()


def test_accuracy_promises_nothing_where_noise_swamps_the_count() -> None:
    within = part(accuracy(n=100), "mean-within").get_ydata()
    assert np.isnan(within[0])
    assert np.isfinite(within[-1])


@pytest.mark.parametrize("n", [0, -1, 9, 10**13, 1.5, True])
def test_accuracy_needs_a_sensible_n(n: int) -> None:
    with pytest.raises(BadParameter):
        accuracy(n=n)


def test_measured_points_lie_near_the_exact_lines() -> None:
    """Mean squares of 40 runs or more are off by a factor of 9 only if one noise exceeds some 25 scales
    (or nearly all are tiny): false alarm below 1e-6."""
    figure = curator_and_local(epsilon=1, repetitions=60)
    for name, exact in (("curator", curator_error), ("local", local_error)):
        line = part(figure, name)
        n = line.get_xdata()
        assert line.get_ydata() == pytest.approx([100 * exact(Fraction(1), int(size)) for size in n])
        points = part(figure, f"{name}-measured")
        for size, error in zip(points.get_xdata(), points.get_ydata(), strict=True):
            assert 1 / 3 < error / (100 * exact(Fraction(1), int(size))) < 3


def test_the_curators_error_falls_like_one_over_n_and_the_local_one_like_its_root() -> None:
    assert curator_error(Fraction(1), 100) == pytest.approx(10 * curator_error(Fraction(1), 1000))
    assert local_error(Fraction(1), 100) == pytest.approx(math.sqrt(10) * local_error(Fraction(1), 1000))
    k = np.arange(1, 2000)
    q = math.exp(-1)
    assert curator_error(Fraction(1), 1) ** 2 == pytest.approx(2 * ((1 - q) / (1 + q) * k**2 * q**k).sum())


def test_svg_is_well_formed_and_the_same_every_time(tmp_path: Path) -> None:
    for k in (1, 2):
        save(privacy_loss("0.5", "1e-6"), tmp_path / f"{k}.svg")
    first, second = (tmp_path / f"{k}.svg" for k in (1, 2))
    assert first.read_bytes() == second.read_bytes()
    root = ElementTree.parse(first).getroot()
    assert root.tag.endswith("svg")
    text = first.read_text(encoding="utf-8")
    assert "Laplace noise never passes" in text  # the title, for readers and search
    assert "<dc:date>" not in text
    for name in ("laplace", "gaussian", "delta"):
        assert f'id="{name}"' in text


@pytest.mark.parametrize("suffix", ["png", "pdf", "SVG"])
def test_other_formats_are_chosen_by_suffix(suffix: str, tmp_path: Path) -> None:
    save(privacy_loss(1, 0), tmp_path / f"x.{suffix}")
    start = (tmp_path / f"x.{suffix}").read_bytes()[:5]
    assert start.startswith({"png": b"\x89PNG", "pdf": b"%PDF-", "SVG": b"<?xml"}[suffix])


@pytest.mark.parametrize("name", ["x", "x.bmp", "x.svg.gz"])
def test_an_unknown_suffix_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match=r"must end in \.svg"):
        save(privacy_loss(1, 0), tmp_path / name)


def _inside(figure: Figure) -> None:
    """Everything that is drawn lies within the page."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    box = figure.get_tightbbox(canvas.get_renderer())  # type: ignore[no-untyped-call]
    width, height = figure.get_size_inches()
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= width
    assert box.y1 <= height


@pytest.mark.slow
def test_nothing_is_cut_off_at_the_edges() -> None:
    _inside(privacy_loss("0.5", "1e-6"))
    _inside(privacy_loss(20, "1e-18"))
    _inside(privacy_loss("0.001", "1e-6"))
    _inside(privacy_loss(3, 0))
    _inside(laplace_figure())
    _inside(accuracy(n=10_000))
    _inside(accuracy(n=10**12))
    _inside(curator_and_local(epsilon="0.5", repetitions=0))


@pytest.mark.slow
def test_all_pictures_of_the_docs_are_drawn_by_one_command(tmp_path: Path) -> None:
    subprocess.run([sys.executable, draw_pictures.__file__, str(tmp_path)], check=True, timeout=120)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "accuracy.svg",
        "answer.svg",
        "curator-and-local.svg",
        "epsilon-delta.svg",
        "privacy-loss.svg",
        "release-error.svg",
        "spending.svg",
    }
    again = subprocess.run([sys.executable, draw_pictures.__file__], capture_output=True, check=False)
    assert again.returncode == 2


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"lapwing\[plots\]"):
        privacy_loss(1, 0)


def test_importing_the_pictures_loads_no_matplotlib() -> None:
    code = "import sys, lapwing.plots, lapwing.cli.main; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
