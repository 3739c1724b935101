"""Stage 3, harsher: work left over, clocks that are set, steps that sleep, devices by other names."""

import pytest
import torch

from grader import expect, probe

check = pytest.mark.check


@check(weight=1, category="work from before the first step")
@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_work_from_before_is_not_charged(student, machine, rng, device):
    """Work that was queued before the first step is not charged to it"""
    machine.prepare(device, probe.durations(rng, 6), leftover_s=0.7)
    expect.seconds(student.timed_steps(machine.step, 6, device), machine)


@check(weight=2, category="which clock is read")
def test_clock_cannot_be_set(student, machine, rng):
    """The times stay right when the computer's date is set while steps run"""
    machine.prepare("cpu", probe.durations(rng, 9), wall_jumps=True)
    expect.seconds(student.timed_steps(machine.step, 9, "cpu"), machine)


@check(weight=1, category="which clock is read")
def test_waiting_takes_time_too(student, machine, rng):
    """A step that waits for a disk takes time, though the processor is idle"""
    machine.prepare("cpu", probe.durations(rng, 6), asleep=True)
    expect.seconds(student.timed_steps(machine.step, 6, "cpu"), machine)


@check(weight=0.5, category="what decides what to wait for")
@pytest.mark.parametrize(
    "there", [[], ["cuda:0"], ["mps"], ["cuda:0", "mps"]], ids=["none", "cuda", "mps", "both"]
)
def test_cpu_steps_wait_for_no_gpu(student, machine, rng, there):
    """Steps on the CPU wait for no GPU, whether there is one or not"""
    machine.prepare("cpu", probe.durations(rng, 5), gpus=there, busy_s=0.4)
    expect.seconds(student.timed_steps(machine.step, 5, torch.device("cpu")), machine)


@check(weight=1, category="what decides what to wait for")
@pytest.mark.parametrize(("device", "there"), [("mps", "cuda:0"), ("cuda", "mps")], ids=["mps", "cuda"])
def test_device_decides_what_to_wait_for(student, machine, rng, device, there):
    """Of two kinds of GPU, the one that is named is waited for"""
    machine.prepare(device, probe.durations(rng, 5), gpus=[there], leftover_s=0.3)
    expect.seconds(student.timed_steps(machine.step, 5, device), machine)


@check(weight=0.5, category="how the device is named")
@pytest.mark.parametrize(
    "spelled",
    ["cuda:0", "cuda:1", torch.device("cuda"), torch.device("cuda", 1), torch.device("mps")],
    ids=["string-0", "string-1", "device", "device-1", "mps"],
)
def test_device_by_any_name(student, machine, rng, spelled):
    """The device may be a string or a torch.device, with or without an index; arguments may be named"""
    gpus = ["cuda:0", "cuda:1"] if "cuda" in str(spelled) else []
    machine.prepare(str(spelled), probe.durations(rng, 4), gpus=gpus)
    expect.seconds(student.timed_steps(step_fn=machine.step, n_new=4, device=spelled), machine)


@check(weight=1, category="many steps")
def test_many_steps(student, machine, rng):
    """Many steps, the first of them slow: every one is timed, none is dropped"""
    durations = probe.durations(rng, 60)
    machine.prepare("cuda", [0.9, *durations])
    times = student.timed_steps(machine.step, 61, "cuda")
    expect.that(machine.calls == 61, f"step_fn was called {machine.calls} times for n_new = 61")
    expect.seconds(times, machine)
