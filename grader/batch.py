"""Grade a class: every submission by the one path, side by side, and go on where an earlier run stopped.

Checks by the clock come last and one at a time, so that no neighbour disturbs them; with a single job
everything is graded at once.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from grader import destination, intake, lateness, marking, order, pool, results, roster
from grader.course import Course, Stage
from grader.faults import Mistake
from grader.gradebook import Gradebook, Row, State
from grader.intake import Intake
from grader.marking import Done, Job
from grader.order import Wanted
from grader.outcome import Part
from grader.pace import Pace
from grader.render.prose import one_line, plural, points
from grader.report import EXIT_BROKEN, EXIT_FAILED, EXIT_PASSED, EXIT_USAGE, Report
from grader.results import PARTIAL, REPORT, Conditions, Shelf
from grader.roster import Roster
from grader.scoring import possible_points

if TYPE_CHECKING:
    from grader.cluster import Cluster

FIRST = 8  # so many names on a line; `index.html` has them all
NAMED = (State.UNREADABLE, State.BROKEN, State.MISSING)


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished batch: the exit status, and what to say of it."""

    status: int
    lines: tuple[str, ...]


@dataclass(slots=True)
class _Going:
    """A batch while it goes on: what is done, by its shelf, and seconds by phase."""

    course: Course
    wanted: Wanted
    conditions: Conditions
    workers: Cluster | None = None
    done: dict[Shelf, Done] = field(default_factory=dict)
    seconds: Counter[str] = field(default_factory=Counter)

    def grade(self, jobs: Sequence[Job]) -> None:
        """Grade what is not graded yet, in one pass or two."""
        for job in jobs:
            if kept := self._current(job, REPORT):
                self.done[job.shelf] = marking.told(job, kept)
        waiting = [job for job in jobs if job.shelf not in self.done]
        side_by_side = self.workers.size if self.workers else self.wanted.jobs or os.cpu_count() or 1
        count = min(len(waiting), side_by_side)
        if count < 2 or not self.course.timed:
            self._pass("graded", waiting, count)
            return
        parts = [replace(job, part=Part.UNTIMED) for job in waiting]
        self._pass("graded but for timing", [p for p in parts if not self._current(p, PARTIAL)], count)
        left = [replace(job, part=Part.TIMED) for job in waiting if job.shelf not in self.done]
        self._pass("timed, one at a time", left, 1)

    def _current(self, job: Job, name: str) -> Report | None:
        return None if self.wanted.force else marking.current(job, self.course, self.conditions, name)

    def _pass(self, what: str, jobs: Sequence[Job], count: int) -> None:
        options = self.wanted.options
        run = self.workers.run if self.workers else pool.run
        graded = run(self.course, options, marking.grade, jobs, jobs=count, lost=marking.lost)
        with Pace(what, len(jobs)) as pace:
            for job, result in graded:
                pace.one()
                self.seconds.update(result.seconds)
                if result.row:
                    self.done[job.shelf] = result
                    if result.row.state is State.BROKEN:
                        pace.remark(f"{job.name}: {one_line((*result.row.notes, 'a check broke')[0])}")


def run(course: Course, wanted: Wanted) -> Batch:
    """Find, grade, write. Everything but what is in flight survives an interruption.

    Raises Mistake, CourseError or SubmissionError where nothing can be graded, SandboxError where no worker
    can be had.
    """
    if wanted.isolation == "none":
        raise Mistake(
            "`--isolation none` would run strangers' code inside the grader; take `process` at least"
        )
    if not wanted.spared:  # else a regrade's own, beside the results that it holds
        destination.vet(course, wanted.path, wanted.out)
    if wanted.scheduler is None:
        return _run(course, wanted, marking.conditions(course, wanted.options))
    if wanted.isolation == "process":
        raise Mistake(
            "`--isolation process` would let strangers' code reach the scheduler, which runs what it is sent"
        )
    from grader import cluster

    with cluster.connected(wanted.scheduler, course, wanted.options) as workers:
        return _run(course, wanted, workers.conditions, workers)


def _run(course: Course, wanted: Wanted, conditions: Conditions, workers: Cluster | None = None) -> Batch:
    deadline = lateness.deadline(wanted.due, wanted.late)
    known = roster.load(wanted.roster) if wanted.roster else Roster()
    lateness.vet(deadline, known.students)
    found = intake.find(
        wanted.path,
        course,
        known,
        on_duplicate=wanted.on_duplicate,
        out=wanted.spared or wanted.out,
        assignment=wanted.assignment,
    )
    if wanted.file_times:
        found = intake.by_file_times(found)
    with nullcontext() if wanted.spared else destination.held(wanted.out):
        order.keep(wanted)
        book = _graded(_Going(course, wanted, conditions, workers), found)
        if deadline:
            book = lateness.judged(book, deadline, _extensions(found))
        written = results.write(wanted.out, book)
        if wanted.similarity:
            from grader import similarity

            written += similarity.write(course, found, wanted.out)
    return Batch(_status(book), (*_said(book), *(f"wrote {path}" for path in written)))


def _graded(going: _Going, found: Intake) -> Gradebook:
    begun = time.monotonic()
    going.grade(_jobs(going.course, going.wanted, found))
    return _book(going, found, time.monotonic() - begun)


def _jobs(course: Course, wanted: Wanted, found: Intake) -> list[Job]:
    names = results.folders(entry.key for entry in found.entries)
    return [
        Job(entry, Shelf(wanted.out / names[entry.key]), results.label(entry.key)) for entry in found.entries
    ]


def _book(going: _Going, found: Intake, wall_s: float) -> Gradebook:
    """Everybody's rows, those without a submission too, in the order of names."""
    course, conditions, done = going.course, going.conditions, going.done.values()
    rows = [one.row for one in done if one.row]
    for student in found.missing:
        name, email = intake.fit(student.name), intake.fit(student.email)
        rows.append(Row(results.label(student.id), State.MISSING, name=name, email=email))
    return Gradebook(
        title=f"{course.title} {course.version}",
        rows=tuple(sorted(rows, key=lambda row: (row.student.casefold(), row.student))),
        possible={
            **{stage.slug: _possible(course, stage, conditions.public_only) for stage in course.stages},
            **{slug: worth for one in done for slug, worth in one.extra.items()},
        },
        titles={check: title for one in done for check, title in one.titles.items()},
        remarks=(*_isolation(conditions), *found.duplicates, *_aside(found)),
        conditions={name: str(getattr(conditions, name)) for name in conditions.__slots__},
        seconds={"wall": wall_s, **going.seconds},
    )


def _possible(course: Course, stage: Stage, public_only: bool) -> float:
    return possible_points(stage, hidden=len(course.tests(stage, public_only=public_only)) > 1)


def _extensions(found: Intake) -> dict[str, str]:
    entries = [entry for entry in found.entries if entry.student]
    return {results.label(entry.key): entry.student.extension for entry in entries if entry.student}


def _isolation(conditions: Conditions) -> list[str]:
    is_weak = conditions.isolation != "confined"
    return [
        f"isolation was `{conditions.isolation}`: what was graded could read files and the network"
    ] * is_weak


def _aside(found: Intake) -> list[str]:
    return [f"left aside, no submission: {', '.join(map(intake.fit, found.aside))}"] * bool(found.aside)


def _status(book: Gradebook) -> int:
    """The worst that happened: our own fault, something unreadable, a check that did not pass."""
    if book.count(State.BROKEN):
        return EXIT_BROKEN
    if book.count(State.UNREADABLE):
        return EXIT_USAGE
    return EXIT_FAILED if any(row.failed or row.unwritten for row in book.rows) else EXIT_PASSED


def _said(book: Gradebook) -> tuple[str, ...]:
    """The class in a few lines: how many of each, who needs a look, the median."""
    counts = ", ".join(f"{book.count(state)} {state}" for state in State if book.count(state))
    lines = [f"{plural(len(book.rows), 'student')}: {counts}"]
    if book.totals:
        of = points(sum(book.possible.values()))
        lines.append(f"median {points(statistics.median(book.totals))} of {of} points")
    told = {
        **{str(state): [row for row in book.rows if row.state is state] for state in NAMED},
        "not on the roster": [row for row in book.rows if not row.on_roster],
        "look at the checks that ended `protocol`": book.malformed,
    }
    lines += [f"{what}: {_names(rows)}" for what, rows in told.items() if rows]
    return (*lines, *book.remarks)


def _names(rows: Sequence[Row]) -> str:
    names = [row.student for row in rows[:FIRST]]
    return ", ".join([*names, f"{len(rows) - FIRST} more"] if len(rows) > FIRST else names)
