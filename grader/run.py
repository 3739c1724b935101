"""A run as the command line asks for it: open a session, grade and show, write what was wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grader import figures
from grader import report as reports
from grader.course import Course, Stage
from grader.errors import SubmissionError
from grader.faults import Mistake, written
from grader.report import EXIT_BROKEN, EXIT_PASSED, Report
from grader.terminal import Terminal

if TYPE_CHECKING:
    from grader.session import Options, Session
    from grader.submission import Submission

LAST = Path("results") / "last.json"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a command's options say; without a `submission` the course's own exercises are graded."""

    submission: Path | None = None
    json: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    to: str | None = None
    out: Path | None = None
    public_only: bool = False
    isolation: str = "auto"
    seed: str | None = None
    profile: str | None = None
    instructor: bool = False
    quiet: bool = False

    @property
    def options(self) -> Options:
        from grader.session import Options

        return Options(self.isolation, self.public_only, self.seed, self.profile)

    @property
    def terminal(self) -> Terminal:
        return Terminal(for_student=not self.instructor, quiet=self.quiet)


def grade(course: Course, stages: Sequence[Stage], wanted: Wanted) -> int:
    """Grade these stages; give the exit status."""
    with wanted.terminal as terminal, _handing_on(course, wanted, terminal) as hand_on:
        terminal.progress("starting …")
        report = graded(course, stages, wanted, terminal)
        terminal.end(report)
        _keep(course, report, wanted, terminal)
        write_files(report, wanted, terminal, _plots(course, wanted, terminal))
        hand_on(report)
        return report.exit_status


def grade_next(course: Course, wanted: Wanted) -> int:
    """Grade stage after stage until one is not done, and show that one.

    A stage is done when nothing counts against it: a skipped check or a noisy timing holds nobody back.
    """
    with wanted.terminal as terminal, _opened(course, wanted) as (session, work):
        for stage in course.stages:
            report = session.grade(work, [stage], on_start=terminal.expect)
            _keep(course, report, wanted, terminal)
            if report.exit_status != EXIT_PASSED:
                terminal.show(report)
                return report.exit_status
            terminal.say(f"{stage.slug}  {stage.title}: done")
        terminal.say("Every stage passes its public checks; `grade all` runs all the checks there are.")
        return EXIT_PASSED


def watch(course: Course, stage: Stage | None, wanted: Wanted) -> None:
    """Grade a stage now and at every save, or whichever stages' files are saved, until interrupted.

    One session is kept, so a grading costs no start. A given stage is graded at every stage file's save,
    since its checks may run an earlier stage's code.
    """
    from grader.session import Session
    from grader.watch import saves

    files = {stage.file: stage for stage in course.stages}
    saved = saves(course.exercises, list(files))
    with suppress(KeyboardInterrupt), wanted.terminal as terminal, Session(course, wanted.options) as session:
        if stage:
            _regrade(session, [stage], wanted, terminal)
        terminal.remark(f"watching `{course.exercises}`; Ctrl-C ends it")
        for names in saved:
            terminal.remark(f"\nsaved: {', '.join(names)}")
            _regrade(session, [stage] if stage else [files[name] for name in names], wanted, terminal)


def show_last(course: Course, wanted: Wanted) -> None:
    """Show the last report on the course's exercises again."""
    path = course.root / LAST
    if not path.is_file():
        raise Mistake(
            f"no report yet: `{path}` is not there; run a stage first, `grade {course.stages[0].slug}`"
        )
    report = reports.from_json(path.read_text(encoding="utf-8"))
    with wanted.terminal as terminal, _handing_on(course, wanted, terminal) as hand_on:
        terminal.show(report)
        write_files(report, wanted, terminal, _plots(course, wanted, terminal))
        hand_on(report)


def write_files(report: Report, wanted: Wanted, terminal: Terminal, plots: Sequence[str] = ()) -> None:
    """Write the files that were asked for, in the instructor's or the student's view; `plots` go on the page.

    Raises Mistake where one can't be written.
    """
    view = report if wanted.instructor else reports.student_view(report)
    page = partial(_html, plots=plots)
    for path, render in ((wanted.json, reports.to_json), (wanted.html, page), (wanted.junit, _junit)):
        if path:
            terminal.remark(f"wrote {written(_spared(path, report), render(view))}")


@contextmanager
def _handing_on(course: Course, wanted: Wanted, terminal: Terminal) -> Iterator[Callable[[Report], object]]:
    """A function that hands a report on to the system of `--to`, if there is one."""
    if wanted.to is None:
        if wanted.out:
            raise Mistake(f"`--out {wanted.out}` needs a form to write: add `--to FORMAT`")
        yield lambda report: None
        return
    from grader import export

    work = wanted.submission or course.exercises
    with export.handing_on(wanted.to, wanted.out, work, terminal.say) as hand_on:
        yield hand_on


def graded(course: Course, stages: Sequence[Stage], wanted: Wanted, terminal: Terminal) -> Report:
    """Grade one stage after the other, or where it pays two abreast."""
    from grader import abreast
    from grader.submission import load

    if abreast.worthwhile(stages, wanted.options):
        work = load(wanted.submission or course.exercises, course)
        return abreast.grade(
            course,
            wanted.options,
            work,
            stages,
            terminal.stage,
            lambda count, total: terminal.progress(f"{count} of {total} parts graded"),
        )
    with _opened(course, wanted) as (session, work):
        return session.grade(work, stages, on_start=terminal.start, on_outcome=terminal.outcome)


@contextmanager
def _opened(course: Course, wanted: Wanted) -> Iterator[tuple[Session, Submission]]:
    """A session, whose worker side warms up while the submission is read, and the submission."""
    from grader.session import Session
    from grader.submission import load

    with Session(course, wanted.options) as session:
        yield session, load(wanted.submission or course.exercises, course)


def _regrade(session: Session, stages: Sequence[Stage], wanted: Wanted, terminal: Terminal) -> None:
    from grader.submission import load

    course = session.course
    try:
        work = load(course.exercises, course)
        report = session.grade(work, stages, on_start=terminal.start, on_outcome=terminal.outcome)
    except SubmissionError as error:  # a save may be caught half done
        terminal.remark(f"grade: the submission: {error}")
        return
    terminal.end(report)
    _keep(course, report, wanted, terminal)


def _keep(course: Course, report: Report, wanted: Wanted, terminal: Terminal) -> None:
    """Keep the student's view for `grade report`, where the work is the course's own exercises."""
    if not _is_own(course, wanted):
        return
    try:
        reports.write(_spared(course.root / LAST, report), reports.to_json(reports.student_view(report)))
    except OSError as error:
        terminal.remark(f"`{LAST}` can't be written, so `grade report` will not know of this run: {error}")


def _is_own(course: Course, wanted: Wanted) -> bool:
    """Whether the work is the course's own exercises."""
    return wanted.submission is None or wanted.submission.resolve() == course.exercises.resolve()


def _plots(course: Course, wanted: Wanted, terminal: Terminal) -> tuple[str, ...]:
    """What `grade plot` drew, for the page on the course's own exercises: never for somebody's submission."""
    if not wanted.html or not _is_own(course, wanted):
        return ()
    plots, remarks = figures.for_page(course)
    for remark in remarks:
        terminal.remark(remark)
    return plots


def _spared(path: Path, report: Report) -> Path:
    """Where to write a report: if it is broken, which is our own fault, beside what is there already."""
    if report.exit_status != EXIT_BROKEN or not path.exists():
        return path
    return path.with_name(f"{path.stem}.broken{path.suffix}")


def _html(report: Report, plots: Sequence[str]) -> str:
    from grader.render import html

    return html.render(report, plots)


def _junit(report: Report) -> str:
    from grader.render import junit

    return junit.render(report)
