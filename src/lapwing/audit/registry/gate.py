"""The cases of what is charged: the gate and its filters, questions through it, and a device's account.

Claim    in each course that was tried: rows were read only after their charge could be read by somebody
         else; no account took a charge that does not fit; a repeated request gave the stored bytes and
         cost nothing; a failed one stayed charged; and a device kept its report and its price.
Because  `run` and the reader of rows look at the database through a connection of their own. The number of
         charges that fit follows from whole numbers here, and every admitted charge is checked again by
         the second accountant, whose code and formulas are its own.
Test     tests/audit/registry/test_gate.py

All of it happens in a temporary folder, with ledgers and devices of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from lapwing.audit.attacks.devices import OneQuestion
from lapwing.audit.attacks.temporary_gate import new_folder, temporary_folder, write_world
from lapwing.audit.case import AuditCase, Family, Stage, StageBudget, StageResult, Witness
from lapwing.audit.page_script import report_ratio
from lapwing.core.budget import DELTA, DELTA0, DELTA_UNIT, EPSILON_UNIT, FIRST_ORDER, Terms
from lapwing.core.budget import EPSILON as EPSILON_COST
from lapwing.core.exact import exp_up
from lapwing.core.fixed_run import FixedRun
from lapwing.core.losses import Approximate, GaussianNoise, Loss, Pure, Relation
from lapwing.errors import BadParameter, LapwingError, OverBudget, WorkEnded
from lapwing.learn.payer import LedgerPayer
from lapwing.ledger.accounts import Slices, Unit
from lapwing.ledger.gate import ChargedRead, ChargedRelease, Gate
from lapwing.ledger.ledger import Ledger
from lapwing.ledger.spending import Spending, Target
from lapwing.sql.curator import Curator
from lapwing.sql.dataset import Dataset
from lapwing.sql.policy.policy_file import load_policy
from lapwing.survey.designing import design
from lapwing.survey.respondent import Respondent
from lapwing.survey.survey_file import load

EPSILON = Fraction(1)
_PERSON: dict[str, Any] = {"unit": Unit.PERSON, "relation": Relation.ADD_REMOVE}
_ACCOUNT = "people"
_MOST_CHARGES = 40
_MOST_ADDED = 10_000
# A cap of (ε, δ), the charges in turn, and how many fit: None where the second accountant alone decides.
_MILLIONTH = Fraction(1, 10**6)
_GAUSSIAN = GaussianNoise(Fraction(20), Fraction(1), 1)
_COURSES: tuple[tuple[Fraction, Fraction, tuple[Loss, ...], int | None], ...] = (
    (Fraction(1), Fraction(0), (Pure(Fraction(1, 10)),), 10),
    (Fraction(1), Fraction(0), (Pure(Fraction(3, 10)),), 3),
    (Fraction(1), Fraction(0), (Pure(Fraction(1)),), 1),
    (Fraction(1), Fraction(0), (Pure(Fraction(1, 2)), Pure(Fraction(1, 4))), 2),
    (Fraction(3), _MILLIONTH, (Pure(Fraction(1, 2)),), None),
    (Fraction(1), _MILLIONTH, (_GAUSSIAN,), None),
    (Fraction(1), _MILLIONTH, (_GAUSSIAN, Pure(Fraction(1, 20))), None),
)
_BLOCKS = 5
# What a charge is made to, in words, and its blocks: none, one, a range, several ranges.
_TARGETED: dict[str, Sequence[int]] = {
    "without blocks": (), "one block": (2,), "a range of blocks": (1, 2, 3), "several ranges": (0, 1, 3, 4),
}  # fmt: skip
_DEVICES = 40  # a device that draws again after some answer does so on one of four
_TWO_QUESTIONS = """
[survey]
name = "two"
title = "Two questions"
epsilon = 0.5
ask = "one"
stop_after = 1000
[[questions]]
name = "first"
text = "The first?"
kind = "yes_no"
[[questions]]
name = "second"
text = "The second?"
kind = "yes_no"
"""
Check = Callable[[Path], str | None]


def gate_cases() -> list[AuditCase]:
    """Return the cases of the gate, of questions through it, and of a device's account."""
    return [
        _case("ledger: the gate", (Gate, ChargedRead), {
            "the filters of accounts": exceeded_filter,
            "a release": charged_before_run, "the same request again": replayed,
            "a failed release": kept_charge, "failed work in steps": kept_reservation,
            "steps of a reservation": bounded_steps, "charges beside a reservation": kept_for_work,
            "a run of fixed steps": single_fixed_run,
            "the price of a loss": rounded_up,
            **{_words(*course): _filled(*course) for course in _COURSES},
        }),
        _case("ledger: questions", (Dataset,), {"a question": charged_before_read}),
        _case("survey: a device's account", (Respondent,), {
            "one survey": kept_report, "one question by chance": kept_question,
            "more surveys than fit": kept_lifetime, "several questions": added_prices,
        }),
    ]  # fmt: skip


def _case(name: str, covers: tuple[type, ...], checks: dict[str, Check]) -> AuditCase:
    def run(_budget: StageBudget) -> StageResult:
        done = 0
        for words, check in checks.items():
            with temporary_folder() as folder:
                event = check(new_folder(folder))
            done += 1
            if event is not None:
                return StageResult(Stage.REPLAY, done, float(EPSILON), witness=Witness(words, event, {}))
        return StageResult(Stage.REPLAY, done, float(EPSILON), could_show=float(EPSILON))

    return AuditCase(name, Family.LEDGER, covers, EPSILON, Fraction(0), {Stage.REPLAY: run})


# The gate


@contextmanager
def _ledger(folder: Path, epsilon: Fraction = EPSILON, delta: Fraction = Fraction(0)) -> Iterator[Ledger]:
    with Ledger.create(folder / "audited.ledger") as ledger:
        ledger.open_account(_ACCOUNT, epsilon=epsilon, delta=delta, **_PERSON)
        yield ledger


def _entries(path: Path) -> int:
    """Return the number of entries that somebody else can read now; 0 if there is no ledger yet."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as other:
        return int(other.execute("SELECT COUNT(*) FROM entries").fetchone()[0])


def _price(loss: Loss, request: bytes, target: Target | None = None) -> Spending:
    targets = [target or Target(_ACCOUNT)]
    return Spending(
        targets=targets, loss=loss, **_PERSON, mechanism="audit", parameters={}, request=request
    )


def exceeded_filter(_folder: Path) -> str | None:
    """Return what is wrong if a charge is admitted after which no filter holds. Costs are added up here.

    This comes first: a filter that never ends would keep a ledger busy for long.
    """
    for epsilon, delta, losses, _ in _COURSES:
        terms = Terms.of(epsilon, delta)
        charges = [terms.price(loss) for loss in losses]
        spent, sums = terms.nothing_spent, [0] * len(terms.caps)
        for place in range(_MOST_ADDED):
            charge = charges[place % len(charges)]
            after = terms.after(spent, charge)
            sums = [before + cost for before, cost in zip(sums, charge.costs, strict=True)]
            held = [total <= cap for total, cap in zip(sums, terms.caps, strict=True)]
            holds = held[DELTA0] and ((held[EPSILON_COST] and held[DELTA]) or any(held[FIRST_ORDER:]))
            if (after is not None) != holds:
                what = (
                    "admitted, and no filter holds" if after is not None else "refused, and a filter holds"
                )
                return f"charge {place + 1} of ε {epsilon}, δ {float(delta):g} is {what}"
            if after is None:
                break
            spent = after
    return None


def charged_before_run(folder: Path) -> str | None:
    """Return what is wrong if `run` begins before its charge is stored, or an answer is not stored."""
    path = folder / "audited.ledger"
    with _ledger(folder) as ledger:
        gate = Gate(ledger, principal="auditor")
        for way in ("release", "charged read", "training", "reservation"):
            before, seen = _entries(path), []

            def run() -> bytes:
                seen.append(_entries(path))  # noqa: B023 (called in this turn)
                return b"42"

            price = _price(Pure(Fraction(1, 10)), way.encode())
            if way == "release":
                gate.release(ChargedRelease(price, run))
            elif way == "charged read":
                ChargedRead(gate=gate, spending=price).release(run, lambda result: result)
            elif way == "training":
                target = Target(_ACCOUNT)
                payer = LedgerPayer(gate, targets=(target,), request=way.encode(), **_PERSON)
                payer.pay(price.loss, run, mechanism="audit", parameters={})
            else:
                work = gate.reserve(price)
                work.step(price.loss)
                work.finish(run)
            if seen != [seen[0]] or seen[0] <= before:
                return f"{way}: the work began before its charge was stored"
            if _entries(path) <= seen[0]:
                return f"{way}: the answer left before it was stored"
    return None


def replayed(folder: Path) -> str | None:
    """Return what is wrong if the same request is run or charged again."""
    with _ledger(folder) as ledger:
        gate, runs = Gate(ledger, principal="auditor"), []

        def run() -> bytes:
            runs.append(1)
            return str(len(runs)).encode()

        price = _price(Pure(Fraction(1, 4)), b"again")
        answers = [gate.release(ChargedRelease(price, run), key="key").answer for _ in range(6)]
        if len(runs) != 1 or set(answers) != {b"1"}:
            return "the same request was run again, and gave another answer"
        fitting = _admitted(gate, lambda place: _price(Pure(Fraction(1, 4)), b"%d" % place))
        return None if fitting == 3 else f"after one charge of ε 1/4, {fitting} more fit into ε 1"


def kept_charge(folder: Path) -> str | None:
    """Return what is wrong if a release that failed is given back."""

    def failing() -> bytes:
        raise ValueError("a failure")

    with _ledger(folder) as ledger:
        gate = Gate(ledger, principal="auditor")
        try:
            gate.release(ChargedRelease(_price(Pure(Fraction(3, 4)), b"failing"), failing))
        except WorkEnded:
            fitting = _admitted(gate, lambda place: _price(Pure(Fraction(1, 4)), b"%d" % place))
            return None if fitting == 1 else f"after a failed charge of ε 3/4, {fitting} of 1/4 fit into 1"
    return "a release that failed gave an answer"


def kept_reservation(folder: Path) -> str | None:
    """Return what is wrong if work in steps shares its reservation, or gives it back when it fails."""
    path = folder / "audited.ledger"
    with _ledger(folder) as ledger:
        gate = Gate(ledger, principal="auditor")
        step = _price(Pure(Fraction(3, 4)), b"in steps")
        before = _entries(path)
        work = gate.reserve(step, key="work")
        if _entries(path) <= before:
            return "work began before its reservation was stored"
        try:
            gate.reserve(_price(Pure(Fraction(1, 2)), b"more work"))
            return "two reservations of ε 3/4 and 1/2 fit into ε 1"
        except OverBudget:
            work.fail()
        try:
            gate.reserve(step, key="work")
            return "work that failed was continued"
        except WorkEnded:
            fitting = _admitted(gate, lambda place: _price(Pure(Fraction(1, 4)), b"%d" % place))
    return None if fitting == 1 else f"after failed work that reserved ε 3/4, {fitting} of 1/4 fit into 1"


def bounded_steps(folder: Path) -> str | None:
    """Return what is wrong if the steps of some work cost more than it reserved."""
    with _ledger(folder) as ledger:
        work = Gate(ledger, principal="auditor").reserve(_price(Pure(Fraction(1, 2)), b"in steps"))
        done = _steps(lambda: work.step(Pure(Fraction(1, 5))))
    return None if done == 2 else f"{done} steps of ε 1/5 were charged to a reservation of ε 1/2"


def kept_for_work(folder: Path) -> str | None:
    """Return what is wrong if charges take what is reserved, for each way to name the blocks."""
    three_quarters, quarter = Pure(Fraction(3, 4)), Pure(Fraction(1, 4))
    with Ledger.create(folder / "audited.ledger") as ledger:
        gate = Gate(ledger, principal="auditor")
        for words, blocks in _TARGETED.items():
            account = f"people, {words}"
            slices, rule = (Slices.IDENTITIES, "audit") if blocks else (Slices.NONE, "")
            ledger.open_account(account, epsilon=EPSILON, delta=0, slices=slices, rule=rule, **_PERSON)
            if blocks:
                ledger.open_blocks(account, [f"block {number}" for number in range(_BLOCKS)])
            target = Target(account, blocks=tuple(f"block {number}" for number in blocks))
            work = gate.reserve(_price(three_quarters, b"work", target))
            fits = _admitted(gate, lambda place, on=target: _price(quarter, b"%d" % place, on))  # type: ignore[misc]
            if fits != 1:
                return f"{words}: beside a reservation of ε 3/4, {fits} charges of 1/4 fit into 1"
            if _steps(lambda of=work: of.step(three_quarters)) != 1:  # type: ignore[misc]
                return f"{words}: a step of the reserved ε was refused, or a second one was not"
        findings = ledger.verify().findings
    return f"the second accountant: {'; '.join(findings)}" if findings else None


def single_fixed_run(folder: Path) -> str | None:
    """Return what is wrong if a run of fixed steps is charged once, and runs again."""
    with _ledger(folder, Fraction(1), _MILLIONTH) as ledger:
        run = FixedRun.of((_GAUSSIAN, 2), delta=_MILLIONTH)
        work = Gate(ledger, principal="auditor").reserve(_price(run, b"fixed"))
        done = _steps(work.step)
    return None if done == 1 else f"a run of fixed steps was run {done} times for one price"


def _steps(step: Callable[[], None]) -> int:
    """Return the number of steps that are admitted, up to `_MOST_CHARGES`."""
    for place in range(_MOST_CHARGES):
        try:
            step()
        except (OverBudget, BadParameter):
            return place
    return _MOST_CHARGES


def rounded_up(_folder: Path) -> str | None:
    """Return what is wrong if an account takes less than a loss, when its numbers do not end."""
    third = Fraction(1, 3)
    for loss in (Pure(third), Approximate(third, third * _MILLIONTH), Approximate(third, third**99)):
        costs = Terms.of(Fraction(1), _MILLIONTH).price(loss).costs
        charged = Fraction(costs[EPSILON_COST], EPSILON_UNIT), Fraction(costs[DELTA0], DELTA_UNIT)
        if charged[0] < loss.epsilon or charged[1] < loss.delta0:
            return f"{loss} is charged less than it is"
    return None


def _admitted(gate: Gate, price: Callable[[int], Spending]) -> int:
    """Return the number of charges that fit, up to `_MOST_CHARGES`."""
    for place in range(_MOST_CHARGES):
        try:
            gate.release(ChargedRelease(price(place), lambda: b"42"))
        except OverBudget:
            return place
    return _MOST_CHARGES


def _words(epsilon: Fraction, delta: Fraction, losses: tuple[Loss, ...], _fits: int | None) -> str:
    return f"an account of ε {epsilon} and δ {float(delta):g}, filled with {', '.join(map(str, losses))}"


def _filled(epsilon: Fraction, delta: Fraction, losses: tuple[Loss, ...], fits: int | None) -> Check:
    def check(folder: Path) -> str | None:
        with _ledger(folder, epsilon, delta) as ledger:
            gate = Gate(ledger, principal="auditor")
            admitted = _admitted(gate, lambda place: _price(losses[place % len(losses)], b"%d" % place))
            if fits is not None and admitted != fits:
                return f"{admitted} charges were admitted, and {fits} fit"
            if admitted == _MOST_CHARGES:
                return f"{admitted} charges were admitted, and no end was reached"
            try:
                findings = ledger.verify().findings
            except LapwingError as error:
                return f"the second accountant: {error}"
            return f"the second accountant: {'; '.join(findings)}" if findings else None

    return check


# Questions


class _WatchedReader:
    """A reader that notes how many entries the ledger had when rows were read."""

    def __init__(self, reader: Any, seen: list[int], path: Path) -> None:
        self._reader, self._seen, self._path = reader, seen, path

    def exact(self, question: Any) -> Any:
        """Read the exact numbers of a question, as the reader does."""
        self._seen.append(_entries(self._path))
        return self._reader.exact(question)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


class _WatchedCurator(Curator):
    """A curator whose readers are watched."""

    seen: list[int]

    @contextmanager
    def reading(self, question: Any = None, *, plans: bool = False) -> Iterator[Any]:
        """Lend a watched reader."""
        with super().reading(question, plans=plans) as reader:
            yield _WatchedReader(reader, self.seen, Path(self.policy.ledger))


def charged_before_read(folder: Path) -> str | None:
    """Return what is wrong if a question reads rows before its charge is stored, or when it is repeated.

    A repeated question must give the stored answer: it reads nothing, draws nothing and costs nothing.
    """
    rows: dict[str, list[Any]] = {"person": [f"P{k}" for k in range(9)], "stay": list(range(9))}
    path = write_world(folder, "visits", rows, {"stay": "low = 0, high = 9, step = 1"}, epsilon=EPSILON)
    policy = load_policy(path)
    curator = _WatchedCurator(policy)
    curator.seen = []
    with Dataset(curator, analyst="auditor", closes=True) as dataset:
        dataset.curator.notify = lambda _: None  # no remarks about a temporary ledger
        for sql in ("SELECT COUNT(*) FROM visits", "SELECT SUM(stay) FROM visits"):
            plan = dataset.plan(sql, epsilon=Fraction(1, 4))
            before = _entries(Path(policy.ledger))
            curator.seen.clear()
            first = plan.release()
            if not curator.seen:
                return "no row was read by the reader that is watched"
            if min(curator.seen) <= before:
                return f"{sql}: rows were read before the charge was stored"
            after = _entries(Path(policy.ledger))
            curator.seen.clear()
            again = [plan.release(), dataset.plan(sql, epsilon=Fraction(1, 4)).release()]
            if curator.seen:
                return f"{sql}: rows were read for an answer that is stored"
            if any(answer.rows != first.rows for answer in again):
                return f"{sql}: the same question again gave another answer"
            if _entries(Path(policy.ledger)) != after:
                return f"{sql}: the same question again wrote to the ledger"
    return None


# Devices


def _survey(folder: Path, name: str) -> dict[str, Any]:
    labels = [f"option {k}" for k in range(40)]  # so many that a new report would be another one
    return OneQuestion.written(folder, name, "Which one?", labels, Fraction(1, 2)).public


def kept_report(folder: Path) -> str | None:
    """Return what is wrong if a device forgets its report, or charges nothing for it."""
    public, device = _survey(folder, "one"), folder / "device"
    answers: dict[str, object] = {"answer": "option 3"}
    reports = {Respondent(device, lifetime=1).answer(public, answers) for _ in range(8)}
    if len(reports) != 1 or Respondent(device).answered(public) not in reports:
        return "the device drew a new report: it forgot the one that it had sent"
    respondent = Respondent(device)
    if {respondent.answer(public, {"answer": f"option {k}"}) for k in range(4)} != reports:
        return "another answer to the same survey made another report"
    if respondent.spent <= 0 or respondent.spent > Fraction(1, 2):
        return f"the device counts ε {float(respondent.spent)} for a report of ε 0.5"
    return None


class _SeenAnswers(dict[str, object]):
    """Answers that note the questions whose answer was looked at."""

    def __init__(self, answers: dict[str, object]) -> None:
        super().__init__(answers)
        self.seen: set[object] = set()

    def __contains__(self, name: object) -> bool:
        self.seen.add(name)
        return super().__contains__(name)

    def __getitem__(self, name: str) -> object:
        self.seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: object = None) -> object:
        """Return an answer, as a dict does."""
        self.seen.add(name)
        return super().get(name, default)


def kept_question(folder: Path) -> str | None:
    """Return what is wrong if the one question that a device draws depends on answers."""
    path = folder / "two.toml"
    path.write_text(_TWO_QUESTIONS)
    public = design(load(path)).public()
    for place in range(_DEVICES):
        answers = _SeenAnswers({"first": None, "second": "yes"})
        Respondent(folder / f"device {place}", lifetime=1).answer(public, answers)
        if len(answers.seen) != 1:
            return f"a device that asks one question looked at the answers to {len(answers.seen)}"
    return None


def kept_lifetime(folder: Path) -> str | None:
    """Return what is wrong if a device answers more surveys than its lifetime allows."""
    device = folder / "device"
    Respondent(device, lifetime=1)
    spent = []
    for place in range(5):
        try:
            Respondent(device).answer(_survey(folder, f"survey {place}"), {"answer": "option 1"})
        except OverBudget:
            break
        spent.append(Respondent(device).spent)
    if len(spent) != 2:
        return f"a device with a lifetime of ε 1 sent {len(spent)} reports of ε 0.5"
    return None if spent[1] == 2 * spent[0] and spent[1] <= 1 else "the prices of two reports do not add up"


def added_prices(folder: Path) -> str | None:
    """Return what is wrong if a report costs a device less than what its messages reveal together."""
    for ask in ("one", "all"):
        path = folder / f"{ask}.toml"
        path.write_text(_TWO_QUESTIONS.replace('ask = "one"', f'ask = "{ask}"'))
        made = design(load(path))
        device = Respondent(folder / f"device of {ask}", lifetime=1)
        device.answer(made.public(), {"first": "yes", "second": "no"})
        if exp_up(device.spent) < report_ratio([part.randomizer for part in made.parts], ask):
            return f"a report with {ask} of two questions reveals more than ε {float(device.spent)}"
    return None
