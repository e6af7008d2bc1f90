"""The demo: charges add up, noise is fresh, refusals change nothing, cheats are refused, nothing stays."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections import Counter
from fractions import Fraction
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from lapwing.cli import demo as show
from lapwing.core.budget import Terms
from lapwing.core.exact import log_up
from lapwing.core.losses import Pure
from lapwing.errors import OverBudget
from lapwing.examples import clinic as demo
from lapwing.examples.clinic import temporary_ledger


def _generator() -> ModuleType:
    spec = spec_from_file_location("make_clinic", Path(__file__).with_name("make_clinic.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_bundled_data_is_what_the_generator_makes() -> None:
    clinic, out = _generator(), io.StringIO()
    clinic.write(clinic.rows(), out)
    assert (
        files("lapwing.examples").joinpath("data/clinic.csv").read_text(encoding="utf-8") == out.getvalue()
    )


def test_the_data_has_what_the_story_needs() -> None:
    clinic = demo.load_clinic()
    visits = Counter(clinic.patient.tolist())
    assert len(visits) == demo.PATIENTS
    assert set(clinic.ward) == set(demo.WARDS)
    assert max(visits.values()) > demo.VISITS_AT_MOST  # else the bound would not be seen at work
    assert np.isnan(clinic.age).any()
    assert np.isnan(clinic.cost).any()


@pytest.mark.parametrize("most", [1, 5])
def test_rows_per_patient_are_bounded_by_each_patients_own_rows(most: int) -> None:
    clinic = demo.load_clinic()
    kept = clinic.rows(per_patient=most)
    counts = Counter(clinic.patient[kept].tolist())
    assert max(counts.values()) == most
    assert len(counts) == demo.PATIENTS
    # Without one patient, all others keep the same rows.
    others = np.flatnonzero(clinic.patient != 17)
    without = demo.Clinic(
        clinic.patient[others],
        [clinic.town[k] for k in others],
        [clinic.ward[k] for k in others],
        clinic.age[others],
        clinic.cost[others],
        clinic.skipped[others],
    )
    assert others[without.rows(per_patient=most)].tolist() == [k for k in kept if clinic.patient[k] != 17]


def test_charges_add_up_and_the_refusal_changes_nothing() -> None:
    story = demo.run_demo()
    spent = sum((step.loss.pure or Fraction(0) for step in story.steps), Fraction(0))
    written = Fraction("0.1") + Fraction("0.3") + Fraction("0.15") + 2 * Fraction("0.25") + Fraction("0.7")
    assert spent == written + log_up(3)
    assert spent <= 3
    # Charges are rounded up to units of 1e-9, so what is left is at most that many units less.
    assert 0 <= 3 - spent - story.steps[-1].left <= Fraction(len(story.steps), 10**9)
    assert [step.left for step in story.steps] == sorted((s.left for s in story.steps), reverse=True)
    assert story.left_after_refusal == story.steps[-1].left
    assert "asked ε 0.5" in story.refused
    assert sum((step.loss.delta0 for step in story.steps), Fraction(0)) <= story.terms.delta


def test_each_charge_comes_before_its_data() -> None:
    touched = []

    def compute() -> demo.DemoResult:
        touched.append(True)
        return demo.DemoResult("", "", "")

    with temporary_ledger(Terms.of("0.05", "1e-6")) as ledger:
        analyst = demo.DemoAnalyst(demo.load_clinic(), ledger)
        with pytest.raises(OverBudget):
            analyst.ask("?", "none", Pure(Fraction(1)), compute)
    assert not touched
    assert not analyst.steps


def test_asked_again_it_computes_nothing_and_gives_the_same_bytes() -> None:
    with temporary_ledger(Terms.of(3, "1e-6")) as ledger:
        analyst = demo.DemoAnalyst(demo.load_clinic(), ledger)
        first = analyst.elderly()
        left = ledger.left
        ledger.reopen()
        again = analyst.elderly()
        assert (again.answer, again.is_replay, first.is_replay) == (first.answer, True, False)
        assert ledger.left == left
    assert len(analyst.steps) == 1


def test_the_ledger_is_sound_and_its_cheated_copies_are_refused() -> None:
    story = demo.run_demo()
    ending = story.ending
    assert ending.again == ending.first
    assert ending.again.decode() == f"{story.asked_twice.answer} ({story.asked_twice.interval})"
    assert ending.left == story.left_after_refusal
    assert ending.findings == ()
    # The ledger, its account, and a charge and an answer for each step: the refusal left no trace.
    assert ending.entries == 2 + 2 * len(story.steps)
    assert "not as the entries say" in ending.edited
    assert "older copy" in ending.older
    assert os.sep not in ending.edited + ending.older


def test_no_truth_is_stored_in_the_ledger() -> None:
    with temporary_ledger(Terms.of(3, "1e-6")) as ledger:
        analyst = demo.DemoAnalyst(demo.load_clinic(), ledger)
        told = analyst.ask("?", "none", Pure(Fraction(0)), lambda: demo.DemoResult("7", "± 1", "truth"))
    assert told.answer.decode() == "7 (± 1)"


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("LAPWING_STATE", str(tmp_path / "state"))
    demo.run_demo()
    assert os.environ["LAPWING_STATE"] == str(tmp_path / "state")
    assert not (tmp_path / "state").exists()
    assert not any((tmp_path / "temporary").iterdir())


def test_noise_is_fresh_in_every_run() -> None:
    """Two runs agree in all six bars by chance with probability below (1/8)^6 each; twice below 1e-9."""
    one, two, three = demo.run_demo(), demo.run_demo(), demo.run_demo()
    drawn = [[bar.patients for bar in story.bars] + [story.steps[1].answer] for story in (one, two, three)]
    assert drawn[0] != drawn[1] or drawn[1] != drawn[2]
    assert [bar.truth for bar in one.bars] == [bar.truth for bar in two.bars]


def test_truths_are_those_of_the_whole_data() -> None:
    clinic, story = demo.load_clinic(), demo.run_demo()
    truths = {step.question: step.truth for step in story.steps}
    assert truths["How many visits were there?"] == f"{len(clinic.patient):,}"
    assert truths["What did all visits cost?"] == f"{np.nansum(clinic.cost):,.0f}"
    assert sum(bar.truth for bar in story.bars) == demo.PATIENTS


def test_the_command_tells_the_story_and_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lapwing", "demo"],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=True,
    )
    text = " ".join(done.stdout.split())
    for words in (
        "invented data set",
        "Protected:",
        "one patient is replaced",
        "Refused: asked ε 0.5",
        "as before",
        "the same bytes",
        "nothing differs",
        "gave spent budget back: refused",
        "from before the first question: refused",
    ):
        assert words in text
    assert "\x1b" not in done.stdout
    assert done.stdout.count("truth (only") == 2
    assert done.stderr == ""


STOPPED = """
import signal, sys, threading, time
from pathlib import Path
from types import SimpleNamespace
from lapwing.cli import demo_parties as demo

def forever(*_, **__):
    time.sleep(1000)

demo._take_part = forever
main = threading.main_thread().ident
threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
members = [SimpleNamespace(name="north"), SimpleNamespace(name="south")]
demo._together(None, members, Path(sys.argv[1]))
"""


def test_who_stops_it_does_not_wait_for_members_who_wait_for_one_another(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", STOPPED, str(folder)], check=False, timeout=300)
    assert done.returncode == 130
    assert not folder.exists()


def test_the_demo_ends_with_what_comes_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in ("tell_query", "tell_survey", "tell_party", "tell_train", "tell_publish", "tell_audit"):
        monkeypatch.setattr(show, part, lambda: None)
    monkeypatch.setattr(show, "_show_clinic", lambda _out, _story: None)
    show.show_demo()
    ending = capsys.readouterr().out
    assert "lapwing show" in ending
    assert "lapwing report POLICY" in ending
