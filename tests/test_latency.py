"""Stage 3's speed: what a step's work is held against, and what the clock's ratios decide."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from grader import course, latency, steps, timing
from grader.fixtures import imported, local_student
from grader.hardware import Curve, HardwareProfile
from grader.pytest_plugin import Replay
from grader.sandbox import work

COURSE = course.find(Path(__file__).parent)
CURVE = Curve("small", "float32", True, (100, 200), (1.0, 1.2), "a test")
PROFILE = HardwareProfile("here", "this one", "measured", curves=(CURVE,), scores=("latency",))


@pytest.fixture(scope="module")
def oracle():
    return imported(COURSE.given)


@pytest.fixture
def loop():
    """The solutions' loop over the solutions' model, in this process."""
    made = {}
    for slug in ("stage1", "stage2"):
        stages = local_student(COURSE.solutions / COURSE.stage(slug).file, None)
        made[slug] = next(stages)
    return steps.Loop(made["stage1"], made["stage2"])


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(3)


def step(**changes):
    cfg = SimpleNamespace(n_layer=3, n_embd=64, vocab_size=61, block_size=512)
    formula = 2 * (12 * 3 * 64**2 + 64 * 61) + 4 * 3 * 64 * 100
    values = {"cfg": cfg, "positions": 100.0, "operations": 70.0, "flops": formula, "copied_bytes": 153_600}
    return steps.Step(**values | changes)


def test_the_formulas_are_what_torch_counts_of_the_solution(loop, oracle, rng):
    found = steps.step_work(loop, oracle, rng, 2, 30)
    assert found.flops == found.formula_flops(found.positions)
    assert found.copied_bytes == pytest.approx(found.cache_bytes, rel=0.03)


def test_a_step_by_the_formula_passes_and_its_figures_are_kept():
    metrics = {}
    steps.flops(step(), metrics)
    steps.copies(step(), metrics)
    assert metrics == {"flops_a_step": 379_520, "flops_formula": 379_520, "cache_copies_a_step": 1.0}


def test_a_buffer_as_long_as_the_block_is_no_fault():
    steps.flops(step(flops=2 * (12 * 3 * 64**2 + 64 * 61) + 4 * 3 * 64 * 512), {})


@pytest.mark.parametrize(
    ("complaint", "call"),
    [
        ("computed again", lambda: steps.flops(step(flops=10_000_000), {})),
        ("times the whole cache", lambda: steps.copies(step(copied_bytes=307_200), {})),
        ("over the heads", lambda: steps.operations(step(), step(operations=130), "heads", {})),
    ],
)
def test_more_work_than_needed_is_named(complaint, call):
    with pytest.raises(AssertionError, match=complaint):
        call()


def test_what_torch_cannot_count_is_none(oracle, rng):
    def refuses(model, idx, n_new):
        raise NotImplementedError("no rule for this mode")

    loop = steps.Loop(SimpleNamespace(GPT=oracle.GPT), SimpleNamespace(generate_cache=refuses))
    assert steps.step_work(loop, oracle, rng, 2, 30) is None


def test_views_are_no_work_and_copies_are_counted_in_bytes():
    x = torch.ones(4, 8)
    tally = work.counted(lambda: x.view(8, 4).t().clone() @ torch.ones(8, 2))
    assert tally == {"operations": 3, "flops": 2 * 4 * 8 * 2, "copied_bytes": 128}


def race(loop, oracle, rng):
    from grader import probe

    cfg = oracle.Config(n_layer=1, n_head=2, n_embd=16, block_size=32, vocab_size=61)
    return latency.Race(loop, probe.hot(oracle.GPT(cfg), rng, torch.float32), rng)


def test_a_timed_call_must_write_the_right_text(loop, oracle, rng):
    right = race(loop, oracle, rng)
    assert right.cached_s(5, 4) > 0

    def zeros(model, idx, n_new):
        return torch.cat([idx, idx.new_zeros(1, n_new)], dim=1), None

    wrong = race(steps.Loop(loop.stage1, SimpleNamespace(generate_cache=zeros)), oracle, rng)
    with pytest.raises(AssertionError, match="own text"):
        wrong.cached_s(5, 4)


class Scripted:
    """A race whose seconds are given: (cached, uncached) after each prompt."""

    def __init__(self, *rounds):
        self.rounds = list(rounds)

    def round(self, prompts, backwards):
        took = self.rounds.pop(0) if len(self.rounds) > 1 else self.rounds[0]
        return {P: latency.Took(*took[P], 0.0, 12) for P in prompts}


@pytest.mark.parametrize(
    ("judge", "took", "said"),
    [
        (latency.faster, {64: (1, 3), 480: (1, 8)}, None),
        (latency.faster, {64: (1, 3), 480: (7, 8)}, "1.14 times"),
        (latency.flatter, {64: (1, 3), 480: (2, 24)}, None),
        (latency.flatter, {64: (1, 1), 480: (8, 8)}, "8.0-fold"),
    ],
)
def test_clear_ratios_decide(judge, took, said):
    metrics = {}
    if said is None:
        judge(Scripted(took), metrics)
    else:
        with pytest.raises(AssertionError, match=said):
            judge(Scripted(took), metrics)
    assert metrics


def test_ratios_on_both_sides_are_inconclusive():
    rounds = [{480: (1, 8)}, {480: (1, 1)}] * 30
    with pytest.raises(timing.Inconclusive, match="too busy"):
        latency.faster(Scripted(*rounds), {})


def test_only_a_profile_that_scores_latency_is_held_against():
    assert list(latency.scored_curves(PROFILE)) == [CURVE]
    silent = HardwareProfile("there", "that one", "generic", curves=(CURVE,))
    assert list(latency.scored_curves(silent)) == []


@pytest.mark.parametrize(("ms", "fits"), [(0.9, True), (1.9, False)])
def test_milliseconds_against_the_curve(ms, fits):
    took = latency.Took(0.01 + ms * 11 / 1000, 1.0, 0.01, 12)
    course_race = SimpleNamespace(
        small=SimpleNamespace(cfg=SimpleNamespace(block_size=512)),
        round=lambda prompts, backwards: dict.fromkeys(prompts, took),
    )
    metrics = {}
    if fits:
        latency.as_profiled(course_race, PROFILE, metrics)
        assert metrics == {"ms_a_token_at_100": pytest.approx(ms), "ms_a_token_at_200": pytest.approx(ms)}
    else:
        with pytest.raises(AssertionError, match="on `here` it should take 1 ms"):
            latency.as_profiled(course_race, PROFILE, metrics)


@pytest.mark.benchmark(timer=(REPLAYED := Replay()))
def test_pytest_benchmark_can_carry_what_was_measured(benchmark):
    REPLAYED.seconds = [0.25, 0.5, 0.75]
    benchmark.pedantic(int, rounds=3)
    if benchmark.enabled:
        assert benchmark.stats.stats.data == [0.25, 0.5, 0.75]
    assert not benchmark.enabled or REPLAYED.seconds == []
