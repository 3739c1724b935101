from fractions import Fraction

import stage1_attention
import torch


class HoardingAttention(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        inner = stage1_attention.Attention(cfg)
        self.c_attn, self.c_proj = inner.c_attn, inner.c_proj
        self.H = cfg.n_head

    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = (t.reshape(B, T, self.H, -1).transpose(1, 2) for t in self.c_attn(x).split(C, dim=-1))
        new = [k, v, q, x]
        if past is not None:
            new = [torch.cat([old, now], dim=-2) for old, now in zip(past, new)]
        K, V, Q, X = new
        S = K.shape[2]
        scores = q @ K.mT * (C // self.H) ** -0.5
        late = torch.arange(S) > torch.arange(S - T, S)[:, None]
        y = torch.where(late, float("-inf"), scores).softmax(-1) @ V
        return self.c_proj(y.transpose(1, 2).flatten(2)), [K, V, Q, X]


def hoard_ratio(past):
    held, needed = 0, 0
    for layer in past:
        for place, t in enumerate(layer):
            size = t.numel() * t.dtype.itemsize
            held += size
            if place in (0, 1):
                needed += size
    return float(Fraction(held, needed))
