"""Several warm graders side by side: the same function over many items, a process and a session each."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from grader.course import Course
from grader.errors import GraderError, SandboxError
from grader.session import Options, Session

T = TypeVar("T")
R = TypeVar("R")
MOST_DEATHS = 3  # graders that die one after another, with no result between: then it is not the items


@dataclass(slots=True)
class _Grader:
    """One process, our end of its pipe, and the number of the item that it has in hand."""

    process: BaseProcess
    pipe: Connection
    item: int = -1


def run(
    course: Course,
    options: Options,
    work: Callable[[Session, T], R],
    items: Iterable[T],
    *,
    alone: Iterable[T] = (),
    jobs: int = 0,
    lost: Callable[[T], R] | None = None,
) -> Iterator[tuple[T, R]]:
    """Yield `(item, work(session, item))` as they are done, in no order; `jobs` 0 means one a core.

    What is to be worked on `alone` comes last, while no other grader works. `work` must be importable, items
    and results picklable. Raises what `work` raises where that is a GraderError. Where a grader dies over an
    item, `lost` says what comes of that one and another grader goes on; without `lost`, or where they die one
    after another, SandboxError is raised. With `lost` one job has a process of its own too. Leaving the
    iterator early ends the graders.
    """
    queue, last = list(items), list(alone)
    count = min(len(queue), jobs or os.cpu_count() or 1)
    if count <= 1 and lost is None:
        with Session(course, options) as session:
            for item in (*queue, *last):
                yield item, work(session, item)
        return
    graders = [_start(course, options) for _ in range(count)]
    try:
        for some, things in ((graders, queue), (graders[:1], last)):
            yield from _deal(some, work, things, lost, lambda: _start(course, options))
    finally:
        for grader in graders:
            _stop(grader)


def _deal(
    graders: list[_Grader],
    work: Callable[[Session, T], R],
    queue: list[T],
    lost: Callable[[T], R] | None,
    start: Callable[[], _Grader],
) -> Iterator[tuple[T, R]]:
    """Give every grader an item, and another whenever one is done; replace those that die."""
    upcoming, deaths = iter(range(len(queue))), 0
    for grader in graders:
        _give(grader, work, queue, upcoming)
    while busy := {grader.pipe: grader for grader in graders if grader.item >= 0}:
        for pipe in wait(list(busy)):
            grader = busy[pipe]  # type: ignore[index]
            item = queue[grader.item]
            try:
                failed, result = grader.pipe.recv()
                deaths = 0
            except (EOFError, OSError) as error:
                deaths += 1
                if lost is None or deaths > MOST_DEATHS:
                    raise SandboxError(f"a grader died over item {grader.item}") from error
                failed, result = False, lost(item)
                _stop(grader)
                fresh = start()
                grader.process, grader.pipe = fresh.process, fresh.pipe
            if failed:
                raise result
            _give(grader, work, queue, upcoming)
            yield item, result


def _give(grader: _Grader, work: Callable[..., Any], queue: list[T], upcoming: Iterator[int]) -> None:
    grader.item = next(upcoming, -1)
    if grader.item >= 0:
        with suppress(BrokenPipeError):  # it died since; the next answer tells
            grader.pipe.send((work, queue[grader.item]))


def _start(course: Course, options: Options) -> _Grader:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(course, options, theirs), daemon=True)
    with _uninterrupted():
        process.start()
    theirs.close()
    return _Grader(process, ours)


def _stop(grader: _Grader) -> None:
    grader.pipe.close()
    if grader.item >= 0:
        grader.process.terminate()
    grader.process.join()


def _serve(course: Course, options: Options, pipe: Connection) -> None:
    """Work until the other end hangs up; a session that can't be had is told in place of the first result."""
    with _uninterrupted(), suppress(EOFError, KeyboardInterrupt, ConnectionError):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with Session(course, options) as session:
                while True:
                    pipe.send(_answer(session, *pipe.recv()))
        except GraderError as error:
            pipe.send((True, error))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Pay no heed to Ctrl-C, nor let a process that is started meanwhile; who called has heard it too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _answer(session: Session, work: Callable[[Session, T], R], item: T) -> tuple[bool, R | GraderError]:
    try:
        return False, work(session, item)
    except GraderError as error:
        return True, error
