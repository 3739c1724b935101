"""A stage that builds on an earlier one: the student's own file lies beside it, and takes the blame."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import course as courses
from grader import groundwork, submission
from grader.course import Course
from grader.outcome import Outcome, Verdict
from grader.sandbox.remote import StudentFault
from grader.session import Options, Session

MANIFEST = """
[course]
title = "T"
version = "1"

[[stage]]
slug = "stage1"
title = "First"
file = "stage1_first.py"
points = 1
hidden_points = 0
summary = "s"
hints = ["a", "b", "c"]

[[stage]]
slug = "stage2"
title = "Second"
file = "stage2_second.py"
points = 1
hidden_points = 0
summary = "s"
uses = ["stage1"]
hints = ["a", "b", "c"]
"""
CHECK = "def test_twice(student):\n    assert student.twice(5) == 10\n"
FIRST = "def once(n):\n    return n\n"
SECOND = "from stage1_first import once\n\ndef twice(n):\n    return 2 * once(n)\n"
ONLY = "this builds on your own `stage1_first.py`, which "


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    root = tmp_path_factory.mktemp("course")
    for folder in ("exercises", "solutions", "tests_public"):
        (root / folder).mkdir()
    (root / "exercises" / "stages.toml").write_text(MANIFEST)
    (root / "exercises" / "gpt2.py").write_text("")
    (root / "solutions" / "stage1_first.py").write_text("raise RuntimeError('ours is never in reach')\n")
    for name in ("stage1_first", "stage2_second"):
        (root / "tests_public" / f"test_{name}.py").write_text(CHECK)
    return courses.load(root)


@pytest.fixture(scope="module", params=["auto", "none"])
def session(course: Course, request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session(course, Options(isolation=request.param)) as session:
        yield session


def graded(session: Session, first: str | None, second: str | None = SECOND) -> Outcome:
    """Grade stage 2 of a submission that holds these files."""
    files = {"stage1_first.py": first, "stage2_second.py": second}
    work = submission.of_files("s", {name: text.encode() for name, text in files.items() if text is not None})
    (result,) = session.grade(work, [session.course.stage("stage2")]).stages
    (outcome,) = result.outcomes
    return outcome


def test_the_students_own_file_is_what_is_imported(session: Session) -> None:
    assert graded(session, FIRST).verdict is Verdict.PASS
    assert graded(session, FIRST.replace("return n", "return 7")).verdict is Verdict.FAIL
    assert graded(session, FIRST).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (None, "is not there"),
        ("def once(n:\n", "can't be imported: `stage1_first.py:1`: SyntaxError"),
        ("\nraise KeyError('k')\n", "can't be imported: `stage1_first.py:2`: KeyError: 'k'"),
        ("def other(n):\n    return n\n", "can't be used: ImportError: cannot import name 'once'"),
    ],
)
def test_what_it_builds_on_is_to_blame(session: Session, first: str | None, said: str) -> None:
    outcome = graded(session, first)
    assert outcome.verdict is Verdict.SKIP
    assert outcome.message.startswith(ONLY + said)


def test_without_its_own_file_it_is_still_to_do(session: Session) -> None:
    assert graded(session, FIRST, None).verdict is Verdict.TODO


def test_its_own_fault_is_its_own(course: Course) -> None:
    with Session(course, Options()) as session:
        outcome = graded(session, FIRST, SECOND + "raise ValueError('mine')\n")
        beside = graded(session, "def once(n):\n    return n + '1'\n")
    assert outcome.verdict is Verdict.RAISED
    assert outcome.message == "`stage2_second.py:5`: ValueError: mine"
    assert beside.message.startswith("`stage1_first.py:2`: TypeError")


def test_nothing_of_a_submission_stays_behind(course: Course) -> None:
    path = list(sys.path)
    with Session(course, Options(isolation="none")) as session:
        graded(session, FIRST)
    assert sys.path == path
    assert "stage1_first" not in sys.modules


@pytest.mark.parametrize(
    ("text", "traceback", "verdict"),
    [
        ("`b.py:2`: NameError: x", "stage1_first.py:2 in <module>: x", Verdict.SKIP),
        ("`b.py:2`: NameError: x", "stage1_first.py:9 in f: g()\nb.py:2 in g: x", Verdict.RAISED),
        ("`b.py:1`: ModuleNotFoundError: No module named 'stage1_first'", "b.py:1: import", Verdict.SKIP),
        ("`b.py:1`: ImportError: cannot import name 'x' from 'torch' (y)", "b.py:1: from", Verdict.RAISED),
        ("`b.py:1`: ValueError: about 'stage1_first'", "b.py:1: raise", Verdict.RAISED),
    ],
)
def test_the_innermost_frame_decides(text: str, traceback: str, verdict: Verdict) -> None:
    fault = StudentFault.of(Verdict.RAISED, text, traceback)
    assert groundwork.blamed(fault, ["stage1_first.py"]).verdict is verdict


def test_a_stage_that_uses_nothing_is_left_alone(course: Course) -> None:
    first = course.stage("stage1")
    assert groundwork.files(course, first) == ()
    assert groundwork.missing(course, first, {}) is None


def test_only_earlier_stages_can_be_used() -> None:
    for later in ("stage2", "stage3"):
        with pytest.raises(courses.CourseError, match=f"uses `{later}`, which is not an earlier stage"):
            courses.parse(MANIFEST.replace('["stage1"]', f'["{later}"]'), Path("/c"))
