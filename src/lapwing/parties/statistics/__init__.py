"""Statistics that members compute together: questions in SQL, regressions, quantiles, plain vectors.

`statistic_of(spec, data)` makes a statistic from a consortium's document and a member's own data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import ArrayLike

from lapwing.errors import BadParameter
from lapwing.parties.statistics import statistic
from lapwing.parties.statistics.quantile import QuantileStatistic
from lapwing.parties.statistics.regression import RegressionStatistic
from lapwing.parties.statistics.statistic import CellBlock, JointAnswer, Statistic, VectorStatistic
from lapwing.sql.dataset import Dataset

_FIELDS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "question": {"sql": str},
    "regression": {"table": str, "y": str, "x": list},
    "quantile": {"table": str, "column": str, "fraction": str},
    "vector": {"length": int, "l1": int, "l2_squared": int, "labels": (list, type(None))},
}
_OF_DATASETS: Mapping[str, Callable[..., Statistic]] = {
    "question": statistic.SqlStatistic,
    "regression": RegressionStatistic,
    "quantile": QuantileStatistic,
}


def statistic_of(spec: Mapping[str, Any], data: Dataset | ArrayLike | None) -> Statistic:
    """Return the statistic of a spec, bound to one member's data.

    {"kind": "question", "sql": "SELECT ..."}                                     data: a data set
    {"kind": "regression", "table": "visits", "y": "cost", "x": ["age"]}          data: a data set
    {"kind": "quantile", "table": "visits", "column": "stay", "fraction": "0.5"}  data: a data set
    {"kind": "vector", "length": 3, "l1": 1, "l2_squared": 1, "labels": null}     data: an array, or None

    Only public tables are read, and nothing is charged. Raises `BadParameter` or `Refused`.
    """
    kind, fields = _checked(spec)
    if kind == "vector":
        if isinstance(data, Dataset):
            raise BadParameter("data", "of a vector is an array, not a data set")
        return VectorStatistic(data, **fields)
    if not isinstance(data, Dataset):
        raise BadParameter("data", f"of a {kind} is a data set with its policy")
    return _OF_DATASETS[kind](data, **fields)


def _checked(spec: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the kind and its fields: all of them, of the right types, and no others."""
    kind = spec.get("kind") if isinstance(spec, Mapping) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise BadParameter("statistic", f"must be one of {', '.join(_FIELDS)}")
    wanted, given = _FIELDS[kind], {name: value for name, value in spec.items() if name != "kind"}
    if given.keys() != wanted.keys():
        raise BadParameter("statistic", f"a {kind} has the fields {', '.join(wanted)}, and no others")
    for name, types in wanted.items():
        if not isinstance(given[name], types) or isinstance(given[name], bool):
            raise BadParameter(name, "is not of the right type")
        if isinstance(given[name], list) and not all(isinstance(column, str) for column in given[name]):
            raise BadParameter(name, "must be texts")
    return kind, given


__all__ = ["CellBlock", "JointAnswer", "Statistic", "statistic_of"]
