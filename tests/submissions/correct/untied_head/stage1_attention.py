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
        q, k, v = [t.view(B, T, H, C // H).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1)]
        kv = [k, v]
        if past is not None:
            kv = [torch.cat(both, dim=2) for both in zip(past, kv)]
        k, v = kv
        S = k.shape[2]
        rows = torch.arange(S - T, S, device=x.device).view(T, 1)
        cols = torch.arange(S, device=x.device).view(1, S)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=cols <= rows)
        y = y.transpose(1, 2).reshape(B, T, C)
        return self.c_proj(y), kv


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        x = self.c_fc(x)
        x = F.gelu(x, approximate="tanh")
        return self.c_proj(x)


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
        x = x + self.mlp(self.ln_2(x))
        return x, kv


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layer)])
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)

    def forward(self, idx, past=None):
        n_past = 0
        if past is not None:
            n_past = past[0][0].shape[2]
        if n_past + idx.shape[1] > self.cfg.block_size:
            raise ValueError("context is full")
        pos = torch.arange(idx.shape[1], device=idx.device) + n_past
        x = self.wte(idx) + self.wpe(pos)
        cache = []
        for n, layer in enumerate(self.h):
            x, kv = layer(x, None if past is None else past[n])
            cache.append(kv)
        return self.lm_head(self.ln_f(x)), cache
