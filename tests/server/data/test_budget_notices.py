"""Notices at 50, 80 and 95 % of a budget: each once, and again if it could not be sent."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lapwing.server.data.budget_notices import BudgetNotices, sender
from lapwing.server.state import ServerState
from support.served import Served, asked


def _spend(visits: Served, epsilon: str) -> None:
    visits.released(question=asked(epsilon=epsilon, fresh=True))


def test_each_threshold_is_told_once_by_all_processes(visits: Served, tmp_path: Path) -> None:
    told: list[dict[str, object]] = []
    state = ServerState.open(tmp_path / ".lapwing-server")
    many = [BudgetNotices(state, lambda content: told.append(json.loads(content))) for _ in range(2)]
    [data] = visits.sets
    steps = [(None, []), ("4", []), ("1.5", [50]), ("3", [80]), ("1", [95]), ("0.1", [])]
    for epsilon, percents in steps:
        if epsilon is not None:
            _spend(visits, epsilon)
        assert [one for notices in many for one in notices.tell(data)] == percents
    assert told[0] == {"data": "visits", "account": "visits", "percent": 50, "left": "4.5", "of": "10"}
    state.close()


def test_a_notice_that_failed_is_sent_again(visits: Served, tmp_path: Path) -> None:
    state, fails, told = ServerState.open(tmp_path / ".lapwing-server"), [True], list[bytes]()

    def send(content: bytes) -> None:
        if fails[0]:
            raise OSError
        told.append(content)

    notices, [data] = BudgetNotices(state, send), visits.sets
    _spend(visits, "9")
    assert notices.tell(data) == []
    fails[0] = False
    assert notices.tell(data) == [50, 80]
    assert len(told) == 2
    state.close()


def test_a_command_gets_the_notice_on_its_input_without_a_shell(tmp_path: Path) -> None:
    target = tmp_path / "told"
    code = f"import sys; open({str(target)!r}, 'w').write(sys.stdin.read())"
    send = sender("", (sys.executable, "-c", code))
    assert send is not None
    send(b'{"percent": 50}')
    assert target.read_text() == '{"percent": 50}'
    with pytest.raises(Exception, match="non-zero"):
        sender("", (sys.executable, "-c", "raise SystemExit(1)"))(b"{}")  # type: ignore[misc]
    assert sender("", ()) is None
