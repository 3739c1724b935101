"""The one path from a submission to a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import course as courses
from grader import samples, submission
from grader.errors import CourseError, SandboxError
from grader.outcome import Verdict
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def course() -> courses.Course:
    return courses.load(ROOT)


@pytest.fixture(scope="module")
def session(course: courses.Course):  # type: ignore[no-untyped-def]
    with Session(course, Options(public_only=True, seed="s")) as warm:
        yield warm


def solution(course: courses.Course, *slugs: str) -> dict[str, bytes]:
    files = [course.stage(slug).file for slug in slugs]
    return {file: (course.solutions / file).read_bytes() for file in files}


def test_points_come_from_the_manifest_and_hidden_ones_are_not_promised(
    session: Session, course: courses.Course
) -> None:
    stage = course.stage("stage4")
    report = session.grade(submission.of_files("s", solution(course, "stage4")), [stage])
    assert report.possible == stage.points - stage.hidden_points == report.earned
    assert report.exit_status == 0
    assert report.isolation == session.level
    assert report.layers if session.level == "confined" else True


def test_a_missing_file_is_todo_and_says_so(session: Session, course: courses.Course) -> None:
    report = session.grade(submission.of_files("s", {}), [course.stage("stage4")])
    outcomes = report.stages[0].outcomes
    assert {o.verdict for o in outcomes} == {Verdict.TODO}
    assert "stage4_memory.py" in outcomes[0].message
    assert report.exit_status == 1


def test_an_earlier_stages_fault_is_said_to_cost_nothing_later(
    session: Session, course: courses.Course
) -> None:
    files = solution(course, "stage2") | {course.stage("stage4").file: b"def cache_bytes(past): return 1\n"}
    files[course.stage("stage2").file] += b"\ndef first_mismatch(a, b): return 7\n"
    report = session.grade(submission.of_files("s", files), [course.stage("stage2"), course.stage("stage4")])
    assert not report.stages[0].passed
    assert report.notes == (
        "What stage4 loses is its own: it is graded with the grader's model, so that the faults in stage2 "
        "cost nothing there.",
    )


def test_the_same_seed_grades_the_same_and_another_differs(course: courses.Course) -> None:
    wrong = samples.load(ROOT / "tests" / "submissions" / "wrong" / "position_one_late", course)
    work = submission.of_files("s", {n: t.encode() for n, t in wrong.files.items() if isinstance(t, str)})
    stage = course.stage("stage1")

    def messages(seed: str) -> list[str]:
        with Session(course, Options(public_only=True, seed=seed)) as one:
            return [o.message for o in one.grade(work, [stage]).stages[0].outcomes]

    first = messages("a")
    assert first == messages("a")
    assert first != messages("b")


def test_unknown_isolation_is_refused_before_anything_starts(course: courses.Course) -> None:
    with pytest.raises(CourseError, match="no isolation level `jail`"):
        Session(course, Options(isolation="jail"))


def test_confined_where_it_cannot_be_had_is_refused(
    course: courses.Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grader.session.missing_layers", lambda: "the kernel has no Landlock")
    with pytest.raises(SandboxError, match="no Landlock"):
        Session(course, Options(isolation="confined"))
    assert Session(course, Options()).level == "process"


def test_checks_that_cannot_be_collected_are_the_courses_fault(tmp_path: Path) -> None:
    for folder in ("exercises", "tests_public"):
        (tmp_path / folder).mkdir()
    manifest = (ROOT / courses.MANIFEST).read_text()
    (tmp_path / courses.MANIFEST).write_text(manifest)
    course = courses.load(tmp_path)
    stage = course.stage("stage4")
    with Session(course, Options(isolation="none")) as one:
        with pytest.raises(CourseError, match="has no checks"):
            one.grade(submission.of_files("s", {}), [stage])
        course.public_tests(stage).write_text("import nonesuch_module\n")
        with pytest.raises(CourseError, match="nonesuch_module"):
            one.grade(submission.of_files("s", {}), [stage])


def test_an_exception_in_a_check_is_broken_and_nothing_is_scored(tmp_path: Path) -> None:
    for folder in ("exercises", "tests_public"):
        (tmp_path / folder).mkdir()
    (tmp_path / courses.MANIFEST).write_text((ROOT / courses.MANIFEST).read_text())
    (tmp_path / "exercises" / "gpt2.py").write_bytes((ROOT / "exercises" / "gpt2.py").read_bytes())
    course = courses.load(tmp_path)
    stage = course.stage("stage4")
    course.public_tests(stage).write_text(
        'def test_ours(student):\n    """Ours"""\n    raise KeyError("our own mistake")\n\n'
        'def test_fine(student):\n    """Fine"""\n'
    )
    with Session(course, Options(isolation="none")) as one:
        report = one.grade(submission.of_files("s", {stage.file: b""}), [stage])
    assert [o.verdict for o in report.stages[0].outcomes] == [Verdict.BROKEN, Verdict.PASS]
    assert report.exit_status == 3
    assert report.earned == 0
    assert not report.stages[0].scored
