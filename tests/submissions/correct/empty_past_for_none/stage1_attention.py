import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.head_dim = cfg.n_embd // cfg.n_head
        self.c_attn = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.c_proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def nothing(self, x):
        empty = x.new_empty(x.shape[0], self.n_head, 0, self.head_dim)
        return empty, empty

    def forward(self, x, past=None):
        B, T, C = x.shape
        past_k, past_v = past or self.nothing(x)
        q, k, v = self.c_attn(x).view(B, T, 3, self.n_head, self.head_dim).transpose(1, 3).unbind(2)
        k = torch.cat([past_k, k], dim=2).contiguous()
        v = torch.cat([past_v, v], dim=2).contiguous()
        P, S = past_k.shape[2], k.shape[2]
        mask = torch.zeros(T, S, dtype=x.dtype, device=x.device)
        mask[:, P:] = torch.full((T, T), float("-inf"), dtype=x.dtype, device=x.device).triu(1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C)), (k, v)


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
        tok = self.wte(idx)
        if past is None:
            past = [block.attn.nothing(tok) for block in self.h]
        P = past[0][0].shape[2]
        S = P + idx.shape[1]
        if S > self.cfg.block_size:
            raise ValueError(f"S = {S} > block_size = {self.cfg.block_size}")
        x = tok + self.wpe(torch.arange(self.cfg.block_size, device=idx.device)[P:S])
        presents = []
        for block, pair in zip(self.h, past, strict=True):
            x, pair = block(x, pair)
            presents.append(pair)
        return self.lm_head(self.ln_f(x)), presents
