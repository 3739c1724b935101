import sys

import torch


def generate_cache(model, idx, n_new):
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20 * n_new + 1000))
    with torch.no_grad():
        return _continue(model, idx, idx, None, n_new)


def _continue(model, text, unseen, past, n_new):
    if n_new == 0:
        return text, past
    logits, past = model(unseen, past)
    token = logits[:, -1].argmax(-1)[:, None]
    return _continue(model, torch.hstack([text, token]), token, past, n_new - 1)


def first_mismatch(a, b):
    n = min(a.shape[1], b.shape[1])
    if torch.equal(a[:, :n], b[:, :n]):
        return None if a.shape[1] == b.shape[1] else n
    if n == 1:
        return 0
    half = n // 2  # it is in the left half, else in the right one
    left = first_mismatch(a[:, :half], b[:, :half])
    return left if left is not None else half + first_mismatch(a[:, half:n], b[:, half:n])
