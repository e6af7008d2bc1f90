"""Whatever bytes a history has, the independent accountant finds what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.entry import RawEntry, digest_of, encode
from support.histories import long_history
from support.replayed import found, small


def test_changed_bytes_are_found_by_their_digest() -> None:
    entries = long_history().entries()
    seq, body, digest = entries[5]
    entries[5] = (seq, body.replace(b"0.1.0", b"0.1.1"), digest)
    replay = Replay()
    replay.feed(entries)
    assert replay.finish() == ("entry 6: its bytes are not those of its digest",)


def test_numbers_rise_and_may_have_gaps() -> None:
    history = small()
    history.charge((1, [[2, 2]]))
    for numbers, count in (([1, 2, 3, 4, 9], 0), ([1, 2, 3, 5, 5], 1), ([2, 1, 3, 4, 5], 1)):
        replay = Replay()
        entries = zip(numbers, history.entries(), strict=True)
        replay.feed([(number, body, digest) for number, (_, body, digest) in entries])
        assert len(replay.finish()) == count


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.replace(b'"debits":', b'"debits":[[1,[[2,2]],[0,0,0,0,0,0,0,0]]],"debits":'),
        lambda body: body.replace(b'{"scale":"10"}', b'{"scale":"10","scale":"11"}'),
        lambda body: body.replace(b'{"scale":"10"}', b'{},"debits":[],"more":{}'),
        lambda body: body.replace(b'"code":"0.1.0"', b'"code":"0.1.0","code":"0.1.1"'),
        lambda body: body.replace(b'"loss":{', b'"loss":{"scale":"1",'),
        lambda body: body.replace(b",", b", ", 1),
        lambda body: body.replace(b"[[2,2]]", b"[[02,2]]"),
        lambda body: body.replace(b"[[2,2]]", b"[[2,2.0]]"),
        lambda body: body.replace(b"[0,1", b"[-0,1"),
        lambda body: body.replace(b"Laplace", b"L\\u0061place"),
        lambda body: body.replace(b"Laplace", "Läplace".encode()),
        lambda body: body + b" ",
        lambda body: body + b"\n",
        lambda body: body[:-1],
        lambda body: body[:-1] + b',"kind":"failed"}',
    ],
    ids=range(15),
)
def test_a_body_has_one_form_of_bytes(change: Callable[[bytes], bytes]) -> None:
    history = small()
    history.charge((1, [[2, 2]]))
    *before, body = history.bodies
    for bodies in ([*before, change(body)], [*before, body, change(body)]):
        replay = Replay()
        replay.feed([(seq, body, digest_of(body)) for seq, body in enumerate(bodies, 1)])
        assert change(body) != body
        assert any(finding.startswith(f"entry {len(bodies)}: ") for finding in replay.finish())


def _entries(bodies: list[bytes]) -> list[RawEntry]:
    return [(seq, body, digest_of(body)) for seq, body in enumerate(bodies, 1)]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_whatever_is_written_is_a_finding_and_not_a_crash(data: st.DataObject) -> None:
    bodies = long_history().bodies
    place = data.draw(st.integers(0, len(bodies) - 1))
    record = json.loads(bodies[place])
    name = data.draw(st.sampled_from(sorted(record)))
    junk = st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=3)
        | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )
    record[name] = data.draw(junk | st.sampled_from([[[1, 1]], [2**70], [[1, [[1, 2]], [0] * 8]]]))
    bodies[place] = data.draw(st.sampled_from([encode(record), data.draw(st.binary(max_size=20))]))
    replay = Replay()
    replay.feed(_entries(bodies))
    replay.finish()
    list(replay.blocks())
    assert not any("cannot be followed" in finding for finding in replay.finish())


def test_nested_and_huge_bodies_are_findings() -> None:
    deep = b'{"kind":"charge","loss":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    long = b'{"kind":"failed","charge":' + b"9" * 10_000 + b"}"
    replay = Replay()
    replay.feed(_entries([*small().bodies, deep, long]))
    assert len(replay.finish()) == 2


def test_findings_are_counted_beyond_the_first_few() -> None:
    history = small()
    for _ in range(30):
        history.failed(99)
    findings = found(history)
    assert len(findings) == 21
    assert findings[-1] == "and 10 more"
