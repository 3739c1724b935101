"""The part of the command line that hands the course out and grades it in CI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from grader.options import CONDITIONS, PUBLIC_ONLY, course_of, taking

FILE = click.Path(path_type=Path, dir_okay=False)


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
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default="results", show_default=True)
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
