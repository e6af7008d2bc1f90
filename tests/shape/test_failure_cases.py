"""Every case of docs/failure-cases.md has a test that cites it, and no test cites an unknown case."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "failure-cases.md"
ID = r"[NSQEXLRPMAHC]\d{1,2}"
NAMES = re.compile(r"^\s*(?:def|class) (test_\w+|Test\w+)", re.MULTILINE)
IN_NAME = re.compile(rf"(?:(?<=_)|(?<=Test)|(?<=Case))({ID})(?=_|$)")  # test_S4_S3_x, TestCaseL2
IN_WORDS = re.compile(rf"\b[Cc]ases? ((?:{ID}(?:, | and )?)+)")


def test_every_case_has_a_test_and_no_test_cites_another() -> None:
    page = PAGE.read_text(encoding="utf-8")
    ids = re.findall(r"^\| ([A-Z]\d+) \|", page, re.MULTILINE)
    rows = re.findall(rf"^\| ({ID}) \|.*\| `(\w+)` \|$", page, re.MULTILINE)
    assert [each for each, _ in rows] == ids, "each case names a test"
    assert len(ids) == len(set(ids)) > 80
    cited = defaultdict(set)
    names = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for name in NAMES.findall(text):
            names.add(name)
            for each in IN_NAME.findall(name):
                cited[each].add(path.name)
        for said in IN_WORDS.findall(text):
            for each in re.findall(ID, said):
                cited[each].add(path.name)
    assert {name for _, name in rows} <= names
    assert set(ids) - cited.keys() == set(), "no test cites these"
    assert {each: files for each, files in cited.items() if each not in ids} == {}, "unknown cases"
