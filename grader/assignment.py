"""The course as an nbgrader assignment: a notebook a stage, and beside them what their checks need.

A notebook holds the solution with its regions, which `nbgrader generate_assignment` turns into what
students get; each public check as a cell that gives points; one cell for the points of what the grader alone
runs, hidden checks foremost; the stage's questions as cells that a person grades.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader import explain, notebook, stubs
from grader.course import MANIFEST, Course, Stage
from grader.errors import CourseError
from grader.faults import Mistake
from grader.outcome import Check, Part, Visibility
from grader.scoring import STEPS_PER_POINT
from grader.session import Options, Session

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")  # nbgrader takes no `+`, and finds others by glob
SCHEMA_VERSION = 3
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
ABOUT = """# {title}

{summary}

Write your answer in the cell below, where it says so, and leave these cells where they are: the grader
finds them by their ids. It takes your answer out of this notebook, and what it uses of your own cells. Each
cell behind it runs one check."""
SETUP = 'from grader import kernel\n\nkernel.begin("{slug}")'
HELPERS = "# Room for what you would rather have outside of the functions above; it may stay as it is."
CHECK = '# {title}\nfrom grader.kernel import check\n\ncheck("{slug}.{name}", {answer!r})'
HIDDEN = """# A hidden check
### BEGIN HIDDEN TESTS
from grader.kernel import check

check("{slug}.{name}", {answer!r}, hidden={source!r})
### END HIDDEN TESTS"""
REST = """**What else counts.** The grader takes your answer out of this notebook, runs the checks above once
more by itself, and others that are not in here. The points of those stand here; there is nothing to write."""
QUESTION = "**{number}.** {question}\n\n### BEGIN SOLUTION\n{answer}\n### END SOLUTION"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to build: the folder of nbgrader's course, the assignment's name, a question's points."""

    out: Path
    assignment: str
    question_points: float
    hidden: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class Runnable:
    """A check that a notebook can run: its function, its title, the points it decides."""

    name: str
    title: str
    points: float
    hidden: bool = False


def build(course: Course, wanted: Wanted) -> list[Path]:
    """Write `source/ASSIGNMENT/`, whole or not at all; return the notebooks.

    Raises Mistake for a name that nbgrader can't take, or where an assignment is there already.
    """
    if not NAME.match(wanted.assignment):
        raise Mistake(
            f"`{wanted.assignment}` is no name for an assignment; use letters, digits, `_`, `.`, `-`"
        )
    place = wanted.out / "source" / wanted.assignment
    if place.exists() and not wanted.force:
        raise Mistake(f"`{place}` is there; take another name, or say --force to replace it")
    questions, checks = explain.load(course), runnable(course, hidden=wanted.hidden)
    books = {
        stage.slug + notebook.SUFFIX: book(
            course, stage, checks[stage.slug], questions[stage.slug], wanted.question_points
        )
        for stage in course.stages
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{wanted.assignment}.") as folder:
        _fill(course, Path(folder) / "new", books)
        if place.exists():
            os.replace(place, Path(folder) / "old")
        os.replace(Path(folder) / "new", place)
    return [place / name for name in books]


def _fill(course: Course, folder: Path, books: dict[str, dict[str, Any]]) -> None:
    """The notebooks, and what their checks read: a small course beside them, which nbgrader hands on."""
    folder.mkdir()
    for name, content in books.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    public = [course.public_tests(stage) for stage in course.stages]
    small = [path for path in (course.exercises / "small").glob("*") if path.is_file()]
    given = [course.given] if course.given.is_file() else []
    for path in (course.root / MANIFEST, *given, *public, *small, *course.profiles.glob("*.toml")):
        copy = folder / path.relative_to(course.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def book(
    course: Course,
    stage: Stage,
    checks: Sequence[Runnable],
    questions: Sequence[explain.Question],
    question_points: float,
) -> dict[str, Any]:
    """Make a stage's notebook."""
    path = course.solutions / stage.file
    if not path.is_file():
        raise CourseError(f"`{path}` is not there, and notebooks are made from solutions")
    answer, helpers = split(path.read_text(encoding="utf-8"), stage.slug)
    about = ABOUT.format(title=stage.title, summary=stage.summary)
    cells = [
        _cell("markdown", about, f"{stage.name}-about", locked=True),
        _cell("code", SETUP.format(slug=stage.slug), stage.name + notebook.SETUP, locked=True),
        _cell("code", answer.rstrip("\n"), stage.name, solution=True),
    ]
    if helpers:
        text = f"{HELPERS}\n{helpers.rstrip()}"
        cells.append(_cell("code", text, stage.name + notebook.HELPERS, solution=True))
    called = tuple(sorted(public_names(answer, stage.slug)))
    for check in checks:
        grade_id = notebook.cell_id(stage.name, check.name, hidden=check.hidden)
        text = _text(course, stage, check, called)
        cells.append(_cell("code", text, grade_id, grade=True, locked=True, points=check.points))
    rest = round(stage.points - sum(check.points for check in checks), 2)
    cells.append(_cell("markdown", REST, stage.name + notebook.REST, task=True, locked=True, points=rest))
    for number, each in enumerate(questions, start=1):
        text = QUESTION.format(number=number, question=each.question.strip(), answer=each.answer.strip())
        grade_id = f"{stage.name}-question-{number}"
        cells.append(_cell("markdown", text, grade_id, grade=True, solution=True, points=question_points))
    about_python = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": about_python, "nbformat": notebook.MAJOR, "nbformat_minor": 5}


def _text(course: Course, stage: Stage, check: Runnable, answer: tuple[str, ...]) -> str:
    """The cell that runs a check; a hidden one brings its file, which nbgrader leaves out of a release."""
    about = {"slug": stage.slug, "name": check.name, "answer": answer}
    if not check.hidden:
        return CHECK.format(title=check.title, **about)
    return HIDDEN.format(source=course.read(course.hidden_tests(stage)).decode("utf-8"), **about)


def _cell(
    kind: str,
    source: str,
    grade_id: str,
    *,
    points: float | None = None,
    **is_so: bool,
) -> dict[str, Any]:
    about: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "grade_id": grade_id, "cell_type": kind}
    about |= {name: is_so.get(name, False) for name in ("grade", "solution", "locked", "task")}
    about |= {"points": points} if points is not None else {}
    code: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    lines = source.splitlines(keepends=True)
    return {"cell_type": kind, "id": grade_id[-64:], "metadata": {"nbgrader": about}, "source": lines, **code}


def split(solution: str, slug: str) -> tuple[str, str]:
    """A solution less its regions outside of any function, and those, which get a cell of their own.

    In the answer's cell nbgrader would put a `raise` in their place, outside of any function.
    """
    lines = solution.splitlines(keepends=True)
    tree = ast.parse(solution)
    outside = [r for r in stubs.find_regions(solution, slug) if not stubs.enclosing_function(tree, r)]
    helpers = "".join("".join(lines[r.begin - 1 : r.end]) for r in outside)
    for region in reversed(outside):
        del lines[region.begin - 1 : region.end]
    return "".join(lines), helpers


def public_names(answer: str, slug: str) -> set[str]:
    """The functions and classes that the stub has at its top: what the checks call."""
    stub = ast.parse(stubs.stub_text(answer, slug))
    return {node.name for node in stub.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def runnable(course: Course, *, hidden: bool = False) -> dict[str, tuple[Runnable, ...]]:
    """The checks of each stage that a notebook can run: not those by the clock, in a busy kernel.

    A check decides its weight's part of its group's points, rounded down: what is left over is put where the
    points of all other checks are. Raises CourseError where a stage has none.
    """
    options = Options(isolation="none", public_only=not hidden, seed="any")  # nothing is run
    with Session(course, options) as session:
        every = session.planned(course.stages)
        untimed = session.planned(course.stages, Part.UNTIMED)
    found = {}
    for stage in course.stages:
        if not untimed[stage.slug]:
            raise CourseError(f"`{course.public_tests(stage)}` has no check that a notebook could run")
        groups = ((Visibility.PUBLIC, stage.public_points), (Visibility.HIDDEN, stage.hidden_points))
        found[stage.slug] = tuple(
            check
            for visibility, points in groups
            for check in _worth(
                [c for c in untimed[stage.slug] if c.visibility is visibility],
                points / (math.fsum(c.weight for c in every[stage.slug] if c.visibility is visibility) or 1),
            )
        )
    return found


def _worth(checks: Sequence[Check], points_per_weight: float) -> Iterator[Runnable]:
    """Checks as functions, of which one with parameters is several checks."""
    functions: dict[str, list[Check]] = {}
    for check in checks:
        functions.setdefault(check.function, []).append(check)
    for name, several in functions.items():
        worth = sum(check.weight for check in several) * points_per_weight
        steps = math.floor(worth * STEPS_PER_POINT + 1e-6)
        is_hidden = several[0].visibility is Visibility.HIDDEN
        yield Runnable(name, several[0].shared_title, steps / STEPS_PER_POINT, is_hidden)
