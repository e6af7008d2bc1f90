"""Sentences of a report that do not depend on numbers: how this version of Lapwing works."""

from __future__ import annotations

from lapwing.reporting.subjects import CENTRAL, FEDERATED, LOCAL, ReportSubject

# By section, and there by the trust model or the kind of subject. Those under "" are in every report.
_TEXTS = {
    "definition": {
        "survey": "Each invitation is charged its worst case when it is issued, answered or not. Losses of "
        "one person add up. The account on the respondent's own device is the binding limit.",
        "ledger": "Every request is charged before data is read. Several filters (sums of ε and δ, and "
        "Rényi bounds at fixed orders) add up losses. A request is refused if none of them would hold. "
        "Analysts may choose each question after seeing earlier answers. Argument: "
        "docs/arguments/portfolio.md.",
    },
    "not_protected": {
        "": "Facts about everybody: what is true of a whole group is learned with or without one person.\n"
        "Groups: k people together, such as a family, may lose k times as much as one.\n"
        "Everything that is declared public: names of tables and columns, bounds, values, periods, totals."
    },
    "mechanisms": {
        "": "Noise is drawn exactly: the sampled law is the law in the claim. Argument: "
        "docs/arguments/noise.md.",
        "survey": "Each answer is randomized on the respondent's device, with the survey's odds.",
        "trusted": "Sensitivities follow from declared bounds, which Lapwing enforces. Argument: "
        "docs/arguments/sensitivities.md.",
    },
    "bias": {
        "survey": "Every estimate has an interval. One untrue report changes an estimate by more than one "
        "true answer would.\n"
        "Small groups are estimated less accurately than large ones, by the same absolute error.",
        "trusted": "Noise is the same for a small group and a large one, so small groups have larger "
        "relative errors.\n"
        "Additive noise has no bias. Truncation to a few rows of each unit and clamping to declared bounds "
        "have: intervals do not include it. `lapwing truncated` estimates how much is left out.",
        "policy": "Counts may be negative, and parts need not add up to totals: nothing is rounded to look "
        "right. A group whose value is not declared is shown if its noisy count is large enough: small "
        "groups are missing.",
        "release": "Published tables are adjusted to keep public facts. That biases small counts.",
        "bundle": "Published tables are adjusted to keep public facts. That biases small counts.",
    },
    "trust": {
        "survey": "Local model: answers are randomized before they leave the device. Who collects them "
        "need not be trusted, but who serves the page must serve the published script.",
        FEDERATED: "Each member trusts itself, and that no coalition is larger than the planned one.",
        CENTRAL: "Central model: the curator holds the raw data and is trusted with them.\n"
        "Whoever can run code with the ledger's keys can release without charging. Whoever has keys, "
        "database and all anchors can rewrite history; only an anchor, a statement or a report that is "
        "kept elsewhere shows it.\n"
        "The holder of the curator's key can raise budgets. Every report shows each raise.",
    },
    "side_channels": {
        "": "What analysts see of errors, prices, plans and refusals does not depend on private values. A "
        "failure after the charge gives one constant reply.\n"
        "Memory, swap files, logs of databases and processor caches are not protected. All limits: "
        "docs/limits.md.",
        "survey": "Who watches the network may guess from time and address which report is whose.",
        "consortium": "How long a run takes, and how much is sent, is not protected.",
        CENTRAL: "How long an answer takes is not protected: it depends on how many rows there are. "
        "Replies to untrusted callers must be padded.",
    },
    "access": {
        "survey": "The ledger knows invited people by a keyed hash of their ids. Reports are stored "
        "without time and address.",
        "ledger": "The ledger's keys and the prepared copy of the data are files that only their owner can "
        "read.\n"
        "The ledger stores the words of every question and who asked. Statements hold neither; this report "
        "holds names only if they were asked for.",
    },
    "collection": {
        "": "Differential privacy protects what is released. It does not protect raw data while they are "
        "collected, stored or stolen."
    },
}


def fixed_texts(section: str, subject: ReportSubject) -> list[str]:
    """Return the fixed sentences of a section for this subject."""
    is_local = subject.model == LOCAL
    keys = ["", subject.model, subject.kind, *([] if is_local else ["trusted"])]
    keys += ["ledger"] if subject.ledger is not None and not is_local else []
    return [line for key, text in _TEXTS[section].items() if key in keys for line in text.split("\n")]
