"""The statistics of timing: order, warm-up, intervals, and when to say that nothing can be said."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader import timing
from grader.timing import Speed


def test_arms_are_run_in_turn_and_every_other_round_backwards():
    order = []
    arms = {name: lambda name=name: order.append(name) or 1.0 for name in "ab"}
    timing.interleaved(arms, 2, warmup=1)
    assert "".join(order) == "ab" + "ba" + "ab"


def test_warm_up_rounds_are_dropped():
    values = iter([9.0, 8.0, 1.0, 2.0])
    assert timing.interleaved({"a": lambda: next(values)}, 2, warmup=2) == {"a": [1.0, 2.0]}


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=40))
def test_an_interval_holds_its_median_and_stays_within_the_samples(samples):
    found = timing.estimate(samples)
    assert min(samples) <= found.low <= found.value <= found.high <= max(samples)


def test_nothing_measured_is_an_error():
    with pytest.raises(ValueError, match="nothing was measured"):
        timing.estimate([])


def test_the_interval_covers_the_true_median_about_as_often_as_it_says():
    draw = random.Random(1)
    held = 0
    for _ in range(200):
        found = timing.estimate([draw.lognormvariate(0, 0.3) for _ in range(21)])
        held += found.low <= 1.0 <= found.high
    assert held >= 180


@pytest.mark.parametrize(
    ("ratios", "speed"),
    [([5.0, 6.0], Speed.PASS), ([1.0, 1.1], Speed.SLOW), ([1.0, 5.0], Speed.INCONCLUSIVE)],
)
def test_only_an_interval_wholly_on_one_side_decides(ratios, speed):
    assert timing.judge(timing.estimate(ratios * 3), 3.0) is speed


def test_a_clear_ratio_takes_the_least_rounds():
    found = timing.judged(lambda backwards: 8.0, 3.0)
    assert (found.speed, found.ratio.samples) == (Speed.PASS, timing.LEAST_ROUNDS)


def test_the_first_round_is_dropped_and_the_order_alternates():
    orders = []
    values = iter([1.0, 8.0, 8.0, 8.0])
    found = timing.judged(lambda backwards: orders.append(backwards) or next(values), 3.0)
    assert (found.speed, orders) == (Speed.PASS, [False, True, False, True])


def test_an_unclear_ratio_is_measured_again_and_then_given_up():
    values = itertools.cycle([1.0, 5.0])
    found = timing.judged(lambda backwards: next(values), 3.0)
    assert (found.speed, found.ratio.samples) == (Speed.INCONCLUSIVE, timing.MOST_ROUNDS)


def test_time_that_is_spent_ends_it():
    values = itertools.cycle([1.0, 5.0])
    found = timing.judged(lambda backwards: next(values), 3.0, budget_s=0.0)
    assert (found.speed, found.ratio.samples) == (Speed.INCONCLUSIVE, timing.LEAST_ROUNDS)


def test_more_rounds_can_make_it_clear():
    values = itertools.chain([9.0, 1.0, 5.0, 5.0], itertools.repeat(5.0))
    found = timing.judged(lambda backwards: next(values), 3.0)
    assert (found.speed, found.ratio.samples > timing.LEAST_ROUNDS) == (Speed.PASS, True)


def test_the_clock_is_read_after_waiting_on_both_sides():
    said = []
    seconds, result = timing.timed(lambda: said.append("call") or 7, lambda: said.append("wait"))
    assert (said, result) == (["wait", "call", "wait"], 7)
    assert seconds >= 0
