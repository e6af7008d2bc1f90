"""The chapters, in the order in which they are read: each topic with its question and its parameters.

Nothing is computed here, and no extra is loaded. A topic loads what it needs when it runs.
"""

from __future__ import annotations

from fractions import Fraction

from lapwing.show.topic import Chapter, Parameter, Topic, computed_in

Value = str | int
_HERE = "lapwing.show.chapters."


def _real(name: str, default: Value, least: Value, most: Value, meaning: str) -> Parameter:
    return Parameter(name, Fraction(default), Fraction(least), Fraction(most), meaning)


def _whole(name: str, default: int, least: int, most: int, meaning: str) -> Parameter:
    return Parameter(name, Fraction(default), Fraction(least), Fraction(most), meaning, is_whole=True)


# One answer

_LOSS = "ε, the privacy loss of the answer"
_EPSILON = _real("epsilon", 1, "0.01", 10, _LOSS)
_DISTANCE = "the most that one person changes the count"
_ONE_ANSWER = Chapter(
    "One answer",
    (
        Topic(
            "laplace", "What is Laplace noise, and how large is it?",
            (_EPSILON, _whole("sensitivity", 1, 1, 1000, _DISTANCE)),
            "laplace.md", computed_in(f"{_HERE}one_answer", "laplace"),
        ),
        Topic(
            "ratio", "How much can your data change the probability of an answer?",
            (_EPSILON, _whole("sensitivity", 3, 1, 100, _DISTANCE)),
            "laplace.md", computed_in(f"{_HERE}two_worlds", "ratio"),
        ),
        Topic(
            "pointwise", "Why is it enough to compare single answers?",
            (_EPSILON, _whole("k", 12, 2, 15, "the number of answers")),
            "audit_exact.md", computed_in(f"{_HERE}two_worlds", "pointwise"),
        ),
        Topic(
            "small-epsilon", "What does a small ε mean?", (_real("epsilon", "0.1", "0.001", 5, _LOSS),),
            "laplace.md", computed_in(f"{_HERE}two_worlds", "small_epsilon"),
        ),
        Topic(
            "mean-noise", "How large is the noise on average?",
            (
                _real("epsilon", "0.5", "0.01", 5, _LOSS),
                _whole("n", 20_000, 100, 1_000_000, "the number of draws"),
            ),
            "laplace.md", computed_in(f"{_HERE}one_answer", "mean_noise"),
        ),
        Topic(
            "sensitivity", "How far can one person move a statistic?",
            (
                _whole("n", 100, 2, 100_000, "the number of people"),
                _whole("rows", 5, 1, 100, "the most complaints of one person"),
                _EPSILON,
            ),
            "sensitivities.md", computed_in(f"{_HERE}one_answer", "sensitivity"),
        ),
    ),
)  # fmt: skip

# Rare failures

_ABOVE = "δ, what may lie above e^ε"
_OF_ANSWER = _real("epsilon", 1, "0.1", 5, _LOSS)
_RARE_FAILURES = Chapter(
    "Rare failures",
    (
        Topic(
            "delta-area", "What is δ?", (_OF_ANSWER, _real("delta", "1e-5", "1e-12", "0.1", _ABOVE)),
            "gaussian.md", computed_in(f"{_HERE}rare_failures", "delta_area"),
        ),
        Topic(
            "telling-event", "Can an answer prove that you are in the data?",
            (_OF_ANSWER, _real("delta", "1e-4", "1e-9", "0.1", _ABOVE)),
            "audit_exact.md", computed_in(f"{_HERE}rare_failures", "telling_event"),
        ),
        Topic(
            "many-numbers", "Which noise is smaller when many numbers are released together?",
            (
                _real("epsilon", 1, "0.1", 5, "ε of all numbers together"),
                _real("delta", "1e-6", "1e-12", "0.01", _ABOVE),
                _whole("k", 1000, 10, 10_000, "the number of counts"),
            ),
            "gaussian.md", computed_in(f"{_HERE}rare_failures", "many_numbers"),
        ),
    ),
)  # fmt: skip

# Choosing

_OF_CHOICE = "ε, the privacy loss of the choice"
_CHOOSING = Chapter(
    "Choosing",
    (
        Topic(
            "exponential", "How can a choice be private, where noise would spoil it?",
            (
                _real("epsilon", 1, "0.01", 10, _OF_CHOICE),
                _whole("n", 300, 20, 100_000, "the number of people"),
            ),
            "exponential.md", computed_in(f"{_HERE}choosing", "exponential"),
        ),
        Topic(
            "network-choice", "Can a network be released with noise on its weights?",
            (
                _real("epsilon", 1, "0.01", 100, _OF_CHOICE),
                _whole("n", 1000, 50, 20_000, "the number of private rows"),
            ),
            "exponential.md", computed_in(f"{_HERE}choosing", "network_choice"),
        ),
    ),
)  # fmt: skip

# Many answers

_LIFETIME = _real("epsilon", 1, "0.05", 8, "lifetime ε of each person in Lapwing")
_MANY_ANSWERS = Chapter(
    "Many answers",
    (
        Topic(
            "adding-up", "What do k answers about the same people cost?",
            (_real("epsilon", "0.2", "0.01", 1, "ε of one answer"), _whole("k", 20, 2, 100, "answers")),
            "portfolio.md", computed_in(f"{_HERE}many_answers", "adding_up"),
        ),
        Topic(
            "adaptive", "What if the next question depends on the last answer?",
            (
                _real("epsilon", 3, "0.5", 10, "lifetime budget ε"),
                _real("delta", "1e-6", "1e-12", "1e-3", "lifetime budget δ"),
                _real("price", "0.05", "0.02", "0.5", "ε of one answer"),
            ),
            "portfolio.md", computed_in("lapwing.show.adaptive_answers", "show_adaptive"),
        ),
        Topic(
            "per-person", "What has each person lost, if people are in different data sets?",
            (
                _real("epsilon", "0.25", "0.01", 2, "ε of one question"),
                _whole("n", 12, 4, 30, "generated people"),
                _whole("months", 8, 4, 24, "months in which questions are asked"),
            ),
            "growing.md", computed_in("lapwing.show.personal_losses", "show_personal_losses"),
        ),
        Topic(
            "trials", "Can many harmless answers together expose somebody?",
            (_LIFETIME, _whole("n", 50, 10, 1_000, "people who are attacked")),
            "attacks.md", computed_in(f"{_HERE}many_answers", "trials"), has_full_version=True,
        ),
        Topic(
            "daily-reset", "What is wrong with a budget that is full again every day?",
            (
                _LIFETIME,
                _whole("days", 30, 2, 1_000, "days with a report, for the exact numbers"),
                _whole("n", 40, 10, 300, "devices that are attacked, for 30 days"),
            ),
            "attacks.md", computed_in(f"{_HERE}many_answers", "daily_reset"), has_full_version=True,
        ),
    ),
)  # fmt: skip

# People

_PEOPLE = Chapter(
    "People",
    (
        Topic(
            "smoking", "What does a study reveal about people who stayed out?",
            (
                _real("epsilon", "0.1", "0.01", 5, "ε of both counts together"),
                _whole("n", 1_000, 10, 10**6, "smokers, with Mary"),
                _real("risk", "0.62", 0, 1, "share of ill smokers, generated"),
                _real("prior", "0.25", "0.001", "0.999", "share that the insurer believed before"),
            ),
            "laplace.md", computed_in(f"{_HERE}people", "smoking"),
        ),
        Topic(
            "odds", "How far can a release move somebody's belief about me?",
            (
                _real("epsilon", 1, "0.01", 10, "ε of all releases together"),
                _real("prior", "0.5", "0.001", "0.999", "somebody's belief about you, before"),
            ),
            "attacks.md", computed_in(f"{_HERE}people", "odds"),
        ),
        Topic(
            "deniability", "What does a randomized answer prove about the person who gave it?",
            (
                _real("epsilon", 1, "0.01", 10, "ε of one report"),
                _real("prior", "0.1", "0.001", "0.999", "share of people whose answer is yes"),
                _whole("n", 10_000, 10, 10**6, "people asked"),
            ),
            "randomized_response.md", computed_in(f"{_HERE}people", "deniability"),
        ),
    ),
)  # fmt: skip

# Nobody is trusted

_NOBODY_TRUSTED = Chapter(
    "Nobody is trusted",
    (
        Topic(
            "two-coins", "How can a survey learn a share if no single report can be trusted?",
            (
                _whole("n", 1_000, 10, 100_000, "people asked"),
                _real("share", "0.3", 0, 1, "true share of people who would say yes"),
            ),
            "randomized_response.md", computed_in(f"{_HERE}nobody_trusted", "two_coins"),
        ),
        Topic(
            "many-questions", "What do m questions with two coins cost one person?",
            (
                _whole("m", 8, 2, 20, "questions to each person"),
                _whole("n", 10_000, 10, 10**9, "people asked"),
            ),
            "randomized_response.md", computed_in(f"{_HERE}nobody_trusted", "many_questions"),
        ),
        Topic(
            "curator-and-local", "What does it cost in accuracy to trust nobody?",
            (
                _real("epsilon", 1, "0.1", 8, "ε of each person, in both models"),
                _whole("n", 10_000, 10, 100_000, "people asked"),
            ),
            "randomized_response.md", computed_in(f"{_HERE}nobody_trusted", "curator_and_local"),
        ),
    ),
)  # fmt: skip

# Several parties

_OF_RUN = "the ε of one run, for each person's rows"
_SEVERAL_PARTIES = Chapter(
    "Several parties",
    (
        Topic(
            "coalition-view", "What does a coalition see of the others, number by number?",
            (
                _real("epsilon", 1, "0.01", 5, _OF_RUN),
                _whole("protocol", 3, 1, 4,
                    "1: own noise (A), 2: additive shares (B), 3: Shamir shares (C), 4: masked star (D)"),
                _whole("members", 3, 2, 4, "the members, m"),
                _whole("coalition", 1, 0, 432,
                    "the colluding members' numbers as digits: 13 is members 1 and 3, 0 the relay alone"),
            ),
            "parties.md", computed_in(f"{_HERE}several_parties", "coalition_view"),
        ),
        Topic(
            "coalition-size", "How many members may collude, and what happens if more do?",
            (
                _real("epsilon", 1, "0.01", 5, _OF_RUN),
                _whole("members", 4, 2, 6, "the members, m"),
                _whole("planned", 1, 1, 5,
                    "t: the colluding members that noise is planned for, at most m − 1"),
            ),
            "parties.md", computed_in(f"{_HERE}several_parties", "coalition_size"),
        ),
        Topic(
            "parties-error",
            "What does it cost to trust nobody alone: how does the error grow with the members?",
            (
                _real("epsilon", 1, "0.1", 3, _OF_RUN),
                _whole("people", 1000, 100, 100_000, "the people, n, that the members divide among them"),
                _whole("repetitions", 200, 20, 2000, "the runs that each measured point averages"),
            ),
            "noise_shares.md", computed_in(f"{_HERE}several_parties", "parties_error"),
            has_full_version=True,
        ),
    ),
)  # fmt: skip

# Learning

_ETA = _real("eta", "0.05", "0.001", "0.5", "η: the probability with which a run may release a bad model")
_LEAST = "the smallest ε of an attempt; the largest is 1"
_RUNS = "the runs for each ε and each target"
_ROWS = "the rows that a run has at most; it begins with few, and doubles"
_LEARNING = Chapter(
    "Learning",
    (
        Topic(
            "bad-models", "How many bad models leave if validation forgets its own noise?",
            (
                _ETA, _real("epsilon", "0.01", "0.001", "0.25", _LEAST), _whole("runs", 25, 5, 200, _RUNS),
                _whole("rows", 64_000, 16_000, 1_024_000, _ROWS),
            ),
            "validators.md", computed_in(f"{_HERE}learning", "bad_models"), has_full_version=True,
            extra="learn",
        ),
        Topic(
            "data-needed", "How much data does a model need until it can be accepted, at each ε?",
            (
                _ETA, _real("epsilon", "0.05", "0.001", "0.25", _LEAST), _whole("runs", 10, 5, 200, _RUNS),
                _whole("rows", 256_000, 16_000, 1_024_000, _ROWS),
            ),
            "validators.md", computed_in(f"{_HERE}learning", "data_needed"), has_full_version=True,
            extra="learn",
        ),
        Topic(
            "release-time", "How long do pipelines wait for their release if they share the data?",
            (
                _real("epsilon", 1, "0.1", 10, "the ε of a block"),
                _real("load", "0.5", "0.05", 1, "the most pipelines that arrive each hour"),
                _real("blocks", 2, "0.5", 10,
                    "the blocks that a pipeline needs however large ε is (the full version measures it)"),
                _real("noise", "0.5", "0.01", 3,
                      "the blocks that it needs besides at ε 1, for the noise "
                      "(the full version measures it)"),
                _whole("hours", 200, 50, 300, "the simulated hours"),
            ),
            "growing.md", computed_in(f"{_HERE}learning", "release_time"), has_full_version=True,
        ),
    ),
)  # fmt: skip

# Society

_SOCIETY = Chapter(
    "Society",
    (
        Topic(
            "choice", "Privacy against accuracy: what does a choice of ε mean for a whole census?",
            (
                _real("epsilon", 3, "0.2", 50, "the ε of the whole release"),
                _real("delta", "1e-6", "1e-12", "1e-3", "the δ at which ε is told"),
                _real("prior", "0.01", "0.001", "0.5",
                      "somebody's belief that you are in the data, before"),
            ),
            "census.md", computed_in(f"{_HERE}society", "choice"),
        ),
    ),
)  # fmt: skip


def chapters() -> tuple[Chapter, ...]:
    """Return all chapters. Importing them loads no extra: a topic loads what it needs when it runs."""
    return (
        _ONE_ANSWER, _RARE_FAILURES, _CHOOSING, _MANY_ANSWERS, _PEOPLE, _NOBODY_TRUSTED, _SEVERAL_PARTIES,
        _LEARNING, _SOCIETY,
    )  # fmt: skip


def topics() -> dict[str, Topic]:
    """Return all topics by name, in the order in which they are read."""
    return {topic.name: topic for chapter in chapters() for topic in chapter.topics}
