"""A worker of a cluster: its own copy of the course, kept warm, and what it answers to a parcel.

What crosses are bytes of the three shapes here: a submission's files under their digest one way, a report as
JSON text the other. Whatever goes wrong is an answer too, so that no exception is sent.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from grader import course as courses
from grader import marking, submission
from grader import report as reports
from grader.errors import CourseError, GraderError, SandboxError
from grader.outcome import Part
from grader.report import Report, SubmissionInfo
from grader.results import Conditions
from grader.session import Options, Session
from grader.submission import Submission

T = TypeVar("T")
MARK = 12  # characters of a digest that are shown
SAME = "bring its copy of the course to the same version and start it again"
DIFFERENT = {
    "course_digest": ("another course", SAME),
    "grader_version": ("another grader", SAME),
    "seed_id": ("another seed secret", "copy `tests_hidden/seed.secret` there"),
    "isolation": ("another isolation level", "use machines that can confine"),
    "profile": ("another hardware profile", "say `--profile NAME` for all"),
    "public_only": ("another choice of checks", SAME),
}


class Parcel(msgspec.Struct, frozen=True):
    """A submission on its way to a worker, and how to grade it; `alone` where a clock is read."""

    digest: str
    files: dict[str, bytes]
    slugs: tuple[str, ...]
    part: Part
    options: Options
    expected: Conditions
    alone: bool


class Answer(msgspec.Struct, frozen=True):
    """A report as JSON text, or why there is none: by the worker, by the course, or by the grader's fault."""

    report: str = ""
    refused: str = ""
    wrong_course: str = ""
    failed: str = ""


class About(msgspec.Struct, frozen=True):
    """What a worker's reports would say of themselves, or why it can't grade."""

    conditions: Conditions | None = None
    fault: str = ""


class Bench:
    """What a worker's process keeps warm: its course as it was at first, and the last options' session."""

    def __init__(self) -> None:
        self.turn = threading.Lock()  # pytest and torch are for one at a time
        self.course = courses.find(Path(os.environ.get("GRADE_COURSE") or Path.cwd()))
        self.digest = self.course.digest
        self._session: Session | None = None

    def conditions(self, options: Options) -> Conditions:
        """What a report would say of itself; looked up each time, for the course may change meanwhile."""
        course = courses.load(self.course.root)
        if course.digest != self.digest:
            raise CourseError(f"`{course.root}` has changed since the worker started: start it again")
        secret = course.seed_secret
        needs_it = not options.public_only and options.seed is None and secret.parent.is_dir()
        if needs_it and not secret.is_file():
            raise CourseError(f"`{secret}` is missing: copy it there")
        return marking.conditions(course, options)

    def grade(self, parcel: Parcel) -> Report:
        if parcel.files and submission.digest(parcel.files) != parcel.digest:
            raise SandboxError("the submission was damaged on its way")
        session = self._warm(parcel.options)
        work = Submission(SubmissionInfo(parcel.digest[:MARK], parcel.digest), parcel.files)
        with _alone() if parcel.alone else nullcontext():
            return session.grade(work, [self.course.stage(slug) for slug in parcel.slugs], parcel.part)

    def _warm(self, options: Options) -> Session:
        if self._session is None or self._session.options != options:
            if self._session:
                self._session.close()
                self._session = None
            self._session = Session(self.course, options)
        return self._session


@cache
def _bench() -> Bench:
    return Bench()


def examine(packed: bytes) -> bytes:
    """Say on a worker what it would grade with."""
    try:
        about = About(_bench().conditions(opened(packed, Options)))
    except GraderError as error:
        about = About(fault=str(error))
    except Exception as error:
        about = About(fault=told(error))
    return msgspec.msgpack.encode(about)


def answer(packed: bytes, address: str) -> bytes:
    """Grade a parcel on the worker at this address."""
    return msgspec.msgpack.encode(_answer(opened(packed, Parcel), address))


def _answer(parcel: Parcel, address: str) -> Answer:
    try:
        bench = _bench()
        with bench.turn:
            if wrong := different(parcel.expected, bench.conditions(parcel.options)):
                return Answer(refused=f"the worker `{address}` {wrong}")
            return Answer(report=reports.to_json(bench.grade(parcel)))
    except CourseError as error:
        return Answer(wrong_course=str(error))
    except Exception as error:
        return Answer(failed=told(error))


@contextmanager
def _alone() -> Iterator[None]:
    """Be the only one on this machine that times: hold a lock, which ends with the process at the latest."""
    path = Path(tempfile.gettempdir()) / f"kvgrade-clock-{os.getuid()}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def different(ours: Conditions, theirs: Conditions | Report) -> str:
    """Say in what a worker differs; nothing where it does not."""
    for name, (what, remedy) in DIFFERENT.items():
        here, there = str(getattr(ours, name)), str(getattr(theirs, name))
        if here != there:
            return f"has {what}: `{_short(there)}`, here it is `{_short(here)}`; {remedy}"
    return ""


def _short(text: str) -> str:
    return text[:MARK] if len(text) == 64 else text


def opened(packed: Any, kind: type[T]) -> T:
    """Read what a worker sent, which must be bytes of the right shape."""
    try:
        return msgspec.msgpack.decode(packed, type=kind)
    except (msgspec.MsgspecError, TypeError) as error:
        raise SandboxError(f"a worker sent something unreadable: {error}") from error


def told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
