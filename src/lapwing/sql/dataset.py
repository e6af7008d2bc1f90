"""The session of one analyst: plan questions for nothing, release answers for a price.

Claim    planning reads no private row and charges nothing; releasing charges before it reads.
Because  plans are made of the question's text, the policy and released values; only
         `lapwing.sql.releasing` reads, after a charge.
Test     tests/sql/test_dataset.py, tests/sql/pricing/test_plan.py, tests/sql/test_curator_threads.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, Self, TypeVar

import pyarrow as pa

from lapwing.core.exact import Number
from lapwing.engines.engine import ReportProgress
from lapwing.errors import LapwingError
from lapwing.ledger import Ledger
from lapwing.sql.answering import html_view, preliminary_answers
from lapwing.sql.answering.answers import Answer
from lapwing.sql.batches import BatchPlan, plan_batch
from lapwing.sql.curator import Curator
from lapwing.sql.fitting import RowEstimator, fit
from lapwing.sql.offers import Offers
from lapwing.sql.planning import plan_in_words, plan_question, plan_truncation
from lapwing.sql.policy import policy_in_code
from lapwing.sql.policy.policy import CheckedPolicy
from lapwing.sql.pricing.cost import BudgetLeft
from lapwing.sql.question import preliminary_questions
from lapwing.sql.question.built_question import BuiltQuestion, question_of_only_table
from lapwing.sql.question.terms import Term
from lapwing.sql.reading.generated_rows import example_rows
from lapwing.sql.releasing import ReleaseSession, SessionPlan

E = TypeVar("E", bound=RowEstimator)


class Dataset:
    """One analyst's session with the tables of a policy. Threads may share it.

    Get one from `lapwing.open`. Where several analysts ask, `Dataset(curator, analyst="ann")` is
    the session of one of them.

    Args:
        source: The curator; or a policy, for which the session makes a curator that closes with it.
        analyst: The name under which quotas and stored answers are kept.
        threads: How many threads an engine may use, if a policy is given.
        closes: Whether closing this session closes the curator.

    Raises:
        BadParameter: If the name is not valid.

    Example:
        >>> dataset = lapwing.open("visits.toml", analyst="ann")
        >>> plan = dataset.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
        >>> print(plan)  # free
        >>> print(plan.release())  # charged
    """

    def __init__(
        self,
        source: Curator | policy_in_code.Policy | CheckedPolicy,
        *,
        analyst: str,
        threads: int | None = None,
        closes: bool = False,
    ) -> None:
        self._closes = closes or not isinstance(source, Curator)
        self.curator = source if isinstance(source, Curator) else Curator(source, threads=threads)
        self.analyst = ReleaseSession(self.curator, analyst).analyst  # checked

    @property
    def session(self) -> ReleaseSession:
        """The releases of this analyst."""
        return ReleaseSession(self.curator, self.analyst)

    @property
    def policy(self) -> CheckedPolicy:
        """The policy of the tables."""
        return self.curator.policy

    @property
    def ledger(self) -> Ledger:
        """The policy's ledger. It is made at its first use."""
        return self.curator.ledger

    @property
    def offers(self) -> Offers:
        """What can be asked instead of a refused question, and what other prices would buy. It is free."""
        return Offers(self.session)

    # Planning and asking

    def plan(
        self,
        question: Any,
        *,
        epsilon: Number | None = None,
        within: Number | None = None,
        confidence: Number | None = None,
        delta: Number | None = None,
        noise: str | None = None,
        rows: int | None = None,
        n: int | None = None,
        sampling: bool = False,
        where_first: bool = False,
    ) -> SessionPlan:
        """Plan a question: what it would give and cost. Nothing is charged or read.

        Give either `epsilon` (the price) or `within` (the accuracy). SQL may hold the options itself:
        `SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) COUNT(*) FROM visits`.

        Args:
            question: SQL, or an object that can be turned into SQL.
            epsilon: The price in ε.
            within: The largest half-width of every interval, in the unit of its column. ε follows: the
                least that reaches it, together with what was released before.
            confidence: The probability with which each interval holds. None: 0.95.
            delta: The price in δ, where it is needed. None: the policy's `delta_per_query`.
            noise: "auto", "laplace" or "gaussian". None: "auto".
            rows: A lower contribution bound: the most rows of a person to use. None: the policy's.
            n: A public or released number of rows, for the errors of averages. None: not known.
            sampling: Include the error of a sample of rows in the intervals.
            where_first: Choose a person's rows among those that WHERE keeps. This reads the source.

        Returns:
            The plan. Print it, or release it.

        Raises:
            Refused: If the question cannot be answered with privacy. The error says where and why.
            BadParameter: If an option is not valid, or the accuracy cannot be reached.

        Example:
            >>> print(dataset.plan("SELECT COUNT(*) FROM visits", within=50))
        """
        return plan_in_words(
            self.session, question, epsilon=epsilon, within=within, confidence=confidence, delta=delta,
            noise=noise, rows=rows, n=n, sampling=sampling, where_first=where_first,
        )  # fmt: skip

    def ask(
        self,
        question: Any,
        *,
        epsilon: Number | None = None,
        within: Number | None = None,
        confidence: Number | None = None,
        delta: Number | None = None,
        noise: str | None = None,
        rows: int | None = None,
        n: int | None = None,
        sampling: bool = False,
        where_first: bool = False,
        fresh: bool = False,
    ) -> Answer:
        """Plan and release a question in one step. Give either `epsilon` or `within`.

        Args:
            question: SQL, or an object that can be turned into SQL.
            epsilon: The price in ε.
            within: The largest half-width of every interval. ε follows, as in `plan`.
            confidence: The probability with which each interval holds. None: 0.95.
            delta: The price in δ, where it is needed. None: the policy's `delta_per_query`.
            noise: "auto", "laplace" or "gaussian". None: "auto".
            rows: A lower contribution bound. None: the policy's.
            n: A public or released number of rows, for the errors of averages. None: not known.
            sampling: Include the error of a sample of rows in the intervals.
            where_first: Choose a person's rows among those that WHERE keeps. This reads the source.
            fresh: Release a new answer even if the same question has a stored one.

        Returns:
            The answer.

        Raises:
            LapwingError: As `plan` and `Plan.release` do.

        Example:
            >>> print(dataset.ask("SELECT ward, COUNT(*) FROM visits GROUP BY ward", epsilon="0.2"))
        """
        plan = self.plan(
            question, epsilon=epsilon, within=within, confidence=confidence, delta=delta, noise=noise,
            rows=rows, n=n, sampling=sampling, where_first=where_first,
        )  # fmt: skip
        return plan.release(fresh=fresh)

    def batch(
        self,
        questions: Iterable[Any],
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        weights: Sequence[Number] | None = None,
    ) -> BatchPlan:
        """Plan several questions as one release: one price, one charge, all answers or none.

        All questions are fixed before any answer. Each has its own price and options, or `epsilon` is
        divided among them.

        Args:
            questions: SQL (its OPTIONS may be in it), or pairs of SQL and options of `plan` by name.
            epsilon: The price in ε of all questions. None: each question has its own.
            delta: The price in δ of all questions. None: of each, the policy's `delta_per_query`.
            weights: The shares of the questions in `epsilon` and `delta`. None: all the same.

        Returns:
            The plan of the batch. Print it, or release it.

        Raises:
            LapwingError: As `plan` does, about the first question that cannot be planned.

        Example:
            >>> count, average = "SELECT COUNT(*) FROM visits", "SELECT AVG(stay) FROM visits"
            >>> dataset.batch([(count, {"epsilon": "0.02"}), (average, {"epsilon": "0.03"})]).cost.epsilon
            0.05
            >>> answers = dataset.batch([count, average], epsilon="0.05", weights=[2, 3]).release()
        """
        return plan_batch(self.session, questions, epsilon=epsilon, delta=delta, weights=weights)

    def two_stage(
        self,
        question: Any,
        *,
        within: Number,
        first: Number = "0.05",
        confidence: Number | None = None,
        delta: Number | None = None,
        noise: str | None = None,
        rows: int | None = None,
        sampling: bool = False,
        where_first: bool = False,
    ) -> tuple[SessionPlan, Answer]:
        """Release the number of rows first, then plan the question for that number.

        Args:
            question: SQL, or an object that can be turned into SQL.
            within: The largest half-width of every interval, in the unit of its column.
            first: The price of the first stage, in ε. It is charged now.
            confidence: The probability with which each interval holds. None: 0.95.
            delta: The price in δ of each stage, where it is needed. None: the policy's `delta_per_query`.
            noise: The noise of the question: "auto", "laplace" or "gaussian". None: "auto".
            rows: A lower contribution bound. None: the policy's.
            sampling: Include the error of a sample of rows in the intervals of the question.
            where_first: Choose a person's rows among those that WHERE keeps.

        Returns:
            The plan of the question, and the answer of the first stage.

        Raises:
            LapwingError: As `plan` and `Plan.release` do.

        Example:
            >>> plan, counted = dataset.two_stage("SELECT AVG(stay) FROM visits", within="0.5")
        """
        (name, sizes), *earlier = (
            (f"{preliminary_questions.SIZES_PREFIX} {text}", preliminary_questions.sizes_question(bound))
            for text, bound in self.curator.bind(question, rows, where_first=where_first)
        )
        counted = plan_question(
            self.session, sizes, name, epsilon=first, delta=delta, rows=rows, earlier_forms=earlier,
            confidence="0.95" if confidence is None else confidence,
        ).release()  # fmt: skip
        plan = self.plan(
            question, within=within, confidence=confidence, delta=delta, noise=noise, rows=rows,
            n=preliminary_answers.least_size(counted), sampling=sampling, where_first=where_first,
        )  # fmt: skip
        return plan, counted

    def search_bounds(
        self, table: str, column: str, *, epsilon: Number, step: Number
    ) -> tuple[float, float, Answer]:
        """Release bounds for a column that the policy does not declare.

        Args:
            table: A private table of the policy.
            column: A column of its source.
            epsilon: The price in ε.
            step: The distance between two neighbouring values, such as 1 for whole numbers.

        Returns:
            The low and high bound, and the answer that they are read from.

        Raises:
            BadParameter: If the column is hidden, or ε is too small to see any values.

        Example:
            >>> low, high, answer = dataset.search_bounds("visits", "stay", epsilon=1, step=1)
        """
        policy = preliminary_questions.policy_with_searched_column(self.policy, table, column, step)
        name = f"bounds of {table}.{column} in steps of {step}"
        question = preliminary_questions.bounds_question(policy, table, column)
        with self.session.with_policy(policy) as session:
            plan = plan_question(session, question, name, epsilon=epsilon)
            answer = plan.release()
        return *preliminary_answers.read_bounds(
            answer, plan.shares, policy.tables[table].columns[column].kind
        ), answer

    def truncated(
        self, table: str, *, epsilon: Number, rows: int | None = None, beyond: int | None = None
    ) -> Answer:
        """Estimate how many people exceed the contribution bound of a table, and the truncated rows.

        Args:
            table: A private table of the policy.
            epsilon: The price in ε.
            rows: A lower contribution bound, as in `plan`. None: the policy's.
            beyond: Estimate the truncated rows as well, and count at most this many of each person: one of
                `lapwing.sql.answering.truncation.ROWS_BEYOND`. None: only people.

        Returns:
            The answer. Later plans and answers mention it.

        Raises:
            BadParameter: If the table or `beyond` is not valid.

        Example:
            >>> print(dataset.truncated("visits", epsilon="0.1", beyond=100))
        """
        return plan_truncation(self.session, table, epsilon, rows, beyond).release()

    def fit(
        self,
        estimator: E,
        question: Any,
        *,
        epsilon: Number,
        label: str | None = None,
        delta: Number | None = None,
        fresh: bool = False,
    ) -> E:
        """Fit an estimator of `lapwing.learn` to the rows of a question, and charge it to the policy.

        Columns, bounds, classes and units come from the policy. One row of each person trains, drawn at
        random. The same fit of the same data gives the stored model, at no cost.

        Args:
            estimator: The estimator. What it leaves open (columns, classes, target) follows from the
                policy.
            question: SQL without an aggregate: `SELECT age, income, churned FROM orders`.
            epsilon: The price in ε.
            label: The column that is predicted. None: the last one.
            delta: The price in δ. None: the policy's `delta_per_query`.
            fresh: Train a new model, at a new charge, even if the same fit has a stored one.

        Returns:
            The estimator, fitted. Its `receipt_` is the receipt of the charge.

        Raises:
            Refused: If the question cannot give rows to learn from. The error says where and why.
            BadParameter: If a setting does not fit the columns. Nothing is charged.
            OverBudget: If an account has too little left. Nothing is charged.
            Held: If this fit was charged and failed. It waits until the curator clears the hold.

        Example:
            >>> from lapwing.learn import LogisticRegression
            >>> rows = "SELECT ward, stay, urgent FROM visits"
            >>> model = dataset.fit(LogisticRegression(size=2000), rows, epsilon=1)
            >>> model.classes_
            array([False,  True])
        """
        fit(self, estimator, question, label=label, epsilon=epsilon, delta=delta, fresh=fresh)
        return estimator

    def example_rows(self, table: str, rows: int = 100) -> pa.Table:
        """Return generated rows of a table, so that code can be written before anything is spent.

        They come from the policy alone: declared columns with declared values, the same each time, without
        missing values and without the unit. They mean nothing.

        Args:
            table: A table of the policy that declares columns.
            rows: How many rows, at most 100,000.

        Returns:
            An Arrow table.

        Raises:
            BadParameter: If the table declares no column, or `rows` is not in range.

        Example:
            >>> dataset.example_rows("visits", 3).num_rows
            3
        """
        return example_rows(self.policy, table, rows)

    def left(self) -> BudgetLeft:
        """Return what is left of the budget, and of the analyst's quota if there is one.

        Returns:
            The numbers. Printed, they are a sentence part such as "ε 9.5 of 10".

        Example:
            >>> print(dataset.left())
            ε ... of 3
        """
        return self.session.left()

    # Questions in Python: they are values, for `plan` and `ask`

    def group_by(self, *keys: str | Term, **named: Term) -> BuiltQuestion:
        """Begin a question about each group of the one private table. See `BuiltQuestion.group_by`.

        Args:
            keys: Columns.
            named: What is computed from columns, under the name of its column in the answer.

        Returns:
            The question, for `plan` and `ask`.

        Raises:
            BadParameter: If the policy has several private tables. Then begin with `questions.table`.

        Example:
            >>> from lapwing.questions import count, mean
            >>> question = town.group_by("sex").agg(n=count(), age=mean("age"))
        """
        return question_of_only_table(self.policy).group_by(*keys, **named)

    def where(self, *conditions: Term) -> BuiltQuestion:
        """Begin a question about some rows of the one private table. See `BuiltQuestion.where`.

        Args:
            conditions: Such as `column("stay") >= 2`.

        Returns:
            The question, for `plan` and `ask`.

        Raises:
            BadParameter: If the policy has several private tables. Then begin with `questions.table`.

        Example:
            >>> from lapwing.questions import column, count
            >>> question = town.where(column("age") >= 18).agg(n=count())
        """
        return question_of_only_table(self.policy).where(*conditions)

    def agg(self, **aggregates: Term) -> BuiltQuestion:
        """Begin a question about all rows of the one private table. See `BuiltQuestion.agg`.

        Args:
            aggregates: Such as `n=count()`, under the names of their columns in the answer.

        Returns:
            The question, for `plan` and `ask`.

        Raises:
            BadParameter: If the policy has several private tables. Then begin with `questions.table`.

        Example:
            >>> from lapwing.questions import count, median
            >>> question = town.agg(n=count(), age=median("age"))
        """
        return question_of_only_table(self.policy).agg(**aggregates)

    # The curator's acts, for a session that has a curator of its own. See `Curator`.

    def prepare(
        self, progress: ReportProgress | None = None, *, today: date | None = None, again: bool = False
    ) -> bool:
        """Store a copy of the data that answers fast. See `Curator.prepare`.

        Args:
            progress: Called with the progress of the work. None: nobody is told.
            today: The day on which new people arrive. None: today, in UTC.
            again: Make a new version even if nobody has written to the files.

        Returns:
            Whether the data has a new version.

        Raises:
            BadParameter: If the source cannot be read.

        Example:
            >>> dataset.prepare(again=True)
            True
        """
        return self.curator.prepare(progress, today=today, again=again)

    def register(self, *, again: bool = True) -> int:
        """Tell the ledger which people are in the data now. See `Curator.register`.

        Args:
            again: False registers only data that the ledger does not know yet.

        Returns:
            The version of the data.

        Raises:
            BadParameter: If blocks are periods of arrival: then only `prepare` can register.

        Example:
            >>> dataset.register()
            3
        """
        return self.curator.register(again=again)

    def version(self) -> int:
        """Return the version of the data that will be asked. See `Curator.version`.

        Returns:
            The ledger's number of the version.

        Raises:
            BadParameter: If the source changed since the ledger last saw it.

        Example:
            >>> dataset.version()
            3
        """
        return self.curator.version()

    def clear_hold(self, *receipts: int) -> None:
        """Let questions be asked again that were charged and failed. See `Curator.clear_hold`.

        Args:
            receipts: The receipt numbers of the failed questions.

        Raises:
            BadParameter: If one of them is not the receipt of a question that was charged and failed.

        Example:
            >>> dataset.clear_hold(failed)
        """
        self.curator.clear_hold(*receipts)

    def close(self) -> None:
        """Close the curator if this session has its own. Threads first get the answers they paid for.

        Example:
            >>> dataset.close()
        """
        if self._closes:
            self.curator.close()

    def __repr__(self) -> str:
        return (
            f"<Dataset {self.policy.name}, asked by {self.analyst}, with {', '.join(self.policy.tables)}>"
        )

    def _repr_html_(self) -> str:
        return html_view.dataset_html(self.policy, self.analyst, self._left_in_words())

    def _left_in_words(self) -> str:
        if not self.curator.has_ledger:
            return "Nothing has been asked yet."
        try:
            return f"Budget left: {self.left()}."
        except LapwingError as error:
            return f"The ledger cannot say what is left: {error}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
