"""One question takes few hops, in few wrappers, and goes back to no folder that it left."""

from __future__ import annotations

from pathlib import Path

from shape.trace_ask import FORMS, MOST_HOPS, MOST_WRAPPERS, folders_again, hops, trace_example


def test_a_question_takes_few_hops_in_few_wrappers(tmp_path: Path) -> None:
    trace = trace_example(tmp_path)
    walk = trace.walk()
    assert [made.form for made in walk] == list(FORMS)
    assert len(hops(walk)) <= MOST_HOPS, hops(walk)
    assert len(trace.wrappers) <= MOST_WRAPPERS, trace.wrappers
    assert folders_again(walk) == []
