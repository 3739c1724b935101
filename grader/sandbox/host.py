"""Starting and ending the processes of the untrusted side: the fork server, hosts, and their output."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from grader.errors import ProtocolError, SandboxError
from grader.sandbox import tree, wire
from grader.sandbox.launch import Started, launch

START_S = 120.0
CONFINE_S = 20.0
KILL_S = 20.0
STATUS_S = 3.0
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where and under which limits a stage file runs: from `snapshot`, writing only to `scratch`."""

    snapshot: Path
    scratch: Path
    file: str
    import_s: float
    memory_mib: int
    cpu_s: int
    namespaces: bool = True


@dataclass(slots=True)
class Output:
    """What a process prints, read as it comes, its middle dropped where it is longer than `limit_bytes`."""

    limit_bytes: int
    read_end: int = -1
    write_end: int = -1
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def __post_init__(self) -> None:
        self.read_end, self.write_end = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(self.read_end, False)

    def close_write_end(self) -> None:
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def drain(self) -> bool:
        """Read what is there; returns false at end of file."""
        half = self.limit_bytes // 2
        for _ in range(64):
            try:
                piece = os.read(self.read_end, CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not piece:
                return False
            self.total += len(piece)
            room = max(0, half - len(self.head))
            self.head += piece[:room]
            self.tail += piece[room:]
            del self.tail[: max(0, len(self.tail) - half)]
        return True

    def text(self) -> str:
        """Everything kept, as text."""
        self.drain()
        dropped = self.total - len(self.head) - len(self.tail)
        gap = f"\n… {dropped} bytes left out …\n".encode() if dropped else b""
        return (bytes(self.head) + gap + bytes(self.tail)).decode("utf-8", "replace")

    def close(self) -> None:
        self.close_write_end()
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1


def tell(connection: socket.socket, message: dict[str, Any], files: tuple[int, ...] = ()) -> None:
    """Send a control message, with descriptors where it has any.

    Raises EOFError where the other end is gone.
    """
    encoder = wire.Encoder(convert=str)
    encoder.encode(message)
    try:
        connection.settimeout(KILL_S)
        socket.send_fds(connection, [b"m"], files)
        wire.send(connection, encoder.out)
    except OSError as error:
        raise EOFError from error


def hear(connection: socket.socket, deadline: float) -> dict[str, Any]:
    """Receive a control message.

    Raises EOFError, TimeoutError, ProtocolError.
    """
    message = wire.Decoder(wire.receive(connection, deadline)).decode()
    if type(message) is not dict or type(message.get("op")) is not str:
        raise ProtocolError("a control message that is not one")
    return message


def hear_with_output(connection: socket.socket, deadline: float, output: Output) -> dict[str, Any]:
    """Receive a message while draining what the process prints."""
    wait_readable(connection, deadline, output)
    return hear(connection, deadline)


def wait_readable(connection: socket.socket, deadline: float, output: Output) -> None:
    """Wait until `connection` has bytes or is closed, draining `output` meanwhile.

    Raises TimeoutError past `deadline`.
    """
    watched = [connection.fileno(), output.read_end]
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        ready, _, _ = select.select(watched, [], [], left)
        if output.read_end in ready and not output.drain():
            watched = [connection.fileno()]
        if connection.fileno() in ready:
            return


class Launcher(Protocol):
    """Something that can start a host: the fork server, or one fresh process a stage.

    One that is `lost` can start no more.
    """

    level: str
    lost: bool

    def open(self, place: Place, *, late: bool) -> Host: ...

    def sweep(self) -> None: ...

    def end(self, host: Host) -> int: ...

    def close(self) -> None: ...


class Host:
    """The process that has a stage file imported; makes a process (or a turn) for every check."""

    def __init__(
        self, launcher: Launcher, control: socket.socket, pid: int, place: Place, output: Output
    ) -> None:
        self.launcher, self.control, self.pid, self.place, self.output = launcher, control, pid, place, output
        self.layers: dict[str, str] = {}
        self.alive = True
        self.why = ""  # what the fork server ended it for, if it did: `memory`, `processes`, `disk`

    def wait_confined(self) -> None:
        """Wait until the host has confined itself.

        Raises SandboxError where it could not.
        """
        try:
            message = hear(self.control, time.monotonic() + CONFINE_S)
        except (EOFError, TimeoutError, ProtocolError) as error:
            self.end()
            raise SandboxError(f"the worker did not start: {type(error).__name__}") from error
        if message["op"] != "confined":
            self.end()
            raise SandboxError(f"the worker could not be confined: {message.get('text')}")
        self.layers = dict(message["layers"])

    def wait_imported(self) -> wire.Error | None:
        """Wait until the stage file is imported; returns the exception that it raised, if any.

        Raises EOFError, TimeoutError, ProtocolError.
        """
        message = hear_with_output(self.control, time.monotonic() + self.place.import_s, self.output)
        error = message.get("error")
        if message["op"] != "imported" or not (error is None or type(error) is wire.Error):
            raise ProtocolError("a control message that is not one")
        return error

    def threads(self) -> int:
        """How many threads the host has (1 where that can't be told)."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
            return int(status.partition("Threads:")[2].split()[0])
        except (OSError, ValueError, IndexError):
            return 1

    def start_check(self, output: Output) -> socket.socket:
        """Have a process made for one check; returns the connection to it.

        Raises EOFError where the host is gone.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                tell(self.control, {"op": "check"}, (theirs.fileno(), output.write_end))
            except BaseException:
                ours.close()
                raise
        return ours

    def check_status(self) -> int:
        """The wait status of the last check's process; -1 where it can't be told."""
        try:
            tell(self.control, {"op": "status"})
            status = hear(self.control, time.monotonic() + STATUS_S).get("status")
        except (EOFError, TimeoutError, ProtocolError):
            return self.end()
        return status if type(status) is int else -1

    def sweep(self) -> None:
        """Kill every process but the host's own: a check's that should have ended, a daemon of the import's.

        Raises SandboxError where the fork server is gone.
        """
        if self.alive:
            self.launcher.sweep()

    def end(self) -> int:
        """Kill the host and all it left; returns its wait status, -1 where it can't be told."""
        if not self.alive:
            return -1
        self.alive = False
        self.control.close()
        try:
            return self.launcher.end(self)
        finally:
            self.output.close()


def _await_ready(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    try:
        hear(control, time.monotonic() + START_S)
    except (EOFError, TimeoutError, ProtocolError) as error:
        process.kill()
        said = (process.stderr.read() if process.stderr else b"").decode("utf-8", "replace").strip()
        last = said.splitlines()[-1] if said else type(error).__name__
        raise SandboxError(f"the worker process did not start: {last}") from error


class ForkServer:
    """`confined`: one zygote with torch imported, a confined host for every submission's stage."""

    level = "confined"

    def __init__(self, started: Started) -> None:
        self.process, self.control = started.process, started.control
        self.ready = self.lost = False

    def open(self, place: Place, *, late: bool = False) -> Host:
        """Start a host and wait until it is confined.

        Raises SandboxError.
        """
        if not self.ready:
            self.lost = True  # unless it answers
            _await_ready(self.process, self.control)
            self.ready, self.lost = True, False
        output = Output(CHUNK_BYTES)
        ours, theirs = socket.socketpair()
        message = _request(place, late) | {"op": "open", "namespaces": place.namespaces}
        try:
            with theirs:
                reply = self._ask(message, CONFINE_S, (theirs.fileno(), output.write_end))
        except SandboxError:
            ours.close()
            output.close()
            raise
        output.close_write_end()
        host = Host(self, ours, reply["pid"], place, output)
        host.wait_confined()
        return host

    def sweep(self) -> None:
        """Kill everything the zygote has started, but not the host."""
        self._ask({"op": "sweep"}, KILL_S)

    def end(self, host: Host) -> int:
        """Kill everything the zygote has started."""
        try:
            reply = self._ask({"op": "close"}, KILL_S)
        except SandboxError:
            tree.kill([*tree.descendants(host.pid), host.pid])
            raise
        host.why = reply["why"]
        return int(reply["status"])

    def close(self) -> None:
        """Hang up, which makes the zygote end everything, and wait for it."""
        self.control.close()
        _finish(self.process)

    def _ask(self, message: dict[str, Any], wait_s: float, files: tuple[int, ...] = ()) -> dict[str, Any]:
        """Have the zygote do something; where it does not, it is of no use any more and is ended.

        Raises SandboxError.
        """
        try:
            tell(self.control, message, files)
            return hear(self.control, time.monotonic() + wait_s)
        except (EOFError, TimeoutError, ProtocolError) as error:
            self.lost = True
            tree.kill([*tree.descendants(self.process.pid), self.process.pid])
            raise SandboxError(f"the fork server is gone: {type(error).__name__}") from error


class Spawner:
    """`process`: a fresh Python for every stage, its checks in turn; limits, but no confinement."""

    level = "process"
    lost = False

    def __init__(self) -> None:
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def open(self, place: Place, *, late: bool = False) -> Host:
        """Start a process and wait until it is ready.

        Raises SandboxError.
        """
        started = launch("spawned")
        process, ours = started.process, started.control
        output = Output(CHUNK_BYTES)
        self.processes[process.pid] = process
        _await_ready(process, ours)
        host_control, host_end = socket.socketpair()
        with host_end:
            tell(ours, _request(place, late) | {"op": "open"}, (host_end.fileno(), output.write_end))
        ours.close()
        output.close_write_end()
        host = Host(self, host_control, process.pid, place, output)
        host.wait_confined()
        return host

    def sweep(self) -> None:
        """Do nothing: here the checks' process and the host are one."""

    def end(self, host: Host) -> int:
        """Kill the process group."""
        process = self.processes.pop(host.pid)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(process.pid, signal.SIGKILL)
        return _finish(process)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            _finish(process)


def _request(place: Place, late: bool) -> dict[str, Any]:
    return {
        "snapshot": str(place.snapshot),
        "scratch": str(place.scratch),
        "file": place.file,
        "memory_mib": place.memory_mib,
        "cpu_s": place.cpu_s,
        "late": late,
    }


def _finish(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that was told to end; returns its status as `os.waitpid` gives it."""
    try:
        code = process.wait(KILL_S)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    if process.stderr:
        process.stderr.close()
    return -code if code < 0 else code << 8
