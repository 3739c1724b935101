"""The fork server: imports torch once, forks a confined host for every submission, and that one a process a
check.

    grader ── zygote (exec'd fresh, empty environment, never runs student code)
                └─ host    (one for a submission's stage: confines itself, imports the stage file)
                     └─ check (one for every check: answers its calls, then exits)

The zygote computes nothing, because a fork after torch's thread pool has started hangs. It alone kills: a
host, and whatever the host leaves behind, become the zygote's children and are ended here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import socket
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from grader.sandbox import confine, folder, seccomp, wire, worker
from grader.sandbox.tree import Tree

CONTROL, OUTPUT = 0, 1
STATUS_WAIT_S = 1.0
LOOK_EVERY_S = 0.05
FORK_PATIENCE_S, FORK_PAUSE_S = 5.0, 0.02


def main(control_fd: int) -> NoReturn:
    """Serve the grader on `control_fd` until it hangs up, then end everything and exit."""
    _preload()
    confine.hide()
    control = socket.socket(fileno=control_fd)
    _tell(control, {"op": "ready"})
    tree, folders = Tree(), set()
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            while tree.host and not select.select([control], [], [], LOOK_EVERY_S)[0]:
                tree.look()
            message, files = _hear(control)
            if message["op"] == "open":
                folders.add(Path(message["snapshot"]).parent)
            _tell(control, _obey(tree, message, files))
    tree.end()
    for path in folders:  # of a grader that was killed; it removes them itself otherwise
        folder.remove(path)
    os._exit(0)


def _obey(tree: Tree, message: dict[str, Any], files: list[int]) -> dict[str, Any]:
    """Do what the grader asks for; returns the reply."""
    if message["op"] == "open":
        tree.end()
        try:
            host = _open_host(message, files)
        except (
            OSError
        ):  # no more processes or descriptors on this machine; the grader will see a host that ended
            host = 0
        tree.begin(host, message["memory_mib"], Path(message["scratch"]))
        return {"op": "opened", "pid": host}
    if message["op"] == "sweep":
        tree.sweep()
        return {"op": "swept"}
    tree.end()
    return {"op": "closed", "status": tree.status, "why": tree.why}


def spawned(control_fd: int) -> NoReturn:
    """Be a worker without a fork server (`process` level): one process a stage, its checks in turn."""
    _preload()
    control = socket.socket(fileno=control_fd)
    _tell(control, {"op": "ready"})
    message, files = _hear(control)
    os.chdir(message["scratch"])
    _redirect(files[OUTPUT])
    layers = {"rlimits": _soft_limits(message)}
    host = _Host(files[CONTROL], message, forks=False)
    host.serve(layers)
    os._exit(0)


def _preload() -> None:
    """Import what stage files import, start no thread."""
    gc.disable()  # nothing of an import is garbage
    import torch
    import torch.nn.functional

    torch.set_num_threads(1)
    torch.backends.cpu.get_cpu_capability()  # reads /proc/cpuinfo, which a worker will not see
    for name in ("dataclasses", "inspect", "math", "numpy", "typing", "threading", "timeit"):
        __import__(name)
    gc.freeze()
    gc.enable()
    sys.dont_write_bytecode = True


def _soft_limits(message: dict[str, Any]) -> str:
    """The limits that every Unix has; macOS ignores the one on address space."""
    for name, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, confine.MAX_FILE_BYTES)):
        resource.setrlimit(name, (value, value))
    if not sys.platform.startswith("linux"):
        return "on: core, file size"
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    ceiling = mapped + (message["memory_mib"] << 20)
    resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
    return "on: core, file size, memory"


# Messages with descriptors


def _tell(connection: socket.socket, message: dict[str, Any]) -> None:
    encoder = wire.Encoder(lambda value: str(value))
    encoder.encode(message)
    wire.send(connection, encoder.out)


def _hear(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive one message and the descriptors sent just before it."""
    data, files, _, _ = socket.recv_fds(connection, 1, 4)
    if not data:
        raise EOFError
    message = wire.Decoder(wire.receive(connection)).decode()
    return message, list(files)


# Forking a host


def _open_host(message: dict[str, Any], files: list[int]) -> int:
    """Fork, confine and start a host; returns its process number as seen from here, or 0 where it failed.

    The host waits at a gate until it is this process's own child: it is to die with it.
    """
    read_end, write_end = os.pipe()
    gate, opener = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(read_end)
        os.close(opener)
        _become_middle(message, files, write_end, gate)
    for file in (write_end, gate, *files):
        os.close(file)
    told = os.read(read_end, 16)
    os.close(read_end)
    os.waitpid(middle, 0)
    os.close(opener)
    return int(told or b"0")


def _become_middle(message: dict[str, Any], files: list[int], write_end: int, gate: int) -> NoReturn:
    """Enter the new namespaces, fork the host inside them, tell its number and go."""
    try:
        os.setsid()
        plan = confine.Plan(
            Path(message["snapshot"]),
            Path(message["scratch"]),
            message["memory_mib"],
            message["cpu_s"],
            message["namespaces"],
        )
        user = confine.shed_user()
        namespaces = confine.leave_namespaces(plan)
        host = os.fork()
        if host == 0:
            os.close(write_end)
            os.read(gate, 1)
            confine.die_with_parent()
            _become_host(message, files, plan, namespaces, user)
        os.write(write_end, str(host).encode())
    finally:
        os._exit(0)


def _become_host(
    message: dict[str, Any], files: list[int], plan: confine.Plan, namespaces: str, user: str
) -> NoReturn:
    """Confine this process, then import the stage file and serve checks."""
    try:
        _redirect(files[OUTPUT])
        control = os.dup2(files[CONTROL], 3)
        _close_above(3)
        try:
            layers = confine.confine(plan, namespaces, user)
        except Exception as error:
            _tell(socket.socket(fileno=control), {"op": "unconfined", "text": f"{error}"})
            os._exit(1)
        _Host(control, message, forks=True).serve(layers)
    finally:
        os._exit(0)


def _close_above(last: int) -> None:
    """Close every descriptor above `last`, the fork server's own line to the grader among them."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > last:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(number)


def _redirect(output: int) -> None:
    """Standard input from nowhere; standard output and error to the grader's pipe."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


class _Host:
    """Import a stage file once and start a process for every check (`forks`), or answer the checks itself."""

    def __init__(self, control: int, message: dict[str, Any], *, forks: bool) -> None:
        self.control = socket.socket(fileno=control)
        self.file = Path(message["snapshot"]) / message["file"]
        self.late = message["late"]
        self.forks = forks
        self.module: ModuleType | None = None
        self.current = 0
        self.last_status = -1
        self.checks = 0
        self.scratch = Path.cwd()

    def serve(self, layers: dict[str, str]) -> None:
        sys.path.insert(0, str(self.file.parent))
        tempfile.tempdir = os.getcwd()
        _tell(self.control, {"op": "confined", "layers": layers})
        begun = time.monotonic()
        failure = self._import()
        _tell(self.control, {"op": "imported", "error": failure, "seconds": time.monotonic() - begun})
        while True:
            try:
                message, files = _hear(self.control)
            except (EOFError, OSError):
                return
            if message["op"] == "status":
                _tell(self.control, {"op": "status", "status": self._status()})
            else:
                self._start_check(files)

    def _import(self) -> wire.Error | None:
        """Import the given model and the stage file; an exception there is the student's and is reported."""
        try:
            if (self.file.parent / "gpt2.py").exists():
                __import__("gpt2")
            if not self.late:
                self.module = worker.import_student(self.file)
        except BaseException as error:
            return worker.describe(error, self.file.parent)
        return None

    def _start_check(self, files: list[int]) -> None:
        if not self.forks:
            self._run_check(files)
            return
        self._reap()
        child = _fork_patiently()
        if child == 0:
            try:
                self.control.close()
                seccomp.refuse_forks()
                self._run_check(files)
            finally:
                os._exit(0)
        self.current, self.last_status = child, -1
        self.checks += 1
        for file in files:
            os.close(file)

    def _enter_own_folder(self) -> None:
        """Give the check a working folder that no other has written to."""
        self.checks += 1
        own = self.scratch / f"check{self.checks}"
        own.mkdir()
        os.chdir(own)
        tempfile.tempdir = str(own)

    def _run_check(self, files: list[int]) -> None:
        os.dup2(files[OUTPUT], 1)
        os.dup2(files[OUTPUT], 2)
        os.close(files[OUTPUT])
        self._enter_own_folder()
        check = worker.Worker(socket.socket(fileno=files[CONTROL]), self.file.parent, self.module)
        try:
            check.serve()
        finally:
            if not self.forks:
                check.restore()
                check.connection.close()

    def _reap(self) -> int:
        """Collect ended children without waiting; returns the last check's wait status, -1 while it runs."""
        while self.forks:
            try:
                ended, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not ended:
                break
            if ended == self.current:
                self.last_status = code
        return self.last_status

    def _status(self) -> int:
        """How the last check's process ended; waits a moment for it to be gone."""
        deadline = time.monotonic() + STATUS_WAIT_S
        while self.forks and self._reap() < 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        return self.last_status


def _fork_patiently() -> int:
    """Fork; wait a while where another worker of the same user has taken all the processes there may be."""
    deadline = time.monotonic() + FORK_PATIENCE_S
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(FORK_PAUSE_S)
