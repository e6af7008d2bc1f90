"""Trainer, validator and calibration of a pipeline file. What is wrong is noted, with its line."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from lapwing.errors import BadParameter
from lapwing.learn.pipelines import layout
from lapwing.learn.pipelines.calibration import MOST_BINS, CalibrationPart
from lapwing.learn.pipelines.losses import OF_CLASSES, OF_NUMBERS
from lapwing.learn.pipelines.parts import ERROR, NETWORK, OPTIONS, Setting, TrainerPart, ValidatorPart
from lapwing.privacy.loss import checked_epsilon
from lapwing.toml.section import Section, either

VALIDATORS = ("loss", "accuracy", ERROR)
MOST_LEVELS = 1000


def needed(root: Section, name: str, known: tuple[str, ...], write: str) -> Section | None:
    """A table that must be there."""
    if not root.has(name):
        root.missing(name, f"[{name}] with {write}")
    return root.below(name, known)


def trainer_of(root: Section) -> TrainerPart | None:
    """[trainer]."""
    options = sorted({name for names in OPTIONS.values() for name in names})
    section = needed(root, "trainer", ("kind", *options), 'kind = "linear regression"')
    if section is None:
        return None
    if not section.has("kind"):
        section.missing("kind", f"kind = {either(tuple(OPTIONS))}")
    kind = section.one_of("kind", tuple(OPTIONS))
    if kind is None:
        return None
    for name in options:
        if section.has(name) and name not in OPTIONS[kind]:
            section.wrong(name, f"is no setting of {kind}")
    settings = _network(section) if kind == NETWORK else _settings(section, kind)
    try:
        return None if settings is None else TrainerPart(kind, settings)
    except BadParameter as error:
        section.wrong(error.name, error.why)
        return None


def _settings(section: Section, kind: str) -> dict[str, Setting] | None:
    settings: dict[str, Setting] = {}
    for name in OPTIONS[kind]:
        if (value := section.number(name)) is not None:
            if value <= 0:
                section.wrong(name, "must be above 0")
                return None
            settings[name] = _plain(value)
    return settings


def _network(section: Section) -> dict[str, Setting] | None:
    """All settings of a network, each checked; None if one is wrong."""
    settings: dict[str, Setting] = {}
    wrong = [name for name in layout.NEEDED if not section.has(name)]
    for name in wrong:
        section.missing(name, layout.NEEDED[name])
    for name in layout.OPTIONS:
        if not section.has(name):
            continue
        value: Any
        if name == "layers":
            value = section.values[name]
        elif name in ("activation", "optimizer"):
            value = section.text(name)
        else:
            number = section.number(name)
            value = None if number is None else _plain(number)
        if value is None or section.checked(name, lambda one, key: layout.checked(key, one), value) is None:
            wrong.append(name)
        else:
            settings[name] = tuple(value) if isinstance(value, list) else value
    return None if wrong else settings


def _plain(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)


def validator_of(root: Section) -> ValidatorPart | None:
    """[validator], and [reject]."""
    known = ("kind", "loss", "bound", "step", "target", "eta")
    section = needed(root, "validator", known, "kind, target and eta")
    levels = _levels(root)
    if section is None:
        return None
    for name, write in (
        ("kind", 'kind = "loss", "accuracy" or (of a statistic) "error"'),
        ("target", "target = 7: what must be shown to be reached"),
        ("eta", "eta = 0.05: how often a bad model may be accepted"),
    ):
        if not section.has(name):
            section.missing(name, write)
    kind = section.one_of("kind", VALIDATORS)
    target, eta = section.number("target"), section.number("eta")
    loss, bound, step = _loss(section, kind)
    if kind == ERROR and levels:
        root.mistakes.add(("reject",), "is for models. Remove it")
    if kind is None or target is None or eta is None or (kind == "loss") is not bool(loss and bound):
        return None
    try:
        if kind == ERROR:
            return ValidatorPart(target=target, eta=eta, loss=ERROR)
        return ValidatorPart(target=target, eta=eta, loss=loss, bound=bound, step=step, levels=levels)
    except BadParameter as error:
        section.wrong(error.name if error.name in known else "target", error.why)
        return None


def _loss(section: Section, kind: str | None) -> tuple[str, Fraction | None, Fraction | None]:
    for name in ("loss", "bound", "step"):
        if kind in ("accuracy", ERROR) and section.has(name):
            section.wrong(name, 'belongs to kind = "loss". Remove it')
        if kind == "loss" and name != "step" and not section.has(name):
            section.missing(name, 'loss = "absolute error"' if name == "loss" else "bound = 60")
    found = section.one_of("loss", (*OF_NUMBERS, *OF_CLASSES)) or ""
    return found, section.number("bound"), section.number("step")


def _levels(root: Section) -> int:
    reject = root.below("reject", ("levels",))
    if reject is None:
        return 0
    if not reject.has("levels"):
        reject.missing("levels", "levels = 17: how fine the net of lines is, in each weight")
    return reject.whole("levels", least=2, most=MOST_LEVELS) or 0


def calibration_of(root: Section) -> CalibrationPart | None:
    """[calibration], which need not be there."""
    section = root.below("calibration", ("epsilon", "bins"))
    if section is None:
        return None
    for name, write in (
        ("epsilon", "epsilon = 0.1: how much of an attempt's ε the testing units pay for it"),
        ("bins", "bins = 10"),
    ):
        if not section.has(name):
            section.missing(name, write)
    epsilon, bins = section.number("epsilon"), section.whole("bins", least=2, most=MOST_BINS)
    if epsilon is None or bins is None or section.checked("epsilon", checked_epsilon, epsilon) is None:
        return None
    return CalibrationPart(epsilon=epsilon, bins=bins)
