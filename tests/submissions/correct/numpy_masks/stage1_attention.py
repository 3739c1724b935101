import numpy as np
import torch
import torch.nn as nn

SQRT_2_OVER_PI = float(np.sqrt(2 / np.pi))
SEES = np.tri(2048, dtype=bool)  # row: query's position, column: key's


def sees(first, last):
    """What queries at positions first … last-1 may look at."""
    if last <= len(SEES):
        return SEES[first:last, :last]
    return np.tri(last, dtype=bool)[first:]


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = np.array_split(range(3 * C), 3)
        y = self.c_attn(x)
        q, k, v = (y[..., part[0] : part[-1] + 1].view(B, T, self.n_head, -1).swapaxes(1, 2) for part in (q, k, v))
        if past is not None:
            k = torch.concatenate([past[0], k], axis=2)
            v = torch.concatenate([past[1], v], axis=2)
        S = k.shape[2]
        visible = torch.from_numpy(np.ascontiguousarray(sees(S - T, S))).to(x.device)
        scores = q @ k.swapaxes(2, 3) / np.sqrt(C / self.n_head)
        weights = torch.where(visible, scores, -np.inf).softmax(-1)
        return self.c_proj((weights @ v).swapaxes(1, 2).reshape(B, T, C)), (k, v)


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        x = self.c_fc(x)
        x = x * (1 + torch.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3))) / 2
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
        x = self.wte(idx) + self.wpe(torch.from_numpy(np.arange(P, S)).to(idx.device))
        presents = []
        for i, block in enumerate(self.h):
            x, kv = block(x, None if past is None else past[i])
            presents.append(kv)
        return self.lm_head(self.ln_f(x)), presents
