"""Timing that can be believed on a noisy machine: interleaved rounds, medians with intervals, three verdicts.

Two things are compared by measuring them in turn, A B A B: what slows the machine slows both. A round gives
one ratio; the median of the ratios comes with a bootstrap interval, and only an interval that lies wholly on
one side of a limit decides. An interval that holds the limit is narrowed by more rounds, a bounded number of
them, and then the answer is `inconclusive`. No figure is divided by a slope: a cached step's is about zero.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

RESAMPLES = 400
COVERED = 0.95  # of the bootstrap interval
SEED = 7  # resampling draws the same for the same samples, so that a verdict can be worked out again
WARMUP = 2
ROUNDS_TO_FAIL = 6  # unless time is spent before: who is told to be slow can expect a closer look
LEAST_ROUNDS, MOST_ROUNDS, BUDGET_S = 3, 24, 15.0  # and then the answer is `inconclusive`

T = TypeVar("T")
Arm = Callable[[], float]  # does its work once and says how many seconds that took


class Inconclusive(Exception):
    """What was measured is too noisy to judge."""


class Speed(StrEnum):
    """What a comparison with a limit can end in."""

    PASS = "pass"
    SLOW = "slow"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The median of `samples` measured values, and the interval that covers it with 95 %."""

    value: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True, slots=True)
class Judged:
    """A ratio, what it was held against, and what became of it."""

    speed: Speed
    ratio: Estimate
    at_least: float


def timed(call: Callable[[], T], wait: Callable[[], object] | None = None) -> tuple[float, T]:
    """Call and return (seconds, result); `wait` waits for the device, before each reading of the clock."""
    if wait:
        wait()
    begun = time.perf_counter()
    result = call()
    if wait:
        wait()
    return time.perf_counter() - begun, result


def one_round(arms: Mapping[str, Arm], *, backwards: bool = False) -> dict[str, float]:
    """Run every arm once, in turn; return each arm's seconds."""
    took = {name: arms[name]() for name in (reversed(list(arms)) if backwards else arms)}
    return {name: took[name] for name in arms}


def interleaved(arms: Mapping[str, Arm], rounds: int, *, warmup: int = WARMUP) -> dict[str, list[float]]:
    """Run every arm once a round, in turn, and every other round backwards; return each arm's seconds.

    The first `warmup` rounds are dropped. So `seconds["a"][i]` and `seconds["b"][i]` are of the same moment.
    """
    took = [one_round(arms, backwards=number % 2 == 1) for number in range(warmup + rounds)]
    return {name: [each[name] for each in took[warmup:]] for name in arms}


def estimate(samples: Sequence[float]) -> Estimate:
    """The median and its percentile bootstrap interval (Efron, 1979).

    Raises ValueError for no samples.
    """
    if not samples:
        raise ValueError("nothing was measured")
    draw = random.Random(SEED)
    medians = sorted(statistics.median(draw.choices(samples, k=len(samples))) for _ in range(RESAMPLES))
    tail = int(RESAMPLES * (1 - COVERED) / 2)
    return Estimate(statistics.median(samples), medians[tail], medians[-1 - tail], len(samples))


def judge(ratio: Estimate, at_least: float) -> Speed:
    """`pass` where the whole interval reaches the limit, `slow` where it lies below, else `inconclusive`."""
    if ratio.low >= at_least:
        return Speed.PASS
    return Speed.SLOW if ratio.high < at_least else Speed.INCONCLUSIVE


def judged(measure: Callable[[bool], float], at_least: float, budget_s: float = BUDGET_S) -> Judged:
    """Measure a ratio again and again until the median is clearly on one side of `at_least`.

    `measure(backwards)` runs one round, in the other order every other time. The first round is dropped;
    after `MOST_ROUNDS`, or `budget_s` seconds, what is not clear is `inconclusive`.
    """
    begun = time.monotonic()
    measure(False)
    ratios = [measure(number % 2 == 0) for number in range(LEAST_ROUNDS)]
    while True:
        ratio = estimate(ratios)
        speed = judge(ratio, at_least)
        spent = len(ratios) >= MOST_ROUNDS or time.monotonic() - begun > budget_s
        clear = speed is Speed.PASS or (speed is Speed.SLOW and len(ratios) >= ROUNDS_TO_FAIL)
        if clear or spent:
            return Judged(speed, ratio, at_least)
        ratios.append(measure(len(ratios) % 2 == 0))
