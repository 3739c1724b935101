import torch


def generate_cache(model, idx, n_new):
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    limit = model.cfg.block_size
    B, P0 = idx.shape
    wanted = P0 + n_new
    if wanted - 1 > limit:
        raise ValueError(f"{wanted - 1} positions, but block_size is {limit}")
    idx = idx.to(device)
    generated, past = [], None
    with torch.no_grad():
        if n_new > 0:
            logits, past = model(idx)
            generated.append(logits[:, -1:].argmax(-1))
            while past[0][0].shape[2] < wanted - 1:
                logits, past = model(generated[-1], past)
                generated.append(logits[:, -1:].argmax(-1))
    model.train(was_training)
    return torch.cat([idx, *generated], dim=1), past


def first_mismatch(a, b):
    longest = max(a.shape[1], b.shape[1])
    pad = torch.nn.functional.pad
    a = pad(a, (0, longest - a.shape[1]), value=-1)
    b = pad(b, (0, longest - b.shape[1]), value=-2)
    columns = (a != b).any(dim=0).nonzero()
    return columns[0].item() if len(columns) else None
