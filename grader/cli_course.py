"""The part of the command line that hands the course out and grades it in CI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from grader.faults import Mistake
from grader.options import CONDITIONS, GRADEBOOK, PUBLIC_ONLY, course_of, taking
from grader.report import EXIT_FAILED, EXIT_PASSED

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option("--out", type=FILE, help="The sealed file.  [default: hidden.sealed beside the course]")
@click.option(
    "--key-file", type=FILE, help="The key; made where it is not there.  [default: tests_hidden/seal.key]"
)
@click.pass_context
def seal(ctx: click.Context, out: Path | None, key_file: Path | None) -> None:
    """Encrypt the hidden checks into a file that may lie in a student's repository."""
    from grader import seal as seals

    course = course_of(ctx)
    key = key_file or course.root / "tests_hidden" / seals.KEY_FILE
    for path in seals.seal(course, out or course.root / seals.FILE, key):
        click.echo(f"wrote {path}")
    click.echo(f"CI needs the key as its secret GRADE_KEY: gh secret set GRADE_KEY < {key}")


@click.command()
@click.option("--out", type=FOLDER, default="results", show_default=True)
@click.option("--require", metavar="STAGES", default="", help="Exit 1 unless these pass: stage1,stage2")
@click.option("--min-points", type=float, help="Exit 1 for fewer.")
@click.option("--sealed", type=FILE, help="Sealed hidden checks.  [default: hidden.sealed, if there]")
@taking(*CONDITIONS, PUBLIC_ONLY)
@click.pass_context
def ci(ctx: click.Context, /, require: str, **options: Any) -> None:
    """Grade a push: log, annotations, summary, files for artifacts."""
    from grader import ci as pushes

    stages = tuple(filter(None, (slug.strip() for slug in require.split(","))))
    wanted = pushes.Wanted(require=stages, **options)
    ctx.exit(pushes.grade(course_of(ctx), wanted, os.environ, lambda line: click.echo(line)))


@click.command()
@click.option("--out", type=FOLDER, required=True, help="The student's repository: new, or one to renew.")
@click.option("--seal/--no-seal", help="With the hidden checks, encrypted.  [default: without]")
@click.option("--smoke/--no-smoke", default=True, help="Grade stubs and solutions there.  [default: yes]")
@click.pass_context
def release(ctx: click.Context, /, **options: Any) -> None:
    """Make the student's repository, and look it through for secrets."""
    from grader import release as releases

    wanted = releases.Wanted(**options)
    ctx.exit(releases.release(course_of(ctx), wanted, lambda line: click.echo(line)))


@click.command()
@click.option("--from", "source", type=click.Path(path_type=Path, exists=True), required=True, metavar="PATH")
@click.pass_context
def update(ctx: click.Context, source: Path) -> None:
    """Take over a newer release, a folder or zip; your work is merged."""
    from grader import update as updates

    said, is_whole = updates.update(course_of(ctx).root, source)
    for line in said:
        click.echo(line)
    ctx.exit(EXIT_PASSED if is_whole else EXIT_FAILED)


@click.command()
@click.option("--out", type=FILE, help="The zip.  [default: handin.zip in the course's folder]")
@click.option("--force", is_flag=True, help="Pack it though something is missing or is not Python.")
@click.pass_context
def pack(ctx: click.Context, out: Path | None, force: bool) -> None:
    """Put your stage files and results into a zip to hand in."""
    from grader import pack as packs

    packed = packs.pack(course_of(ctx))
    for line in (*packed.reasons, *packed.remarks):
        click.echo(line, err=True)
    path = out or course_of(ctx).root / packs.FILE
    packs.write(packed, path, force=force)
    click.echo(f"wrote {path}: {len(packed.about.files)} files, submission {packed.about.digest[:12]}")


@click.group()
def notebook() -> None:
    """The course as notebooks, for nbgrader."""


@notebook.command()
@click.argument("path", metavar="NOTEBOOK", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=FOLDER, default=".", help="Write the stage files here.  [default: here]")
@click.option("--force", is_flag=True, help="Overwrite stage files that differ.")
@click.pass_context
def extract(ctx: click.Context, path: Path, out: Path, force: bool) -> None:
    """Take the stage files out of a notebook, as grading does."""
    from grader import submission

    work = submission.load(path, course_of(ctx))
    for note in work.info.notes:
        click.echo(note, err=True)
    for written in submission.write(work, out, force=force):
        click.echo(f"wrote {written}")


@notebook.command()
@click.option("--out", type=FOLDER, required=True, metavar="COURSEDIR", help="nbgrader's course.")
@click.option("--assignment", default="kv", show_default=True, help="The assignment's name.")
@click.option("--question-points", type=click.FloatRange(0), default=1.0, show_default=True, help="Each's.")
@click.option(
    "--hidden", is_flag=True, help="Put hidden checks in, where nbgrader takes them out of a release."
)
@click.option("--force", is_flag=True, help="Replace an assignment that is there.")
@click.pass_context
def build(ctx: click.Context, /, **options: Any) -> None:
    """Write the course as an assignment for nbgrader, a notebook a stage."""
    from grader import assignment

    for path in assignment.build(course_of(ctx), assignment.Wanted(**options)):
        click.echo(f"wrote {path}")


@notebook.command()
@click.argument("folder", metavar="RESULTS", type=click.Path(path_type=Path, exists=True))
@taking(*GRADEBOOK)
@click.pass_context
def grades(ctx: click.Context, folder: Path, gradebook: str | None, assignment: str) -> None:
    """Take the points that people gave for answers in nbgrader into a class's results."""
    from grader import by_hand, destination, nbgrader

    if gradebook is None:
        raise Mistake("name nbgrader's gradebook: `--gradebook sqlite:///gradebook.db`")
    with nbgrader.opened(gradebook, assignment) as book:
        given, corrected = nbgrader.answers(book), nbgrader.corrected(book)
    ctx.with_resource(destination.held(folder))
    for line in (*corrected, *by_hand.put(folder, assignment, given)):
        click.echo(line)
