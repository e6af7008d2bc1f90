"""The subject of a report: a policy, survey, consortium, pipeline, release file or bundle, by its content.

Only declarations are read here, never data and never the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from lapwing.config.toml_text import read_toml
from lapwing.core.beliefs import Belief, belief_bounds
from lapwing.core.exact import short_up
from lapwing.core.explanation import even_odds
from lapwing.core.losses import Relation
from lapwing.errors import BadParameter
from lapwing.reporting.policy_subjects import pipeline_subject, policy_subject, published, release_subject
from lapwing.reporting.privacy_report import (
    ADD_OR_REMOVE,
    CENTRAL,
    FEDERATED,
    FILE,
    LOCAL,
    NO_LEDGER,
    REPLACE,
    Facts,
    LedgerAddress,
    ReportSubject,
    ReportTable,
    said,
    spent,
)


def subject_of(path: Path) -> ReportSubject:
    """Return what a file or folder declares.

    Raises:
        BadParameter: There is nothing of this name, or it is of no kind that has a report.
        BadFile: The file has mistakes.
    """
    if path.is_dir():
        return _bundle(path)
    if not path.is_file():
        raise BadParameter("what", f"there is no file {path}")
    if path.suffix != ".toml":
        return _consortium(path)
    values, _ = read_toml(path, what="policy", example="visits.toml", draft="lapwing init DATA")
    for table, make in _BY_TABLE.items():
        if table in values:
            return make(path)
    raise BadParameter(
        "what",
        f"{path} is no policy, survey, pipeline or release file: it has none of the tables "
        f"{', '.join(f'[{table}]' for table in _BY_TABLE)}",
    )


def _survey(path: Path) -> ReportSubject:
    from lapwing.survey import design, load  # noqa: PLC0415
    from lapwing.survey.invitations import RESPONDENTS_ACCOUNT  # noqa: PLC0415

    made = design(load(path))
    survey = made.survey
    bounds = belief_bounds(made.epsilon, 0, belief=Belief.FACT, relation=Relation.REPLACE)
    told = even_odds("about a respondent's answers", bounds)
    rows = [
        (part.question.name, part.question.kind, part.protocol, short_up(part.epsilon))
        for part in made.parts
    ]
    facts: Facts = {
        "parameters": [
            spent(
                "One respondent loses at most {} by all questions of this survey.",
                made.epsilon,
                Fraction(0),
            ),
            said(
                f"A respondent may lose ε {short_up(survey.lifetime)} over all surveys of this ledger.",
                lifetime=float(survey.lifetime),
            ),
            f"By this survey alone, {told}.",
            *([made.warning] if made.warning else []),
        ],
        "unit": ["All answers of one respondent are protected together."],
        "collection": [f"The survey ends {survey.stops}."],
        "not_protected": [
            "That somebody was invited, and that they sent a report, is not hidden by the coins."
        ],
    }
    return ReportSubject(
        kind="survey",
        name=survey.name,
        epsilon=made.epsilon,
        delta=Fraction(0),
        unit="person",
        neighbours=REPLACE,
        model=LOCAL,
        product="Summary statistics",
        is_interactive=False,
        arguments=(
            ("each answer is randomized on the respondent's device", "randomized_response"),
            ("estimates and intervals", "survey"),
            *((("the shuffled ε", "shuffle"),) if survey.shuffled else ()),
        ),
        facts=facts,
        tables={"mechanisms": [ReportTable(("question", "kind", "randomizer", "ε"), rows, FILE)]},
        ledger=LedgerAddress(
            survey.ledger, survey.ledger_keys, survey.ledger_anchor, survey.ledger_registry
        ),
        account=RESPONDENTS_ACCOUNT,
        why_no_ledger=NO_LEDGER,
    )


def _consortium(path: Path) -> ReportSubject:
    from lapwing.parties import Consortium  # noqa: PLC0415

    with path.open("rb") as file:
        if file.read(1) != b"{":
            raise BadParameter(
                "what",
                f"{path} is no policy, survey, consortium, pipeline, release file or bundle. Name such a "
                "file, or the folder of a bundle",
            )
    consortium = Consortium.read(path)
    plan, needs = consortium.plan, consortium.plan.requirements
    unsigned = len(consortium.unsigned)
    return ReportSubject(
        kind="consortium",
        name=consortium.name,
        epsilon=needs.epsilon,
        delta=needs.delta,
        unit="row" if plan.is_local else "person",
        neighbours=REPLACE if plan.is_local else ADD_OR_REMOVE,
        model=LOCAL if plan.is_local else FEDERATED,
        product="Summary statistics",
        is_interactive=False,
        arguments=(
            ("what a coalition and the relay can see", "parties"),
            ("shares of noise", "noise_shares"),
        ),
        facts={
            "parameters": [spent("One run costs each person at most {}.", needs.epsilon, needs.delta)],
            "unit": [
                said(
                    f"A person may have rows at {needs.people_at} of the members.",
                    people_at=needs.people_at,
                )
            ],
            "mechanisms": [f"Noise: {plan.noise}. {plan.why}"],
            "trust": [
                said(
                    f"{needs.members} members, of whom {unsigned} have not signed yet.",
                    members=needs.members,
                ),
                plan.guarantee,
            ],
            "bias": plan.notes,
        },
        why_no_ledger="a consortium has no ledger: each member has its own, and can report on its policy",
    )


def _bundle(path: Path) -> ReportSubject:
    from lapwing.publish import verify_bundle  # noqa: PLC0415
    from lapwing.publish.bundle.manifest import read_manifest  # noqa: PLC0415

    manifest = read_manifest(path)
    verified = verify_bundle(path)
    if verified.findings:
        raise BadParameter(
            "what", f"{path} is not what was released: {verified.findings[0]}. Ask the publisher"
        )
    privacy = manifest["privacy"]
    rho, delta = Fraction(privacy["rho"]), Fraction(privacy["delta"])
    return ReportSubject(
        kind="bundle",
        name=manifest["name"],
        epsilon=Fraction(privacy["epsilon"]),
        delta=delta,
        unit=privacy["unit"],
        neighbours=ADD_OR_REMOVE,
        model=CENTRAL,
        is_interactive=False,
        **published(manifest["method"]),
        facts={
            "parameters": [
                said(
                    f"The release cost ρ {short_up(rho)}, which is ε {privacy['epsilon']} at δ "
                    f"{short_up(delta)}.",
                    rho=float(rho),
                ),
                said(
                    f"It was charged in entry {manifest['charge']} of ledger {manifest['ledger']}; the "
                    "bundle holds the proofs, and they were checked for this report with the key in the "
                    f"bundle, {manifest['key']}. Compare it with the publisher's.",
                    charge=manifest["charge"],
                ),
            ],
            "unit": [f"Rows of each unit that were used: at most {privacy['rows_per_unit']:,}."],
            "definition": ["The loss was accounted as ρ-zCDP and converted to (ε, δ)."],
            "not_protected": [
                *(f"Public fact: {line}." for line in privacy["facts"]),
                "Other releases from the same ledger add up with this one. The bundle has none of them.",
            ],
        },
        why_no_ledger="a bundle is not a ledger. It is signed itself: lapwing verify " + path.name,
    )


_BY_TABLE: dict[str, Callable[[Path], ReportSubject]] = {
    "dataset": policy_subject,
    "survey": _survey,
    "pipeline": pipeline_subject,
    "release": release_subject,
}
