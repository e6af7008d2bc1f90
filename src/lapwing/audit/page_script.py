"""The audit of the survey page's script: the code that browsers run, in a real JavaScript engine.

Claim    if `check_page` finds nothing, the page's `randomize` sends every message of the recipes that were
         listed with exactly the stated probability, and its coins have exactly their laws.
Because  Node.js imports the page's own files. All ways in which coins can fall are listed there, and their
         chances are multiplied here, as for the Python client (`device_coins`).
Test     tests/audit/test_page_script.py

Claim    if `check_page` finds nothing, the page charges each report that was tried at least ln of the
         greatest ratio of its probabilities.
Because  messages of a report are drawn independently, so their ratios multiply; if one question is asked,
         the greatest counts. The ratios are exact, and exp of the price is rounded up.
Test     tests/audit/test_page_script.py

Without an engine the stage did not run, and an audit with it does not pass.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from importlib.util import find_spec
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lapwing.audit.case import AuditCase, Family, RunStage, Stage, StageBudget, StageResult, Witness
from lapwing.audit.device_coins import (
    BYTE_BOUNDS,
    MOST_PATHS,
    QUICK_PATHS,
    Leaf,
    Named,
    coin_thresholds,
    compare_device,
    law_of,
    numbers_near,
    round_size,
    tried_answers,
)
from lapwing.audit.stages.sampled import Draw, SampledPair, sampled_stage
from lapwing.core.budget import EPSILON_UNIT
from lapwing.core.exact import exp_up
from lapwing.errors import BadValue, Unavailable
from lapwing.survey.randomizers import Randomizer
from lapwing.survey.web_app import PAGES

NO_ENGINE = "not run: no JavaScript engine. Install Node.js 18 or newer, which runs the page's script"
_DRIVER = Path(__file__).with_name("page_coins.js")
_SECONDS = 300
_LONG_BOUND = 1000
_DRAWS = 20_000  # on each input; a call starts the engine anew


def engine() -> str | None:
    """Return the path of Node.js: that of the system, or that of an installed Playwright; None if none."""
    program = shutil.which("node")
    if program is None:
        spec = find_spec("playwright")
        places = (
            [Path(folder) / "driver" / "node" for folder in (spec.submodule_search_locations or [])]
            if spec
            else []
        )
        program = next((str(place) for place in places if place.is_file()), None)
    return program


@contextmanager
def _scripts() -> Iterator[Path]:
    """Copy the page's scripts into a folder of modules, and return the driver's place in it."""
    with TemporaryDirectory(prefix="lapwing-audit-") as folder:
        for script in PAGES.glob("*.js"):
            shutil.copy(script, folder)
        (Path(folder) / "package.json").write_text('{"type": "module"}\n')
        yield Path(shutil.copy(_DRIVER, Path(folder) / "auditor.js"))


def run_page(jobs: Sequence[dict[str, Any]]) -> list[Any]:
    """Run jobs of page_coins.js, and return what each found. An error of the page's code is a `BadValue`.

    Raises:
        Unavailable: If there is no JavaScript engine, or it does not run the scripts.
    """
    place = engine()
    if place is None:
        raise Unavailable(NO_ENGINE)
    with _scripts() as driver:
        done = subprocess.run(  # noqa: S603 (our own script, in the engine that the system has)
            [place, str(driver)], input=json.dumps(jobs), capture_output=True, text=True, timeout=_SECONDS,
            check=False,
        )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise BadValue(f"the page's script cannot be run: {last[:200]}")
    return list(json.loads(done.stdout))


def page_case(
    name: str,
    named: Callable[[StageBudget], Sequence[Named]],
    drawn: Randomizer,
    *,
    covers: tuple[type, ...],
) -> AuditCase:
    """Return the case of the page's script: `named` are listed, `drawn` has the claim and is drawn."""
    claimed = drawn.loss.epsilon
    stages = {
        Stage.EXACT: page_stage(named, float(claimed)),
        Stage.SAMPLED: sampled_stage(
            [page_draws(drawn, 0, drawn.inputs - 1)], claimed, Fraction(0), draws=_DRAWS, calls=2
        ),
    }
    return AuditCase(name, Family.RANDOMIZER, covers, claimed, Fraction(0), stages)


def page_stage(named: Callable[[StageBudget], Sequence[Named]], claimed: float) -> RunStage:
    """Return the exact stage of the page's script."""

    def run(budget: StageBudget) -> StageResult:
        if engine() is None:
            return StageResult(Stage.EXACT, 0, claimed, unable=NO_ENGINE)
        listed = named(budget)
        paths = MOST_PATHS if budget.is_thorough else QUICK_PATHS
        return check_page(listed, paths, claimed)

    return run


def check_page(named: Sequence[Named], paths: int, claimed: float) -> StageResult:
    """Compare the page's coins and its messages with their laws."""
    plans = [(name, randomizer, tried_answers(randomizer, paths)) for name, randomizer in named]
    jobs = [_walk(randomizer, answer, paths) for _, randomizer, answers in plans for answer in answers]
    wrong = _price_mistake([randomizer for _, randomizer in named])
    if wrong:
        return _result(1, claimed, Witness("the price that the page charges a device", wrong, {}))
    coins = list(_coin_jobs())
    replies = run_page([*coins, *jobs])
    for job, got in zip(coins, replies, strict=False):
        wrong = _coin_mistake(job, got)
        if wrong:
            return _result(1, claimed, Witness("the coins of the page's script", wrong, {}))
    rest = iter(replies[len(coins) :])
    checks = len(coins)
    too_many = []
    for name, randomizer, answers in plans:
        if not answers:
            too_many.append(name)
        by_answer = dict(zip(answers, rest, strict=False))

        def of(answer: int, got: dict[int, Any] = by_answer) -> list[Leaf]:
            return _leaves(got[answer])

        compared = compare_device(randomizer, f"{name}, by the page's script", answers, of)
        checks += compared.paths
        if compared.witness is not None:
            return _result(checks, claimed, compared.witness)
    again = _second_rounds(plans, replies[len(coins) :], paths)
    if again:
        return _result(checks, claimed, Witness(again, "a round that is drawn again has another law", {}))
    notes = [
        f"all ways in which coins can fall, of {len(jobs)} answers, in Node.js: the stated laws exactly"
    ]
    if too_many:
        notes.append(f"too many ways to list them (only drawn): {', '.join(too_many)}")
    return StageResult(Stage.EXACT, checks, claimed, could_show=claimed, notes=tuple(notes))


def _price_mistake(randomizers: Sequence[Randomizer]) -> str:
    """Return a report that the page charges too little for; empty if there is none.

    Reports have one message of each randomizer, or those of the next two as well.
    """
    listed = [
        (ask, [*randomizers, *randomizers][at : at + size])
        for ask in ("all", "one")
        for size in (1, 3)
        for at in range(len(randomizers))
    ]
    jobs = [
        {"work": "charged", "ask": ask, "recipes": [randomizer.recipe() for randomizer in several]}
        for ask, several in listed
    ]
    for (ask, several), got in zip(listed, run_page(jobs), strict=True):
        kinds = ", ".join(randomizer.kind for randomizer in several)
        if "error" in got:
            return f"{kinds}: it failed with {got['error']}"
        price = Fraction(int(got["found"]), EPSILON_UNIT)
        if exp_up(price) < report_ratio(several, ask):
            return f"ε {float(price):.6g} for {ask} of the questions {kinds}, which reveal more"
    return ""


def report_ratio(randomizers: Iterable[Randomizer], ask: str) -> Fraction:
    """Return the greatest ratio of a report's probabilities, with messages of all of these or of one."""
    ratios = [randomizer.ratio for randomizer in randomizers]
    return prod(ratios, start=Fraction(1)) if ask == "all" else max(ratios)


def _result(checks: int, claimed: float, witness: Witness) -> StageResult:
    return StageResult(Stage.EXACT, checks, claimed, witness.at_least, claimed, witness)


def _walk(
    randomizer: Randomizer, answer: int, paths: int, told: Sequence[int] = (), rounds: int = 1
) -> dict[str, Any]:
    size = round_size(randomizer)
    return {
        "work": "walk", "recipe": randomizer.recipe(), "answer": str(answer), "limit": 4 * paths,
        "most": None if size is None else rounds * size, "told": [str(fell) for fell in told],
    }  # fmt: skip


def _leaves(got: dict[str, Any]) -> list[Leaf]:
    if "error" in got:
        raise BadValue(got["error"])
    return [
        (
            [(kind, int(size), int(fell)) for kind, size, fell in path],
            None if sent is None else bytes.fromhex(sent),
        )
        for path, sent in got["found"]
    ]


def _second_rounds(
    plans: Sequence[tuple[str, Randomizer, list[int]]], replies: Sequence[Any], paths: int
) -> str:
    """Return a randomizer whose second round has another law than its first; empty if there is none."""
    wanted, jobs, rest = [], [], iter(replies)
    for name, randomizer, answers in plans:
        size = round_size(randomizer)
        for answer, got in zip(answers, rest, strict=False):
            if size is None or answer != answers[-1]:
                continue
            listed = _leaves(got)
            rejected = next((path for path, sent in listed if sent is None), None)
            if rejected is None:
                continue
            start = len(rejected) - size
            first = law_of(
                (path[start:], sent) for path, sent in listed if path[:start] == rejected[:start]
            )
            told = [fell for _, _, fell in rejected]
            wanted.append((name, len(told), first))
            jobs.append(_walk(randomizer, answer, paths, told, rounds=2))
    for (name, start, first), got in zip(wanted, run_page(jobs) if jobs else [], strict=True):
        again = law_of((path[start:], sent) for path, sent in _leaves(got))
        if again != first:
            return name
    return ""


def _coin_jobs() -> Iterator[dict[str, Any]]:
    for bound in (*BYTE_BOUNDS, _LONG_BOUND):
        yield {"work": "below", "bound": str(bound), "size": -(-(bound - 1).bit_length() // 8)}
    for of in coin_thresholds():
        yield {"work": "odds", "of": str(of), "numbers": [str(number) for number in numbers_near(of)]}


def _coin_mistake(job: dict[str, Any], got: dict[str, Any]) -> str:
    if "error" in got:
        return f"it failed with {got['error']}"
    if job["work"] == "odds":
        of = int(job["of"])
        is_right = got["found"] == [number < of for number in map(int, job["numbers"])]
        return "" if is_right else f"a coin with {of} chances in 2^48 falls wrongly"
    counts, bound = got["found"], int(job["bound"])
    is_even = sorted(map(int, counts)) == list(range(bound)) and len(set(counts.values())) == 1
    return "" if is_even else f"numbers below {bound} are not equally likely"


def page_draws(randomizer: Randomizer, first: int, second: int) -> SampledPair:
    """Return draws of messages by the page's script, with the random bytes that a browser would use."""

    def drawn(answer: int) -> Draw:
        def draw(size: int) -> NDArray[np.int64]:
            job = {"work": "draw", "recipe": randomizer.recipe(), "answer": str(answer), "size": size}
            [got] = run_page([job])
            if "error" in got:
                raise BadValue(got["error"])
            rows = np.frombuffer(bytes.fromhex(got["found"]), dtype=np.uint8)
            return rows.reshape(size, randomizer.size).astype(np.int64)

        return draw

    text = f"{randomizer.kind}, by the page's script, answers {first} and {second}"
    return SampledPair(text, drawn(first), drawn(second))
