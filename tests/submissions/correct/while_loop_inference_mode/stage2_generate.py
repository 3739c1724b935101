import torch


@torch.inference_mode()
def generate_cache(model, idx, n_new):
    tokens = idx.clone()
    feed = idx
    past = None
    while tokens.size(1) < idx.size(1) + n_new:
        logits, past = model(idx=feed, past=past)
        feed = torch.argmax(logits[:, -1, :], dim=-1).unsqueeze(1)
        tokens = torch.cat((tokens, feed), dim=1)
    return tokens, past


def first_mismatch(a, b):
    column = 0
    while column < a.size(1) and column < b.size(1):
        if not torch.equal(a[:, column], b[:, column]):
            return column
        column += 1
    return None if a.size(1) == b.size(1) else column
