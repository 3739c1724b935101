"""Grade a class: every submission by the one path, side by side, and go on where an earlier run stopped.

Stages with checks by the clock are graded last and one at a time, so that no neighbour disturbs them; with
a single job everything is graded at once.
"""

from __future__ import annotations

import ast
import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from grader import __version__, hardware, intake, marking, pool, results, roster, session
from grader.course import Course, Stage
from grader.faults import Mistake
from grader.gradebook import Gradebook, Row, State
from grader.intake import Intake
from grader.marking import Done, Job
from grader.pace import Pace
from grader.render.prose import plural, points
from grader.report import EXIT_BROKEN, EXIT_FAILED, EXIT_PASSED, EXIT_USAGE
from grader.results import PARTIAL, Conditions, Shelf
from grader.roster import Roster
from grader.scoring import possible_points
from grader.session import Options


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command's options say."""

    path: Path
    out: Path
    roster: Path | None = None
    on_duplicate: str = "latest"
    jobs: int = 0
    force: bool = False
    isolation: str = "auto"
    public_only: bool = False
    seed: str | None = None
    profile: str | None = None

    @property
    def options(self) -> Options:
        """How to grade: strangers' code is confined, or the caller said that it need not be."""
        level = "confined" if self.isolation == "auto" else self.isolation
        return Options(level, self.public_only, self.seed, self.profile)


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished batch: the exit status, and what to say of it."""

    status: int
    lines: tuple[str, ...]


def run(course: Course, wanted: Wanted) -> Batch:
    """Find, grade, write. Everything but what is in flight survives an interruption.

    Raises Mistake, CourseError or SubmissionError where nothing can be graded, SandboxError where no worker
    can be had.
    """
    if wanted.isolation == "none":
        raise Mistake(
            "`--isolation none` would run strangers' code inside the grader; take `process` at least"
        )
    begun = time.monotonic()
    conditions = _conditions(course, wanted.options)
    known = roster.load(wanted.roster) if wanted.roster else Roster()
    found = intake.find(wanted.path, course, known, on_duplicate=wanted.on_duplicate, out=wanted.out)
    done = _graded(course, wanted, conditions, _jobs(course, wanted, found))
    book = _book(course, conditions, found, list(done.values()), time.monotonic() - begun)
    written = results.write(wanted.out, book)
    return Batch(_status(book), (*_said(book), *(f"wrote {path}" for path in written)))


def _conditions(course: Course, options: Options) -> Conditions:
    """What every report of this batch will say of itself; makes the seed's secret, if there is none."""
    level = session.level_of(options.isolation)
    _, seed_id = session.secret_of(course, options)
    profiles = hardware.load_all(course.profiles)
    profile, _ = hardware.choose(profiles, hardware.this_machine(), options.profile)
    return Conditions(course.digest, __version__, seed_id, level, profile.name, options.public_only)


def _jobs(course: Course, wanted: Wanted, found: Intake) -> list[Job]:
    names = results.folders(entry.key for entry in found.entries)
    slugs = tuple(stage.slug for stage in course.stages)
    return [
        Job(entry, Shelf(wanted.out / names[entry.key]), intake.fit(entry.key), slugs)
        for entry in found.entries
    ]


def _graded(course: Course, wanted: Wanted, conditions: Conditions, jobs: Sequence[Job]) -> dict[Shelf, Done]:
    """Grade what is not graded yet, in one pass or two; what comes of each by its shelf."""
    done: dict[Shelf, Done] = {}
    for job in [] if wanted.force else jobs:
        if kept := marking.current(job, course, conditions):
            done[job.shelf] = marking.told(job, kept)
    waiting = [job for job in jobs if job.shelf not in done]
    count = min(len(waiting), wanted.jobs or os.cpu_count() or 1)
    clocked = tuple(s.slug for s in course.stages if _by_the_clock(course, s, wanted.public_only))
    grade = partial(_pass, course, wanted, done)
    if count < 2 or not 0 < len(clocked) < len(course.stages):
        grade("graded", waiting, count)
        return done
    rest = tuple(stage.slug for stage in course.stages if stage.slug not in clocked)
    first = [replace(job, slugs=rest) for job in waiting]
    if not wanted.force:
        first = [job for job in first if not marking.current(job, course, conditions, PARTIAL)]
    grade("graded but for the clock", first, count)
    last = [replace(job, slugs=clocked, is_last=True) for job in waiting if job.shelf not in done]
    grade("timed, one at a time", last, 1)
    return done


def _pass(
    course: Course, wanted: Wanted, done: dict[Shelf, Done], what: str, jobs: Sequence[Job], count: int
) -> None:
    """Grade some; note those that are whole, and everybody's seconds."""
    with Pace(what, len(jobs)) as pace:
        graded = pool.run(course, wanted.options, marking.grade, jobs, jobs=count, lost=marking.lost)
        for job, result in graded:
            pace.one()
            if result.row:
                done[job.shelf] = result
                if result.row.state is State.BROKEN:
                    pace.remark(f"{job.name}: {result.row.notes[0] if result.row.notes else 'a check broke'}")


def _by_the_clock(course: Course, stage: Stage, public_only: bool) -> bool:
    """Whether a stage has checks marked `@check(clock=True)`."""
    return any(
        isinstance(node, ast.keyword) and node.arg == "clock" and ast.unparse(node.value) == "True"
        for path in course.tests(stage, public_only=public_only)
        if path.is_file()
        for node in ast.walk(ast.parse(path.read_bytes()))
    )


def _book(
    course: Course, conditions: Conditions, found: Intake, done: Sequence[Done], wall_s: float
) -> Gradebook:
    """Everybody's rows, those without a submission too, in the order of names."""
    rows = [one.row for one in done if one.row]
    rows += [
        Row(intake.fit(s.id), State.MISSING, name=intake.fit(s.name), email=intake.fit(s.email))
        for s in found.missing
    ]
    seconds: Counter[str] = Counter()
    for one in done:
        seconds.update(one.seconds)
    possible = {
        stage.slug: possible_points(
            stage, hidden=len(course.tests(stage, public_only=conditions.public_only)) > 1
        )
        for stage in course.stages
    }
    return Gradebook(
        title=f"{course.title} {course.version}",
        rows=tuple(sorted(rows, key=lambda row: (row.student.casefold(), row.student))),
        possible=possible,
        titles={check: title for one in done for check, title in one.titles.items()},
        remarks=(*found.duplicates, *(f"left aside: {intake.fit(name)}" for name in found.aside)),
        conditions={name: str(getattr(conditions, name)) for name in conditions.__slots__},
        seconds={"wall": wall_s, **seconds},
    )


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
    strangers = [row.student for row in book.rows if not row.on_roster]
    lines += [f"not on the roster: {', '.join(strangers)}"] * bool(strangers)
    return (*lines, *book.remarks)
