"""A batch on a Dask cluster: the work of `pool.py`, done by workers on other machines.

Only bytes cross: there the stage files under their digest, back a report as JSON. Names and everything that
is written stay here; what a worker does is in `outpost.py`. This is the only module that imports
distributed.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from grader import marking, outpost
from grader import report as reports
from grader.course import Course, Stage
from grader.errors import CourseError, SandboxError
from grader.faults import Mistake
from grader.marking import Grader
from grader.outcome import Part
from grader.outpost import SAME, About, Answer, Parcel, different, opened, told
from grader.report import Report
from grader.results import Conditions
from grader.session import Options
from grader.submission import Submission

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
R = TypeVar("R")
ANSWERS_WITHIN_S = 5.0
WORKERS_WITHIN_S = 60.0  # the first, and another when all are gone
LOOK_EVERY_S = 5.0
FEWEST_AHEAD = 32  # submissions that the scheduler has at a time, so that a cluster that grows finds work
INSTALL = "`--scheduler` needs Dask: `pip install -e '.[cluster]'` in the course's folder"


@dataclass(slots=True)
class Cluster:
    """A connected cluster, its workers looked over; `fault` is what ends the whole batch.

    `size` counts the workers that were there at first, and at least two, since more may come.
    """

    client: Client
    address: str
    conditions: Conditions
    size: int
    fault: Exception | None = None
    _asked: set[Any] = field(default_factory=set)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def run(
        self,
        course: Course,
        options: Options,
        work: Callable[[Grader, T], R],
        items: Iterable[T],
        *,
        jobs: int = 0,
        lost: Callable[[T], R],
    ) -> Iterator[tuple[T, R]]:
        """Yield `(item, work(grader, item))` as they are done, in no order; the grader is a worker somewhere.

        `work` runs here, so it may read and write. With `jobs` 1 each is alone on its machine, else the
        workers decide how many are side by side. An item whose workers die over it again and again is what
        `lost` says. Raises Mistake where the scheduler or all workers are gone, or one is refused.
        """

        def one(item: T) -> R:
            grader = _Remote(self, course, options, alone=jobs == 1)
            result = work(grader, item)
            return lost(item) if grader.is_lost else result

        queue = list(items)
        threads = ThreadPoolExecutor(max(1, min(len(queue), max(FEWEST_AHEAD, 2 * self.size))))
        try:
            pending = {threads.submit(one, item): item for item in queue}
            while pending:
                for done in self._some(pending):
                    yield pending.pop(done), done.result()
        finally:
            self.fault = self.fault or SandboxError("the batch has ended")
            threads.shutdown(wait=False, cancel_futures=True)
            self.client.cancel(list(self._asked))
            threads.shutdown(wait=True)
            self.fault = None

    def _some(self, pending: Iterable[Future[R]]) -> set[Future[R]]:
        """Wait until some are done.

        Raises what ends the batch.
        """
        waited_from = time.monotonic()
        while True:
            done, _ = wait(pending, LOOK_EVERY_S, FIRST_COMPLETED)
            if self.fault:
                raise self.fault
            if done:
                return done
            if self._workers():
                waited_from = time.monotonic()
            elif time.monotonic() - waited_from > WORKERS_WITHIN_S:
                raise Mistake(f"`{self.address}` has no worker left; start some, the same command goes on")

    def _workers(self) -> int:
        try:
            return len(self.client.nthreads())
        except Exception as error:
            raise _gone(self.address) from error

    def grade(self, parcel: Parcel) -> Answer:
        """Have a worker grade; equal parcels at the same time are one task.

        Raises KilledWorker where workers die over it, SandboxError where the batch has to end.
        """
        from distributed import KilledWorker

        if self.fault:
            raise SandboxError("the batch has to end")
        try:
            packed = self._result(parcel)
        except KilledWorker:
            raise
        except ImportError as error:
            self.fault = self.fault or Mistake(f"a worker can't run the grader: {error}; {SAME}")
            raise SandboxError(str(error)) from error
        except BaseException as error:  # a future that is cancelled raises none of the ordinary kind
            self.fault = self.fault or _gone(self.address)
            raise SandboxError(str(error)) from error
        return opened(packed, Answer)

    def _result(self, parcel: Parcel) -> Any:
        key = "-".join(("kvgrade", self._run, parcel.digest, *parcel.slugs, parcel.part))
        task = self.client.submit(_serve, msgspec.msgpack.encode(parcel), key=key, pure=False)
        self._asked.add(task)
        try:
            if self.fault:  # it came when the others were cancelled already
                task.cancel()
            return task.result()
        finally:
            self._asked.discard(task)


@dataclass(slots=True)
class _Remote:
    """A grader that is a worker somewhere; `is_lost` once workers have died over what it had."""

    cluster: Cluster
    course: Course
    options: Options
    alone: bool
    is_lost: bool = False

    def grade(self, work: Submission, stages: Sequence[Stage], part: Part, /) -> Report:
        """Have it graded.

        Raises CourseError for the course's fault, SandboxError where there is no report.
        """
        from distributed import KilledWorker

        slugs = tuple(stage.slug for stage in stages)
        parcel = Parcel(
            work.info.digest, work.files, slugs, part, self.options, self.cluster.conditions, self.alone
        )
        try:
            answer = self.cluster.grade(parcel)
        except KilledWorker as error:
            self.is_lost = True
            raise SandboxError("its workers died over it") from error
        if answer.refused:
            self.cluster.fault = self.cluster.fault or Mistake(answer.refused)
        if answer.wrong_course:
            raise CourseError(answer.wrong_course)
        if not answer.report:
            raise SandboxError(answer.refused or answer.failed)
        report = reports.from_json(answer.report)
        if not report.submission.digest == parcel.digest or different(self.cluster.conditions, report):
            raise SandboxError("a worker answered with a report on something else")
        return replace(report, submission=work.info)


@contextmanager
def connected(address: str, course: Course, options: Options) -> Iterator[Cluster]:
    """Connect to a scheduler and look over its workers, which must have this course and this grader.

    They confine, whether this machine can or not. Raises Mistake where there is no scheduler, no worker, or
    one that differs.
    """
    try:
        import distributed
    except ImportError as error:
        raise Mistake(INSTALL) from error
    for name in ("distributed", "distributed.client"):  # what they would say is said in our words
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        asyncio.run(_knock(address))
    except Exception as error:  # anything may be listening there, and answer anything
        raise Mistake(f"no Dask scheduler answers at `{address}`: {told(error)}") from error
    with distributed.Client(address, timeout=ANSWERS_WITHIN_S, set_as_default=False) as client:
        try:
            client.wait_for_workers(1, timeout=WORKERS_WITHIN_S)
        except TimeoutError as error:
            raise Mistake(f"`{address}` has no worker: start some with `dask worker {address}`") from error
        ours = marking.conditions(course, replace(options, isolation="process"))
        ours = replace(ours, isolation="confined")
        about = client.run(outpost.examine, msgspec.msgpack.encode(options), on_error="return")
        yield Cluster(client, address, _agreed(about, options, ours), max(2, len(about)))


async def _knock(address: str) -> None:
    """See that a scheduler answers; a client would try for long, and close even longer."""
    from distributed.comm.core import connect
    from distributed.security import Security

    secured = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, ANSWERS_WITHIN_S, **secured), 2 * ANSWERS_WITHIN_S)
    await comm.close()


def _agreed(about: dict[str, Any], options: Options, ours: Conditions) -> Conditions:
    """What all the workers' reports will say of themselves.

    Raises Mistake naming the first worker that differs from us, or in its profile from the others.
    """
    for worker, answer in sorted(about.items()):
        is_fault = isinstance(answer, Exception)  # it may lack the grader altogether
        theirs = About(fault=f"{told(answer)}; {SAME}") if is_fault else opened(answer, About)
        if theirs.conditions is None:
            raise Mistake(f"the worker `{worker}` can't grade: {theirs.fault}")
        if options.profile is None and worker == min(about):
            ours = replace(ours, profile=theirs.conditions.profile)
        if wrong := different(ours, theirs.conditions):
            raise Mistake(f"the worker `{worker}` {wrong}")
    return ours


def _gone(address: str) -> Mistake:
    return Mistake(f"the scheduler `{address}` is gone; start it and its workers, the same command goes on")


def _serve(packed: bytes) -> bytes:
    """Grade a parcel on a worker."""
    from distributed import get_worker

    return outpost.answer(packed, get_worker().address)
