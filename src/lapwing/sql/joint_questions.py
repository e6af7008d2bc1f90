"""Questions that several members of a consortium answer together: each member's numbers add up over all.

Claim    removing a unit of one member moves that member's vector within each block's l1 and √l2_squared.
         The sum of all vectors is the question's result over all members' bounded tables together.
Because  blocks are the parts of a bound question, one for each grouping, with the bounds of `Part`. Each is
         a sum over rows or over a member's units. Questions that do not add up over members are refused.
Test     tests/sql/test_joint_questions.py

A member is charged before `exact` is called; see lapwing.parties.contribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.core.exact import Number
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.errors import BadValue
from lapwing.ledger import Target, Unit
from lapwing.sql.answering.estimates import AnswerRows, estimate
from lapwing.sql.answering.noisy_numbers import NoisyGrouping
from lapwing.sql.answering.truncation import truncation_sentences
from lapwing.sql.dataset import Dataset
from lapwing.sql.pricing.noise_shares import PartNoise
from lapwing.sql.question.bind import bind_with_text
from lapwing.sql.question.bound_query import BoundQuery, WantedCode, has_declared_keys, number_of_groups
from lapwing.sql.question.meaning import joint_digest
from lapwing.sql.question.refusal import Refused

ONCE_PER_MEMBER = "Whoever is at several members counts once at each."


@dataclass(frozen=True, slots=True)
class JointCells:
    """The numbers of one part in one grouping, and how far one unit of one member can move them."""

    label: str
    length: int
    l1: int
    l2_squared: int
    weight: Fraction


@dataclass(frozen=True, slots=True)
class _Summed:
    """The summed noise of several members, in place of `BudgetShares`."""

    question: BoundQuery
    noises: tuple[PartNoise, ...]

    def mechanism(self, grouping: int, part: int) -> PartNoise:
        return self.noises[grouping * len(self.question.parts) + part]

    def choice(self, grouping: int, wanted: WantedCode) -> Quantile | Extreme:
        raise AssertionError("questions with choices were refused")


class JointQuestion:
    """A question about one member's data whose numbers add up over members. Making it is free."""

    def __init__(self, dataset: Dataset, question: BoundQuery, name: str) -> None:
        """Take a bound question. `JointQuestion.of` binds SQL. Raises `Refused` if it does not add up."""
        _require_additive(question)
        self.dataset = dataset
        self.question = question
        self.name = name

    @classmethod
    def of(cls, dataset: Dataset, question: Any) -> JointQuestion:
        """Bind a question. Only public tables are read."""
        text, bound = bind_with_text(question, dataset.curator.catalog())
        return cls(dataset, bound, text)

    @property
    def truncation(self) -> tuple[str, ...]:
        """Sentences on how many rows of a person each member uses."""
        return tuple(truncation_sentences(self.dataset.policy, self.question, None))

    @property
    def blocks(self) -> tuple[JointCells, ...]:
        """The blocks of the vector in order: one for each grouping and part."""
        return tuple(
            JointCells(
                f"{part.label}{self.question.grouping_in_words(grouping)}",
                number_of_groups(self.question, grouping) * len(part.numbers),
                part.l1,
                part.l2_squared,
                part.weight,
            )
            for grouping in range(len(self.question.sets))
            for part in self.question.parts
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about sums over members."""
        counts_units = any(total.function == "units" for total in self.question.sums)
        return (ONCE_PER_MEMBER,) if counts_units else ()

    @property
    def meaning(self) -> str:
        """A digest of all that is public and must be the same at all members.

        These are the bound question, the declared values of its columns, the contribution bound, the
        privacy unit, and the rows of public tables. Locations of tables and other columns may differ.
        """
        return joint_digest(self.dataset.policy, self.question, self.dataset.curator.public)

    # Charging and reading

    @property
    def unit(self) -> Unit:
        """The privacy unit."""
        return self.dataset.curator.unit

    def targets(self) -> tuple[Target, ...]:
        """Return the accounts to charge: the data's, in the blocks that are reached, and the quota."""
        return self.dataset.curator.targets(self.dataset.analyst, self.question)

    def version(self) -> int:
        """Return the version of the data, or refuse a source or question that cannot be read.

        The version must be the same before the charge and after the rows were read: new rows may be about
        people who were not charged.
        """
        own, question = self.dataset, self.question
        return own.curator.checked_version(
            own.analyst, lambda reader: reader.require_plan(question), question
        )

    def exact(self) -> NDArray[Any]:
        """Return this member's numbers without noise, as int64, or as Python integers if they are large.

        Private: charge first, and compare `version` afterwards.
        """
        with self.dataset.curator.reading(self.question) as reader:
            groupings = reader.exact(self.question)
        return np.concatenate([np.ascontiguousarray(grouping.values.T).ravel() for grouping in groupings])

    # Answering

    def estimate(
        self, values: NDArray[np.int64], noises: Sequence[PartNoise], *, confidence: Number
    ) -> AnswerRows:
        """Return the answer from an opened vector. `noises` are the noises in it, by block."""
        blocks = self.blocks
        if len(noises) != len(blocks) or len(values) != sum(block.length for block in blocks):
            raise BadValue("there must be numbers for every cell, and a noise for every block")
        cuts = np.cumsum([block.length for block in blocks])[:-1]
        parts, each = np.split(values, cuts), len(self.question.parts)
        noisy = [
            NoisyGrouping(
                tuple(parts[s * each : (s + 1) * each]), {}, None, number_of_groups(self.question, s)
            )
            for s in range(len(self.question.sets))
        ]
        return estimate(_Summed(self.question, tuple(noises)), noisy, confidence=confidence)


def _require_additive(question: BoundQuery) -> None:
    """Raise `Refused` if some part of the question is not a sum over members."""
    for grouping, keys in enumerate(question.sets):
        if not has_declared_keys(question, grouping):
            names = ", ".join(question.keys[key].name for key in keys if question.keys[key].codes is None)
            raise Refused(
                f"the values of {names[:80]} are not declared, or too many: members cannot add up groups "
                "that they do not know",
                "Declare them in every member's policy, or group by a column with bounds",
            )
    if question.spectra:
        raise Refused(
            "MEDIAN, QUANTILE, MIN and MAX are no sums over members",
            "Ask for a [quantile]: it is searched by counts, in several stages",
        )
    if any(total.function == "distinct" for total in question.sums):
        raise Refused(
            "COUNT(DISTINCT column) does not add up: two members may hold the same value",
            "Count rows, or people, or group by the column",
        )
    if not question.parts:
        raise Refused("there is nothing to add up in it", "Ask for COUNT, SUM, AVG or VARIANCE")
