"""Several warm graders side by side: the same function over many items, a process and a session each."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from grader.course import Course
from grader.errors import GraderError, SandboxError
from grader.session import Options, Session

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class _Grader:
    """One process, our end of its pipe, and the number of the item that it has in hand."""

    process: BaseProcess
    pipe: Connection
    item: int = -1


def run(
    course: Course, options: Options, work: Callable[[Session, T], R], items: Iterable[T], *, jobs: int = 0
) -> Iterator[tuple[T, R]]:
    """Yield `(item, work(session, item))` as they are done, in no order; `jobs` 0 means one a core.

    `work` must be importable, items and results picklable. Raises what `work` raises where that is a
    GraderError; SandboxError where a grader dies. Leaving the iterator early ends the graders.
    """
    queue = list(items)
    count = min(len(queue), jobs or os.cpu_count() or 1)
    if count <= 1:
        with Session(course, options) as session:
            for item in queue:
                yield item, work(session, item)
        return
    graders = [_start(course.root, options) for _ in range(count)]
    try:
        yield from _deal(graders, work, queue)
    finally:
        for grader in graders:
            _stop(grader)


def _deal(graders: list[_Grader], work: Callable[[Session, T], R], queue: list[T]) -> Iterator[tuple[T, R]]:
    """Give every grader an item, and another whenever one is done."""
    upcoming = iter(range(len(queue)))
    for grader in graders:
        _give(grader, work, queue, upcoming)
    while busy := {grader.pipe: grader for grader in graders if grader.item >= 0}:
        for pipe in wait(list(busy)):
            grader = busy[pipe]  # type: ignore[index]
            try:
                failed, result = grader.pipe.recv()
            except EOFError as error:
                raise SandboxError(f"a grader died over item {grader.item}") from error
            if failed:
                raise result
            item = queue[grader.item]
            _give(grader, work, queue, upcoming)
            yield item, result


def _give(grader: _Grader, work: Callable[..., Any], queue: list[T], upcoming: Iterator[int]) -> None:
    grader.item = next(upcoming, -1)
    if grader.item >= 0:
        grader.pipe.send((work, queue[grader.item]))


def _start(root: Path, options: Options) -> _Grader:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(root, options, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Grader(process, ours)


def _stop(grader: _Grader) -> None:
    grader.pipe.close()
    if grader.item >= 0:
        grader.process.terminate()
    grader.process.join()


def _serve(root: Path, options: Options, pipe: Connection) -> None:
    """Work until the other end hangs up."""
    from grader import course as courses

    with suppress(EOFError, KeyboardInterrupt), Session(courses.load(root), options) as session:
        while True:
            work, item = pipe.recv()
            try:
                answer = False, work(session, item)
            except GraderError as error:
                answer = True, error
            pipe.send(answer)
