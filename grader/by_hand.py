"""Points that a person gave for answers to the stages' questions: an entry of its own in a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from grader import results
from grader.faults import Mistake
from grader.gradebook import Gradebook, Row, State
from grader.render.prose import plural
from grader.report import Report, StageResult
from grader.results import Shelf
from grader.roster import by_name, fold

SLUG = "by-hand"  # which no stage can be called
TITLE = "Questions of {assignment}, graded by a person"


@dataclass(frozen=True, slots=True)
class Given:
    """What a student got for their answers, of how much; `waiting` names answers that nobody has graded."""

    earned: float
    possible: float
    waiting: tuple[str, ...] = ()


def beside(report: Report, stage: StageResult) -> Report:
    """A report with this entry beside its stages, in place of an earlier one."""
    return replace(report, stages=(*(s for s in report.stages if s.slug != SLUG), stage))


def possible(report: Report) -> dict[str, float]:
    """What a person could give, in a report that has points by hand."""
    entry = report.stage(SLUG)
    return {SLUG: entry.possible} if entry else {}


def carried(before: Report | None, report: Report) -> Report:
    """A new report with the points that a person gave on the one before it."""
    given = before.stage(SLUG) if before else None
    return beside(report, given) if given else report


def put(folder: Path, assignment: str, given: Mapping[str, Given]) -> tuple[str, ...]:
    """Write points, by student, into a class's results: every report and page, and what is about the class.

    Give what to say of it. Raises Mistake where `folder` holds no results or has points of another
    assignment, or there are no points to be had.
    """
    book = results.load(folder)
    possible = max((one.possible for one in given.values()), default=0.0)
    if not possible:
        raise Mistake("the gradebook has no answers that a person grades, or nobody who handed any in")
    title = TITLE.format(assignment=assignment)
    if others := {stage.title for stage in _entries(folder, book)} - {title}:
        raise Mistake(f"`{folder}` has points of another assignment already: {min(others)}")
    given_to = by_name(given)
    rows = tuple(_put(folder, row, given_to(row.student), title) for row in book.rows)
    written = results.write(folder, replace(book, rows=rows, possible={**book.possible, SLUG: possible}))
    there = {fold(row.student) for row in rows if SLUG in row.stages}
    lost = [student for student in given if fold(student) not in there]
    waiting = [f"{student} ({', '.join(one.waiting)})" for student, one in given.items() if one.waiting]
    said = [f"without a report here: {', '.join(lost)}"] * bool(lost)
    said += [f"not graded yet, counted as nothing: {'; '.join(waiting)}"] * bool(waiting)
    return (*said, f"points by hand for {plural(len(there), 'student')}", *(f"wrote {p}" for p in written))


def _entries(folder: Path, book: Gradebook) -> Iterator[StageResult]:
    """The entries that are there already."""
    for row in book.rows:
        report = Shelf(folder / row.folder).kept() if SLUG in row.stages else None
        if report and (entry := report.stage(SLUG)):
            yield entry


def _put(folder: Path, row: Row, given: Given | None, title: str) -> Row:
    shelf = Shelf(folder / row.folder)
    report = shelf.kept() if row.folder and given and row.state is not State.UNREADABLE else None
    if report is None or given is None:
        return row
    shelf.keep(beside(report, StageResult(SLUG, title, "", given.earned, given.possible, ())))
    return replace(row, stages={**row.stages, SLUG: given.earned})
