import torch
from torch import Tensor


def prefill(model, idx: Tensor):
    """The cache of everything but the last token, None where that is nothing."""
    if idx.shape[1] == 1:
        return None
    return model(idx[:, :-1])[1]


@torch.no_grad()
def generate_cache(model, idx: Tensor, n_new: int):
    if n_new == 0:
        return idx, None
    past = prefill(model, idx)
    columns = list(idx.split(1, dim=1))
    for _ in range(n_new):
        logits, past = model(columns[-1], past=past)
        columns.append(logits.argmax(dim=2))
    return torch.cat(columns, dim=1), past


def first_mismatch(a: Tensor, b: Tensor):
    shorter = min(a.shape[1], b.shape[1])
    same = torch.eq(a[:, :shorter], b[:, :shorter]).all(dim=0).tolist()
    same.append(a.shape[1] == b.shape[1])
    return same.index(False) if False in same else None
