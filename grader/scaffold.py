"""Begin a new stage: a small one that is whole, so that its author changes what works already."""

from __future__ import annotations

import re
from pathlib import Path

from grader import course as courses
from grader import course_page, samples
from grader import report as reports
from grader.course import MANIFEST, Course, Stage
from grader.errors import CourseError
from grader.faults import Mistake
from grader.stubs import stub_text

PROMPT = "Say here what this stage is about and why"
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")

TABLE = """
[[stage]]
slug = "{slug}"
title = "{title}"
file = "{slug}_{name}.py"
points = 4
hidden_points = 2
summary = "Say in one sentence what the student is to write."
hints = [
  "Doubling is an addition.",
  "A number and itself make twice the number.",
  "`return number + number`",
]
"""
SOLUTION = '''"""{heading}: {title}.

{prompt}, to somebody who has just finished the one before.
"""


def {name}(number: int) -> int:
    """Return twice a number.

    Say here all that is asked: the formula, the shapes, one size worked out, the trap. Whoever writes to this
    text, and to nothing else, must pass every check.
    """
    ### BEGIN SOLUTION
    return 2 * number
    ### END SOLUTION
'''
PUBLIC = '''"""{heading}: say what its checks hold against each other."""

import pytest

from grader import expect

check = pytest.mark.check


@check(weight=1, category="what comes back")
def test_small_number(student):
    """{name}(3) is 6"""
    got = expect.integer(student.{name}(3), "{name}(3)")
    expect.that(got == 6, f"{name}(3) is 6, not {{got}}")
'''
HIDDEN = '''"""{heading}, hidden: the same with other numbers."""

import pytest

from grader import expect

check = pytest.mark.check


@check(weight=1, category="other numbers")
def test_other_numbers(student):
    """Of any other number, too, it is twice that number"""
    for number in (-7, 0, 10**12):
        got = expect.integer(student.{name}(number), f"{name}({{number}})")
        expect.that(got == 2 * number, f"{name}({{number}}) is {{2 * number}}, not {{got}}")
'''
SAMPLE = """stage = "{slug}"
note = "{note}"
seen = "made up"
fails = [{fails}]

[[edit]]
old = "2 * number"
new = "{new}"
"""


def begin(course: Course, slug: str, name: str, title: str) -> tuple[Path, ...]:
    """Write a new stage's solution, stub, checks, samples and manifest table; name the files.

    It passes `grade dev check` as it stands. A title with a quote or the like is the manifest's to refuse.

    Raises Mistake, before anything is written, where the slug or a file is taken or a name is no name.
    """
    if not NAME.fullmatch(name):
        raise Mistake(f"`--name {name}` is no name for a function: lower-case letters, digits and `_`")
    manifest = course.root / MANIFEST
    filled = {"slug": slug, "name": name, "title": title, "heading": slug.capitalize(), "prompt": PROMPT}
    grown = manifest.read_text(encoding="utf-8").rstrip("\n") + "\n" + TABLE.format(**filled)
    try:
        files = _files(courses.parse(grown, course.root), filled)
    except CourseError as error:
        raise Mistake(f"`{slug}` can't be a stage: {error}") from error
    for path in files:
        if path.exists():
            raise Mistake(f"`{path}` is there already; choose another slug or `--name`, or remove it")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        reports.write(path, text)
    reports.write(manifest, grown)
    return (*files, manifest, *course_page.refresh(courses.load(course.root)))


def is_untouched(course: Course, stage: Stage) -> bool:
    """Whether a stage's solution still says what its author is to say there."""
    path = course.solutions / stage.file
    return path.is_file() and PROMPT in path.read_text(encoding="utf-8", errors="replace")


def _files(course: Course, filled: dict[str, str]) -> dict[Path, str]:
    slug, solution = filled["slug"], SOLUTION.format(**filled)
    stage, kinds = course.stage(slug), course.root / samples.SAMPLES
    both = ", ".join(f'"{slug}.{check}"' for check in ("small_number", "other_numbers"))
    right = SAMPLE.format(slug=slug, note="an addition", fails="", new="number + number")
    wrong = SAMPLE.format(slug=slug, note="the number itself", fails=both, new="number")
    return {
        course.solutions / stage.file: solution,
        course.exercises / stage.file: stub_text(solution, slug),
        course.public_tests(stage): PUBLIC.format(**filled),
        course.hidden_tests(stage): HIDDEN.format(**filled),
        kinds / "correct" / f"{slug}_by_addition" / samples.MANIFEST: right,
        kinds / "wrong" / f"{slug}_unchanged" / samples.MANIFEST: wrong,
    }
