"""The terminal: results go to one stream as they come, progress and remarks to the other."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import click

from grader.course import Stage
from grader.outcome import Outcome
from grader.render.prose import plural
from grader.report import Report, student_view, withheld

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from grader.render.text import Glyphs

PIPE_WIDTH = 100
ERASE_LINE = "\r\x1b[2K"


class Terminal:
    """Show a run while it goes on.

    `for_student` withholds what a student must not see of hidden checks; `quiet` shows points alone. Rich,
    which takes a while to import, is loaded only when there is something to show.
    """

    def __init__(self, *, for_student: bool = True, quiet: bool = False) -> None:
        self._for_student = for_student
        self._quiet = quiet
        self._outcomes: list[Outcome] = []
        self._planned = 0
        self._shown = 0
        self._progress = ""

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        console = Console(highlight=False, markup=False, emoji=False)
        if not console.is_terminal:
            console.width = shutil.get_terminal_size((PIPE_WIDTH, 25)).columns
        return console

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no progress line behind, whatever happened."""
        self._clear()

    def start(self, stage: Stage, planned: int) -> None:
        """A stage with `planned` checks begins."""
        from grader.render import text

        self._end_stage()
        self._planned = planned
        if not self._quiet:
            self._print(text.header(stage.slug, stage.title))
        self.expect(stage, planned)

    def expect(self, stage: Stage, planned: int) -> None:
        """A stage begins whose outcomes are shown only when it is over, if at all."""
        self.progress(f"{stage.slug}: {plural(planned, 'check')} to run")

    def outcome(self, stage: Stage, outcome: Outcome) -> None:
        """A check of the stage has ended."""
        number = len(self._outcomes) + 1
        self._outcomes.append(withheld(outcome, number) if self._for_student else outcome)
        self._show_blocks(finished=False)
        self.progress(f"{stage.slug}: {number} of {plural(self._planned, 'check')} ran")

    def stage(self, stage: Stage, outcomes: Sequence[Outcome]) -> None:
        """A stage is over that nothing was heard of while it went on."""
        self.start(stage, len(outcomes))
        for outcome in outcomes:
            self.outcome(stage, outcome)

    def end(self, report: Report) -> None:
        """The run is over: show points and what to do next."""
        from grader.render import text

        self._end_stage()
        self._print(text.summary(self._view(report)))

    def show(self, report: Report) -> None:
        """Show a whole report, as it stands after its run."""
        from grader.render import text

        view = self._view(report)
        self._print(text.summary(view) if self._quiet else text.render(view, glyphs=self._glyphs))

    def say(self, line: str) -> None:
        """Say one line among the results."""
        self._clear()
        click.echo(line)

    def remark(self, line: str) -> None:
        """Say one line beside the results."""
        self._clear()
        click.echo(line, err=True)

    def progress(self, line: str) -> None:
        """Say where the run stands, on a terminal only, in a line that the next one replaces."""
        if not self._quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            self._clear()
            click.echo(line, nl=False, err=True)
            self._progress = line

    def _view(self, report: Report) -> Report:
        return student_view(report) if self._for_student else report

    def _end_stage(self) -> None:
        self._show_blocks(finished=True)
        self._clear()
        self._outcomes, self._shown = [], 0

    def _show_blocks(self, *, finished: bool) -> None:
        if self._quiet or not self._outcomes:
            return
        from grader.render import summary, text

        told = summary.blocks(self._outcomes, finished=finished)
        for block in told[self._shown :]:
            self._print(text.block(block, self._glyphs))
        self._shown = len(told)

    @property
    def _glyphs(self) -> Glyphs:
        from grader.render import text

        return text.ASCII if self._console.options.ascii_only else text.UNICODE

    def _print(self, content: RenderableType) -> None:
        self._clear()
        self._console.print(content)

    def _clear(self) -> None:
        if self._progress:
            click.echo(ERASE_LINE, nl=False, err=True)
            self._progress = ""
