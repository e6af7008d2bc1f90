"""Lines of an anchor: what is written is read, and nothing else is believed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lapwing.errors import BadParameter, Tampered
from lapwing.ledger.anchors import Head, Mark, newest, parse_line, parse_lines
from support.cases import each
from support.marks import head, mark

NUMBERS = st.integers(0, (1 << 63) - 1)
DIGESTS = st.binary(min_size=32, max_size=32)
MARKS = st.builds(Mark, NUMBERS, DIGESTS)
HEADS = st.builds(
    Head, NUMBERS, NUMBERS, NUMBERS, DIGESTS, DIGESTS, st.binary(min_size=64, max_size=64)
)  # fmt: skip


class TestLines:
    @given(st.one_of(MARKS, HEADS))
    def test_a_line_reads_as_what_was_written(self, line: Mark | Head) -> None:
        assert parse_line(line.line) == line
        assert line.line.isascii()

    @given(st.one_of(MARKS, HEADS), st.data())
    def test_a_line_with_one_other_letter_is_another_line_or_none(
        self, line: Mark | Head, data: st.DataObject
    ) -> None:
        at = data.draw(st.integers(0, len(line.line) - 1))
        text = line.line[:at] + data.draw(st.characters()) + line.line[at + 1 :]
        with suppress(Tampered):
            assert parse_line(text).line == text

    @each(
        "text",
        [
            "", "m", "m 1", f"m 01 {'a' * 64}", f"m -1 {'a' * 64}", f"m +1 {'a' * 64}", f"m 1 {'A' * 64}",
            f"m 1 {'a' * 63}", f"m 1 {'a' * 65}", f" m 1 {'a' * 64}", f"m 1 {'a' * 64} ",
            f"m  1 {'a' * 64}",
            f"m 1 {'a' * 64}\r", f"M 1 {'a' * 64}", f"m {1 << 63} {'a' * 64}", f"m {'9' * 5000} {'a' * 64}",
            f"m ١ {'a' * 64}", f"x 1 {'a' * 64}", f"h 1 1 1 {'a' * 64} {'a' * 64} {'a' * 64}",
            f"m 1_0 {'a' * 64}", f"m 1 {'a' * 64}\n",
        ],
    )  # fmt: skip
    def test_a_malformed_line_is_tampering(self, text: str) -> None:
        with pytest.raises(Tampered, match="line 3 of the witness"):
            parse_line(text, "the witness", 3)
        good = f"{mark(1).line}\n{mark(2).line}\n"
        with pytest.raises(Tampered):
            parse_lines(f"{good}{text}\n{mark(3).line}\n".encode(), "here")

    def test_a_hole_that_a_power_loss_left_is_passed_over(self) -> None:
        """Unsynced pages reach the disk in any order. Whoever made a hole could have cut off as much."""
        hole = mark(3).line[:20] + "\0" * 4096 + mark(5).line[30:]
        content = f"{mark(1).line}\n{mark(2).line}\n{hole}\n{mark(6).line}\n".encode()
        assert parse_lines(content, "here") == (mark(1), mark(2), mark(6))

    @given(st.lists(st.one_of(MARKS, HEADS), max_size=4), st.one_of(MARKS, HEADS), st.data())
    def test_a_torn_last_line_is_not_believed(
        self, whole: list[Mark | Head], torn: Mark | Head, data: st.DataObject
    ) -> None:
        part = torn.line[: data.draw(st.integers(0, len(torn.line)))]
        content = "".join(f"{line.line}\n" for line in whole) + part
        assert parse_lines(content.encode(), "here") == tuple(whole)

    @pytest.mark.parametrize("seq", [-1, 1 << 63, True, 1.0, "1"], ids=repr)
    def test_a_number_that_cannot_be_written_makes_no_mark(self, seq: int) -> None:
        with pytest.raises(BadParameter):
            Mark(seq, bytes(32))
        with pytest.raises(BadParameter):
            Head(1, seq, 1, bytes(32), bytes(32), bytes(64))

    @pytest.mark.parametrize("digest", [b"", bytes(31), bytearray(32), "a" * 32], ids=repr)
    def test_what_is_no_digest_makes_no_mark(self, digest: bytes) -> None:
        with pytest.raises(BadParameter):
            Mark(1, digest)
        with pytest.raises(BadParameter):
            Head(1, 1, 1, bytes(32), bytes(32), digest)

    def test_the_newest_head_and_the_marks_after_it_are_kept(self) -> None:
        lines: list[Mark | Head] = [
            mark(1),
            mark(2),
            head(2, 3),
            mark(5),
            mark(3),
            head(1, 1),
            mark(4),
            mark(4),
        ]
        assert newest(lines) == (head(2, 3), mark(5), mark(4))
        assert newest([mark(0), mark(1)]) == (mark(0), mark(1))
        assert newest([]) == ()

    def test_what_contradicts_itself_is_not_tidied_away(self) -> None:
        other = Head(2, 4, 4, bytes(32), bytes(32), bytes(64))
        forged = Mark(4, bytes(32))
        assert newest([head(2, 3), other, mark(4), forged]) == (head(2, 3), other, mark(4), forged)
