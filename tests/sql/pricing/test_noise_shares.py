"""Shares: the whole costs exactly what was asked, and nothing but the text decides."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.core.conversions import loss_to_epsilon, zcdp_to_epsilon
from lapwing.core.gaussian import Gaussian
from lapwing.core.laplace import Laplace
from lapwing.core.order_statistics import Extreme, Quantile
from lapwing.errors import BadParameter
from lapwing.sql.pricing.noise_shares import BudgetShares, deviation, divide_budget, largest_rho
from lapwing.sql.question.bound_query import BoundQuery, Computed, NoisyAggregate, Plain
from support.noisy_questions import AVG, COUNT, STAY, VAR, declared, question, undeclared
from support.zcdp import zcdp_cap

MEDIAN = NoisyAggregate("quantile", (), STAY, spectrum=0, fraction=Fraction(1, 2))
TOP = NoisyAggregate("max", (), STAY, spectrum=0)


def questions() -> st.SearchStrategy[BoundQuery]:
    return st.builds(
        lambda hidden, sets, parts, rows, codes: question(
            undeclared() if hidden else declared(3),
            declared(4, "sex"),
            sets=(((0, 1), (1,), ()))[:sets],
            parts=parts,
            rows=rows,
            outputs=(COUNT, MEDIAN, TOP)[: 1 + codes],
            spectra=(STAY,) if codes else (),
        ),
        st.booleans(),
        st.integers(1, 3),
        st.integers(1, 4),
        st.integers(1, 50),
        st.integers(0, 2),
    )


EPSILONS = st.fractions(Fraction(1, 1000), 10, max_denominator=10**6)


@given(questions(), EPSILONS)
@settings(max_examples=200, deadline=None)
def test_with_laplace_noise_the_parts_cost_exactly_what_was_asked(
    asked: BoundQuery, epsilon: Fraction
) -> None:
    shares = divide_budget(asked, epsilon=epsilon, delta="1e-6", noise="laplace")
    assert shares.loss.pure == epsilon
    assert shares.loss.delta0 == (Fraction(1, 10**6) if shares.selected else 0)
    assert shares == divide_budget(asked, epsilon=epsilon, delta="1e-6", noise="laplace")


@given(questions(), EPSILONS, st.sampled_from(["auto", "gaussian"]))
@settings(max_examples=40, deadline=None)
def test_with_gaussian_noise_the_whole_is_epsilon_delta_private(
    asked: BoundQuery, epsilon: Fraction, noise: str
) -> None:
    delta = Fraction(1, 10**6)
    shares = divide_budget(asked, epsilon=epsilon, delta=delta, noise=noise)
    if shares.noise == "laplace":
        assert shares.loss.pure == epsilon
        return
    rho = sum(
        (m.loss.concentrated.rho for a in shares.added if isinstance(m := a.mechanism, Gaussian)),
        Fraction(0),
    )
    pure = sum((one.mechanism.epsilon for one in shares.chosen), Fraction(0))
    pure += sum((one.mechanism.epsilon for one in shares.selected), Fraction(0))
    left = delta - sum((one.mechanism.delta for one in shares.selected), Fraction(0))
    assert left > 0
    assert zcdp_to_epsilon(rho, left) + pure <= epsilon


def test_one_release_keeps_its_own_loss() -> None:
    shares = divide_budget(question(declared(3)), epsilon="0.5", delta=0, noise="auto")
    assert shares.loss == Laplace.for_epsilon("0.5", l1=1).loss
    assert shares.reason == "Laplace: Gaussian noise needs δ"


def test_a_question_that_releases_nothing_costs_nothing() -> None:
    asked = question(declared(3), parts=0, outputs=())
    assert divide_budget(asked, epsilon=1, delta=0, noise="auto").loss.pure == 0


def test_the_split_is_the_best_one() -> None:
    """No other division of ε between two parts has a smaller sum of squared relative errors."""
    asked = question(parts=2)
    shares = divide_budget(asked, epsilon=1, delta=0, noise="laplace")

    def error(first: float) -> float:
        weights = [float(part.weight) for part in asked.parts]
        return (weights[0] / first) ** 2 + (weights[1] / (1 - first)) ** 2

    pure = shares.mechanism(0, 0).loss.pure
    assert pure is not None
    assert error(float(pure)) <= min(error(k / 1000) for k in range(1, 1000)) * (1 + 1e-6)


def test_a_selection_takes_as_much_as_the_average_release() -> None:
    asked = question(undeclared(), parts=1, rows=3)
    shares = divide_budget(asked, epsilon=1, delta="1e-6", noise="laplace")
    (selected,) = shares.selected
    assert (selected.mechanism.epsilon, selected.mechanism.keys) == (Fraction(1, 2), 3)
    assert selected.mechanism.delta == Fraction(1, 10**6)
    shares = divide_budget(asked, epsilon=1, delta="1e-6", noise="gaussian")
    assert shares.selected[0].mechanism.delta == Fraction(1, 2 * 10**6)


def test_what_is_named_twice_is_released_once() -> None:
    tenth = NoisyAggregate("quantile", (), STAY, spectrum=0, fraction=Fraction(1, 10))
    twice = Computed("+", (MEDIAN, Plain(1)))
    outputs = (MEDIAN, MEDIAN, twice, TOP, tenth)
    asked = question(parts=0, outputs=outputs, spectra=(STAY,), rows=2, having=Computed(">", (TOP, MEDIAN)))
    shares = divide_budget(asked, epsilon=1, delta=0, noise="auto")
    assert [type(chosen.mechanism) for chosen in shares.chosen] == [Quantile, Extreme, Quantile]
    assert {chosen.mechanism.epsilon for chosen in shares.chosen} == {Fraction(1, 3)}
    assert shares.loss.pure == 1


def sets_of(count: int) -> BoundQuery:
    keys = [declared(2, f"k{i}") for i in range(count)]
    return question(*keys, sets=tuple((i,) for i in range(count)), parts=4, rows=4)


def test_auto_takes_gaussian_noise_only_where_it_is_clearly_better() -> None:
    few, many = question(declared(3)), sets_of(12)
    assert divide_budget(few, epsilon=1, delta="1e-6", noise="auto").noise == "laplace"
    shares = divide_budget(many, epsilon=1, delta="1e-6", noise="auto")
    assert shares.noise == "gaussian"
    assert shares.reason.startswith("Gaussian: expected error ")
    assert "with Laplace noise" in shares.reason

    def error(found: BudgetShares) -> float:
        return sum((deviation(a.mechanism) / many.parts[a.part].l1) ** 2 for a in found.added)

    laplace = divide_budget(many, epsilon=1, delta="1e-6", noise="laplace")
    assert error(shares) < 0.95**2 * error(laplace)


def test_the_whole_of_many_gaussian_parts_is_what_the_second_conversion_says() -> None:
    shares = divide_budget(sets_of(12), epsilon=1, delta="1e-6", noise="gaussian")
    found = loss_to_epsilon(shares.loss, Fraction(1, 10**6))
    assert found is not None
    assert 0.999 < found <= 1 + Fraction(1, 10**6)


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1", "8"])
@pytest.mark.parametrize("delta", ["1e-12", "1e-9", "1e-6"])
def test_the_greatest_rho_is_found_and_holds(epsilon: str, delta: str) -> None:
    e, d = Fraction(epsilon), Fraction(delta)
    rho = largest_rho(e, d)
    assert zcdp_to_epsilon(rho, d) <= e
    assert rho > Fraction(99, 100) * zcdp_cap(e, d)


def test_rho_is_also_found_where_delta_is_far_too_large_for_epsilon() -> None:
    rho = largest_rho(Fraction(1, 1000), Fraction(1, 100))
    assert rho > 0
    assert zcdp_to_epsilon(rho, Fraction(1, 100)) <= Fraction(1, 1000)


def test_averages_and_variances_share_their_parts() -> None:
    shares = divide_budget(question(parts=3, outputs=(AVG, VAR, COUNT)), epsilon=1, delta=0, noise="auto")
    assert len(shares.added) == 3


@pytest.mark.parametrize(
    ("given_", "name"),
    [
        (dict(epsilon=0, delta=0, noise="auto"), "epsilon"),
        (dict(epsilon=1, delta=1, noise="auto"), "delta"),
        (dict(epsilon=1, delta=0, noise="gaussian"), "delta"),
        (dict(epsilon=1, delta=0, noise="normal"), "noise"),
        (dict(epsilon="1e-9", delta=0, noise="auto"), "epsilon"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(given_: dict[str, str], name: str) -> None:
    with pytest.raises(BadParameter) as caught:
        divide_budget(question(declared(2), parts=2), **given_)  # type: ignore[arg-type]
    assert caught.value.name == name


def test_undeclared_keys_need_a_delta() -> None:
    with pytest.raises(BadParameter, match="not declared"):
        divide_budget(question(undeclared()), epsilon=1, delta=0, noise="auto")


def test_noise_that_would_not_fit_is_refused_with_what_to_do() -> None:
    with pytest.raises(BadParameter, match="coarser step"):
        divide_budget(question(parts=3, rows=10**6), epsilon="1e-6", delta=0, noise="auto")
