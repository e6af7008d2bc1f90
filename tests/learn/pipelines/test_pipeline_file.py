"""A pipeline file: its meaning, and all mistakes at once, with their lines."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from lapwing.errors import BadFile, BadParameter
from lapwing.learn.pipelines.pipeline import Pipeline, Strategy, load_pipeline, raise_as_file_mistake


def edited(folder: Path, **lines: str | None) -> Path:
    """The example with some keys written otherwise (None: left out)."""
    path = folder / "edited.toml"
    written = []
    for line in (folder / "hopeless.toml").read_text().splitlines():
        key = line.partition(" =")[0]
        if key not in lines:
            written.append(line)
        elif lines[key] is not None:
            written.append(f"{key} = {lines[key]}")
    path.write_text("\n".join(written))
    return path


def mistakes(path: Path) -> tuple[str, ...]:
    with pytest.raises(BadFile) as caught:
        load_pipeline(path)
    return caught.value.mistakes


def test_the_example_says_what_it_says(folder: Path) -> None:
    found = load_pipeline(folder / "durations.toml")
    assert (found.name, found.stream, found.label) == ("durations", folder / "rides.toml", "duration")
    assert (found.delta, found.test_share) == (Fraction(1, 10**9), Fraction(1, 10))
    assert (found.schedule.strategy, found.schedule.most_blocks) == (Strategy.CONSERVE, 8)
    assert found.validator.loss == "absolute error"
    assert found.validator.bound == 30
    assert found.validator.levels == 0
    assert load_pipeline(folder / "hopeless.toml").validator.levels == 33


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("name", None, "is missing"),
        ("name", '""', "must not be empty"),
        ("stream", None, "is missing"),
        ("features", "7", "must be SQL"),
        ("label", '"two words"', "must name a column"),
        ("delta", "2", "delta"),
        ("delta", '"1e-9"', "Remove the quotes"),
        ("test_share", "1", "between 0 and 1"),
        ("loss", '"absolut error"', 'Did you mean "absolute error"'),
        ("bound", None, "is missing"),
        ("target", "31", "between 0 and the bound"),
        ("target", None, "is missing"),
        ("eta", "0", "strictly between 0 and 1"),
        ("levels", "1", "must lie between"),
        ("levels", None, "is missing"),
        ("epsilon", "[1.0, 0.5]", "must begin with the smaller"),
        ("epsilon", "1.0", "two numbers in brackets"),
        ("blocks", "[0, 3]", "whole numbers from 1"),
        ("blocks", "[1.5, 3]", "whole numbers from 1"),
    ],
)
def test_each_mistake_is_told_with_its_line(folder: Path, key: str, value: str | None, why: str) -> None:
    path = edited(folder, **{key: value})
    found = mistakes(path)
    assert why in found[0]
    place, line = found[0].split(": ")[0].rsplit(":", 1)
    assert place == str(path)
    if value is not None:
        assert path.read_text().splitlines()[int(line) - 1].startswith(key)


def test_all_mistakes_are_told_at_once(folder: Path) -> None:
    found = mistakes(edited(folder, name=None, target='"1"', epsilon="[1]"))
    assert len(found) == 3


def test_unknown_keys_and_settings_are_mistakes(folder: Path) -> None:
    path = edited(folder, levels="33\ndepth = 3")
    assert "unknown key" in mistakes(path)[0]
    path = edited(folder)
    path.write_text(path.read_text().replace('"linear regression"', '"linear regression"\nsteps = 3'))
    assert "is no setting of linear regression" in mistakes(path)[0]


def test_logistic_regression_needs_a_public_size(folder: Path) -> None:
    path = edited(folder)
    path.write_text(path.read_text().replace('"linear regression"', '"logistic regression"'))
    [only] = mistakes(path)
    assert "pipeline.units_per_block: is needed" in only


def test_accuracy_has_no_bound(folder: Path) -> None:
    path = edited(folder)
    path.write_text(path.read_text().replace('kind = "loss"', 'kind = "accuracy"'))
    assert "validator.bound: belongs to" in " ".join(mistakes(path))


def test_missing_values_are_read_as_they_are_written(folder: Path) -> None:
    path = edited(folder)
    path.write_text(path.read_text() + "\n[missing]\ndistance = 2.5\n")
    assert load_pipeline(path).missing == {"distance": Fraction(5, 2)}


def test_what_does_not_fit_the_policy_is_told_with_its_line(folder: Path) -> None:
    path = folder / "durations.toml"
    with pytest.raises(BadFile, match=r"durations.toml:\d+: pipeline.label: has one value"):
        raise_as_file_mistake(path, BadParameter("label", "has one value"))


@pytest.fixture
def pipeline(folder: Path) -> Pipeline:
    return load_pipeline(folder / "durations.toml")


def test_the_digest_is_of_all_that_is_said(pipeline: Pipeline) -> None:
    others = [
        replace(pipeline, sql=f"{pipeline.sql} WHERE distance > 1"),
        replace(pipeline, delta=pipeline.delta / 2),
        replace(pipeline, test_share=Fraction(1, 5)),
        replace(pipeline, missing={"distance": 3}),
        replace(pipeline, validator=replace(pipeline.validator, target=Fraction(7))),
        replace(pipeline, schedule=replace(pipeline.schedule, first_blocks=2)),
    ]
    assert len({one.digest for one in (pipeline, *others)}) == 7
    assert replace(pipeline, stream=Path("/elsewhere")).digest == pipeline.digest


def test_the_digest_of_a_file_stays_what_it_was(pipeline: Pipeline, folder: Path) -> None:
    """Else runs that wait for data could not go on after an upgrade."""
    assert pipeline.digest == "d08f167821c3fa0ee2bfa830851fce3763fcfce4576dc069d9ff496aa5e2dcd1"
    assert (
        load_pipeline(folder / "late.toml").digest
        == "a304d868fe0d013d22e56f70744d7f7341d2e2cc2ca8b7cdabe7fed6479087af"
    )


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("logistic regression", "steps = 100000000"),
        ("additive trees", "passes = 100000000"),
        ("additive trees", "passes = 2.5"),
        ("additive trees", "bins = 1"),
        ("naive Bayes", "bins = 1"),
        ("naive Bayes", "bins = 1001"),
        ("network", "steps = 100000000"),
    ],
)
def test_settings_that_would_take_for_ever_or_fail_later_have_lines(
    folder: Path, kind: str, setting: str
) -> None:
    path = edited(folder)
    path.write_text(path.read_text().replace('"linear regression"', f'"{kind}"\n{setting}'))
    name = setting.partition(" ")[0]
    [found] = [one for one in mistakes(path) if f"trainer.{name}: " in one]
    line = int(found.split(": ")[0].rsplit(":", 1)[1])
    assert path.read_text().splitlines()[line - 1] == setting
    assert "whole number" in found or "at most" in found
