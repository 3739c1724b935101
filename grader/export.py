"""Grades handed on: a class's results, or one report, in the form that another system reads."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from grader import destination, overrides, results
from grader.errors import SubmissionError
from grader.faults import Mistake, written
from grader.gradebook import Gradebook, Row
from grader.marks import Mark
from grader.render import canvas, classroom50, github, gradescope, gradesheet, junit, moodle, otter
from grader.render.gradesheet import Filled
from grader.render.prose import points
from grader.report import EXIT_BROKEN, Report, student_view
from grader.results import Shelf

EACH = ("gradescope", "classroom50", "junit")  # a file a student; the other forms have the class in one
SUMMARY = "GITHUB_STEP_SUMMARY"
SUFFIX = {"junit": ".xml"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `grade export` is asked for."""

    results: Path
    to: str
    out: Path | None = None
    gradebook: str = ""
    assignment: str = ""
    template: Path | None = None
    column: str | None = None
    overrides: Path | None = None
    raw: bool = False
    hidden: str = "visible"
    force: bool = False


@dataclass(frozen=True, slots=True)
class _Class:
    """A class's results with everybody's marks."""

    wanted: Wanted
    book: Gradebook
    marks: tuple[Mark, ...]

    @property
    def possible(self) -> float:
        return sum(self.book.possible.values())

    @property
    def column(self) -> str:
        return self.wanted.column or self.book.title

    def report(self, row: Row) -> Report | None:
        return _report(self.wanted.results, row)


def run(wanted: Wanted) -> tuple[str, ...]:
    """Write a class's grades for another system; give what to say of it.

    Raises Mistake where something that was named can't be read, or can't be meant.
    """
    book = results.load(wanted.results)
    sources = {"template": wanted.template, "file of overrides": wanted.overrides}
    if wanted.out:
        destination.vet_export(wanted.out, wanted.results, sources, force=wanted.force)
    else:  # nbgrader has its own rules for what lateness costs
        wanted = replace(wanted, raw=True)
    given = overrides.load(wanted.overrides) if wanted.overrides else ()
    try:
        marks = overrides.applied(book, given, lambda row: _report(wanted.results, row), raw=wanted.raw)
    except ValueError as error:
        raise Mistake(f"`{wanted.overrides}`: {error}") from error
    class_ = _Class(wanted, book, marks)
    if wanted.out is None:
        said = _into_gradebook(class_)
    else:
        said = _each(class_, wanted.out) if wanted.to in EACH else _whole(class_, wanted.out)
    return (*said, *_remarks(class_))


def _report(folder: Path, row: Row) -> Report | None:
    return Shelf(folder / row.folder).kept() if row.folder else None


def _into_gradebook(class_: _Class) -> tuple[str, ...]:
    """Write everybody's points into nbgrader's gradebook."""
    from grader import nbgrader

    with nbgrader.opened(class_.wanted.gradebook, class_.wanted.assignment) as book:
        return nbgrader.hand_in(book, class_.marks, class_.report, class_.book.possible)


def _whole(class_: _Class, out: Path) -> tuple[str, ...]:
    """Write the one file that the whole class is in."""
    wanted = class_.wanted
    if wanted.to in ("canvas", "moodle") and wanted.template:
        done = _filled(class_, wanted.template)
    elif wanted.to == "canvas":
        raise Mistake("`--to canvas` fills a gradebook that Canvas exported: name it with `--template`")
    else:
        done = Filled(_rendered(class_), ())
    written(out, done.text)
    return (*done.remarks, f"wrote {out}")


def _filled(class_: _Class, template: Path) -> Filled:
    wanted = class_.wanted
    try:
        sheet = gradesheet.parse(template.read_bytes())
        if wanted.to == "canvas":
            return canvas.fill(sheet, class_.marks, class_.column, class_.possible)
        return moodle.fill(sheet, class_.marks, wanted.column or moodle.GRADE, class_.possible)
    except OSError as error:
        raise Mistake(f"`{template}` can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Mistake(f"`{template}` is not UTF-8: export it again, unchanged by a spreadsheet") from error
    except ValueError as error:
        raise Mistake(f"`{template}`: {error}") from error


def _rendered(class_: _Class) -> str:
    if class_.wanted.to == "moodle":
        return moodle.table(class_.marks, class_.column)
    if class_.wanted.to == "otter":
        return otter.render(class_.marks, class_.book.possible)
    return github.class_table(class_.marks, class_.book.possible)


def _each(class_: _Class, out: Path) -> tuple[str, ...]:
    """Write a file for each student who has a report and points."""
    suffix, without = SUFFIX.get(class_.wanted.to, ".json"), []
    count = 0
    for mark in class_.marks:
        report = class_.report(mark.row)
        if report is None or mark.total is None:
            without.append(mark.student)
            continue
        written(out / f"{mark.row.folder}{suffix}", _of_one(class_, mark, report))
        count += 1
    said = [f"nothing for {', '.join(without)}: no report, or no points that count"] * bool(without)
    return (*said, f"wrote {count} files in {out}")


def _of_one(class_: _Class, mark: Mark, report: Report) -> str:
    """One student's file, with the points that count in place of those of the report."""
    stages = tuple(replace(s, earned=mark.stages.get(s.slug, 0.0), scored=True) for s in report.stages)
    report = replace(report, stages=stages)
    wanted, penalty = class_.wanted, 0.0 if class_.wanted.raw else mark.row.penalty
    if wanted.to == "gradescope":
        return gradescope.render(report, score=mark.total, hidden=wanted.hidden, remark=_late(mark, penalty))
    if wanted.to == "junit":
        return junit.render(student_view(report))
    who = _identity(os.environ, mark.student, report.started)
    return classroom50.render(report, who, submitted_at=mark.row.submitted_at, share=1 - penalty)


def _late(mark: Mark, penalty: float) -> str:
    if not penalty or mark.row.hours_late is None:
        return ""
    return f"{points(mark.row.hours_late)} hours late: {points(100 * penalty)} % of the points are taken off."


def _remarks(class_: _Class) -> list[str]:
    """What a person should know of the points that were handed on."""
    lines = [f"by hand: {said}" for mark in class_.marks for said in mark.by_hand]
    blank = [f"{mark.student} ({mark.row.state})" for mark in class_.marks if mark.total is None]
    lines += [f"no points: {', '.join(blank)}"] * bool(blank)
    late = [mark.student for mark in class_.marks if mark.row.penalty]
    how = "earned, nothing taken off for lateness" if class_.wanted.raw else "less what lateness costs"
    lines += [f"points {how}: {', '.join(late)}"] * bool(late)
    return lines


# One report


@contextmanager
def handing_on(
    to: str, out: Path | None, work: Path, say: Callable[[str], None]
) -> Iterator[Callable[[Report], None]]:
    """Give a function that takes a report to hand on, as its student may see it; `say` writes to stdout.

    Until then GitHub takes no line of stdout for a command. Gradescope finds results even where nothing could
    be graded. Raises Mistake where nothing can be handed on, before anything is graded.
    """
    place, handed = _vetted(to, out), list[Report]()
    token = secrets.token_hex(16)
    if to == "github":
        say(github.stopped(token))
    try:
        yield handed.append
    except Exception as error:
        if to == "gradescope":
            written(place, _ungraded(error))
        raise
    for report in handed:
        _hand_on(report, to, place)
    if to == "github":
        for line in (github.resumed(token), *_annotations(handed, work)):
            say(line)


def _annotations(handed: Sequence[Report], work: Path) -> list[str]:
    """What GitHub shows beside the files, for which it wants to know where in the repository they lie."""
    here, there = Path.cwd(), work.resolve()
    is_within = there.is_dir() and there.is_relative_to(here) and there != here
    folder = f"{there.relative_to(here).as_posix()}/" if is_within else ""
    return [
        line for report in handed for line in github.workflow_commands(student_view(report), folder=folder)
    ]


def _vetted(to: str, out: Path | None) -> Path:
    """Where to write; in a workflow of GitHub's that goes without saying."""
    if to == "classroom50":
        _identity(os.environ, "nobody", "1970-01-01")
    given = out or (Path(os.environ[SUMMARY]) if to == "github" and os.environ.get(SUMMARY) else None)
    if given is None:
        raise Mistake(f"`--to {to}` needs a file to write: add `--out PATH`")
    return given


def _hand_on(report: Report, to: str, out: Path) -> None:
    view = student_view(report)
    if to == "gradescope":
        written(out, gradescope.render(report))
    elif to == "junit":
        written(out, junit.render(view))
    elif to == "github":
        add_summary(view, out)
    elif report.exit_status != EXIT_BROKEN:
        written(out, for_classroom50(report, os.environ))


def add_summary(view: Report, out: Path) -> Path:
    """Add a report to a step's summary, behind what other steps wrote and cut to what GitHub takes in all.

    Raises Mistake where it can't be written.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(github.render(view, room_bytes=github.LIMIT_BYTES - file.tell()))
    except OSError as error:
        raise Mistake(f"`{out}` can't be written: {error}") from error
    return out


def for_classroom50(report: Report, environment: Mapping[str, str]) -> str:
    """Classroom 50's result, in an environment that says whose it is. Raises Mistake where it does not."""
    return classroom50.render(report, _identity(environment, report.submission.id, report.started))


def _ungraded(error: Exception) -> str:
    if isinstance(error, SubmissionError):
        return gradescope.unreadable(f"This could not be graded: {error}")
    return gradescope.failed()


def _identity(environment: Mapping[str, str], owner: str, graded_at: str) -> classroom50.Identity:
    try:
        return classroom50.identity(environment, owner, graded_at)
    except ValueError as error:
        raise Mistake(str(error)) from error
