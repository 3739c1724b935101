"""Grade a class again after a fixed check: in a folder of its own first, to see old and new side by side.

The new reports are made in the results' hidden folder `.regrade`, which a second run goes on from; taking
them keeps each old report in its student's folder `before`.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from grader import batch, order, results
from grader.changes import Change, between, to_csv
from grader.course import Course
from grader.faults import written
from grader.gradebook import Gradebook, State
from grader.render.prose import plural
from grader.report import write
from grader.results import BROKEN, PAGE, PARTIAL, REPORT, SCORES, SCORES_BEFORE, STUDENTS_PAGE, SUMMARY, Shelf

STAGED = ".regrade"
BEFORE = "before"
PAGES = (PAGE, STUDENTS_PAGE, REPORT)  # the report last: with it a student is done


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `grade regrade` is asked for; `path` says where submissions are that have moved."""

    folder: Path
    path: Path | None = None
    csv: Path | None = None
    jobs: int = 0
    scheduler: str | None = None


@dataclass(frozen=True, slots=True)
class Regraded:
    """A class graded again and not taken yet: what was said of it, and what would change."""

    folder: Path
    status: int
    changes: tuple[Change, ...]
    students: int
    reports: int
    broken: int = 0

    @property
    def is_new(self) -> bool:
        return bool(self.reports or self.changes)

    @property
    def summary(self) -> str:
        """How many reports are new, and whose points change."""
        if not (self.is_new or self.broken):
            return f"nothing to grade again: {plural(self.students, 'student')}, every report still holds"
        touched = len({change.student for change in self.changes})
        said = f"{plural(self.reports, 'new report')}; points change for {touched} of {self.students}"
        if not self.broken:
            return said
        where = self.folder / STAGED / SUMMARY
        return f"{said}; {self.broken} broke by the grader's own fault, see `{where}`, and keep their points"

    def take(self) -> str:
        """Put the new reports in the old ones' place; stopped half way, the next regrade finishes it."""
        staged = self.folder / STAGED
        for student in sorted(path for path in staged.iterdir() if path.is_dir()):
            _take(student, self.folder / student.name)
        if _is_new(staged, self.folder, SCORES):
            _copy(SCORES, self.folder, self.folder / SCORES_BEFORE)
        for path in sorted(path for path in staged.iterdir() if path.is_file()):
            os.replace(path, self.folder / path.name)
        shutil.rmtree(staged)
        return f"wrote {self.folder}; the old points are in {SCORES_BEFORE}, old reports in each {BEFORE}/"


def grade(course: Course, wanted: Wanted) -> Regraded:
    """Grade again, by the kept order, whatever would come out otherwise today; change nothing yet.

    Raises Mistake where the results don't say how they came about or the submissions are gone, and what
    `batch.run` raises.
    """
    before = results.load(wanted.folder)
    asked = order.moved(order.load(wanted.folder), wanted.path)
    staged = wanted.folder / STAGED
    _stage(before, wanted.folder, staged)
    asked = replace(asked, out=staged, spared=wanted.folder, jobs=wanted.jobs, scheduler=wanted.scheduler)
    done = batch.run(course, asked)
    after = results.load(staged)
    names = [row.folder for row in after.rows if row.folder]
    fresh = sum(_is_new(staged / name, wanted.folder / name, REPORT) for name in names)
    broken = after.count(State.BROKEN)
    regraded = Regraded(wanted.folder, done.status, between(before, after), len(after.rows), fresh, broken)
    if wanted.csv:
        written(wanted.csv, to_csv(regraded.changes))
    if not (regraded.is_new or broken):
        shutil.rmtree(staged)
    return regraded


def _stage(before: Gradebook, folder: Path, staged: Path) -> None:
    """Lay the old reports ready, so that those that still hold are not graded again."""
    for row in before.rows:
        if row.folder and not (staged / row.folder / REPORT).is_file():
            for name in (*PAGES, PARTIAL):
                _copy(name, folder / row.folder, staged / row.folder / name)


def _is_new(staged: Path, folder: Path, name: str) -> bool:
    """Whether a file that was made anew is not there already."""
    there, here = staged / name, folder / name
    return there.is_file() and not (here.is_file() and filecmp.cmp(there, here, shallow=False))


def _take(staged: Path, folder: Path) -> None:
    """Move a student's new files in, each whole, after the old ones are kept under the old report's time."""
    folder.mkdir(exist_ok=True)
    if (staged / BROKEN).is_file():
        os.replace(staged / BROKEN, folder / BROKEN)
    if not _is_new(staged, folder, REPORT):
        return
    if old := Shelf(folder).kept():
        kept = folder / BEFORE / re.sub(r"[^0-9T-]", "-", old.started[:19])
        for name in PAGES:
            if not (kept / name).is_file():  # else it was kept when this was stopped half way
                _copy(name, folder, kept / name)
    for name in PAGES:
        if (staged / name).is_file():
            os.replace(staged / name, folder / name)
    (folder / BROKEN).unlink(missing_ok=True)  # of an earlier course


def _copy(name: str, folder: Path, to: Path) -> None:
    """Copy a file, whole or not at all, where there is one."""
    if (folder / name).is_file():
        with (folder / name).open(encoding="utf-8", newline="") as file:
            write(to, file.read())
