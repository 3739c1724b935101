"""What confinement costs against the same forks without it, measured in turn so that both bear the same load.

The goal is 25 ms a check at the median.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from grader import course as courses
from grader import submission
from grader.sandbox.host import ForkServer
from grader.sandbox.launch import WORKER_ENVIRONMENT, Started, launch
from grader.session import missing_layers
from grader.stage_host import StageHost

pytestmark = pytest.mark.skipif(bool(missing_layers()), reason=f"confined can't be had: {missing_layers()}")

ROOT = Path(__file__).resolve().parents[1]
COURSE = courses.load(ROOT)
STAGE = COURSE.stage("stage4")
SOURCE = b"import torch\n\n\ndef f(x):\n    return x + 1\n"
GOAL_MS = 25.0
BARE = """
import sys; sys.path.insert(0, {root!r})
from grader.sandbox import confine, seccomp, zygote
sys.path.remove({root!r})
confine.confine = lambda *a: __import__("os").chdir(a[0].scratch) or {{"confinement": "off: for comparison"}}
confine.leave_namespaces = lambda plan: "off: for comparison"
seccomp.refuse_forks = lambda: None
zygote.main({number})
"""
Say = Callable[[str], None]


def launch_bare() -> Started:
    """Launch a fork server whose workers are not confined."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-c", BARE.format(root=str(ROOT), number=theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=WORKER_ENVIRONMENT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return Started(process, ours)


class Lanes:
    """The same work, bare and confined with and without namespaces, a host of each open."""

    def __init__(self) -> None:
        confined, bare = ForkServer(launch("main")), ForkServer(launch_bare())
        self.servers = {"bare": bare, "confined": confined, "confined, no namespaces": confined}

    def host(self, lane: str) -> StageHost:
        work = submission.of_files("s", {STAGE.file: SOURCE})
        return StageHost(COURSE, work, STAGE, self.servers[lane], namespaces=lane == "confined")

    def close(self) -> None:
        for server in {id(server): server for server in self.servers.values()}.values():
            server.close()


@pytest.fixture(scope="module")
def lanes() -> Iterator[Lanes]:
    made = Lanes()
    yield made
    made.close()


def check_s(host: StageHost) -> float:
    """Seconds of one check: fork, one small call, end."""
    x = torch.ones(3)
    begun = time.perf_counter()
    assert torch.equal(host.student(None).f(x), x + 1)
    host.finish_check()
    return time.perf_counter() - begun


def first_check_s(lanes: Lanes, lane: str) -> float:
    """Seconds of a submission's first check: host, confinement and import, until nothing is left of it."""
    begun = time.perf_counter()
    host = lanes.host(lane)
    check_s(host)
    host.close()
    return time.perf_counter() - begun


@pytest.mark.parametrize("lane", ["confined", "confined, no namespaces"])
@pytest.mark.parametrize("what", ["a check", "a submission's first check"])
def test_confinement_against_the_bare_fork(
    benchmark: BenchmarkFixture, lanes: Lanes, capsys: pytest.CaptureFixture[str], lane: str, what: str
) -> None:
    taken: dict[str, list[float]] = {"bare": [], lane: []}
    hosts = {name: lanes.host(name) for name in taken}

    def pair() -> None:
        for name, seconds in taken.items():
            if what == "a check":
                seconds.append(check_s(hosts[name]))
            else:
                for host in hosts.values():
                    host.close()
                seconds.append(first_check_s(lanes, name))

    # one host at a time for each server: the two lanes of a pair never share one
    benchmark.pedantic(pair, rounds=40 if what == "a check" else 15, warmup_rounds=3)
    for host in hosts.values():
        host.close()

    bare, confined = (statistics.median(taken[name][3:]) * 1000 for name in ("bare", lane))
    benchmark.extra_info["confinement_ms"] = confined - bare
    with capsys.disabled():
        print(f"\n  {lane}, {what}: {confined:.1f} ms, bare {bare:.1f} ms: {confined - bare:+.1f} ms", end="")
        print(f" (goal ≤ {GOAL_MS:g} ms a check)")
    assert what != "a check" or confined - bare <= GOAL_MS
