"""The picture of spending shows what the ledger had left, block by block, at every step."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from lapwing.core.budget import Terms
from lapwing.core.losses import GaussianNoise, Repeated
from lapwing.errors import BadParameter
from lapwing.ledger import Ledger, budget_history
from lapwing.ledger.budget_history import BudgetHistory, grant_of
from lapwing.ledger.gate import Gate
from lapwing.ledger.recovery import recover
from lapwing.ledger.spending import Target
from lapwing.plots import save, spending
from lapwing.plots.spending import MOST_LINES, equal_blocks
from support.doc_pictures import draw_pictures
from support.ledgers import Home, open_account, open_sliced, release
from support.ledgers import spending as price_of

START = datetime(2026, 3, 1, tzinfo=UTC)
GAUSSIAN = GaussianNoise(Fraction(40), Fraction(1), 1)


def left_now(ledger: Ledger) -> dict[str, float]:
    blocks = ledger.look_at(ledger.account("visits"), ())
    return {block.label: float(block.left(account.terms)) for account, block in blocks}


def ends_with(found: BudgetHistory) -> dict[str, float]:
    names = ["*" if name.startswith("every") else name for name in found.blocks]
    return dict(zip(names, found.left[-1].tolist(), strict=True))


def walk(blocks: int, moments: int, *, names: str = "b{}", grants: int = 1) -> BudgetHistory:
    """An invented course in which every block goes down on its own."""
    chance = np.random.default_rng(blocks)
    left = 1 - np.cumsum(chance.random((moments, blocks)), axis=0) / (1.2 * moments)
    times = tuple(START + timedelta(days=k) for k in range(moments))
    terms = [Terms.of(1, "1e-6"), *[Terms.of("0.25", "1e-8")] * (grants - 1)]
    given = tuple(grant_of(each, times[k * moments // (grants + 1)]) for k, each in enumerate(terms))
    return BudgetHistory("visits", times, tuple(names.format(k) for k in range(blocks)), left, given, ())


def named(figure: Figure) -> dict[str, Any]:
    """Everything that was drawn under a name of ours."""
    things = [thing for axes in figure.axes for thing in axes.get_children()]
    return {str(thing.get_gid()): thing for thing in things if thing.get_gid()}


def texts(figure: Figure) -> str:
    return "\n".join(
        [text.get_text() for text in figure.texts] + [text.get_text() for text in figure.axes[0].texts]
    )


def require_readable(figure: Figure) -> None:
    """Everything lies within the page, and no two texts overlap."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    box = figure.get_tightbbox(renderer)
    width, height = figure.get_size_inches()
    assert min(box.x0, box.y0) >= 0
    assert box.x1 <= width
    assert box.y1 <= height
    axes = figure.axes[0]
    written = [*figure.texts, *axes.texts, axes.xaxis.label, axes.yaxis.label]
    boxes = [text.get_window_extent(renderer).shrunk(0.98, 0.9) for text in written if text.get_text()]
    for k, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[k + 1 :])


# The course is the ledger's


def test_every_step_of_every_block_is_there(home: Home) -> None:
    ledger = home.create()
    open_sliced(ledger, 3)
    seen = [left_now(ledger)]
    for loss, blocks in (("0.1", ["b0"]), (GAUSSIAN, ["b0", "b2"]), ("0.25", ["b1"])):
        release(ledger, loss, Target("visits", blocks))
        seen.append(left_now(ledger))
    release(ledger, "0.125", Target("visits", everyone=True))
    seen.append(left_now(ledger))
    found = BudgetHistory.of(ledger, "visits")
    assert found.blocks == ("everybody else", "b0", "b1", "b2")
    assert found.times == tuple(sorted(found.times))
    rows = [dict(zip(["*", "b0", "b1", "b2"], row.tolist(), strict=True)) for row in found.left]
    for moment in seen:
        assert any(row == pytest.approx(moment, abs=1e-5) for row in rows)
    assert ends_with(found) == pytest.approx(seen[-1], abs=1e-5)
    assert np.isnan(found.left[0, 1:]).all()  # the blocks were opened later
    assert found.left[0, 0] == pytest.approx(1)


def test_what_is_held_is_not_left_until_it_lapses(home: Home) -> None:
    ledger = home.create()
    open_account(ledger)
    work = Gate(ledger, principal="trainer").reserve(price_of(Repeated(GAUSSIAN, 20)))
    held = left_now(ledger)["*"]
    work.step(GAUSSIAN)
    work.settle(stopping_was_decided_from_released_values=True)
    found = BudgetHistory.of(ledger, "visits")
    assert found.blocks == ("everyone",)
    assert found.left[:, 0].min() == pytest.approx(held, abs=1e-5)
    assert ends_with(found) == pytest.approx(left_now(ledger), abs=1e-5)
    assert found.left[-1, 0] > held


def test_blocks_keep_their_line_through_raises(home: Home) -> None:
    ledger = home.create()
    open_sliced(ledger, 2)
    open_account(ledger, "survey")
    release(ledger, "0.75", Target("visits", ["b0"]))
    ledger.raise_budget("visits", epsilon="0.5", delta=0, curator=home.curator)
    ledger.open_blocks("visits", ["later"])
    ledger.raise_budget("survey", epsilon="0.5", delta=0, curator=home.curator)
    release(ledger, "0.125", Target("visits", ["b1"]))
    ledger.raise_budget("visits", epsilon="0.25", delta=0, curator=home.curator)
    release(ledger, "0.0625", Target("visits", ["later"]))
    found = BudgetHistory.of(ledger, "visits")
    assert found.blocks == ("everybody else", "b0", "b1", "later")
    assert [grant.epsilon for grant in found.grants] == [1, Fraction(1, 2), Fraction(1, 4)]
    assert ends_with(found) == pytest.approx(left_now(ledger), abs=1e-5)
    course_of_b0 = found.left[~np.isnan(found.left[:, 1]), 1]
    assert [
        float(course_of_b0[k]) for k in np.flatnonzero(np.diff(course_of_b0, prepend=np.nan))
    ] == pytest.approx([1, 0.25, 0.5, 0.25], abs=1e-5)
    figure = spending(found)
    assert {"cap-0", "cap-1", "cap-2", "raise-1", "raise-2"} <= set(named(figure))
    assert "ε 1.75 for life after 2 raises" in texts(figure)
    assert "raised by ε 0.25: in all 1.75" in texts(figure)


def test_a_recovery_is_visible(file_home: Home) -> None:
    home = file_home
    with home.create() as ledger:
        open_sliced(ledger, 2)
    home.anchor.unlink()
    Path(ledger.store.witnesses[0].where).unlink()
    recover(home.where, curator=home.curator, keys=home.keys, anchor=home.anchor)
    found = BudgetHistory.of(home.open(), "visits")
    assert set(ends_with(found).values()) == {0.0}
    assert len(found.recovered) == 1
    figure = spending(found)
    assert "recovered-0" in named(figure)
    assert "nothing is left" in texts(figure)


def test_long_histories_are_looked_at_now_and_then(
    file_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = file_home.create()
    open_sliced(ledger, 3)
    for k in range(60):
        release(ledger, "0.001", Target("visits", [f"b{k % 3}"]))
    ledger.raise_budget("visits", epsilon=1, delta=0, curator=file_home.curator)
    release(ledger, "0.001", Target("visits", ["b1"]))
    whole = BudgetHistory.of(ledger, "visits")
    for name, value in (("MOST_MOMENTS", 10), ("FEWEST_MOMENTS", 5), ("AT_ONCE", 7)):
        monkeypatch.setattr(budget_history, name, value)
    few = BudgetHistory.of(ledger, "visits")
    assert len(whole.times) > 60
    assert len(few.times) <= 16
    assert ends_with(few) == ends_with(whole)
    known = {tuple(row) for row in np.nan_to_num(whole.left).tolist()}
    assert {tuple(row) for row in np.nan_to_num(few.left).tolist()} <= known


# The picture


def test_few_blocks_are_lines(tmp_path: Path) -> None:
    found = walk(3, 10)
    parts = named(spending(found))
    for k in range(3):
        drawn = parts[f"line-{k}"]
        assert drawn.get_drawstyle() == "steps-post"
        assert drawn.get_ydata()[:-1] == pytest.approx(found.left[:, k])
    assert parts["cap-0"].get_ydata() == pytest.approx([1, 1])


def test_blocks_that_went_alike_share_a_line() -> None:
    found = walk(3, 5)
    wide = replace(
        found, blocks=tuple(f"b{k}" for k in range(30_000)), left=np.repeat(found.left, 10_000, axis=1)
    )
    assert [len(line.blocks) for line in equal_blocks(wide)] == [10_000] * 3
    figure = spending(wide)
    assert "b0\nand 9,999 more" in texts(figure)
    require_readable(figure)


def test_many_blocks_are_bands() -> None:
    found = walk(30_000, 40)
    figure = spending(found)
    parts = named(figure)
    assert "line-0" not in parts
    assert parts["least"].get_ydata()[:-1] == pytest.approx(found.left.min(axis=1))
    assert parts["most"].get_ydata()[:-1] == pytest.approx(found.left.max(axis=1))
    assert parts["middle"].get_ydata()[:-1] == pytest.approx(np.median(found.left, axis=1))
    assert f"(b{int(found.left[-1].argmin())})" in texts(figure)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 2, 12, MOST_LINES, MOST_LINES + 1, 30_000])
@pytest.mark.parametrize("grants", [1, 2, 5])
def test_it_is_readable_with_any_number_of_blocks(blocks: int, grants: int) -> None:
    require_readable(spending(walk(blocks, 30, grants=grants)))


def test_strange_names_are_drawn_as_text(tmp_path: Path) -> None:
    found = replace(walk(4, 5, names="$x_{}$ 患者 \\frac{{ " + "W" * 90), label="$\\bad{ " + "W" * 190)
    figure = spending(found)
    require_readable(figure)
    save(figure, tmp_path / "x.png")


@pytest.mark.parametrize(
    "step", [timedelta(0), timedelta(microseconds=1), timedelta(hours=1), timedelta(days=4000)]
)
def test_any_stretch_of_time_is_drawn(step: timedelta) -> None:
    found = walk(2, 5)
    require_readable(spending(replace(found, times=tuple(START + k * step for k in range(5)))))


def test_nothing_left_and_nothing_spent_are_drawn() -> None:
    found = walk(2, 5)
    for left in (0.0, 1.0):
        require_readable(spending(replace(found, left=np.full((5, 2), left))))
    require_readable(spending(replace(found, times=found.times[:1], left=found.left[:1])))


def test_what_is_said_to_be_left_is_never_more() -> None:
    figure = spending(replace(walk(1, 1), left=np.array([[0.29999]])))
    assert "ε 0.299 is left" in texts(figure)


def test_a_course_without_an_account_is_refused() -> None:
    with pytest.raises(BadParameter):
        spending(replace(walk(1, 1), grants=()))


def test_the_example_is_the_same_every_time(tmp_path: Path) -> None:
    for k in (1, 2):
        save(spending(draw_pictures.invented_clinic()), tmp_path / f"{k}.svg")
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()
    require_readable(spending(draw_pictures.invented_clinic()))


def test_the_example_is_what_a_filter_would_have_left() -> None:
    found = draw_pictures.invented_clinic()
    assert found.left[0, 0] == pytest.approx(1)
    assert len(found.grants) == 2
    assert np.nanmax(found.left) <= 1 + 1e-6
    assert np.nanmin(found.left) > 0
