"""Options that several commands take, said once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from grader import course as courses
from grader.course import Course
from grader.faults import Mistake

ISOLATION = ("auto", "confined", "process", "none")
COMMANDLINE = click.core.ParameterSource.COMMANDLINE
DTYPES = ("float32", "bfloat16", "float16", "float64")

ONE_EXPORT = ("gradescope", "github", "classroom50", "junit")
EXPORTS = ("canvas", "moodle", "otter", "nbgrader", *ONE_EXPORT, "gradescope-autograder")
SEEN = ("visible", "hidden", "after_due_date", "after_published")
TABLES, OF_A_CLASS = ("canvas", "moodle"), tuple(to for to in EXPORTS if to != "gradescope-autograder")
INTO_FILES = tuple(to for to in EXPORTS if to != "nbgrader")
FOR = {  # what has a meaning for some forms only
    "folder": OF_A_CLASS,
    "out": INTO_FILES,
    "gradebook": ("nbgrader",),
    "assignment": ("nbgrader",),
    "force": INTO_FILES,
    "template": TABLES,
    "column": TABLES,
    "overrides": OF_A_CLASS,
    "raw": tuple(to for to in OF_A_CLASS if to not in ("junit", "nbgrader")),
    "hidden": ("gradescope",),
    "isolation": ("gradescope-autograder",),
}

Callback = Callable[..., Any]


def not_empty(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty value, which would go for none, as where a variable is not set."""
    if value == "":
        raise Mistake(f"`{option.opts[0]}` is empty: give it a value, or leave it out")
    return value


OUT = click.Path(path_type=Path, dir_okay=False)
SUBMISSION = click.option(
    "--submission",
    type=click.Path(path_type=Path),
    help="What to grade: folder, .zip, .tar.gz, notebook or stage file.  [default: the course's exercises/]",
)
FILES = (
    click.option("--json", type=OUT, help="Write the report as JSON."),
    click.option("--html", type=OUT, help="Write the report as one HTML file."),
    click.option("--junit", type=OUT, help="Write the report as JUnit XML."),
    click.option("--to", type=click.Choice(ONE_EXPORT), help="Hand the student's view on in this form, …"),
    click.option("--out", type=OUT, help="… into this file.  [github: $GITHUB_STEP_SUMMARY]"),
)
CONDITIONS = (
    click.option(
        "--isolation",
        type=click.Choice(ISOLATION),
        default="auto",
        show_default=True,
        help="How the submission's process is confined; auto takes the best there is.",
    ),
    click.option(
        "--seed",
        metavar="TEXT",
        callback=not_empty,
        help="Draw the checks' inputs from this instead of the course's seed.",
    ),
    click.option(
        "--profile",
        metavar="NAME",
        callback=not_empty,
        help="Hold timings against this hardware profile.",
    ),
)
MEASURED = (
    click.option("--model", default="small", show_default=True, help="small, gpt2, gpt2-random or a folder."),
    click.option("--device", type=click.Choice(("cpu", "cuda", "mps")), default="cpu", show_default=True),
    click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True),
    click.option("--n-new", type=click.IntRange(1), help="New tokens of the whole text.  [default: 1000]"),
    click.option("--quick", is_flag=True, help="Fewer rounds, 100 new tokens: for a first look."),
    click.option(
        "--out", type=click.Path(path_type=Path, file_okay=False), help="Write here.  [default: results/]"
    ),
    click.option("--fresh", is_flag=True, help="Start over; otherwise a run goes on from the last one."),
)
PUBLIC_ONLY = click.option("--public-only", is_flag=True, help="Leave the hidden checks out.")
VIEW = click.option(
    "--instructor/--student",
    default=False,
    help="Show and write hidden checks in full, or only what a student may see.  [default: student]",
)
QUIET = click.option("-q", "--quiet", is_flag=True, help="Show the points alone.")
HANDED_IN = (
    click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        required=True,
        help="Write the results here.",
    ),
    click.option("--roster", type=OUT, help="The class as CSV: id, name, email."),
    click.option(
        "--on-duplicate",
        type=click.Choice(("latest", "first", "error")),
        default="latest",
        show_default=True,
        help="Which to grade of what a student handed in twice.",
    ),
    click.option(
        "--assignment",
        metavar="NAME",
        callback=not_empty,
        help="Of nbgrader's submitted/ this assignment.  [default: the only one]",
    ),
)
WHERE = (
    click.option(
        "--jobs",
        type=click.IntRange(1),
        default=os.cpu_count,
        help="Graders side by side.  [default: one a core]",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Grade on the workers of this Dask scheduler, such as tcp://127.0.0.1:8786, instead of here.",
    ),
)
CLASS = (
    *HANDED_IN,
    *WHERE,
    click.option("--force", is_flag=True, help="Grade again what is graded already."),
    click.option(
        "--similarity", is_flag=True, help="List students whose files are alike, as a place to look."
    ),
    click.option("--due", metavar="TIME", help="When it is due, with its zone: 2026-12-01T23:59+01:00."),
    click.option(
        "--late",
        metavar="POLICY",
        default="none",
        show_default=True,
        help="What lateness costs: none, zero (everything), or percent for each day begun.",
    ),
    click.option(
        "--file-times",
        is_flag=True,
        help="Where the platform tells no time, go by the files' own, which students can set.",
    ),
)
REGRADE = (
    *WHERE,
    click.option("--csv", type=OUT, help="Write the changes as CSV."),
    click.option("--yes", is_flag=True, help="Write the new reports without asking."),
)

GRADEBOOK = (
    click.option(
        "--gradebook", metavar="URL", callback=not_empty, help="nbgrader's gradebook: sqlite:///gradebook.db."
    ),
    click.option(
        "--assignment",
        default="kv",
        show_default=True,
        callback=not_empty,
        help="The assignment's name there.",
    ),
)
EXPORT = (
    click.option("--to", type=click.Choice(EXPORTS), required=True, help="Whose form to write."),
    click.option("--out", type=click.Path(path_type=Path), help="What to write."),
    *GRADEBOOK,
    click.option("--template", type=OUT, help="The table that Canvas or Moodle exported."),
    click.option(
        "--column",
        metavar="NAME",
        callback=not_empty,
        help="Which to fill in.  [default: the course's title; Grade]",
    ),
    click.option("--overrides", type=OUT, help="Points by hand: student, check or stage, points, why."),
    click.option("--raw", is_flag=True, help="Points as earned, nothing taken off for lateness."),
    click.option("--force", is_flag=True, help="Write over what is at --out already."),
    click.option(
        "--hidden",
        type=click.Choice(SEEN),
        default="visible",
        show_default=True,
        help="Gradescope: when students see that hidden checks are there.",
    ),
    click.option(
        "--isolation",
        type=click.Choice(("confined", "process")),
        default="confined",
        show_default=True,
        help="gradescope-autograder: how submissions are confined there.",
    ),
)


def course_of(ctx: click.Context) -> Course:
    """The course of `--course`, or else the one around the working folder; looked for once."""
    root = ctx.find_root()
    if root.obj is None:
        root.obj = courses.find(root.params.get("course") or Path.cwd())
    course: Course = root.obj
    return course


def vet_export(ctx: click.Context, to: str) -> None:
    """Raise Mistake where an option was given that has no meaning for this form of export."""
    for option in ctx.command.params:
        name = option.name or ""
        if to not in FOR.get(name, EXPORTS) and ctx.get_parameter_source(name) is COMMANDLINE:
            said = option.opts[0] if name != "folder" else "RESULTS"
            raise Mistake(f"`{said}` has no meaning for `--to {to}`, only for {', '.join(FOR[name])}")
    needed = "gradebook" if to == "nbgrader" else "out"
    if ctx.params[needed] is None:
        raise Mistake(f"`--to {to}` needs `--{needed}`")


def taking(*options: Callable[[Callback], Callback]) -> Callable[[Callback], Callback]:
    """Give a command these options, in this order."""

    def decorate(callback: Callback) -> Callback:
        for option in reversed(options):
            callback = option(callback)
        return callback

    return decorate
