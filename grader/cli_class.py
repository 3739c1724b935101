"""The part of the command line that is about a class: parse, call one function, exit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from grader.faults import Mistake
from grader.options import CLASS, CONDITIONS, EXPORT, HANDED_IN, PUBLIC_ONLY, course_of, taking


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@taking(*CLASS, *CONDITIONS, PUBLIC_ONLY)
@click.pass_context
def batch(ctx: click.Context, /, **options: Any) -> None:
    """Grade a class: a folder with one entry a student."""
    from grader import batch as batches

    done = batches.run(course_of(ctx), batches.Wanted(**options))
    for line in done.lines:
        click.echo(line)
    ctx.exit(done.status)


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@taking(*HANDED_IN)
@click.pass_context
def similarity(ctx: click.Context, /, **options: Any) -> None:
    """List students of a class whose files are alike, as a place to look."""
    from grader import similarity

    for path in similarity.run(course_of(ctx), **options):
        click.echo(f"wrote {path}")


@click.command()
@click.argument("folder", required=False, metavar="[RESULTS]", type=click.Path(path_type=Path))
@taking(*EXPORT)
@click.pass_context
def export(ctx: click.Context, /, folder: Path | None, isolation: str, **options: Any) -> None:
    """Hand a class's grades on, or build Gradescope's autograder."""
    from grader import autograder
    from grader import export as exports

    if options["to"] == "gradescope-autograder":
        lines = autograder.build(course_of(ctx), options["out"], isolation)
    elif folder is None:
        raise Mistake(f"`--to {options['to']}` needs the folder that `grade batch --out` wrote")
    else:
        lines = exports.run(exports.Wanted(folder, **options))
    for line in lines:
        click.echo(line)
