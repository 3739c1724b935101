import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.head_dim = cfg.n_embd // cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def fold(self, x):  # (B, T, C) -> (B·H, T, D)
        B, T, _ = x.shape
        return x.reshape(B, T, self.n_head, self.head_dim).transpose(1, 2).reshape(B * self.n_head, T, self.head_dim)

    def unfold(self, x):  # (B·H, T, D) -> (B, H, T, D)
        return x.view(-1, self.n_head, *x.shape[1:])

    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = (self.fold(part) for part in self.c_attn(x).split(C, dim=2))
        if past is not None:
            old_k, old_v = (old.flatten(0, 1) for old in past)
            k = torch.cat([old_k, k], dim=1)
            v = torch.cat([old_v, v], dim=1)
        S = k.size(1)
        mask = torch.full((T, S), float("-inf"), dtype=x.dtype, device=x.device).triu(S - T + 1)
        scores = torch.baddbmm(mask.expand(B * self.n_head, T, S), q, k.transpose(1, 2), alpha=self.head_dim**-0.5)
        y = torch.bmm(scores.softmax(dim=-1), v)
        y = self.unfold(y).transpose(1, 2).reshape(B, T, C)
        return self.c_proj(y), (self.unfold(k), self.unfold(v))


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
