"""The subject of a report: a policy, survey, consortium, pipeline, release file or bundle, by its content.

Only declarations are read here, never data and never the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lapwing.config.toml_text import read_toml
from lapwing.config.values import is_postgres
from lapwing.core.exact import short, short_up
from lapwing.core.explanation import explain
from lapwing.errors import BadParameter
from lapwing.reporting.privacy_report import FILE, ReportFact, ReportTable

if TYPE_CHECKING:
    from lapwing.sql.policy import Policy

Facts = Mapping[str, Sequence[ReportFact]]
Tables = Mapping[str, Sequence[ReportTable]]
CENTRAL, LOCAL, FEDERATED = "Central", "Local", "Federated"
ADD_OR_REMOVE, REPLACE = "add or remove one unit", "replace one unit"
NO_LEDGER = "there is no ledger where the file names one: it was not used yet, or its ledger was lost"


@dataclass(frozen=True, slots=True)
class LedgerAddress:
    """The place of a ledger, its keys and its anchor; empty texts for the usual ones."""

    where: str
    keys: str = ""
    anchor: str = ""

    @property
    def is_there(self) -> bool:
        """True if the ledger exists."""
        return is_postgres(self.where) or Path(self.where).is_file()


@dataclass(frozen=True, slots=True)
class ReportSubject:
    """The declarations of what a report is about.

    `account` and `data` are the names in the ledger under which it spends. `arguments` are pairs of what is
    done and the page that argues for it.
    """

    kind: str
    name: str
    epsilon: Fraction
    delta: Fraction
    unit: str
    neighbours: str
    model: str
    product: str
    is_interactive: bool
    arguments: Sequence[tuple[str, str]]
    facts: Facts = field(default_factory=dict)
    tables: Tables = field(default_factory=dict)
    ledger: LedgerAddress | None = None
    account: str = ""
    data: str = ""
    why_no_ledger: str = ""


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


def said(text: str, **values: Any) -> ReportFact:
    """Return a fact that a file states."""
    return ReportFact(text, FILE, values)


def _spent(text: str, epsilon: Fraction, delta: Fraction) -> ReportFact:
    pair = f"ε {short_up(epsilon)}, δ {short_up(delta)}"
    return said(text.format(pair), epsilon=float(epsilon), delta=float(delta))


def _policy(path: Path) -> ReportSubject:
    from lapwing.sql.policy import block_rule_text  # noqa: PLC0415 (slow)
    from lapwing.sql.policy_file import load_policy  # noqa: PLC0415
    from lapwing.sql.policy_ledger import account_label, unit_of  # noqa: PLC0415

    policy = load_policy(path)
    columns = [
        (table.name, column.name, kind_words(column.kind))
        for table in policy.tables.values()
        for column in table.columns.values()
        if not table.is_public
    ]
    heads = ("table", "column", "public by declaration")
    return ReportSubject(
        kind="policy",
        name=policy.name,
        epsilon=policy.epsilon,
        delta=policy.delta,
        unit=unit_of(policy).value,
        neighbours=ADD_OR_REMOVE,
        model=CENTRAL,
        product="SQL queries",
        is_interactive=True,
        arguments=(("questions in SQL", "query"), ("which rows of a person count", "ranks")),
        facts=_policy_facts(policy, block_rule_text(policy)),
        tables={"not_protected": [ReportTable(heads, columns, FILE)]},
        ledger=LedgerAddress(policy.ledger, policy.ledger_keys, policy.ledger_anchor),
        account=account_label(policy),
        data=policy.name,
        why_no_ledger=NO_LEDGER,
    )


def _policy_facts(policy: Policy, blocks: str) -> Facts:
    unit, exposed = [], []
    for table in policy.tables.values():
        if table.is_public:
            exposed.append(
                said(f"The public table {table.name} is used as it is: its rows are not protected.")
            )
            continue
        used, rows = table.rows_per_unit, table.rows
        text = f"Rows of each unit that are used in table {table.name}: at most {used:,}."
        unit.append(said(text, rows_per_unit=used))
        if rows is not None:
            exposed.append(
                said(f"The size of table {table.name} is declared public: {rows:,} rows.", rows=rows)
            )
    divided = f"The units are divided into blocks: {blocks}. Each block has the whole budget."
    ids = "Ids are compared exactly. If one person has two ids, each is protected by itself."
    if policy.folds_ids:
        ids = "Ids that differ only in outer spaces and ASCII case are one person."
    people = "No population is declared. Data about the same people in another ledger have another budget, "
    people += "and losses add up."
    if policy.population:
        people = f'All data of the population "{policy.population}" in this ledger spend from one account.'
    quotas = f"Quotas that limit what analysts may newly spend: {len(policy.quotas):,}."
    if not policy.quotas:
        quotas = "No analyst has a quota: the budget of the data is the only limit."
    stored = "A stored answer is given to the analyst who paid for it."
    if policy.shares_answers:
        stored = "An answer that one analyst paid for is given to all."
    failed = (
        f"After {policy.failures} failed questions an analyst gets no answers until the curator has looked."
    )
    declared = "The policy declares {} for life. Raises are in the ledger."
    return {
        "parameters": [_spent(declared, policy.epsilon, policy.delta)],
        "unit": [*unit, said(divided if blocks else "All units are in one block."), said(ids)],
        "not_protected": [*exposed, said(people)],
        "access": [
            said(quotas, quotas=len(policy.quotas)),
            said(stored),
            said(failed, failures=policy.failures),
        ],
    }


def kind_words(kind: Any) -> str:
    """Return what is public about a column, in words. Declared values are counted, not listed."""
    from lapwing.sql.expression import Choice, Moment, Numeric, Truth  # noqa: PLC0415

    match kind:
        case Numeric(step, int(first), int(last)):
            steps = f"in steps of {short(float(step))}; others are clamped"
            return f"{kind.value(first)} to {kind.value(last)} {steps}"
        case Moment(_, first, last, _):
            return f"{kind.value(first)} to {kind.value(last)}; others are clamped"
        case Choice(values):
            return f"{len(values):,} declared values; other values are NULL"
        case Truth():
            return "true or false"
        case _:
            return "nothing: keys are selected privately"


def _survey(path: Path) -> ReportSubject:
    from lapwing.survey.designing import design  # noqa: PLC0415
    from lapwing.survey.invitations import RESPONDENTS_ACCOUNT  # noqa: PLC0415
    from lapwing.survey.survey_file import load  # noqa: PLC0415

    made = design(load(path))
    survey = made.survey
    rows = [
        (part.question.name, part.question.kind, part.protocol, short_up(part.epsilon))
        for part in made.parts
    ]
    facts = {
        "parameters": [
            _spent(
                "One respondent loses at most {} by all questions of this survey.",
                made.epsilon,
                Fraction(0),
            ),
            said(
                f"A respondent may lose ε {short_up(survey.lifetime)} over all surveys of this ledger.",
                lifetime=float(survey.lifetime),
            ),
            said(f"By this survey alone, {explain(made.epsilon, 0, 1).odds}."),
            *([said(made.warning)] if made.warning else []),
        ],
        "unit": [said("All answers of one respondent are protected together.")],
        "collection": [said(f"The survey ends {survey.stops}.")],
        "not_protected": [
            said("That somebody was invited, and that they sent a report, is not hidden by the coins.")
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
        ledger=LedgerAddress(survey.ledger, survey.ledger_keys, survey.ledger_anchor),
        account=RESPONDENTS_ACCOUNT,
        why_no_ledger=NO_LEDGER,
    )


def _consortium(path: Path) -> ReportSubject:
    from lapwing.parties.consortium import Consortium  # noqa: PLC0415

    with path.open("rb") as file:
        if file.read(1) != b"{":
            raise BadParameter(
                "what",
                f"{path} is no policy, survey, consortium, pipeline, release file or bundle. Name such a "
                "file, or the folder of a bundle",
            )
    found = Consortium.read(path)
    plan, needs = found.plan, found.plan.requirements
    unsigned = len(found.unsigned)
    return ReportSubject(
        kind="consortium",
        name=found.name,
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
            "parameters": [_spent("One run costs each person at most {}.", needs.epsilon, needs.delta)],
            "unit": [
                said(
                    f"A person may have rows at {needs.people_at} of the members.",
                    people_at=needs.people_at,
                )
            ],
            "mechanisms": [said(f"Noise: {plan.noise}. {plan.why}")],
            "trust": [
                said(
                    f"{needs.members} members, of whom {unsigned} have not signed yet.",
                    members=needs.members,
                ),
                said(plan.guarantee),
            ],
            "bias": [said(note) for note in plan.notes],
        },
        why_no_ledger="a consortium has no ledger: each member has its own, and can report on its policy",
    )


def _of_policy(policy: Path, more: Facts, **changes: Any) -> ReportSubject:
    """Return the policy's subject with further facts and other fields."""
    subject = _policy(policy)
    facts = {key: (*subject.facts.get(key, ()), *more.get(key, ())) for key in (*subject.facts, *more)}
    return replace(subject, facts=facts, **changes)


def _pipeline(path: Path) -> ReportSubject:
    from lapwing.learn.pipelines.pipeline import load_pipeline  # noqa: PLC0415

    pipeline = load_pipeline(path)
    schedule = pipeline.schedule
    return _of_policy(
        pipeline.stream,
        {
            "mechanisms": [
                said(f"Trainer: {pipeline.trainer.kind}. Validator: {pipeline.validator.measure}."),
                said(
                    f"An attempt spends ε {short_up(schedule.least)} to {short_up(schedule.most)} of each "
                    f"block that it reads, with δ {short_up(pipeline.delta)}."
                ),
            ],
            "unit": [
                said(
                    f"The pipeline spends from the account of the stream's policy, {pipeline.stream.name}."
                )
            ],
        },
        kind="pipeline",
        name=pipeline.name,
        product="Machine learning model",
        is_interactive=False,
        arguments=(
            ("training", "trainers"),
            ("accepting a model", "validators"),
            ("attempts", "attempts"),
            ("growing data", "growing"),
        ),
    )


def _release(path: Path) -> ReportSubject:
    from lapwing.publish.release_file import load_release  # noqa: PLC0415

    file = load_release(path)
    return _of_policy(
        file.policy,
        {
            "mechanisms": [said(f"Method: {file.method}.")],
            "not_protected": [said(f"Public fact: {line}.") for line in file.facts],
        },
        kind="release",
        name=file.name,
        is_interactive=False,
        **_published(file.method),
    )


def _published(method: str) -> dict[str, Any]:
    is_census = method == "census"
    return {
        "product": "Summary statistics" if is_census else "Synthetic data",
        "arguments": (("census tables", "census") if is_census else ("synthetic tables", "publish"),),
    }


def _bundle(path: Path) -> ReportSubject:
    from lapwing.publish.bundle.manifest import read_manifest  # noqa: PLC0415
    from lapwing.publish.bundle.verified_bundle import verify_bundle  # noqa: PLC0415

    manifest = read_manifest(path)
    found = verify_bundle(path)
    if found.findings:
        raise BadParameter(
            "what", f"{path} is not what was released: {found.findings[0]}. Ask the publisher"
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
        **_published(manifest["method"]),
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
            "unit": [said(f"Rows of each unit that were used: at most {privacy['rows_per_unit']:,}.")],
            "definition": [said("The loss was accounted as ρ-zCDP and converted to (ε, δ).")],
            "not_protected": [
                *(said(f"Public fact: {line}.") for line in privacy["facts"]),
                said(
                    "Other releases from the same ledger add up with this one. The bundle has none of them."
                ),
            ],
        },
        why_no_ledger="a bundle is not a ledger. It is signed itself: lapwing verify " + path.name,
    )


_BY_TABLE: dict[str, Callable[[Path], ReportSubject]] = {
    "dataset": _policy,
    "survey": _survey,
    "pipeline": _pipeline,
    "release": _release,
}
