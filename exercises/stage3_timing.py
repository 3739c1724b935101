"""Stage 3: find out whether it is really faster.

A clock is easy to read and hard to read at the right moment. On a GPU a call returns as soon as the work has
been *asked for*; a clock read then has measured how fast Python can ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def timed_steps(step_fn: Callable[[], object], n_new: int, device: str | torch.device) -> list[float]:
    """Call a step n_new times and say how many seconds each call took, its work on the device included.

        wait for the device · read the clock · step · wait for the device · read the clock

    Args:
        step_fn: does one step; takes nothing, and what it returns doesn't matter.
        n_new: how often to call it: exactly so often, with no call to warm up.
        device: where the step's work runs: "cpu", "cuda", "cuda:1", "mps" or a torch.device. It alone
            decides what to wait for, not what this machine happens to have: `torch.cuda.synchronize` for
            CUDA, `torch.mps.synchronize` for MPS, nothing for the CPU.

    Returns:
        n_new floats, seconds a call, in the order of the calls; [] for n_new = 0.

    One size: steps of 20, 30 and 50 ms give [0.02, 0.03, 0.05]; not their sums so far, and not three times
    0.033.

    The trap: there are two waits. Without the one after the step you time the asking; without the one before
    it you also time whatever was still running from before. And use a clock that can't be set back,
    `time.perf_counter`: `time.time` jumps when the machine corrects its date.
    """
    raise NotImplementedError("stage3: timed_steps")
