"""Faults on the command line: whose they are, in one line, and the exit status that follows."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

import click

from grader import report as reports
from grader.errors import CourseError, GraderError, SubmissionError
from grader.report import EXIT_BROKEN, EXIT_USAGE

EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
LONGEST_LINE = 600
NOT_SCORED = "this is the grader's fault, your work is not scored"


class Mistake(click.ClickException):
    """Something asked for that can't be done: a name that is not there, a file that can't be written."""

    exit_code = EXIT_USAGE

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"grade: {self.message}", file=file, err=True)


def written(path: Path, content: str | bytes, mode: int = 0o644) -> Path:
    """Write a whole file or nothing; return its path.

    Raises Mistake where it can't be written.
    """
    try:
        reports.write(path, content, mode)
    except OSError as error:
        raise Mistake(f"`{path}` can't be written: {error}") from error
    return path


@contextmanager
def told(ctx: click.Context) -> Iterator[None]:
    """Turn any error into one line on stderr and an exit status; with `debug` a traceback comes first."""
    try:
        yield
    except (click.ClickException, click.Abort, click.exceptions.Exit):
        raise
    except KeyboardInterrupt:
        click.echo("\ngrade: stopped; nothing is lost", err=True)
        ctx.exit(EXIT_INTERRUPTED)
    except (BrokenPipeError, SystemExit):  # who read the output, such as `head`, has seen enough (rich exits)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        ctx.exit(EXIT_PIPE)
    except CourseError as error:
        _give_up(ctx, f"the course: {error}", EXIT_USAGE)
    except SubmissionError as error:
        _give_up(ctx, f"the submission: {error}", EXIT_USAGE)
    except GraderError as error:
        _give_up(ctx, f"{error}; {NOT_SCORED}", EXIT_BROKEN)
    except Exception as error:
        what = f"unexpected {type(error).__name__}: {error}"
        _give_up(ctx, f"{what}; {NOT_SCORED} (`grade --debug …` tells where)", EXIT_BROKEN)


def _give_up(ctx: click.Context, line: str, status: int) -> NoReturn:
    if ctx.params.get("debug"):
        traceback.print_exc()
    click.echo(f"grade: {_one_line(line)}", err=True)
    ctx.exit(status)


def _one_line(text: str) -> str:
    """The text in one line; of a very long one, such as a library's own report, its beginning and end."""
    line = " ".join(text.split())
    half = LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]} … {line[-half:]}"
