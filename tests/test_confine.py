"""What a confined process can't do, layer by layer: with and without namespaces, as root and as nobody."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grader import course as courses
from grader.errors import SandboxError
from grader.sandbox import confine, landlock, seccomp
from grader.session import Options, Session, missing_layers

pytestmark = pytest.mark.skipif(bool(missing_layers()), reason=f"confined can't be had: {missing_layers()}")

ROOT = Path(__file__).resolve().parents[1]
NAMESPACES = {"namespaces": True, "no-namespaces": False}
SYSTEM_PYTHON = "/usr/bin/python3"
DENIED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
NOBODY = 65534


@pytest.fixture(params=NAMESPACES)
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> confine.Plan:
    return make_plan(tmp_path, namespaces=NAMESPACES[request.param])


def make_plan(folder: Path, *, namespaces: bool) -> confine.Plan:
    for name in ("snapshot", "scratch"):
        (folder / name).mkdir()
    (folder / "snapshot" / "given.py").write_text("x = 1")
    return confine.Plan(folder / "snapshot", folder / "scratch", 512, 20, namespaces)


@pytest.fixture(scope="module", params=NAMESPACES)
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of everything that a confined process has tried, by its name."""
    plan = make_plan(tmp_path_factory.mktemp("place"), namespaces=NAMESPACES[request.param])
    everything = FORBIDDEN | {what: action for what, (action, _) in ALLOWED.items()}
    with victim_watched():
        found: dict[str, Any] = confine.try_out(
            plan, lambda layers: {what: outcome(action) for what, action in everything.items()}
        )
    return found


def outcome(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except OSError as error:
        return "refused" if error.errno in DENIED else f"{type(error).__name__}: {error}"


def call(number: int, *args: Any) -> int:
    """Make a system call by its number; raises OSError where it is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(number, *args))
    if result < 0:
        raise OSError(ctypes.get_errno(), "system call")
    return result


def read(path: str) -> Callable[[], str]:
    return lambda: Path(path).read_text()


def number(name: str) -> int:
    """A refused call's number on this machine."""
    found = seccomp._REFUSED[name][seccomp._COLUMN[platform.machine()]]
    assert found is not None
    return found


VICTIM = Path(tempfile.gettempdir()) / "kvgrade-test-victim"


@contextlib.contextmanager
def victim_watched() -> Iterator[None]:
    """Have a file that everybody may read and write, outside a worker's places, and see it stay the same."""
    VICTIM.write_text("whole")
    VICTIM.chmod(0o666)
    before = VICTIM.stat()
    yield
    after = VICTIM.stat()
    VICTIM.unlink()
    for name in ("st_mode", "st_uid", "st_nlink", "st_size", "st_mtime_ns", "st_ctime_ns"):
        assert getattr(after, name) == getattr(before, name)


def connect_to_myself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname())


FORBIDDEN: dict[str, Callable[[], Any]] = {
    # files
    "read /etc/passwd": read("/etc/passwd"),
    "read a file in /tmp": read(str(VICTIM)),
    "read the home folder": lambda: os.listdir(os.path.expanduser("~root")),
    "list /": lambda: os.listdir("/"),
    "list /tmp": lambda: os.listdir(tempfile.gettempdir()),
    "read the course": lambda: (ROOT / "exercises" / "stages.toml").read_text(),
    "write in /tmp": lambda: VICTIM.write_text("spoilt"),
    "append": lambda: open(VICTIM, "a").close(),
    "truncate": lambda: os.truncate(VICTIM, 0),
    "write the snapshot": lambda: (Path.cwd().parent / "snapshot" / "given.py").write_text("x = 2"),
    "write Python's library": lambda: open(os.__file__, "a").close(),
    "remove": lambda: VICTIM.unlink(),
    "rename": lambda: VICTIM.rename(f"{VICTIM}.mine"),
    "hard link": lambda: os.link(VICTIM, f"{VICTIM}.mine"),
    "symbolic link": lambda: os.symlink(VICTIM, "mine"),
    "named pipe": lambda: os.mkfifo("pipe"),
    "change the mode": lambda: VICTIM.chmod(0o600),
    "change the mode of a library": lambda: os.fchmod(os.open(os.__file__, os.O_RDONLY), 0o600),
    "change the owner": lambda: os.chown(VICTIM, 1, 1),
    "change the times": lambda: os.utime(VICTIM, (1, 1)),
    "set an attribute": lambda: os.setxattr(VICTIM, "user.x", b"1"),
    "chroot": lambda: os.chroot("."),
    # processes
    "run a program": lambda: os.execv("/bin/true", ["true"]),
    "signal the parent": lambda: os.kill(os.getppid() or 1, 0),
    "signal everybody": lambda: os.kill(-1, signal.SIGKILL),
    "signal itself": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "a session of its own": os.setsid,
    "a group of its own": lambda: os.setpgid(0, 0),
    "trace": lambda: call(number("ptrace"), 16, os.getppid() or 1, 0, 0),
    "read another's memory": lambda: call(number("process_vm_readv"), os.getppid() or 1, 0, 0, 0, 0, 0),
    "limit another": lambda: resource.prlimit(os.getppid() or 1, resource.RLIMIT_NOFILE),
    "a descriptor of another's": lambda: call(number("pidfd_open"), os.getppid() or 1, 0),
    "another user": lambda: os.setresuid(0, 0, 0),
    "another group": lambda: os.setgroups([0]),
    "real time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "who gets a descriptor's signals": lambda: fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid() or 1),
    "a lease": lambda: fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK),
    "outlive the parent": lambda: call({"x86_64": 157, "aarch64": 167}[platform.machine()], 1, 0, 0, 0, 0),
    # the network
    "a socket": socket.socket,
    "a socket of the new family": lambda: socket.socket(socket.AF_INET6),
    "a local socket": lambda: socket.socket(socket.AF_UNIX),
    "a pair of sockets": socket.socketpair,
    "the loopback": connect_to_myself,
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    # the machine
    "namespaces": lambda: call(number("unshare"), 0x10000000),
    "mount": lambda: call(number("mount"), b"none", b".", b"tmpfs", 0, None),
    "bpf": lambda: call(number("bpf"), 0, 0, 0),
    "io_uring": lambda: call(number("io_uring_setup"), 1, 0),
    "performance counters": lambda: call(number("perf_event_open"), 0, 0, -1, -1, 0),
    "userfaultfd": lambda: call(number("userfaultfd"), 0),
    "keys": lambda: call(number("keyctl"), 0, 0, 0, 0, 0),
    "memory files": lambda: os.memfd_create("x"),
    "shared memory": lambda: call(number("shmget"), 0, 4096, 0o1600),
    "message queues": lambda: call(number("mq_unlink"), b"x"),
    "watches": lambda: call(number("inotify_init1"), 0),
    "a call that is younger than the tables": lambda: call(452, -100, b".", 0o700, 0),
    "a call that never was": lambda: call(999),
}  # fmt: skip


@pytest.mark.parametrize("what", FORBIDDEN)
def test_is_refused(outcomes: dict[str, Any], what: str) -> None:
    assert outcomes[what] == "refused"


ALLOWED: dict[str, tuple[Callable[[], Any], Any]] = {
    "read the snapshot": (lambda: (Path.cwd().parent / "snapshot" / "given.py").read_text(), "x = 1"),
    "read Python's library": (lambda: "def" in Path(os.__file__).read_text(), True),
    "write its own folder": (lambda: Path("a").write_text("12") and Path("a").read_text(), "12"),
    "folders, renamed and removed": (lambda: os.mkdir("d") or os.rename("d", "e") or os.rmdir("e"), None),
    "temporary files": (lambda: len(tempfile.mkdtemp(dir=".")) > 2, True),
    "/dev/null": (lambda: Path("/dev/null").write_text("x"), 1),
    "random numbers": (lambda: len(os.urandom(9) + os.read(os.open("/dev/urandom", 0), 9)), 18),
    "threads": (lambda: [t.start() or t.join() for t in [threading.Thread(target=int)]], [None]),
    "pipes": (lambda: os.write(os.pipe()[1], b"x"), 1),
    "a fork": (lambda: os.waitpid(os.fork() or os._exit(3), 0)[1], 3 << 8),
    "is it a terminal": (lambda: os.isatty(0), False),
    "close on exec": (lambda: os.set_inheritable(os.dup(1), True), None),
    "its own limits": (lambda: resource.getrlimit(resource.RLIMIT_CORE)[1], 0),
    "its own priority": (lambda: os.nice(1) >= 0, True),
    "its own alarm": (lambda: signal.setitimer(signal.ITIMER_REAL, 0)[0], 0.0),
}


@pytest.mark.parametrize("what", ALLOWED)
def test_is_not_refused(outcomes: dict[str, Any], what: str) -> None:
    assert outcomes[what] == ALLOWED[what][1]


def test_procs_files_are_out_of_reach(plan: confine.Plan) -> None:
    paths = ["environ", "maps", "mem", "status", "cmdline", "root/etc/passwd"]
    files = [f"/proc/{pid}/{path}" for pid in ("self", "1", str(os.getpid())) for path in paths]

    said = confine.try_out(plan, lambda layers: {file: outcome(read(file)) for file in files})

    assert [file for file in files if said[file] != "refused" and "No such file" not in said[file]] == []


def test_limits_are_in_force_and_hard(plan: confine.Plan) -> None:
    names = ("AS", "CPU", "FSIZE", "NOFILE", "CORE", "NPROC")

    limits = confine.try_out(
        plan, lambda layers: {n: resource.getrlimit(getattr(resource, f"RLIMIT_{n}")) for n in names}
    )

    assert all(soft == hard != resource.RLIM_INFINITY for soft, hard in limits.values())
    assert limits["CORE"] == [0, 0]
    assert limits["CPU"] == [plan.cpu_s, plan.cpu_s]
    assert limits["FSIZE"][0] == confine.MAX_FILE_BYTES
    assert limits["NOFILE"][0] == confine.MAX_FILES


def fork_on() -> int:
    """Fork until it is refused; returns how many there are."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        for _ in range(300):
            if os.fork() == 0:
                time.sleep(1)
                os._exit(0)
            count += 1
    return count


def test_no_more_processes_than_its_share(plan: confine.Plan) -> None:
    if not plan.namespaces and os.getuid() != 0:
        pytest.skip("an ordinary user's processes are counted together with all others of that user")

    assert confine.try_out(plan, lambda layers: fork_on()) < confine.MAX_PROCESSES


def fill() -> tuple[int, int]:
    """Write files until it is refused; returns how many bytes and how many files."""
    count = 0
    with contextlib.suppress(OSError):
        for count in range(10_000):
            Path(f"f{count}").touch()
    size = 0
    with contextlib.suppress(OSError), open("f0", "wb") as file:
        while True:
            size += file.write(bytes(1 << 16))
    return size, count


def test_the_scratch_folder_in_memory_is_small(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, namespaces=True)
    layers = confine.probe_layers()
    if layers.get("mounts") != "on":
        pytest.skip(f"no mounts: {layers}")

    size, count = confine.try_out(plan, lambda layers: fill())

    assert size <= confine.MAX_FILE_BYTES
    assert count <= confine.SCRATCH_FILES
    assert list(plan.scratch.iterdir()) == [], "it vanishes with its mount namespace"


def refused_in_a_check() -> list[Any]:
    """What a check's process can't do besides: new processes, but it can have threads."""
    seccomp.refuse_forks()
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    return [outcome(os.fork), outcome(lambda: os.posix_spawn("/bin/true", ["true"], {}))]


def test_a_check_may_not_fork_but_have_threads(plan: confine.Plan) -> None:
    assert confine.try_out(plan, lambda layers: refused_in_a_check()) == ["refused", "refused"]


# ---- layers that are missing


def test_every_layer_is_reported(plan: confine.Plan) -> None:
    layers = confine.probe_layers(namespaces=plan.namespaces)

    assert {"namespaces", "user", "rlimits", "capabilities", "landlock", "seccomp"} <= set(layers)
    assert all(state.startswith(("on", "off: ")) for state in layers.values())
    assert layers["namespaces"] == "on" or layers["namespaces"].startswith("off: ")
    if not plan.namespaces:
        assert layers["namespaces"] == "off: switched off"


BROKEN_LAYERS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "landlock": lambda patch: patch.setattr(landlock, "restrict", broken),
    "seccomp": lambda patch: patch.setattr(seccomp, "refuse_dangerous", broken),
    "rlimits": lambda patch: patch.setattr(confine, "_limit", broken),
    "capabilities": lambda patch: patch.setattr(confine, "_drop_capabilities", broken),
}


def broken(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSYS, "not on this kernel")


@pytest.mark.parametrize("layer", BROKEN_LAYERS)
def test_without_a_required_layer_nothing_is_run(
    plan: confine.Plan, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    BROKEN_LAYERS[layer](monkeypatch)

    with pytest.raises(SandboxError, match=f"`{layer}` is off: not on this kernel"):
        confine.try_out(plan, lambda layers: VICTIM.touch())

    assert not VICTIM.exists()


def test_a_layer_that_may_be_missing_is_reported_and_the_rest_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confine, "_hide_mounts", broken)
    plan = make_plan(tmp_path, namespaces=True)

    layers, passwd = confine.try_out(plan, lambda layers: [layers, outcome(read("/etc/passwd"))])

    assert layers["mounts"] == "off: not on this kernel"
    assert passwd == "refused"


@pytest.mark.parametrize("missing", ["landlock", "seccomp", "platform"])
def test_auto_falls_back_to_process_and_says_so(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    course = courses.load(ROOT)
    if missing == "landlock":
        monkeypatch.setattr(landlock, "abi", lambda: 0)
    elif missing == "seccomp":
        monkeypatch.setattr(seccomp, "supported", lambda: False)
    else:
        monkeypatch.setattr(sys, "platform", "darwin")

    with Session(course, Options("auto", seed="7")) as session:
        assert session.level == "process"
        assert "`confined` can't be had here" in session.notes[0]
    with pytest.raises(SandboxError, match=r"can't be had here.*--isolation process"):
        Session(course, Options("confined", seed="7"))


# ---- an ordinary user


SCRIPT = """
import json, os, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from grader.sandbox import confine, landlock

def outcome(action):
    try:
        return repr(action())
    except OSError as error:
        return type(error).__name__

os.setgroups([]); os.setgid({user}); os.setuid({user})
os.environ.clear()
plan = confine.Plan(Path({place!r}) / "snapshot", Path({place!r}) / "scratch", 512, 20, {namespaces})
victim = {place!r} + "/victim"
print(json.dumps(confine.try_out(plan, lambda layers: {{
    "layers": layers,
    "uids": os.getresuid(),
    "read": outcome(lambda: open(victim).read()),
    "write": outcome(lambda: open(victim, "w")),
    "chmod": outcome(lambda: os.chmod(victim, 0)),
    "kill": outcome(lambda: os.kill(os.getppid() or 1, 0)),
    "socket": outcome(lambda: __import__("socket").socket()),
    "scratch": outcome(lambda: open("mine", "w").write("x")),
    "snapshot": outcome(lambda: open({place!r} + "/snapshot/given.py").read()),
}})))
"""


@pytest.mark.skipif(
    os.getuid() != 0 or not Path(SYSTEM_PYTHON).exists(), reason="needs root and a system Python"
)
@pytest.mark.parametrize("mode", NAMESPACES)
def test_holds_for_an_ordinary_user_too(mode: str) -> None:
    """`nobody` runs the system's Python, which has no torch: the layers need none."""
    with tempfile.TemporaryDirectory(prefix="kvgrade-user-") as folder, readable_copy() as root:
        place = Path(folder)
        make_plan(place, namespaces=NAMESPACES[mode])
        (place / "victim").write_text("x")
        for path in (place, *place.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        script = SCRIPT.format(root=root, place=folder, user=NOBODY, namespaces=NAMESPACES[mode])
        done = subprocess.run([SYSTEM_PYTHON, "-I", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found["uids"] == [NOBODY] * 3
    assert {found[name] for name in ("read", "write", "chmod", "kill", "socket")} == {"PermissionError"}
    assert (found["scratch"], found["snapshot"]) == ("1", "'x = 1'")
    assert all(found["layers"][name].startswith("on") for name in confine.REQUIRED)


@contextlib.contextmanager
def readable_copy() -> Iterator[str]:
    """The grader where `nobody` can read it: the working copy may lie in root's home."""
    with tempfile.TemporaryDirectory(prefix="kvgrade-copy-") as folder:
        shutil.copytree(
            ROOT / "grader", Path(folder) / "grader", ignore=shutil.ignore_patterns("__pycache__")
        )
        os.chmod(folder, 0o755)
        yield folder
