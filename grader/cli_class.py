"""The part of the command line that is about a class: parse, call one function, exit."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grader.faults import Mistake
from grader.options import (
    CLASS,
    CONDITIONS,
    EXPORT,
    HANDED_IN,
    PUBLIC_ONLY,
    REGRADE,
    course_of,
    taking,
    vet_export,
)

if TYPE_CHECKING:
    from grader.regrade import Regraded


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@taking(*CLASS, *CONDITIONS, PUBLIC_ONLY)
@click.pass_context
def batch(ctx: click.Context, /, **options: Any) -> None:
    """Grade a class: a folder with one entry a student."""
    from grader import batch as batches
    from grader import order

    done = batches.run(course_of(ctx), order.Wanted(**options))
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

    vet_export(ctx, options["to"])
    if options["to"] == "gradescope-autograder":
        lines = autograder.build(course_of(ctx), options["out"], isolation, force=options["force"])
    elif folder is None:
        raise Mistake(f"`--to {options['to']}` needs the folder that `grade batch --out` wrote")
    else:
        lines = exports.run(exports.Wanted(folder, **options))
    click.echo("\n".join(lines))


@click.command()
@click.argument("folder", metavar="RESULTS", type=click.Path(path_type=Path, exists=True))
@click.argument("path", required=False, type=click.Path(path_type=Path, exists=True))
@taking(*REGRADE)
@click.pass_context
def regrade(ctx: click.Context, /, yes: bool, **options: Any) -> None:
    """Grade a class again, as after a fixed check; show old and new points before writing."""
    from grader import destination
    from grader import regrade as regrades

    ctx.with_resource(destination.held(options["folder"]))
    done = regrades.grade(course_of(ctx), regrades.Wanted(**options))
    _show(done)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if done.is_new and (yes or (on_terminal and click.confirm("Write them?"))):
        click.echo(done.take())
    elif done.is_new:
        click.echo(f"nothing is written: `grade regrade {done.folder} --yes` does it", err=True)
    ctx.exit(done.status)


def _show(done: Regraded) -> None:
    """Say what a regrade would change: a table on a terminal, else plain lines."""
    from grader.render import changed

    if done.changes and sys.stdout.isatty():
        width, colour = shutil.get_terminal_size().columns, not os.environ.get("NO_COLOR")
        click.echo(changed.table(done.changes, width, colour=colour), nl=False)
    elif done.changes:
        click.echo("\n".join(changed.lines(done.changes)))
    click.echo(done.summary)
