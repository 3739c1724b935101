"""Scores into nbgrader's gradebook, and what people gave there out of it, by nbgrader's own code.

nbgrader keeps two scores for a cell, the machine's and a person's, and the person's counts. Only the
machine's is ever written here.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.by_hand import Given
from grader.faults import Mistake
from grader.gradebook import Row, State
from grader.marks import Mark
from grader.notebook import REST, cell_id
from grader.outcome import Verdict, Visibility
from grader.render.prose import plural, points, printable
from grader.report import Report, StageResult, student_stage
from grader.roster import by_name
from grader.scoring import STEPS_PER_POINT

SQLITE = "sqlite:///"
TABLES = ("assignment", "submitted_assignment", "grade", "comment")  # some of a gradebook's
INSTALL = "nbgrader is not installed: `pip install 'kvgrade[nbgrader]'`"
LONGEST = 4000  # characters of a comment
CODE = "    "  # before each line: nbgrader shows comments as Markdown, and this much of it as it stands


@dataclass(frozen=True, slots=True)
class Book:
    """nbgrader's gradebook, open at one assignment; `settings` is its application, with its configuration."""

    api: Any
    settings: Any
    assignment: Any
    url: str = ""


@dataclass(slots=True)
class _Told:
    """What to say of an export: names of students, each once, by what became of them."""

    by_kind: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, kind: str, what: str) -> None:
        self.by_kind.setdefault(kind, {})[what] = None


@contextlib.contextmanager
def opened(gradebook: str, assignment: str) -> Iterator[Book]:
    """Open a gradebook: SQLAlchemy's name for it, or a file of SQLite's.

    Raises Mistake where nbgrader is not installed, there is no such gradebook or assignment in it, its
    course's configuration is wrong, or the database fails. What is no gradebook stays as it is.
    """
    url = gradebook if "://" in gradebook else SQLITE + gradebook
    path = Path(url.removeprefix(SQLITE)) if url.startswith(SQLITE) else None
    if path and not path.is_file():
        raise Mistake(f"`{path}` is not there: name nbgrader's gradebook, as sqlite:///gradebook.db")
    try:
        from nbgrader.api import Gradebook
        from sqlalchemy.exc import SAWarning, SQLAlchemyError
    except ImportError as error:
        raise Mistake(INSTALL) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)  # nbgrader's own
        try:
            shown = _vetted(url)
            settings = _settings(path.resolve().parent if path else Path.cwd())
            with Gradebook(url, settings.coursedir.course_id) as api:
                found = next((one for one in api.assignments if one.name == assignment), None)
                if found is None:
                    known = ", ".join(f"`{one.name}`" for one in api.assignments) or "none"
                    raise Mistake(f"`{shown}` has no assignment `{assignment}`, it has {known}")
                yield Book(api, settings, found, url)
        except (SQLAlchemyError, ImportError) as error:  # whose words may repeat a password
            first = str(error).splitlines()[0].replace(url, "the gradebook")
            raise Mistake(f"the gradebook can't be used: {first}") from error


def _vetted(url: str) -> str:
    """The gradebook's name without its password. Raises Mistake where it is a database of something else."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url)
    try:
        shown = str(engine.url.render_as_string(hide_password=True))
        if not set(TABLES) <= set(sqlalchemy.inspect(engine).get_table_names()):
            raise Mistake(f"`{shown}` is no gradebook of nbgrader's: it lacks its tables")
        return shown
    finally:
        engine.dispose()


def _settings(root: Path) -> Any:
    """nbgrader's application with the course's `nbgrader_config.py`, as its own commands have it.

    Raises Mistake where that can't be read, or names no rule for lateness that could be had.
    """
    from nbgrader.apps.baseapp import NbGrader
    from nbgrader.preprocessors import AssignLatePenalties

    if str(root) not in sys.path:
        sys.path.append(str(root))  # where a course keeps plugins of its own
    try:
        settings = NbGrader(log_level=logging.ERROR, raise_config_file_errors=True)
        settings.initialize([], root=str(root))
        AssignLatePenalties(parent=settings).init_plugin()
    except Exception as error:  # its author's code, which may raise anything
        raise Mistake(f"`{root / 'nbgrader_config.py'}` can't be used: {_in_a_line(error)}") from error
    return settings


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


# Scores in


def hand_in(
    book: Book,
    marks: Sequence[Mark],
    report_of: Callable[[Row], Report | None],
    possible: Mapping[str, float],
) -> tuple[str, ...]:
    """Write everybody's points into the gradebook; give what to say of it. A second time changes nothing.

    Raises Mistake where the assignment is not ours.
    """
    told = _Told()
    notebooks = {notebook.name: notebook for notebook in book.assignment.notebooks}
    stages = [slug for slug in possible if slug in notebooks]
    if not stages:
        raise Mistake(f"assignment `{book.assignment.name}` has no notebook named after a stage")
    for slug in stages:
        _vet(notebooks[slug], possible[slug], told)
    known = by_name({student.id: student.id for student in book.api.students})
    for mark in marks:
        report = report_of(mark.row)
        if report is None:
            told.add("nothing handed in, nothing written", mark.student)
            continue
        student = known(mark.student) or _new(book, mark.row, told)
        submitted = _submitted(book, student, mark.row)
        for notebook in submitted.notebooks:
            if notebook.name in stages:
                _fill(notebook, mark, report, told)
        book.api.db.commit()
        if book.assignment.duedate:
            _penalise(book, student, submitted)
        if mark.row.state is not State.UNREADABLE:
            told.add("written", mark.student)
    return _lines(told)


def _vet(notebook: Any, possible: float, told: _Told) -> None:
    """See that a notebook has the cells that its points go to, and is worth what the stage is."""
    cells = [*notebook.task_cells, *filter(_is_ours, notebook.grade_cells)]
    if not any(cell.name.endswith(REST) for cell in notebook.task_cells):
        raise Mistake(
            f"notebook `{notebook.name}` has no cell `…{REST}`: run `grade notebook build --force` and "
            "`nbgrader generate_assignment --force` again"
        )
    theirs = round(sum(cell.max_score for cell in cells), 2)
    if theirs != round(possible, 2):
        told.add(
            "worth more or less there",
            f"{notebook.name} {points(theirs)} points, {points(possible)} in these results",
        )


def _new(book: Book, row: Row, told: _Told) -> str:
    told.add("new in the gradebook", row.student)
    last, _, first = row.name.partition(",") if "," in row.name else row.name.rpartition(" ")[::-1]
    names = {"first_name": first.strip(), "last_name": last.strip(), "email": row.email}
    book.api.add_student(row.student, **{key: text for key, text in names.items() if text})
    return row.student


def _submitted(book: Book, student: str, row: Row) -> Any:
    """The student's submission there, made if there is none yet."""
    from nbgrader.api import MissingEntry

    try:
        return book.api.find_submission(book.assignment.name, student)
    except MissingEntry:
        when = {"timestamp": row.submitted_at} if row.submitted_at else {}
        return book.api.add_submission(book.assignment.name, student, **when)


def _fill(notebook: Any, mark: Mark, report: Report, told: _Told) -> None:
    """Write one stage's points; where it has none by the grader's own fault, leave what is there."""
    stage = report.stage(notebook.name)
    graded = {grade.cell.name: grade for grade in notebook.grades if _is_ours(grade.cell)}
    if stage is None or mark.row.state is State.UNREADABLE:
        told.add("not graded, for a person to look at", mark.student)
        scores: Mapping[str, float | None] = dict.fromkeys(graded)
    elif notebook.name not in mark.stages:
        told.add("left as it was, by the grader's own fault", f"{mark.student} {notebook.name}")
        return
    else:
        worth = {name: grade.cell.max_score for name, grade in graded.items()}
        scores = shared_out(mark.stages[notebook.name], worth, _passed(stage))
        _comment(notebook, student_stage(stage))
    for name, grade in graded.items():
        _set(grade, scores[name])


def _is_ours(cell: Any) -> bool:
    """Whether the machine gives a cell its points, a check's or the one for all others, and no person."""
    return bool(cell.name.endswith(REST) or cell.cell_type == "code")


def _set(grade: Any, score: float | None) -> None:
    """Set the machine's score; where a person's differs from a new one, ask them to look again."""
    if grade.manual_score is None:
        grade.needs_manual_grade = score is None
    elif grade.auto_score != score:
        grade.needs_manual_grade = True
    grade.auto_score = score


def _passed(stage: StageResult) -> set[str]:
    """Ids of the cells whose check passed, with every one of its parameters."""
    stem, passed = stage.file.removesuffix(".py"), dict[str, bool]()
    for outcome in stage.outcomes:
        check = outcome.check
        cell = cell_id(stem, check.function, hidden=check.visibility is Visibility.HIDDEN)
        passed[cell] = passed.get(cell, True) and outcome.verdict is Verdict.PASS
    return {cell for cell, is_passed in passed.items() if is_passed}


def shared_out(earned: float, worth: Mapping[str, float], passed: set[str]) -> dict[str, float]:
    """Points for each cell, to the hundredth and together what was earned.

    A check that passed gets its cell's first, the cell for all others what is left. More than that was given
    by a person, and goes to checks that did not pass.
    """
    left, scores = round(earned * STEPS_PER_POINT), dict[str, float]()
    for name in sorted(worth, key=lambda name: (name not in passed, not name.endswith(REST))):
        given = min(left, round(worth[name] * STEPS_PER_POINT))
        scores[name], left = given / STEPS_PER_POINT, left - given
    return scores


def _comment(notebook: Any, stage: StageResult) -> None:
    """Say beside the points what did not pass and why, as the student may read it."""
    wrong = [f"{o.verdict}: {o.check.title}\n{o.message}" for o in stage.outcomes if o.verdict.counts_against]
    said = printable("\n\n".join(wrong))[:LONGEST]
    text = textwrap.indent(said, CODE) if wrong else None
    for comment in notebook.comments:
        if comment.cell.name.endswith(REST) and comment.auto_comment != text:
            comment.auto_comment = text


def _penalise(book: Book, student: str, submitted: Any) -> None:
    """Have nbgrader set what lateness costs by its own rules, now that there are points to take it from."""
    import nbformat
    from nbgrader.preprocessors import AssignLatePenalties

    assign = AssignLatePenalties(parent=book.settings)
    about = {
        "assignment": book.assignment.name,
        "student": student,
        "db_url": book.url,
    }
    for notebook in submitted.notebooks:
        if submitted.total_seconds_late or notebook.late_submission_penalty is not None:
            resources = {"nbgrader": {**about, "notebook": notebook.name}}
            try:
                assign.preprocess(nbformat.v4.new_notebook(), resources)
            except Exception as error:  # the course's own rule, which may raise anything
                what = f"nbgrader's rule for lateness failed over `{student}`: {_in_a_line(error)}"
                raise Mistake(
                    f"{what}; mend it and run this again, which goes over what is written"
                ) from error
    book.api.db.expire_all()


def _lines(told: _Told) -> tuple[str, ...]:
    count = len(told.by_kind.pop("written", ()))
    said = [f"{kind}: {', '.join(names)}" for kind, names in told.by_kind.items()]
    return (*said, f"wrote the points of {plural(count, 'student')} into the gradebook")


# Points that people gave, out


def answers(book: Book) -> dict[str, Given]:
    """What everybody got for their answers, by student; what nobody has graded counts nothing."""
    possible = sum(
        cell.max_score
        for notebook in book.assignment.notebooks
        for cell in notebook.grade_cells
        if not _is_ours(cell)
    )
    return {
        submitted.student.id: _given(submitted, possible)
        for submitted in book.api.assignment_submissions(book.assignment.name)
    }


def _given(submitted: Any, possible: float) -> Given:
    """Of extra credit counts what makes up for points lost elsewhere: nobody gets more than there is.

    A score that is none, below nothing or endless, waits for a person like one that is not there.
    """
    asked = [g for notebook in submitted.notebooks for g in notebook.grades if not _is_ours(g.cell)]
    given = [grade for grade in asked if 0 <= grade.score < math.inf]
    earned = sum(grade.score for grade in given)
    waiting = sorted(grade.cell.name for grade in asked if grade.needs_manual_grade or grade not in given)
    return Given(round(min(earned, possible), 2), possible, tuple(waiting))


def corrected(book: Book) -> tuple[str, ...]:
    """Say of which checks a person changed the points there, which is no part of our results."""
    changed = sorted(
        f"{submitted.student.id} {grade.cell.name}"
        for submitted in book.api.assignment_submissions(book.assignment.name)
        for notebook in submitted.notebooks
        for grade in notebook.grades
        if _is_ours(grade.cell) and grade.manual_score is not None
    )
    told = "points of checks that a person gave there are not taken, write them as overrides"
    return (f"{told}: {', '.join(changed)}",) if changed else ()
