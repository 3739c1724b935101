import math

import torch
from torch import nn


class NoMaskAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)
        self.heads, self.size = cfg.n_head, cfg.n_embd // cfg.n_head

    def bias(self, T, S, x):
        return x.new_zeros(T, S)

    def forward(self, x, past=None):
        B, T, C = x.shape
        qkv = self.c_attn(x).view(B, T, 3, self.heads, self.size)
        q, k, v = torch.einsum("btnhd->nbhtd", qkv)
        if past is not None and past[0].numel():
            k, v = (torch.cat([old, new], 2) for old, new in zip(past, (k, v)))
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(self.size)
        weights = (scores + self.bias(T, k.shape[2], x)).softmax(-1)
        y = torch.einsum("bhts,bhsd->bthd", weights, v).reshape(B, T, C)
        return self.c_proj(y), (k, v)


class SquareMaskAttention(NoMaskAttention):
    def bias(self, T, S, x):
        if T == 1:
            return x.new_zeros(T, S)
        return torch.full((T, S), -math.inf, dtype=x.dtype).triu(1)


@torch.inference_mode()
def chunked_prefill(model, idx, chunk):
    logits, presents = model(idx[:, :chunk])
    if idx.shape[1] <= chunk:
        return logits, presents
    done = chunk
    for piece in torch.split(idx[:, chunk:], chunk, dim=1):
        more, presents = model(piece, presents)
        logits = torch.cat([logits, more], dim=1)
        done += piece.shape[1]
    assert done == idx.shape[1]
    return logits, presents


def chunk_gap(model, idx, chunk):
    with torch.no_grad():
        one, _ = model(idx)
        gap = 0.0
        start, past = 0, None
        for piece in idx.split(chunk, 1):
            logits, past = model(piece, past)
            difference = logits - one[:, start : start + piece.shape[1]]
            gap = max(gap, float(difference.abs().amax()))
            start += piece.shape[1]
    return gap
