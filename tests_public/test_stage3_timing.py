"""Stage 3: a step's time is the time until its work is done, on a pretended machine with exact clocks."""

import pytest

from grader import expect, probe

check = pytest.mark.check

STEPS_S = [0.013, 0.029, 0.011, 0.037, 0.017]


@check(weight=1, category="how often step_fn is called")
def test_step_is_called_exactly_so_often(student, machine):
    """step_fn is called n_new times, not once more to warm up, and each call gets its time"""
    for n_new in (5, 1):
        machine.prepare("cpu", STEPS_S[:n_new])
        times = student.timed_steps(machine.step, n_new, "cpu")
        expect.that(machine.calls == n_new, f"step_fn was called {machine.calls} times for n_new = {n_new}")
        expect.times(times, n_new)


@check(weight=1, category="no steps")
def test_no_steps(student, machine):
    """With n_new = 0 nothing is called, and the list is empty; after that steps are timed as ever"""
    machine.prepare("cpu", STEPS_S)
    times = student.timed_steps(machine.step, 0, "cpu")
    expect.that(machine.calls == 0, f"step_fn was called {machine.calls} times for n_new = 0")
    expect.times(times, 0)
    expect.times(student.timed_steps(machine.step, 2, "cpu"), 2)


@check(weight=2, category="each step's own time")
def test_each_step_has_its_own_time(student, machine, rng):
    """On the CPU each step gets its own seconds: no mean, no running total"""
    machine.prepare("cpu", probe.durations(rng, 5))
    expect.seconds(student.timed_steps(machine.step, 5, "cpu"), machine)


@check(weight=2, category="waiting for CUDA")
def test_waits_for_cuda(student, machine, rng):
    """On CUDA a step's time runs until the GPU has done its work"""
    machine.prepare("cuda", probe.durations(rng, 5))
    expect.seconds(student.timed_steps(machine.step, 5, "cuda"), machine)


@check(weight=1, category="waiting for Apple's GPU")
def test_waits_for_mps(student, machine, rng):
    """On Apple's GPU (mps) a step's time runs until the GPU has done its work"""
    machine.prepare("mps", probe.durations(rng, 5))
    expect.seconds(student.timed_steps(machine.step, 5, "mps"), machine)
