"""A data set of a server, with the verbs of `lapwing.open`: plan for nothing, release for a price."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from lapwing.client.numbers import Number, decimal_text
from lapwing.client.remote_answer import RemoteAnswer, read_left
from lapwing.client.remote_batch import RemoteBatch
from lapwing.client.remote_plan import RemotePlan
from lapwing.errors import BadParameter, LapwingError, Unavailable
from lapwing.html_views import fragment, grid, html_view, notes, strong
from lapwing.prices import BudgetLeft

if TYPE_CHECKING:
    import pyarrow as pa

    from lapwing.client.requests import Requests

PARQUET = "application/vnd.apache.parquet"
ARROW = "application/vnd.apache.arrow.stream"
VALUES_SHOWN = 8
_NUMBERS = ("epsilon", "within", "confidence", "delta")


class RemoteDataset:
    """A data set of a server, asked by the owner of a token. Threads may share it.

    Get one from `lapwing.connect`. All that it knows comes from the server: no file of the data is here.

    Args:
        requests: The requests to the server.
        name: The name of the data set there.

    Example:
        >>> visits = lapwing.connect(url, token=token)
        >>> plan = visits.plan("SELECT AVG(stay) FROM visits", epsilon="0.5")
        >>> print(plan)  # free
        >>> print(plan.release())  # charged
    """

    def __init__(self, requests: Requests, name: str) -> None:
        self.name = name
        self._requests = requests

    def plan(
        self,
        question: str,
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
    ) -> RemotePlan:
        """Plan a question. It is free and reads no private row. Give either `epsilon` or `within`.

        Args:
            question: SQL.
            epsilon: The price in ε.
            within: The largest half-width of every interval, in the unit of its column. ε follows.
            confidence: The probability with which each interval holds. None: 0.95.
            delta: The price in δ, where it is needed. None: the policy's `delta_per_query`.
            noise: "auto", "laplace" or "gaussian". None: "auto".
            rows: A lower contribution bound. None: the policy's.
            n: A public or released number of rows, for the errors of averages. None: not known.
            sampling: Include the error of a sample of rows in the intervals.
            where_first: Choose a person's rows among those that WHERE keeps.
            fresh: Plan a new answer even if the same question has a stored one.

        Returns:
            The plan, with its price and expected errors.

        Raises:
            Refused: If the question cannot be answered privately. The error says where and why.
            BadParameter: If an option is not valid.
            Unavailable: If the server cannot be reached.

        Example:
            >>> visits.plan("SELECT COUNT(*) FROM visits", epsilon="0.1").cost.epsilon
            0.1
        """
        if not isinstance(question, str):
            raise BadParameter("question", "must be SQL, as text")
        given = {
            "epsilon": epsilon, "within": within, "confidence": confidence, "delta": delta, "noise": noise,
            "rows": rows, "n": n,
        }  # fmt: skip
        asked: dict[str, Any] = {
            name: _exact(name, value) for name, value in given.items() if value is not None
        }
        chosen = {"sampling": sampling, "where_first": where_first, "fresh": fresh}
        asked |= {name: True for name, value in chosen.items() if value}
        return self._plan({"sql": question, **asked})

    def _plan(self, asked: Mapping[str, Any]) -> RemotePlan:
        told = self._requests.post("/v1/plans", {"data": self.name, **asked})
        return RemotePlan.read(told, asked, self)

    def release(self, plan: RemotePlan | str, *, fresh: bool = False) -> RemoteAnswer:
        """Release a plan: charge its cost once, and return its answer as often as it is asked for.

        Args:
            plan: The plan, or its id, for example after a lost connection.
            fresh: Release a new answer even if the same question has a stored one.

        Returns:
            The answer.

        Raises:
            OverBudget: If an account has too little left. Nothing is charged.
            TokenSpent: If the token may not spend so much. Nothing is charged.
            Held: If the question was charged and failed. It waits until the curator clears the hold.
            Unavailable: If the server cannot be reached. The error has the id to ask again with.

        Example:
            >>> answer = visits.release(visits.plan("SELECT COUNT(*) FROM visits", epsilon="0.1"))
        """
        if isinstance(plan, RemotePlan):
            wanted = self._plan({**plan.asked, "fresh": True}).id if fresh else plan.id
        else:
            wanted = plan
            if fresh:
                raise BadParameter("fresh", "needs the plan itself: its id stands for one release")
        try:
            return self._answer(self._requests.post(f"/v1/plans/{_part(wanted)}/release"))
        except Unavailable as error:
            error.args = (
                f"{error}. Whether the plan was charged is not known here. release({wanted!r}) asks again: "
                "the plan is charged once",
            )
            raise

    def dry_run_of(self, plan: RemotePlan) -> RemoteAnswer:
        """Return an answer of a plan from generated rows. It costs nothing and means nothing."""
        return self._answer(self._requests.post(f"/v1/plans/{_part(plan.id)}/dry-run"))

    def dry_run(self, question: str, **options: Any) -> RemoteAnswer:
        """Return an answer from generated rows, in the form of the release. It costs and means nothing.

        Args:
            question: SQL.
            options: As for `plan`.

        Returns:
            An answer with `is_fake` set.

        Raises:
            LapwingError: As `plan` does.

        Example:
            >>> visits.dry_run("SELECT COUNT(*) FROM visits", epsilon="0.1").is_fake
            True
        """
        return self.dry_run_of(self.plan(question, **options))

    def ask(self, question: str, **options: Any) -> RemoteAnswer:
        """Plan and release a question in one step. Give either `epsilon` or `within`.

        Args:
            question: SQL.
            options: As for `plan`.

        Returns:
            The answer.

        Raises:
            LapwingError: As `plan` and `release` do.

        Example:
            >>> print(visits.ask("SELECT ward, COUNT(*) FROM visits GROUP BY ward", epsilon="0.2"))
        """
        return self.plan(question, **options).release()

    def batch(
        self,
        questions: Iterable[str | tuple[str, Mapping[str, Any]]],
        *,
        epsilon: Number | None = None,
        delta: Number | None = None,
        weights: Sequence[Number] | None = None,
    ) -> RemoteBatch:
        """Plan several questions as one release: priced together, charged once, answered all or none.

        Args:
            questions: SQL, or pairs of SQL and its own options, such as `("SELECT …", {"epsilon": "0.2"})`.
            epsilon: The price in ε of all questions together.
            delta: The price in δ of all questions together.
            weights: The shares of the questions in ε. None: equal ones.

        Returns:
            The batch, with its price. It is free.

        Raises:
            Refused: If a question cannot be answered privately.
            BadParameter: If an option is not valid.

        Example:
            >>> asked = ["SELECT COUNT(*) FROM visits", "SELECT AVG(stay) FROM visits"]
            >>> batch = visits.batch(asked, epsilon=1)
            >>> print(batch)
        """
        asked = []
        for one in questions:
            sql, options = one if isinstance(one, tuple) else (one, {})
            exact = {name: _exact(name, value) for name, value in options.items()}
            asked.append({"sql": sql, **exact})
        body: dict[str, Any] = {"data": self.name, "questions": asked}
        for name, value in (("epsilon", epsilon), ("delta", delta)):
            if value is not None:
                body[name] = decimal_text(value, name)
        if weights is not None:
            body["weights"] = [decimal_text(weight, "weights") for weight in weights]
        return RemoteBatch.read(self._requests.post("/v1/batches", body), self)

    def release_batch(self, batch: RemoteBatch) -> list[RemoteAnswer]:
        """Release a batch: one charge for all its answers, or none. See `RemoteBatch.release`."""
        told = self._requests.post(f"/v1/batches/{_part(batch.id)}/release")
        return [RemoteAnswer.read(one) for one in told["answers"]]  # they share a receipt, and so an id

    def answer(self, answer_id: str, *, confidence: Number | None = None) -> RemoteAnswer:
        """Return a stored answer again, at no cost.

        Args:
            answer_id: Its id, such as "visits.212".
            confidence: The probability of each interval. None: 0.95.

        Returns:
            The answer.

        Raises:
            RequestRefused: If there is no such answer that the token may see.

        Example:
            >>> visits.answer(answer.id).receipt.position == answer.receipt.position
            True
        """
        level = None if confidence is None else decimal_text(confidence, "confidence")
        told = self._requests.get(f"/v1/answers/{_part(answer_id)}", confidence=level)
        return self._answer(told, level)

    def answers(self, last: int = 50) -> list[dict[str, Any]]:
        """Return the newest own answers, newest first: id, question, time, price.

        Args:
            last: How many at most.

        Returns:
            One dictionary for each.

        Example:
            >>> found = visits.answers(last=1)
        """
        found: list[dict[str, Any]] = self._of_data("answers", last=last)["answers"]
        return found

    def left(self) -> BudgetLeft:
        """Return what is left of the budget, and of the analyst's quota if there is one.

        Returns:
            The numbers. Printed, they are a sentence part such as "ε 9.5 of 10".

        Example:
            >>> print(visits.left())
            ε ... of 10
        """
        left = read_left(self._of_data("left"))
        assert left is not None, "a reply without one is an error"
        return left

    def schema(self) -> dict[str, Any]:
        """Return tables, columns, kinds, bounds and units, as the policy declares them.

        Returns:
            Plain values.

        Example:
            >>> [table["table"] for table in visits.schema()["tables"]]
            ['visits']
        """
        found: dict[str, Any] = self._of_data("schema")
        return found

    def example_rows(self, table: str | None = None, rows: int = 100) -> pa.Table:
        """Return generated rows of a table, from the policy alone: to write code before anything is spent.

        Args:
            table: The table. None: the first one.
            rows: How many.

        Returns:
            An Arrow table. It says nothing about the data.

        Raises:
            BadParameter: If there is no such table.

        Example:
            >>> visits.example_rows(rows=10).num_rows
            10
        """
        parquet = import_module("pyarrow.parquet")
        path = f"/v1/data/{_part(self.name)}/example.parquet"
        content = self._requests.content(path, PARQUET, table=table, rows=rows)
        found: pa.Table = parquet.read_table(BytesIO(content))
        return found

    def jobs(self) -> list[dict[str, Any]]:
        """Return the newest long work on the server that the token may see: prepare, publish, train, audit.

        Returns:
            One dictionary for each: id, kind, state, planned steps, and how many of them are done.

        Example:
            >>> visits.jobs()
            []
        """
        found: list[dict[str, Any]] = self._requests.get("/v1/jobs")["jobs"]
        return [job for job in found if job["data"] == self.name]

    def start_job(self, kind: str, **settings: Any) -> dict[str, Any]:
        """Put long work into the server's queue. It goes on when this program ends.

        Args:
            kind: "prepare", "publish", "train" or "audit".
            settings: `file` to publish or train, `again` to prepare, `sql` and `epsilon` to audit.

        Returns:
            The job. `jobs` tells how far it is.

        Raises:
            RequestRefused: If the token's roles do not allow it.
        """
        body = {"data": self.name, "kind": kind, **settings}
        job: dict[str, Any] = self._requests.post("/v1/jobs", body, is_repeatable=False)
        return job

    def history(self, last: int = 50) -> list[dict[str, Any]]:
        """Return the newest requests that were charged: the own ones; stewards and officers see all.

        Args:
            last: How many at most.

        Returns:
            One dictionary for each: receipt, time, person, question, price.

        Example:
            >>> visits.history(last=1)[0]["person"]
            'ann'
        """
        found: list[dict[str, Any]] = self._of_data("history", last=last)["history"]
        return found

    def close(self) -> None:
        """Close all connections to the server.

        Example:
            >>> visits.close()
        """
        self._requests.close()

    def _of_data(self, what: str, **options: Any) -> Any:
        return self._requests.get(f"/v1/data/{_part(self.name)}/{what}", **options)

    def _answer(self, told: Mapping[str, Any], confidence: str | None = None) -> RemoteAnswer:
        def arrow(name: str) -> bytes:
            return self._requests.content(f"/v1/answers/{_part(name)}", ARROW, confidence=confidence)

        return RemoteAnswer.read(told, arrow)

    def __repr__(self) -> str:
        return f"<RemoteDataset {self.name} at {self._requests.origin}>"

    def _repr_html_(self) -> str:
        return html_view(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@html_view.register
def remote_dataset_html(data: RemoteDataset) -> str:
    """Return the tables of a data set, and what is left of its budget, as the server says now."""
    try:
        schema, left = data.schema(), f"Budget left: {data.left()}."
    except LapwingError as error:
        return fragment(strong(repr(data)), notes([str(error)]))
    rows = [
        [table["table"] if place == 0 else "", column["column"], _in_words(column)]
        for table in schema["tables"]
        for place, column in enumerate(table["columns"])
    ]
    return fragment(strong(repr(data)), grid(["table", "column", "values"], rows, wrapped=2), notes([left]))


def _in_words(column: Mapping[str, Any]) -> str:
    """Return what a schema says about the values of a column."""
    if column["values"] is not None:
        shown = ", ".join(map(str, column["values"][:VALUES_SHOWN]))
        more = len(column["values"]) - VALUES_SHOWN
        return f"{shown} and {more:,} more" if more > 0 else shown
    if column["low"] is None:
        return str(column["type"])
    return f"{column['low']} to {column['high']}"


def _exact(name: str, value: Any) -> Any:
    return decimal_text(value, name) if name in _NUMBERS else value


def _part(text: object) -> str:
    """Return a part of an address. Whatever it is, it stays one part."""
    if not isinstance(text, str) or not text.strip("."):
        raise BadParameter("id", "must be the id of a plan or an answer, or a name")
    return quote(text, safe="")
