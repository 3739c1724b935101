"""Late days: the time of a submission, the due date it is held against, and what is taken off."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from grader import course as courses
from grader import gradescope, intake, lateness, roster
from grader.faults import Mistake
from grader.gradebook import Gradebook, Row, State, from_json, to_csv, to_dict
from grader.lateness import Deadline
from grader.render import index
from grader.roster import Roster, Student

DUE = "2026-12-01T23:59+01:00"
INSTANT = datetime(2026, 12, 1, 22, 59, tzinfo=UTC)
ROW = Row("ada", State.GRADED, "ada", stages={"stage1": 8.0, "stage2": 2.5})


def handed_in(late: timedelta) -> Row:
    return replace(ROW, submitted_at=(INSTANT + late).isoformat())


def made(policy: str, due: str = DUE) -> Deadline:
    deadline = lateness.deadline(due, policy)
    assert deadline is not None
    return deadline


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01T23:59+01:00",
        "2026-12-01 22:59Z",
        "2026-12-01 17:59:00.000000000 -05:00",
        "2026-12-01 22:59:00 UTC",
        " 2026-12-02T04:29:00+0530 ",
    ],
)
def test_one_instant_is_the_same_however_its_zone_is_written(text: str) -> None:
    assert lateness.instant(text) == INSTANT


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-12-01T23:59", "has no time zone: add it, as in `2026-12-01T23:59+01:00`"),
        ("2026-12-01T23:59 CET", "is not a time"),
        ("2026-12-01", "is not a time"),
        ("2026-12-01Z", "is not a time"),
        ("2026-13-01T23:59Z", "is not a time"),
        ("", "is not a time"),
    ],
)
def test_a_time_that_could_be_another_is_refused(text: str, said: str) -> None:
    with pytest.raises(Mistake, match=re.escape(said)):
        lateness.deadline(text, "none")


@pytest.mark.parametrize("policy", ["ten", "-1", "101", "nan", "inf", "", "10%%"])
def test_a_policy_that_is_none_is_a_mistake(policy: str) -> None:
    with pytest.raises(Mistake, match="--late"):
        lateness.deadline(DUE, policy)


def test_a_policy_without_a_due_date_is_a_mistake() -> None:
    with pytest.raises(Mistake, match="needs to know when the work is due"):
        lateness.deadline(None, "10")
    assert lateness.deadline(None, "none") is None


@pytest.mark.parametrize(
    ("late", "policy", "hours", "points"),
    [
        (timedelta(hours=-3), "zero", 0, 10.5),
        (timedelta(0), "zero", 0, 10.5),
        (timedelta(seconds=1), "zero", 0.01, 0),
        (timedelta(seconds=1), "10", 0.01, 9.45),
        (timedelta(hours=24), "10", 24, 9.45),
        (timedelta(hours=24, seconds=1), "10%", 24.01, 8.4),
        (timedelta(days=30), "10", 720, 0),
        (timedelta(hours=5), "none", 5, 10.5),
    ],
)
def test_each_day_begun_costs_its_percent(late: timedelta, policy: str, hours: float, points: float) -> None:
    row = made(policy).judged(handed_in(late))
    assert (row.hours_late, row.late, row.after_penalty) == (hours, late > timedelta(0), points)
    assert (row.total, row.stages) == (10.5, ROW.stages)


@pytest.mark.parametrize("extension", ["48", "48.0", "2026-12-03T22:59Z", "2026-12-03T23:59+01:00"])
def test_an_extension_is_hours_or_a_time_of_ones_own(extension: str) -> None:
    assert made("zero").judged(handed_in(timedelta(hours=48)), extension).after_penalty == 10.5
    assert made("zero").judged(handed_in(timedelta(hours=49)), extension).after_penalty == 0


def test_an_extension_outweighs_the_platforms_mark() -> None:
    row = replace(handed_in(timedelta(hours=5)), late=True)
    assert not made("zero").judged(row, "24").late


@pytest.mark.parametrize("extension", ["soon", "-2", "nan", "inf", "2401", "2026-12-03T12:00"])
def test_an_extension_that_says_nothing_is_found_before_grading(extension: str) -> None:
    students = (Student("bob"), Student("ada", extension=extension))
    with pytest.raises(Mistake, match="the extension of `ada`"):
        lateness.vet(made("none"), students)
    lateness.vet(None, students)


def test_who_handed_in_when_it_is_not_known_loses_nothing_and_is_named() -> None:
    rows = (
        ROW,
        replace(ROW, student="bob", late=True),
        handed_in(timedelta(hours=1)),
        Row("cyd", State.MISSING),
    )
    extensions = {"bob": "48", "cyd": ""}
    book = lateness.judged(Gradebook("C", rows, {"stage1": 10, "stage2": 5}), made("zero"), extensions)
    assert [row.after_penalty for row in book.rows] == [10.5, 10.5, 0, None]
    assert book.rows[0].notes == (lateness.NOT_KNOWN,)
    assert book.rows[1].notes == (lateness.NOT_KNOWN + lateness.MARKED_LATE,)
    assert book.rows[3].notes == ()
    assert book.remarks[0] == "1 late, 1 of them with points taken off"
    assert "nothing taken off: ada, bob; `--file-times`" in book.remarks[1]
    assert book.remarks[2:] == ("extended: bob (48)",)


def test_points_after_the_penalty_stand_beside_the_raw_ones_everywhere() -> None:
    book = Gradebook("C", (handed_in(timedelta(hours=25)),), {"stage1": 10, "stage2": 5})
    book = lateness.judged(book, made("20"), {})
    cells = dict(zip(*(line.split(",") for line in to_csv(book).splitlines())))
    assert (cells["total"], cells["hours late"], cells["after penalty"]) == ("10.5", "25", "6.3")
    assert cells["submitted at"] == "2026-12-02T23:59:00+00:00"
    page = index.render(book, report="r.html")
    assert "After penalty" in page
    assert '<td class="number">6.3</td>' in page
    assert from_json(json.dumps(to_dict(book))).rows[0].penalty == 0.4
    assert "After penalty" not in index.render(replace(book, conditions={}), report="r.html")


GRADESCOPE = """---
submission_1:
  :submitters:
  - :name: Ada
    :sid: '1'
  :history:
  - :id: 7
    :created_at: 2026-11-01 10:00:00.000000000 Z
  :created_at: 2026-12-01 14:59:00.123456789 -08:00
submission_2:
  :submitters:
  - :name: Bob
    :sid: '2'
  - :name: Cyd
    :sid: '3'
  :created_at: '2026-12-01T22:00:00Z'
submission_3:
  :submitters:
  - :name: Dee
    :sid: '4'
  :history:
  - :id: 7
    :created_at: 2026-11-01 10:00:00.000000000 Z
submission_4:
  :submitters:
  - :name: Eve
    :sid: '5'
  :created_at: 2026-12-01 22:00:00
"""


def test_gradescopes_time_is_the_submissions_own() -> None:
    people = gradescope.parse(GRADESCOPE)
    times = {named.student: named.submitted_at for group in people.values() for named in group}
    assert times == {
        "1": "2026-12-01T22:59:00.123456+00:00",
        "2": "2026-12-01T22:00:00+00:00",
        "3": "2026-12-01T22:00:00+00:00",
        "4": "",
        "5": "",
    }


COURSE = """
[course]
title = "Tiny"
version = "1"
[[stage]]
slug = "stage1"
title = "One"
file = "stage1_part.py"
points = 10
hidden_points = 4
summary = "s"
hints = ["a", "b", "c"]
"""


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-12-01 22:59:00.000000 UTC\n", "2026-12-01T22:59:00+00:00"),
        ("2026-12-01 22:59:00.000000", "2026-12-01T22:59:00+00:00"),
        ("2026-12-01 23:59:00 +01:00", "2026-12-01T22:59:00+00:00"),
        ("2026-12-01 23:59:00 CET", ""),
        ("yesterday", ""),
        (None, ""),
    ],
)
def test_nbgraders_time_is_read_from_its_file(text: str | None, when: str, tmp_path: Path) -> None:
    work = tmp_path / "submitted" / "ada" / "ps1"
    work.mkdir(parents=True)
    (work / "stage1_part.py").write_text("x = 1\n")
    if text is not None:
        (work / "timestamp.txt").write_text(text)
    course = courses.parse(COURSE, tmp_path / "course")
    found = intake.find(tmp_path, course, Roster(), on_duplicate="latest", out=tmp_path / "out")
    assert [entry.submitted_at for entry in found.entries] == [when]


def test_files_own_times_count_only_where_told_and_the_platform_tells_none(tmp_path: Path) -> None:
    import os

    for name in ("ada_stage1_part.py", "doejane_LATE_1_2_stage1_part.py"):
        (tmp_path / name).write_text("x = 1\n")
        os.utime(tmp_path / name, (INSTANT.timestamp(),) * 2)
    course = courses.parse(COURSE, tmp_path / "course")
    found = intake.find(tmp_path, course, Roster(), on_duplicate="latest", out=tmp_path / "out")
    assert {entry.submitted_at for entry in found.entries} == {""}
    told = intake.by_file_times(found)
    assert {entry.submitted_at for entry in told.entries} == {INSTANT.isoformat()}
    known = replace(found, entries=(replace(found.entries[0], submitted_at="2026-01-01T00:00:00+00:00"),))
    assert intake.by_file_times(known) == known


def test_the_roster_may_have_a_column_of_extensions() -> None:
    read = roster.parse("id,name,Extension\nada,Ada,48\nbob,Bob,\n")
    assert [student.extension for student in read.students] == ["48", ""]
