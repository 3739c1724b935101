from itertools import islice, zip_longest

import torch


def stream(model, idx):
    """Yield (token (B, 1), the cache it was read from) for ever."""
    past = None
    while True:
        with torch.no_grad():
            logits, past = model(idx, past=past)
            idx = logits[:, -1].max(dim=-1, keepdim=True).indices
        yield idx, past


def generate_cache(model, idx, n_new):
    past = []
    tokens = [idx]
    for token, past in islice(stream(model, idx), n_new):
        tokens.append(token)
    return torch.cat(tokens, dim=-1), past


def first_mismatch(a, b):
    columns = zip_longest(a.unbind(1), b.unbind(1))
    return next((i for i, (p, q) in enumerate(columns) if p is None or q is None or bool((p != q).any())), None)
