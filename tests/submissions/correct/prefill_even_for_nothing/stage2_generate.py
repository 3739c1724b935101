import torch


def greedy(logits):
    return logits.select(1, -1).argmax(dim=-1, keepdim=True)


def generate_cache(model, idx, n_new):
    previous = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    try:
        logits, past = model(idx, None)
        token = greedy(logits)
        new = [token][:n_new]
        for _ in range(1, n_new):
            logits, past = model(token, past)
            token = greedy(logits)
            new.append(token)
    finally:
        torch.set_grad_enabled(previous)
    return torch.cat([idx] + new, 1), past


def first_mismatch(a, b):
    best = None
    for row_a, row_b in zip(a.tolist(), b.tolist()):
        for i, (x, y) in enumerate(zip(row_a, row_b)):
            if x != y:
                best = i if best is None else min(best, i)
                break
    if best is None and a.shape[1] != b.shape[1]:
        best = min(a.shape[1], b.shape[1])
    return best
