from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class KV(NamedTuple):
    k: torch.Tensor
    v: torch.Tensor

    @property
    def positions(self):
        return self.k.shape[2]

    def extend(self, k, v):
        return KV(torch.cat([self.k, k], dim=2), torch.cat([self.v, v], dim=2))


class Cache(tuple):
    """One KV a layer."""

    @property
    def positions(self):
        return self[0].positions


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).view(B, T, 3 * self.n_head, -1).transpose(1, 2).chunk(3, dim=1)
        kv = KV(k, v) if past is None else KV(*past).extend(k, v)
        S = kv.positions
        seen = torch.arange(S, device=x.device) <= torch.arange(S - T, S, device=x.device)[:, None]
        y = F.scaled_dot_product_attention(q, kv.k, kv.v, attn_mask=seen)
        return self.c_proj(y.transpose(1, 2).flatten(2)), kv


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
        y, kv = self.attn(self.ln_1(x), past)
        x = x + y
        return x + self.mlp(self.ln_2(x)), kv


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
        past = None if past is None else Cache(KV(*pair) for pair in past)
        P = past.positions if past is not None else 0
        S = P + idx.shape[1]
        if S > self.cfg.block_size:
            raise ValueError(f"`{S}` positions > block_size `{self.cfg.block_size}`")
        x = self.wte(idx) + self.wpe(torch.arange(P, S, device=idx.device))
        pairs = []
        for i, block in enumerate(self.h):
            x, kv = block(x, past[i] if past is not None else None)
            pairs.append(kv)
        return self.lm_head(self.ln_f(x)), Cache(pairs)
