"""GPT-2 whose cache never copies what it holds: keys and values live in one buffer per layer, made once.

A present is a pair of views of that buffer. Continuing the newest present writes behind it; continuing an older one
(a second branch) must not write over the first branch, so it gets a buffer of its own.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Buffer:
    """Room for `size` positions of one layer, of which `used` are taken."""

    def __init__(self, like, size):
        B, H, _, D = like.shape
        self.k = like.new_empty(B, H, size, D)
        self.v = like.new_empty(B, H, size, D)
        self.used = 0

    def append(self, k, v):
        start, self.used = self.used, self.used + k.shape[2]
        self.k[:, :, start : self.used] = k.detach()
        self.v[:, :, start : self.used] = v.detach()
        return self.view()

    def view(self):
        k, v = self.k[:, :, : self.used], self.v[:, :, : self.used]
        k.buffer = v.buffer = self  # found again when this very view comes back as a past
        return k, v


def buffer_behind(past, k, v, size):
    """The buffer to write into so that no other holder of `past` can notice."""
    if past is not None:
        old_k, old_v = past
        buffer = getattr(old_k, "buffer", None)
        newest = buffer is not None and getattr(old_v, "buffer", None) is buffer and buffer.used == old_k.shape[2]
        if newest and buffer.used + k.shape[2] <= buffer.k.shape[2]:
            return buffer
        buffer = Buffer(k, max(size, old_k.shape[2] + k.shape[2]))
        buffer.append(old_k, old_v)
        return buffer
    return Buffer(k, max(size, k.shape[2]))


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head, self.block_size = cfg.n_head, cfg.block_size
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        present = buffer_behind(past, k, v, self.block_size).append(k, v)
        if past is not None:
            k, v = present
        S = k.shape[2]
        mask = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(S - T)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C)), present


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.n_embd)
        self.attn = Attention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.n_embd)
        self.mlp = MLP(cfg)

    def forward(self, x, past=None):
        y, present = self.attn(self.ln_1(x), past)
        x = x + y
        return x + self.mlp(self.ln_2(x)), present


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, past=None):
        P = past[0][0].shape[2] if past is not None else 0
        S = P + idx.shape[1]
        if S > self.cfg.block_size:
            raise ValueError(f"{S} positions, room for {self.cfg.block_size}")
        x = self.wte(idx) + self.wpe(torch.arange(P, S, device=idx.device))
        presents = []
        for i, block in enumerate(self.h):
            x, present = block(x, past[i] if past is not None else None)
            presents.append(present)
        return self.lm_head(self.ln_f(x)), presents
