"""`grade ci`: grade a push, and say it where the platform shows it; sealed checks are opened in memory.

All that is shown and written is the student's view: a log, a summary and an artifact are theirs to read.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grader import export, given, run, seal
from grader import report as reports
from grader.course import Course
from grader.faults import Mistake, written
from grader.outcome import Verdict
from grader.render import github, gitlab, gradescope, junit
from grader.render.prose import points
from grader.report import EXIT_BROKEN, EXIT_FAILED, EXIT_PASSED, Report, StageResult, student_view
from grader.seal import SealError
from grader.terminal import Terminal

KEY = "GRADE_KEY"
HOW = ("seed", "profile", "public_only")  # options that mean here what they mean everywhere

Environment = MutableMapping[str, str]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command's options say; `sealed` is looked for beside the course where it is not named."""

    out: Path
    require: tuple[str, ...] = ()
    min_points: float | None = None
    sealed: Path | None = None
    isolation: str = "auto"
    seed: str | None = None
    profile: str | None = None
    public_only: bool = False


def grade(course: Course, wanted: Wanted, environment: Environment, say: Say) -> int:
    """Grade the course's exercises; give the exit status.

    Raises Mistake where something asked for can't be meant, CourseError for an unknown required stage.
    """
    key = environment.pop(KEY, "")  # before any process starts: none inherits it
    required = [course.stage(slug).slug for slug in wanted.require]
    possible = sum(stage.points for stage in course.stages)
    if wanted.min_points is not None and not 0 <= wanted.min_points <= possible:
        raise Mistake(
            f"`--min-points {wanted.min_points:g}` can't be asked for: there are {points(possible)}"
        )
    level = "confined" if wanted.isolation == "auto" else wanted.isolation
    if level == "none":
        raise Mistake(
            "`--isolation none` would run what was pushed inside the grader; take `process` at least"
        )
    fault = None
    try:
        course, remark = _with_hidden(course, wanted, key, level)
    except SealError as error:
        fault, remark = error, ""
    how = run.Wanted(isolation=level, **{name: getattr(wanted, name) for name in HOW})
    with _fenced(environment, say), Terminal() as terminal:
        report = student_view(run.graded(course, course.stages, how, terminal))
        terminal.end(report)
    for line in filter(None, (remark, str(fault) if fault else "")):
        say(f"grade: {line}")
    places = [
        *_files(report, wanted.out, environment),
        *_platforms(course, report, wanted.out, environment, say),
    ]
    say(f"wrote {', '.join(map(str, places))}")
    if fault:
        say("grade: the hidden checks were not run: this is not the student's fault")
        return EXIT_BROKEN
    return _status(report, required, wanted.min_points, say)


def _with_hidden(course: Course, wanted: Wanted, key: str, level: str) -> tuple[Course, str]:
    """The course with its sealed checks, if there are any to be had, and what to say where there are not.

    Raises SealError where they are there and can't be opened, or not be kept from what is graded.
    """
    path = wanted.sealed or course.root / seal.FILE
    if wanted.public_only or not path.is_file():
        if wanted.sealed:
            raise SealError(f"`{path}` is not there: seal the hidden checks with `grade seal`")
        return course, ""
    if not key:
        return course, f"`{path.name}` stays sealed: no {KEY} here, as in a pull request from a fork"
    if changed := given.changed(course.root):
        raise SealError(f"`{path.name}` stays sealed: not as it was given: {', '.join(changed[:3])}")
    if level != "confined":
        raise SealError(f"`{path.name}` stays sealed: at isolation `{level}` what is graded could read it")
    return seal.unsealed(course, path, key), ""


@contextmanager
def _fenced(environment: Environment, say: Say) -> Iterator[None]:
    """On GitHub no line of what is said meanwhile is a workflow command, whatever a student made it say."""
    token = secrets.token_hex(16)
    if not _is_on(environment, "GITHUB_ACTIONS"):
        yield
        return
    say(github.stopped(token))
    try:
        yield
    finally:
        say(github.resumed(token))


def _files(report: Report, out: Path, environment: Environment) -> Iterator[Path]:
    """Write the report in the forms that others read; name the files."""
    forms = {
        "report.json": reports.to_json(report),
        "junit.xml": junit.render(report),
        "results.json": gradescope.render(report),
    }
    if environment.get("CLASSROOM") and report.exit_status != EXIT_BROKEN:
        forms["result.json"] = export.for_classroom50(report, environment)
    for name, text in forms.items():
        yield written(out / name, text)


def _platforms(
    course: Course, report: Report, out: Path, environment: Environment, say: Say
) -> Iterator[Path]:
    """Tell the platform, where there is one: annotations, summary, figures for later steps."""
    folder = course.exercises
    here = Path(environment.get("GITHUB_WORKSPACE") or environment.get("CI_PROJECT_DIR") or course.root)
    prefix = f"{folder.relative_to(here).as_posix()}/" if folder.is_relative_to(here) else "exercises/"
    figures = {"points": points(report.earned), "max-points": points(report.possible)}
    if _is_on(environment, "GITHUB_ACTIONS"):
        for line in github.workflow_commands(report, folder=prefix):
            say(line)
        if summary := environment.get(export.SUMMARY):
            yield export.add_summary(report, Path(summary))
        if output := environment.get("GITHUB_OUTPUT"):
            yield _appended(Path(output), "".join(f"{name}={value}\n" for name, value in figures.items()))
    if _is_on(environment, "GITLAB_CI"):
        yield written(out / gitlab.QUALITY, gitlab.render(report, folder=prefix))
        upper = (f"{name.upper().replace('-', '_')}={value}\n" for name, value in figures.items())
        yield written(out / gitlab.FIGURES, "".join(upper))


def _status(report: Report, required: Sequence[str], least: float | None, say: Say) -> int:
    """What the push is worth: the stages and points asked for, or else every check."""
    if report.exit_status == EXIT_BROKEN or not (required or least is not None):
        return report.exit_status
    missed = [stage.slug for stage in report.stages if stage.slug in required and not _holds(stage)]
    if missed:
        say(f"grade: required, and not passed: {', '.join(missed)}")
    is_short = least is not None and report.earned < least
    if is_short:
        say(f"grade: {points(report.earned)} points, and {points(least or 0)} are required")
    return EXIT_FAILED if missed or is_short else EXIT_PASSED


def _holds(stage: StageResult) -> bool:
    """Whether a stage is passed, set aside timings that this machine was too busy to judge."""
    return all(o.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE) for o in stage.outcomes)


def _is_on(environment: Environment, name: str) -> bool:
    return environment.get(name, "").lower() == "true"


def _appended(path: Path, text: str) -> Path:
    """Add to a file of the platform's, which other steps write to."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Mistake(f"`{path}` can't be written: {error}") from error
    return path
