"""One stage of one submission under grading: its snapshot, its host, and a channel for every check."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from grader import groundwork
from grader.course import Course, Stage
from grader.errors import ProtocolError, SandboxError
from grader.fixtures import local_student
from grader.machine import Machine
from grader.outcome import Verdict
from grader.sandbox import folder as folders
from grader.sandbox.host import Host, Launcher, Place
from grader.sandbox.remote import Channel, RemoteModule, StudentFault, crash_fault, fault_from, import_timeout
from grader.submission import Submission

PATIENCE = 2  # checks of a stage that may use up their whole time before the rest get less
IMPATIENT_SHARE = 0.25
IMPORTS = 3  # a stage file whose checks keep ending its process is imported anew for so many limits' time
CPU_SHARE = 4  # processor seconds a process may use, as a multiple of its wall-clock limits


@dataclass(slots=True)
class StageHost:
    """Open the host when first asked and again after a check ended it; a failed import is final."""

    course: Course
    submission: Submission
    stage: Stage
    launcher: Launcher | None
    namespaces: bool
    layers: dict[str, str] = field(default_factory=dict)
    folder: Path = field(default_factory=folders.make)
    host: Host | None = None
    channel: Channel | None = None
    import_fault: StudentFault | SandboxError | None = None
    late: bool = False
    timeouts: int = 0
    importing_s: float = 0.0
    local: Generator[ModuleType, None, None] | None = None

    def __post_init__(self) -> None:
        """Lay the snapshot: the given model, this stage's file, what it builds on or its checks run."""
        snapshot = self.folder / "snapshot"
        if self.course.given.is_file():
            (snapshot / self.course.given.name).write_bytes(self.course.given.read_bytes())
        for name in (self.stage.file, *groundwork.beside(self.course, self.stage)):
            content = self.submission.files.get(name)
            if content is not None:
                (snapshot / name).write_bytes(content)

    @property
    def file(self) -> Path:
        return self.folder / "snapshot" / self.stage.file

    def student(self, pretend: Machine | None) -> Any:
        """The stage file for one check, behind its transport.

        Raises StudentFault where it, or what it builds on, is missing or can't be imported; SandboxError
        where the untrusted side fails.
        """
        if self.stage.file not in self.submission.files:
            raise StudentFault.of(Verdict.TODO, f"`{self.stage.file}` is not in the submission")
        lack = groundwork.missing(self.course, self.stage, self.submission.files)
        if lack:
            raise lack
        if self.launcher is None:
            return self._in_process(pretend)
        host = self._ready_host()
        self.channel = Channel(host, self._patience_s(), self.stage.limits.output_kib << 10)
        if pretend or self.late:
            self._import_in_check(self.channel, pretend)
        return RemoteModule(self.channel)

    def finish_check(self) -> str:
        """Hang up on the check's process; returns what it printed."""
        if self.local is not None:
            with contextlib.suppress(StopIteration):
                next(self.local)
            self.local = None
        if self.channel is None:
            return ""
        channel, self.channel = self.channel, None
        channel.close()
        self._sweep()
        self.timeouts += channel.timed_out
        text = channel.output.text()
        channel.output.close()
        return text

    def close(self) -> None:
        """End the host and remove the folder."""
        self.finish_check()
        if self.host:
            with contextlib.suppress(SandboxError):  # every check has its verdict already
                self.host.end()
        folders.remove(self.folder)

    def _sweep(self) -> None:
        """Kill what a check or the import has left running: it must neither burn time nor watch the next."""
        if self.host:
            with contextlib.suppress(SandboxError):  # the next check says it
                self.host.sweep()

    def _in_process(self, pretend: Machine | None) -> ModuleType:
        self.local = local_student(self.file, pretend, groundwork.beside(self.course, self.stage))
        return next(self.local)

    def _import_in_check(self, channel: Channel, pretend: Machine | None) -> None:
        """Have the file imported in the check's own process; a failure there is final."""
        try:
            channel.open(str(self.file), pretend.hooks() if pretend else {})
        except StudentFault as fault:
            self.import_fault = self._blamed(fault)
            raise self.import_fault from fault

    def _blamed(self, fault: StudentFault) -> StudentFault:
        return groundwork.blamed(fault, groundwork.files(self.course, self.stage))

    def _patience_s(self) -> float:
        whole = self.stage.limits.check_s
        return whole if self.timeouts < PATIENCE else whole * IMPATIENT_SHARE

    def _ready_host(self) -> Host:
        if self.import_fault:
            raise self.import_fault
        if self.host is None or not self.host.alive:
            self.host = self._open_host()
            self._sweep()  # no process that the import has started outlives it
            if not self.late and self.host.threads() > 1:  # a fork of it would hang
                self.host.end()
                self.late = True
                self.host = self._open_host()
        return self.host

    def _open_host(self) -> Host:
        assert self.launcher is not None
        if self.host:
            folders.renew(self.folder)
        limits = self.stage.limits
        place = Place(
            self.folder / "snapshot",
            self.folder / "scratch",
            self.stage.file,
            limits.import_s,
            limits.memory_mib,
            int(CPU_SHARE * (limits.import_s + limits.check_s)),
            self.namespaces,
        )
        self.late = self.late or self.launcher.level == "process"
        try:
            host = self.launcher.open(place, late=self.late)
        except SandboxError as error:
            self.import_fault = error
            raise
        self.layers = host.layers
        begun = time.monotonic()
        try:
            failure = host.wait_imported()
        except TimeoutError:
            host.end()
            self.import_fault = import_timeout(self.stage.file, limits.import_s)
        except EOFError:
            status = host.end()
            self.import_fault = crash_fault(status, self.stage.file, host.why)
        except ProtocolError as broken:
            host.end()
            self.import_fault = StudentFault.of(Verdict.PROTOCOL, f"`{self.stage.file}`: {broken}")
        else:
            self.import_fault = self._blamed(fault_from(failure, self.stage.file)) if failure else None
            self.importing_s += time.monotonic() - begun
            if self.importing_s > IMPORTS * limits.import_s:
                self.import_fault = import_timeout(
                    self.stage.file, IMPORTS * limits.import_s, "again and again"
                )
        if self.import_fault:
            host.end()
            raise self.import_fault
        return host
