import numpy as np
import torch


def pick(logits):
    """The likeliest token of each row; numpy's argmax takes the first of equals too."""
    return torch.from_numpy(np.argmax(logits[:, -1].double().cpu().numpy(), axis=-1))


def generate_cache(model, idx, n_new):
    B, P0 = idx.shape
    out = torch.empty(B, P0 + n_new, dtype=idx.dtype, device=idx.device)
    out[:, :P0] = idx
    past = None
    start = 0
    with torch.no_grad():
        for stop in range(P0, P0 + n_new):
            logits, past = model(out[:, start:stop], past)
            out[:, stop] = pick(logits).to(out.device)
            start = stop
    return out, past


def first_mismatch(a, b):
    a, b = a.numpy(), b.numpy()
    n = min(a.shape[1], b.shape[1])
    columns = np.flatnonzero(np.any(a[:, :n] != b[:, :n], axis=0))
    if columns.size:
        return int(columns[0])
    return None if a.shape == b.shape else n
