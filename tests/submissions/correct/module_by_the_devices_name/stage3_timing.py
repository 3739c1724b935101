import time
from contextlib import contextmanager

import torch


class Stopwatch:
    """Seconds between entering and leaving, device work included."""

    def __init__(self, device):
        kind = str(device).split(":")[0]
        self.synchronize = getattr(torch, kind).synchronize if kind != "cpu" else lambda: None
        self.laps = []

    def read(self):
        self.synchronize()
        return time.clock_gettime(time.CLOCK_MONOTONIC)

    @contextmanager
    def lap(self):
        start = self.read()
        yield
        self.laps.append(self.read() - start)


def timed_steps(step_fn, n_new, device):
    watch = Stopwatch(device)
    for _ in range(n_new):
        with watch.lap():
            step_fn()
    return watch.laps
