from __future__ import annotations

import math
from typing import Optional

import torch
import torch.nn as nn
from torch import Tensor

from gpt2 import MLP, Config

Pair = tuple[Tensor, Tensor]


def causal_bias(new: int, total: int, like: Tensor) -> Tensor:
    """(new, total) of 0 where a query may look and -inf where it may not."""
    return torch.full((new, total), -math.inf, dtype=like.dtype, device=like.device).triu(total - new + 1)


class Attention(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.n_head = cfg.n_head
        self.scale = 1 / math.sqrt(cfg.head_dim)
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def split_heads(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        return x.reshape(B, T, self.n_head, C // self.n_head).permute(0, 2, 1, 3)

    def merge_heads(self, x: Tensor) -> Tensor:
        B, H, T, D = x.shape
        return x.permute(0, 2, 1, 3).reshape(B, T, H * D)

    def forward(self, x: Tensor, past: Optional[Pair] = None) -> tuple[Tensor, Pair]:
        q, k, v = map(self.split_heads, self.c_attn(x).chunk(3, dim=2))
        if past is not None:
            past_k, past_v = past
            k = torch.cat((past_k, k), dim=2)
            v = torch.cat((past_v, v), dim=2)
        scores = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        scores = scores + causal_bias(q.shape[2], k.shape[2], scores)
        y = torch.matmul(torch.softmax(scores, dim=-1), v)
        return self.c_proj(self.merge_heads(y)), (k, v)


class Block(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(cfg.n_embd)
        self.attn = Attention(cfg)
        self.ln_2 = nn.LayerNorm(cfg.n_embd)
        self.mlp = MLP(cfg)

    def forward(self, x: Tensor, past: Optional[Pair] = None) -> tuple[Tensor, Pair]:
        attended, present = self.attn(self.ln_1(x), past=past)
        x = x + attended
        return x + self.mlp(self.ln_2(x)), present


class GPT(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layer)])
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx: Tensor, past: Optional[list[Pair]] = None) -> tuple[Tensor, list[Pair]]:
        if past is None:
            past_length, pasts = 0, [None] * len(self.h)
        else:
            past_length, pasts = past[0][0].shape[-2], list(past)
        total = past_length + idx.shape[1]
        if total > self.cfg.block_size:
            raise ValueError(f"{total} positions exceed block_size {self.cfg.block_size}")
        positions = torch.arange(past_length, total, device=idx.device)
        x = self.wte(idx) + self.wpe(positions)
        presents: list[Pair] = []
        for block, pair in zip(self.h, pasts):
            x, present = block(x, past=pair)
            presents.append(present)
        return self.lm_head(self.ln_f(x)), presents
