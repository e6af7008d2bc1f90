"""What is found wrong before a run begins: nothing is charged for a mistake in a file."""

from __future__ import annotations

from itertools import count, takewhile

from lapwing.errors import BadParameter
from lapwing.learn.features import Features
from lapwing.learn.growing import Stream, blocks_text
from lapwing.learn.pipelines.pipeline import Pipeline
from lapwing.learn.pipelines.schedule import Try
from lapwing.learn.pipelines.work import work_of
from lapwing.privacy.portfolio import SHARE_PAIR
from lapwing.query import rows
from lapwing.query.rows import RowQuestion


def checked(stream: Stream, pipeline: Pipeline) -> tuple[RowQuestion, Features]:
    """The question of a pipeline and its features, if all attempts can be made. Makes and reads nothing.

    Raises `BadParameter`, which names the key of the file that does not fit the stream.
    """
    question = rows.question_of(stream.dataset, pipeline.sql)
    features = pipeline.features(question)
    most = SHARE_PAIR * stream.policy.delta / (stream.sharing.parts or 1)
    if pipeline.delta > most:
        raise BadParameter(
            "delta",
            f"must be at most {float(most):.3g}: {float(SHARE_PAIR):.0%} of the stream's δ for life (or of "
            "the pipeline's share of it) are for attempts",
        )
    _check_reach(stream, pipeline, question)
    for tried in ends_of(pipeline, len(order_of(stream, question))):
        work_of(pipeline, features, tried, run=1, key=b"").loss  # noqa: B018 (says what is wrong)
    return question, features


def order_of(stream: Stream, question: RowQuestion) -> tuple[str, ...]:
    """The blocks that have come in and that the question can reach, oldest first."""
    return tuple(rows.reached(stream.dataset, question, stream.blocks()) or ())


def ends_of(pipeline: Pipeline, start: int) -> list[Try]:
    """The first attempt and the last, if there is one: in between, ε and data only grow."""
    schedule = pipeline.schedule
    first = schedule.at(1, start)
    if first is None or schedule.most_blocks is None:
        return [] if first is None else [first]
    tries = takewhile(lambda one: one is not None, (schedule.at(number, start) for number in count(2)))
    last = [one for one in tries if one is not None][-1:]
    return [first, *last]


def _check_reach(stream: Stream, pipeline: Pipeline, question: RowQuestion) -> None:
    blocks, first = stream.policy.blocks, pipeline.schedule.first_blocks
    if blocks is None or blocks.by != "row":
        return  # others open as people arrive
    ever = len(rows.reached(stream.dataset, question, None) or ())
    if ever < first:
        raise BadParameter(
            "blocks", f"begin with {first}, and the features can only ever reach {blocks_text(ever)}"
        )
