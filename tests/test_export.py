"""Grades handed on: each form held against its own rules, and what a student wrote stays harmless in it."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from grader import export, overrides, results
from grader.cli import cli
from grader.faults import Mistake
from grader.gradebook import Gradebook, Row, State, row_of
from grader.marks import mark
from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.render import classroom50, github, gradescope, gradesheet
from grader.report import Machine, Report, StageResult, SubmissionInfo, student_view
from grader.results import Shelf

SECRET = "expected-6174-of-the-hidden-check"
HOSTILE = '::error::owned\n##[error]owned\r\n</failure>]]>\x1b[31m\x00"><script>alert(1)</script>'
HOSTILE += "\n```\n# owned `x` %0A"
POSSIBLE = {"stage1": 10.0, "stage2": 4.5}


def outcome(
    name: str, verdict: Verdict = Verdict.PASS, *, hidden: bool = False, weight: float = 1.0, said: str = ""
) -> Outcome:
    seen = Visibility.HIDDEN if hidden else Visibility.PUBLIC
    check = Check(name, f"Title of {name.partition('.')[2]}", seen, weight, "a category")
    return Outcome(
        check, verdict, 0.5, said, said and f"Traceback: {said}", said, {"diagnosis": said} if said else {}
    )


def stage(number: int, earned: float, *outcomes: Outcome) -> StageResult:
    slug = f"stage{number}"
    scored = all(o.verdict is not Verdict.BROKEN for o in outcomes)
    file = f"{slug}_part.py"
    return StageResult(
        slug, f"Part {number}", file, earned, POSSIBLE[slug], outcomes, scored, 4.0 if number == 1 else 0.0
    )


def report(name: str, *stages: StageResult) -> Report:
    made = ("Course", "1", "c" * 64, "0.1.0", "seed", Machine(), "any", "confined", {}, False)
    return Report(SubmissionInfo(name, "d" * 64), *made, "2026-11-29T10:00:00+00:00", 7.2, stages)


def some(name: str = "ada", earned: float = 5.33) -> Report:
    """A report with every sort of check: public and hidden, passed, failed, to do, skipped."""
    return report(
        name,
        stage(
            1,
            earned,
            outcome("stage1.a", weight=2),
            outcome("stage1.b", Verdict.FAIL, said=HOSTILE),
            outcome("stage1.h", hidden=True, weight=1),
            outcome("stage1.i", Verdict.CRASH, hidden=True, weight=2, said=SECRET),
        ),
        stage(2, 0, outcome("stage2.a", Verdict.TODO), outcome("stage2.b", Verdict.SKIP)),
    )


def whole(name: str) -> Report:
    """A report that passed everything."""
    return report(
        name,
        stage(1, 10, outcome("stage1.a"), outcome("stage1.h", hidden=True)),
        stage(2, 4.5, outcome("stage2.a")),
    )


def spoilt(name: str) -> Report:
    """A report that our own fault spoilt."""
    return report(name, stage(1, 0, outcome("stage1.a", Verdict.BROKEN)), stage(2, 4.5, outcome("stage2.a")))


def row(of: Report, **more: object) -> Row:
    return replace(row_of(of, of.submission.id), **more)  # type: ignore[arg-type]


def written(folder: Path, *rows: Row, reports: tuple[Report, ...] = ()) -> Path:
    """Write results as `grade batch` does."""
    for one in reports:
        Shelf(folder / one.submission.id).keep(one)
    results.write(folder, Gradebook("Course 1", rows, POSSIBLE))
    return folder


def a_class(folder: Path) -> Path:
    """ada has some, bob all but late, cyd nothing, eve is unreadable, fay spoilt by our own fault."""
    reports = (some("ada"), whole("bob"), spoilt("fay"))
    ada, bob, fay = (row(one) for one in reports)
    return written(
        folder,
        replace(ada, name="Lovelace, Ada", email="ada@example.org"),
        replace(bob, name="Bob O'Brien", email="bob@example.org", late=True, hours_late=20.0, penalty=0.1),
        Row("cyd", State.MISSING, name="Cyd", email="cyd@example.org"),
        Row("eve", State.UNREADABLE, "eve", notes=("can't be read: why",)),
        fay,
        reports=reports,
    )


@pytest.fixture
def class_(tmp_path: Path) -> Path:
    return a_class(tmp_path / "results")


def handed_on(results: Path, to: str, out: Path, **more: object) -> tuple[str, ...]:
    return export.run(export.Wanted(results, to, out, force=True, **more))  # type: ignore[arg-type]


# What counts


@pytest.mark.parametrize(
    ("row", "given", "total"),
    [
        (Row("a", State.GRADED, stages={"stage1": 5.0, "stage2": 1.5}), {}, 6.5),
        (Row("a", State.GRADED, stages={"stage1": 5.0, "stage2": 1.5}), {"stage1": 0.0}, 1.5),
        (Row("a", State.GRADED, stages={"stage1": 5.0, "stage2": 1.5}, penalty=0.5), {"stage1": 9.0}, 5.25),
        (Row("a", State.MISSING), {}, None),
        (Row("a", State.MISSING), {"stage1": 2.0}, 2.0),
        (Row("a", State.UNREADABLE, "a"), {}, None),
        (Row("a", State.BROKEN, "a", stages={"stage2": 1.5}), {}, None),
        (Row("a", State.BROKEN, "a", stages={"stage2": 1.5}), {"stage1": 7.0}, 8.5),
        (Row("a", State.BROKEN, "a", stages={"stage1": 1.0, "stage2": 1.5}), {}, 2.5),
    ],
)
def test_what_our_own_fault_spoilt_has_no_points_and_what_a_person_gives_counts(
    row: Row, given: dict[str, float], total: float | None
) -> None:
    assert mark(row, POSSIBLE, given, raw=False).total == total


def test_raw_points_are_those_without_a_penalty() -> None:
    late = Row("a", State.GRADED, stages={"stage1": 5.0, "stage2": 1.5}, penalty=1.0)
    assert mark(late, POSSIBLE, {}, raw=False).total == 0
    assert mark(late, POSSIBLE, {}, raw=True).total == 6.5


# Overrides


def applied(text: str) -> dict[str, float | None]:
    book = Gradebook(
        "C", (row(some("ada"), email="ada@x.org"), row(whole("bob")), Row("cyd", State.MISSING)), POSSIBLE
    )
    kept = {"ada": some("ada"), "bob": whole("bob")}
    marks = overrides.applied(book, overrides.parse(text), lambda r: kept.get(r.student), raw=False)
    return {mark.student: mark.total for mark in marks}


HEAD = "student,check or stage,points,why\n"


@pytest.mark.parametrize(
    ("line", "who", "total"),
    [
        ("ada,stage1,9,looked at it", "ada", 9.0),
        ("ADA@x.org,stage1,0,copied", "ada", 0.0),
        ("ada,stage1.b,2,a typo", "ada", 7.33),  # worth a third of 6 public points, had none
        ("ada,stage1.a,1.5,only half", "ada", 2.83),  # worth 4, had all of them
        ("ada,stage1.i,2.67,by hand", "ada", 8.0),  # worth two thirds of 4 hidden points, rounded up
        ("bob,stage1.h,0,by hand", "bob", 10.5),
        ("cyd,stage2,3,on paper", "cyd", 3.0),
    ],
)
def test_points_by_hand_take_the_place_of_those_earned(line: str, who: str, total: float) -> None:
    assert applied(HEAD + line + "\n")[who] == total


def test_a_table_of_overrides_is_read_however_it_was_written() -> None:
    text = 'why,Points,Stage,Student,by\r\n"so, ""there""",9,stage1,ada,me\r\n,,,,\r\n'
    (one,) = overrides.parse(text)
    assert (one.student, one.what, one.points, one.why, one.line) == ("ada", "stage1", 9, 'so, "there"', 2)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("zoe,stage1,1,w", "line 2: `zoe` is nobody in the results"),
        (
            "ada,stage9,1,w",
            "line 2: `stage9` is no stage and no check of `ada`: the stages are stage1, stage2",
        ),
        ("ada,stage1.zzz,1,w", "line 2: `stage1.zzz` is no stage and no check"),
        ("cyd,stage1.a,1,w", "there is no report, so name a stage"),
        ("ada,stage1,10.01,w", "line 2: `stage1` is worth 10 points, not 10.01"),
        ("ada,stage1.b,2.01,w", "line 2: `stage1.b` is worth 2 points, not 2.01"),
        ("ada,stage1,-1,w", "line 2: `-1` points can't be"),
        ("ada,stage1,nan,w", "line 2: `nan` points can't be"),
        ("ada,stage1,inf,w", "line 2: `inf` points can't be"),
        ("ada,stage1,ten,w", "line 2: `ten` points can't be"),
        ("ada,stage1,5,", "line 2 has no `why`"),
        ("ada,stage1,5, ", "line 2 has no `why`"),
        ("ada,stage1,5", "line 2 has 3 cells, its header 4"),
        ("bob,stage1,5,w\nbob,stage1,6,w", "line 3: `bob`, `stage1` is in line 2 too"),
        ("ada,stage1,5,w\nada,stage1.b,1,w", "line 3: another line gives points for the whole of `stage1`"),
    ],
)
def test_an_override_that_cannot_be_meant_names_its_line(lines: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        applied(HEAD + lines + "\n")


@pytest.mark.parametrize("written", ["=cmd|'x'", "'=cmd|'x'", "-a@x.org", "'-a@x.org"])
def test_a_student_is_named_as_they_are_or_as_scores_has_them(written: str) -> None:
    one = Row("=cmd|'x'", State.GRADED, "x", email="-a@x.org", stages=dict(POSSIBLE))
    book = Gradebook("C", (one, Row("bob", State.MISSING)), POSSIBLE)
    given = overrides.parse(f"{HEAD}{written},stage1,1,w\n")
    marks = overrides.applied(book, given, lambda _: None, raw=False)
    assert [mark.total for mark in marks] == [5.5, None]


def test_one_student_under_two_names_gets_points_for_a_thing_once() -> None:
    said = "line 3: `ada@x.org` and `ada` of line 2 are one student, who has points for `stage1.b` there"
    with pytest.raises(ValueError, match=re.escape(said)):
        applied(HEAD + "ada,stage1.b,2,w\nada@x.org,stage1.b,1,w\n")


def test_a_stage_that_was_not_scored_takes_points_as_a_whole() -> None:
    book = Gradebook("C", (row(spoilt("fay")),), POSSIBLE)
    given = overrides.parse(HEAD + "fay,stage1.a,1,w\n")
    with pytest.raises(ValueError, match="give points for the whole stage"):
        overrides.applied(book, given, lambda _: spoilt("fay"), raw=False)


@pytest.mark.parametrize("text", ["", "student,stage,points\n", "student,stage,check,points,why\n"])
def test_a_table_without_its_columns_is_no_table_of_overrides(text: str) -> None:
    with pytest.raises(ValueError, match="its header has no column"):
        overrides.parse(text)


def test_overrides_change_what_is_handed_on_and_no_report(class_: Path, tmp_path: Path) -> None:
    by_hand = tmp_path / "overrides.csv"
    by_hand.write_text(HEAD + "ada,stage2,4,looked at it\n")
    before = {path: path.read_bytes() for path in class_.rglob("*") if path.is_file()}
    said = handed_on(class_, "otter", tmp_path / "o.csv", overrides=by_hand)
    assert "by hand: ada: stage2 4 points: looked at it" in said
    (ada, *_) = [line for line in table(tmp_path / "o.csv") if line["file"] == "ada"]
    assert (ada["stage2"], ada["total_points_earned"]) == ("4", "9.33")
    assert {path: path.read_bytes() for path in class_.rglob("*") if path.is_file()} == before


def test_overrides_that_are_not_there_are_a_mistake(class_: Path, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="can't be read"):
        handed_on(class_, "otter", tmp_path / "o.csv", overrides=tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_text(HEAD + "zoe,stage1,1,w\n")
    with pytest.raises(Mistake, match=r"bad.csv`: line 2: `zoe`"):
        handed_on(class_, "otter", tmp_path / "o.csv", overrides=tmp_path / "bad.csv")
    assert not (tmp_path / "o.csv").exists()


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline="")))


# Canvas

CANVAS = (
    '\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,"Project, final (77)",Other (78),Current Score\r\n'
    ",,,,,Manual Posting,,\r\n"
    "    Points Possible,,,,,14.50,10.00,(read only)\r\n"
    '"Lovelace, Ada",101,S1,ada,SEC,,"9,5",12.00\r\n'
    '"O\'Brien, Bob",102,S2,bob@example.org,SEC,3.0,=1+1,\r\n'
    '"Roe, Cyd",103,S3,cyd,SEC,,,"a ""b"" c"\r\n'
    '"Student, Test",199,,deadbeef,SEC,,,\r\n'
)


def canvas(class_: Path, tmp_path: Path, text: str = CANVAS, **more: object) -> tuple[str, tuple[str, ...]]:
    template, out = tmp_path / "gradebook.csv", tmp_path / "filled.csv"
    template.write_bytes(text.encode())
    said = handed_on(class_, "canvas", out, template=template, **more)
    return out.read_bytes().decode(), said


def test_canvas_column_is_filled_and_every_other_byte_kept(class_: Path, tmp_path: Path) -> None:
    text, said = canvas(class_, tmp_path, column="Project, final")
    expected = CANVAS.replace('SEC,,"9,5"', 'SEC,5.33,"9,5"').replace("SEC,3.0,=1+1", "SEC,13.05,=1+1")
    assert text == expected
    assert "filled the column `Project, final (77)`" in said
    assert "filled in 2 students" in said
    assert "in the table, not in the results: Student, Test" in said
    assert "in the results, not in the table: eve; fay" in said
    assert "no points: cyd (missing), eve (unreadable), fay (broken)" in said


def test_canvas_excused_students_stay_excused(class_: Path, tmp_path: Path) -> None:
    text, said = canvas(class_, tmp_path, students('"X, Y",9,ada,z,S,EX'), column="P")
    assert text == students('"X, Y",9,ada,z,S,EX')
    assert "left as it was, excused or locked there: ada" in said


def test_canvas_column_is_made_where_there_is_none(class_: Path, tmp_path: Path) -> None:
    text, said = canvas(class_, tmp_path, column='KV "cache", 1')
    lines, before = text.split("\r\n"), CANVAS.split("\r\n")
    added = ['"KV ""cache"", 1"', "", "14.5", "5.33", "13.05", "", ""]
    assert lines == [f"{old},{new}" for old, new in zip(before[:-1], added, strict=True)] + [""]
    assert said[0] == 'made the column `KV "cache", 1`, out of 14.5'
    assert canvas(class_, tmp_path)[1][0] == "made the column `Course 1`, out of 14.5"


def test_canvas_says_where_the_points_possible_differ(class_: Path, tmp_path: Path) -> None:
    _, said = canvas(class_, tmp_path, column="Other")
    assert "Canvas has it out of 10.00, these points are out of 14.5" in said


def test_canvas_raw_points_are_those_without_the_penalty(class_: Path, tmp_path: Path) -> None:
    text, said = canvas(class_, tmp_path, column="Project, final (77)", raw=True)
    assert "SEC,14.5,=1+1" in text
    assert "points earned, nothing taken off for lateness: bob" in said
    assert "points less what lateness costs: bob" in canvas(class_, tmp_path)[1]


def students(*lines: str, header: str = "Student,ID,SIS User ID,SIS Login ID,Section,P (1)") -> str:
    return "\n".join((header, "Points Possible,,,,,14.5", *lines, ""))


@pytest.mark.parametrize(
    "line",
    [
        '"X, Y",9,ada,z,S,',
        '"X, Y",9,,ADA,S,',
        '"X, Y",9,,ada@example.org,S,',
        '"Lovelace, Ada",9,,z,S,',
        "Ada Lovelace,9,,z,S,",
        '"Lovelace,  ADA",9,q,z,S,',
    ],
    ids=["sis_id", "login", "email_as_login", "name", "name_in_order", "name_in_other_case"],
)
def test_a_student_is_known_by_id_login_and_last_by_name(line: str, class_: Path, tmp_path: Path) -> None:
    text, _ = canvas(class_, tmp_path, students(line), column="P")
    assert text == students(line + "5.33")


def test_a_number_of_canvass_own_download_is_its_id(tmp_path: Path) -> None:
    jane = row(some("doejane_77"), account="canvas:77:doejane")
    folder = written(tmp_path / "results", jane, reports=(some("doejane_77"),))
    text, _ = canvas(folder, tmp_path, students('"Doe, Jane",78,,j,S,', '"Doe, Jane",77,,k,S,'), column="P")
    assert text == students('"Doe, Jane",78,,j,S,', '"Doe, Jane",77,,k,S,5.33')


def test_an_id_is_not_somebody_elses_number(tmp_path: Path) -> None:
    folder = written(tmp_path / "results", row(some("77"), name="Jane Doe"), reports=(some("77"),))
    lines = ('"Roe, Bob",77,,b,S,', '"Doe, Jane",5,,j,S,')
    text, _ = canvas(folder, tmp_path, students(*lines), column="P")
    assert text == students(lines[0], lines[1] + "5.33")


def canvas_of(rows: tuple[Row, ...], lines: tuple[str, ...], tmp_path: Path) -> tuple[list[str], str]:
    """The students' lines of a gradebook that these rows went into, and all that was said."""
    folder = written(tmp_path / "results", *rows)
    text, said = canvas(folder, tmp_path, students(*lines), column="P")
    return text.splitlines()[2:], "\n".join(said)


def scored(student: str, points: float, **more: object) -> Row:
    stages = {"stage1": points, "stage2": 0.0}
    return Row(student, State.GRADED, "x", stages=stages, **more)  # type: ignore[arg-type]


TEST_STUDENT = '"Student, Test",5,,t,S,'


@pytest.mark.parametrize(
    "zoe",
    [
        scored("zoe_5", 9),
        scored("5", 9),
        scored("zoe_5", 9, account="canvas:5:zoe"),
        scored("zoe", 9, name="Zoe Roe", account="canvas:5:zoe"),
    ],
    ids=["plain", "number", "other_name", "on_the_roster"],
)
def test_a_number_in_a_name_takes_nobodys_line(zoe: Row, tmp_path: Path) -> None:
    (line,), said = canvas_of((zoe,), (TEST_STUDENT,), tmp_path)
    assert line.endswith(",S,")
    assert f"in the results, not in the table: {zoe.student}" in said


def test_another_platforms_number_does_not_tell_namesakes_apart(tmp_path: Path) -> None:
    jane = scored("Jane Doe_5", 9, account="moodle:5:Jane Doe")
    lines, said = canvas_of((jane,), ('"Doe, Jane",5,,s,S,', '"Doe, Jane",6,,t,S,'), tmp_path)
    assert all(line.endswith(",S,") for line in lines)
    assert "`Jane Doe_5` could be line 3 or 4" in said


@pytest.mark.parametrize("name", ["Garcia Lopez, Maria", "María García López", "LOPEZ, Maria Garcia"])
def test_a_platforms_number_is_its_students_however_the_table_writes_the_name(
    name: str, tmp_path: Path
) -> None:
    maria = scored("garcialopezmaria_77", 9, account="canvas:77:garcialopezmaria")
    (line,), _ = canvas_of((maria,), (f'"{name}",77,,k,S,',), tmp_path)
    assert line.endswith(",S,9")


def test_an_exact_match_goes_before_one_by_name(tmp_path: Path) -> None:
    other = scored("bob_2", 1, account="canvas:9:obrienbob")
    bob = scored("bob", 9)
    for rows in ((bob, other), (other, bob)):
        (line, _), said = canvas_of(rows, ('"O\'Brien, Bob",2,bob,b,S,', TEST_STUDENT), tmp_path)
        assert line.endswith(",S,9")
        assert "in the results, not in the table: bob_2" in said


def test_the_roster_goes_before_a_stranger(tmp_path: Path) -> None:
    rows = (scored("bob@x.org", 1, on_roster=False), scored("b1", 9, email="bob@x.org"))
    (line,), _ = canvas_of(rows, ('"O\'Brien, Bob",2,,bob@x.org,S,',), tmp_path)
    assert line.endswith(",S,9")


def test_one_who_could_be_two_costs_nobody_else_their_points(tmp_path: Path) -> None:
    rows = (scored("bob", 9), scored("j1", 1, name="Jane Doe"), scored("j2", 2, name="Jane Doe"))
    (bob, jane), said = canvas_of(rows, ('"O\'Brien, Bob",2,bob,b,S,', '"Doe, Jane",3,,j,S,'), tmp_path)
    assert bob.endswith(",S,9")
    assert jane.endswith(",S,")
    assert "not to be told apart: line 4 could be `j1` or `j2`" in said


def test_a_participants_number_needs_no_name_where_the_worksheet_has_none(tmp_path: Path) -> None:
    folder = written(tmp_path / "results", scored("Participant_13", 9, account="moodle:13:Participant"))
    template, out = tmp_path / "w.csv", tmp_path / "o.csv"
    template.write_text("Identifier,Status,Grade\nParticipant 12,,\nParticipant 13,,\n")
    handed_on(folder, "moodle", out, template=template)
    assert out.read_text().endswith("Participant 12,,\nParticipant 13,,9\n")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (('"X, Y",1,ada,q,S,', '"X, Z",2,,ada,S,'), "`ada` could be line 3 or 4"),
        (('"Lovelace, Ada",1,,q,S,', "Ada Lovelace,2,,r,S,"), "`ada` could be line 3 or 4"),
        (('"X, Y",1,ada,bob,S,',), "line 3 could be `ada` or `bob`"),
    ],
)
def test_two_that_could_be_meant_are_named_and_no_guess(
    lines: tuple[str, ...], said: str, class_: Path, tmp_path: Path
) -> None:
    text, told = canvas(class_, tmp_path, students(*lines), column="P")
    assert text == students(*lines)
    assert f"left as it was, not to be told apart: {said}" in told


def test_a_name_decides_between_two_ids(class_: Path, tmp_path: Path) -> None:
    lines = ('"Lovelace, Ada",1,ada,q,S,', '"X, Z",2,,ada,S,')
    assert canvas(class_, tmp_path, students(*lines), column="P")[0] == students(lines[0] + "5.33", lines[1])


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        (CANVAS, "Section", "`Section` is no assignment"),
        (CANVAS, "Current Score", "is read only"),
        ("id,name\n1,2\n", "P", "no column `ID`"),
        ("hello\n", "P", "no table with a header"),
        ('Student,ID\n"Doe,1\n', "P", "line 2 is no CSV"),
        ('Student,ID\n"Doe"x,1\n', "P", "line 2 is no CSV"),
        (students(header="Student,ID,A,B,P (1),P (2)"), "P", "more than one column is called so"),
    ],
)
def test_what_is_no_gradebook_of_canvas_is_said(
    text: str, column: str, said: str, class_: Path, tmp_path: Path
) -> None:
    with pytest.raises(Mistake, match=re.escape(said)):
        canvas(class_, tmp_path, text, column=column)


def test_canvas_needs_its_own_table_and_keeps_it(class_: Path, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="name it with `--template`"):
        handed_on(class_, "canvas", tmp_path / "o.csv")
    template = tmp_path / "t.csv"
    with pytest.raises(Mistake, match="can't be read"):
        handed_on(class_, "canvas", tmp_path / "o.csv", template=template)
    template.write_bytes(CANVAS.encode("utf-16"))
    with pytest.raises(Mistake, match="is not UTF-8"):
        handed_on(class_, "canvas", tmp_path / "o.csv", template=template)
    with pytest.raises(Mistake, match="is the template itself"):
        handed_on(class_, "canvas", template, template=template)


@pytest.mark.parametrize(
    "text", [CANVAS, CANVAS.rstrip(), "a;b\r1;2\n\n", 'a\tb\n"x\ny"\t\n', "a,b\n1\n,,,\n", "a,b"]
)
def test_a_table_with_nothing_filled_is_the_same_bytes(text: str) -> None:
    assert gradesheet.parse(text.encode()).filled(1, {}).encode() == text.encode()


# Moodle

MOODLE = (
    "Identifier,Full name,ID number,Email address,Status,Grade,Maximum Grade,Grade can be changed,Feedback\n"
    "Participant 11,Ada Lovelace,,ADA@example.org,Submitted,,14.50,Yes,\n"
    "Participant 12,Bob,bob,,Submitted,1.00,14.50,No,\n"
    'Participant 13,Cyd,cyd,,No submission,-,14.50,Yes,"keep, me"\n'
)


def test_moodles_worksheet_is_filled_and_every_other_byte_kept(class_: Path, tmp_path: Path) -> None:
    template, out = tmp_path / "w.csv", tmp_path / "o.csv"
    template.write_text(MOODLE)
    said = handed_on(class_, "moodle", out, template=template)
    assert out.read_text() == MOODLE.replace("Submitted,,14.50,Yes", "Submitted,5.33,14.50,Yes")
    assert "left as it was, excused or locked there: bob" in said
    assert not [line for line in said if "out of" in line]


def test_moodles_number_is_the_participants(tmp_path: Path) -> None:
    ada = row(some("Ada Lovelace_13"), account="moodle:13:Ada Lovelace")
    folder = written(tmp_path / "results", ada, reports=(some("Ada Lovelace_13"),))
    template, out = tmp_path / "w.csv", tmp_path / "o.csv"
    template.write_text(MOODLE.replace("13,Cyd", "13,Ada Lovelace"))
    handed_on(folder, "moodle", out, template=template)
    assert "Participant 13,Ada Lovelace,cyd,,No submission,5.33," in out.read_text()
    assert "Participant 11,Ada Lovelace,,ADA@example.org,Submitted,," in out.read_text()


def test_a_worksheet_in_another_language_needs_its_column_named(class_: Path, tmp_path: Path) -> None:
    template, out = tmp_path / "w.csv", tmp_path / "o.csv"
    template.write_text("E-Mail-Adresse;Email address;Bewertung\nx;ada@example.org;\n")
    with pytest.raises(Mistake, match="no column `Grade`"):
        handed_on(class_, "moodle", out, template=template)
    handed_on(class_, "moodle", out, template=template, column="Bewertung")
    assert out.read_text().endswith("x;ada@example.org;5.33\n")
    template.write_text("Adresse,Grade\nx,\n")
    with pytest.raises(Mistake, match="none of the columns `Identifier`"):
        handed_on(class_, "moodle", out, template=template)


def test_moodles_import_leaves_out_who_has_no_points(class_: Path, tmp_path: Path) -> None:
    handed_on(class_, "moodle", tmp_path / "o.csv", column="=Project")
    lines = table(tmp_path / "o.csv")
    assert [(line["ID number"], line["Email address"], line["'=Project"]) for line in lines] == [
        ("ada", "ada@example.org", "5.33"),
        ("bob", "bob@example.org", "13.05"),
    ]


# otter


def test_otters_table_has_a_line_of_points_possible_and_no_nought_for_nothing(
    class_: Path, tmp_path: Path
) -> None:
    handed_on(class_, "otter", tmp_path / "final_grades.csv")
    lines = {line.pop("file"): list(line.values()) for line in table(tmp_path / "final_grades.csv")}
    assert lines == {
        "points-per-question": ["10", "4.5", "14.5", "1", ""],
        "ada": ["5.33", "0", "5.33", "0.3676", "Completed"],
        "bob": ["10", "4.5", "13.05", "0.9", "Completed"],
        "cyd": ["", "", "", "", "Failed: missing"],
        "eve": ["", "", "", "", "Failed: unreadable"],
        "fay": ["", "4.5", "", "", "Failed: broken"],
    }


@pytest.mark.parametrize("to", ["otter", "moodle"])
@pytest.mark.parametrize("name", ['=HYPERLINK("x")', "+1", "@a", 'a,"b"\r\nc'])
def test_no_name_is_a_formula_or_leaves_its_cell(to: str, name: str, tmp_path: Path) -> None:
    one = Row(name, State.GRADED, "x", name=name, email=name, stages=dict(POSSIBLE))
    handed_on(written(tmp_path / "results", one), to, tmp_path / "o.csv")
    cells = next(csv.reader(io.StringIO((tmp_path / "o.csv").read_text().splitlines()[-1])))
    assert len(cells) == (6 if to == "otter" else 4)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]


# Gradescope

SEEN = {"visible", "hidden", "after_due_date", "after_published"}


def checked(text: str) -> dict[str, object]:
    """The results, if Gradescope would take them."""

    def never(name: str) -> None:
        raise AssertionError(f"{name} in JSON")

    read = json.loads(text, parse_constant=never)
    assert set(read) <= {
        *("score", "execution_time", "output", "output_format", "test_output_format", "test_name_format"),
        *("visibility", "stdout_visibility", "extra_data", "tests", "leaderboard"),
    }
    assert read["visibility"] in SEEN
    for test in read.get("tests", []):
        assert set(test) <= {"score", "max_score", "status", "name", "number", "output", "tags", "visibility"}
        assert test["visibility"] in SEEN
        assert test.get("status") in (None, "passed", "failed")
        assert isinstance(test["name"], str)
        assert isinstance(test["number"], str)
    return read  # type: ignore[no-any-return]


def test_gradescopes_points_possible_add_up_to_the_assignments() -> None:
    read = checked(gradescope.render(some()))
    tests = read["tests"]
    assert isinstance(tests, list)
    assert math.fsum(test.get("max_score", 0) for test in tests) == 14.5
    assert math.fsum(test.get("score", 0) for test in tests) == read["score"] == 5.33
    assert isinstance(read["execution_time"], int)
    assert [test["number"] for test in tests] == ["1", "1.1", "1.2", "1.3", "1.4", "2", "2.1", "2.2"]


def test_gradescope_shows_the_total_since_no_test_is_hidden_unless_asked() -> None:
    assert {test["visibility"] for test in checked(gradescope.render(some()))["tests"]} == {"visible"}  # type: ignore[attr-defined]
    read = checked(gradescope.render(some(), hidden="after_published"))
    assert [t["visibility"] for t in read["tests"]].count("after_published") == 2  # type: ignore[attr-defined]


def test_gradescope_has_no_score_where_our_own_fault_spoilt_it() -> None:
    read = checked(gradescope.render(spoilt("fay")))
    assert "score" not in read
    assert "tests" not in read
    assert "by its own fault" in str(read["output"])
    assert checked(gradescope.unreadable("`x` holds no stage file"))["score"] == 0


def test_gradescopes_class_has_a_file_for_everybody_with_points(class_: Path, tmp_path: Path) -> None:
    said = handed_on(class_, "gradescope", tmp_path / "gs", hidden="after_due_date")
    assert sorted(path.name for path in (tmp_path / "gs").iterdir()) == ["ada.json", "bob.json"]
    bob = checked((tmp_path / "gs" / "bob.json").read_text())
    assert bob["score"] == 13.05
    assert "20 hours late: 10 % of the points are taken off." in str(bob["output"])
    assert "nothing for cyd, eve, fay: no report, or no points that count" in said


# Nothing hidden in anything a student sees


@pytest.mark.parametrize("to", ["gradescope", "junit", "classroom50"])
def test_what_a_hidden_check_says_is_in_no_students_file(
    to: str, class_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLASSROOM", "c")
    monkeypatch.setenv("ASSIGNMENT", "a")
    assert SECRET in (class_ / "ada" / "report.json").read_text()
    handed_on(class_, to, tmp_path / "out")
    files = list((tmp_path / "out").iterdir())
    assert {path.stem for path in files} == {"ada", "bob"}
    for path in files:
        assert SECRET not in path.read_text()
        assert "stage1.i" not in path.read_text()


def test_what_a_hidden_check_says_is_in_no_step_summary() -> None:
    text = github.render(student_view(some())) + "\n".join(github.workflow_commands(student_view(some())))
    assert SECRET not in text
    assert "a category" in text


def test_junit_of_a_class_is_xml_that_a_parser_takes(class_: Path, tmp_path: Path) -> None:
    handed_on(class_, "junit", tmp_path / "out")
    root = ET.parse(tmp_path / "out" / "ada.xml").getroot()
    assert [suite.get("tests") for suite in root] == ["4", "2"]
    assert root.findall(".//script") == []


# GitHub


def test_annotations_are_escaped_as_githubs_toolkit_does() -> None:
    line = github.command("error", "50%: a\nb, ::c", file="a:b,c.py", title="100%\nx")
    assert line == "::error file=a%3Ab%2Cc.py,title=100%25%0Ax::50%25: a%0Ab, ::c"
    assert github.command("notice", "x") == "::notice::x"


def test_what_a_student_wrote_is_one_annotation_and_no_command() -> None:
    lines = github.workflow_commands(student_view(some()), folder="work/")
    assert all("\n" not in line and "\r" not in line for line in lines)
    assert [line.split(" ")[0].split("::")[1] for line in lines] == ["error"] * 3 + ["notice"]
    assert "file=work/stage1_part.py" in lines[0]
    assert "%250A" in lines[0]  # the student's own %0A is not a line break
    assert lines[-1].endswith("::5.33 of 14.5 points")


def test_an_annotation_names_the_line_in_the_students_file() -> None:
    wrong = outcome("stage1.a", Verdict.FAIL, said="`stage1_part.py:12` says 3")
    (line, _) = github.workflow_commands(report("ada", stage(1, 0, wrong)))
    assert ",line=12,title=stage1%3A Title of a::" in line


def test_no_more_annotations_than_github_shows() -> None:
    many = [outcome(f"stage1.{n}", Verdict.FAIL, said="no") for n in range(25)]
    lines = github.workflow_commands(report("ada", stage(1, 0, *many)))
    assert len(lines) == github.SHOWN + 1
    assert lines[-2].endswith("16 more checks did not pass")


def test_a_step_summary_holds_what_a_student_wrote_in_a_fence() -> None:
    text = github.render(student_view(some()))
    fence = re.search(r"^(`{4,})text\n(.*?)^\1$", text, re.MULTILINE | re.DOTALL)
    assert fence
    assert "# owned" in fence[2]
    outside = text.replace(fence[0], "")
    assert "<script>" not in outside
    assert "owned" not in outside


def test_markup_in_a_title_is_plain_text() -> None:
    wrong = replace(outcome("a", Verdict.FAIL), check=Check("a", "<img src=x> | `b` [c](d)\n# e"))
    text = github.render(report("ada", stage(1, 0, wrong)))
    assert r"\<img src=x\> \| \`b\` \[c\]\(d\) \# e" in text


@pytest.mark.parametrize("room", [0, 10, 500, 100_000, github.LIMIT_BYTES])
def test_a_step_summary_is_never_longer_than_its_room(room: int) -> None:
    many = [outcome(f"stage1.{n}", Verdict.FAIL, said="ü" * 50_000) for n in range(30)]
    text = github.render(report("ada", stage(1, 0, *many)), room_bytes=room)
    assert len(text.encode()) <= room
    assert room < 100 or "This is cut" in text
    assert room < 500 or text.startswith("## 0 of 10 points")


def test_a_classs_step_summary_is_a_table(class_: Path, tmp_path: Path) -> None:
    handed_on(class_, "github", tmp_path / "s.md")
    lines = (tmp_path / "s.md").read_text().splitlines()
    assert lines[0] == "## 5 students"
    assert "| bob | graded | 10 | 4.5 | 13.05 |" in lines
    assert "| cyd | missing |  |  |  |" in lines


# Classroom 50

WHO = classroom50.Identity("c", "a", "ada", "submit/1", "u", "v", "w")


def test_classroom50s_result_has_whole_numbers_that_add_up() -> None:
    read = json.loads(classroom50.render(some(earned=5.335), WHO))
    assert read["schema"] == "classroom50/result/v1"
    assert set(read) == {
        *("schema", "classroom", "assignment", "assignment_type", "owner", "submission", "commit", "release"),
        *("review", "datetime", "graded_at", "score", "max-score", "tests"),
    }
    for test in read["tests"]:
        assert set(test) == {"test-name", "passed", "score", "max-score"}
        assert type(test["score"]) is type(test["max-score"]) is int
        assert type(test["passed"]) is bool
        assert 0 <= test["score"] <= test["max-score"]
    assert (read["score"], read["max-score"]) == (533, 1450)
    assert (read["score"], read["max-score"]) == tuple(
        sum(test[key] for test in read["tests"]) for key in ("score", "max-score")
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", read["datetime"])


def test_classroom50s_datetime_is_that_of_the_submission_in_utc() -> None:
    read = json.loads(classroom50.render(some(), WHO, submitted_at="2026-11-28T23:30:00-01:00", share=0.9))
    assert (read["datetime"], read["graded_at"]) == ("2026-11-29T00:30:00Z", "2026-11-29T10:00:00Z")
    assert read["score"] == 479


def test_classroom50_gets_nothing_where_our_own_fault_spoilt_it() -> None:
    with pytest.raises(ValueError, match="by the grader's own fault"):
        classroom50.render(spoilt("fay"), WHO)


def test_classroom50_is_told_by_its_runner_who_it_is() -> None:
    runner = {
        "CLASSROOM": "c",
        "ASSIGNMENT": "a",
        "OWNER": "ada",
        "SUBMISSION_TAG": "submit/1",
        "COMMIT_URL": "u",
    }
    runner |= {"RELEASE_URL": "v", "REVIEW_URL": "w"}
    assert classroom50.identity(runner, "x", "2026-11-29T10:00:00+00:00") == WHO
    by_hand = classroom50.identity({"CLASSROOM": "c", "ASSIGNMENT": "a"}, "ada", "2026-11-29T10:00:00+00:00")
    assert (by_hand.owner, by_hand.submission) == ("ada", "submit/manual-2026-11-29T10-00-00Z")
    with pytest.raises(ValueError, match="`ASSIGNMENT` is not set"):
        classroom50.identity({"CLASSROOM": "c"}, "ada", "2026-11-29T10:00:00+00:00")


# The commands


def grade(*words: object, course: Path | None = None) -> Result:
    return CliRunner().invoke(
        cli, ["--course", str(course or Path(__file__).parent.parent), *map(str, words)]
    )


def test_the_command_says_what_it_did(class_: Path, tmp_path: Path) -> None:
    done = grade("export", class_, "--to", "otter", "--out", tmp_path / "o.csv")
    assert done.exit_code == 0, done.output
    assert f"wrote {tmp_path / 'o.csv'}" in done.stdout


def test_an_export_goes_over_what_is_there_only_when_told(class_: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.csv"
    out.touch()  # as GitHub lays a step's summary ready
    assert grade("export", class_, "--to", "otter", "--out", out).exit_code == 0
    out.write_text("mine")
    assert grade("export", class_, "--to", "otter", "--out", out).exit_code == 2
    assert out.read_text() == "mine"
    assert grade("export", class_, "--to", "otter", "--out", out, "--force").exit_code == 0
    assert out.read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{tmp}/none", "--to", "otter", "--out", "{tmp}/o"], "is no folder of results"),
        (["--to", "otter", "--out", "{tmp}/o"], "needs the folder that `grade batch --out` wrote"),
        (["{class}", "--to", "otter", "--out", "/dev/null/o"], "can't be written"),
        (["{class}", "--to", "otter", "--out", "{class}/ada"], "lies in the results"),
        (["{class}", "--to", "otter", "--out", "{class}/ada", "--force"], "lies in the results"),
        (["{class}", "--to", "junit", "--out", "{class}", "--force"], "lies in the results"),
        (["{class}", "--to", "otter", "--out", "{tmp}/mine.csv"], "is there already: add `--force`"),
        (["{class}", "--to", "junit", "--out", "{tmp}/mine"], "is there already: add `--force`"),
        (["--to", "gradescope-autograder", "--out", "{tmp}/mine.csv"], "is there already: add `--force`"),
        (
            [
                "{class}",
                "--to",
                "otter",
                "--overrides",
                "{tmp}/mine.csv",
                "--out",
                "{tmp}/mine.csv",
                "--force",
            ],
            "is the file of overrides itself",
        ),
        (["{class}", "--to", "otter", "--hidden", "hidden", "--out", "{tmp}/o"], "`--hidden` has no meaning"),
        (["{class}", "--to", "otter", "--column", "A", "--out", "{tmp}/o"], "`--column` has no meaning"),
        (["{class}", "--to", "otter", "--column", "", "--out", "{tmp}/o"], "`--column` is empty"),
        (["{class}", "--to", "junit", "--raw", "--out", "{tmp}/o"], "`--raw` has no meaning"),
        (["{class}", "--to", "github", "--isolation", "process", "--out", "{tmp}/o"], "`--isolation` has no"),
        (["{class}", "--to", "gradescope-autograder", "--out", "{tmp}/o"], "`RESULTS` has no meaning"),
        (["batch", "{class}", "--seed", "", "--out", "{tmp}/o"], "`--seed` is empty"),
        (["all", "--seed", ""], "`--seed` is empty"),
        (["{class}", "--to", "classroom50", "--out", "{tmp}/o"], "`CLASSROOM` is not set"),
    ],
)
def test_what_cannot_be_handed_on_is_said_in_one_line(
    words: list[str], said: str, class_: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLASSROOM", raising=False)
    (tmp_path / "mine").mkdir()
    for mine in (tmp_path / "mine" / "thesis", tmp_path / "mine.csv"):
        mine.write_text(f"{HEAD}ada,stage1,1,w\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    words = [word.replace("{tmp}", str(tmp_path)).replace("{class}", str(class_)) for word in words]
    done = grade(*(words if words[0] in ("batch", "all") else ["export", *words]))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
