"""GPT-2 with a cache; the inner function is scripted, so its source must be findable."""

import math
from typing import Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


@torch.jit.script
def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    T, S = q.size(2), k.size(2)
    scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.size(3))
    mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    scores = scores.masked_fill(mask.logical_not(), -float("inf"))
    return torch.matmul(torch.softmax(scores, dim=-1), v)


@torch.jit.script
def split(qkv: Tensor, n_head: int) -> Tuple[Tensor, Tensor, Tensor]:
    B, T = qkv.size(0), qkv.size(1)
    parts = qkv.view(B, T, 3, n_head, -1).permute(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head: int = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        q, k, v = split(self.c_attn(x), self.n_head)
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        y = attend(q, k, v).transpose(1, 2).flatten(2)
        return self.c_proj(y), (k, v)


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
        self.block_size = cfg.block_size
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layer)])
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, past=None):
        P = 0 if past is None else past[0][0].size(2)
        S = P + idx.size(1)
        if S > self.block_size:
            raise ValueError(f"{S} positions, at most {self.block_size}")
        x = self.wte(idx) + self.wpe(torch.arange(P, S, device=idx.device))
        presents = []
        for i, block in enumerate(self.h):
            x, kv = block(x, None if past is None else past[i])
            presents.append(kv)
        return self.lm_head(self.ln_f(x)), presents
