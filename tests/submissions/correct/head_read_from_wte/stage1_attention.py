import math

import torch
import torch.nn as nn


class LayerNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred * torch.rsqrt(variance + 1e-5) * self.weight + self.bias


def gelu(x):
    return x * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(scores):
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.H = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        B, T, C = x.shape
        D = C // self.H
        qkv = self.c_attn(x)
        q = qkv[..., :C].reshape(B, T, self.H, D).transpose(1, 2) / D**0.5
        k = qkv[..., C : 2 * C].reshape(B, T, self.H, D).transpose(1, 2)
        v = qkv[..., 2 * C :].reshape(B, T, self.H, D).transpose(1, 2)
        if past:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        S = k.size(2)
        allowed = torch.ones(T, S, device=x.device).tril(S - T).bool()
        weights = softmax((q @ k.transpose(2, 3)).masked_fill(allowed.logical_not(), -math.inf))
        return self.c_proj((weights @ v).transpose(1, 2).reshape(B, T, C)), (k, v)


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        return self.c_proj(gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1, self.attn = LayerNorm(cfg.n_embd), Attention(cfg)
        self.ln_2, self.mlp = LayerNorm(cfg.n_embd), MLP(cfg)

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
        self.ln_f = LayerNorm(cfg.n_embd)

    def forward(self, idx, past=None):
        P = past[0][0].size(2) if past else 0
        T = idx.size(1)
        if P + T > self.cfg.block_size:
            raise ValueError(f"{P} cached and {T} new positions are more than {self.cfg.block_size}")
        x = self.wte.weight[idx] + self.wpe.weight[P : P + T]
        presents = []
        for i, block in enumerate(self.h):
            x, kv = block(x, past[i] if past else None)
            presents.append(kv)
        return self.ln_f(x) @ self.wte.weight.T, presents
