"""The numbers that a reader gives to a topic, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from lapwing.config.toml_text import quoted
from lapwing.config.values import did_you_mean
from lapwing.core.exact import exact, short
from lapwing.errors import BadParameter
from lapwing.show.topic import Parameter, Topic

ALL = "all"


def topic_named(name: str, topics: Mapping[str, Topic]) -> Topic:
    """Return a topic by its name.

    Raises:
        BadParameter: If there is no such topic. The error names a similar one.
    """
    if name not in topics:
        hint = did_you_mean(name, [*topics, ALL], "Topics")
        raise BadParameter("topic", f"there is no {quoted(name, at_most=80)}. {hint}")
    return topics[name]


def given_values(topic: Topic, texts: Mapping[str, str]) -> dict[str, Fraction]:
    """Return the value of each parameter of a topic: as given, else its default.

    Raises:
        BadParameter: If the topic does not take a parameter, or a value is out of its range.
    """
    known = {parameter.name: parameter for parameter in topic.parameters}
    for name in texts:
        if name not in known:
            takes = ", ".join(f"--{parameter}" for parameter in known) or "no numbers"
            raise BadParameter(name, f"{topic.name} does not take it. It takes {takes}")
    return {
        name: parameter.default if name not in texts else _checked(parameter, texts[name])
        for name, parameter in known.items()
    }


def values_of_all(topics: Iterable[Topic], texts: Mapping[str, str]) -> dict[str, dict[str, Fraction]]:
    """Return the values of several topics. Each topic gets the given numbers that it takes.

    Raises:
        BadParameter: If no topic takes a number, or one of them cannot take its value.
    """
    every = tuple(topics)
    known = {parameter.name for topic in every for parameter in topic.parameters}
    for name in texts:
        if name not in known:
            raise BadParameter(name, f"no topic takes it. {did_you_mean(name, sorted(known), 'Numbers')}")
    values = {}
    for topic in every:
        own = {parameter.name for parameter in topic.parameters}
        try:
            values[topic.name] = given_values(topic, {name: texts[name] for name in texts if name in own})
        except BadParameter as error:
            raise BadParameter(error.name, f"{error.why} (for the topic {topic.name})") from None
    return values


def limits(parameter: Parameter) -> str:
    """Return the range of a parameter in words."""
    return f"{_shown(parameter.least)} to {_shown(parameter.most)}"


def _checked(parameter: Parameter, text: str) -> Fraction:
    value = exact(text, parameter.name)
    if parameter.is_whole and value.denominator != 1:
        raise BadParameter(parameter.name, f"must be a whole number from {limits(parameter)}")
    if not parameter.least <= value <= parameter.most:
        raise BadParameter(parameter.name, f"must lie between {limits(parameter).replace(' to ', ' and ')}")
    return value


def _shown(value: Fraction) -> str:
    return f"{int(value):,}" if value.denominator == 1 else short(float(value))
