from itertools import repeat

import torch
import torch.nn as nn
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import gelu, scaled_dot_product_attention


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.shape = (cfg.n_head, cfg.n_embd // cfg.n_head)
        self.c_attn = nn.Linear(cfg.n_embd, cfg.n_embd * 3)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, *self.shape).transpose(1, 2) for part in self.c_attn(x).split(C, -1))
        if past is not None:
            past_k, past_v = past
            k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        bias = causal_lower_right(T, k.shape[2])
        y = scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C)), (k, v)


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, cfg.n_embd * 4)
        self.c_proj = nn.Linear(cfg.n_embd * 4, cfg.n_embd)

    def forward(self, x):
        return self.c_proj(gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(cfg.n_embd), nn.LayerNorm(cfg.n_embd)
        self.attn, self.mlp = Attention(cfg), MLP(cfg)

    def forward(self, x, past=None):
        y, kv = self.attn(self.ln_1(x), past)
        x = x + y
        x = x + self.mlp(self.ln_2(x))
        return x, kv


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.block_size = cfg.block_size
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, past=None):
        start = past[-1][1].shape[2] if past else 0
        stop = start + idx.shape[1]
        if stop > self.block_size:
            raise ValueError("sequence longer than block_size")
        x = self.wte(idx) + self.wpe(torch.arange(start, stop, device=idx.device))
        presents = ()
        for block, kv in zip(self.h, past or repeat(None)):
            x, kv = block(x, kv)
            presents += (kv,)
        return self.lm_head(self.ln_f(x)), presents
