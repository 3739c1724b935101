import time

import torch


def sync(device):
    match torch.device(device):
        case torch.device(type="cuda") as gpu:
            torch.cuda.synchronize(gpu)
        case torch.device(type="mps"):
            torch.mps.synchronize()


def timed_steps(step_fn, n_new, device):
    times = []
    for _ in range(n_new):
        sync(device)
        start = time.monotonic()
        step_fn()
        sync(device)
        end = time.monotonic()
        times.append(end - start)
    return times
