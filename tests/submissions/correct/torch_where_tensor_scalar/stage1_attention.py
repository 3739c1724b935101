import torch
import torch.nn as nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        max_positions = cfg.block_size
        # saved with the model, as nanoGPT and old checkpoints of GPT-2 do
        self.register_buffer(
            "bias",
            torch.tril(torch.ones(max_positions, max_positions, dtype=torch.bool)).view(1, 1, max_positions, max_positions),
        )
        self.register_buffer("masked_bias", torch.tensor(-1e9), persistent=False)
        self.embed_dim = cfg.n_embd
        self.num_heads = cfg.n_head
        self.c_attn = nn.Linear(self.embed_dim, 3 * self.embed_dim)
        self.c_proj = nn.Linear(self.embed_dim, self.embed_dim)

    def _attn(self, query, key, value):
        w = torch.matmul(query, key.transpose(-1, -2)) / value.size(-1) ** 0.5
        nd, ns = w.size(-2), w.size(-1)
        causal = self.bias[:, :, ns - nd : ns, :ns]
        w = torch.where(causal, w, torch.full_like(w, float("-inf")))
        return torch.matmul(F.softmax(w, dim=-1), value)

    def _split_heads(self, x):
        return x.view(*x.shape[:2], self.num_heads, self.embed_dim // self.num_heads).permute(0, 2, 1, 3)

    def _merge_heads(self, x):
        x = x.permute(0, 2, 1, 3).contiguous()
        return x.view(*x.shape[:2], self.embed_dim)

    def forward(self, x, past=None):
        query, key, value = self.c_attn(x).split(self.embed_dim, dim=2)
        query, key, value = self._split_heads(query), self._split_heads(key), self._split_heads(value)
        if past is not None:
            past_key, past_value = past[0], past[1]
            key = torch.cat((past_key, key), dim=-2)
            value = torch.cat((past_value, value), dim=-2)
        return self.c_proj(self._merge_heads(self._attn(query, key, value))), [key, value]


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
        a, present = self.attn(self.ln_1(x), past)
        x = x + a
        m = self.mlp(self.ln_2(x))
        return x + m, present


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab_size, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block_size, cfg.n_embd)
        self.h = nn.ModuleList([Block(cfg) for _ in range(cfg.n_layer)])
        self.ln_f = nn.LayerNorm(cfg.n_embd)
        self.lm_head = nn.Linear(cfg.n_embd, cfg.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, past=None):
        past_length = 0 if past is None else past[0][0].size(-2)
        if past_length + idx.size(-1) > self.cfg.block_size:
            raise ValueError("the sequence does not fit")
        position_ids = torch.arange(past_length, idx.size(-1) + past_length, device=idx.device)
        hidden = self.wte(idx) + self.wpe(position_ids.expand_as(idx))
        presents = []
        for block, layer_past in zip(self.h, [None] * len(self.h) if past is None else past):
            hidden, present = block(hidden, layer_past)
            presents.append(present)
        return self.lm_head(self.ln_f(hidden)), presents
