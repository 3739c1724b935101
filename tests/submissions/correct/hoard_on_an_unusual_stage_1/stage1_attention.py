import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        B, T, C = x.shape
        H = self.cfg.n_head
        D = C // H
        # (B, T, 3C) -> (3, B, H, T, D): all three at once
        qkv = self.c_attn(x).view(B, T, 3, H, D).permute(2, 0, 3, 1, 4)
        q, kv = qkv[0], qkv[1:]
        if past is not None:
            kv = torch.cat([torch.stack(tuple(past)), kv], dim=-2)
        k, v = kv.unbind(0)
        S = k.shape[-2]
        att = (q @ k.mT) / math.sqrt(D)
        future = torch.ones(T, S, dtype=torch.bool, device=x.device).triu(S - T + 1)
        att = F.softmax(att.masked_fill(future, float("-inf")), dim=-1)
        y = (att @ v).permute(0, 2, 1, 3).reshape(B, T, C)
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
        past = past if past is not None else [None] * self.cfg.n_layer
        P = past[0][0].shape[-2] if past[0] is not None else 0
        T = idx.shape[-1]
        if P + T > self.cfg.block_size:
            raise ValueError("too long")
        x = self.wte(idx) + self.wpe(P + torch.arange(T, device=idx.device))
        presents = []
        for block, layer_past in zip(self.h, past, strict=True):
            x, present = block(x, layer_past)
            presents.append(present)
        return self.lm_head(self.ln_f(x)), presents
