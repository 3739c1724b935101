import time

import torch


def timed_steps(step_fn, n_new, device):
    for _ in range(n_new):
        step_fn()
    torch.accelerator.synchronize() if torch.device(device).type != "cpu" else None
    seconds = []
    for _ in range(n_new):
        began = time.perf_counter()
        seconds.append(time.perf_counter() - began)
    return seconds
