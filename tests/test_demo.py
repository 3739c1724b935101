"""The demo: what it shows, and that it notices a grader that judges wrongly."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from grader import course as courses
from grader import samples
from grader.course import Course
from grader.outcome import Check, Outcome, Verdict
from grader.report import Machine, Report, StageResult, SubmissionInfo
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parent.parent
SLUG = "stage4"


@pytest.fixture(scope="module")
def demo() -> Iterator[ModuleType]:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("demo", ROOT / "tools" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module  # its dataclasses look for it there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["demo"]


@pytest.fixture(scope="module")
def course() -> Course:
    return courses.load(ROOT)


@pytest.fixture(scope="module")
def rows(demo: ModuleType, course: Course) -> list[Any]:
    """One stage's solution, its stub and a wrong sample of it, really graded."""
    sample = samples.load(ROOT / samples.SAMPLES / "wrong" / "bytes_are_four", course)
    cases = [*demo.whole_cases(course, [course.stage(SLUG)]), demo.wrong_case(sample)]
    with Session(course, Options(public_only=True)) as session:
        return [demo.Graded(case, demo.grade(session, case)) for case in cases]


def report(verdict: Verdict, earned: float) -> Report:
    """A report on one stage with one check, worth 4 points."""
    outcome = Outcome(Check(f"{SLUG}.a", "The title"), verdict, 0.1, "what went wrong")
    stage = StageResult(SLUG, "Title", "stage4_memory.py", earned, 4.0, (outcome,))
    about = SubmissionInfo("ada", "d1ge57")
    return Report(about, "", "", "", "", "", Machine(), "", "none", {}, False, "", 1.0, (stage,))


def faults(demo: ModuleType, course: Course, worth: str, verdict: Verdict, earned: float) -> list[str]:
    case = replace(demo.whole_cases(course, [])[0], worth={SLUG: demo.Worth(worth)})
    return list(demo.faults(demo.Graded(case, report(verdict, earned))))


def test_every_case_is_worth_what_it_should_be(demo: ModuleType, rows: list[Any]) -> None:
    assert [fault for row in rows for fault in demo.faults(row)] == []


def test_the_cases_are_as_different_as_they_look(rows: list[Any]) -> None:
    right, untouched, wrong = (row.report.earned for row in rows)
    assert untouched == 0 < wrong < right


@pytest.mark.parametrize("colour", ["standard", None])
def test_the_table_tells_points_verdicts_and_the_first_message(
    demo: ModuleType, rows: list[Any], colour: Any
) -> None:
    out = Console(file=io.StringIO(), width=100, color_system=colour, force_terminal=colour is not None)
    out.print(demo.table(rows))
    assert isinstance(out.file, io.StringIO)
    shown = out.file.getvalue()
    assert ("\x1b" in shown) == (colour is not None)
    for part in ("the solutions", "3 of 3", "3 todo", "bytes are four", "bytes, not"):
        assert part in shown


@pytest.mark.parametrize(
    ("worth", "verdict", "earned", "said"),
    [
        ("right", Verdict.FAIL, 3.0, "though it is right"),
        ("right", Verdict.SKIP, 4.0, "though it is right"),
        ("wrong", Verdict.PASS, 4.0, "though it is wrong"),
        ("unwritten", Verdict.PASS, 4.0, "though nothing is written"),
        ("right", Verdict.BROKEN, 0.0, "is broken: what went wrong"),
        ("wrong", Verdict.BROKEN, 0.0, "is broken: what went wrong"),
    ],
)
def test_a_wrong_judgement_is_a_fault(
    demo: ModuleType, course: Course, worth: str, verdict: Verdict, earned: float, said: str
) -> None:
    assert said in " ".join(faults(demo, course, worth, verdict, earned))


@pytest.mark.parametrize(
    ("worth", "verdict", "earned"),
    [("right", Verdict.PASS, 4.0), ("wrong", Verdict.RAISED, 0.0), ("unwritten", Verdict.TODO, 0.0)],
)
def test_a_right_judgement_is_none(
    demo: ModuleType, course: Course, worth: str, verdict: Verdict, earned: float
) -> None:
    assert faults(demo, course, worth, verdict, earned) == []


def test_the_evening_has_every_kind_of_stage_file(demo: ModuleType, course: Course) -> None:
    cases = demo.cases_of(course)
    evening = next(case for case in cases if case.name == demo.EVENING_NAME)
    assert set(evening.worth.values()) == set(demo.Worth)
    assert set(evening.work.files) == {course.stage(slug).file for slug in evening.worth}


def test_every_stage_of_the_evening_is_shown_wrong(demo: ModuleType, course: Course) -> None:
    evening, *wrong = demo.cases_of(course)[2:]
    shown = {slug for case in (evening, *wrong) for slug, worth in case.worth.items() if worth == "wrong"}
    assert shown == set(evening.worth)


def test_a_students_copy_is_told_what_it_lacks(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = replace(courses.load(ROOT), root=ROOT / "nowhere")
    monkeypatch.setattr(demo.courses, "find", lambda start: nowhere)
    assert demo.main() != 0
    assert "solutions/" in capsys.readouterr().err
