"""The pretend machine: its clocks, what a step costs, and who waits for what."""

from __future__ import annotations

import time

import pytest
import torch

from grader.machine import LAUNCH_S, Machine

NEAR = {"abs": 1e-4, "rel": 1e-6}
SYNC = {"cuda": "torch.cuda.synchronize", "mps": "torch.mps.synchronize"}


def timed(machine, clock, before=lambda: None, after=lambda: None):
    """Time each of the machine's steps by a clock of its own."""
    seconds = []
    for _ in machine.durations:
        before()
        began = clock()
        machine.step()
        after()
        seconds.append(clock() - began)
    return seconds


@pytest.mark.parametrize("name", ["perf_counter", "monotonic", "time"])
def test_cpu_step_moves_every_clock_of_time(name):
    machine = Machine()
    machine.prepare("cpu", [0.3, 0.1])
    assert timed(machine, machine.hooks()[f"time.{name}"]) == pytest.approx([0.3, 0.1], **NEAR)


@pytest.mark.parametrize("name", ["process_time", "thread_time"])
@pytest.mark.parametrize("asleep", [True, False])
def test_processor_clocks_tell_another_time(name, asleep):
    machine = Machine()
    machine.prepare("cpu", [0.3, 0.1], asleep=asleep)
    got = timed(machine, machine.hooks()[f"time.{name}"])
    assert all(abs(a - b) > 0.3 * b for a, b in zip(got, machine.seconds))


def test_wall_clock_jumps_and_the_others_do_not():
    machine = Machine()
    machine.prepare("cpu", [0.3, 0.1, 0.2], wall_jumps=True)
    hooks = machine.hooks()
    wall, perf = hooks["time.time"], hooks["time.perf_counter"]
    pairs = timed(machine, lambda: torch.tensor([wall(), perf()], dtype=torch.float64))
    assert [float(p[1]) for p in pairs] == pytest.approx([0.3, 0.1, 0.2], **NEAR)
    assert all(abs(float(p[0] - p[1])) > 0.2 for p in pairs)


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_gpu_step_returns_at_once_and_waiting_takes_its_time(kind):
    machine = Machine()
    machine.prepare(kind, [0.3, 0.1], leftover_s=0.7)
    hooks = machine.hooks()
    clock, wait = hooks["time.perf_counter"], hooks[SYNC[kind]]
    assert timed(machine, clock, wait, wait) == pytest.approx(machine.seconds, **NEAR)
    assert machine.seconds == pytest.approx([0.3 + LAUNCH_S, 0.1 + LAUNCH_S])
    machine.prepare(kind, [0.3, 0.1])
    assert timed(machine, clock) == pytest.approx([LAUNCH_S] * 2, **NEAR)
    machine.prepare(kind, [0.3, 0.1], leftover_s=0.7)
    assert timed(machine, clock, after=wait)[0] == pytest.approx(1.0, abs=1e-3)


def test_waiting_for_another_gpu_does_not_wait_for_this_one():
    machine = Machine()
    machine.prepare("cuda:1", [0.3], gpus=["cuda:0", "mps"])
    hooks = machine.hooks()
    clock, cuda = hooks["time.perf_counter"], hooks["torch.cuda.synchronize"]
    machine.step()
    before = clock()
    for device in (0, "cuda:0", torch.device("cuda:0")):
        cuda(device)
    hooks["torch.mps.synchronize"]()
    assert clock() - before < 1e-4
    for device in (None, 1, "cuda", "cuda:1", torch.device("cuda")):
        machine.prepare("cuda:1", [0.3], gpus=["cuda:0"])
        machine.step()
        before = clock()
        cuda(device)
        assert clock() - before == pytest.approx(0.3, **NEAR)


def test_what_is_not_there_refuses_as_the_real_one_does():
    machine = Machine()
    machine.prepare("cpu", [0.3])
    hooks = machine.hooks()
    assert hooks["torch.cuda.is_available"]() is False
    assert hooks["torch.backends.mps.is_available"]() is False
    assert hooks["torch.cuda.device_count"]() == 0
    assert hooks["torch.accelerator.current_accelerator"]() is None
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        hooks["torch.cuda.synchronize"]()
    for name in ("torch.mps.synchronize", "torch.accelerator.synchronize"):
        with pytest.raises(RuntimeError):
            hooks[name]()
    machine.prepare("cuda", [0.3])
    for device, error in (("cpu", ValueError), (3, RuntimeError), ("mps", ValueError), (2.5, TypeError)):
        with pytest.raises(error):
            hooks["torch.cuda.synchronize"](device)


def test_a_pretended_device_is_whole():
    machine = Machine()
    hooks = machine.hooks()
    assert all(hooks[f"torch.{name}"]() for name in ("cuda.is_available", "backends.mps.is_available"))
    machine.prepare("mps", [0.3])
    assert hooks["torch.accelerator.current_accelerator"]() == torch.device("mps")
    assert hooks["torch.backends.mps.is_built"]() is True
    machine.prepare("cuda", [0.3])
    assert hooks["torch.cuda.device_count"]() == 1
    assert hooks["torch.cuda.current_device"]() == 0
    machine.step()
    before = machine.now_s
    hooks["torch.accelerator.synchronize"]()
    assert machine.now_s - before == pytest.approx(0.3)


def test_every_clock_has_its_nanoseconds_and_sleep_moves_them():
    machine = Machine()
    hooks = machine.hooks()
    for name in ("perf_counter", "monotonic", "time"):
        seconds, nanoseconds = hooks[f"time.{name}"], hooks[f"time.{name}_ns"]
        before = nanoseconds()
        hooks["time.sleep"](2.5)
        assert isinstance(before, int)
        assert (nanoseconds() - before) / 1e9 == pytest.approx(2.5, **NEAR)
        assert seconds() == pytest.approx(nanoseconds() / 1e9)


def test_clock_gettime_tells_the_clock_that_is_asked_for():
    machine = Machine()
    hooks = machine.hooks()
    gettime = hooks["time.clock_gettime"]
    assert gettime(time.CLOCK_MONOTONIC) == pytest.approx(hooks["time.monotonic"]())
    assert gettime(time.CLOCK_REALTIME) == pytest.approx(hooks["time.time"]())
    assert gettime(time.CLOCK_PROCESS_CPUTIME_ID) == pytest.approx(hooks["time.process_time"]())


@pytest.mark.parametrize("name", sorted(Machine().hooks()))
def test_every_hook_stands_where_torch_or_python_has_a_function(name):
    parent, _, last = name.rpartition(".")
    found = {"time": time, "torch": torch}
    if parent in ("time", "timeit"):
        assert callable(getattr(__import__(parent), last))
    else:
        place = found["torch"]
        for part in parent.split(".")[1:]:
            place = getattr(place, part)
        assert callable(getattr(place, last))
