import torch
import torch.nn as nn
import torch.nn.functional as F
from functools import cache


@cache
def causal(first, last, device):
    """Mask (last - first, last) for queries at positions first … last-1; kept, there are few different ones."""
    return torch.arange(last, device=device) <= torch.arange(first, last, device=device).unsqueeze(1)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        q, k, v = self.c_attn(x).unflatten(2, (3, self.n_head, -1)).unbind(2)  # (B, T, H, D)
        if past is not None:
            k = torch.cat([past[0].transpose(1, 2), k], dim=1)  # (B, S, H, D)
            v = torch.cat([past[1].transpose(1, 2), v], dim=1)
        T, S, D = q.shape[1], k.shape[1], k.shape[3]
        scores = torch.einsum("bthd,bshd->bhts", q, k) / D**0.5
        scores = scores.where(causal(S - T, S, x.device), float("-inf"))
        y = torch.einsum("bhts,bshd->bthd", F.softmax(scores, dim=-1), v)
        return self.c_proj(y.flatten(2)), (k.transpose(1, 2), v.transpose(1, 2))


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
        return self.lm_head(self.ln_f(x)), tuple(presents)
