"""Points before and after a regrade, as a table for a terminal or plain lines for a log."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from grader.changes import HEADER, TOTAL, Change

ARROW = "->"


def lines(changes: Sequence[Change]) -> tuple[str, ...]:
    """A line a change: `ada  stage1  8 -> 10`, with `-` where there are no points."""
    return tuple("  ".join((c.student, c.stage, f"{_dash(c, 2)} {ARROW} {_dash(c, 3)}")) for c in changes)


def table(changes: Sequence[Change], width: int, *, colour: bool) -> str:
    """The same as a table, what rose in green and what fell in red."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False)
    for name in HEADER:
        grid.add_column(name, justify="right" if name in HEADER[2:] else "left")
    for change in changes:
        rose = (change.after or 0) > (change.before or 0)
        bold = "bold " if change.stage == TOTAL else ""
        points = Text(_dash(change, 3), style=f"{bold}{'green' if rose else 'red'}")
        grid.add_row(Text(change.student), change.stage, _dash(change, 2), points)
    text = StringIO()
    console = Console(
        file=text,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,  # who asks knows the terminal, whatever TERM says
        no_color=not colour,
        highlight=False,
    )
    console.print(grid)
    return text.getvalue()


def _dash(change: Change, cell: int) -> str:
    return change.cells[cell] or "-"
