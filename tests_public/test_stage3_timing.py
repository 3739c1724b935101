"""Stage 3: a step's time is the time until its work is done, on a pretended machine with exact clocks."""

import pytest

from grader import expect, latency, probe, steps

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


# Is it faster? The student's own loop (stage 2) over their own model (stage 1): a step's work, then its time.


@check(weight=1, category="what each step feeds")
def test_own_loop_feeds_one_position_a_step(own_stage2, oracle, rng):
    """Your own loop shows a model the prompt once, and after it one position a step"""
    spy, idx, _ = probe.story(oracle, rng, sizes=(1, 7, 9))
    own_stage2.generate_cache(spy, idx, 9)
    for i, T in enumerate(spy.fed[1:], start=2):
        expect.that(T == 1, f"call {i} fed {T} positions, not 1: nothing is saved")


@check(weight=4, category="the work of a step")
def test_work_of_a_step(loop, oracle, rng, metrics):
    """A step multiplies what one position needs, and not what the whole text does"""
    begin = probe.number(rng, *steps.LATER)
    step = steps.step_work(loop, oracle, rng, steps.LEAST_HEADS, steps.LONG, begin)
    if step:
        steps.flops(step, metrics)


@check(weight=1, category="what a step copies")
def test_copies_of_a_step(loop, oracle, rng, metrics):
    """A step copies the cache once, as torch.cat does, and not again and again"""
    step = steps.step_work(loop, oracle, rng, steps.LEAST_HEADS, steps.LONG)
    if step:
        steps.copies(step, metrics)


@check(weight=1, category="loops in Python")
def test_no_loop_over_heads_or_positions(loop, oracle, rng, metrics):
    """A step takes as many operations for many heads, and for a long text, as for few and a short one"""
    few = steps.step_work(loop, oracle, rng, steps.LEAST_HEADS, steps.SHORT)
    heads = steps.step_work(loop, oracle, rng, steps.MOST_HEADS, steps.SHORT)
    long = steps.step_work(loop, oracle, rng, steps.LEAST_HEADS, steps.LONG)
    if few and heads and long:
        steps.operations(few, heads, "heads", metrics)
        steps.operations(few, long, "cached positions", metrics)


@check(weight=3, category="the time of a step", clock=True)
def test_faster_than_uncached(race, profile, metrics):
    """After a long text your loop is several times as fast as the uncached one"""
    latency.faster(race, metrics)
    latency.as_profiled(race, profile, metrics)


@check(weight=2, category="the time of a step", clock=True)
def test_time_grows_less_than_uncached(race, metrics):
    """With a longer text your loop's time grows much less than the uncached one's"""
    latency.flatter(race, metrics)
