"""The tree of processes below the fork server: who is in it, what it holds together, and its end.

A limit on one process (rlimits) is no limit on sixty-four of them. What they hold together is looked at from
outside, here, many times a second; whoever holds too much is ended with all its kin.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grader.sandbox import confine

END_S = 15.0
PAUSE_S = 0.002
LOOKS_A_WALK = 8  # a walk through the scratch folder takes longer than the other looks
LONGEST_PATH = 2000  # deeper nested folders take a walk ever longer
# A host and its checks share pages until one writes; each counts them. So two of them, and two that just end.
SHARES = 4
COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


@dataclass(slots=True)
class Tree:
    """Everything below this process: one host by number, and whatever it has started.

    `why` says what ended it, where it was for holding too much: `memory`, `processes` or `disk`.
    """

    host: int = 0
    memory_mib: int = 0
    scratch: Path = field(default_factory=Path)
    status: int = -1
    why: str = ""
    own_kib: int = 0
    looks: int = 0

    def begin(self, host: int, memory_mib: int, scratch: Path) -> None:
        """Take charge of a host."""
        self.host, self.memory_mib, self.scratch = host, memory_mib, scratch
        self.status, self.why = -1, ""
        self.own_kib = _resident_kib(os.getpid())  # the zygote's pages, which every process below shares

    def sweep(self) -> None:
        """Kill everything but the host."""
        kill(pid for pid in descendants(os.getpid()) if pid != self.host)
        self._reap()

    def end(self) -> None:
        """Kill the host and every process that it leaves, until there are none."""
        deadline = time.monotonic() + END_S
        while (below := descendants(os.getpid())) and time.monotonic() < deadline:
            kill(below)
            if not self._reap():
                time.sleep(PAUSE_S)
        self.host = 0

    def look(self) -> None:
        """End the host where its tree holds too much."""
        self._reap()
        if self.host and (why := self._excess()):
            self.end()
            self.why = why

    def _excess(self) -> str:
        below = descendants(os.getpid())
        if len(below) > confine.MAX_PROCESSES:
            return "processes"
        held_kib = sum(max(0, _resident_kib(pid) - self.own_kib) for pid in below)
        if held_kib > SHARES * self.memory_mib << 10:
            return "memory"
        self.looks += 1
        return "disk" if self.looks % LOOKS_A_WALK == 0 and _is_overfull(self.scratch) else ""

    def _reap(self) -> int:
        """Collect ended children without waiting; returns how many there were."""
        ended = 0
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if not pid:
                return ended
            ended += 1
            if pid == self.host:
                self.status = code


def descendants(pid: int) -> list[int]:
    """Numbers of all processes below one, adopted orphans included."""
    found, todo = [], [pid]
    while todo:
        below = _children(todo.pop())
        found += below
        todo += below
    return found


def _children(pid: int) -> list[int]:
    tasks = Path("/proc") / str(pid) / "task"
    try:
        return [int(n) for task in os.listdir(tasks) for n in (tasks / task / "children").read_text().split()]
    except FileNotFoundError:
        if not (Path("/proc/self/task") / str(os.getpid()) / "children").exists():
            return _children_by_search(pid)  # a kernel without these lists
        return []
    except OSError:
        return []


def _children_by_search(pid: int) -> list[int]:
    return [int(p.name) for p in Path("/proc").glob("[0-9]*") if _parent(p) == pid]


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def kill(pids: Iterable[int]) -> None:
    """Kill processes; those that are gone already are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _resident_kib(pid: int) -> int:
    """A process's memory that no file backs, shared memory included; 0 where it is gone."""
    try:
        lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(COUNTED))


def _is_overfull(scratch: Path) -> bool:
    """Whether the scratch folder holds too much: on disk it can, in memory (its own mount) it can't."""
    blocks = 0
    for number, entry in enumerate(_walk(scratch)):
        if len(entry.path) > LONGEST_PATH:
            return True
        try:
            blocks += entry.stat(follow_symlinks=False).st_blocks
        except OSError:
            continue
        if number >= confine.SCRATCH_FILES or blocks * 512 > confine.SCRATCH_MIB << 20:
            return True
    return False


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    todo = [os.fspath(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue
