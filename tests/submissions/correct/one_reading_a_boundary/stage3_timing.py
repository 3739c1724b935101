import time
from itertools import pairwise

import torch


def timed_steps(step_fn, n_new, device):
    kind = torch.device(device).type

    def reading():
        if kind == "cuda":
            torch.cuda.synchronize(device)
        elif kind == "mps":
            torch.mps.synchronize()
        return time.perf_counter()

    readings = [reading()]
    for _ in range(n_new):
        step_fn()
        readings.append(reading())
    return [after - before for before, after in pairwise(readings)]
