"""Points into nbgrader's gradebook and out of it: what goes into which cell, and what is never touched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from grader import by_hand, marking, nbgrader, notebook, results
from grader.by_hand import SLUG, Given
from grader.cli import cli
from grader.faults import Mistake
from grader.gradebook import Gradebook, Row, State, row_of
from grader.intake import Entry
from grader.marks import mark
from grader.nbgrader import Book
from grader.outcome import Check, Outcome, Verdict, Visibility
from grader.report import Machine, Report, StageResult, SubmissionInfo
from grader.results import Shelf

POSSIBLE = {"stage1": 10.0}
WORTH = {"stage1_one-a": 2.0, "stage1_one-b": 1.33, "stage1_one-grader": 6.67}


def outcome(name: str, verdict: Verdict = Verdict.PASS, *, hidden: bool = False) -> Outcome:
    seen = Visibility.HIDDEN if hidden else Visibility.PUBLIC
    return Outcome(Check(f"stage1.{name}", f"Title of {name}", seen), verdict, 0.1, f"why {name}")


def report(name: str, earned: float, *outcomes: Outcome, scored: bool = True) -> Report:
    stage = StageResult("stage1", "One", "stage1_one.py", earned, 10.0, outcomes, scored, 5.0)
    made = ("Course", "1", "c" * 64, "0.1.0", "seed", Machine(), "any", "confined", {}, False)
    return Report(SubmissionInfo(name, "d" * 64), *made, "2026-11-29T10:00:00+00:00", 7.2, (stage,))


SOME = report(
    "ada",
    5.5,
    outcome("a"),
    outcome("b[x]"),
    outcome("b[y]", Verdict.FAIL),
    outcome("h", Verdict.FAIL, hidden=True),
)


@dataclass
class Cell:
    name: str
    cell_type: str
    max_score: float = 0.0


@dataclass
class Grade:
    cell: Cell
    auto_score: float | None = None
    manual_score: float | None = None
    needs_manual_grade: bool = True

    @property
    def score(self) -> float:
        return next((s for s in (self.manual_score, self.auto_score) if s is not None), 0.0)


@dataclass
class Comment:
    cell: Cell
    auto_comment: str | None = None


@dataclass
class Pretended:
    """As much of nbgrader's `Gradebook` as is used: one assignment of one notebook, students by id."""

    students: list[Any] = field(default_factory=list)
    submitted: dict[str, Any] = field(default_factory=dict)
    commits: int = 0

    def __post_init__(self) -> None:
        checks = [Cell(name, "code", worth) for name, worth in WORTH.items() if not name.endswith("-grader")]
        self.rest = Cell("stage1_one-grader", "markdown", WORTH["stage1_one-grader"])
        self.asked = [Cell(f"stage1_one-question-{n}", "markdown", 1.0) for n in (1, 2)]
        self.notebook = SimpleNamespace(
            name="stage1", task_cells=[self.rest], grade_cells=[*checks, *self.asked]
        )
        self.assignment = SimpleNamespace(name="kv", notebooks=[self.notebook], duedate=None)
        self.db = self

    def commit(self) -> None:
        self.commits += 1

    def add_student(self, student: str, **names: str) -> None:
        self.students.append(SimpleNamespace(id=student, **names))

    def add_submission(self, assignment: str, student: str, **more: Any) -> Any:
        cells = (*self.notebook.grade_cells, self.rest)
        notebook = SimpleNamespace(
            name="stage1", grades=[Grade(cell) for cell in cells], comments=[Comment(self.rest)]
        )
        made = SimpleNamespace(student=SimpleNamespace(id=student), notebooks=[notebook], **more)
        self.submitted[student] = made
        return made

    def assignment_submissions(self, assignment: str) -> list[Any]:
        return list(self.submitted.values())

    def grades(self, student: str) -> dict[str, Grade]:
        (notebook,) = self.submitted[student].notebooks
        return {grade.cell.name: grade for grade in notebook.grades}

    def points(self, student: str) -> dict[str, float | None]:
        return {name: self.grades(student)[name].auto_score for name in WORTH}


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    pretended = Pretended()

    def submitted(book: Book, student: str, row: Row) -> Any:
        if student in pretended.submitted:
            return pretended.submitted[student]
        return pretended.add_submission("kv", student, timestamp=row.submitted_at)

    monkeypatch.setattr(nbgrader, "_submitted", submitted)
    return pretended


def handed_in(theirs: Pretended, *reports: Report, **rows: Row) -> tuple[str, ...]:
    """Write reports into the pretended gradebook; `rows` are those of students without one."""
    kept = {one.submission.id: one for one in reports}
    made = [rows.get(name) or row_of(one, name) for name, one in kept.items()]
    made += [row for name, row in rows.items() if name not in kept]
    marks = [mark(row, POSSIBLE, {}, raw=True) for row in made]
    book = Book(theirs, None, theirs.assignment)
    return nbgrader.hand_in(book, marks, lambda row: kept.get(row.student), POSSIBLE)


# Which cell gets what


@pytest.mark.parametrize(
    ("earned", "passed", "scores"),
    [
        (10.0, {"stage1_one-a", "stage1_one-b"}, (2.0, 1.33, 6.67)),
        (0.0, set(), (0.0, 0.0, 0.0)),
        (5.5, {"stage1_one-a"}, (2.0, 0.0, 3.5)),
        (1.5, {"stage1_one-a"}, (1.5, 0.0, 0.0)),  # a person took some off
        (9.5, {"stage1_one-a"}, (2.0, 0.83, 6.67)),  # a person gave some
    ],
)
def test_cells_have_together_what_was_earned(
    earned: float, passed: set[str], scores: tuple[float, ...]
) -> None:
    shared = nbgrader.shared_out(earned, WORTH, passed)

    assert tuple(shared[name] for name in WORTH) == scores
    assert round(sum(shared.values()), 2) == earned


def test_a_check_gets_its_cells_points_only_if_all_its_parameters_pass(theirs: Pretended) -> None:
    handed_in(theirs, SOME)

    assert theirs.points("ada") == {"stage1_one-a": 2.0, "stage1_one-b": 0.0, "stage1_one-grader": 3.5}
    assert not any(theirs.grades("ada")[name].needs_manual_grade for name in WORTH)


def test_a_hidden_checks_cell_has_its_points_too(theirs: Pretended) -> None:
    cell = Cell(notebook.cell_id("stage1_one", "h", hidden=True), "code", 1.0)
    theirs.notebook.grade_cells.append(cell)
    handed_in(theirs, SOME, replace_earned(SOME, 10.0, "bob"))

    assert theirs.grades("ada")[cell.name].auto_score == 0.0
    assert theirs.grades("bob")[cell.name].auto_score == 1.0


def test_questions_are_left_to_people(theirs: Pretended) -> None:
    handed_in(theirs, SOME)

    asked = [theirs.grades("ada")[cell.name] for cell in theirs.asked]
    assert [(grade.auto_score, grade.needs_manual_grade) for grade in asked] == [(None, True)] * 2


def test_what_did_not_pass_is_told_beside_the_points(theirs: Pretended) -> None:
    handed_in(theirs, SOME, report("bob", 10.0, outcome("a"), outcome("b")))

    told = {name: one.notebooks[0].comments[0].auto_comment for name, one in theirs.submitted.items()}
    assert str(told["ada"]).startswith("    fail: Title of b[y]\n    why b[y]\n\n    fail: ")
    assert "why h" not in str(told["ada"])
    assert told["bob"] is None


# What is never touched


def test_a_second_time_changes_nothing(theirs: Pretended) -> None:
    handed_in(theirs, SOME)
    before = repr(theirs.submitted)
    handed_in(theirs, SOME)

    assert repr(theirs.submitted) == before


def test_a_persons_score_stays_and_is_looked_at_again_where_the_machines_changed(theirs: Pretended) -> None:
    handed_in(theirs, SOME)
    grade = theirs.grades("ada")["stage1_one-b"]
    grade.manual_score = 1.0
    handed_in(theirs, SOME)
    assert (grade.manual_score, grade.needs_manual_grade) == (1.0, False)

    handed_in(theirs, replace_earned(SOME, 10.0))
    assert (grade.manual_score, grade.auto_score, grade.needs_manual_grade) == (1.0, 1.33, True)


def replace_earned(of: Report, earned: float, name: str = "") -> Report:
    return report(name or of.submission.id, earned, outcome("a"), outcome("b"), outcome("h", hidden=True))


def test_our_own_fault_leaves_what_is_there(theirs: Pretended) -> None:
    handed_in(theirs, SOME)
    before = theirs.points("ada")
    said = handed_in(theirs, report("ada", 0.0, outcome("a", Verdict.BROKEN), scored=False))

    assert theirs.points("ada") == before
    assert "left as it was, by the grader's own fault: ada stage1" in said


def test_what_could_not_be_read_has_no_points_and_waits_for_a_person(theirs: Pretended) -> None:
    handed_in(theirs, SOME)
    said = handed_in(theirs, SOME, ada=replace(row_of(SOME, "ada"), state=State.UNREADABLE, stages={}))

    assert set(theirs.points("ada").values()) == {None}
    assert theirs.grades("ada")["stage1_one-a"].needs_manual_grade
    assert "not graded, for a person to look at: ada" in said


def test_who_handed_in_nothing_is_not_entered(theirs: Pretended) -> None:
    said = handed_in(theirs, cyd=Row("cyd", State.MISSING))

    assert not theirs.students
    assert "nothing handed in, nothing written: cyd" in said


# Who is who


def test_a_student_is_who_is_there_whatever_the_case(theirs: Pretended) -> None:
    theirs.add_student("ADA")
    handed_in(theirs, SOME)

    assert [student.id for student in theirs.students] == ["ADA"]
    assert list(theirs.submitted) == ["ADA"]


def test_of_two_who_differ_in_case_each_is_themselves(theirs: Pretended) -> None:
    for name in ("ada", "ADA"):
        theirs.add_student(name)
    handed_in(theirs, SOME, replace_earned(SOME, 10.0, "ADA"))

    assert {name: sum(filter(None, theirs.points(name).values())) for name in ("ada", "ADA")} == {
        "ada": 5.5,
        "ADA": 10.0,
    }


@pytest.mark.parametrize("name", ["Lovelace, Ada", "Ada Lovelace"])
def test_a_new_student_has_the_rosters_names(name: str, theirs: Pretended) -> None:
    said = handed_in(theirs, SOME, ada=replace(row_of(SOME, "ada"), name=name, email="a@x.org"))

    (student,) = theirs.students
    assert (student.first_name, student.last_name, student.email) == ("Ada", "Lovelace", "a@x.org")
    assert "new in the gradebook: ada" in said


# An assignment that is not ours


def test_an_assignment_of_an_older_version_is_refused(theirs: Pretended) -> None:
    theirs.notebook.task_cells = []

    with pytest.raises(Mistake, match="has no cell"):
        handed_in(theirs, SOME)


def test_another_assignment_is_refused(theirs: Pretended) -> None:
    theirs.notebook.name = "homework"

    with pytest.raises(Mistake, match="no notebook named after a stage"):
        handed_in(theirs, SOME)


def test_points_of_another_worth_are_told(theirs: Pretended) -> None:
    theirs.rest.max_score = 7.67

    assert "worth more or less there: stage1 11 points, 10 in these results" in handed_in(theirs, SOME)


# What people gave


def graded(theirs: Pretended, *scores: float | None) -> dict[str, Given]:
    handed_in(theirs, SOME)
    for cell, score in zip(theirs.asked, scores, strict=True):
        grade = theirs.grades("ada")[cell.name]
        grade.manual_score, grade.needs_manual_grade = score, score is None
    return nbgrader.answers(Book(theirs, None, theirs.assignment))


def test_answers_count_what_a_person_gave(theirs: Pretended) -> None:
    assert graded(theirs, 1.0, 0.25) == {"ada": Given(1.25, 2.0)}


def test_an_answer_that_nobody_graded_is_named(theirs: Pretended) -> None:
    assert graded(theirs, 1.0, None) == {"ada": Given(1.0, 2.0, ("stage1_one-question-2",))}


def test_extra_credit_goes_no_further_than_what_there_is(theirs: Pretended) -> None:
    assert graded(theirs, 1.0, 1.5)["ada"].earned == 2.0


@pytest.mark.parametrize("score", [-3.0, float("nan"), float("inf")])
def test_a_score_that_is_none_waits_for_a_person(score: float, theirs: Pretended) -> None:
    assert graded(theirs, score, 0.5) == {"ada": Given(0.5, 2.0, ("stage1_one-question-1",))}


def test_checks_that_a_person_corrected_are_told(theirs: Pretended) -> None:
    handed_in(theirs, SOME)
    theirs.grades("ada")["stage1_one-b"].manual_score = 1.0

    (said,) = nbgrader.corrected(Book(theirs, None, theirs.assignment))
    assert said.endswith("write them as overrides: ada stage1_one-b")


@pytest.fixture
def class_(tmp_path: Path) -> Path:
    """ada graded, cyd without anything."""
    folder = tmp_path / "results"
    Shelf(folder / "ada").keep(SOME)
    results.write(folder, Gradebook("Course 1", (row_of(SOME, "ada"), Row("cyd", State.MISSING)), POSSIBLE))
    return folder


def test_points_by_hand_stand_in_report_and_results(class_: Path) -> None:
    said = by_hand.put(
        class_, "kv", {"ADA": Given(1.25, 2.0, ("stage1_one-question-2",)), "zoe": Given(1.0, 2.0)}
    )

    kept = Shelf(class_ / "ada").kept()
    book = results.load(class_)
    assert kept is not None
    assert [(stage.slug, stage.earned, stage.possible) for stage in kept.stages][1:] == [(SLUG, 1.25, 2.0)]
    assert (book.rows[0].total, book.possible) == (6.75, {**POSSIBLE, SLUG: 2.0})
    assert "graded by a person" in (class_ / "ada" / "student.html").read_text()
    assert "without a report here: zoe" in said
    assert "not graded yet, counted as nothing: ADA (stage1_one-question-2)" in said


def test_points_by_hand_replace_earlier_ones(class_: Path) -> None:
    by_hand.put(class_, "kv", {"ada": Given(1.25, 2.0)})
    by_hand.put(class_, "kv", {"ada": Given(2.0, 2.0)})

    assert results.load(class_).rows[0].stages == {"stage1": 5.5, SLUG: 2.0}


def test_points_of_another_assignment_are_not_gone_over(class_: Path) -> None:
    by_hand.put(class_, "kv", {"ada": Given(1.25, 2.0)})

    with pytest.raises(Mistake, match="has points of another assignment already"):
        by_hand.put(class_, "kv2", {"ada": Given(0.0, 2.0)})
    assert results.load(class_).rows[0].stages[SLUG] == 1.25


def test_what_could_not_be_read_stays_without_points(class_: Path) -> None:
    book = results.load(class_)
    unreadable = replace(book.rows[0], state=State.UNREADABLE, stages={})
    results.write(class_, replace(book, rows=(unreadable, *book.rows[1:])))
    said = by_hand.put(class_, "kv", {"ada": Given(0.0, 2.0)})

    assert results.load(class_).rows[0].total is None
    assert "without a report here: ada" in said


def test_points_by_hand_survive_a_new_report(class_: Path) -> None:
    by_hand.put(class_, "kv", {"ada": Given(1.25, 2.0)})
    job = marking.Job(Entry("ada", ()), Shelf(class_ / "ada"), "ada")
    done = marking._kept(job, None, replace_earned(SOME, 10.0))  # type: ignore[arg-type]

    assert done.row
    assert done.row.stages == {"stage1": 10.0, SLUG: 1.25}
    assert done.extra == {SLUG: 2.0}


def test_a_gradebook_without_answers_changes_nothing(class_: Path) -> None:
    with pytest.raises(Mistake, match="no answers"):
        by_hand.put(class_, "kv", {})


# The command line


@pytest.fixture
def invoked(class_: Path) -> Any:
    def invoke(*words: str) -> str:
        done = CliRunner().invoke(cli, list(words))
        assert done.exit_code == 2
        return " ".join(done.output.split())

    return invoke


def test_what_an_export_needs_is_asked_for(class_: Path, invoked: Any) -> None:
    assert "`--to nbgrader` needs `--gradebook`" in invoked("export", str(class_), "--to", "nbgrader")
    assert "`--to otter` needs `--out`" in invoked("export", str(class_), "--to", "otter")
    words = ("export", str(class_), "--to", "otter", "--out", "x", "--gradebook", "y")
    assert "`--gradebook` has no meaning for `--to otter`" in invoked(*words)
    words = ("export", str(class_), "--to", "nbgrader", "--gradebook", "y", "--out", "x")
    assert "`--out` has no meaning for `--to nbgrader`" in invoked(*words)


def test_a_gradebook_that_is_not_there_is_not_made(class_: Path, tmp_path: Path, invoked: Any) -> None:
    where = f"sqlite:///{tmp_path}/grades.db"

    assert "is not there" in invoked("export", str(class_), "--to", "nbgrader", "--gradebook", where)
    assert "is not there" in invoked("notebook", "grades", str(class_), "--gradebook", where)
    assert not (tmp_path / "grades.db").exists()


def test_without_nbgrader_it_says_what_to_install(
    class_: Path, tmp_path: Path, invoked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "nbgrader", None)
    (tmp_path / "grades.db").touch()

    said = invoked("notebook", "grades", str(class_), "--gradebook", str(tmp_path / "grades.db"))
    assert "pip install 'kvgrade[nbgrader]'" in said
