"""One submission of a batch: read, graded, its reports written, and the row that it comes to."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from grader import __version__, abreast, by_hand, hardware, intake, session
from grader.course import Course, Stage
from grader.errors import CourseError, SandboxError, SubmissionError
from grader.gradebook import Row, State, row_of
from grader.intake import Entry
from grader.outcome import Part
from grader.report import EXIT_BROKEN, Report, SubmissionInfo
from grader.results import PARTIAL, REPORT, Conditions, Shelf
from grader.session import Options
from grader.submission import Submission

UNREADABLE = "can't be read: "


class Grader(Protocol):
    """What grades one submission after another: a session, here or at a worker of a cluster."""

    @property
    def course(self) -> Course: ...

    def grade(self, submission: Submission, stages: Sequence[Stage], part: Part, /) -> Report: ...


@dataclass(frozen=True, slots=True)
class Job:
    """One submission to grade: which, where its reports go, under which name, and which of the checks.

    Those by the clock, where they are apart, come last and make the report whole.
    """

    entry: Entry
    shelf: Shelf
    name: str
    part: Part = Part.ALL


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a job: the row, or none where stages are left to grade; the titles of what was failed.

    `extra` are points possible beside the course's stages, such as a person gave.
    """

    row: Row | None = None
    titles: dict[str, str] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def grade(one: Grader, job: Job) -> Done:
    """Grade one submission in a warm session and write its reports; a fault of ours costs it alone."""
    try:
        return _grade(one, job)
    except CourseError:
        raise
    except Exception as error:
        return lost(job, f"the grader failed over it: {type(error).__name__}: {error}")


def conditions(course: Course, options: Options) -> Conditions:
    """What every report graded so will say of itself; makes the seed's secret, if there is none."""
    level = session.level_of(options.isolation)
    _, seed_id = session.secret_of(course, options)
    profiles = hardware.load_all(course.profiles)
    profile, _ = hardware.choose(profiles, hardware.this_machine(), options.profile)
    return Conditions(course.digest, __version__, seed_id, level, profile.name, options.public_only)


def current(job: Job, course: Course, conditions: Conditions, name: str = REPORT) -> Report | None:
    """The report that lies there already, where grading again would give the same."""
    kept = job.shelf.kept(name)
    return kept if kept and conditions.hold_for(kept, _work(job, course).info.digest) else None


def told(job: Job, report: Report) -> Done:
    """The row of a whole report; where it is broken and an earlier one is kept, with that one's points."""
    row = row_of(report, job.shelf.folder.name, State.UNREADABLE if _is_unreadable(report) else State.GRADED)
    if row.state is State.BROKEN:
        row = _earlier(job, "a check broke by the grader's own fault") or row
    outcomes = [outcome for stage in report.stages for outcome in stage.outcomes]
    titles = {o.check.id: o.check.title for o in outcomes if o.verdict.counts_against}
    return Done(_personal(row, job.entry), titles, by_hand.possible(report))


def lost(job: Job, why: str = "the grader died over it") -> Done:
    """What comes of a submission that the grader itself failed over; the next run grades it again."""
    return Done(_personal(_earlier(job, why) or Row(job.name, State.BROKEN, notes=(why,)), job.entry))


def _earlier(job: Job, why: str) -> Row | None:
    """The row of an earlier good report, which a fault of ours does not take away; None without one."""
    kept = job.shelf.kept()
    if kept is None or kept.exit_status == EXIT_BROKEN:
        return None
    row = row_of(kept, job.shelf.folder.name, State.BROKEN)
    return replace(row, notes=(f"{why}; these are the points of {kept.started}", *row.notes))


def _grade(one: Grader, job: Job) -> Done:
    course = one.course
    begun = time.perf_counter()
    work = _work(job, course)
    read = time.perf_counter()
    report = one.grade(work, course.timed if job.part is Part.TIMED else course.stages, job.part)
    graded = time.perf_counter()
    checks_s = sum(outcome.seconds for stage in report.stages for outcome in stage.outcomes)
    done = _kept(job, course, report)
    around_s, write_s = graded - read - checks_s, time.perf_counter() - graded
    seconds = {"read": read - begun, "checks": checks_s, "around checks": around_s, "write": write_s}
    return replace(done, seconds=seconds)


def _kept(job: Job, course: Course, report: Report) -> Done:
    """Write the report, or the part that it is; the last part makes it whole."""
    if job.part is Part.UNTIMED:
        job.shelf.keep_part(report)
        return Done()
    if job.part is Part.TIMED:
        before = job.shelf.kept(PARTIAL)
        if before is None or before.submission.digest != report.submission.digest:
            raise SandboxError("it changed while it was graded")
        report = abreast.joined(course, [before, report])
    report = by_hand.carried(job.shelf.kept(), report)
    job.shelf.keep(report)
    return told(job, report)


def _work(job: Job, course: Course) -> Submission:
    """The submission, or where it can't be read an empty one that says why."""
    try:
        return intake.load(job.entry, course, job.name)
    except SubmissionError as error:
        reason = f"{UNREADABLE}{error}"
        digest = hashlib.sha256(reason.encode("utf-8", "backslashreplace")).hexdigest()
        return Submission(SubmissionInfo(job.name, digest, (reason,)), {})


def _personal(row: Row, entry: Entry) -> Row:
    student = entry.student
    name, email = (intake.fit(student.name), intake.fit(student.email)) if student else ("", "")
    return replace(
        row,
        name=name,
        email=email,
        late=entry.late,
        on_roster=not entry.is_stranger,
        submitted_at=entry.submitted_at,
        account=entry.account,
    )


def _is_unreadable(report: Report) -> bool:
    return any(note.startswith(UNREADABLE) for note in report.submission.notes)
