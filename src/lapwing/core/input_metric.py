"""Input metrics: the distance of neighbouring inputs that a mechanism's loss is about."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from lapwing.core.exact import exact, set_fields
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter


class Distance(Enum):
    """The kinds of distance between neighbouring inputs.

    L1           the sum of all moves of whole numbers.
    L2_SQUARED   the sum of their squares.
    L_INFINITY   the largest move of one number: of a score, or of a question's value.
    ROWS         rows of one unit that are added and removed, or replaced.
    KEYS         keys whose counts change, each by one.
    ANSWERS      answers that change, each to any other.

    Example:
        >>> from lapwing.mechanisms import Distance, Laplace
        >>> Laplace.for_epsilon(1, l1=3).metric.distance is Distance.L1
        True
    """

    L1 = "L1"
    L2_SQUARED = "squared L2"
    L_INFINITY = "largest move of one number"
    ROWS = "changed rows"
    KEYS = "changed keys"
    ANSWERS = "changed answers"


@dataclass(frozen=True, slots=True)
class InputMetric:
    """The distance that a mechanism's loss is about, and the largest one between neighbouring inputs.

    Args:
        distance: The kind of distance.
        bound: The largest distance of neighbouring inputs, above 0.
        relation: The relation of neighbours, where the mechanism fixes it. None: the bound is that of
            whichever relation the caller found it for.

    Raises:
        BadParameter: If a part is not of its type, or the bound is not above 0.

    Example:
        >>> from lapwing.mechanisms import Laplace, RandomizedResponse
        >>> Laplace.for_epsilon(1, l1=3).metric.bound
        Fraction(3, 1)
        >>> RandomizedResponse.two_coins().metric.relation.value
        'replace one unit'
    """

    distance: Distance
    bound: Fraction
    relation: Relation | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.distance, Distance):
            raise BadParameter("distance", "must be a Distance")
        if not (self.relation is None or isinstance(self.relation, Relation)):
            raise BadParameter("relation", "must be a Relation, or None")
        bound = exact(self.bound, "bound")
        if bound <= 0:
            raise BadParameter("bound", "must be above 0")
        set_fields(self, bound=bound)
