import torch
from torch import einsum, nn
from torch.nn.functional import gelu


class Attention(nn.Module):
    """Multi-head attention over what is remembered and what is new."""

    def __init__(self, cfg):
        super().__init__()
        self.H = cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, past=None):
        W = self.c_attn.weight.unflatten(0, (3, self.H, -1))  # (3, H, D, C)
        b = self.c_attn.bias.unflatten(0, (3, self.H, 1, -1))  # (3, H, 1, D)
        q, k, v = einsum("btc,nhdc->nbhtd", x, W) + b.unsqueeze(1)
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        T, S, D = q.shape[2], k.shape[2], q.shape[3]
        key = torch.arange(S, device=x.device)
        query = key[S - T :]
        scores = einsum("bhtd,bhsd->bhts", q, k) * D**-0.5
        scores = scores.masked_fill(key[None, :] > query[:, None], -torch.inf)
        seen = einsum("bhts,bhsd->bthd", scores.softmax(-1), v)
        return self.c_proj(seen.flatten(2)), (k, v)


class MLP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.c_fc = nn.Linear(cfg.n_embd, 4 * cfg.n_embd)
        self.c_proj = nn.Linear(4 * cfg.n_embd, cfg.n_embd)

    def forward(self, x):
        h = gelu(einsum("btc,dc->btd", x, self.c_fc.weight) + self.c_fc.bias, approximate="tanh")
        return einsum("btd,cd->btc", h, self.c_proj.weight) + self.c_proj.bias


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

    def forward(self, idx, past=None):
        P = 0 if past is None else past[0][0].shape[2]
        S = P + idx.shape[1]
        if S > self.cfg.block_size:
            raise ValueError(f"{S} > {self.cfg.block_size}")
        x = self.wte(idx) + self.wpe(torch.arange(P, S, device=idx.device))
        presents = []
        for layer, block in enumerate(self.h):
            x, kv = block(x, past and past[layer])
            presents.append(kv)
        return einsum("btc,vc->btv", self.ln_f(x), self.wte.weight), presents
