import timeit

import numpy as np
import torch


def wait(device):
    device = torch.device(device)
    if device.type == "cuda":
        with torch.no_grad():
            torch.cuda.synchronize(device=device)
            torch.cuda.synchronize(device=device)
    if device.type == "mps":
        torch.mps.synchronize()


def timed_steps(step_fn, n_new, device):
    wait(device)
    readings = np.zeros((n_new, 2))
    for i in range(n_new):
        wait(device)
        readings[i, 0] = timeit.default_timer()
        step_fn()
        wait(device)
        readings[i, 1] = timeit.default_timer()
    return np.diff(readings, axis=1).ravel().tolist()
