"""Timing that can be believed on a noisy machine: interleaved rounds, medians with intervals, three verdicts.

Two things are compared by measuring them in turn, A B A B: what slows the machine slows both. A round gives
one ratio; the median of the ratios comes with a bootstrap interval, and only an interval that lies wholly on
one side of a limit decides. An interval that holds the limit is narrowed by more rounds, a bounded number of
times, and then the answer is `inconclusive`. No figure is divided by a slope: a cached step's is about zero.
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
ROUNDS, TRIES = 7, 4  # rounds a try; after the last try the answer is `inconclusive`

T = TypeVar("T")
Arm = Callable[[], float]  # does its work once and says how many seconds that took


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
    """A ratio, what it was held against, and what became of it after `tries`."""

    speed: Speed
    ratio: Estimate
    at_least: float
    tries: int


def timed(call: Callable[[], T], wait: Callable[[], object] | None = None) -> tuple[float, T]:
    """Call and return (seconds, result); `wait` waits for the device, before each reading of the clock."""
    if wait:
        wait()
    begun = time.perf_counter()
    result = call()
    if wait:
        wait()
    return time.perf_counter() - begun, result


def interleaved(arms: Mapping[str, Arm], rounds: int, *, warmup: int = WARMUP) -> dict[str, list[float]]:
    """Run every arm once a round, in turn, and every other round backwards; return each arm's seconds.

    The first `warmup` rounds are dropped. So `seconds["a"][i]` and `seconds["b"][i]` are of the same moment.
    """
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(warmup + rounds):
        names = list(arms) if number % 2 == 0 else list(arms)[::-1]
        for name in names:
            took = arms[name]()
            if number >= warmup:
                seconds[name].append(took)
    return seconds


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


def judged(
    measure: Callable[[int], Sequence[float]], at_least: float, *, rounds: int = ROUNDS, tries: int = TRIES
) -> Judged:
    """Measure ratios, `rounds` at a time, until their median is clearly on one side of `at_least`."""
    ratios: list[float] = []
    speed, number = Speed.INCONCLUSIVE, 0
    while speed is Speed.INCONCLUSIVE and number < tries:
        ratios += measure(rounds)
        ratio, number = estimate(ratios), number + 1
        speed = judge(ratio, at_least)
    return Judged(speed, ratio, at_least, number)
