"""The course checks itself: stubs fresh, solutions full, stubs nought, samples as declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from grader import course_page, groundwork, pool, samples, stubs, submission
from grader.course import Course
from grader.outcome import Part, Verdict
from grader.report import Report
from grader.samples import Sample
from grader.session import Options, Session

Progress = Callable[[str], None]

RIGHT = (Verdict.PASS, Verdict.INCONCLUSIVE)
OPTIONS = Options(seed="dev-check")  # the same on every machine, and no secret is made for it


def check(course: Course, *, progress: Progress = lambda text: None) -> list[str]:
    """Find what is wrong with the course, one line each; an empty list is health."""
    problems = [
        f"`{path}` is not what its solution makes: run `grade dev stubs`"
        for path in stubs.stale_stubs(course.root)
    ]
    problems += [
        f"`{path}`: its table is not what the manifest says: run `grade dev stubs`"
        for path in course_page.stale(course)
    ]
    with Session(course, OPTIONS) as session:
        progress("solutions and stubs")
        problems += _solutions(session, course)
        problems += _stubs(session, course)
    everything = [*samples.load_all(course, "correct"), *samples.load_all(course, "wrong")]
    seen: set[str] = set()
    for number, (sample, report) in enumerate(pool.run(course, OPTIONS, grade_sample, everything), 1):
        progress(f"samples {number}/{len(everything)}: {sample.kind}/{sample.name}")
        problems += judge_sample(sample, report)
        seen |= failed_checks(report)
    return problems + _never_failing(course, seen)


def grade_sample(session: Session, sample: Sample) -> Report:
    """Grade a sample on its own stage, on top of our solutions of what that builds on.

    By the clock only where it brings files for those too: our own are timed with the solutions.
    """
    course = session.course
    stage = course.stage(sample.stage)
    files = {name: (course.solutions / name).read_bytes() for name in groundwork.beside(course, stage)}
    files |= sample.handed_in
    part = Part.ALL if len(sample.files) > 1 else Part.UNTIMED
    return session.grade(submission.of_files(sample.name, files), [stage], part)


def failed_checks(report: Report) -> set[str]:
    """Ids of the checks that counted against a report's submission."""
    return {o.check.id for s in report.stages for o in s.outcomes if o.verdict is not Verdict.PASS}


def judge_sample(sample: Sample, report: Report) -> Iterator[str]:
    """Say where a sample's report is not what it declares."""
    name = f"sample `{sample.kind}/{sample.name}`"
    failed = failed_checks(report)
    for outcome in (o for s in report.stages for o in s.outcomes if o.verdict is Verdict.BROKEN):
        yield f"{name}: `{outcome.check.id}` is broken: {outcome.message}"
    for check_id in sorted(failed - set(sample.fails) - set(sample.may_fail)):
        yield f"{name}: fails `{check_id}`, which it does not declare"
    for check_id in sorted(set(sample.fails) - failed):
        yield f"{name}: passes `{check_id}`, which it declares to fail"
    claimed = set(report.diagnoses)
    for bug in sorted(claimed - set(sample.diagnoses)):
        yield f"{name}: is taken for the known bug `{bug}`, which it does not declare"
    for bug in sorted(set(sample.diagnoses) - claimed):
        yield f"{name}: is not recognised as the known bug `{bug}`, which it declares"
    if sample.kind == "wrong" and not sample.fails:
        yield f"{name}: declares no check to fail"


def _solutions(session: Session, course: Course) -> Iterator[str]:
    report = session.grade(submission.load(course.solutions, course), course.stages)
    for stage in report.stages:
        unclear = any(o.verdict is Verdict.INCONCLUSIVE for o in stage.outcomes)  # a busy machine's fault
        lost = ", ".join(o.check.id for o in stage.outcomes if o.verdict not in RIGHT)
        if lost or (stage.earned != stage.possible and not unclear):
            yield f"the solution of `{stage.slug}` earns {stage.earned:g} of {stage.possible:g}: {lost}"


def _stubs(session: Session, course: Course) -> Iterator[str]:
    """Untouched stubs must earn nothing, and every check must be seen refusing them."""
    files = {
        s.file: stubs.of_stage(course, s).encode()
        for s in course.stages
        if (course.solutions / s.file).is_file()
    }
    report = session.grade(submission.of_files("stubs", files), course.stages)
    for stage in report.stages:
        passed = [o.check.id for o in stage.outcomes if o.verdict is not Verdict.TODO]
        if passed:
            yield f"the untouched stub of `{stage.slug}` is not `todo` in {', '.join(passed)}"


def _never_failing(course: Course, seen: Iterable[str]) -> list[str]:
    """A check that no wrong sample fails has not shown that it can."""
    with Session(course, Options(isolation="none", seed="dev-check")) as session:
        report = session.grade(submission.of_files("nothing", {}), course.stages)
    every = {o.check.id for stage in report.stages for o in stage.outcomes}
    return [f"check `{check_id}` is failed by no wrong sample" for check_id in sorted(every - set(seen))]
