"""Grade the solutions, the untouched stubs and some wrong submissions; show what the grader makes of each.

`make demo` runs this. It exits 1 where a grader that works would have judged otherwise, so it is a check of
the product as well.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader import course as courses
from grader import pool, samples, stubs, submission
from grader import report as reports
from grader.course import Course, Stage
from grader.errors import GraderError
from grader.outcome import Verdict
from grader.render import html
from grader.render.prose import one_line, points
from grader.report import EXIT_BROKEN, EXIT_FAILED, EXIT_PASSED, Report, StageResult
from grader.samples import Sample
from grader.session import Options, Session
from grader.submission import Submission

PAGE = Path("results") / "demo.html"
WRONG = (
    "whole_text_fed_every_step",
    "no_synchronize",
    "bytes_are_four",
)
EVENING = ("offset_only_for_one_token", "wall_clock")
EVENING_NAME = "after one evening"
LAST_SHOWN = "stage4"  # the stages that build the cache; with all of them it would be no quick look
PIPE_WIDTH = 100
MESSAGE_CHARACTERS = 280


class Worth(StrEnum):
    """What a stage file is worth, and so what must become of it: all the points, some of them, or none."""

    RIGHT = "right"
    WRONG = "wrong"
    UNWRITTEN = "unwritten"


@dataclass(frozen=True, slots=True)
class Case:
    """A submission to show, and what its file is worth in each stage that is graded."""

    name: str
    about: str
    work: Submission
    worth: dict[str, Worth]


@dataclass(frozen=True, slots=True)
class Graded:
    """A case and what the grader found."""

    case: Case
    report: Report


def whole_cases(course: Course, stages: Sequence[Stage]) -> list[Case]:
    """The two submissions whose points are known beforehand: every solution, every untouched stub."""
    solutions, untouched = solution_files(course, stages), stub_files(course, stages)
    return [
        Case(
            "the solutions",
            "what the instructor has",
            submission.of_files("solutions", solutions),
            {stage.slug: Worth.RIGHT for stage in stages},
        ),
        Case(
            "the untouched stubs",
            "what a student starts from",
            submission.of_files("stubs", untouched),
            {stage.slug: Worth.UNWRITTEN for stage in stages},
        ),
    ]


def wrong_case(sample: Sample) -> Case:
    """A sample with one known bug, in its own stage."""
    work = submission.of_files(sample.name, sample.handed_in)
    return Case(sample.name.replace("_", " "), sample.note, work, {sample.stage: Worth.WRONG})


def evening_case(course: Course, bugs: Sequence[Sample]) -> Case:
    """A student half way: some stages right, some with a bug, the last one so far not begun."""
    stages = shown(course)
    unwritten = stages[-1]
    files = solution_files(course, stages)
    worth = {stage.slug: Worth.RIGHT for stage in stages}
    for sample in bugs:
        files |= sample.handed_in
        worth[sample.stage] = Worth.WRONG
    files |= stub_files(course, [unwritten])
    worth[unwritten.slug] = Worth.UNWRITTEN
    about = "one student: a bug here and there, one stage not begun"
    work = submission.of_files(EVENING_NAME.replace(" ", "-"), files)
    return Case(EVENING_NAME, about, work, worth)


def shown(course: Course) -> Sequence[Stage]:
    """The stages that the demo is about."""
    return course.stages[: course.stages.index(course.stage(LAST_SHOWN)) + 1]


def solution_files(course: Course, stages: Iterable[Stage]) -> dict[str, bytes]:
    """The stages' solutions by file name."""
    return {stage.file: (course.solutions / stage.file).read_bytes() for stage in stages}


def stub_files(course: Course, stages: Iterable[Stage]) -> dict[str, bytes]:
    """The stages' stubs made afresh: the ones in `exercises/` may hold somebody's work."""
    made = {}
    for stage in stages:
        source = (course.solutions / stage.file).read_text(encoding="utf-8")
        made[stage.file] = stubs.stub_text(source, stage.slug).encode()
    return made


def grade(session: Session, case: Case) -> Report:
    """Grade a case on the stages that it is about."""
    return session.grade(case.work, [session.course.stage(slug) for slug in case.worth])


def faults(graded: Graded) -> Iterator[str]:
    """Say where the points are not what the case is worth."""
    for stage in graded.report.stages:
        worth = graded.case.worth[stage.slug]
        where = f"{graded.case.name}, {stage.slug}"
        broken = [o for o in stage.outcomes if o.verdict is Verdict.BROKEN]
        gained = f"{points(stage.earned)} of {points(stage.possible)} points"
        if broken:
            yield f"{where}: {broken[0].check.id} is broken: {one_line(broken[0].message)}"
        elif worth is Worth.RIGHT and (stage.earned != stage.possible or not stage.passed):
            yield f"{where}: {gained}, though it is right"
        elif worth is Worth.WRONG and stage.earned >= stage.possible:
            yield f"{where}: {gained}, though it is wrong"
        elif worth is Worth.UNWRITTEN and stage.earned:
            yield f"{where}: {gained}, though nothing is written"


def table(rows: Iterable[Graded]) -> Table:
    """All cases: what each is, the first thing its student is told, and points and verdicts a stage."""
    drawn = Table(show_lines=True, pad_edge=False)
    drawn.add_column("submission, and what the grader says of it first", ratio=1)
    drawn.add_column("points", no_wrap=True)
    drawn.add_column("checks", no_wrap=True)
    for row in rows:
        stages = row.report.stages
        drawn.add_row(
            Text("\n").join([Text(row.case.name, "bold"), Text(row.case.about, "dim"), *_told(row.report)]),
            Text("\n").join(_points(stage) for stage in stages),
            "\n".join(_tally(stage) for stage in stages),
        )
    return drawn


def _points(stage: StageResult) -> Text:
    colour = "green" if stage.earned == stage.possible else "yellow" if stage.earned else "red"
    return Text.assemble(f"{stage.slug}  ", (f"{points(stage.earned)} of {points(stage.possible)}", colour))


def _tally(stage: StageResult) -> str:
    counted = Counter(outcome.verdict for outcome in stage.outcomes)
    return ", ".join(f"{counted[verdict]} {verdict}" for verdict in Verdict if counted[verdict])


def _told(report: Report) -> list[Text]:
    """The first message of a check that did not pass, as the student sees it, if there is one."""
    outcomes = [o for stage in reports.student_view(report).stages for o in stage.outcomes]
    first = next((o for o in outcomes if o.verdict is not Verdict.PASS and o.message), None)
    if first is None:
        return []
    message = textwrap.shorten(one_line(first.message), MESSAGE_CHARACTERS, placeholder=" …")
    return [Text(f"{first.verdict}: {message}")]


def cases_of(course: Course) -> list[Case]:
    """What the demo shows, in its order."""
    wrong, bugs = ([_sample(course, name) for name in names] for names in (WRONG, EVENING))
    return [*whole_cases(course, shown(course)), evening_case(course, bugs), *map(wrong_case, wrong)]


def _sample(course: Course, name: str) -> Sample:
    return samples.load(course.root / samples.SAMPLES / "wrong" / name, course)


def show(course: Course, out: Console, err: Console) -> int:
    """Grade everything, print the table, write the page; give the exit status."""
    began = time.monotonic()
    cases = cases_of(course)
    found: dict[str, Graded] = {}
    with err.status("grading") as status:
        for case, report in pool.run(course, Options(), grade, cases):
            found[case.name] = Graded(case, report)
            status.update(f"graded {len(found)} of {len(cases)} submissions")
    rows = [found[case.name] for case in cases]
    checks = sum(len(stage.outcomes) for row in rows for stage in row.report.stages)
    level = rows[0].report.isolation
    out.print(table(rows))
    seconds = time.monotonic() - began
    out.print(f"{len(rows)} submissions, {checks} checks, {seconds:.0f} s, isolation {level}.")
    if more := len(course.stages) - len(shown(course)):
        out.print(f"The course has {more} more stages; `grade list` names them.")
    page = html.render(reports.student_view(found[EVENING_NAME].report))
    reports.write(course.root / PAGE, page)
    out.print(f"What the student of “{EVENING_NAME}” gets to read: open {PAGE} in a browser.")
    wrong = [fault for row in rows for fault in faults(row)]
    for fault in wrong:
        err.print(f"demo: {fault}", style="red")
    return EXIT_FAILED if wrong else EXIT_PASSED


def main() -> int:
    """Run the demo on the course that this file lies in."""
    out, err = (
        Console(stderr=stderr, highlight=False, markup=False, emoji=False) for stderr in (False, True)
    )
    for console in (out, err):
        if not console.is_terminal:
            console.width = shutil.get_terminal_size((PIPE_WIDTH, 25)).columns
    try:
        return show(courses.find(Path(__file__).parent), out, err)
    except (GraderError, OSError) as error:
        err.print(f"demo: {error}; the demo needs the instructor's copy: solutions/ and tests/submissions/")
        return EXIT_BROKEN


if __name__ == "__main__":
    sys.exit(main())
