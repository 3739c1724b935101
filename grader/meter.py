"""The meter: how far a measurement is and how long it will take, on stderr; its tables, on stdout.

It is redrawn between two measurements and never during one: a thread that draws would be measured too.
"""

from __future__ import annotations

import os

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PIPE_WIDTH = 100


class Meter:
    """Show a measurement's progress, on a terminal only."""

    def __init__(self, total: float) -> None:
        console = Console(stderr=True, highlight=False, markup=False)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("left"))
        shown = console.is_terminal and os.environ.get("TERM") != "dumb"
        self._progress = Progress(
            *columns, console=console, auto_refresh=False, transient=True, disable=not shown
        )
        self._task = self._progress.add_task("starting", total=total)

    def __enter__(self) -> Meter:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def starting(self, says: str) -> None:
        """Say what is being measured now."""
        self._progress.update(self._task, description=says, refresh=True)

    def done(self, weight: float) -> None:
        """So much more of the total is done."""
        self._progress.update(self._task, advance=weight, refresh=True)


def remark(line: str) -> None:
    """Say one line beside the results."""
    click.echo(line, err=True)


def show(content: RenderableType) -> None:
    """Show results."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(content)
