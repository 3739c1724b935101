import torch
import torch.nn as nn
import torch.nn.functional as F


def attention_mask(nd, ns, dtype, device):
    """1's in the lower triangle, counting from the lower right corner."""
    i = torch.arange(nd, device=device)[:, None]
    j = torch.arange(ns, device=device)
    return (i >= j - ns + nd).to(dtype)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, cfg.n_embd * 3)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def split_heads(self, x):
        *start, m = x.shape
        return x.reshape(*start, self.n_head, m // self.n_head).transpose(1, 2)

    def forward(self, x, past=None):
        q, k, v = map(self.split_heads, self.c_attn(x).split(x.shape[-1], dim=2))
        if past is not None:
            pk, pv = past
            k = torch.cat([pk, k], dim=-2)
            v = torch.cat([pv, v], dim=-2)
        w = q @ k.transpose(-2, -1) / v.shape[-1] ** 0.5
        b = attention_mask(w.shape[-2], w.shape[-1], w.dtype, w.device)
        w = w * b - 1e10 * (1 - b)
        a = F.softmax(w, dim=-1) @ v
        a = a.transpose(1, 2)
        return self.c_proj(a.reshape(*a.shape[:-2], -1)), (k, v)


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, cfg.n_embd * 4)
        self.c_proj = nn.Linear(cfg.n_embd * 4, cfg.n_embd)

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
        a, present = self.attn(self.ln_1(x), past)
        x = x + a
        m = self.mlp(self.ln_2(x))
        return x + m, present


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_ctx = cfg.block_size
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layer)])
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def positions_for(self, tokens, past_length):
        nsteps = tokens.shape[1]
        if past_length + nsteps > self.n_ctx:
            raise ValueError("n_ctx exceeded")
        return (past_length + torch.arange(nsteps, device=tokens.device)).expand(tokens.shape)

    def forward(self, idx, past=None):
        past_length = 0 if past is None else past[0][0].shape[-2]
        h = self.wte(idx) + self.wpe(self.positions_for(idx, past_length))
        presents = []
        pasts = past if past is not None else [None] * len(self.h)
        for layer, p in zip(self.h, pasts):
            h, present = layer(h, past=p)
            presents.append(present)
        return self.lm_head(self.ln_f(h)), presents
