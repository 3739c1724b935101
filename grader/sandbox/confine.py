"""Confinement of this process: what a worker can't do any more, layer by layer.

Covered on Linux: reading any file but Python, the system's libraries and the submission's snapshot; writing
anywhere but one private folder; the network, loopback included; other programs; other processes (signals,
ptrace, memory); memory, CPU time, file size, descriptors, core files; outliving the grader. Not covered: the
CPU's side channels; holes in the kernel itself; how much CPU and memory bandwidth a worker takes while its
deadline runs; on kernels without user namespaces also: the sight of other processes' numbers.
`docs/security.md` says more.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from grader.errors import SandboxError
from grader.sandbox import landlock, seccomp

REQUIRED = ("landlock", "seccomp", "rlimits", "capabilities")
NOBODY = 65534
ALONE = "on: a user of its own"
SPARE_USERS = 0x70000000  # beyond what systemd, containers and people are given
MAX_PROCESSES = 64
MAX_FILES = 64
MAX_FILE_BYTES = 4 << 20
SCRATCH_MIB = 64
SCRATCH_FILES = 2000

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 16384, 1 << 18
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 4, 24, 1, 36
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 40


@dataclass(frozen=True, slots=True)
class Plan:
    """How to confine one worker; `namespaces` false leaves those out."""

    snapshot: Path
    scratch: Path
    memory_mib: int
    cpu_s: int
    namespaces: bool = True


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def hide() -> None:
    """Make this process unreadable to others of its user, the parent of its orphans, and first to go.

    Where the machine's memory runs out, the kernel is to end a worker, and not the grader.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    _check(_libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")
    _check(_libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies."""
    _check(_libc().prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "parent death signal")


def leave_namespaces(plan: Plan) -> str:
    """Enter new user, mount, pid, net and ipc namespaces; the next fork is process 1 in there.

    Returns "on" or why not.
    """
    if not plan.namespaces:
        return "off: switched off"
    uid, gid = os.geteuid(), os.getegid()
    try:
        _check(_libc().prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")
        flags = _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC
        _check(_libc().unshare(flags), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError as error:
        return f"off: {error.strerror or error}"
    finally:
        _libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # a crash is not to wake the machine's crash reporter
    return "on"


def shed_user() -> str:
    """As root, become by real user id somebody who has no other process: the limit on those counts by it.

    The effective user stays root, which Python and the snapshot may belong to; its powers go later.
    """
    if os.getuid() != 0:
        return "on: not root"
    try:
        os.setgroups([])
        os.setresuid(SPARE_USERS + os.getpid(), 0, 0)
    except OSError as error:  # a container that has only so many users
        return f"off: {error.strerror}" if not _become_nobody() else "on: real user is nobody"
    return ALONE


def _become_nobody() -> bool:
    try:
        os.setresuid(NOBODY, 0, 0)
    except OSError:
        return False
    return True


def confine(plan: Plan, namespaces: str, user: str) -> dict[str, str]:
    """Confine this process for good; `namespaces` and `user` are what `leave_namespaces` and `shed_user`
    said.

    Returns each layer's "on" or why it is off. Raises SandboxError where a required layer can't be had.
    """
    layers = {"namespaces": namespaces, "user": user}
    alone = namespaces == "on" or user == ALONE
    layers["rlimits"] = _attempt(lambda: _limit(plan, own_count=alone))
    if namespaces == "on":
        layers["mounts"] = _attempt(lambda: _hide_mounts(plan.scratch))
    os.chdir(plan.scratch)
    layers["capabilities"] = _attempt(_drop_capabilities)
    layers["landlock"] = _attempt(
        lambda: landlock.restrict(_rules(plan)), f"on: {', '.join(landlock.covers())}"
    )
    layers["seccomp"] = (
        _attempt(seccomp.refuse_dangerous) if seccomp.supported() else "off: not on this machine"
    )
    missing = [name for name in REQUIRED if not layers[name].startswith("on")]
    if missing:
        raise SandboxError("; ".join(f"`{name}` is {layers[name]}" for name in missing))
    return layers


def try_out(plan: Plan, action: Callable[[dict[str, str]], Any]) -> Any:
    """Confine a fresh child process, call `action` with its layers in there; return what that gives, if JSON.

    Raises SandboxError where it can't be confined or gives nothing.
    """
    read_end, write_end = os.pipe()
    middle = os.fork()
    if middle == 0:
        _try_out_in_child(plan, action, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as file:
        said = file.read()
    os.waitpid(middle, 0)
    kind, _, text = said.decode().partition(" ")
    if kind != "value":
        raise SandboxError(text or "the process to be confined ended without a word")
    return json.loads(text)


def _try_out_in_child(plan: Plan, action: Callable[[dict[str, str]], Any], write_end: int) -> NoReturn:
    said = ""
    try:
        os.setsid()
        user = shed_user()
        namespaces = leave_namespaces(plan)
        child = os.fork()  # process 1 of the new namespace, as a host is
        if child:
            os.waitpid(child, 0)
            os._exit(0)
        said = f"value {json.dumps(action(confine(plan, namespaces, user)))}"
    except BaseException as error:
        said = f"error {error}"
    finally:
        os.write(write_end, said.encode())
        os._exit(0)


def probe_layers(*, namespaces: bool = True) -> dict[str, str]:
    """Find out what confines a worker on this machine, by confining a process.

    Raises SandboxError where a required layer can't be had.
    """
    with tempfile.TemporaryDirectory(prefix="kvgrade-") as folder:
        plan = Plan(Path(folder), Path(folder), memory_mib=1024, cpu_s=10, namespaces=namespaces)
        layers: dict[str, str] = try_out(plan, lambda layers: layers)
        return layers


def _attempt(action: Callable[[], None], on: str = "on") -> str:
    try:
        action()
    except OSError as error:
        return f"off: {error.strerror or error}"
    return on


def _hide_mounts(scratch: Path) -> None:
    """Give this mount namespace an empty /proc and a scratch folder in memory that vanishes with it."""
    libc, options = _libc(), _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "private mounts")
    size = f"size={SCRATCH_MIB}m,nr_inodes={SCRATCH_FILES},mode=700".encode()
    _check(libc.mount(b"tmpfs", os.fsencode(scratch), b"tmpfs", options, size), "scratch")
    for folder in (b"/proc", b"/dev/shm"):
        if os.path.isdir(folder):
            _check(libc.mount(b"tmpfs", folder, b"tmpfs", options | 1, b"size=4k"), os.fsdecode(folder))


def _rules(plan: Plan) -> list[tuple[Path, int]]:
    """The allow-list: Python, the system's libraries, the snapshot; one writable folder; three devices."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {str(Path(sys.base_prefix) / "lib"), *(p for p in sys.path if p.endswith("site-packages"))}
    system = ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo"]
    readable = [Path(p) for p in sorted(paths) + system] + [plan.snapshot]
    rules = [(path, landlock.READ) for path in readable]
    rules += [(Path("/dev") / name, landlock.DEVICE) for name in ("null", "zero", "urandom")]
    return [*rules, (plan.scratch, landlock.WRITE)]


def readable_roots() -> list[Path]:
    """Folders that every worker can read; nothing secret may lie below them, and no course."""
    plan = Plan(Path("/nonexistent"), Path("/nonexistent"), 0, 0)
    return [path for path, access in _rules(plan) if access == landlock.READ and path.is_dir()]


def _limit(plan: Plan, *, own_count: bool) -> None:
    """Resource limits, hard; the address space counts from what the bare worker already maps.

    Processes are counted per user, in a user namespace of one's own from nought (`own_count`), else beside
    all others.
    """
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    others = 0 if own_count else int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    limits = {
        resource.RLIMIT_AS: mapped + (plan.memory_mib << 20),
        resource.RLIMIT_CPU: plan.cpu_s,
        resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
        resource.RLIMIT_NOFILE: MAX_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: others + MAX_PROCESSES,
    }
    for name, value in limits.items():
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (value, value))


def _drop_capabilities() -> None:
    """Give up every capability, bounding set included; root's uid alone then grants nothing."""
    libc = _libc()
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused without CAP_SETPCAP: then there is none
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(libc.capset(header, nothing), "capset")
