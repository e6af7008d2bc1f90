"""A budget in memory, for experiments: it forgets what was spent when its process ends."""

from __future__ import annotations

import inspect
import threading
from fractions import Fraction
from typing import Any

from lapwing.core.budget import Charge, PrivacyFilter, Terms, pure_text
from lapwing.core.composition import Charged, StatedLoss, common_relation, stated
from lapwing.core.exact import Number
from lapwing.core.losses import Loss, Relation
from lapwing.core.process_bound import ProcessBound
from lapwing.errors import BadParameter

_NOTHING_CHARGED = "nothing charged"


class Budget(ProcessBound):
    """A budget (ε, δ) in memory, for experiments and for data that are public or invented.

    Claim    everything that is released through one budget is (ε, δ)-private together, also if mechanisms
             are chosen by earlier answers.
    Because  it has the filters of a ledger's account (`Terms`), and charges before it draws. No copy of it,
             and no forked child, can spend again.
    Test     tests/core/test_experiment_budget.py

    It protects nobody whose data are used again: it forgets when the process ends, and knows of no other
    budget about the same people. For data about people, use `lapwing.open` or a `lapwing.Ledger`, which
    remember.

    Args:
        epsilon: The ε of all releases together, in [1e-9, 1000].
        delta: Their δ, in [0, 1). With 0, only mechanisms with a pure ε fit.
        relation: The relation of neighbours. None: that of the first charge, and all must agree.

    Raises:
        BadParameter: If a parameter is out of range.

    Example:
        >>> import lapwing
        >>> from lapwing.mechanisms import Laplace
        >>> budget = lapwing.Budget(epsilon=1)
        >>> noisy = budget.release(Laplace.for_epsilon("0.1", l1=1), [42])
        >>> budget
        Budget(epsilon=1, delta=0, left=0.9; in memory only, forgotten when this process ends)
        >>> budget.left
        Fraction(9, 10)
    """

    def __init__(self, *, epsilon: Number, delta: Number = 0, relation: Relation | None = None) -> None:
        super().__init__()
        common_relation([], relation)
        self._filter = PrivacyFilter(Terms.of(epsilon, delta))
        self._given = relation
        self._first: Relation | str | None = _NOTHING_CHARGED
        self._charging = threading.Lock()

    def release(self, mechanism: Any, *inputs: Any, **named: Any) -> Any:
        """Charge a mechanism's loss, then draw from it, and return what it draws.

        Args:
            mechanism: An object with a `loss`, and with `sample` (or `start`, for a session).
            inputs: What `sample` or `start` takes.
            named: What it takes by name.

        Returns:
            The result of `sample` or `start`. If that fails, for example because of a bad value, the charge
            stays.

        Raises:
            OverBudget: If the loss does not fit what is left. Nothing is charged or drawn.
            BadParameter: If it is no mechanism, takes other inputs, or is about other neighbours than the
                budget. Nothing is charged or drawn.
        """
        draw = getattr(mechanism, "sample", None) or getattr(mechanism, "start", None)
        if not callable(draw):
            raise BadParameter("mechanism", "must have a loss, and a sample to draw (or a start)")
        try:
            inspect.signature(draw).bind(*inputs, **named)
        except TypeError as error:
            raise BadParameter(
                "inputs", f"do not fit the mechanism: {error}. Nothing was charged"
            ) from None
        except ValueError:  # a function in C may have no signature
            pass
        self.charge(mechanism)
        return draw(*inputs, **named)

    def charge(self, loss: Loss | StatedLoss | Charged) -> None:
        """Charge a loss, before the caller draws or releases anything that has it.

        Args:
            loss: A loss, a stated loss, or a mechanism with a loss.

        Raises:
            OverBudget: If the loss does not fit what is left. Nothing is charged.
            BadParameter: If it is no known loss, or is about other neighbours than the budget.
        """
        asked = stated(loss)
        price = self._filter.terms.price(asked.loss)
        self.require_here()
        with self._charging:
            agreed = self._agreed(asked)
            self._admit(price)
            self._first = agreed

    def _agreed(self, asked: StatedLoss) -> Relation | None:
        if self._given is None and self._first != _NOTHING_CHARGED:
            assert not isinstance(self._first, str)
            return common_relation([self._first, asked.relation], None)
        agreed = common_relation([asked.relation], self._given)
        return StatedLoss(asked.loss, agreed).relation  # also checks that the loss holds for it

    def _admit(self, price: Charge) -> None:
        self._filter.admit(price)

    @property
    def relation(self) -> Relation | None:
        """The relation of neighbours; None if no charge has named one."""
        if self._given is not None:
            return self._given
        return None if isinstance(self._first, str) else self._first

    @property
    def left(self) -> Fraction:
        """The greatest pure ε of one release that would still fit."""
        return self._filter.terms.largest_pure(self._filter.spent)

    def __repr__(self) -> str:
        terms = self._filter.terms
        epsilon, delta = pure_text(terms.epsilon), f"{float(terms.delta):g}"
        left = pure_text(self.left)
        return (
            f"Budget(epsilon={epsilon}, delta={delta}, left={left}; "
            "in memory only, forgotten when this process ends)"
        )
