import torch


@torch.no_grad()
def generate_cache(model, idx, n_new):
    tokens, past = idx, None
    for _ in range(n_new):
        logits, past = model(tokens)
        tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return tokens, past


def first_mismatch(a, b):
    n = min(a.shape[1], b.shape[1])
    differs = (a[:, :n] != b[:, :n]).any(dim=0)
    if differs.any():
        return int(differs.int().argmax())
    return None if a.shape[1] == b.shape[1] else n
