"""The privacy page of a bundle: the protection, the price of each step, and the limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lapwing.core.conversions import zcdp_to_epsilon
from lapwing.core.exact import short, short_up
from lapwing.publish.bound_release import BoundRelease
from lapwing.publish.measured.published_column import shown_value
from lapwing.publish.models.marginal_source import choosing_cost, measuring_cost
from lapwing.publish.release_file import ReleasePlanFile
from lapwing.sql.expression import Numeric

_EXACT = re.compile(r"0*[1-9][0-9]{0,400}(/0*[1-9][0-9]{0,400})?")
NEIGHBOURS = "data sets in which one {unit} more or less has its rows"


@dataclass(frozen=True, slots=True)
class StepCost:
    """One step of a release, and the ρ that it cost."""

    what: str
    noise: str
    rho: Fraction


def steps_of(answer: Mapping[str, Any]) -> list[StepCost]:
    """Return the steps of a stored answer, with the ρ that follows from σ, ε and K. Lost steps count."""
    rows = int(answer["rows_per_unit"])
    if "levels" in answer:
        return [
            StepCost(
                f"{level['level']}: {query['query']}",
                f"σ {_short(query['sigma'])}",
                measuring_cost(exact_text(query["sigma"]), rows),
            )
            for level in answer["levels"]
            for query in level["queries"]
        ]
    return [
        _step(one, rows, " (to check the rows)" if name == "check" else "")
        for name in ("steps", "check")
        for one in answer[name]
    ]


def _step(one: Mapping[str, Any], rows: int, use: str) -> StepCost:
    step, lost = one["step"], "" if one["result"] else ", lost in a crash"
    if "measure" in step:
        what = f"measure {' × '.join(step['measure'])}{use}{lost}"
        cost = measuring_cost(exact_text(step["sigma"]), rows)
        return StepCost(what, f"σ {_short(step['sigma'])}", cost)
    what = f"choose one of {step['choose']:,} marginals{lost}"
    return StepCost(what, f"ε {_short(step['epsilon'])}", choosing_cost(exact_text(step["epsilon"])))


def exact_text(text: object) -> Fraction:
    """Return a positive number that stands as a short fraction in a file. Raises ValueError for others."""
    if not isinstance(text, str) or not _EXACT.fullmatch(text):
        raise ValueError("is not a short positive fraction")
    return Fraction(text)


def _short(number: str) -> str:
    return f"{float(Fraction(number)):.4g}"


def fact_lines(file: ReleasePlanFile) -> list[str]:
    """Return the public facts that the tables keep. They are not protected."""
    lines = [
        "No row has " + " and ".join(f"{name} = {shown_value(one)}" for name, one in rule.items())
        for rule in file.impossible
    ]
    census = file.census
    for level, totals in ((census and census.totals) or {}).items():
        lines += [f"The total of {level} {node} is {total:,}" for node, total in totals.items()]
    if census is not None and census.empty is not None:
        lines.append(f'Areas with {census.empty} = true in the public table "{census.spine}" are empty')
    return lines


def note_lines(bound: BoundRelease) -> list[str]:
    """Return what a reader of the tables must know about the data."""
    census = bound.file.census
    if census is None:
        return ["Several rows of one person are invented independently of each other"]
    if isinstance(bound.question.columns[census.area], Numeric):
        return [
            f"{census.area} is a number: rows with a number beyond its declared bounds are counted in the "
            "area at the bound, if there is one"
        ]
    return []


def privacy_text(
    bound: BoundRelease, answer: Mapping[str, Any], unit: str, where: Mapping[str, Any]
) -> str:
    """Return the page in Markdown."""
    rho, rows, delta = Fraction(answer["rho"]), bound.rows_per_unit, bound.file.delta
    steps, facts = steps_of(answer), fact_lines(bound.file)
    spent = sum((step.rho for step in steps), Fraction(0))
    lines = [
        f"# Privacy of {bound.file.name}",
        "",
        f"- Protected: one {unit} with everything about it in the data. At most {rows:,} of its rows "
        f"{'was' if rows == 1 else 'were'} used.",
        f"- Neighbours: {NEIGHBOURS.format(unit=unit)}.",
        f"- Loss: ρ {_rho(rho)} (zero-concentrated differential privacy), which is ε "
        f"{short_up(zcdp_to_epsilon(rho, delta))} at δ {short(float(delta))}. The steps below used ρ "
        f"{_rho(spent)}.",
        f"- Noise: discrete Gaussian, drawn exactly. K rows of one {unit} (here {rows:,}) move a table "
        "of counts by at most K in L2 norm, so measuring it costs K²/2σ²; choosing a table costs ε²/8.",
        f"- Charged before the rows were counted: entry {where['charge']} of ledger {where['ledger']}, "
        f"with the answer in entry {where['answer']}. The proofs are in this folder.",
        "- Everything else here is computed from the noisy numbers in measurements.json, and costs "
        "nothing more.",
        "",
        "## Public facts, which are not protected",
        "",
        *([f"- {line}." for line in facts] or ["None."]),
    ]
    if facts:
        lines += ["", "The promise holds between populations that agree on these facts."]
    if bound.file.census is not None and bound.file.census.totals:
        lines[-1] += (
            f" Where a total is a fact, nobody can be added alone: replacing the rows of one {unit} "
            f"costs at most 2ρ, which is ε {short_up(zcdp_to_epsilon(2 * rho, delta))} at δ "
            f"{short(float(delta))}."
        )
    lines += [
        "",
        "## Not protected, and not promised",
        "",
        "- What is true of many: tables may show that a group earns more or is ill more often, also of "
        f"a {unit} who is not in the data.",
        "- The names, values and bounds of columns, and what the release file says: they are public.",
    ]
    lines += [f"- {line}." for line in note_lines(bound)]
    lines += ["", "## Steps", "", "| step | noise | ρ | share |", "|---|---|---|---|"]
    lines += [
        f"| {one.what} | {one.noise} | {_rho(one.rho)} | {float(one.rho / rho):.2%} |" for one in steps
    ]
    return "\n".join(lines) + "\n"


def _rho(rho: Fraction) -> str:
    return f"{float(rho):.6g}"


def unit_name(protects: str) -> str:
    """Return a privacy unit in words."""
    return {"person": "person", "row": "row", "person-period": "person in one period"}[protects]
