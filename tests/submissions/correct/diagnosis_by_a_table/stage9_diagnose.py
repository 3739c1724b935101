from __future__ import annotations

import numpy as np
import torch


class Wrong(Exception):
    """The model has shown what is wrong with it."""


def far(a, b) -> bool:
    """Further apart than rounding can bring two right answers; NaN is far from everything."""
    if a.shape != b.shape:
        return True
    a, b = (np.asarray(t.detach().double()) for t in (a, b))
    single = 2e-5
    return not np.abs(a - b).max(initial=0.0) <= single * max(np.abs(b).max(initial=0.0), 1e-30)


def run(model, idx, *cuts):
    past, outs = None, []
    for piece in np.split(np.asarray(idx), cuts, axis=1):
        out, past = model(idx=torch.from_numpy(piece.copy()), past=None if past is None else tuple(past))
        outs.append(out)
    return torch.cat(outs, dim=1), past


def leaks(model, idx, *cuts):
    """Which positions change when the last token does?"""
    changed = idx.clone()
    changed[:, -1] = (changed[:, -1] + 1) % int(idx.max() + 1)
    a, b = run(model, idx, *cuts)[0], run(model, changed, *cuts)[0]
    return [far(a[:, j], b[:, j]) for j in range(idx.shape[1] - 1)]


def examine(model, cfg):
    n = min(10, cfg.block_size)
    rng = np.random.default_rng(3)
    idx = torch.from_numpy(rng.integers(0, cfg.vocab_size, (5, n)))
    idx[0, 0] = cfg.vocab_size - 1  # so that the largest id is there
    whole, cache = run(model, idx)
    if any(leaks(model, idx)):
        raise Wrong("no-mask" if leaks(model, idx)[0] else "other")

    half = n // 2
    step_logits, step_cache = run(model, idx[:, : half + 1], half)
    _, half_cache = run(model, idx[:, :half])
    if step_cache[0][1].shape == half_cache[0][1].shape:
        raise Wrong("other" if far(step_logits, whole[:, : half + 1]) else "stale-cache")
    new_key = step_cache[0][0][:, :, -1]
    if far(new_key, cache[0][0][:, :, half]):
        _, alone = run(model, idx[:, half : half + 1])
        raise Wrong("other" if far(new_key, alone[0][0][:, :, 0]) else "position")
    if far(step_logits, whole[:, : half + 1]):
        raise Wrong("other")

    piece, _ = run(model, idx, half)
    if far(piece, whole):
        if any(leaks(model, idx, half)[half:]):
            raise Wrong("other")
        hears = np.zeros((half, n - half), bool)
        for i in range(half):
            changed = idx.clone()
            changed[:, i] = (changed[:, i] + 1) % cfg.vocab_size
            moved, _ = run(model, changed, half)
            hears[i] = [far(moved[:, j], piece[:, j]) for j in range(half, n)]
        raise Wrong("square-mask" if (hears == np.triu(np.ones_like(hears))).all() else "other")

    for cuts in ([*range(1, n)], [3], [1, 4, 6], [half, n - 1]):
        logits, presents = run(model, idx, *cuts)
        if far(logits, whole) or any(far(a, b) for p, q in zip(presents, cache) for a, b in zip(p, q)):
            raise Wrong("other")
    for row in range(2):
        if far(run(model, idx[row : row + 1])[0], whole[row : row + 1]):
            raise Wrong("other")
    _, past = model(idx[:, :half])
    twice = [model(idx[:, half:], past)[0] for _ in range(2)]
    if far(twice[0], twice[1]):
        raise Wrong("other")


def diagnose(model, cfg) -> str:
    with torch.no_grad():
        try:
            examine(model, cfg)
        except Wrong as wrong:
            return str(wrong)
        except (ValueError, TypeError, IndexError, RuntimeError):
            return "other"
    return "ok"
