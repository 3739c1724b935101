"""Stages graded abreast: the report and the order are those of one after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grader import abreast, submission
from grader import course as courses
from grader.course import Course
from grader.report import Report
from grader.session import Options, Session

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = Options(seed="s", public_only=True)


@pytest.fixture(scope="module")
def course() -> Course:
    return courses.load(ROOT)


def verdicts(report: Report) -> list[tuple[str, str]]:
    return [(o.check.id, str(o.verdict)) for stage in report.stages for o in stage.outcomes]


def test_the_report_is_that_of_one_after_the_other(course: Course, tmp_path: Path) -> None:
    for stage in course.stages[1:4]:
        (tmp_path / stage.file).write_bytes((course.solutions / stage.file).read_bytes())
    wrong = tmp_path / course.stages[1].file
    wrong.write_text(wrong.read_text() + "\ndel generate_cache\n")
    work, stages = submission.load(tmp_path, course), course.stages[1:4]
    heard: list[str] = []
    counted: list[tuple[int, int]] = []

    report = abreast.grade(
        course,
        OPTIONS,
        work,
        stages,
        lambda stage, outcomes: heard.append(stage.slug),
        lambda *at: counted.append(at),
    )
    with Session(course, OPTIONS) as session:
        alone = session.grade(work, stages)

    assert heard == [stage.slug for stage in stages]
    assert counted == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert verdicts(report) == verdicts(alone)
    assert report.notes == alone.notes
    assert (report.earned, report.possible, report.layers) == (alone.earned, alone.possible, alone.layers)


@pytest.mark.parametrize(("count", "isolation", "cores"), [(2, "auto", 8), (9, "none", 8), (9, "auto", 1)])
def test_little_work_or_no_room_is_done_in_one_session(
    course: Course, monkeypatch: pytest.MonkeyPatch, count: int, isolation: str, cores: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert abreast.worthwhile(course.stages, OPTIONS)

    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert not abreast.worthwhile(course.stages[:count], replace(OPTIONS, isolation=isolation))
