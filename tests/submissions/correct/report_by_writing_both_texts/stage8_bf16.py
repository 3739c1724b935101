from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch


class Bf16Report(NamedTuple):
    first_mismatch: int | None
    top2_gap: float | None
    max_logit_diff: float


def with_cache(model, idx, n_new):
    past = None
    for _ in range(n_new):
        logits, past = model(idx, past)
        yield logits[0, -1].float().numpy()
        idx = logits[:, -1:].argmax(-1)


def without_cache(model, idx, n_new):
    for _ in range(n_new):
        logits, _ = model(idx)
        yield logits[0, -1].float().numpy()
        idx = torch.cat([idx, logits[:, -1:].argmax(-1)], dim=1)


@torch.no_grad()
def bf16_report(model, idx, n_new):
    if n_new == 0:
        return Bf16Report(max_logit_diff=0.0, top2_gap=None, first_mismatch=None)
    a = np.stack(list(with_cache(model, idx, n_new)))
    b = np.stack(list(without_cache(model, idx, n_new)))
    parted = np.flatnonzero(a.argmax(1) != b.argmax(1))
    shared = slice(None, parted[0] + 1 if len(parted) else n_new)
    worst = float(np.abs(a[shared].astype(float) - b[shared]).max())
    if not len(parted):
        return Bf16Report(None, None, worst)
    step = int(parted[0])
    second, first = np.sort(b[step].astype(float))[-2:]
    return Bf16Report(step, float(first - second), worst)
