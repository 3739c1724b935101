import torch
import torch.nn as nn
from torch.func import vmap


def attend_one_head(q, k, v):
    """q (T, D), k and v (S, D) -> (T, D)."""
    T, D = q.shape
    S = k.shape[0]
    offset = S - T
    visible = torch.arange(S, device=q.device)[None, :] <= offset + torch.arange(T, device=q.device)[:, None]
    scores = torch.where(visible, (q @ k.T) * D**-0.5, -float("inf"))
    return torch.softmax(scores, dim=-1) @ v


attend = vmap(vmap(attend_one_head))  # over batch, then heads


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.H, self.D = cfg.n_head, cfg.n_embd // cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        new = self.c_attn(x).unflatten(2, (3, self.H, self.D))
        q, k, v = torch.movedim(new, (2, 3), (0, 2))  # three of (B, H, T, D)
        if past is not None:
            k = torch.hstack([past[0].movedim(2, 1), k.movedim(2, 1)]).movedim(1, 2)
            v = torch.hstack([past[1].movedim(2, 1), v.movedim(2, 1)]).movedim(1, 2)
        y = attend(q, k, v)
        return self.c_proj(y.movedim(1, 2).flatten(2)), (k, v)


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x), approximate="tanh"))


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
