"""The registry is complete, and the test that says so fails for anything that is left out."""

from __future__ import annotations

from abc import ABC
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from lapwing import mechanisms
from lapwing.audit.case import Stage
from lapwing.audit.registry.coverage import exported_claims, uncovered, walked_claims
from lapwing.core import laplace
from lapwing.core.laplace import Laplace
from lapwing.core.observed import observed
from lapwing.errors import MissingExtra
from lapwing.learn import payer, search, trainers, validators
from lapwing.learn.repetition import PoissonRuns
from lapwing.learn.trainers.count_models import NaiveBayes
from lapwing.learn.validators import MeanValidator, Validator
from lapwing.parties import consortium
from lapwing.parties.protocols.own_noise import OwnNoise
from lapwing.parties.statistics.statistic import VectorStatistic
from lapwing.sql import joint_questions
from lapwing.sql.answering import truncation
from lapwing.sql.question.bound_query import BoundQuery
from lapwing.survey.randomizers import KaryResponse, numbers
from support.audit_cases import audit_cases


@pytest.fixture(scope="module")
def known() -> list[Any]:
    return list(audit_cases())


def test_everything_that_makes_a_claim_has_a_case(known: list[Any]) -> None:
    assert uncovered(known) == []
    assert len(list(exported_claims())) > 50


def test_cases_have_different_names(known: list[Any]) -> None:
    names = [case.name.casefold() for case in known]
    assert len(names) == len(set(names))


class PlantedMechanism(Laplace):
    """Exported, and audited by nobody."""


class PlantedTrainer(NaiveBayes):
    """Exported, and audited by nobody."""


class PlantedValidator(MeanValidator):
    """Defined among the validators, and audited by nobody."""


def test_an_unlisted_mechanism_is_noticed(known: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "PlantedMechanism", PlantedMechanism, raising=False)
    monkeypatch.setattr(mechanisms, "__all__", [*mechanisms.__all__, "PlantedMechanism"])
    assert uncovered(known) == ["mechanism PlantedMechanism has no case"]


def _unexported(module: Any, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> type:
    """Return a class as if the module defined it."""
    return type(name, bases, {"__module__": module.__name__, **members})


@observed
def _sample(_self: Any, values: Any) -> Any:
    return values


UNEXPORTED: dict[str, tuple[Any, tuple[type, ...], dict[str, Any], str]] = {
    "a mechanism": (laplace, (Laplace,), {}, "mechanism"),
    "a mechanism with a loss of each instance": (laplace, (), {"sample": _sample}, "mechanism"),
    "a mechanism that declares a loss": (laplace, (), {"__annotations__": {"loss": "Pure"}}, "mechanism"),
    "a mechanism outside core": (joint_questions, (), {"sample": _sample}, "mechanism"),
    "a trainer": (
        payer,
        (),
        {"__init__": lambda self, payer: None, "fit": lambda self, rows: rows},
        "trainer",
    ),
    "a validator of another module": (payer, (MeanValidator,), {}, "validator"),
    "a strategy": (payer, (search.EveryCandidate,), {}, "selection"),
    "a law of the number of runs": (payer, (PoissonRuns,), {}, "selection"),
    "a statistic": (consortium, (VectorStatistic,), {}, "protocol"),
    "a randomizer": (numbers, (KaryResponse,), {}, "survey randomizer"),
}


@pytest.mark.parametrize("which", UNEXPORTED)
def test_a_claim_that_is_not_exported_is_noticed(
    which: str, known: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, bases, members, family = UNEXPORTED[which]
    monkeypatch.setattr(module, "Planted", _unexported(module, "Planted", bases, members), raising=False)
    assert uncovered(known) == [f"{family} Planted has no case"]


def test_a_question_that_is_built_by_hand_is_noticed(
    known: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted_question() -> BoundQuery:
        raise NotImplementedError

    planted_question.__module__ = truncation.__name__
    monkeypatch.setattr(truncation, "planted_question", planted_question, raising=False)
    assert uncovered(known) == ["SQL aggregate planted_question has no case"]


def test_private_and_abstract_bases_are_left_out(known: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    private = _unexported(laplace, "_Planted", (Laplace,), {})
    abstract = _unexported(validators, "Planted", (Validator,), {})
    monkeypatch.setattr(laplace, "_Planted", private, raising=False)
    monkeypatch.setattr(validators, "Planted", abstract, raising=False)
    assert uncovered(known) == []


def test_the_walk_finds_what_is_known() -> None:
    found = {one.__name__ for _, one in walked_claims()}
    assert {"AboveThreshold", "Gaussian", "Network", "PrivateTrainer", "SqlStatistic"} <= found
    assert not any(name.startswith("_") for name in found)


def test_an_extra_that_is_missing_is_reported(known: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_extra() -> Any:
        raise MissingExtra("learn", "training")

    monkeypatch.setattr("lapwing.audit.registry.coverage.walked_claims", no_extra)
    [missing] = uncovered(known)
    assert missing.startswith("not all claims could be listed: ")


def test_an_unlisted_aggregate_is_noticed(known: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapwing.audit.registry.coverage.AGGREGATES", (ABC,))
    assert uncovered(known) == ["SQL aggregate ABC has no case"]


def test_an_unlisted_protocol_is_noticed(known: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    planted = type("PlantedProtocol", (OwnNoise,), {})
    monkeypatch.setattr("lapwing.audit.registry.coverage.PROTOCOLS", {"P": planted})
    assert uncovered(known) == ["protocol PlantedProtocol has no case"]


def test_an_unlisted_method_of_publishing_is_noticed(
    known: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lapwing.audit.registry.coverage.METHODS", ("planted",))
    assert uncovered(known) == ["publishing method planted has no case"]


def test_an_unlisted_trainer_is_noticed(known: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "PlantedTrainer", PlantedTrainer, raising=False)
    monkeypatch.setattr(trainers, "__all__", [*trainers.__all__, "PlantedTrainer"])
    assert uncovered(known) == ["trainer lapwing.learn.trainers.PlantedTrainer has no case"]


def test_an_unlisted_validator_is_noticed(known: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlantedValidator, "__module__", validators.__name__)
    monkeypatch.setattr(validators, "PlantedValidator", PlantedValidator, raising=False)
    assert uncovered(known) == ["validator lapwing.learn.validators.PlantedValidator has no case"]


def test_a_case_needs_a_stage_beyond_sampling_or_a_reason(known: list[Any]) -> None:
    one = known[0]
    only_sampled = replace(one, stages={Stage.SAMPLED: one.stages[Stage.SAMPLED]})
    assert uncovered([only_sampled, *known[1:]]) == [
        f"{one.name} has no stage beyond sampling, and no reason for that"
    ]
    assert uncovered([replace(only_sampled, reason="a reason"), *known[1:]]) == []
    assert uncovered([*known, replace(one, stages={})]) == [f"{one.name} has no stage"]


def test_claims_are_numbers_that_can_be_claimed(known: list[Any]) -> None:
    for case in known:
        assert isinstance(case.epsilon, Fraction)
        assert case.epsilon > 0
        assert 0 <= case.delta < 1
