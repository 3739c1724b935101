import gc
import time
from functools import partial

import torch


def timed_steps(step_fn, n_new, device):
    device = torch.device(device)
    waits = {"cuda": partial(torch.cuda.synchronize, device), "mps": torch.mps.synchronize}
    wait = waits.get(device.type, int)
    was_on = gc.isenabled()
    gc.disable()
    try:
        return [
            -(wait(), time.perf_counter())[1] + (step_fn(), wait(), time.perf_counter())[2] for _ in range(n_new)
        ]
    finally:
        if was_on:
            gc.enable()
