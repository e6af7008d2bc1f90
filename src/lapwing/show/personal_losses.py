"""The topic `per-person`: what each person has lost, who may be in several data sets and blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from lapwing.audit.attacks.temporary_gate import temporary_folder
from lapwing.core.budget import EPSILON, EPSILON_UNIT
from lapwing.core.exact import short
from lapwing.core.losses import Relation
from lapwing.core.noise import bernoulli, uniform_int
from lapwing.errors import OverBudget
from lapwing.ledger import Gate, Ledger, Slices, Spending, Target, Unit
from lapwing.mechanisms import Laplace
from lapwing.plots.style import BLUE, ORANGE, new_figure, note_beside, style
from lapwing.show.topic import NumberTable, Progress, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HALF = Fraction(1, 2)
_NEWEST = 3  # a question to the clinic is about the patients of this many newest months


@dataclass(frozen=True, slots=True)
class PersonalLoss:
    """A generated person: month of the first visit to the clinic, if any, and the loss at each place."""

    name: str
    month: int | None
    is_at_school: bool
    clinic: Fraction
    school: Fraction

    @property
    def total(self) -> Fraction:
        """The sum of both. The two accounts do not know of each other."""
        return self.clinic + self.school


def _ask_ledger(ledger: Ledger, account: str, blocks: Sequence[str], price: Fraction, people: int) -> int:
    """Charge a noisy count to some blocks, or to an account without blocks, and return it."""
    mechanism = Laplace.for_epsilon(price, l1=1)
    spending = Spending(
        [Target(account, blocks)],
        mechanism.loss,
        Unit.PERSON,
        Relation.ADD_REMOVE,
        "laplace",
        {},
        b"how many?",
    )
    work = Gate(ledger, principal="analyst").reserve(spending)
    work.step(mechanism.loss)
    return int(work.finish(lambda: str(int(mechanism.sample([people])[0])).encode()).answer)


def spend_by_person(
    price: Fraction, people: int, months: int, progress: Progress
) -> tuple[list[PersonalLoss], str]:
    """Ask a clinic and a school through a real ledger. Return each person's loss, and the last refusal."""
    first = [int(month) for month in uniform_int(0, months, people)]
    is_patient, is_pupil = (bernoulli(HALF, people).tolist() for _ in range(2))
    is_patient[:4], is_pupil[:4] = [True, True, False, False], [True, False, True, False]
    names = [f"month {month + 1}" for month in range(months)]
    refusal = ""
    with temporary_folder() as folder, Ledger.create(folder / "people.ledger") as ledger:
        whom: dict[str, Any] = {"unit": Unit.PERSON, "relation": Relation.ADD_REMOVE, "delta": 0}
        rule = "month of the first visit"
        ledger.open_account("clinic", epsilon=_NEWEST * price, slices=Slices.UNITS, rule=rule, **whom)
        ledger.open_account("school", epsilon=-(-months // _NEWEST) * price, **whom)
        for month in range(months):
            progress(month, months)
            ledger.open_blocks("clinic", [names[month]])
            newest = range(max(month + 1 - _NEWEST, 0), month + 1)
            inside = sum(is_patient[k] and first[k] in newest for k in range(people))
            _ask_ledger(ledger, "clinic", [names[k] for k in newest], price, inside)
            if month % _NEWEST == 0:
                _ask_ledger(ledger, "school", (), price, sum(is_pupil))
        try:
            _ask_ledger(ledger, "school", (), price, sum(is_pupil))
        except OverBudget as refused:
            refusal = str(refused)
        lost = {
            account: {
                block.label: Fraction(block.spent[EPSILON], EPSILON_UNIT)
                for block in ledger.blocks(account)
            }
            for account in ("clinic", "school")
        }
    everyone = max(lost["school"].values())
    losses = [
        PersonalLoss(
            f"person {k + 1}",
            first[k] + 1 if is_patient[k] else None,
            is_pupil[k],
            lost["clinic"][names[first[k]]] if is_patient[k] else Fraction(0),
            everyone if is_pupil[k] else Fraction(0),
        )
        for k in range(people)
    ]
    return losses, refusal


def show_personal_losses(values: Mapping[str, Fraction], full: bool, progress: Progress) -> Shown:
    """Compute the topic `per-person`."""
    price, people, months = values["epsilon"], int(values["n"]), int(values["months"])
    losses, refusal = spend_by_person(price, people, months, progress)
    progress(months, months)
    most = max(losses, key=lambda person: person.total)
    questions = months + -(-months // _NEWEST)
    return Shown(
        f"{questions} questions at ε {short(float(price))} cost these people between ε 0 and ε "
        f"{short(float(most.total))}",
        (
            f"A clinic is asked every month about the patients of its {_NEWEST} newest months. A school "
            f"is asked {-(-months // _NEWEST)} times about all its pupils. Every question is charged to a "
            f"ledger, at ε {short(float(price))}.",
            "A question costs those people whom it can reach. So a patient loses only what was charged to "
            "the month of the first visit, which never changes. A person who is in no data set loses "
            "nothing.",
            "The ε of the two studies is not unrelated: for a person in both, it adds up. "
            f"{most.name.capitalize()} has lost ε {short(float(most.clinic))} at the clinic and ε "
            f"{short(float(most.school))} at the school, ε {short(float(most.total))} together.",
            "Each account alone can only state its own part. Data sets that declare the same population "
            "share one account in Lapwing, so that one lifetime budget holds for the sum.",
            "A used-up budget stays used up. When the school was asked once more, the ledger refused.",
        ),
        (
            NumberTable(
                "What each person has lost (ε)",
                ("person", "first month at the clinic", "at school", "clinic", "school", "together"),
                tuple(
                    (
                        person.name, person.month, "yes" if person.is_at_school else "no",
                        float(person.clinic), float(person.school), float(person.total),
                    )
                    for person in losses
                ),
            ),
            NumberTable("The refusal", ("account", "text"), (("school", refusal),)),
        ),
        lambda: _draw_per_person(losses),
    )  # fmt: skip


@style()
def _draw_per_person(losses: Sequence[PersonalLoss]) -> Figure:
    ordered = sorted(losses, key=lambda person: person.total)
    figure, (axes,) = new_figure(
        f"The same questions cost people different amounts: ε 0 to {short(float(ordered[-1].total))}",
        "Blue: charged at the clinic, to the month of the first visit. Orange: charged at the school. "
        "For a person in both, the two add up.",
        size=(9.0, 2.4 + 0.3 * len(losses)),
        left=2.3,
    )
    for height, person in enumerate(ordered):
        axes.barh(height, float(person.clinic), height=0.7, color=BLUE, alpha=0.9)
        axes.barh(
            height, float(person.school), left=float(person.clinic), height=0.7, color=ORANGE, alpha=0.9
        )
        at = (float(person.total), height)
        note_beside(axes, short(float(person.total)), at, (5, 0), va="center", size=9.5)
    axes.set_yticks(
        range(len(ordered)),
        [f"{loss.name}{', month ' + str(loss.month) if loss.month else ''}" for loss in ordered],
    )
    axes.set(ylim=(-0.6, len(ordered) - 0.4), xlim=(0, 1.1 * max(float(ordered[-1].total), 1e-9)))
    axes.set_xlabel("ε lost so far")
    return figure
