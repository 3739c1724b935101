from time import perf_counter_ns as now

import torch
from torch.cuda import synchronize as wait_for_cuda
from torch.mps import synchronize as wait_for_mps

WAIT = {"cuda": wait_for_cuda, "mps": wait_for_mps, "cpu": lambda: None}


def timed_steps(step_fn, n_new, device):
    wait = WAIT[torch.device(device).type]
    times = [0.0] * n_new
    for i in range(n_new):
        wait()
        t0 = now()
        step_fn()
        wait()
        t1 = now()
        times[i] = (t1 - t0) / 1e9
    return times
