"""A statement convinces somebody who has nothing else, of what the ledger signed and of nothing more."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from lapwing.core.exact import short_up
from lapwing.core.losses import Approximate
from lapwing.errors import BadParameter
from lapwing.ledger.accountant.guarantee import Guarantee, guarantee_in_periods
from lapwing.ledger.accountant.replay import Replay
from lapwing.ledger.anchors import Head
from lapwing.ledger.entry import encode
from lapwing.ledger.statement import make_proof, verify_proof, verify_statement, write_statement
from support.histories import COUNT, History, long_history
from support.slowly import slow


def small() -> History:
    history = History()
    history.account(1)
    history.blocks("north")
    history.answer(history.charge((1, [[2, 2]])))
    return history


def written(where: Path, history: History, *, names: bool = True) -> bytes:
    path = where / "written.jsonl"
    path.unlink(missing_ok=True)
    write_statement(path, history, names=names)
    return path.read_bytes()


def checked(where: Path, content: bytes, key: bytes | None = None) -> tuple[str, ...]:
    path = where / "checked.jsonl"
    path.write_bytes(content)
    return verify_statement(path, key=key).findings


def lines_of(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


def ended_again(history: History, lines: list[bytes]) -> bytes:
    """The lines under a fresh end, as the holder of the ledger's key could write it."""
    content = b"".join(lines)
    digest = hashlib.sha256(content).digest()
    signature = history.signing.sign(b"lapwing statement\x00" + history.ledger_id + digest)
    return content + encode({"end": digest.hex(), "signature": signature.hex()}) + b"\n"


@pytest.mark.parametrize("names", [True, False])
def test_a_statement_convinces(tmp_path: Path, names: bool) -> None:
    history = long_history()
    path = tmp_path / "statement.jsonl"
    write_statement(path, history, names=names)
    report = verify_statement(path, key=history.key)
    assert not report.findings
    assert (report.ledger, report.key) == (history.ledger_id.hex(), history.key.hex())
    assert (report.entries, report.prices_checked, report.prices_unchecked) == (22, 11, 0)
    assert report.head == history.heads()[-1]
    assert b"an analyst" not in path.read_bytes() or names


def test_every_line_is_json_and_bodies_stand_as_they_are(tmp_path: Path) -> None:
    history = long_history()
    lines = lines_of(written(tmp_path, history))
    entries = [json.loads(line) for line in lines if line.startswith(b"[")]
    assert [seq for seq, _ in entries] == list(range(1, 23))
    assert [encode(record) for _, record in entries] == history.bodies
    assert all(json.loads(line) for line in lines)


def test_third_parties_and_the_ledger_print_the_same(tmp_path: Path) -> None:
    history = long_history()
    path = tmp_path / "statement.jsonl"
    write_statement(path, history, names=False)
    replay = Replay()
    replay.feed(history.entries())
    assert verify_statement(path, key=None).guarantee == Guarantee.of(replay)


def test_a_statement_is_never_written_over_a_file(tmp_path: Path) -> None:
    path = tmp_path / "statement.jsonl"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        write_statement(path, small(), names=False)


class Between(History):
    """A history that is looked at between two seals, or before its first."""

    def __init__(self, sealed: int) -> None:
        super().__init__()
        self._sealed = sealed
        self.account(1)
        for _ in range(4):
            self.charge((1, [[1, 1]]))

    def heads(self, every: int = 4) -> list[Head]:
        return super().heads()[: self._sealed]


def test_a_statement_ends_at_a_seal(tmp_path: Path) -> None:
    history = Between(1)
    path = tmp_path / "statement.jsonl"
    write_statement(path, history, names=True)
    report = verify_statement(path, key=history.key)
    assert not report.findings
    assert (report.entries, len(history.bodies)) == (4, 6)
    with pytest.raises(BadParameter):
        written(tmp_path, Between(0))


# Changed by somebody


@pytest.mark.parametrize("first", [0, *(slow(k) for k in range(1, 4))])
def test_every_changed_byte_is_refused(tmp_path: Path, first: int) -> None:
    content = written(tmp_path, small())
    assert checked(tmp_path, content) == ()
    last = content.rstrip(b"\n").rfind(b"\n") + 1
    for place in range(first, len(content), 4):
        # In the last line, which no digest covers, also the bit between small and capital letters.
        bits = (place % 5, 5, 7) if place >= last else (place % 8,)
        for bit in bits:
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            assert checked(tmp_path, bytes(changed)), (place, bit)


def test_every_shorter_or_longer_statement_is_refused(tmp_path: Path) -> None:
    content = written(tmp_path, small())
    lines = lines_of(content)
    for count in range(len(lines)):
        assert checked(tmp_path, b"".join(lines[:count]))
        assert checked(tmp_path, b"".join(lines[:count]) + lines[count][:-1])
    for more in (b"\n", b" ", b"x", lines[1], lines[-1]):
        assert checked(tmp_path, content + more)
    assert checked(tmp_path, b"")


CHANGES: dict[str, Callable[[list[bytes], int], list[bytes]]] = {
    "left out": lambda lines, k: lines[:k] + lines[k + 1 :],
    "twice": lambda lines, k: [*lines[:k], lines[k], *lines[k:]],
    "exchanged": lambda lines, k: [*lines[: k - 1], lines[k], lines[k - 1], *lines[k + 1 :]],
    "last": lambda lines, k: lines[:k] + lines[k + 1 :] + [lines[k]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_lines_that_are_left_out_doubled_or_moved_are_refused(tmp_path: Path, change: str) -> None:
    history = small()
    content = written(tmp_path, history)
    lines = lines_of(content)
    for k in range(1, len(lines)):
        changed = CHANGES[change](lines, k)
        if changed != lines:
            assert checked(tmp_path, b"".join(changed))


@pytest.mark.parametrize("change", CHANGES)
def test_entries_and_seals_are_refused_even_under_a_new_end(tmp_path: Path, change: str) -> None:
    """Whoever holds the ledger's key can sign again, but the seals that anchors keep do not fit then."""
    history = small()
    lines = lines_of(written(tmp_path, history, names=False))[:-1]
    assert checked(tmp_path, ended_again(history, lines)) == ()
    for k in range(1, len(lines)):
        changed = CHANGES[change](lines, k)
        if changed != lines:
            assert checked(tmp_path, ended_again(history, changed)), k


def test_a_ledger_that_seals_again_cannot_hide_what_it_spent(tmp_path: Path) -> None:
    history = small()
    for _ in range(60):
        history.charge((1, [[2, 2]]))
    [finding] = checked(tmp_path, written(tmp_path, history))
    assert finding.endswith("block 2 of account 1 was charged beyond its cap")


def test_another_key_is_refused_where_the_key_is_known(tmp_path: Path) -> None:
    mine, theirs = small(), small()
    forged = History(b"somebody else")
    forged.account(1)
    content = written(tmp_path, forged)
    assert checked(tmp_path, content, forged.key) == ()
    assert checked(tmp_path, content, None) == ()  # as good as any, and the report shows the key
    assert checked(tmp_path, content, mine.key)
    # The same history, signed by somebody else from the header on.
    theirs.signing = forged.signing
    assert checked(tmp_path, written(tmp_path, theirs))
    assert checked(tmp_path, written(tmp_path, theirs), mine.key)


def test_a_seal_of_another_ledger_is_refused(tmp_path: Path) -> None:
    history = small()
    lines = lines_of(written(tmp_path, history, names=False))[:-1]
    other = small()
    other.charge((1, [[2, 2]]))
    other_lines = lines_of(written(tmp_path, other, names=False))
    lines[-1] = next(line for line in reversed(other_lines) if line.startswith(b'{"seal"'))
    findings = checked(tmp_path, ended_again(history, lines))
    assert any("does not seal the entries before it" in finding for finding in findings)


def test_findings_say_what_differs(tmp_path: Path) -> None:
    history = small()
    path = tmp_path / "statement.jsonl"
    path.write_bytes(written(tmp_path, history).replace(b'"size":2', b'"size":3'))
    report = verify_statement(path, key=None)
    assert report.findings
    assert any("was changed" in finding for finding in report.findings)
    assert any("does not seal the entries before it" in finding for finding in report.findings)


# Names


def name_line(label: str, salt: bytes = bytes(32), claimed: str | None = None) -> bytes:
    name = hashlib.sha256(salt + label.encode()).hexdigest()[:32]
    return encode({"name": claimed or name, "salt": salt.hex(), "label": label}) + b"\n"


def test_names_are_those_that_ids_were_made_from(tmp_path: Path) -> None:
    history = small()
    lines = lines_of(written(tmp_path, history))[:-1]
    assert checked(tmp_path, ended_again(history, lines)) == ()
    for line, what in (
        (name_line("nobody"), "stands in no entry"),
        (name_line("south", claimed=history.id("north")), "was not made from the label"),
        (lines[-1], "named twice"),
        (b'{"name":"x","salt":"","label":""}\n', "is not a name"),
        (
            b'{"name":"' + b"ab" * 16 + b'","salt":"' + b"00" * 32 + b'","label":"\\ud800"}\n',
            "is not a name",
        ),
    ):
        findings = checked(tmp_path, ended_again(history, [*lines, line]))
        assert any(what in finding for finding in findings), findings


def test_one_name_has_one_budget_in_a_family(tmp_path: Path) -> None:
    for accounts, count in (((1, 1), 1), ((1, 2), 0)):
        history = History()
        history.account(1)
        history.account(2, label="another")
        names = []
        for account, salt in zip(accounts, (b"1" * 32, b"2" * 32), strict=True):
            line = name_line("north", salt)
            names.append(line)
            history.add(
                "blocks", account=account, first=history.next_block, names=[json.loads(line)["name"]]
            )
            history.next_block += 1
        lines = lines_of(written(tmp_path, history, names=False))[:-1]
        findings = checked(tmp_path, ended_again(history, lines + names))
        assert len(findings) == count, findings


# Proofs


def test_each_entry_can_be_proved(tmp_path: Path) -> None:
    history = long_history()
    for seq, body, _ in history.entries():
        proof = make_proof(history, seq)
        assert proof["body"].encode() == body
        report = verify_proof(json.loads(json.dumps(proof)), key=history.key)
        assert report.findings == ()
        assert report.head == history.heads()[-1]
    with pytest.raises(BadParameter):
        make_proof(history, 23)


def test_a_proof_with_anything_changed_is_refused() -> None:
    history = long_history()
    proof = make_proof(history, 7)
    other = History(b"somebody else")
    assert verify_proof(proof, key=other.key).findings

    def changed(value: Any) -> list[Any]:
        match value:
            case int():
                return [value + 1, value - 1, -value, str(value), None, True]
            case str():
                return [
                    value[:-1],
                    value + "0",
                    value.upper(),
                    ("1" if value[0] != "1" else "2") + value[1:],
                    1,
                ]
            case list():
                inner = [
                    [*value[:k], c, *value[k + 1 :]] for k, item in enumerate(value) for c in changed(item)
                ]
                return [*inner, value[:-1], value[::-1], [*value, value[0]], None]
        raise AssertionError(value)

    for field, value in proof.items():
        for wrong in changed(value):
            if wrong != value or type(wrong) is not type(value):
                assert verify_proof(proof | {field: wrong}, key=None).findings, (field, wrong)
        assert verify_proof({k: v for k, v in proof.items() if k != field}, key=None).findings
    assert verify_proof(proof | {"more": 1}, key=None).findings
    swapped = proof | {"body": make_proof(history, 8)["body"]}
    assert verify_proof(swapped, key=None).findings


def test_junk_is_no_proof() -> None:
    some: list[Any] = [None, [], {}, "proof", 1]
    for junk in some:
        assert verify_proof(junk, key=None).findings


# The guarantee in words


def test_the_guarantee_names_sums_periods_and_exceptions(tmp_path: Path) -> None:
    history = History()
    history.account(1, slices="periods", unit="person and period", epsilon="1/2")
    history.blocks(*[f"week {k}" for k in range(5)])
    history.account(2, slices="none", unit="row", delta="0", label="another")
    history.data(1, 2)
    history.data(1, 2, version=2, differ=[1])
    history.recovered(lost=3)
    history.account(3, raises=1, moved=[[k, k + 7] for k in range(2, 7)], slices="periods",
                    unit="person and period", epsilon="1/4")  # fmt: skip
    path = tmp_path / "statement.jsonl"
    write_statement(path, history, names=True)
    report = verify_statement(path, key=history.key)
    assert not report.findings
    assert report.guarantee is not None
    summary = "\n".join(report.guarantee.lines())
    for line in (
        "account 1: protects one person and period; neighbours add or remove one unit",
        "(ε 0.75, δ 2e-6) for life",
        "account 1 (ε 0.5, δ 1e-6); account 3 (ε 0.25, δ 1e-6)",
        "somebody in 1 period: (ε 0.75, δ 2e-6)",
        "somebody in 2 periods: (ε 1.5, δ 6.23401e-6)",
        "somebody in 5 periods: (ε 3.75, δ 7.4344e-5)",
        "somebody in 12 periods: (ε 9, δ 0.0145069)",
        "account 2: protects one row",
        "somebody who is in several of these accounts: their losses add up",
        "the people of data set 1 are not those of account 1",
        "entries up to 3 were lost",
    ):
        assert line in summary, summary


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_several_periods_are_a_group(count: int) -> None:
    epsilon, delta = Fraction(1, 3), Fraction(1, 10**6)
    group = Approximate(epsilon, delta).for_group(count)
    found = guarantee_in_periods(epsilon, delta, count)
    assert found[0] == group.epsilon
    assert float(found[1]) == pytest.approx(float(group.delta), rel=1e-20)
    exact = sum(float(delta) * 2.718281828459045 ** (float(epsilon) * k) for k in range(count))
    assert float(found[1]) == pytest.approx(exact, rel=1e-12)


def test_many_periods_are_summed_at_once() -> None:
    begun = time.thread_time()
    assert guarantee_in_periods(Fraction(1), Fraction(1, 10**6), 50_000) == (Fraction(50_000), Fraction(1))
    assert guarantee_in_periods(Fraction(1000), Fraction(1, 10**6), 50_000)[1] == 1
    assert guarantee_in_periods(Fraction(1, 10**9), Fraction(0), 50_000) == (
        Fraction(50_000, 10**9),
        Fraction(0),
    )
    small_epsilon = guarantee_in_periods(Fraction(1, 10**9), Fraction(1, 10**9), 50_000)[1]
    assert Fraction(5, 10**5) < small_epsilon < Fraction(5002, 10**8)
    assert time.thread_time() - begun < 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "0"), ("1", "1"), ("1/3", "0.333334"), ("1000", "1000"), ("1234567/1000", "1234.57"),
        ("1/1000000", "1e-6"), ("9999999/10000000", "1"), ("1/3000000000", "3.33334e-10"),
        ("123456789", "1.23457e8"), ("1/1" + "0" * 300, "1e-300"),
        ("365000", "365000"), ("100000", "100000"),
    ],
)  # fmt: skip
def test_numbers_are_rounded_up(value: str, text: str) -> None:
    assert short_up(Fraction(value)) == text
    assert Fraction(text) >= Fraction(value)


def test_a_price_without_a_second_opinion_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = small()
    monkeypatch.setattr("lapwing.ledger.accountant.textbook.opinion", lambda *_: None)
    path = tmp_path / "statement.jsonl"
    write_statement(path, history, names=False)
    report = verify_statement(path, key=None)
    assert (report.prices_checked, report.prices_unchecked) == (0, 1)


def test_it_needs_no_ledger(tmp_path: Path) -> None:
    history = History()
    history.account(1, slices="none")
    history.charge((1, [[1, 1]]), loss=COUNT)
    assert checked(tmp_path, written(tmp_path, history), history.key) == ()
