"""Numbers that readers give: exact, within their limits, and checked before anything is computed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from lapwing.core.exact import WRITE_A_NUMBER
from lapwing.errors import BadParameter
from lapwing.show.chapters import topics
from lapwing.show.given_values import given_values, topic_named, values_of_all
from lapwing.show.topic import Parameter, Topic, computed_in


def _topic(name: str, *parameters: Parameter) -> Topic:
    return Topic(name, "What?", parameters, "laplace.md", computed_in("none", "none"))


EPSILON = Parameter("epsilon", Fraction(1), Fraction(1, 10), Fraction(3), "the loss")
COUNT = Parameter("n", Fraction(100), Fraction(1), Fraction(10_000), "people", is_whole=True)


def test_values_are_exact_and_others_keep_their_defaults() -> None:
    topic = _topic("x", EPSILON, COUNT)
    assert given_values(topic, {"epsilon": "0.1"}) == {"epsilon": Fraction(1, 10), "n": 100}
    assert given_values(topic, {"epsilon": "1/3", "n": "1e3"}) == {"epsilon": Fraction(1, 3), "n": 1000}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("epsilon", "0", "must lie between 0.1 and 3"),
        ("epsilon", "-1", "must lie between 0.1 and 3"),
        ("epsilon", "3.0000001", "must lie between 0.1 and 3"),
        ("epsilon", "much", f"is not a finite number. {WRITE_A_NUMBER}"),
        ("epsilon", "nan", f"is not a finite number. {WRITE_A_NUMBER}"),
        ("epsilon", "1e999999999", "is too large or too small to be meant"),
        ("n", "2.5", "must be a whole number from 1 to 10,000"),
        ("n", "10001", "must lie between 1 and 10,000"),
        ("k", "1", "x does not take it. It takes --epsilon, --n"),
    ],
)
def test_bad_values_are_named(name: str, text: str, why: str) -> None:
    with pytest.raises(BadParameter) as caught:
        given_values(_topic("x", EPSILON, COUNT), {name: text})
    assert (caught.value.name, caught.value.why) == (name, why)


def test_a_topic_without_numbers_says_so() -> None:
    with pytest.raises(BadParameter, match="It takes no numbers"):
        given_values(_topic("x"), {"n": "1"})


def test_of_several_topics_each_gets_the_numbers_that_it_takes() -> None:
    several = (_topic("x", EPSILON), _topic("y", EPSILON, COUNT), _topic("z"))
    assert values_of_all(several, {"epsilon": "2", "n": "7"}) == {
        "x": {"epsilon": 2}, "y": {"epsilon": 2, "n": 7}, "z": {},
    }  # fmt: skip
    with pytest.raises(BadParameter, match="for the topic x"):
        values_of_all(several, {"epsilon": "9"})
    with pytest.raises(BadParameter, match="no topic takes it"):
        values_of_all(several, {"k": "9"})


def test_an_unknown_topic_has_a_hint() -> None:
    with pytest.raises(BadParameter, match=r'there is no "laplas"\. Did you mean "laplace"\?'):
        topic_named("laplas", topics())
