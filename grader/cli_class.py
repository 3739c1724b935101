"""The part of the command line that is about a class: parse, call one function, exit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from grader.options import CLASS, CONDITIONS, HANDED_IN, PUBLIC_ONLY, course_of, taking


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
