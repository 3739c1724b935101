import math

import torch
import torch.nn as nn
import torch.nn.functional as F

TILE = 4


def flash(q, k, v):
    """softmax(q kᵀ / √D) v without ever holding the whole row of scores."""
    T, S, D = q.shape[-2], k.shape[-2], q.shape[-1]
    offset = S - T
    q = q / math.sqrt(D)
    top = q.new_full((*q.shape[:-1], 1), -math.inf)
    total = torch.zeros_like(top)
    y = torch.zeros_like(q)
    row = torch.arange(T, device=q.device)[:, None] + offset
    for start in range(0, S, TILE):
        stop = min(start + TILE, S)
        scores = q @ k[:, :, start:stop].mT
        col = torch.arange(start, stop, device=q.device)
        scores = scores.masked_fill(col > row, -math.inf)
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))  # finite: key 0 is always seen
        shrink = (top - new_top).exp()
        p = (scores - new_top).exp()
        total = total * shrink + p.sum(-1, keepdim=True)
        y = y * shrink + p @ v[:, :, start:stop]
        top = new_top
    return y / total


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        q, k, v = (t.unflatten(2, (self.n_head, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, 2))
        if past is not None:
            (past_k, past_v) = past
            k, v = torch.cat((past_k, k), 2), torch.cat((past_v, v), 2)
        return self.c_proj(flash(q, k, v).transpose(1, 2).flatten(2)), (k, v)


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
        P = 0 if past is None else past[0][0].shape[2]
        S = P + idx.shape[1]
        if S > self.cfg.block_size:
            raise ValueError(f"{S} > {self.cfg.block_size}")
        x = self.wte(idx) + self.wpe(torch.arange(P, S, device=idx.device))
        presents = []
        for i, block in enumerate(self.h):
            x, kv = block(x, None if past is None else past[i])
            presents.append(kv)
        return self.lm_head(self.ln_f(x)), presents
