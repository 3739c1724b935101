import torch


def bf16_report(model, idx, n_new):
    """Two generators of logits, one with memory."""
    state = {"past": None, "new": idx}
    if idx.shape[1] > 1:
        state["past"] = model(idx[:, :-1])[1]
        state["new"] = idx[:, -1:]
    worst = 0
    for step in range(n_new):
        logits, state["past"] = model(state["new"], past=state["past"])
        mine = logits.detach()[0, -1]
        plain = model(idx)[0].detach()[0, -1]
        worst = max(worst, (mine - plain).abs().max().item())
        if mine.argmax().item() != plain.argmax().item():
            top = torch.topk(plain, k=2).values
            return step, (top[0] - top[1]).item(), worst
        state["new"] = plain.argmax().reshape(1, 1)
        idx = torch.hstack([idx, state["new"]])
    return None, None, worst
