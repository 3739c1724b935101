"""The part of the command line that is about a class: parse, call one function, exit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from grader.options import CLASS, CONDITIONS, PUBLIC_ONLY, course_of, taking


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
