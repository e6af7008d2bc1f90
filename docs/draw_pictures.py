"""Draw the pictures of the documentation: `python docs/draw_pictures.py FOLDER`.

The picture of several parties needs runs of the protocols: its numbers are read from parties.json in the
folder, if that exists. `lapwing party compare --out parties.json` measures them. The pictures of attacks
are drawn from attacks.json in the same way; `lapwing attack all --json > attacks.json` measures it. In the
stored file, refill and longitudinal have more runs: `lapwing attack refill --runs 2000 --json`. The answer
is the one that README.md prints.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from lapwing.audit.attacks.all_attacks import ATTACKS, OVERVIEW
from lapwing.core.budget import Terms
from lapwing.core.losses import GaussianNoise, LaplaceNoise, Loss
from lapwing.examples.town import TOWN_CENSUS, write_town
from lapwing.ledger.budget_history import (
    HISTORY_HALVINGS,
    BudgetGrant,
    BudgetHistory,
    estimate_remaining,
    grant_of,
)
from lapwing.plots import accuracy, curator_and_local, epsilon_delta_curve, privacy_loss, save, spending
from lapwing.plots.accuracy import MeasuredErrors, parties, release_error
from lapwing.plots.answers import answer_picture
from lapwing.plots.attacks import attack_over_time, attack_success
from lapwing.publish import Publication

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def main(arguments: Sequence[str]) -> int:
    """Draw every picture into the folder that the one argument names."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python docs/draw_pictures.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        "privacy-loss": privacy_loss("0.5", "1e-6"),
        "epsilon-delta": epsilon_delta_curve((LaplaceNoise(Fraction(20), 1), 100)),
        "accuracy": accuracy(n=10_000),
        "answer": readme_answer(),
        "curator-and-local": curator_and_local(epsilon="0.5"),
        "spending": spending(invented_clinic()),
        "release-error": planned_census(),
        **parties_pictures(folder),
        **attack_pictures(folder),
    }
    for name, figure in pictures.items():
        save(figure, folder / f"{name}.svg")
    return 0


README = Path(__file__).parents[1] / "README.md"
ANSWER_ROW = re.compile(
    r"^ +(\w+) +([\d,.]+) \(([\d,.]+) to ([\d,.]+)\) +([\d,.]+) \(([\d,.]+) to ([\d,.]+)\)$", re.M
)


def readme_answer() -> Figure:
    """Return the picture of the answer that README.md prints."""
    rows = ANSWER_ROW.findall(README.read_text(encoding="utf-8"))
    cities, *numbers = zip(*rows, strict=True)
    orders, low, high, mean, mean_low, mean_high = (
        [float(text.replace(",", "")) for text in column] for column in numbers
    )
    columns = [
        ("city", list(cities), None, None),
        ("orders", orders, low, high),
        ("mean", mean, mean_low, mean_high),
    ]
    return answer_picture(columns, confidence=0.95)


def planned_census() -> Figure:
    """Return the picture of the example census, planned in a temporary folder."""
    with TemporaryDirectory() as name:
        write_town(Path(name))
        with Publication.open(Path(name, TOWN_CENSUS)) as release:
            plan = release.plan()
    totals = [(level, errors["total"]) for level, _, errors in plan.errors]
    return release_error(plan.name, totals, plan.rho, plan.delta, plan.rho_that_fits)


def parties_pictures(folder: Path) -> dict[str, Figure]:
    """Return the picture whose numbers are in the folder; nothing if they are not there."""
    if not (measured := folder / "parties.json").is_file():
        return {}
    return {"parties": parties(MeasuredErrors.from_json(json.loads(measured.read_text(encoding="utf-8"))))}


def attack_pictures(folder: Path) -> dict[str, Figure]:
    """Return the pictures of attacks whose numbers are in the folder; nothing if they are not there."""
    if not (measured := folder / "attacks.json").is_file():
        return {}
    results = [_measured_attack(found) for found in json.loads(measured.read_text())]
    pictures = {"attacks": attack_success(OVERVIEW, results)}
    for name, attack in ATTACKS.items():
        mine = [result for result in results if result.attack == name]
        if mine and mine[0].over_time:
            pictures[f"attack-{name}"] = attack_over_time(attack.headline, mine[0])
        elif mine:
            pictures[f"attack-{name}"] = attack_success(attack.headline, mine)
    return pictures


def _measured_attack(found: dict[str, Any]) -> SimpleNamespace:
    """Return a result as `lapwing attack --json` prints it, for the pictures."""
    sides = ("unprotected", "protected")
    steps = next((key for point in found["over_time"] for key in point if key not in sides), "")
    over_time = [
        SimpleNamespace(after=point[steps], **{side: SimpleNamespace(**point[side]) for side in sides})
        for point in found["over_time"]
    ]
    return SimpleNamespace(
        attack=found["attack"], title=found["title"], guesses=found["attacker_guesses"],
        without=found["unprotected_release"], through=found["protected_release"],
        epsilon=found["epsilon"], chance=found["chance"], limit_up=found["limit"], steps=steps,
        over_time=over_time,
        **{side: SimpleNamespace(**found[side]) for side in sides},
    )  # fmt: skip


def invented_clinic() -> BudgetHistory:
    """Invent a year of a clinic: patients by the quarter of their first visit, and one raise."""
    terms, raised = Terms.of(1, "1e-6"), Terms.of("0.5", "1e-7")
    small, count = GaussianNoise(Fraction(40), Fraction(1), 1), LaplaceNoise(Fraction(20), 1)
    names = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
    sums = [terms.nothing_spent] * len(names)
    times: list[datetime] = []
    rows: list[list[float]] = []
    grants: list[BudgetGrant] = []
    account, start = terms, datetime(2026, 1, 1, tzinfo=UTC)

    def look(day: int, opened: int) -> None:
        lefts = estimate_remaining(account, np.array(sums, np.int64), halvings=HISTORY_HALVINGS).tolist()
        times.append(start + timedelta(days=day))
        rows.append([left if k < opened else np.nan for k, left in enumerate(lefts)])

    def charge(loss: Loss, blocks: Sequence[int]) -> None:
        for k in blocks:
            after = account.after(sums[k], account.price(loss))
            sums[k] = sums[k] if after is None else after

    grants.append(grant_of(terms, start))
    for day in range(0, 366, 5):
        opened = min(day // 91 + 1, len(names))
        if day == 300:
            account, sums = raised, [raised.nothing_spent] * len(names)
            grants.append(grant_of(raised, start + timedelta(days=day)))
        elif day % 30 == 10:
            charge(count, range(opened))
        elif day:
            charge(small, [k for k in range(opened) if (day // 5 + k) % 3 == 0])
        look(day, opened)
    return BudgetHistory("clinic", tuple(times), names, np.array(rows), tuple(grants), ())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
