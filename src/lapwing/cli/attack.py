"""`lapwing attack`: attacks on generated data, without protection and through the real gate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from lapwing.cli import console
from lapwing.errors import MissingExtra

if TYPE_CHECKING:
    from lapwing.audit.attacks import Attack, AttackResult, AttackSettings

VIOLATED = 1


def attack(
    name: Annotated[
        str,
        Argument(
            metavar="ATTACK",
            help="linkage, differencing, averaging, reconstruction, membership, refill, "
            "longitudinal; or all.",
        ),
    ],
    epsilon: Annotated[str, Option(help="The lifetime ε of each person, from 0.05 to 8.")] = "1",
    runs: Annotated[
        str | None, Option(help="How many people to attack; each attack has its own number.")
    ] = None,
    plot: console.PlotPath = None,
    as_json: console.AsJson = False,
) -> int:
    """Attack generated data: first without protection, then through Lapwing's real gate.

    Nothing is charged, and no data of yours is read. It exits with 1 if an attack on Lapwing succeeds more
    often than the promise allows. It says so if the number of runs is too small to show that.
    """
    from lapwing.audit.attacks import AttackSettings, attack_picture, attacks_named

    chosen = attacks_named(name)
    settings = AttackSettings.of(
        epsilon, None if runs is None else console.whole_number(runs, "runs", example=400)
    )
    console.check_plot(plot)
    results = [result for each in chosen for result in _run(each, settings, skips=len(chosen) > 1)]
    if plot is not None:
        console.write_plot(plot, attack_picture(results), quiet=True)
    if as_json:
        console.print_json([result.to_json() for result in results])
    else:
        _show(results)
        if plot is not None:
            print(f"\nThe picture is in {plot}")
    return VIOLATED if any(result.is_violation for result in results) else 0


def _run(each: Attack, settings: AttackSettings, *, skips: bool) -> tuple[AttackResult, ...]:
    """Run an attack. Of several, one without its extra is left out, and the command says so."""
    with console.working(each.name) as progress:
        try:
            return each.run(replace(settings, progress=progress))
        except MissingExtra as missing:
            if not skips:
                raise
            console.tell(f"{each.name} is left out: {missing}")
            return ()


def _show(results: list[AttackResult]) -> None:
    with console.page() as out:
        for result in results:
            _show_one(out, result)
        out.print()
        if any(result.is_violation for result in results):
            out.warning("An attack succeeded more often than the promise allows, or a rule did not hold.")
        else:
            out.title("No attack succeeded more often than the promise allows.")
        if weak := sum(bool(result.weakness) for result in results):
            of = f"{weak} of {len(results)} result{'s' * (len(results) != 1)}"
            out.warning(f"{of} could not have shown a violation: too few runs.")


def _show_one(out: console.Page, result: AttackResult) -> None:
    from lapwing.core.chances import percent, percent_up
    from lapwing.core.exact import short

    out.heading(f"{result.attack}: {result.title}")
    out.pairs(("the attacker knows", result.knows), ("the attacker guesses", result.guesses))
    rows = [
        (
            f"{name}: {release}",
            f"{success.right:,} of {success.trials:,}",
            f"{success.rate:.1%}".replace("%", " %"),
            f"{100 * success.low:.1f} to {100 * success.high:.1f} %",
        )
        for name, release, success in (
            ("no protection", result.without, result.unprotected),
            ("Lapwing", result.through, result.protected),
        )
    ]
    rows.append(("a blind guess", "", percent(result.chance), ""))
    privacy = f"ε {short(float(result.epsilon))}"
    rows.append((f"limit of all attacks at {privacy}", "", percent_up(result.limit_up), ""))
    out.table("release", "right guesses", "share", "95 % interval", right=(1, 2, 3), rows=rows)
    if result.is_violation:
        out.warning(result.sentence)
    else:
        out.indented(result.sentence)
    out.points(f"Limit: {result.formula}.", *_power(result), *result.notes)


def _power(result: AttackResult) -> list[str]:
    """Return a sentence: the number of right guesses that would be a violation, or that there is none."""
    if (needed := result.least_right) is None:
        return [result.weakness] if result.weakness else []
    return [f"A violation needs at least {needed:,} right guesses of {result.protected.trials:,}."]
